//! Backups that are being made, and that were made and are being fetched: in the state directory, one at a time,
//! ciphertext throughout.
//!
//! A backup holds keys from the moment on at which the ledger is read for it. So [`Spool::begin`] comes before that,
//! and until its [`Making`] is kept or dropped nobody says that nothing from before is here.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_keys::{Name, file_digest};

use crate::backup::Manifest;
use crate::journal::wipe;

/// What one answer takes of a backup.
pub(super) const PART_BYTES: u64 = 1 << 20;
/// For how long one waits that a key was destroyed after: whoever fetches it is at it for minutes.
const WAITS_NS: i64 = 3600 * 1_000_000_000;

/// A backup that was verified and that nobody has yet.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) manifest: Manifest,
    pub(super) by: Name,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    file: PathBuf,
}

/// Where they lie.
pub(in crate::service) struct Spool {
    folder: PathBuf,
    here: Arc<Mutex<Here>>,
}

#[derive(Default)]
struct Here {
    /// How many backups are under way: of what commits is not known.
    making: usize,
    draft: Option<Draft>,
}

/// A backup that is under way, from before the ledger is read until it is kept.
pub(super) struct Making {
    here: Arc<Mutex<Here>>,
}

impl Drop for Making {
    fn drop(&mut self) {
        lock(&self.here).making -= 1;
    }
}

impl Spool {
    pub(in crate::service) fn new(folder: PathBuf) -> Self {
        Self { folder, here: Arc::default() }
    }

    /// What is left of an earlier run, or of a backup that came to nothing, is overwritten and taken away: nobody can
    /// fetch it any more.
    pub(in crate::service) fn sweep(&self) -> io::Result<()> {
        // As it is called while it is written, and once it is whole.
        for file in [self.folder.join("database.backup.partial"), self.file()] {
            match wipe(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// A backup begins. Before the ledger is read for it.
    pub(super) fn begin(&self) -> Making {
        self.lock().making += 1;
        Making { here: self.here.clone() }
    }

    /// Whether no backup lies here that may hold what was destroyed at that commit. One that has waited for long is
    /// taken away.
    pub(in crate::service) fn holds_nothing_from_before(&self, commit: i64, now_ns: i64) -> bool {
        let mut here = self.lock();
        if here.making > 0 {
            return false;
        }
        here.draft.take_if(|draft| {
            draft.manifest.revision < commit && now_ns.saturating_sub(draft.manifest.made_ns) > WAITS_NS
        });
        match &here.draft {
            Some(draft) => draft.manifest.revision >= commit,
            None => self.sweep().is_ok(),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("database.backup")
    }

    /// A place for a new backup. What is left of one before it is taken away: nobody has said that they have it.
    pub(super) fn clear(&self) -> io::Result<PathBuf> {
        self.lock().draft = None;
        self.sweep()?;
        fs::create_dir_all(&self.folder)?;
        Ok(self.file())
    }

    /// Keeps a verified backup until it is fetched: it is under way no more.
    pub(super) fn keep(&self, making: Making, manifest: Manifest, by: Name, file: PathBuf) -> io::Result<Draft> {
        let (bytes, sha256) = file_digest(&file)?;
        let draft = Draft { manifest, by, bytes, sha256, file };
        self.lock().draft = Some(draft.clone());
        drop(making);
        Ok(draft)
    }

    /// The backup of that id, if it is the one that waits.
    pub(super) fn draft(&self, id: &str) -> Option<Draft> {
        self.lock().draft.clone().filter(|draft| hex(&draft.manifest.id) == id)
    }

    /// Takes a backup away that was fetched.
    pub(super) fn discard(&self, id: &str) {
        let mut here = self.lock();
        if let Some(draft) = here.draft.take_if(|draft| hex(&draft.manifest.id) == id)
            && let Err(error) = wipe(&draft.file)
        {
            tracing::warn!(%error, file = %draft.file.display(), "a backup that was fetched could not be taken away here");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Here> {
        lock(&self.here)
    }
}

fn lock(here: &Mutex<Here>) -> MutexGuard<'_, Here> {
    here.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Draft {
    /// A part of the file, at most [`PART_BYTES`] long; nothing at its end.
    pub(super) fn part(&self, from: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.file)?;
        file.seek(SeekFrom::Start(from))?;
        let mut part = Vec::new();
        file.take(PART_BYTES).read_to_end(&mut part)?;
        Ok(part)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::BTreeSet;

    use capstan_format::KeyTag;
    use capstan_keys::api::ClusterId;

    use super::*;

    fn of_revision(revision: i64) -> Manifest {
        Manifest {
            cluster: ClusterId([7; 16]),
            epoch: 1,
            revision,
            made_ns: 0,
            cluster_key: KeyTag([1; 16]),
            id: [2; 16],
            records: 0,
            keys: BTreeSet::new(),
        }
    }

    /// Only the finished file was looked for: while a backup was written a key of it could be destroyed and certified
    /// as gone, and the backup that held it was given out afterwards.
    #[test]
    fn a_backup_that_is_being_made_may_hold_anything() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().join("backups"));
        let holds_nothing = |commit, now_ns| spool.holds_nothing_from_before(commit, now_ns);
        assert!(holds_nothing(9, 0));
        let making = spool.begin();
        assert!(!holds_nothing(9, i64::MAX), "before there is any file");
        let file = spool.clear().unwrap();
        let partial = file.with_file_name("database.backup.partial");
        fs::write(&partial, b"keys").unwrap();
        assert!(!holds_nothing(9, 0));
        assert!(partial.exists(), "whoever looks leaves it alone");
        fs::rename(&partial, &file).unwrap();
        spool.keep(making, of_revision(8), Name::default(), file.clone()).unwrap();
        assert!(holds_nothing(8, 0) && !holds_nothing(9, 0));
        // Nobody fetches it.
        assert!(holds_nothing(9, WAITS_NS + 1));
        assert!(!file.exists());

        // One that comes to nothing.
        let making = spool.begin();
        fs::write(&file, b"keys").unwrap();
        let mut whole = File::open(&file).unwrap();
        drop(making);
        assert!(holds_nothing(9, 0) && !file.exists());
        let mut bytes = Vec::new();
        whole.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 4]);
    }

    /// A crash left a part of a backup, which was unlinked at the next one and never overwritten.
    #[test]
    fn a_part_of_a_backup_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().to_owned());
        let partial = folder.path().join("database.backup.partial");
        for sweep in [|spool: &Spool| spool.sweep(), |spool: &Spool| spool.clear().map(drop)] {
            fs::write(&partial, b"keys").unwrap();
            let mut part = File::open(&partial).unwrap();
            sweep(&spool).unwrap();
            let mut bytes = Vec::new();
            part.read_to_end(&mut bytes).unwrap();
            assert_eq!((bytes.as_slice(), partial.exists()), (&[0; 4][..], false));
        }
    }
}
