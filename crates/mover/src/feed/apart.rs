//! Parts of a read that several drives can carry out at the same time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::read::{ReadPlan, Wanted};

/// Takes a plan apart into plans that have no stream in common, and no volume in any copy: whoever carries one out
/// never waits for a volume that another one has. The largest first.
#[must_use]
pub fn plans_apart(wanted: &Wanted, plan: &ReadPlan) -> Vec<ReadPlan> {
    let mut groups = Groups::of(wanted.volumes.len());
    let mut volume_of: HashMap<usize, usize> = HashMap::new();
    for pass in &plan.passes {
        for run in &pass.runs {
            let first = *volume_of.entry(run.stream).or_insert(pass.volume);
            groups.join(first, pass.volume);
        }
    }
    for (&stream, &volume) in &volume_of {
        wanted.streams[stream].extents.iter().for_each(|extent| groups.join(volume, extent.volume));
    }
    let mut parts: BTreeMap<usize, ReadPlan> = BTreeMap::new();
    for pass in &plan.passes {
        parts.entry(groups.group(pass.volume)).or_default().passes.push(pass.clone());
    }
    let mut rest = Vec::new();
    for missing in &plan.missing {
        // Whoever takes the stream is told with what is read of it.
        let group = volume_of.get(&missing.0).map(|volume| groups.group(*volume));
        match group.and_then(|group| parts.get_mut(&group)) {
            Some(part) => part.missing.push(missing.clone()),
            None => rest.push(missing.clone()),
        }
    }
    let mut parts: Vec<ReadPlan> = parts.into_values().collect();
    parts.sort_by_key(|part| Reverse(part.blocks()));
    match parts.first_mut() {
        Some(first) => first.missing.extend(rest),
        None => parts.push(ReadPlan { passes: Vec::new(), missing: rest }),
    }
    parts
}

/// Shares parts out among so many readers at most, each with about as much to read as the others.
#[must_use]
pub fn shares_of(parts: Vec<ReadPlan>, readers: usize) -> Vec<ReadPlan> {
    let mut shares: Vec<ReadPlan> = Vec::new();
    for part in parts {
        let least = shares.iter().enumerate().min_by_key(|(_, share)| share.blocks()).map(|(at, _)| at);
        match least.filter(|_| shares.len() >= readers) {
            Some(least) => {
                shares[least].passes.extend(part.passes);
                shares[least].missing.extend(part.missing);
            }
            None => shares.push(part),
        }
    }
    shares
}

/// Volumes that belong together: each points to another of its group, and one to itself.
struct Groups(Vec<usize>);

impl Groups {
    fn of(volumes: usize) -> Self {
        Self((0..volumes).collect())
    }

    fn group(&mut self, mut volume: usize) -> usize {
        while self.0[volume] != volume {
            self.0[volume] = self.0[self.0[volume]];
            volume = self.0[volume];
        }
        volume
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.group(one), self.group(other));
        self.0[one.max(other)] = one.min(other);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_format::{ObjectId, Volser, VolumeId};

    use super::*;
    use crate::read::{ExtentPlace, VolumePlace, WantedMember, WantedStream, plan_reads};

    /// A stream whose copies are on these volumes, which have so many blocks of it each, one behind the other.
    fn stream(copies: &[&[usize]], blocks: u32) -> WantedStream {
        let bytes = u64::from(blocks) * 100;
        let extents = copies.iter().zip(1..).flat_map(|(volumes, copy)| {
            volumes.iter().zip(0..).map(move |(volume, at)| ExtentPlace {
                volume: *volume,
                copy,
                connection: 0,
                base: 0,
                first_lbn: 3,
                blocks,
                offset: at * bytes,
                plain_len: bytes,
            })
        });
        let len = bytes * copies[0].len() as u64;
        let members = vec![WantedMember { offset: 0, len, crc: 0 }];
        WantedStream { object: ObjectId([1; 16]), connection: 0, chunk_len: 100, members, extents: extents.collect() }
    }

    fn wanted(streams: Vec<WantedStream>) -> Wanted {
        let volume =
            |number: usize| VolumePlace { volser: Volser::new(&format!("V{number}")).unwrap(), volume: VolumeId(1) };
        Wanted { volumes: (0..6).map(volume).collect(), streams }
    }

    fn apart(streams: Vec<WantedStream>) -> Vec<Vec<usize>> {
        let wanted = wanted(streams);
        let parts = plans_apart(&wanted, &plan_reads(&wanted));
        parts.iter().map(|part| part.passes.iter().map(|pass| pass.volume).collect()).collect()
    }

    #[test]
    fn streams_on_other_volumes_are_read_apart_the_largest_first() {
        assert_eq!(apart(vec![stream(&[&[0]], 1), stream(&[&[1]], 5), stream(&[&[1]], 1)]), [vec![1], vec![0]]);
        assert_eq!(apart(Vec::new()), [Vec::<usize>::new()]);
    }

    #[test]
    fn readers_get_shares_of_about_the_same_size() {
        let streams = [6, 3, 2, 2, 1].iter().enumerate().map(|(volume, blocks)| stream(&[&[volume]], *blocks));
        let wanted = wanted(streams.collect());
        let shares = |readers| shares_of(plans_apart(&wanted, &plan_reads(&wanted)), readers);
        let blocks = |readers| shares(readers).iter().map(ReadPlan::blocks).collect::<Vec<_>>();
        assert_eq!((blocks(1), blocks(2), blocks(9)), (vec![14], vec![7, 7], vec![6, 3, 2, 2, 1]));
    }

    #[test]
    fn what_a_stream_goes_on_to_or_another_copy_has_stays_together() {
        // One goes on from volume 0 to volume 1, where another begins.
        assert_eq!(
            apart(vec![stream(&[&[0, 1]], 1), stream(&[&[1, 2]], 1), stream(&[&[3]], 1)]),
            [vec![0, 1, 2], vec![3]]
        );
        // The second copies of two streams stand on one volume.
        assert_eq!(apart(vec![stream(&[&[0], &[4]], 1), stream(&[&[1], &[4]], 1)]), [vec![0, 1]]);
        assert_eq!(apart(vec![stream(&[&[0], &[4]], 1), stream(&[&[1], &[5]], 1)]).len(), 2);
    }

    #[test]
    fn what_no_copy_holds_is_told_once() {
        let mut lacking = stream(&[&[1]], 1);
        lacking.members[0].len = 900;
        let nowhere = WantedStream { extents: Vec::new(), ..stream(&[&[0]], 1) };
        let wanted = wanted(vec![stream(&[&[0]], 3), lacking, nowhere]);
        let parts = plans_apart(&wanted, &plan_reads(&wanted));
        let missing: Vec<Vec<usize>> =
            parts.iter().map(|part| part.missing.iter().map(|(stream, _)| *stream).collect()).collect();
        assert_eq!(missing, [vec![2], vec![1]]);
    }
}
