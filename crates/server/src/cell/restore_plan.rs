//! What a restore to a client is of, and how it is planned: when it is asked for, and again in its turn.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_client::restores::AskRestore;
use capstan_director::{Event, PathFilter, Place, RestorePlan, Site};
use capstan_service::problem::Refusal;

use super::blocking::IsAwaited;
use super::error::refused;
use super::places::{Names, Whose, object_and_path};
use crate::restore_run::{RestorePlace, RestoreRun};

/// Objects and paths that one restore may name: each is on record.
const OBJECTS_AT_ONCE: usize = 50;
const PATHS_AT_ONCE: usize = 10_000;

/// A restore as it was planned.
pub(super) struct Planned {
    pub(super) site: Site,
    pub(super) plan: RestorePlan,
    pub(super) notices: Arc<Mutex<Vec<String>>>,
}

/// The object of a client that a text names, and the paths in it.
fn place(site: &Site, names: &Names<'_>, text: &str) -> Result<Place, Refusal> {
    let (object, typed) = object_and_path(names, text)?;
    let paths = typed.map(|typed| site.paths_in(&object, &typed)).transpose().map_err(|error| refused(&error))?;
    Ok(Place { object: object.id, paths: paths.unwrap_or_default() })
}

/// What is asked for of a client: objects, and paths in them.
pub(super) fn places(
    site: &Site,
    client: &str,
    asked: &AskRestore,
    is_awaited: &IsAwaited<'_>,
) -> Result<Vec<Place>, Refusal> {
    let whose = Whose { client: Some(client), is_of: &|name| name == client };
    let names = Names::new(site, &whose, asked.at_ns)?;
    let mut places: Vec<Place> = Vec::new();
    let mut seen = HashSet::new();
    for text in asked.places.iter().filter(|text| seen.insert(text.as_str())) {
        if !is_awaited() {
            return Err(not_awaited());
        }
        let new = place(site, &names, text)?;
        match places.iter_mut().find(|place| place.object == new.object) {
            // The whole of an object holds each of its paths.
            Some(place) if place.paths.is_empty() || new.paths.is_empty() => place.paths.clear(),
            Some(place) => place.paths.extend(new.paths),
            None => places.push(new),
        }
        let paths: usize = places.iter().map(|place| place.paths.len()).sum();
        if places.len() > OBJECTS_AT_ONCE || paths > PATHS_AT_ONCE {
            return Err(Refusal::malformed(format!(
                "A restore is of {OBJECTS_AT_ONCE} objects and {PATHS_AT_ONCE} paths at most: name the directories \
                 above them, or restore in several parts."
            )));
        }
    }
    for place in &mut places {
        place.paths.sort_unstable();
        place.paths.dedup();
    }
    match places.is_empty() {
        true => Err(Refusal::malformed("A restore names at least one object or source.")),
        false => Ok(places),
    }
}

pub(super) fn not_awaited() -> Refusal {
    Refusal::conflict("Whoever asked for this no longer waits for the answer.")
}

/// The same as it was found when it was asked for. What was removed since is not replaced by anything else.
pub(super) fn places_of(site: &Site, run: &RestoreRun) -> Result<Vec<Place>, Refusal> {
    let gone = |object: &str| {
        Refusal::not_found(format!(
            "Object {object} was there when this was asked for, and is not any more: ask again."
        ))
    };
    let place = |place: &RestorePlace| {
        let found = site.find_object(&place.object, None).ok().filter(|object| object.client == run.of);
        let (object, paths) = found.zip(place.bytes()).ok_or_else(|| gone(&place.object))?;
        Ok(Place { object: object.id, paths })
    };
    run.places.iter().map(place).collect()
}

/// Plans what is asked for of a client.
pub(super) fn planned(site: &Site, run: &RestoreRun, places: &[Place]) -> Result<Planned, Refusal> {
    let (client, asked) = (run.of.as_str(), &run.ask);
    let notices: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&notices);
    let events = Arc::new(move |event| {
        if let Event::Notice { message } = event {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        }
    });
    let site = site.beside(events).map_err(|error| refused(&error))?.for_client(client);
    let filter = PathFilter::new(&asked.include, &asked.exclude).map_err(|error| refused(&error))?;
    // All that is looked at may be much: nobody else waits for it.
    let looks = site.with_own_catalog().map_err(|error| refused(&error))?;
    let mut plan = looks.plan_restore_of(places, &filter).map_err(|error| refused(&error))?;
    plan.keep_damaged = asked.keep_damaged;
    plan.check_strip(usize::from(asked.strip)).map_err(|error| refused(&error))?;
    let unused = filter.unused().into_iter().map(|option| format!("{option} matched nothing"));
    notices.lock().unwrap_or_else(PoisonError::into_inner).extend(unused.chain(of_plan(&plan)));
    Ok(Planned { site, plan, notices })
}

/// What a person should know of a plan.
fn of_plan(plan: &RestorePlan) -> Vec<String> {
    let keys = plan.without_key.iter().map(|(_, error)| error.to_string());
    let in_part = plan.in_part().map(|(_, reason)| reason);
    let absent = plan.absent.iter().map(|volser| match plan.out_of_reach.contains(volser) {
        true => out_of_reach_in_words(volser),
        false => format!(
            "{}, and no volume in the library has its part of this: ask for it to be inserted; the restore waits for \
             it, unless it is asked for with --partial",
            plan.whereabouts_of(volser)
        ),
    });
    let not_asked = plan.not_asked.is_some();
    let not_asked = not_asked.then(|| "no library answers: its volumes are taken to be there".to_owned());
    let open = plan.interrupted.then(|| RestorePlan::INTERRUPTED.to_owned());
    keys.chain(in_part).chain(not_asked).chain(absent).chain(open).collect()
}

/// Why a restore does not begin that needs volumes which are in no library.
pub(super) fn to_be_inserted(plan: &RestorePlan) -> String {
    let absent: Vec<_> = plan.absent.iter().map(|volser| plan.whereabouts_of(volser)).collect();
    let them = if absent.len() == 1 { "it" } else { "them" };
    format!("{}: ask for {them} to be inserted, or ask again with --partial", absent.join("; "))
}

/// Why a volume is not read now that is where it should be.
pub(super) fn out_of_reach_in_words(volser: &impl fmt::Display) -> String {
    format!("volume {volser} is in a library that does not answer")
}

/// How many paths of a plan do not come back as they were at the time that was asked for; one more where nobody knows
/// which, as the backup was not finished.
pub(super) fn count_not_as_asked(plan: &RestorePlan) -> u64 {
    (plan.lost.len() + plan.incomplete.len() + plan.older.len() + usize::from(plan.interrupted)) as u64
}

/// These paths, and what becomes of them.
pub(super) fn not_as_asked(plan: &RestorePlan) -> impl Iterator<Item = String> {
    let told = |why: &'static str| move |path: &Vec<u8>| format!("{}: {why}", path.escape_ascii());
    let lost = plan.lost.iter().map(told("could not be read when it was backed up; nothing of it is stored"));
    let incomplete =
        plan.incomplete.iter().map(told("is incomplete: it could not be read to its end when it was backed up"));
    let older = plan.older.iter().map(|older| &older.path);
    let older = older.map(told("could not be read by the last backup; an older version is restored"));
    let open = plan.interrupted.then(|| RestorePlan::INTERRUPTED.to_owned());
    lost.chain(incomplete).chain(older).chain(open)
}
