//! Backups that were made and are being fetched: in the state directory, one at a time, ciphertext throughout.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};
use capstan_keys::Name;

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
    draft: Mutex<Option<Draft>>,
}

impl Spool {
    pub(in crate::service) fn new(folder: PathBuf) -> Self {
        Self { folder, draft: Mutex::default() }
    }

    /// What is left of an earlier run is taken away: nobody can fetch it any more.
    pub(in crate::service) fn sweep(&self) -> io::Result<()> {
        match wipe(&self.file()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether no backup lies here that may hold what was destroyed at that commit. One that has waited for long is taken away.
    pub(in crate::service) fn holds_nothing_from_before(&self, commit: i64, now_ns: i64) -> bool {
        let overtaken = self.lock().clone().filter(|draft| draft.manifest.revision < commit);
        if let Some(draft) = overtaken.filter(|draft| now_ns.saturating_sub(draft.manifest.made_ns) > WAITS_NS) {
            self.discard(&hex(&draft.manifest.id));
        }
        match &*self.lock() {
            Some(draft) => draft.manifest.revision >= commit,
            // One that is being made is of a commit that is not known here.
            None => !self.file().exists(),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("database.backup")
    }

    /// A place for a new backup. What is left of one before it is taken away: nobody has said that they have it.
    pub(super) fn clear(&self) -> io::Result<PathBuf> {
        *self.lock() = None;
        self.sweep()?;
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(&self.folder)?;
        Ok(self.file())
    }

    /// Keeps a verified backup until it is fetched.
    pub(super) fn keep(&self, manifest: Manifest, by: Name, file: PathBuf) -> io::Result<Draft> {
        let (bytes, sha256) = digest_of(&file)?;
        let draft = Draft { manifest, by, bytes, sha256, file };
        *self.lock() = Some(draft.clone());
        Ok(draft)
    }

    /// The backup of that id, if it is the one that waits.
    pub(super) fn draft(&self, id: &str) -> Option<Draft> {
        self.lock().clone().filter(|draft| hex(&draft.manifest.id) == id)
    }

    /// Takes a backup away that was fetched.
    pub(super) fn discard(&self, id: &str) {
        let mut waiting = self.lock();
        if let Some(draft) = waiting.take_if(|draft| hex(&draft.manifest.id) == id)
            && let Err(error) = wipe(&draft.file)
        {
            tracing::warn!(%error, file = %draft.file.display(), "a backup that was fetched could not be taken away here");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Draft>> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// Length and SHA-256 of a file.
pub fn digest_of(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut context, mut buffer, mut bytes) = (Context::new(&SHA256), vec![0; 256 << 10], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => {
                context.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
    Ok((bytes, hex(context.finish().as_ref())))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
