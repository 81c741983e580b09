//! What becomes of streams that are read back: files in a target directory, or a verdict on every checksum.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_format::{crc32c_append, crc32c_append_zeros};

use crate::damage::FailedMember;
use crate::extract::{DamagedFile, ExtractError, MemberOutcome, MemberReader, Piece, RestoreTarget, StreamError};
use crate::feed::{
    DrivesWay, InLibrary, ReadReport, ToRead, VerifiedElsewhere, VerifyCounters, VolumeAccess, parts_of, read_streams,
};
use crate::meters::ReadMeters;
use crate::read::{ReadPlan, Wanted, WantedMember};
use crate::stream::StreamReader;
use crate::throttle::RateLimit;

/// Live counters of a restore or a verification, and the switch that stops it.
#[derive(Debug, Default)]
pub struct RestoreWatch {
    /// Members done.
    pub members: AtomicU64,
    /// Bytes of their content.
    pub bytes: AtomicU64,
    /// Bytes of the streams that were taken so far, of a member that is not done yet, too; headers included.
    pub taken: AtomicU64,
    /// How many will be taken; 0 while that is not known.
    pub planned: AtomicU64,
    /// Who waits for whom.
    pub meters: ReadMeters,
    /// How fast a client gets what is read for it.
    pub rate: RateLimit,
    /// Set it to stop at the next member.
    pub stop: Arc<AtomicBool>,
}

/// Bytes after which what was taken is told: a counter that two processors write for each small file costs more than
/// its header.
const TOLD_EVERY: u64 = 1 << 18;

/// A reader that counts what is taken from it.
struct Counted<'w, R> {
    bytes: R,
    untold: u64,
    taken: &'w AtomicU64,
}

impl<'w, R> Counted<'w, R> {
    fn new(bytes: R, watch: &'w RestoreWatch) -> Self {
        Self { bytes, untold: 0, taken: &watch.taken }
    }

    fn tell(&mut self) {
        self.taken.fetch_add(std::mem::take(&mut self.untold), Ordering::Relaxed);
    }

    fn count(&mut self, len: usize) {
        self.untold += len as u64;
        if self.untold >= TOLD_EVERY {
            self.tell();
        }
    }
}

impl<R> Drop for Counted<'_, R> {
    fn drop(&mut self) {
        self.tell();
    }
}

impl<R: BufRead> BufRead for Counted<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.bytes.fill_buf()
    }

    fn consume(&mut self, len: usize) {
        self.bytes.consume(len);
        self.count(len);
    }
}

impl<R: BufRead> Read for Counted<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.bytes.read(out)?;
        self.count(len);
        Ok(len)
    }
}

/// How streams were given back.
#[derive(Debug, Default)]
pub struct StreamsReport {
    /// What reading met.
    pub read: ReadReport,
    /// Members that failed, by stream and offset.
    pub failed: Vec<FailedMember>,
    /// What ended the work before its end: a full disk, for one.
    pub fatal: Option<ExtractError>,
}

impl StreamsReport {
    /// All that is wanted of some streams has failed.
    pub fn fail(&mut self, wanted: &Wanted, streams: impl IntoIterator<Item = usize>, reason: &str) {
        for stream in streams {
            let failed = |member: &WantedMember| {
                let (offset, reason) = (member.offset, reason.to_owned());
                FailedMember { stream, offset, reason, is_written: false }
            };
            self.failed.extend(wanted.streams[stream].members.iter().map(failed));
        }
    }

    /// Takes in how another part of the same restore went.
    pub fn add(&mut self, part: Self) {
        self.read.add(part.read);
        self.failed.extend(part.failed);
        self.fatal = self.fatal.take().or(part.fatal);
    }
}

/// Shared by the threads of one run.
#[derive(Default)]
pub(crate) struct Verdicts {
    /// By stream and offset: why, and whether it was written all the same.
    failed: Mutex<BTreeMap<(usize, u64), (String, bool)>>,
    fatal: Mutex<Option<ExtractError>>,
}

impl Verdicts {
    fn fail(&self, stream: usize, offset: u64, reason: String) {
        self.note(stream, offset, (reason, false));
    }

    fn note(&self, stream: usize, offset: u64, verdict: (String, bool)) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.entry((stream, offset)).or_insert(verdict);
    }

    pub(crate) fn into_report(self, read: ReadReport) -> StreamsReport {
        let failed = self.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let failed = failed.into_iter().map(|((stream, offset), (reason, is_written))| FailedMember {
            stream,
            offset,
            reason,
            is_written,
        });
        let fatal = self.fatal.into_inner().unwrap_or_else(PoisonError::into_inner);
        StreamsReport { read, failed: failed.collect(), fatal }
    }
}

/// Writes what is wanted below a target. Links and directories' metadata are left to [`RestoreTarget::finish`].
pub fn restore_streams(
    wanted: &Wanted,
    plan: &ReadPlan,
    access: VolumeAccess<'_>,
    target: &RestoreTarget,
    watch: &RestoreWatch,
) -> StreamsReport {
    let verdicts = Verdicts::default();
    let consume = |stream: usize, reader: &mut StreamReader<'_>| {
        restore_stream((target, watch, &verdicts), stream, reader);
    };
    let read = read_streams(wanted, plan, access, (&watch.stop, &watch.meters), &consume);
    verdicts.into_report(read)
}

/// Writes what is wanted of a stream below a target.
pub(crate) fn restore_stream(
    (target, watch, verdicts): (&RestoreTarget, &RestoreWatch, &Verdicts),
    stream: usize,
    reader: &mut StreamReader<'_>,
) {
    let mut extractor = target.extractor();
    each_range(reader, watch, |reader, range, members| {
        let begin = range.start;
        // How many members were met, or are named as missing.
        let mut met = 0;
        let mut done = |done: &crate::extract::MemberDone<'_>| {
            watch.members.fetch_add(1, Ordering::Relaxed);
            watch.bytes.fetch_add(done.bytes, Ordering::Relaxed);
            let mut missing = |offset| verdicts.fail(stream, offset, NOT_MET.to_owned());
            let member = meet(members, &mut met, begin + done.offset, &mut missing);
            let written = done.outcome == MemberOutcome::Written;
            if let (true, Some(crc), Some(member)) = (written, done.crc, member)
                && crc != member.crc
            {
                verdicts.note(stream, member.offset, (checksum_words(member.crc, crc), true));
            }
            if let (MemberOutcome::Damaged(file), Some(member)) = (done.outcome, member) {
                let words = match file {
                    DamagedFile::Kept => format!("{} of its bytes could not be read: {KEPT}", done.missing),
                    DamagedFile::Unread => "nothing of its content could be read".to_owned(),
                    DamagedFile::InTheWay => IN_THE_WAY.to_owned(),
                };
                verdicts.note(stream, member.offset, (words, file == DamagedFile::Kept));
            }
        };
        let object = reader.object();
        let mut choose = |path: &[u8]| target.choice(object, path);
        let mut bytes = Counted::new(reader.range(range), watch);
        let extracted = extractor.extract(&mut bytes, &mut choose, &mut done);
        match extracted {
            Ok(()) => {
                not_met(verdicts, stream, &members[met..]);
                Step::Done
            }
            Err(ExtractError::Stream(error)) => {
                let hit = hit_by(begin, members, &error);
                not_met(verdicts, stream, members.get(met..hit).unwrap_or_default());
                broken(verdicts, stream, begin, members, &error)
            }
            Err(fatal) => {
                watch.stop.store(true, Ordering::Relaxed);
                let mut first = verdicts.fatal.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(fatal);
                Step::Stop
            }
        }
    });
}

/// Reads what is wanted and compares every file's checksum.
pub fn verify_streams(
    wanted: &Wanted,
    plan: &ReadPlan,
    access: VolumeAccess<'_>,
    watch: &RestoreWatch,
) -> StreamsReport {
    let VolumeAccess { host, drives, between } = access;
    if let DrivesWay::Elsewhere(far) = drives.0 {
        let what = ToRead { wanted, plan, stop: &watch.stop, meters: &watch.meters };
        let counters = VerifyCounters { members: &watch.members, bytes: &watch.bytes, taken: &watch.taken };
        let VerifiedElsewhere { read, failed, broken } = far.verify(what, host, between, counters);
        return StreamsReport { read, failed, fatal: broken.map(|reason| ExtractError::Mover { reason }) };
    }
    if let DrivesWay::Several(routes) = drives.0
        && let [part] = &parts_of(routes, wanted, plan).parts[..]
    {
        // Checksums are compared where the drives are.
        let mut host = InLibrary { host: Box::new(host), routes, library: part.library };
        let access = VolumeAccess { host: &mut host, drives: routes.drives(part.library), between };
        return verify_streams(wanted, plan, access, watch);
    }
    let access = VolumeAccess { host, drives, between };
    let verdicts = Verdicts::default();
    let consume = |stream: usize, reader: &mut StreamReader<'_>| {
        each_range(reader, watch, |reader, range, members| {
            let begin = range.start;
            let mut bytes = Counted::new(reader.range(range), watch);
            let checked = check_members(&mut bytes, begin, members, watch, &mut |offset, reason| {
                verdicts.fail(stream, offset, reason);
            });
            match checked {
                Ok(()) => Step::Done,
                Err(error) => broken(&verdicts, stream, begin, members, &error),
            }
        });
    };
    let read = read_streams(wanted, plan, access, (&watch.stop, &watch.meters), &consume);
    verdicts.into_report(read)
}

fn check_members(
    bytes: &mut dyn BufRead,
    begin: u64,
    members: &[WantedMember],
    watch: &RestoreWatch,
    fail: &mut dyn FnMut(u64, String),
) -> Result<(), StreamError> {
    let mut reader = MemberReader::new(bytes);
    // One wanted member may be several in the stream: standard input is cut into segments.
    let mut open: Option<(&WantedMember, u32)> = None;
    let mut met = 0;
    let mut read = || -> Result<(), StreamError> {
        while let Some((head, mut content)) = reader.next()? {
            let mut missing = Vec::new();
            let member = meet(members, &mut met, begin + head.offset, &mut |offset| missing.push(offset));
            if member.is_some() || !missing.is_empty() {
                settle(std::mem::replace(&mut open, member.map(|member| (member, 0))), fail);
            }
            missing.into_iter().for_each(|offset| fail(offset, NOT_MET.to_owned()));
            let Some((_, crc)) = &mut open else { continue };
            let mut len = 0;
            while let Some(piece) = content.next_piece()? {
                match piece {
                    Piece::Data { bytes, .. } => {
                        *crc = crc32c_append(*crc, bytes);
                        len += bytes.len() as u64;
                    }
                    // What is missing is an error here.
                    Piece::Hole { len: hole, .. } | Piece::Missing { len: hole, .. } => {
                        *crc = crc32c_append_zeros(*crc, hole);
                    }
                }
            }
            watch.members.fetch_add(1, Ordering::Relaxed);
            watch.bytes.fetch_add(len, Ordering::Relaxed);
        }
        Ok(())
    };
    let read = read();
    // Those behind the place where a stream breaks are tried again; those before it were read, or should have been.
    let hit = read.as_ref().map_or_else(|error| hit_by(begin, members, error), |()| members.len());
    settle(open.filter(|(member, _)| members.get(hit).is_none_or(|hit| member.offset < hit.offset)), fail);
    members.get(met..hit).unwrap_or_default().iter().for_each(|member| fail(member.offset, NOT_MET.to_owned()));
    read
}

/// Why a member fails that is wanted where none begins.
const NOT_MET: &str = "no member begins here";

/// The wanted member that begins at an offset, if one does. Those before it that were not met do not begin where they
/// should.
fn meet<'m>(
    members: &'m [WantedMember],
    met: &mut usize,
    offset: u64,
    missing: &mut dyn FnMut(u64),
) -> Option<&'m WantedMember> {
    while let Some(member) = members.get(*met).filter(|member| member.offset <= offset) {
        *met += 1;
        if member.offset == offset {
            return Some(member);
        }
        missing(member.offset);
    }
    None
}

/// Where a stream seems to end early, what is wanted behind its end is not there.
fn not_met(verdicts: &Verdicts, stream: usize, members: &[WantedMember]) {
    members.iter().for_each(|member| verdicts.fail(stream, member.offset, NOT_MET.to_owned()));
}

/// Compares the checksum of a member that has ended.
fn settle(ended: Option<(&WantedMember, u32)>, fail: &mut dyn FnMut(u64, String)) {
    if let Some((member, crc)) = ended.filter(|(member, crc)| member.crc != *crc) {
        fail(member.offset, checksum_words(member.crc, crc));
    }
}

/// Where what was read of a file is that lacks a part.
const KEPT: &str = "the rest is under its name with .damaged added, with zeros for what is missing";

/// Why a part of a file was not kept.
const IN_THE_WAY: &str = "a file of its name with .damaged added is there, and stays: remove that, or restore with \
                          --overwrite changed";

/// How the reason begins of a file whose content is not what it was.
const OTHER_CONTENT: &str = "its content has checksum";

fn checksum_words(expected: u32, found: u32) -> String {
    format!("{OTHER_CONTENT} {found:08x}, the catalog says {expected:08x}")
}

impl FailedMember {
    /// Whether its content is not what it was, as far as the reason says.
    pub(crate) fn is_of_checksum(&self) -> bool {
        self.reason.starts_with(OTHER_CONTENT)
    }
}

enum Step {
    Done,
    /// Go on behind this member, counted in the range.
    SkipTo(usize),
    Stop,
}

/// Calls `run` with each run of neighbouring members; where one is broken, again with what lies behind it.
fn each_range(
    reader: &mut StreamReader<'_>,
    watch: &RestoreWatch,
    mut run: impl FnMut(&mut StreamReader<'_>, Range<u64>, &[WantedMember]) -> Step,
) {
    let members = reader.members();
    let mut first = 0;
    while first < members.len() && !watch.stop.load(Ordering::Relaxed) {
        let mut end = members[first].offset + members[first].len;
        let mut last = first + 1;
        while members.get(last).is_some_and(|member| member.offset == end) {
            end += members[last].len;
            last += 1;
        }
        match run(reader, members[first].offset..end, &members[first..last]) {
            Step::Done => first = last,
            Step::SkipTo(next) => first += next,
            Step::Stop => return,
        }
    }
}

/// In which member a stream broke.
fn hit_by(begin: u64, members: &[WantedMember], error: &StreamError) -> usize {
    let (StreamError::Read { offset, .. } | StreamError::Malformed { offset, .. } | StreamError::Truncated { offset }) =
        error;
    let at = begin + offset;
    members.partition_point(|member| member.offset + member.len <= at).min(members.len().saturating_sub(1))
}

/// The member in which a stream broke fails; those behind it are tried again.
fn broken(verdicts: &Verdicts, stream: usize, begin: u64, members: &[WantedMember], error: &StreamError) -> Step {
    let hit = hit_by(begin, members, error);
    verdicts.fail(stream, members[hit].offset, explain(error));
    Step::SkipTo(hit + 1)
}

fn explain(error: &StreamError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_format::EntryKind;
    use capstan_format::pax::{Member, encode, padding};

    use super::*;

    /// A member, and what is wanted of it.
    fn member(path: &[u8], content: &[u8], at: &mut u64) -> (Vec<u8>, WantedMember) {
        let (user, link, records, mut bytes) = (&b""[..], &b""[..], &b""[..], Vec::new());
        let (kind, mode, size, group) = (EntryKind::File, 0o644, content.len() as u64, user);
        let (uid, gid, mtime_ns, device, extents) = (0, 0, 0, (0, 0), None);
        let header = Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents };
        encode(&header, &mut bytes);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len() + padding(size), 0);
        let (offset, len) = (*at, bytes.len() as u64);
        *at += len;
        (bytes, WantedMember { offset, len, crc: crc32c_append(0, content) })
    }

    fn checked(bytes: &[u8], begin: u64, members: &[WantedMember]) -> (bool, Vec<(u64, String)>) {
        let mut failed = Vec::new();
        let mut fail = |offset, reason| failed.push((offset, reason));
        let read = check_members(&mut &bytes[..], begin, members, &RestoreWatch::default(), &mut fail);
        (read.is_ok(), failed)
    }

    /// Two blocks of zeros are the end of an archive: what was wanted behind them was taken for read.
    #[test]
    fn what_is_wanted_behind_the_end_of_an_archive_has_failed() {
        let (begin, mut at) = (10_240, 10_240);
        let parts: Vec<_> =
            [&b"one"[..], b"two", b"three", b"four"].map(|path| member(path, &path.repeat(400), &mut at)).into();
        let members: Vec<_> = parts.iter().map(|(_, wanted)| *wanted).collect();
        let mut bytes: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        assert_eq!(checked(&bytes, begin, &members), (true, vec![]));
        let not_met = |at: usize| (members[at].offset, NOT_MET.to_owned());
        let third = (members[2].offset - begin) as usize;
        bytes[third..third + 1024].fill(0);
        assert_eq!(checked(&bytes, begin, &members), (true, vec![not_met(2), not_met(3)]));

        // One that comes wholly before the place where the stream breaks is compared all the same.
        bytes[third - 512] ^= 1;
        bytes[third..third + 512].fill(b'x');
        let (is_ok, failed) = checked(&bytes, begin, &members);
        assert!(!is_ok && failed.len() == 1 && failed[0].0 == members[1].offset, "{failed:?}");
        assert!(failed[0].1.starts_with(OTHER_CONTENT), "{failed:?}");
    }

    /// Standard input is one file, and several members.
    #[test]
    fn further_segments_of_a_member_are_no_members_of_their_own() {
        let mut at = 0;
        let parts = [&b"first"[..], b"second"].map(|content| member(b"dump", content, &mut at));
        let wanted = WantedMember { offset: 0, len: at, crc: crc32c_append(0, b"firstsecond") };
        assert_eq!(checked(&parts.map(|(bytes, _)| bytes).concat(), 0, &[wanted]), (true, vec![]));
    }
}
