//! Parts of a restore that are read at the same time: one drive in each library, and more where they are free.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use capstan_mover::{ReadPlan, StreamsReport, Wanted, WantedStream, plans_apart};

use crate::mounter::ReadMounter;
use crate::shared::locked;

/// What is left to read of one library.
struct Left {
    parts: Mutex<VecDeque<ReadPlan>>,
    /// Drives beside the first that read it.
    beside: usize,
}

/// Carries out plans, one for each library, with `read`. Of each, the parts that have no volume in common are given to
/// as many drives of the library as are free now.
pub(crate) fn read_at_once(
    wanted: &Wanted,
    plans: Vec<ReadPlan>,
    host: &mut ReadMounter,
    read: &(dyn Fn(&ReadPlan, &mut ReadMounter) -> StreamsReport + Sync),
) -> StreamsReport {
    let all: Vec<Left> = plans.into_iter().map(|plan| left_of(wanted, &plan, host)).collect();
    let read_all = |left: &Left, host: &mut ReadMounter| {
        let mut streams = StreamsReport::default();
        // Bound first: whoever reads does not keep the others from the queue.
        while let Some(part) = { locked(&left.parts).pop_front() } {
            streams.add(read(&part, host));
        }
        host.put_back();
        streams
    };
    thread::scope(|scope| {
        let mut readers = Vec::new();
        for (number, left) in all.iter().enumerate() {
            // This thread is the first drive of the first library.
            for _ in usize::from(number == 0)..=left.beside {
                let mut host = host.beside();
                let read_all = &read_all;
                readers.push(scope.spawn(move || (read_all(left, &mut host), host.end())));
            }
        }
        let mut streams = all.first().map_or_else(StreamsReport::default, |left| read_all(left, host));
        for reader in readers {
            let (of_reader, met) = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            streams.add(of_reader);
            host.take_in(met);
        }
        streams
    })
}

fn left_of(wanted: &Wanted, plan: &ReadPlan, host: &ReadMounter) -> Left {
    let parts = plans_apart(wanted, plan);
    let first = parts.iter().flat_map(|part| &part.passes).next().map(|pass| &wanted.volumes[pass.volume].volser);
    // Where it cannot be found out, one drive reads everything.
    let free = first.filter(|_| parts.len() > 1).and_then(|volser| host.mounter().drives_free(volser).ok());
    // A reader that meets damage mounts another copy beside what it reads: no two are to wait for each other's drive.
    let has_copies = |stream: &WantedStream| stream.extents.iter().any(|extent| extent.copy != stream.extents[0].copy);
    let runs = plan.passes.iter().flat_map(|pass| &pass.runs);
    let each = if runs.map(|run| &wanted.streams[run.stream]).any(has_copies) { 2 } else { 1 };
    let beside = (free.unwrap_or(0) as usize / each).min(parts.len()).saturating_sub(1);
    Left { parts: Mutex::new(parts.into()), beside }
}
