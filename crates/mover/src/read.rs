//! Reading back: which blocks, in which order, and the streams that come of them.
//!
//! A [`ReadPlan`] lists passes, one a volume, each a list of runs in tape order; it is made by a pure function of what
//! is wanted and where it stands, and is shown before it is executed. Executing it reads each volume once and feeds
//! every stream's blocks to a thread of that stream, whatever the order they were interleaved in: front to back, but
//! for stretches that do not depend on each other, which are read in the order that whoever mounts the volume says
//! ([`crate::split_at_gaps`]).
//!
//! A block that cannot be read from the copy that was planned is read from another copy at once; if there is none, the
//! members that it holds fail, and every other member goes on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use capstan_format::{ObjectId, Volser, VolumeId};
use serde::{Deserialize, Serialize};

/// A volume as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VolumePlace {
    /// Its barcode.
    pub volser: Volser,
    /// The life that the blocks were written in.
    pub volume: VolumeId,
}

/// An extent of one stream on one volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentPlace {
    /// Index of the volume in [`Wanted::volumes`].
    pub volume: usize,
    /// Which copy of the object it belongs to, from 1.
    pub copy: u8,
    /// The connection that its blocks name.
    pub connection: u16,
    /// Where that connection's stream begins in this one: 0, but for an object whose one member runs through all
    /// connections.
    pub base: u64,
    /// Where it begins.
    pub first_lbn: u64,
    /// How many blocks.
    pub blocks: u32,
    /// Offset of its first block in the stream.
    pub offset: u64,
    /// Bytes of the stream in it.
    pub plain_len: u64,
}

/// One whole member that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedMember {
    /// Where it begins in the stream.
    pub offset: u64,
    /// Bytes in the stream, headers and padding included.
    pub len: u64,
    /// CRC32C of its content, for members that have content.
    pub crc: u32,
}

/// One stream of which something is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedStream {
    /// The object.
    pub object: ObjectId,
    /// The connection, or the first of those that are joined.
    pub connection: u16,
    /// Payload bytes of every block of an extent but its last.
    pub chunk_len: u32,
    /// What is wanted, by offset, without overlap.
    pub members: Vec<WantedMember>,
    /// Where it stands, all copies.
    pub extents: Vec<ExtentPlace>,
}

/// What is wanted and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Volumes that can be mounted.
    pub volumes: Vec<VolumePlace>,
    /// Streams.
    pub streams: Vec<WantedStream>,
}

/// Consecutive blocks of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Index of the stream.
    pub stream: usize,
    /// The connection that its blocks name.
    pub connection: u16,
    /// Where that connection's stream begins in this one.
    pub base: u64,
    /// First block.
    pub lbn: u64,
    /// How many.
    pub blocks: u32,
    /// Offset of the first block in the stream.
    pub offset: u64,
    /// Bytes of the stream in the run.
    pub plain_len: u64,
}

/// One mount of one volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// Index of the volume.
    pub volume: usize,
    /// What is read from it, in tape order; executed in the order of its stretches.
    pub runs: Vec<Run>,
}

/// What will be read, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReadPlan {
    /// Volumes in mount order.
    pub passes: Vec<Pass>,
    /// Ranges of streams that no copy holds.
    pub missing: Vec<(usize, Range<u64>)>,
}

impl Pass {
    /// Blocks that are read.
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.blocks)).sum()
    }

    /// Blocks between the first and the last that are passed over.
    pub fn blocks_skipped(&self) -> u64 {
        let begin = self.runs.iter().map(|run| run.lbn).min().unwrap_or(0);
        let end = self.runs.iter().map(|run| run.lbn + u64::from(run.blocks)).max().unwrap_or(0);
        (end - begin).saturating_sub(self.blocks())
    }
}

impl Wanted {
    /// What whoever reads a plan for others needs of it: where the streams of the plan are.
    pub(crate) fn to_send(&self, plan: &ReadPlan) -> Self {
        let own = plan.streams();
        let stream = |(number, stream): (usize, &WantedStream)| {
            let extents = if own.contains(&number) { stream.extents.clone() } else { Vec::new() };
            let WantedStream { object, connection, chunk_len, .. } = *stream;
            WantedStream { object, connection, chunk_len, members: Vec::new(), extents }
        };
        let streams = self.streams.iter().enumerate().map(stream).collect();
        Self { volumes: self.volumes.clone(), streams }
    }
}

impl ReadPlan {
    /// The streams that it has something of.
    pub(crate) fn streams(&self) -> BTreeSet<usize> {
        let read = self.passes.iter().flat_map(|pass| &pass.runs).map(|run| run.stream);
        read.chain(self.missing.iter().map(|(stream, _)| *stream)).collect()
    }

    /// Blocks that will be read.
    pub fn blocks(&self) -> u64 {
        self.passes.iter().flat_map(|pass| &pass.runs).map(|run| u64::from(run.blocks)).sum()
    }

    /// Blocks between the first and the last of each pass that will be passed over.
    pub fn blocks_skipped(&self) -> u64 {
        self.passes.iter().map(Pass::blocks_skipped).sum()
    }
}

/// Orders what is wanted: the lowest copy that has it, and as few mounts as streams that come front to back allow.
pub fn plan_reads(wanted: &Wanted) -> ReadPlan {
    plan_reads_at(wanted, &[])
}

/// The same of the copies whose volumes cost least: each volume by its number, 0 where none is named. A copy costs what
/// the dearest volume does that has something of it which is wanted.
pub fn plan_reads_at(wanted: &Wanted, costs: &[u8]) -> ReadPlan {
    let mut missing = Vec::new();
    let mut queues = Vec::new();
    for (stream, wanted_stream) in wanted.streams.iter().enumerate() {
        let mut queue: VecDeque<(usize, Run)> = VecDeque::new();
        let ranges = merged(&wanted_stream.members);
        let extents = InOrder::of(&wanted_stream.extents, &costs_of_copies(wanted_stream, &ranges, costs));
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let Some(extent) = extents.covering(at) else {
                    let next =
                        wanted_stream.extents.iter().map(|extent| extent.offset).filter(|&offset| offset > at).min();
                    let end = next.unwrap_or(range.end).min(range.end);
                    missing.push((stream, at..end));
                    at = end;
                    continue;
                };
                let end = range.end.min(extent.offset + extent.plain_len);
                let run = clip(extent, stream, wanted_stream.chunk_len, at..end);
                at = end;
                let joined =
                    queue.back_mut().is_some_and(|(volume, last)| *volume == extent.volume && join(last, &run));
                if !joined {
                    queue.push_back((extent.volume, run));
                }
            }
        }
        queues.push(queue);
    }
    ReadPlan { passes: passes(queues), missing }
}

/// What copies cost of which something is wanted. One that does not hold all of that costs most: whoever began with it
/// would change volumes at each of its holes.
fn costs_of_copies(stream: &WantedStream, ranges: &[Range<u64>], costs: &[u8]) -> HashMap<u8, u8> {
    let mut of_copies = HashMap::new();
    if costs.is_empty() {
        return of_copies;
    }
    for extent in &stream.extents {
        let first = ranges.partition_point(|range| range.end <= extent.offset);
        let is_wanted = ranges.get(first).is_some_and(|range| range.start < extent.offset + extent.plain_len);
        let cost = costs.get(extent.volume).copied().filter(|_| is_wanted).unwrap_or_default();
        let of_copy: &mut u8 = of_copies.entry(extent.copy).or_default();
        *of_copy = cost.max(*of_copy);
    }
    for (copy, cost) in &mut of_copies {
        let own: Vec<_> = stream.extents.iter().filter(|extent| extent.copy == *copy).copied().collect();
        let held = held_ranges(&own);
        let is_held = |range: &Range<u64>| {
            let first = held.partition_point(|held| held.end <= range.start);
            held.get(first).is_some_and(|held| held.start <= range.start && range.end <= held.end)
        };
        if !ranges.iter().all(is_held) {
            *cost = u8::MAX;
        }
    }
    of_copies
}

/// Extents of a stream by what their copies cost, by copy and offset, each with the highest end of those of its copy up
/// to it: a block that was damaged and mended lies in a long extent and in a short one of the same copy.
struct InOrder<'e>(Vec<(&'e ExtentPlace, u64)>);

impl<'e> InOrder<'e> {
    fn of(extents: &'e [ExtentPlace], costs: &HashMap<u8, u8>) -> Self {
        let mut extents: Vec<_> = extents.iter().map(|extent| (extent, extent.offset + extent.plain_len)).collect();
        extents.sort_by_key(|(extent, _)| (costs.get(&extent.copy), extent.copy, extent.offset));
        for at in 1..extents.len() {
            if extents[at].0.copy == extents[at - 1].0.copy {
                extents[at].1 = extents[at].1.max(extents[at - 1].1);
            }
        }
        Self(extents)
    }

    /// The extent of the first copy that holds `at`.
    fn covering(&self, at: u64) -> Option<&'e ExtentPlace> {
        let mut rest = &self.0[..];
        while let Some(copy) = rest.first().map(|(extent, _)| extent.copy) {
            let (own, others) = rest.split_at(rest.partition_point(|(extent, _)| extent.copy == copy));
            let before = own.partition_point(|(extent, _)| extent.offset <= at);
            // None further to the front reaches as far as `at` where the highest end does not.
            let mut reach = own[..before].iter().rev().take_while(|(_, highest_end)| *highest_end > at);
            if let Some((extent, _)) = reach.find(|(extent, _)| extent.offset + extent.plain_len > at) {
                return Some(extent);
            }
            rest = others;
        }
        None
    }
}

/// Deals runs, each stream's in the order that it needs them, into passes over volumes.
///
/// A pass takes from every stream the runs that come next and stand on its volume, further and further along the tape.
/// The next volume is one that this finishes with, if there is one, else the one that gives most.
fn passes(mut queues: Vec<VecDeque<(usize, Run)>>) -> Vec<Pass> {
    let mut left: BTreeMap<usize, usize> = BTreeMap::new();
    queues.iter().flatten().for_each(|(volume, _)| *left.entry(*volume).or_default() += 1);
    let mut passes = Vec::new();
    loop {
        let mut ready: BTreeMap<usize, usize> = BTreeMap::new();
        for queue in &queues {
            if let Some((volume, _)) = queue.front() {
                *ready.entry(*volume).or_default() += ready_runs(queue);
            }
        }
        let score = |(volume, ready): (&usize, &usize)| (left[volume] == *ready, *ready, Reverse(*volume));
        let Some((&volume, _)) = ready.iter().max_by_key(|&(volume, ready)| score((volume, ready))) else {
            return passes;
        };
        let mut runs = Vec::new();
        for queue in queues.iter_mut().filter(|queue| queue.front().is_some_and(|(next, _)| *next == volume)) {
            let count = ready_runs(queue);
            runs.extend(queue.drain(..count).map(|(_, run)| run));
        }
        left.entry(volume).and_modify(|left| *left -= runs.len());
        runs.sort_by_key(|run| run.lbn);
        passes.push(Pass { volume, runs });
    }
}

/// How many runs at the front of a queue one pass over their volume can take.
fn ready_runs(queue: &VecDeque<(usize, Run)>) -> usize {
    let pairs = queue.iter().zip(queue.iter().skip(1));
    usize::from(!queue.is_empty()) + pairs.take_while(|(a, b)| a.0 == b.0 && a.1.lbn < b.1.lbn).count()
}

/// The blocks of an extent that hold a range of its stream.
fn clip(extent: &ExtentPlace, stream: usize, chunk_len: u32, range: Range<u64>) -> Run {
    let chunk_len = u64::from(chunk_len.max(1));
    let last_block = u64::from(extent.blocks.max(1)) - 1;
    let first = ((range.start - extent.offset) / chunk_len).min(last_block);
    let last = ((range.end - 1 - extent.offset) / chunk_len).min(last_block);
    let offset = extent.offset + first * chunk_len;
    let end =
        if last == last_block { extent.offset + extent.plain_len } else { extent.offset + (last + 1) * chunk_len };
    Run {
        stream,
        connection: extent.connection,
        base: extent.base,
        lbn: extent.first_lbn + first,
        blocks: (last - first + 1) as u32,
        offset,
        plain_len: end.saturating_sub(offset),
    }
}

/// What extents hold of their stream, whichever copies they are of: disjoint, and never touching each other.
pub fn held_ranges(extents: &[ExtentPlace]) -> Vec<Range<u64>> {
    joined(extents.iter().map(|extent| extent.offset..extent.offset.saturating_add(extent.plain_len)).collect())
}

/// The same ranges, disjoint and never touching each other.
pub fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

/// Members to ranges: neighbours become one.
fn merged(members: &[WantedMember]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for member in members.iter().filter(|member| member.len > 0) {
        let end = member.offset + member.len;
        match ranges.last_mut() {
            Some(last) if last.end >= member.offset => last.end = last.end.max(end),
            _ => ranges.push(member.offset..end),
        }
    }
    ranges
}

/// Takes a run into the one before it where it goes on with it or overlaps it (two ranges in one block).
fn join(last: &mut Run, run: &Run) -> bool {
    let last_end = last.lbn + u64::from(last.blocks);
    let run_end = run.lbn + u64::from(run.blocks);
    let goes_on = last.connection == run.connection
        && last.lbn <= run.lbn
        && run.lbn <= last_end
        && run.offset <= last.offset + last.plain_len;
    if goes_on && run_end > last_end {
        last.blocks = (run_end - last.lbn) as u32;
        last.plain_len = run.offset + run.plain_len - last.offset;
    }
    goes_on
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(offset: u64, len: u64) -> WantedMember {
        WantedMember { offset, len, crc: 0 }
    }

    fn wanted(members: Vec<WantedMember>, extents: Vec<ExtentPlace>) -> Wanted {
        let volume = |name: &str| VolumePlace { volser: Volser::new(name).expect("a volser"), volume: VolumeId(1) };
        let stream = WantedStream { object: ObjectId([1; 16]), connection: 0, chunk_len: 100, members, extents };
        Wanted { volumes: vec![volume("A"), volume("B")], streams: vec![stream] }
    }

    fn extent(volume: usize, copy: u8, first_lbn: u64, blocks: u32, offset: u64) -> ExtentPlace {
        ExtentPlace {
            volume,
            copy,
            connection: 0,
            base: 0,
            first_lbn,
            blocks,
            offset,
            plain_len: u64::from(blocks) * 100,
        }
    }

    #[test]
    fn one_file_reads_only_its_blocks() {
        let plan = plan_reads(&wanted(vec![member(250, 100)], vec![extent(0, 1, 10, 50, 0)]));
        let run = Run { stream: 0, connection: 0, base: 0, lbn: 12, blocks: 2, offset: 200, plain_len: 200 };
        assert_eq!(plan.passes, [Pass { volume: 0, runs: vec![run] }]);
        assert_eq!((plan.blocks(), plan.blocks_skipped()), (2, 0));
    }

    #[test]
    fn two_files_in_one_block_read_it_once() {
        let plan = plan_reads(&wanted(vec![member(10, 20), member(60, 20)], vec![extent(0, 1, 10, 50, 0)]));
        assert_eq!(plan.blocks(), 1);
    }

    #[test]
    fn a_spanned_stream_mounts_its_volumes_in_order() {
        let extents = vec![extent(1, 1, 3, 5, 0), extent(0, 1, 3, 5, 500)];
        let plan = plan_reads(&wanted(vec![member(0, 1000)], extents));
        assert_eq!(plan.passes.iter().map(|pass| pass.volume).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn streams_that_need_volumes_in_turn_get_further_mounts() {
        // A, then B, then A again: a copy that was mended behind what only its twin has.
        let extents = vec![extent(0, 1, 3, 2, 0), extent(1, 2, 3, 4, 0), extent(0, 1, 50, 2, 400)];
        let plan = plan_reads(&wanted(vec![member(0, 600)], extents));
        assert_eq!(plan.passes.iter().map(|pass| pass.volume).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!(plan.blocks(), 6);
    }

    #[test]
    fn two_streams_that_begin_on_different_volumes_are_both_read_in_order() {
        let mut both = wanted(vec![member(0, 1000)], vec![extent(0, 1, 3, 5, 0), extent(1, 1, 3, 5, 500)]);
        let other = WantedStream { extents: vec![extent(1, 1, 20, 10, 0)], ..both.streams[0].clone() };
        both.streams.insert(0, other);
        let plan = plan_reads(&both);
        assert_eq!(plan.passes.iter().map(|pass| pass.volume).collect::<Vec<_>>(), [0, 1]);
    }

    /// What stood behind a mended block in its long extent was looked for on other copies, which may be away.
    #[test]
    fn behind_a_mended_block_the_same_copy_has_the_rest() {
        let extents = vec![extent(0, 1, 3, 10, 0), extent(1, 1, 3, 1, 400), extent(1, 2, 50, 10, 0)];
        let plan = plan_reads(&wanted(vec![member(700, 100)], extents.clone()));
        assert_eq!((plan.passes.len(), plan.passes[0].volume), (1, 0));
        // So it is where that extent holds less.
        let plan = plan_reads(&wanted(vec![member(700, 100)], vec![extent(0, 1, 3, 6, 0), extents[1], extents[2]]));
        assert_eq!((plan.passes.len(), plan.passes[0].volume), (1, 1));
    }

    #[test]
    fn the_copy_is_read_whose_volumes_cost_least() {
        // The second volume of the first copy is of no interest to who wants what is in front.
        let extents = vec![extent(0, 1, 3, 5, 0), extent(2, 1, 3, 5, 500), extent(1, 2, 3, 10, 0)];
        let volumes = |members: Vec<WantedMember>, costs: &[u8]| {
            let plan = plan_reads_at(&wanted(members, extents.clone()), costs);
            assert!(plan.missing.is_empty());
            plan.passes.iter().map(|pass| pass.volume).collect::<Vec<_>>()
        };
        assert_eq!(volumes(vec![member(0, 1000)], &[]), [0, 2]);
        assert_eq!(volumes(vec![member(0, 1000)], &[1, 1, 1]), [0, 2]);
        assert_eq!(volumes(vec![member(0, 1000)], &[1, 0, 1]), [1]);
        assert_eq!(volumes(vec![member(0, 1000)], &[0, 1, 2]), [1]);
        assert_eq!(volumes(vec![member(100, 200)], &[0, 1, 2]), [0]);
        // A cheap one with holes would have its volume and the other one mounted in turns.
        let extents = vec![extent(0, 1, 3, 10, 0), extent(1, 2, 3, 2, 0), extent(1, 2, 9, 2, 300)];
        let plan = plan_reads_at(&wanted(vec![member(0, 1000)], extents.clone()), &[1, 0]);
        assert_eq!(plan.passes.iter().map(|pass| pass.volume).collect::<Vec<_>>(), [0]);
        let plan = plan_reads_at(&wanted(vec![member(310, 50)], extents), &[1, 0]);
        assert_eq!(plan.passes.iter().map(|pass| pass.volume).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn what_one_copy_lacks_comes_from_the_other() {
        let extents = vec![extent(0, 1, 3, 2, 0), extent(1, 2, 3, 5, 0)];
        let plan = plan_reads(&wanted(vec![member(0, 600)], extents));
        assert_eq!(plan.passes.len(), 2);
        assert_eq!(plan.missing, [(0, 500..600)]);
    }
}
