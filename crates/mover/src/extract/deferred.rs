//! What waits for the end: hard links, then directory metadata.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use capstan_format::EntryKind;
use capstan_format::pax::DecodedMember;
use rustix::fs::{AtFlags, Mode, OFlags, chmod, fstat, linkat, statat, syncfs};
use rustix::io::Errno;

use super::directories::{DirectoryCache, Missing};
use super::existing::mtime_ns;
use super::journal::Journal;
use super::metadata::{self, Handle, InheritedAcl, MadeAs};
use super::options::{Durability, Overwrite};
use super::path::{depth, split};
use super::placement::{Placed, place};
use super::report::{ExtractError, ExtractProblemKind, ExtractReport, Failure, Likeness, MemberOutcome, count};
use super::target::RestoreTarget;

/// Into how many parts links and what they may be made to are sorted: of so many parts one is in memory at a time.
const LINK_LANES: u64 = 64;

impl RestoreTarget {
    /// Makes hard links, sets the metadata of directories, deepest first, and reports. Until it returns, directories
    /// have mode 0700 and the present time. Those above all members get the mode that any new directory gets.
    ///
    /// # Errors
    /// [`ExtractError`] if the target fails or is full; what concerns single paths is in the report.
    pub fn finish(self) -> Result<ExtractReport, ExtractError> {
        let take = |journal: &Mutex<Journal>| {
            let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *journal, Journal::new(0))
        };
        make_links(&self, take(&self.links), take(&self.linkable))?;
        let mut nameless = self.root().take_implicit();
        set_directories(&self, take(&self.directories), &mut nameless)?;
        // The target itself is whoever made it's to open.
        nameless.iter().rev().filter(|path| !path.is_empty()).for_each(|path| open_to_others(&self, path));
        if self.options().durability == Durability::Synced {
            let synced = self.root().resolver.open(self.root().fd.as_fd(), b".", OFlags::RDONLY).and_then(syncfs);
            synced.map_err(|errno| self.fatal("bring it to stable storage", errno.into()))?;
        }
        Ok(self.into_tally().report())
    }

    pub(super) fn defer_link(&self, path: &[u8], link: &[u8], mtime_ns: i128) -> Result<(), Failure> {
        self.defer(&self.links, link_lane(self.root().mark(link)), &encode_link(path, link, mtime_ns))
    }

    /// Notes that a hard link may be made to what is at a path: it is what was backed up.
    pub(super) fn may_be_linked(&self, path: &[u8]) -> Result<(), Failure> {
        if self.is_new() {
            return Ok(());
        }
        let mark = self.root().mark(path);
        self.defer(&self.linkable, link_lane(mark), &mark.to_le_bytes())
    }

    pub(super) fn defer_directory(&self, path: &[u8], member: &DecodedMember) -> Result<(), Failure> {
        self.defer(&self.directories, depth(path), &encode_directory(path, member))
    }

    fn defer(&self, journal: &Mutex<Journal>, lane: usize, record: &[u8]) -> Result<(), Failure> {
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        let put = journal.put(lane, record, self.root().fd.as_fd());
        self.journal_result(put).map_err(Failure::Fatal)
    }
}

fn link_lane(mark: u64) -> usize {
    (mark % LINK_LANES) as usize
}

/// Makes the hard links of a journal, to what another one says.
fn make_links(target: &RestoreTarget, mut links: Journal, mut linkable: Journal) -> Result<(), ExtractError> {
    let mut directories = DirectoryCache::new();
    for lane in (0..LINK_LANES).map(link_lane) {
        let mut marks = None;
        while let Some(record) = target.journal_result(links.take_of(lane))? {
            let marks = match &mut marks {
                Some(marks) => marks,
                None => marks.insert(target.journal_result(marks_of(&mut linkable, lane))?),
            };
            let mut fields = Fields(&record);
            let mut member = DecodedMember::new();
            member.kind = EntryKind::HardLink;
            (member.path, member.link) = (fields.bytes(), fields.bytes());
            member.mtime_ns = i128::from_le_bytes(fields.array());
            let is_known = target.is_new() || marks.contains(&target.root().mark(&member.link));
            let file = if is_known { Likeness::Same } else { Likeness::Other };
            match make_link(target, &mut directories, &member, file) {
                Ok(MemberOutcome::Written) => count(&target.tally().hard_links, 1),
                Ok(MemberOutcome::Kept(likeness)) => target.tally().count_kept(likeness),
                Ok(_) => count(&target.tally().unchanged, 1),
                Err(Failure::Member(kind, reason)) => target.tally().problem(&member.path, kind, reason),
                Err(Failure::Fatal(error)) => return Err(error),
            }
        }
    }
    Ok(())
}

/// What stands for the paths of a lane.
fn marks_of(linkable: &mut Journal, lane: usize) -> io::Result<HashSet<u64>> {
    let mut marks = HashSet::new();
    while let Some(record) = linkable.take_of(lane)? {
        marks.insert(u64::from_le_bytes(Fields(&record).array()));
    }
    Ok(marks)
}

/// Makes a link to a file that is what was backed up, or may be something else.
fn make_link(
    target: &RestoreTarget,
    directories: &mut DirectoryCache,
    member: &DecodedMember,
    is_file: Likeness,
) -> Result<MemberOutcome, Failure> {
    let failure = |errno| Failure::system(&member.path, "link it", 0, errno);
    let missing_file = || {
        let file = String::from_utf8_lossy(&member.link);
        let reason = format!("it is a hard link to a file that is not there. Restore with it: {file}");
        Failure::Member(ExtractProblemKind::LinkTarget, reason)
    };
    let (old_parent, old_name) = split(&member.link);
    let old = match directories.get(target.root(), old_parent, Missing::Fail) {
        Err(Errno::NOENT) => return Err(missing_file()),
        opened => opened.map_err(failure)?,
    };
    let (parent, name) = split(&member.path);
    let new = directories.get(target.root(), parent, Missing::Make).map_err(failure)?;
    let stat = |directory, name: &[u8]| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let file = stat(old.fd(), old_name).map_err(|errno| match errno {
        Errno::NOENT => missing_file(),
        errno => failure(errno),
    })?;
    let existing = stat(new.fd(), name).ok();
    if existing.is_some_and(|existing| (existing.st_dev, existing.st_ino) == (file.st_dev, file.st_ino)) {
        return Ok(MemberOutcome::Unchanged);
    }
    let stays = existing.is_some() && target.options().overwrite == Overwrite::Never;
    if is_file == Likeness::Other && !stays {
        return Err(foreign_file(&member.link));
    }
    // Without AT_SYMLINK_FOLLOW a link to a symbolic link is one more name of that link, not of what it points to.
    let mut refused = None;
    let link = |name: &[u8]| {
        linkat(old.fd(), old_name, new.fd(), name, AtFlags::empty()).inspect_err(|errno| refused = Some(*errno))
    };
    let placed = place(target, new.fd(), name, &member.path, member, link);
    match placed.map_err(|failure| refused.and_then(|errno| no_further_name(&member.link, errno)).unwrap_or(failure))? {
        Placed::New((), placement) => placement.commit().map(|()| MemberOutcome::Written).map_err(failure),
        // A link has no size of its own.
        Placed::Existing(MemberOutcome::Kept(_)) => {
            let is_same = existing.is_some_and(|existing| mtime_ns(&existing) == member.mtime_ns);
            Ok(MemberOutcome::Kept(if is_same { Likeness::Same } else { Likeness::Other }))
        }
        Placed::Existing(outcome) => Ok(outcome),
    }
}

/// A link that the file system cannot make; none where something else is wrong.
fn no_further_name(link: &[u8], errno: Errno) -> Option<Failure> {
    let why = match errno {
        Errno::XDEV => "is on another file system, or behind another mount",
        Errno::MLINK => "has as many names as its file system allows",
        _ => return None,
    };
    let file = String::from_utf8_lossy(link);
    let reason =
        format!("it is a hard link to {file}, which {why}. Restore this path alone: then it is a file of its own");
    Some(Failure::Member(ExtractProblemKind::LinkTarget, reason))
}

/// A link whose file was there before, or could not be restored.
fn foreign_file(link: &[u8]) -> Failure {
    let file = String::from_utf8_lossy(link);
    let reason = format!(
        "it is a hard link, and what is there as {file} was not restored and may be another file; no link to that was \
         made. Restore this path alone, or both with --overwrite always"
    );
    Failure::Member(ExtractProblemKind::LinkTarget, reason)
}

/// Sets the metadata of the directories of a journal whose lanes are their depths. Of directories that were made
/// without a member, those below one of these stay closed: their own members are missing.
fn set_directories(
    target: &RestoreTarget,
    mut journal: Journal,
    nameless: &mut BTreeSet<Vec<u8>>,
) -> Result<(), ExtractError> {
    while let Some(record) = target.journal_result(journal.take())? {
        let member = decode(&record);
        for path in below(nameless, &member.path) {
            let reason = "its own entry was not restored, so it is closed to others (mode 0700). Restore it again with \
                          --overwrite changed, or set its owner and mode";
            target.tally().problem(&path, ExtractProblemKind::Metadata, reason.to_owned());
            nameless.remove(&path);
        }
        match set_directory(target, &member) {
            Ok(()) => count(&target.tally().directories, 1),
            Err(Failure::Member(kind, reason)) => target.tally().problem(&member.path, kind, reason),
            Err(Failure::Fatal(error)) => return Err(error),
        }
    }
    Ok(())
}

/// What lies below a directory, of some paths.
fn below(paths: &BTreeSet<Vec<u8>>, directory: &[u8]) -> Vec<Vec<u8>> {
    if paths.is_empty() {
        return Vec::new();
    }
    let above = if directory.is_empty() { Vec::new() } else { [directory, b"/"].concat() };
    let from = paths.range(above.clone()..).take_while(|path| path.starts_with(&above));
    from.filter(|path| !path.is_empty()).cloned().collect()
}

/// Gives a directory above the source the mode of any new directory. It was closed until all below it is protected.
fn open_to_others(target: &RestoreTarget, path: &[u8]) {
    let root = target.root();
    let set = || {
        let opened = root.resolver.open(root.fd.as_fd(), path, OFlags::PATH | OFlags::DIRECTORY)?;
        // What its directory made it inherit stays.
        let inherited = Mode::from_raw_mode(fstat(&opened)?.st_mode & 0o7000);
        chmod(metadata::descriptor_path(opened.as_fd()), inherited | (Mode::from_raw_mode(0o777) - umask()))
    };
    if let Err(errno) = set() {
        let reason = format!("cannot set its mode: {errno}. It is closed to others (mode 0700)");
        target.tally().problem(path, ExtractProblemKind::Metadata, reason);
    }
}

/// What is taken from the mode of new files of this process; where that cannot be told, all that others may do.
fn umask() -> Mode {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let text = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let bits = text.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    Mode::from_raw_mode(bits.unwrap_or(0o077))
}

fn set_directory(target: &RestoreTarget, member: &DecodedMember) -> Result<(), Failure> {
    let failure = |errno| Failure::system(&member.path, "open the directory to set its metadata", 0, errno);
    let root = target.root();
    let path = if member.path.is_empty() { b"." } else { &member.path[..] };
    let opened = root.resolver.open(root.fd.as_fd(), path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failure)?;
    let stat = fstat(&opened).map_err(failure)?;
    let made_as = MadeAs { uid: stat.st_uid, gid: stat.st_gid, acl: InheritedAcl::Perhaps };
    let mut problem = |reason| target.tally().problem(&member.path, ExtractProblemKind::Metadata, reason);
    metadata::apply(Handle::Directory(opened.as_fd()), member, made_as, target.options().owners, &mut problem);
    Ok(())
}

/// A hard link's record.
fn encode_link(path: &[u8], link: &[u8], mtime_ns: i128) -> Vec<u8> {
    let mut record = Vec::with_capacity(path.len() + link.len() + 24);
    put(&mut record, path);
    put(&mut record, link);
    record.extend_from_slice(&mtime_ns.to_le_bytes());
    record
}

/// A directory's record.
fn encode_directory(path: &[u8], member: &DecodedMember) -> Vec<u8> {
    let mut record = Vec::with_capacity(path.len() + 64);
    put(&mut record, path);
    for number in [member.mode, member.uid, member.gid] {
        record.extend_from_slice(&number.to_le_bytes());
    }
    record.extend_from_slice(&member.mtime_ns.to_le_bytes());
    record.push(u8::from(member.atime_ns.is_some()));
    record.extend_from_slice(&member.atime_ns.unwrap_or(0).to_le_bytes());
    put(&mut record, &member.acl_access);
    put(&mut record, &member.acl_default);
    for (name, value) in &member.xattrs {
        put(&mut record, name);
        put(&mut record, value);
    }
    record
}

fn decode(record: &[u8]) -> DecodedMember {
    let mut fields = Fields(record);
    let mut member = DecodedMember::new();
    member.kind = EntryKind::Directory;
    member.path = fields.bytes();
    member.mode = u32::from_le_bytes(fields.array());
    member.uid = u32::from_le_bytes(fields.array());
    member.gid = u32::from_le_bytes(fields.array());
    member.mtime_ns = i128::from_le_bytes(fields.array());
    let known = fields.array::<1>() == [1];
    member.atime_ns = Some(i128::from_le_bytes(fields.array())).filter(|_| known);
    member.acl_access = fields.bytes();
    member.acl_default = fields.bytes();
    while !fields.0.is_empty() {
        let name = fields.bytes();
        member.xattrs.push((name, fields.bytes()));
    }
    member
}

fn put(record: &mut Vec<u8>, bytes: &[u8]) {
    // Bounded by the extended header that it came from, far below 4 GiB.
    record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(bytes);
}

/// Fields of a record; what is cut short reads as zeros and ends the record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((array, rest)) => {
                self.0 = rest;
                *array
            }
            None => {
                self.0 = &[];
                [0; N]
            }
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = u32::from_le_bytes(self.array()) as usize;
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_back() {
        let mut member = DecodedMember::new();
        member.kind = EntryKind::Directory;
        member.path = b"a/b".to_vec();
        (member.mode, member.uid, member.gid) = (0o2755, 7, u32::MAX - 1);
        (member.mtime_ns, member.atime_ns) = (-1, Some(0));
        member.xattrs = vec![(b"user.a".to_vec(), Vec::new()), (b"user.b".to_vec(), vec![0; 300])];
        member.acl_default = b"user::rwx".to_vec();
        let record = encode_directory(b"a/b", &member);
        assert_eq!(decode(&record), member);
        for len in 0..record.len() {
            decode(&record[..len]);
        }
    }
}
