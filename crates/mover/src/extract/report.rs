//! What came of each member, and of all together.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::members::StreamError;

/// Most bytes of problems kept with path and reason; beyond that they are counted.
const PROBLEM_BYTES_MAX: usize = 8 << 20;
/// Most that is kept of one path: a hostile one may be long, and this much a person can read.
const PATH_KEPT_MAX: usize = 4_096;
/// Most characters that are kept of one reason, which may quote names.
const REASON_KEPT_MAX: usize = 1_024;

/// What came of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberOutcome {
    /// It is there, with its content.
    Written,
    /// A part of its content is missing.
    Damaged(DamagedFile),
    /// Left for [`super::RestoreTarget::finish`]: a hard link, which needs its file first.
    Deferred,
    /// Something of that name exists and was to be left alone.
    Kept(Likeness),
    /// The file exists with the same size and modification time.
    Unchanged,
    /// The caller did not want it.
    NotWanted,
    /// It is not there; a [`ExtractProblem`] says why.
    Failed,
}

/// Whether what exists is what was backed up, as far as its kind, size and time tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// It is.
    Same,
    /// It is something else.
    Other,
}

/// What became of a file of which a part is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamagedFile {
    /// What could be read of it is there under [`super::damaged_name`] of its own, with zeros for the rest.
    Kept,
    /// Nothing of it could be read.
    Unread,
    /// Something of that name is there, and stays.
    InTheWay,
}

/// A member that was dealt with.
#[derive(Debug)]
pub struct MemberDone<'a> {
    /// Its path as the stream has it.
    pub path: &'a [u8],
    /// Where it begins in the stream.
    pub offset: u64,
    /// CRC32C of its content with holes as zeros; `None` where the content was passed over.
    pub crc: Option<u32>,
    /// Bytes of content written, holes not counted.
    pub bytes: u64,
    /// Bytes of the file that no copy gives.
    pub missing: u64,
    /// What came of it.
    pub outcome: MemberOutcome,
}

/// What kind of thing went wrong; the run went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExtractProblemKind {
    /// The stream names something that must not or cannot be written: a path out of the target, through a symbolic
    /// link, or that is another file's on a file system that does not tell case apart.
    Refused,
    /// Something else of that name is there and stays.
    InTheWay,
    /// The file itself could not be made.
    NotWritten,
    /// It is there, but owner, mode, times, attributes or access control list are not all as they were.
    Metadata,
    /// A hard link's file is not there, or what is there is not known to be it.
    LinkTarget,
    /// A device node, which was not asked for.
    Device,
}

/// Something that was not restored as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractProblem {
    /// The path below the target.
    pub path: Vec<u8>,
    /// What kind of problem.
    pub kind: ExtractProblemKind,
    /// What happened and what to do about it.
    pub reason: String,
}

impl fmt::Display for ExtractProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", String::from_utf8_lossy(&self.path), self.reason)
    }
}

/// How a restore ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ExtractReport {
    /// Regular files written.
    pub files: u64,
    /// Directories made or given their metadata.
    pub directories: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Hard links made.
    pub hard_links: u64,
    /// Named pipes and devices made.
    pub nodes: u64,
    /// Bytes of content written, holes not counted.
    pub bytes: u64,
    /// Members left alone because something of that name exists. Directories that exist do not count.
    pub kept: u64,
    /// Those of them for which something else is there: its kind, size or time is not what was backed up.
    #[serde(default, skip_serializing_if = "is_none")]
    pub differing: u64,
    /// Files left alone because size and time are the same.
    pub unchanged: u64,
    /// What was not restored as it was; at most 8 MiB of it.
    pub problems: Vec<ExtractProblem>,
    /// How many problems there were, listed or not.
    pub problems_count: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl ExtractReport {
    /// What is to be said where something else than what was backed up was there, and stays.
    pub fn differing_in_words(&self) -> Option<String> {
        let (which, them) = match self.differing {
            0 => return None,
            1 => ("1 path that was there already, and is left as it was, differs".to_owned(), "it"),
            paths => (format!("{paths} paths that were there already, and are left as they were, differ"), "them"),
        };
        Some(format!(
            "{which} from what was backed up in kind, size or time: restore with --overwrite changed to replace {them}"
        ))
    }
}

/// Why a restore stopped.
#[derive(Debug, Error)]
pub enum ExtractError {
    /// The stream could not be read on; members before it are restored.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// No room is left in the target.
    #[error(
        "no room in the target for {}: {missing_bytes} more bytes are needed for this file. Make room, then restore again \
         with --overwrite changed to go on",
        String::from_utf8_lossy(path)
    )]
    Full {
        /// The path that did not fit.
        path: Vec<u8>,
        /// Bytes of it that were not written.
        missing_bytes: u64,
        /// What the system said: no space, or quota exceeded.
        source: io::Error,
    },
    /// The target itself fails.
    #[error("the target fails at {}: cannot {action}", String::from_utf8_lossy(path))]
    Target {
        /// The path concerned.
        path: Vec<u8>,
        /// What was attempted.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The machine that writes says why it stopped, or is gone.
    #[error("{reason} (on {client})")]
    AtClient {
        /// The machine.
        client: String,
        /// What it says, or what is known of it.
        reason: String,
    },
    /// The mover that reads is gone.
    #[error("{reason}")]
    Mover {
        /// What is known of it.
        reason: String,
    },
}

/// How one member failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// This member only.
    Member(ExtractProblemKind, String),
    /// The whole run.
    Fatal(ExtractError),
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        Self::Fatal(error.into())
    }
}

impl Failure {
    /// A member that would land in another one's place.
    pub(super) fn folded() -> Self {
        let reason = "something whose name differs only by case exists, and this file system takes the two for one. Restore to \
                      a file system that tells case apart";
        Self::Member(ExtractProblemKind::Refused, reason.to_owned())
    }

    /// Sorts an error of the system by whom it concerns: the file, or everything that is still to come.
    pub(super) fn system(path: &[u8], action: &'static str, missing_bytes: u64, errno: Errno) -> Self {
        let path = path.to_vec();
        match errno {
            Errno::NOSPC | Errno::DQUOT => {
                Self::Fatal(ExtractError::Full { path, missing_bytes, source: errno.into() })
            }
            Errno::IO | Errno::ROFS | Errno::STALE | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NODEV => {
                Self::Fatal(ExtractError::Target { path, action, source: errno.into() })
            }
            Errno::LOOP | Errno::NOTDIR | Errno::XDEV => {
                let reason = "a symbolic link or a file stands where the path needs a directory; it is not followed. \
                              Restore to an empty directory, or remove it";
                Self::Member(ExtractProblemKind::Refused, reason.to_owned())
            }
            Errno::EXIST => Self::folded(),
            errno => Self::Member(ExtractProblemKind::NotWritten, format!("cannot {action}: {errno}")),
        }
    }
}

#[derive(Debug, Default)]
struct Problems {
    kept: Vec<ExtractProblem>,
    kept_bytes: usize,
    count: u64,
}

/// Counts of one run, shared by its threads.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) files: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) symlinks: AtomicU64,
    pub(super) hard_links: AtomicU64,
    pub(super) nodes: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) differing: AtomicU64,
    pub(super) unchanged: AtomicU64,
    problems: Mutex<Problems>,
}

pub(super) fn count(counter: &AtomicU64, add: u64) {
    counter.fetch_add(add, Ordering::Relaxed);
}

impl Tally {
    /// Counts what was there already and stays.
    pub(super) fn count_kept(&self, likeness: Likeness) {
        count(&self.kept, 1);
        if likeness == Likeness::Other {
            count(&self.differing, 1);
        }
    }

    pub(super) fn problem(&self, path: &[u8], kind: ExtractProblemKind, mut reason: String) {
        if reason.len() > REASON_KEPT_MAX {
            reason = reason.chars().take(REASON_KEPT_MAX).chain(" ...".chars()).collect();
        }
        let path = path[..path.len().min(PATH_KEPT_MAX)].to_vec();
        let bytes = path.len() + reason.len() + size_of::<ExtractProblem>();
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        problems.count += 1;
        if problems.kept_bytes + bytes <= PROBLEM_BYTES_MAX {
            problems.kept_bytes += bytes;
            problems.kept.push(ExtractProblem { path, kind, reason });
        }
    }

    pub(super) fn report(self) -> ExtractReport {
        let problems = self.problems.into_inner().unwrap_or_else(PoisonError::into_inner);
        ExtractReport {
            files: self.files.into_inner(),
            directories: self.directories.into_inner(),
            symlinks: self.symlinks.into_inner(),
            hard_links: self.hard_links.into_inner(),
            nodes: self.nodes.into_inner(),
            bytes: self.bytes.into_inner(),
            kept: self.kept.into_inner(),
            differing: self.differing.into_inner(),
            unchanged: self.unchanged.into_inner(),
            problems: problems.kept,
            problems_count: problems.count,
        }
    }
}
