//! Objects expire as `capstan expire` has them expire, on the server's own account: in its history and its audit log.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_catalog::JobOutcome;
use capstan_director::{Event, ExpiryPlan, ExpiryRequest, KeepReduction, Site, Tally, UnaskedExpiry};

use crate::cell::error::in_words;
use crate::cell::users::{ShellAct, noted_of_itself};
use crate::serve::Expired;

/// Forgets the objects whose retention has ended; none if they are more than half of all, and none of a policy that
/// keeps less than before and would lose most. That, a person has to say.
///
/// # Errors
/// Why nothing expires, in words: the clock is in doubt, or the catalog or the audit log cannot be written.
pub fn expire(site: &Site) -> Result<Option<Expired>, String> {
    let notices: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&notices);
    let events = Arc::new(move |event| {
        if let Event::Notice { message } = event {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        }
    });
    // A server runs for long: its site knows the jobs and policies of when it was opened. And nobody waits for the
    // catalog meanwhile.
    let site = site.with_own_catalog().and_then(|site| site.beside(events)).map_err(|error| in_words(&error))?;
    let UnaskedExpiry { plan, request, held } = site.plan_unasked_expiry().map_err(|error| in_words(&error))?;
    plan.check().map_err(|error| in_words(&error))?;
    if plan.takes_most() {
        return Ok(None);
    }
    if plan.forget.is_empty() {
        return site.nothing_expired(&request).map(|()| None).map_err(|error| in_words(&error));
    }
    let journal = site.must_begin_run("expire", "").map_err(|error| in_words(&error))?;
    let forgotten = forget(&site, &plan, &request);
    let (outcome, code, message) = match &forgotten {
        Ok(done) => (JobOutcome::Succeeded, 0, in_a_line(done)),
        Err(error) => (JobOutcome::Failed, 1, error.clone()),
    };
    let mut notices = std::mem::take(&mut *notices.lock().unwrap_or_else(PoisonError::into_inner));
    notices.extend(held.iter().map(KeepReduction::held_text));
    notices.iter().for_each(|notice| journal.said(notice));
    journal.end(outcome, code, Tally::default(), &message);
    let done = forgotten?;
    let volumes = done.frees.iter().map(ToString::to_string).collect();
    Ok(Some(Expired { objects: done.forget.len(), volumes, notices }))
}

fn forget(site: &Site, plan: &ExpiryPlan, request: &ExpiryRequest) -> Result<ExpiryPlan, String> {
    let objects: Vec<_> = plan.forget.iter().map(|object| object.id.to_string()).collect();
    let names: Vec<_> = objects.iter().map(String::as_str).collect();
    let forgets = || site.expire(plan, request).map_err(|error| in_words(&error));
    noted_of_itself(site, (ShellAct::Expire, &names), |error| in_words(&error), forgets)
}

fn in_a_line(done: &ExpiryPlan) -> String {
    match done.forget.len() {
        1 => "1 object forgotten".to_owned(),
        count => format!("{count} objects forgotten"),
    }
}
