//! What may be read in another order than it stands in.
//!
//! ```text
//! wanted of a stream   ##...........##.#..............#         taken apart where much lies between:
//! three streams        aa           bb b              c
//!
//! a pass               aadd  .  b d b  .  .  .  .  .  c         runs by position
//! its stretches        [  ]     [     ]               [ ]       in any order; inside, by position
//! ```
//! A stream comes front to back, because one member goes on where the one before it ended and memory for what comes too
//! early is not to be had: an object that is wanted whole is one stream a connection, interleaved with the others, and
//! so one stretch, which is read as it was written and as fast. Where only some members are wanted and much lies
//! between, nothing binds them: each piece becomes a stream of its own. Two pieces never share a block, so no order
//! reads one twice; and what depends on other members (names of one file, directories' times) waits for the end of the
//! restore in any case.

use std::collections::HashMap;
use std::ops::Range;

use crate::read::{ReadPlan, Run, Wanted, WantedMember, WantedStream};

/// Nearer than so many blocks nothing is taken apart. Of blocks of 1 MiB a drive of today reads on over these in a
/// fraction of the 2 s that it takes to stop, step across and start.
const APART_BLOCKS_MIN: u64 = 16;

/// Blocks of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first.
    pub first_lbn: u64,
    /// The last.
    pub last_lbn: u64,
}

/// Takes streams apart where much that is not wanted lies between members that are: the pieces can be read in any
/// order.
#[must_use]
pub fn split_at_gaps(wanted: Wanted) -> Wanted {
    let Wanted { volumes, streams } = wanted;
    Wanted { volumes, streams: streams.into_iter().flat_map(pieces).collect() }
}

fn pieces(stream: WantedStream) -> Vec<WantedStream> {
    let chunk_len = u64::from(stream.chunk_len.max(1));
    let apart = APART_BLOCKS_MIN * chunk_len;
    let mut reach = 0u64;
    let mut begins = Vec::new();
    for (at, member) in stream.members.iter().enumerate() {
        if at > 0 && member.offset >= reach.saturating_add(apart) {
            begins.push(at);
        }
        // Offsets come from catalogs, and those from volumes.
        reach = reach.max(member.offset.saturating_add(member.len));
    }
    if begins.is_empty() {
        return vec![stream];
    }
    let mut rest = stream.members;
    let mut pieces: Vec<WantedStream> = Vec::with_capacity(begins.len() + 1);
    for begin in begins.into_iter().rev().chain([0]) {
        let members = rest.split_off(begin);
        pieces.push(WantedStream { members, extents: Vec::new(), ..stream });
    }
    pieces.reverse();
    let spans: Vec<Range<u64>> = pieces.iter().map(|piece| span(&piece.members, chunk_len)).collect();
    for extent in stream.extents {
        let end = extent.offset.saturating_add(extent.plain_len);
        let first = spans.partition_point(|span| span.end <= extent.offset);
        let hit = spans[first..].iter().take_while(|span| span.start < end).count();
        pieces[first..first + hit].iter_mut().for_each(|piece| piece.extents.push(extent));
    }
    pieces
}

/// Where a piece's blocks can be: a block that holds a member's end begins up to a block before it, in any copy.
fn span(members: &[WantedMember], chunk_len: u64) -> Range<u64> {
    let begin = members.first().map_or(0, |member| member.offset);
    let end = members.iter().map(|member| member.offset.saturating_add(member.len)).max().unwrap_or(begin);
    begin.saturating_sub(chunk_len)..end.saturating_add(chunk_len)
}

/// The stretches of runs that are in tape order, and which runs are in each. All runs of a stream are in one.
pub(crate) fn stretches(runs: &[Run]) -> (Vec<Stretch>, Vec<Range<usize>>) {
    let last: HashMap<usize, usize> = runs.iter().enumerate().map(|(at, run)| (run.stream, at)).collect();
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut runs_of: Vec<Range<usize>> = Vec::new();
    // The runs up to here belong together.
    let mut until = 0;
    for (at, run) in runs.iter().enumerate() {
        let last_lbn = run.lbn.saturating_add(u64::from(run.blocks).saturating_sub(1));
        match (stretches.last_mut(), runs_of.last_mut()) {
            (Some(stretch), Some(runs))
                if at <= until || run.lbn <= stretch.last_lbn.saturating_add(APART_BLOCKS_MIN) =>
            {
                stretch.last_lbn = stretch.last_lbn.max(last_lbn);
                runs.end = at + 1;
            }
            _ => {
                stretches.push(Stretch { first_lbn: run.lbn, last_lbn });
                runs_of.push(at..at + 1);
            }
        }
        until = until.max(last[&run.stream]);
    }
    (stretches, runs_of)
}

/// The most streams of a plan that are open at once, whatever the order of stretches.
pub fn open_at_once(plan: &ReadPlan) -> usize {
    let mut passes_of: HashMap<usize, usize> = HashMap::new();
    let mut most = 0;
    for pass in &plan.passes {
        let mut left: HashMap<usize, usize> = HashMap::new();
        pass.runs.iter().for_each(|run| *left.entry(run.stream).or_default() += 1);
        left.keys().for_each(|stream| *passes_of.entry(*stream).or_default() += 1);
        let all = left.clone();
        let mut open: usize = 0;
        for run in &pass.runs {
            let runs = left.entry(run.stream).or_default();
            open += usize::from(*runs == all[&run.stream]);
            most = most.max(open);
            *runs -= 1;
            open -= usize::from(*runs == 0);
        }
    }
    // What goes on on another volume stays open from one pass to the other.
    most + passes_of.values().filter(|passes| **passes > 1).count()
}

/// An order, if it names each once; else front to back.
pub(crate) fn order_or_position(order: Vec<usize>, count: usize) -> Vec<usize> {
    let mut named = order.clone();
    named.sort_unstable();
    if named.into_iter().eq(0..count) { order } else { (0..count).collect() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_format::ObjectId;

    use super::*;
    use crate::read::{ExtentPlace, Pass, plan_reads};

    const CHUNK: u64 = 100;

    fn member(block: u64) -> WantedMember {
        WantedMember { offset: block * CHUNK, len: CHUNK, crc: block as u32 }
    }

    fn extent(copy: u8, first_block: u64, blocks: u32) -> ExtentPlace {
        ExtentPlace {
            volume: usize::from(copy) - 1,
            copy,
            connection: 0,
            base: 0,
            first_lbn: 3 + first_block,
            blocks,
            offset: first_block * CHUNK,
            plain_len: u64::from(blocks) * CHUNK,
        }
    }

    fn stream(members: Vec<WantedMember>, extents: Vec<ExtentPlace>) -> WantedStream {
        WantedStream { object: ObjectId([1; 16]), connection: 0, chunk_len: CHUNK as u32, members, extents }
    }

    fn run(stream: usize, lbn: u64, blocks: u32) -> Run {
        Run { stream, connection: 0, base: 0, lbn, blocks, offset: 0, plain_len: 0 }
    }

    #[test]
    fn what_is_wanted_whole_stays_one_stream() {
        let whole = stream((0..50).map(member).collect(), vec![extent(1, 0, 50)]);
        let wanted = Wanted { volumes: Vec::new(), streams: vec![whole] };
        assert_eq!(split_at_gaps(wanted.clone()), wanted);
        let near = stream(vec![member(0), member(16)], vec![extent(1, 0, 50)]);
        assert_eq!(pieces(near).len(), 1);
    }

    #[test]
    fn pieces_have_their_members_and_the_extents_that_hold_them_in_any_copy() {
        let extents = vec![extent(1, 0, 10), extent(1, 10, 40), extent(1, 50, 50), extent(2, 0, 30), extent(2, 30, 70)];
        let apart = pieces(stream(vec![member(2), member(4), member(40), member(90)], extents));
        let members: Vec<Vec<u32>> =
            apart.iter().map(|piece| piece.members.iter().map(|member| member.crc).collect()).collect();
        assert_eq!(members, [vec![2, 4], vec![40], vec![90]]);
        let held: Vec<Vec<(u8, u64)>> = apart
            .iter()
            .map(|piece| piece.extents.iter().map(|extent| (extent.copy, extent.offset / CHUNK)).collect())
            .collect();
        assert_eq!(held, [vec![(1, 0), (2, 0)], vec![(1, 10), (2, 30)], vec![(1, 50), (2, 30)]]);
    }

    /// Whatever is wanted: the same blocks are read as without taking apart, each once.
    #[test]
    fn the_same_blocks_are_read_from_the_same_copies() {
        let seed = std::env::var("CAPSTAN_SEED").map_or_else(|_| rand_seed(), |text| text.parse().unwrap());
        println!("CAPSTAN_SEED={seed} replays this");
        let mut state = seed | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % below
        };
        for _ in 0..500 {
            let mut members = Vec::new();
            let mut at = draw(50);
            while at < 1000 {
                members.push(WantedMember { offset: at * 10, len: 1 + draw(600), crc: 0 });
                at += 61 + if draw(3) == 0 { draw(400) } else { 0 };
            }
            let mut extents = Vec::new();
            for copy in 1..=2 {
                let mut block = 0;
                while block < 110 {
                    let blocks = 1 + draw(30);
                    // Some are on no volume.
                    if draw(8) > 0 {
                        extents.push(extent(copy, block, blocks as u32));
                    }
                    block += blocks;
                }
            }
            let wanted = Wanted { volumes: Vec::new(), streams: vec![stream(members, extents)] };
            let lbns = |wanted: &Wanted| {
                let plan = plan_reads(wanted);
                let of = |pass: &Pass| {
                    let lbns = pass.runs.iter().flat_map(|run| run.lbn..run.lbn + u64::from(run.blocks));
                    lbns.map(|lbn| (pass.volume, lbn)).collect::<Vec<_>>()
                };
                let mut blocks: Vec<_> = plan.passes.iter().flat_map(of).collect();
                blocks.sort_unstable();
                let missing: u64 = plan.missing.iter().map(|(_, range)| range.end - range.start).sum();
                (blocks, missing)
            };
            let whole = lbns(&wanted);
            let apart = lbns(&split_at_gaps(wanted.clone()));
            assert_eq!(apart, whole, "CAPSTAN_SEED={seed}: {wanted:?}");
            assert!(apart.0.windows(2).all(|pair| pair[0] != pair[1]), "CAPSTAN_SEED={seed}: a block is read twice");
        }
    }

    fn rand_seed() -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    }

    #[test]
    fn streams_that_are_interleaved_or_near_are_one_stretch() {
        // Streams 0 and 1 are interleaved; 2 stands behind them, near; 3 and 4 far away, in turn.
        let runs =
            [run(0, 3, 4), run(1, 7, 4), run(0, 60, 4), run(2, 70, 1), run(3, 200, 1), run(4, 300, 1), run(3, 400, 2)];
        let (found, runs_of) = stretches(&runs);
        let lbns: Vec<_> = found.iter().map(|stretch| (stretch.first_lbn, stretch.last_lbn)).collect();
        assert_eq!(lbns, [(3, 70), (200, 401)]);
        assert_eq!(runs_of, [0..4, 4..7]);
        assert_eq!(stretches(&[]).0, []);
    }

    #[test]
    fn streams_open_at_once_are_counted_as_they_overlap() {
        let pass = |volume, runs: &[Run]| Pass { volume, runs: runs.to_vec() };
        let one_by_one: Vec<Run> = (0..100).map(|stream| run(stream, 100 * stream as u64, 1)).collect();
        assert_eq!(open_at_once(&ReadPlan { passes: vec![pass(0, &one_by_one)], missing: Vec::new() }), 1);
        let interleaved = [run(0, 0, 1), run(1, 1, 1), run(0, 2, 1), run(2, 3, 1), run(1, 4, 1)];
        assert_eq!(open_at_once(&ReadPlan { passes: vec![pass(0, &interleaved)], missing: Vec::new() }), 2);
        let passes = vec![pass(0, &[run(0, 0, 1), run(1, 5, 1)]), pass(1, &[run(0, 0, 1)])];
        assert_eq!(open_at_once(&ReadPlan { passes, missing: Vec::new() }), 2);
    }

    #[test]
    fn an_order_that_is_none_is_front_to_back() {
        assert_eq!(order_or_position(vec![2, 0, 1], 3), [2, 0, 1]);
        assert_eq!(order_or_position(vec![2, 0, 2], 3), [0, 1, 2]);
        assert_eq!(order_or_position(vec![1, 0], 3), [0, 1, 2]);
        assert_eq!(order_or_position(vec![3, 0, 1], 3), [0, 1, 2]);
    }
}
