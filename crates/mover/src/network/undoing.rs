//! Programs that undo what others did before a job, and that are owed until they have been run.
//!
//! ```text
//!  before: lock the pair --> note what is owed --> run        cell/owed/N   the program's name and variables: JSON
//!  after:  run --> remove the note --> unlock the pair        cell/owed/N.new   not whole
//! ```
//! What is owed is noted before anything is run that it undoes. A client that was killed in between runs it when it
//! starts the next time. Whoever owes it has a lock on the note, so another process of the same directory leaves it
//! alone.
//!
//! **Locks.** A pair of programs of one job is at work once in a process. Otherwise, an attempt of a job that the
//! server has given up would run `after` while the next one reads what its `before` has brought to a stand.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use super::orders::RunScript;
use crate::JobToken;

/// Longest note that is believed.
const NOTE_LEN_MAX: u64 = 1 << 20;
/// What the name of a note ends with that is not whole.
const NOT_WHOLE: &str = "new";
/// The variable that names a job.
const JOB: &str = "CAPSTAN_JOB";

/// What is owed by the jobs of a process.
pub struct OwedScripts {
    /// Where it is noted.
    folder: PathBuf,
    pairs: Mutex<HashSet<Pair>>,
}

/// A job, the program that runs before it, and the one that undoes that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pair(String, String, String);

impl Pair {
    pub(super) fn of(before: &RunScript, after: &RunScript) -> Self {
        let job = after.told.iter().find(|(name, _)| name == JOB).map(|(_, job)| job.clone());
        Self(job.unwrap_or_default(), before.script.clone(), after.script.clone())
    }
}

/// A pair that is locked, until this is dropped.
pub(super) struct HeldPair<'a> {
    scripts: &'a OwedScripts,
    pair: Pair,
    /// What is owed, as it is noted.
    note: Option<Note>,
}

/// A note, with the lock on it.
struct Note {
    path: PathBuf,
    _locked: File,
}

impl OwedScripts {
    /// Those that are noted in this directory, which is made where something is.
    pub fn noted_in(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), pairs: Mutex::default() }
    }

    fn pairs(&self) -> MutexGuard<'_, HashSet<Pair>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a pair; none while it is at work.
    pub(super) fn hold(&self, pair: &Pair) -> Option<HeldPair<'_>> {
        self.pairs().insert(pair.clone()).then(|| HeldPair { scripts: self, pair: pair.clone(), note: None })
    }

    fn note(&self, owed: &RunScript) -> io::Result<Note> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let random = JobToken::random()?;
        let name = format!("{:016x}", u64::from_le_bytes(std::array::from_fn(|at| random.0[at])));
        let (path, beside) = (self.folder.join(&name), self.folder.join(&name).with_extension(NOT_WHOLE));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(&serde_json::to_vec(owed)?)?;
        file.sync_all()?;
        std::fs::rename(&beside, &path)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(Note { path, _locked: file })
    }

    /// What a process before this one owed when it was killed.
    pub(super) fn left(&self) -> Vec<Left> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.into_iter().filter_map(Left::at).collect()
    }
}

/// What nobody is left to run who owed it, as long as this is kept.
pub(super) struct Left {
    /// Where it is noted.
    pub(super) path: PathBuf,
    /// The program.
    pub(super) owed: io::Result<RunScript>,
    _locked: File,
}

impl Left {
    fn at(path: PathBuf) -> Option<Self> {
        let mut file = File::open(&path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        if path.extension().is_some_and(|extension| extension == NOT_WHOLE) {
            // Nothing was begun that it undoes.
            drop(std::fs::remove_file(&path));
            return None;
        }
        let owed = read_note(&mut file);
        Some(Self { path, owed, _locked: file })
    }
}

fn read_note(file: &mut File) -> io::Result<RunScript> {
    let mut text = Vec::new();
    file.take(NOTE_LEN_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

impl HeldPair<'_> {
    /// Notes what is owed from now on.
    pub(super) fn owe(&mut self, owed: &RunScript) -> Result<(), String> {
        let failed = |error: io::Error| {
            let folder = self.scripts.folder.display();
            format!("it cannot be noted in {folder} that {} is owed, so nothing was run: {error}", owed.script)
        };
        self.note = Some(self.scripts.note(owed).map_err(failed)?);
        Ok(())
    }

    /// It has been run.
    pub(super) fn has_run(mut self) {
        if let Some(note) = self.note.take() {
            // If it stays, the program is run once more when the client starts.
            drop(std::fs::remove_file(&note.path));
        }
    }
}

impl Drop for HeldPair<'_> {
    fn drop(&mut self) {
        self.scripts.pairs().remove(&self.pair);
    }
}

#[cfg(test)]
mod tests;
