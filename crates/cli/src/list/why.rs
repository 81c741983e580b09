//! `object why`: which copies of an object there are and should be, who makes each, and when the rest come.

use std::process::ExitCode;

use capstan_catalog::Object;
use capstan_director::{CopyKept, CopyMaker, OwedCopy, Site};
use capstan_server::{Look, look};
use jiff::Timestamp;

use super::objects::{Known, object_json};
use super::show::{copy_state, kept_row, kept_text};
use crate::args::{ObjectAction, ObjectOf};
use crate::failure::{Failure, director};
use crate::globals::Globals;
use crate::json::{CopyRow, CopyWhyRow};
use crate::output::{print, print_rows};
use crate::place::find_object;
use crate::secrets::site;
use crate::table::Table;
use crate::units;

/// A copy that is there, or is to come, and how long it is kept.
type Why = (CopyWhyRow, String);

pub(crate) fn object(cli: &Globals, of: &ObjectOf) -> Result<ExitCode, Failure> {
    let ObjectAction::Why { object } = &of.action;
    let site = site(cli)?;
    let object = find_object(&site, object, None)?;
    let copies = copies(&site, &object)?;
    if cli.json {
        return print_rows(copies.into_iter().map(|(row, _)| Ok(row)));
    }
    let mut table = Table::new(&[">copy", "pool", "state", "kept", "why"]);
    for (row, kept) in copies {
        let number = row.copy.map_or_else(|| "-".to_owned(), |copy| copy.to_string());
        table.row(vec![number, row.pool, row.state.to_owned(), kept, row.why]);
    }
    print(&table)
}

fn copies(site: &Site, object: &Object) -> Result<Vec<Why>, Failure> {
    let look = look(site).map_err(director)?;
    let row = object_json(site, &Known::of(site)?, object)?;
    let (kept, owed) = (site.copies_kept(object)?, site.copies_owed_of(object)?);
    let mut rows = Vec::new();
    for copy in &row.copies {
        let pool = copy.pool.clone().unwrap_or_default();
        let kept = kept.iter().find(|kept| kept.copy == copy.copy).cloned();
        let owed = owed.iter().find(|owed| owed.pool == pool);
        let maker = site.copy_maker(object, &pool);
        rows.push(of_copy((site, &look), object, (copy, pool), kept, (maker, owed)));
    }
    for owed in owed.iter().filter(|owed| row.copies.iter().all(|copy| copy.pool.as_ref() != Some(&owed.pool))) {
        let (comes_ns, when) = comes(&look, site, owed);
        let row = CopyWhyRow {
            object: object.id.to_string(),
            copy: None,
            pool: owed.pool.clone(),
            state: "to come",
            policy: Some(owed.policy.clone()),
            kept: None,
            comes_ns,
            why: format!("policy {} copies it: {when}", owed.policy),
        };
        rows.push((row, String::new()));
    }
    Ok(rows)
}

/// A copy of which something is there, or is promised.
fn of_copy(
    (site, look): (&Site, &Look),
    object: &Object,
    (copy, pool): (&CopyRow, String),
    kept: Option<CopyKept>,
    (maker, owed): (CopyMaker, Option<&OwedCopy>),
) -> Why {
    let state = copy_state(copy);
    let (policy, mut why) = match maker {
        CopyMaker::Backup => (Some(object.policy.clone()), format!("policy {} writes it", object.policy)),
        CopyMaker::PolicyOfCopies(policy) => (Some(policy.clone()), format!("policy {policy} copies it")),
        CopyMaker::Nobody => (None, "no policy makes it now".to_owned()),
    };
    let mut comes_ns = None;
    match owed {
        Some(owed) => {
            let (at_ns, when) = comes(look, site, owed);
            (comes_ns, why) = (at_ns, format!("{why}: {when}"));
        }
        None if !copy.whole => why += ": `capstan repair` completes it",
        None => {}
    }
    let text = kept.as_ref().map(kept_text).unwrap_or_default();
    let (object, kept) = (object.id.to_string(), kept.map(kept_row));
    (CopyWhyRow { object, copy: Some(copy.copy), pool, state, policy, kept, comes_ns, why }, text)
}

/// When the next run of a policy of copies makes a copy.
fn comes(look: &Look, site: &Site, owed: &OwedCopy) -> (Option<i64>, String) {
    let policy = &owed.policy;
    if look.active.iter().any(|active| active.run.policy == *policy) {
        return (None, "a run of it is at work".to_owned());
    }
    let from_ns = owed.from_ns.max(site.now_ns());
    let is_time = owed.from_ns <= site.now_ns();
    if is_time && look.pending.iter().any(|pending| pending.run.policy == *policy) {
        return (None, "a run of it is in the queue".to_owned());
    }
    let from = Timestamp::from_nanosecond(i128::from(from_ns)).unwrap_or_default();
    let next = look.next_run(policy, from).and_then(|at| i64::try_from(at.as_nanosecond()).ok());
    let config = look.policy(policy).map(|policy| &policy.config);
    let starts_itself = config.is_some_and(|config| config.starts_by_what_is_owed() && !config.is_switched_off());
    match next {
        Some(at_ns) => (Some(at_ns), format!("on {}", units::time(at_ns))),
        None if starts_itself => {
            let when = match config.and_then(|config| config.when_above) {
                Some(percent) => format!("once what it copies from is filled above {percent} %"),
                None => "as soon as it can".to_owned(),
            };
            (None, if is_time { when } else { format!("{when}, from {} on", units::time(from_ns)) })
        }
        None if is_time => (None, format!("once somebody runs it (`capstan queue add {policy}`)")),
        None => (None, format!("once somebody runs it, from {} on", units::time(from_ns))),
    }
}
