//! Orders and reports of a job, as they cross its orders link.
//!
//! The mover orders and the client answers. While a source is read it is the other way round: the client reports at
//! least every [`REPORTS_EVERY`], and the mover answers each report.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use capstan_format::{EntryDecoder, EntryEncoder, EntryFlags, EntryKind, FileEntry, ObjectId};
use serde::{Deserialize, Serialize};

use super::NetworkStream;
use super::frame::nonsense;
use super::peer_text::said;
use crate::damage::FailedMember;
use crate::extract::{ExtractReport, Selection};
use crate::link::Link;
use crate::read::{Wanted, WantedMember, WantedStream};
use crate::source::{Counted, CutFile, ProblemKind, SourceFound, SourceReport, SourceSpec};
use crate::{JobToken, Metadata};

/// The connection that orders and reports cross.
pub(super) type OrdersLink = Link<Box<dyn NetworkStream>>;

/// How often a client that reads reports.
pub(super) const REPORTS_EVERY: Duration = Duration::from_millis(500);
/// Bytes of packed rows after which they are sent.
const ROWS_LEN: usize = 1 << 20;
/// Longest rows that are believed, unpacked: one row has a path and a few numbers.
const ROWS_LEN_MAX: usize = 4 << 20;

/// What the mover sends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum JobOrder {
    /// What is at these paths?
    Look(#[serde(with = "crate::os_text")] Vec<OsString>),
    /// What is in this file?
    Text(#[serde(with = "crate::os_text")] OsString),
    /// Run a program that the client's settings name.
    Run(RunScript),
    /// Read a source. Rows of the baseline follow, where there is one.
    Read(Box<ReadSource>),
    /// Write what is read back. Its members are attached.
    Restore(Box<RestoreOrder>),
    /// Which of the files that are attached, packed, are there as a restore would write them?
    There,
    /// Packed rows of a baseline, or paths that are missing, are attached; whether more follow.
    Rows { more: bool },
    /// The answer to a report: go on.
    GoOn,
    /// The answer to a report: stop at the next chunk.
    Stop,
    /// The job is over.
    End,
}

/// A program that the client's settings name.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunScript {
    pub(super) script: String,
    /// Variables of its environment; those whose names do not begin with CAPSTAN_ are left out.
    pub(super) told: Vec<(String, String)>,
    /// Whether it is stopped where the job is.
    pub(super) can_be_stopped: bool,
    /// What must be run afterwards, whatever becomes of the job.
    pub(super) then: Option<Box<RunScript>>,
}

/// Another mover than the one that orders: where a client brings blocks to, or fetches them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OtherMover {
    /// Host and port.
    pub(super) address: String,
    /// What the client comes with.
    pub(super) token: JobToken,
}

/// A source to read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadSource {
    /// Its number in the job.
    pub(super) reading: u64,
    pub(super) spec: SourceSpec,
    pub(super) object: ObjectId,
    pub(super) first_connection: u16,
    pub(super) connections: u16,
    pub(super) began_ns: i64,
    pub(super) chunk_len: u32,
    /// The level of zstd; none stores blocks as they are.
    pub(super) level: Option<i32>,
    pub(super) has_baseline: bool,
    /// Where the blocks go, if not to whoever orders.
    #[serde(default)]
    pub(super) to: Option<OtherMover>,
    /// Files that an earlier reading was cut off in.
    #[serde(default)]
    pub(super) cut: Vec<CutFile>,
    /// Whether the files that are read may be marked, so that they can be gone on with.
    #[serde(default)]
    pub(super) marks: bool,
}

/// What a client answers in the place of an error number for a path that its own settings keep from being read.
pub(super) const NOT_ALLOWED: i32 = -1;

/// What the client sends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum JobReport {
    /// What is at the paths, or the system's error number, or [`NOT_ALLOWED`].
    Found(Vec<Result<SourceFound, i32>>),
    /// What is in the file, or why it cannot be read.
    Text(Result<String, String>),
    /// A program still runs.
    StillRuns,
    /// It has ended, or why it did not end well.
    Ran(Result<(), String>),
    /// How far it is.
    Progress(Box<ProgressReport>),
    /// Which paths of the baseline are missing? The rows that were seen are attached.
    Missing,
    /// A byte for each of the first files, of one at least, is attached: 1 if it is there. Whether a restore leaves
    /// such files as they are: if not, nothing is attached, and nothing more need be asked.
    There { is_left: bool },
    /// All that came was written, or why it was not.
    Restored(Box<RestoredReport>),
    /// All was read, and the mover has it.
    Done(Box<SourceReport>),
    /// It was not read to its end.
    Failed { reason: String, is_stopped: bool },
}

/// How far a reading is.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ProgressReport {
    pub(super) counted: Counted,
    #[serde(with = "crate::os_text")]
    pub(super) current: OsString,
    /// Problems since the last report.
    #[serde(with = "crate::os_text")]
    pub(super) problems: Vec<(OsString, ProblemKind)>,
}

/// What is to be written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RestoreOrder {
    /// Its number in the job.
    pub(super) restore: u64,
    /// How many streams are open at once.
    pub(super) open: u32,
    /// Bytes of the streams that will come.
    pub(super) planned: u64,
    pub(super) streams: Vec<RestoreStream>,
    /// Who has what is read, if not whoever orders.
    #[serde(default)]
    pub(super) from: Option<OtherMover>,
    /// Whether another order of the same restore follows: what is written is finished behind the last one.
    #[serde(default)]
    pub(super) more: bool,
    /// Whether streams that have no members are no part of it. In version 2 all that are wanted have theirs.
    #[serde(default)]
    pub(super) names_own: bool,
    /// Further connections, over which other streams come at the same time. Version 2 knows none.
    #[serde(default)]
    pub(super) beside: Vec<PiecesFrom>,
    /// Whether what can be read of these files is kept where a part of one is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) keep_damaged: bool,
    /// Members that get another name than their own. A client that does not know them writes each under its own name,
    /// and links to that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) names: Vec<GivenName>,
    /// Directories that only lead to what is wanted. A client that does not know them sets what they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::os_text")]
    pub(super) ways: Vec<OsString>,
}

/// A member that gets another name than its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct GivenName {
    /// Whose it is.
    pub(super) object: ObjectId,
    #[serde(with = "crate::os_text")]
    pub(super) path: OsString,
    #[serde(with = "crate::os_text")]
    pub(super) name: OsString,
}

/// A connection over which streams of a restore come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PiecesFrom {
    /// Its number in the job.
    pub(super) restore: u64,
    /// How many streams are open at once.
    pub(super) open: u32,
    /// Who has what is read, if not whoever orders.
    #[serde(default)]
    pub(super) from: Option<OtherMover>,
}

impl RestoreOrder {
    /// All connections over which streams of it come.
    pub(super) fn connections(&self) -> Vec<PiecesFrom> {
        let first = PiecesFrom { restore: self.restore, open: self.open, from: self.from.clone() };
        std::iter::once(first).chain(self.beside.iter().cloned()).collect()
    }

    /// The streams that come over one of them.
    pub(super) fn streams_over(&self, connection: u32) -> Vec<usize> {
        let numbered = self.streams.iter().enumerate();
        numbered.filter(|(_, stream)| stream.over == connection && stream.members > 0).map(|(at, _)| at).collect()
    }
}

/// A stream of which members are to be written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RestoreStream {
    pub(super) object: ObjectId,
    pub(super) connection: u16,
    pub(super) chunk_len: u32,
    /// How many of the members that are attached are of this stream.
    pub(super) members: u64,
    /// Over which connection it comes: 0 for that of the order, 1 for the first beside it.
    #[serde(default)]
    pub(super) over: u32,
}

/// How the writing went.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RestoredReport {
    pub(super) members: u64,
    pub(super) bytes: u64,
    /// The members that failed.
    pub(super) failed: Vec<FailedMembers>,
    /// What ended it before its end.
    pub(super) fatal: Option<String>,
    pub(super) extract: Option<ExtractReport>,
}

/// Members that follow each other in a stream and failed for the same reason.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FailedMembers {
    /// Index of the stream.
    pub(super) stream: usize,
    /// Where the first begins.
    pub(super) offset: u64,
    pub(super) reason: String,
    /// How many more follow. Version 2 says each by itself.
    #[serde(default)]
    pub(super) behind: u64,
    /// Whether they were written all the same.
    #[serde(default)]
    pub(super) are_written: bool,
}

/// Rows after which reasons are not told apart any more. Version 2 named no more members.
pub(super) const FAILED_MAX: usize = 10_000;
/// Rows that are said at all: then each stream may have one, and more would not fit into a message.
pub(super) const ROWS_MAX: usize = 100_000;
/// Bytes of the reasons that are told apart.
const REASONS_SAID_MAX: usize = 1 << 20;
/// Bytes of the reasons of all members that a client names: one reason may be that of millions.
const REASONS_LEN_MAX: usize = 32 << 20;
/// The reason then.
pub(super) const MORE_FAILED: &str = "it failed, as others before it";

/// Puts together members that failed in the order of their streams.
pub(super) fn pack_failed(wanted: &Wanted, failed: Vec<FailedMember>) -> Vec<FailedMembers> {
    let mut packed: Vec<FailedMembers> = Vec::new();
    let at = |FailedMember { stream, offset, .. }: &FailedMember| {
        wanted.streams.get(*stream).map_or(0, |stream| stream.members.partition_point(|member| member.offset < *offset))
    };
    // The last member that was packed, counted in its stream.
    let (mut last, mut reasons_left) = (0, REASONS_SAID_MAX);
    for member in failed {
        let place = at(&member);
        let FailedMember { stream, offset, reason, is_written } = member;
        let is_full = packed.len() >= FAILED_MAX || reasons_left == 0;
        let reason = if is_full { MORE_FAILED.to_owned() } else { said(&reason) };
        let goes_on = |packed: &&mut FailedMembers| {
            let is_like = packed.reason == reason && packed.are_written == is_written;
            packed.stream == stream && is_like && (is_full || place == last + 1)
        };
        match packed.last_mut().filter(goes_on) {
            // No name is left out: those between are named, too, if there are too many to tell them apart.
            Some(packed) => packed.behind += (place - last) as u64,
            None => {
                reasons_left = reasons_left.saturating_sub(reason.len());
                packed.push(FailedMembers { stream, offset, reason, behind: 0, are_written: is_written });
            }
        }
        last = place;
    }
    packed.truncate(ROWS_MAX);
    packed
}

/// Names each of the members that a client says have failed. It may say anything: each is named once.
pub(super) fn unpack_failed(wanted: &Wanted, packed: Vec<FailedMembers>) -> Vec<FailedMember> {
    let mut named: BTreeSet<(usize, u64)> = BTreeSet::new();
    let mut failed = Vec::new();
    let mut left: u64 = wanted.streams.iter().map(|stream| stream.members.len() as u64).sum();
    let mut reasons_left = REASONS_LEN_MAX;
    for FailedMembers { stream, offset, reason, behind, are_written: is_written } in packed {
        let members = wanted.streams.get(stream).map_or(&[][..], |stream| &stream.members);
        let first = members.partition_point(|member| member.offset < offset);
        let count = behind.saturating_add(1).min(left);
        left -= count;
        for member in members.iter().skip(first).take(count as usize) {
            if named.insert((stream, member.offset)) {
                let reason = if reason.len() <= reasons_left { &*reason } else { MORE_FAILED };
                reasons_left = reasons_left.saturating_sub(reason.len());
                failed.push(FailedMember { stream, offset: member.offset, reason: reason.to_owned(), is_written });
            }
        }
    }
    failed
}

/// Bytes of a member as it is attached.
const MEMBER_LEN: usize = 20;

/// Streams and their members, as they cross. Of a stream that comes over no connection none cross.
pub(super) fn pack_wanted(wanted: &Wanted, over: &HashMap<usize, u32>) -> (Vec<RestoreStream>, Vec<u8>) {
    let mut packed = Vec::new();
    let mut pack = |(number, stream): (usize, &WantedStream)| {
        let over = over.get(&number).copied();
        let members = if over.is_some() { &stream.members[..] } else { &[] };
        for member in members {
            packed.extend_from_slice(&member.offset.to_le_bytes());
            packed.extend_from_slice(&member.len.to_le_bytes());
            packed.extend_from_slice(&member.crc.to_le_bytes());
        }
        RestoreStream {
            object: stream.object,
            connection: stream.connection,
            chunk_len: stream.chunk_len,
            members: members.len() as u64,
            over: over.unwrap_or_default(),
        }
    };
    (wanted.streams.iter().enumerate().map(&mut pack).collect(), packed)
}

/// The same, as whoever writes wants them. Where they stand on volumes is not its business.
pub(super) fn unpack_wanted(streams: &[RestoreStream], packed: &[u8]) -> io::Result<Wanted> {
    let mut members = packed.chunks_exact(MEMBER_LEN).map(|bytes| WantedMember {
        offset: u64::from_le_bytes(std::array::from_fn(|at| bytes[at])),
        len: u64::from_le_bytes(std::array::from_fn(|at| bytes[8 + at])),
        crc: u32::from_le_bytes(std::array::from_fn(|at| bytes[16 + at])),
    });
    let count: u64 = streams.iter().fold(0, |count, stream| count.saturating_add(stream.members));
    if count != (packed.len() / MEMBER_LEN) as u64 || !packed.len().is_multiple_of(MEMBER_LEN) {
        return Err(nonsense("the members of a restore are more or less than was announced"));
    }
    let unpack = |stream: &RestoreStream| WantedStream {
        object: stream.object,
        connection: stream.connection,
        chunk_len: stream.chunk_len,
        members: members.by_ref().take(stream.members as usize).collect(),
        extents: Vec::new(),
    };
    let streams: Vec<_> = streams.iter().map(unpack).collect();
    let ordered = |stream: &WantedStream| {
        let ends = stream.members.iter().map(|member| member.offset.checked_add(member.len));
        let ends: Option<Vec<u64>> = ends.collect();
        ends.is_some_and(|ends| stream.members.iter().skip(1).zip(ends).all(|(next, end)| next.offset >= end))
    };
    match streams.iter().all(ordered) {
        true => Ok(Wanted { volumes: Vec::new(), streams }),
        false => Err(nonsense("the members of a restore lie over each other")),
    }
}

/// Bytes of paths that an order says of a selection: in JSON they may be six times as long.
const SELECTION_LEN_MAX: usize = 2 << 20;

/// What is peculiar to a selection, as it crosses: names and ways. None where the names are too many. Of ways, as many
/// as find room: one that is not said is taken for asked for.
pub(super) fn pack_selection(selection: &Selection) -> Option<(Vec<GivenName>, Vec<OsString>)> {
    let text = |path: &[u8]| OsString::from_vec(path.to_vec());
    let (mut names, mut ways, mut len) = (Vec::new(), Vec::new(), 0);
    for (object, path, name) in selection.names() {
        // A path is no shorter than what says whose it is.
        len += 2 * size_of::<ObjectId>() + path.len() + name.len();
        names.push(GivenName { object, path: text(path), name: text(name) });
    }
    if len > SELECTION_LEN_MAX {
        return None;
    }
    for way in selection.ways() {
        len += way.len();
        if len <= SELECTION_LEN_MAX {
            ways.push(text(way));
        }
    }
    Some((names, ways))
}

/// The same, as whoever writes wants it.
pub(super) fn unpack_selection(order: &RestoreOrder) -> Selection {
    let mut selection = Selection::default();
    for GivenName { object, path, name } in &order.names {
        selection.give_name(*object, path.as_bytes(), name.as_bytes());
    }
    order.ways.iter().for_each(|way| selection.pass_through(way.as_bytes()));
    selection
}

/// Packs rows of a baseline, and gives them away in pieces.
#[derive(Default)]
pub(super) struct RowPacker(EntryEncoder);

impl RowPacker {
    /// Adds a row; gives the rows so far when they are enough.
    pub(super) fn push(&mut self, path: &[u8], metadata: &Metadata) -> Option<io::Result<Vec<u8>>> {
        self.0.push(&FileEntry {
            path: path.to_vec(),
            kind: EntryKind::File,
            flags: EntryFlags::default(),
            mode: 0,
            uid: 0,
            gid: 0,
            size: metadata.size,
            mtime_ns: metadata.mtime_ns,
            change: metadata.change,
            crc: 0,
            connection: 0,
            offset: 0,
            member_len: 0,
            link: Vec::new(),
        });
        (self.0.len() >= ROWS_LEN).then(|| self.take())
    }

    /// The rows that were not given away yet.
    pub(super) fn take(&mut self) -> io::Result<Vec<u8>> {
        zstd::bulk::compress(&std::mem::take(&mut self.0).finish(), 1)
    }
}

/// Unpacks rows.
pub(super) fn unpack_rows(packed: &[u8], found: &mut dyn FnMut(&[u8], &Metadata)) -> io::Result<()> {
    unpack_entries(packed, "the rows of a baseline", &mut |FileEntry { path, size, mtime_ns, change, .. }| {
        found(&path, &Metadata { size, mtime_ns, change });
    })
}

/// Files that are asked for at once, at most.
pub(super) const FILES_EACH: usize = 2_000;

/// Packs the first of these files; how many.
pub(super) fn pack_files(files: &[&FileEntry]) -> io::Result<(usize, Vec<u8>)> {
    let (mut packed, mut count) = (EntryEncoder::default(), 0);
    for file in files.iter().take(FILES_EACH) {
        packed.push(file);
        count += 1;
        if packed.len() >= ROWS_LEN {
            break;
        }
    }
    Ok((count, zstd::bulk::compress(&packed.finish(), 1)?))
}

/// Unpacks such files.
pub(super) fn unpack_files(packed: &[u8], found: &mut dyn FnMut(FileEntry)) -> io::Result<()> {
    unpack_entries(packed, "the files of a restore", found)
}

fn unpack_entries(packed: &[u8], what: &str, found: &mut dyn FnMut(FileEntry)) -> io::Result<()> {
    let plain = zstd::bulk::decompress(packed, ROWS_LEN_MAX)?;
    for entry in EntryDecoder::new(&plain) {
        found(entry.map_err(|error| nonsense(&format!("{what} are damaged: {error}")))?);
    }
    Ok(())
}

/// A path as it crosses.
pub(super) fn crossing(path: &Path) -> OsString {
    path.as_os_str().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn members_that_failed_for_one_reason_are_said_together_and_each_once() {
        let stream = |members: u64| WantedStream {
            object: ObjectId([1; 16]),
            connection: 0,
            chunk_len: 100,
            members: (0..members).map(|at| WantedMember { offset: at * 10, len: 10, crc: 0 }).collect(),
            extents: Vec::new(),
        };
        let wanted = Wanted { volumes: Vec::new(), streams: vec![stream(50_000), stream(3)] };
        let failed = |stream: usize, at: u64, reason: &str| {
            let (offset, reason) = (at * 10, reason.to_owned());
            FailedMember { stream, offset, reason, is_written: false }
        };
        let mut all: Vec<_> = (0..40_000).map(|at| failed(0, at, "gone")).collect();
        all.extend([failed(0, 40_001, "gone"), failed(0, 40_002, "cut"), failed(1, 0, "cut"), failed(1, 2, "cut")]);
        let packed = pack_failed(&wanted, all.clone());
        assert_eq!(packed.iter().map(|packed| packed.behind).collect::<Vec<_>>(), [39_999, 0, 0, 0, 0]);
        assert_eq!(unpack_failed(&wanted, packed), all);
        // Whoever lies is not believed for ever.
        let lies =
            |_| FailedMembers { stream: 0, offset: 0, reason: "lie".to_owned(), behind: u64::MAX, are_written: false };
        assert_eq!(unpack_failed(&wanted, (0..10_000).map(lies).collect()).len(), 50_000);
        let nowhere = FailedMembers { stream: 7, offset: 0, reason: "lie".to_owned(), behind: 5, are_written: false };
        assert!(unpack_failed(&wanted, vec![nowhere]).is_empty());
        // One long reason for all of them would take a hundred times as much memory as it took to say.
        let reason = "x".repeat(1_000);
        let long = FailedMembers { stream: 0, offset: 0, reason, behind: 1 << 63, are_written: false };
        let named = unpack_failed(&wanted, vec![long]);
        let bytes: usize = named.iter().map(|failed| failed.reason.len()).sum();
        assert!(named.len() == 50_000 && bytes < REASONS_LEN_MAX + 50_000 * MORE_FAILED.len(), "{bytes} bytes");
        // Where each has a reason of its own, all are named in the end.
        let each: Vec<_> = (0..50_000).step_by(2).map(|at| failed(0, at, &format!("block {at}"))).collect();
        let packed = pack_failed(&wanted, each.iter().cloned().chain([failed(1, 1, "block")]).collect());
        assert_eq!(packed.len(), FAILED_MAX + 2);
        let named = unpack_failed(&wanted, packed);
        assert!(each.iter().all(|failed| named.iter().any(|named| named.offset == failed.offset)));
        assert_eq!((named.len(), named.last().unwrap().reason.as_str()), (40_000, MORE_FAILED));
    }

    #[test]
    fn rows_cross_in_pieces_in_their_order() {
        let path = |row: u32| format!("srv/{}/{row:08}-{:0>400}", row % 7, row).into_bytes();
        let metadata = |row: u32| Metadata { size: u64::from(row) << 20, mtime_ns: -i64::from(row), change: !row };
        let (mut packer, mut pieces) = (RowPacker::default(), Vec::new());
        for row in 0..9_000 {
            pieces.extend(packer.push(&path(row), &metadata(row)).transpose().unwrap());
        }
        pieces.push(packer.take().unwrap());
        assert!(pieces.len() > 2, "{} pieces", pieces.len());
        let mut row = 0;
        for piece in &pieces {
            unpack_rows(piece, &mut |found, with| {
                assert_eq!((found, with), (path(row).as_slice(), &metadata(row)));
                row += 1;
            })
            .unwrap();
        }
        assert_eq!(row, 9_000);
        let hostile = zstd::bulk::compress(&[255; 64], 1).unwrap();
        assert_eq!(unpack_rows(&hostile, &mut |_, _| {}).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let bomb = zstd::bulk::compress(&vec![0; ROWS_LEN_MAX + 1], 1).unwrap();
        unpack_rows(&bomb, &mut |_, _| {}).unwrap_err();
    }
}
