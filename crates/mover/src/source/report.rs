//! What a source tells while it runs and when it ends: live counters, and what did not go as it should.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use capstan_tape::without_error_numbers;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::snapshot::ReadFrom;

/// Problems that are kept in full; further ones are only counted, so that a broken disk does not fill the memory.
const PROBLEMS_KEPT_MAX: usize = 1_000;

/// Most that is kept of the path of a problem: a path may be made long, and this much a person can read.
const PATH_KEPT_MAX: usize = 4_096;

/// Told of each problem as it is met, with the path as the object has it; called from any of a source's threads. A
/// report keeps the first thousand only.
pub type OnProblem = Box<dyn Fn(&[u8], ProblemKind) + Send + Sync>;

/// What happened to one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceProblem {
    /// The path as the object has it.
    pub path: Vec<u8>,
    /// What happened.
    pub kind: ProblemKind,
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.escape_ascii(), self.kind)
    }
}

/// What can happen to a path. Errors are kept as the system's error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProblemKind {
    /// It could not be opened; nothing of its content is stored.
    Unreadable(i32),
    /// Reading failed in the middle; zeros stand for what could not be read.
    ReadFailed(i32),
    /// The directory could not be listed, or not to its end; what was not listed is not stored, and an incremental
    /// keeps its earlier state. The directory's entry is flagged.
    Unlisted(i32),
    /// Extended attributes or access control lists could not be read; the rest is stored.
    AttributesUnreadable(i32),
    /// It was listed and then gone.
    Vanished,
    /// It became longer while it was read; stored up to the length that it had at the start.
    Grew,
    /// It became shorter while it was read; zeros stand for the rest.
    Shrank,
    /// It was written to while it was read.
    Changed,
    /// A socket, which no archive can hold.
    Socket,
    /// The root of a file system that the kernel makes up (`proc`, `sysfs`); its content is skipped unless it is named
    /// as a source.
    PseudoFilesystem,
    /// A source that is a symbolic link; the link is stored, not what it points to.
    SourceIsLink,
    /// It has more data extents than are kept; holes behind the last of them are stored as zeros.
    TooManyExtents,
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong; the operator may want to know.
    Note,
    /// The source was in use: what is stored may not be one state of the file.
    Unsteady,
    /// Something of the source is not in the object.
    Loss,
}

impl ProblemKind {
    /// Whether attributes could not be read, and another try may help: not where they are barred, or nobody has them.
    pub(crate) fn may_pass(self) -> bool {
        let Self::AttributesUnreadable(errno) = self else { return false };
        let errno = Errno::from_raw_os_error(errno);
        let barred = [Errno::ACCESS, Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::TOOBIG];
        !barred.contains(&errno)
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self {
            Self::Unreadable(_) | Self::ReadFailed(_) | Self::Unlisted(_) | Self::AttributesUnreadable(_) => {
                Severity::Loss
            }
            Self::Vanished | Self::Grew | Self::Shrank | Self::Changed => Severity::Unsteady,
            Self::Socket | Self::PseudoFilesystem | Self::SourceIsLink | Self::TooManyExtents => Severity::Note,
        }
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, errno) = match self {
            Self::Unreadable(errno) => ("cannot be read, and is not stored", Some(*errno)),
            Self::ReadFailed(errno) => ("cannot be read in full; zeros are stored for the missing part", Some(*errno)),
            Self::Unlisted(errno) => ("the directory cannot be listed, and its content is not stored", Some(*errno)),
            Self::AttributesUnreadable(errno) => {
                ("extended attributes, or some of them, cannot be read, and are not stored", Some(*errno))
            }
            Self::Vanished => ("was gone before it could be read", None),
            Self::Grew => ("grew while it was read; only its length at the start is stored", None),
            Self::Shrank => ("shrank while it was read; zeros are stored for the rest", None),
            Self::Changed => ("changed while it was read", None),
            Self::Socket => ("is a socket, which is not stored", None),
            Self::PseudoFilesystem => ("belongs to the kernel, such as /proc; name it as a source to store it", None),
            Self::SourceIsLink => {
                ("is a symbolic link, stored as such; name what it points to as the source to store that", None)
            }
            Self::TooManyExtents => ("has too many holes; the last of them are stored as zeros", None),
        };
        f.write_str(words)?;
        let said = |errno| without_error_numbers(&io::Error::from_raw_os_error(errno).to_string());
        errno.map_or(Ok(()), |errno| write!(f, " ({})", said(errno)))
    }
}

/// How a source ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Regular files written to the stream, each under its first name.
    pub files: u64,
    /// What is neither file nor directory, written to the stream: links, fifos, devices.
    pub others: u64,
    /// Directories written to the stream.
    pub directories: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Paths that stand as they did in the base of an incremental.
    pub unchanged: u64,
    /// Paths that the base has and the source no longer has.
    pub deleted: u64,
    /// The first thousand problems, in no order.
    pub problems: Vec<SourceProblem>,
    /// All problems, by severity: notes, unsteady, losses.
    pub problem_counts: [u64; 3],
    /// Exclude patterns that matched nothing; `None` for what is not a tree.
    pub excludes_unused: Option<Vec<String>>,
    /// What it was read from.
    #[serde(default)]
    pub from: ReadFrom,
}

impl SourceReport {
    /// Counts a problem, and keeps it while there is room.
    pub(crate) fn problem(&mut self, path: &[u8], kind: ProblemKind) {
        self.problem_counts[kind.severity() as usize] += 1;
        if self.problems.len() < PROBLEMS_KEPT_MAX {
            let path = path[..path.len().min(PATH_KEPT_MAX)].to_vec();
            self.problems.push(SourceProblem { path, kind });
        }
    }

    /// Problems of one severity.
    pub fn count(&self, severity: Severity) -> u64 {
        self.problem_counts[severity as usize]
    }

    /// Adds another connection's part.
    pub(crate) fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.others += other.others;
        self.directories += other.directories;
        self.bytes += other.bytes;
        self.unchanged += other.unchanged;
        self.deleted += other.deleted;
        let room = PROBLEMS_KEPT_MAX.saturating_sub(self.problems.len());
        self.problems.extend(other.problems.into_iter().take(room));
        for (count, more) in self.problem_counts.iter_mut().zip(other.problem_counts) {
            *count += more;
        }
    }
}

/// What [`Progress`] counts, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    files: u64,
    directories: u64,
    bytes: u64,
    passed: u64,
    problems: u64,
}

impl Counted {
    /// What a restore counts: members, bytes of their content, and bytes of the streams.
    pub(crate) fn of_restore(members: u64, bytes: u64, taken: u64) -> Self {
        Self { files: members, bytes, passed: taken, ..Self::default() }
    }

    /// The same, taken apart.
    pub(crate) fn restored(&self) -> (u64, u64, u64) {
        (self.files, self.bytes, self.passed)
    }
}

/// Counters that a display may read while a source runs. They lag behind by at most a few dozen files a connection.
#[derive(Debug, Default)]
pub struct Progress {
    files: AtomicU64,
    directories: AtomicU64,
    bytes: AtomicU64,
    passed: AtomicU64,
    problems: AtomicU64,
    current: Mutex<Vec<u8>>,
}

impl Progress {
    /// All zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Files passed so far, stored or unchanged.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Directories passed so far.
    pub fn directories(&self) -> u64 {
        self.directories.load(Ordering::Relaxed)
    }

    /// Bytes of content so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the files passed so far, stored or not: their holes count, and those of files that stand as they did in
    /// the base.
    pub fn passed_bytes(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Problems so far.
    pub fn problems(&self) -> u64 {
        self.problems.load(Ordering::Relaxed)
    }

    /// Brings the counters to what somebody counted elsewhere, who last said `before`.
    pub(crate) fn follow(&self, before: &Counted, now: &Counted, current: Vec<u8>) {
        for (counter, before, now) in [
            (&self.files, before.files, now.files),
            (&self.directories, before.directories, now.directories),
            (&self.bytes, before.bytes, now.bytes),
            (&self.passed, before.passed, now.passed),
            (&self.problems, before.problems, now.problems),
        ] {
            counter.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }

    /// The counters at this moment.
    pub(crate) fn counted(&self) -> Counted {
        Counted {
            files: self.files(),
            directories: self.directories(),
            bytes: self.bytes(),
            passed: self.passed_bytes(),
            problems: self.problems(),
        }
    }

    /// A path that was read a moment ago.
    pub fn current(&self) -> Vec<u8> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One connection's share of the counters: it adds to [`Progress`] now and then, because a counter that two processors
/// write for each small file costs more than the file's header.
#[derive(Debug)]
pub(crate) struct Tally<'a> {
    progress: &'a Progress,
    files: u64,
    directories: u64,
    bytes: u64,
    passed: u64,
    problems: u64,
    rounds: u64,
}

/// Files after which the counters are brought up to date.
const FILES_PER_ROUND: u64 = 32;
/// Bytes after which the counters are brought up to date.
const BYTES_PER_ROUND: u64 = 4 << 20;

impl<'a> Tally<'a> {
    pub(crate) fn new(progress: &'a Progress) -> Self {
        Self { progress, files: 0, directories: 0, bytes: 0, passed: 0, problems: 0, rounds: 0 }
    }

    pub(crate) fn file(&mut self, path: &[u8]) {
        self.files += 1;
        if self.files >= FILES_PER_ROUND {
            self.publish(path);
        }
    }

    pub(crate) fn directory(&mut self) {
        self.directories += 1;
    }

    pub(crate) fn problem(&mut self) {
        self.problems += 1;
    }

    /// Bytes that nobody has to read: a hole, or a file that stands as it did.
    pub(crate) fn passed(&mut self, len: u64) {
        self.passed += len;
    }

    pub(crate) fn bytes(&mut self, path: &[u8], len: u64) {
        self.bytes += len;
        self.passed += len;
        if self.bytes >= BYTES_PER_ROUND {
            self.publish(path);
        }
    }

    pub(crate) fn publish(&mut self, path: &[u8]) {
        let progress = self.progress;
        for (counter, value) in [
            (&progress.files, &mut self.files),
            (&progress.directories, &mut self.directories),
            (&progress.bytes, &mut self.bytes),
            (&progress.passed, &mut self.passed),
            (&progress.problems, &mut self.problems),
        ] {
            if *value != 0 {
                counter.fetch_add(std::mem::take(value), Ordering::Relaxed);
            }
        }
        self.rounds += 1;
        // A display looks a few times a second; it never makes the walk wait.
        if self.rounds % 16 == 1
            && !path.is_empty()
            && let Ok(mut current) = progress.current.try_lock()
        {
            current.clear();
            current.extend_from_slice(path);
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.publish(b"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where attributes are never given out, each incremental read all files again.
    #[test]
    fn attributes_that_are_barred_are_not_tried_again() {
        let may_pass = |errno: Errno| ProblemKind::AttributesUnreadable(errno.raw_os_error()).may_pass();
        assert!([Errno::IO, Errno::NOMEM, Errno::STALE].into_iter().all(may_pass));
        assert!(![Errno::ACCESS, Errno::PERM, Errno::OPNOTSUPP].into_iter().any(may_pass));
        assert!(!ProblemKind::ReadFailed(Errno::IO.raw_os_error()).may_pass());
    }
}
