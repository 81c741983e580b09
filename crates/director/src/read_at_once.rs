//! Shares of a restore that are read at the same time: one drive in each library, and more where they are free.

use std::thread;

use capstan_mover::{ReadPlan, StreamsReport, Wanted, WantedStream, plans_apart, shares_of};

use crate::mounter::ReadMounter;

/// Shares out plans, one for each library. Of each, the parts that have no volume in common go to as many drives of the
/// library as are free now.
pub(crate) fn share_out(wanted: &Wanted, plans: Vec<ReadPlan>, host: &ReadMounter) -> Vec<ReadPlan> {
    plans.into_iter().flat_map(|plan| shares_in_library(wanted, &plan, host)).collect()
}

fn shares_in_library(wanted: &Wanted, plan: &ReadPlan, host: &ReadMounter) -> Vec<ReadPlan> {
    let parts = plans_apart(wanted, plan);
    let first = parts.iter().flat_map(|part| &part.passes).next().map(|pass| &wanted.volumes[pass.volume].volser);
    // Where it cannot be found out, one drive reads everything.
    let free = first.filter(|_| parts.len() > 1).and_then(|volser| host.mounter().drives_free(volser).ok());
    // A reader that meets damage mounts another copy beside what it reads: no two are to wait for each other's drive.
    let has_copies = |stream: &WantedStream| stream.extents.iter().any(|extent| extent.copy != stream.extents[0].copy);
    let runs = plan.passes.iter().flat_map(|pass| &pass.runs);
    let each = if runs.map(|run| &wanted.streams[run.stream]).any(has_copies) { 2 } else { 1 };
    shares_of(parts, (free.unwrap_or(0) as usize / each).max(1))
}

/// Reads shares at the same time, the first in this thread.
pub(crate) fn read_at_once(
    shares: &[ReadPlan],
    host: &mut ReadMounter,
    read: &(dyn Fn(&ReadPlan, &mut ReadMounter) -> StreamsReport + Sync),
) -> StreamsReport {
    let Some((first, others)) = shares.split_first() else { return StreamsReport::default() };
    thread::scope(|scope| {
        let readers: Vec<_> = others
            .iter()
            .map(|share| {
                let mut host = host.beside();
                // Dropped, it puts back what is in its drive.
                scope.spawn(move || read(share, &mut host))
            })
            .collect();
        let mut streams = read(first, host);
        host.put_back();
        for reader in readers {
            streams.add(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        streams
    })
}
