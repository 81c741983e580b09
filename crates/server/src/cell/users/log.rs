//! The audit log of the cell: what users did and were refused, and who joined. Several processes write it: the server
//! that runs, and commands at its machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use capstan_director::{AUDIT_ANCHOR_FACT, Site};
use capstan_keys::Name;
use capstan_service::audit::{
    Anchor, AuditEntry, AuditFact, AuditOutcome, AuditReport, KeptHead, LogHead, PublicText, last_records, log_files,
    note_once, verify,
};
use serde_json::Value;

use crate::cell::CellError;

/// What the records name as whose log it is: one cell has one.
const LOG_OF: &str = "cell";
/// Longest list of names in a record; of the others it is noted how many there were.
const NAMES_LEN_MAX: usize = 2_000;

/// Names that the catalog has, of policies, machines, users or objects, or a directory that a client allows: no secret
/// is among them. Several are joined by commas.
pub(in crate::cell) struct KnownNames<'a>(pub(in crate::cell) &'a [&'a str]);

impl PublicText for KnownNames<'_> {
    fn text(&self) -> String {
        let mut text = String::new();
        for (at, name) in self.0.iter().enumerate() {
            if text.len() + name.len() > NAMES_LEN_MAX && at > 0 {
                return format!("{text} and {} more", self.0.len() - at);
            }
            text += if at == 0 { "" } else { ", " };
            // Nobody keeps a name out of the record by its length.
            match name.len() > NAMES_LEN_MAX {
                true => text.extend(name.chars().take(NAMES_LEN_MAX / 4).chain("...".chars())),
                false => text += name,
            }
        }
        text
    }
}

fn folder(site: &Site) -> PathBuf {
    site.dir().join("cell/audit")
}

fn log_of() -> Result<Name, CellError> {
    LOG_OF.parse().map_err(|_| CellError::AuditLog { reason: "its name is none".to_owned() })
}

/// The catalog's memory of where the log stood.
struct InCatalog<'a>(&'a Site);

impl KeptHead for InCatalog<'_> {
    type Error = CellError;

    fn head(&self) -> Result<Option<LogHead>, CellError> {
        Ok(anchor(self.0)?.map(|anchor| anchor.head))
    }

    fn keep(&self, head: LogHead) -> Result<(), CellError> {
        let anchor = Anchor { kma: log_of()?, head, at_ns: self.0.now_ns() };
        Ok(self.0.catalog().put_fact(AUDIT_ANCHOR_FACT, &anchor.to_json())?)
    }
}

fn anchor(site: &Site) -> Result<Option<Anchor>, CellError> {
    Ok(site.catalog().fact(AUDIT_ANCHOR_FACT)?.and_then(|text| Anchor::from_json(&text)))
}

/// Notes an act. When this returns, the record is on disk; after an error nothing must be done that was to be noted.
/// The catalog must not be locked by this thread.
pub(in crate::cell) fn note(site: &Site, entry: AuditEntry) -> Result<(), CellError> {
    note_once(&folder(site), &log_of()?, entry, site.now_ns(), &InCatalog(site)).map(drop)
}

/// Does something that is noted before it begins and when it has ended. Whoever finds a beginning alone has to look
/// what became of it. `unnoted` says whether it is done though it cannot be noted, and `why` what a failure is called.
pub(super) fn noted<T, E>(
    site: &Site,
    entry: AuditEntry,
    unnoted: impl FnOnce(CellError) -> Result<(), E>,
    why: impl FnOnce(&E) -> &'static str,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    note(site, entry.clone().came_to(AuditOutcome::Begun)).or_else(unnoted)?;
    let done = work();
    let outcome = match &done {
        Ok(_) => AuditOutcome::Done,
        Err(error) => AuditOutcome::Failed { why: AuditFact::from(why(error)) },
    };
    // What was done is done, and whoever asked must hear of it: a beginning alone is on record then.
    let _ = note(site, entry.came_to(outcome));
    done
}

/// Refusals that are noted: of each who asks so many a minute, so that nobody fills the disk by asking.
#[derive(Default)]
pub(in crate::cell) struct Refusals(Mutex<HashMap<String, (Instant, u32)>>);

/// How many, and in which time.
const REFUSALS_NOTED: u32 = 20;
const REFUSALS_TIME: Duration = Duration::from_secs(60);

impl Refusals {
    /// Whether one more of this peer is noted.
    pub(in crate::cell) fn is_noted(&self, who: &str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (since, _)| since.elapsed() < REFUSALS_TIME);
        let (_, count) = all.entry(who.to_owned()).or_insert((Instant::now(), 0));
        *count += 1;
        *count <= REFUSALS_NOTED
    }
}

/// The last records of the log.
pub(super) fn records(site: &Site, last: usize) -> Result<Vec<Value>, CellError> {
    let folder = folder(site);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    last_records(&folder, last).map_err(|source| unread(&folder, &source))
}

/// Checks the log against itself and against where the catalog says it stood.
pub(super) fn check(site: &Site) -> Result<AuditReport, CellError> {
    // The anchor first: what is noted meanwhile lies behind it.
    let anchor = anchor(site)?;
    let folder = folder(site);
    let files = if folder.exists() { log_files(&folder) } else { Ok(Vec::new()) };
    let files = files.map_err(|source| unread(&folder, &source))?;
    verify(&log_of()?, &files, anchor.as_slice()).map_err(|source| unread(&folder, &source))
}

fn unread(folder: &Path, source: &std::io::Error) -> CellError {
    CellError::AuditLog { reason: format!("{} cannot be read: {source}", folder.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_names_are_cut() {
        assert_eq!(KnownNames(&["a", "b"]).text(), "a, b");
        let long = "x".repeat(1_500);
        assert_eq!(KnownNames(&[&long, "b", &long, "d"]).text(), format!("{long}, b and 2 more"));
        // A restorer named a directory that was too long to be in the record at all.
        assert_eq!(KnownNames(&[&"x".repeat(2_500), "b"]).text(), format!("{}..., b", "x".repeat(500)));
    }
}
