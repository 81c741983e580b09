//! Objects expire as `capstan expire` has them expire, on the server's own account: in its history and its audit log.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_catalog::JobOutcome;
use capstan_director::{DirectorError, Event, ExpiryPlan, KeepReduction, Site, Tally, UnaskedExpiry};

use crate::cell::error::in_words;
use crate::cell::users::{ShellAct, noted_of_itself};
use crate::serve::Expired;

/// Forgets the objects whose retention has ended; none if they are more than half of all, and none of a policy that
/// keeps less than before and would lose most. That, a person has to say.
///
/// # Errors
/// Why nothing expires, in words: the clock is in doubt, or the catalog or the audit log cannot be written.
pub fn expire(site: &Site) -> Result<Option<Expired>, String> {
    let (site, notices) = beside(site)?;
    let UnaskedExpiry { plan, request, held } = site.plan_unasked_expiry().map_err(|error| in_words(&error))?;
    plan.check().map_err(|error| in_words(&error))?;
    if plan.takes_most() {
        return Ok(None);
    }
    if plan.forget.is_empty() && plan.copies.is_empty() {
        return site.nothing_expired(&request).map(|()| None).map_err(|error| in_words(&error));
    }
    let held: Vec<_> = held.iter().map(KeepReduction::held_text).collect();
    carry_out(&site, (&plan, ""), (&notices, held), || site.expire(&plan, &request)).map(Some)
}

/// Forgets the copies of backups whose place those of a policy of copies have taken.
///
/// # Errors
/// Why none is forgotten, in words, as for [`expire`].
pub fn migrate(site: &Site, policy: &str) -> Result<Option<Expired>, String> {
    let (site, notices) = beside(site)?;
    let plan = site.plan_migration(policy).map_err(|error| in_words(&error))?;
    if plan.copies.is_empty() {
        return Ok(None);
    }
    plan.check().map_err(|error| in_words(&error))?;
    carry_out(&site, (&plan, policy), (&notices, Vec::new()), || site.migrate(&plan, policy)).map(Some)
}

/// Has volumes give their room back where a disk is taken above its high mark: those that hold only what has expired,
/// and then those whose copies a policy migrates for that. Gives what was forgotten; `None` where no disk needs room.
///
/// # Errors
/// Why nothing could be done, in words, as for [`expire`].
pub fn make_room(site: &Site) -> Result<Option<Vec<Expired>>, String> {
    if !site.needs_room() {
        return Ok(None);
    }
    let (own, notices) = beside(site)?;
    let volumes: Vec<_> = own.give_room_back().iter().map(ToString::to_string).collect();
    let notices = std::mem::take(&mut *notices.lock().unwrap_or_else(PoisonError::into_inner));
    let mut made = Vec::new();
    if !volumes.is_empty() {
        let journal = site.must_begin_run("expire", "for room").map_err(|error| in_words(&error))?;
        notices.iter().for_each(|notice| journal.said(notice));
        journal.end(JobOutcome::Succeeded, 0, Tally::default(), &format!("{} made blank", volumes.join(", ")));
    }
    if !notices.is_empty() {
        made.push(Expired { objects: 0, copies: 0, volumes, notices });
    }
    let mut failure = None;
    match own.policies() {
        Err(error) => failure = Some(in_words(&error)),
        Ok(policies) => {
            for policy in policies.iter().filter(|policy| policy.config.migrates_for_room()) {
                match migrate(site, &policy.name) {
                    Ok(migrated) => made.extend(migrated),
                    Err(error) => failure = Some(error),
                }
            }
        }
    }
    // What was done is told first: the rest fails again if it stays so.
    match failure.filter(|_| made.is_empty()) {
        Some(failure) => Err(failure),
        None => Ok(Some(made)),
    }
}

type Notices = Arc<Mutex<Vec<String>>>;

/// A site that gathers what is said. A server runs for long: its site knows the jobs and policies of when it was
/// opened. And nobody waits for the catalog meanwhile.
fn beside(site: &Site) -> Result<(Site, Notices), String> {
    let notices = Notices::default();
    let told = Arc::clone(&notices);
    let events = Arc::new(move |event| {
        if let Event::Notice { message } = event {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        }
    });
    let site = site.with_own_catalog().and_then(|site| site.beside(events)).map_err(|error| in_words(&error))?;
    Ok((site, notices))
}

/// Carries a plan out, with an entry in the history and in the audit log.
fn carry_out(
    site: &Site,
    (plan, subject): (&ExpiryPlan, &str),
    (notices, held): (&Notices, Vec<String>),
    forgets: impl FnOnce() -> Result<ExpiryPlan, DirectorError>,
) -> Result<Expired, String> {
    let journal = site.must_begin_run("expire", subject).map_err(|error| in_words(&error))?;
    let names = plan.names();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let forgets = || forgets().map_err(|error| in_words(&error));
    let forgotten = noted_of_itself(site, (ShellAct::Expire, &names), |error| in_words(&error), forgets);
    let (outcome, code, message) = match &forgotten {
        Ok(done) => (JobOutcome::Succeeded, 0, done.in_a_line()),
        Err(error) => (JobOutcome::Failed, 1, error.clone()),
    };
    if forgotten.is_ok() {
        site.give_room_back();
    }
    let mut notices = std::mem::take(&mut *notices.lock().unwrap_or_else(PoisonError::into_inner));
    notices.extend(held);
    notices.iter().for_each(|notice| journal.said(notice));
    journal.end(outcome, code, Tally::default(), &message);
    let done = forgotten?;
    let volumes = done.frees.iter().map(ToString::to_string).collect();
    Ok(Expired { objects: done.forget.len(), copies: done.copies.len(), volumes, notices })
}
