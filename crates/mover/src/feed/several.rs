//! A read whose volumes are not all in one library: part by part, each where its volumes are.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{AccessHere, CrewFeeds, DrivesAt, DrivesWay, Feeds, ReadHost, ReadReport, ToRead, gaps_of, read_into};
use crate::crew::{Consume, Crew, queue_len};
use crate::read::{Pass, ReadPlan, VolumePlace, Wanted, WantedMember, WantedStream, held_ranges};
use crate::stream::Piece;
use crate::stretch::open_at_once;
use crate::{BetweenBlocks, Filled, HostError, MountId, ReadOrder};

/// The libraries that volumes are in, and the drives of each.
pub trait ReadRoutes: Send + Sync {
    /// The number of the library that a volume is in.
    fn library_of(&self, place: &VolumePlace) -> usize;

    /// Where the drives of a library are.
    fn drives(&self, library: usize) -> DrivesAt<'_>;

    /// What several libraries have is read in the one that costs least: a disk of this host is quicker than a tape.
    fn cost_of(&self, library: usize) -> u8 {
        let _ = library;
        0
    }
}

/// What is read in one library before another one is gone to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadPart {
    pub(crate) library: usize,
    pub(crate) plan: ReadPlan,
}

/// The parts of a read, at least one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadParts {
    pub(crate) parts: Vec<ReadPart>,
    /// Whether a stream goes on in another library than it began in.
    pub(crate) stream_goes_on: bool,
}

/// Takes a plan apart by libraries.
pub(crate) fn parts_of(routes: &dyn ReadRoutes, wanted: &Wanted, plan: &ReadPlan) -> ReadParts {
    let library = |pass: &Pass| routes.library_of(&wanted.volumes[pass.volume]);
    let mut passes: Vec<(usize, &Pass)> = plan.passes.iter().map(|pass| (library(pass), pass)).collect();
    let mut library_of: HashMap<usize, usize> = HashMap::new();
    let mut runs = passes.iter().flat_map(|(library, pass)| pass.runs.iter().map(move |run| (run.stream, *library)));
    let stream_goes_on = runs.any(|(stream, library)| *library_of.entry(stream).or_insert(library) != library);
    if !stream_goes_on {
        passes.sort_by_key(|(library, _)| *library);
    }
    let mut parts: Vec<ReadPart> = Vec::new();
    for (library, pass) in passes {
        match parts.last_mut().filter(|part| part.library == library) {
            Some(part) => part.plan.passes.push(pass.clone()),
            None => {
                let plan = ReadPlan { passes: vec![pass.clone()], missing: Vec::new() };
                parts.push(ReadPart { library, plan });
            }
        }
    }
    if parts.is_empty() {
        parts.push(ReadPart { library: 0, plan: ReadPlan::default() });
    }
    for missing in &plan.missing {
        // Whoever takes the stream is told with what is read of it.
        let has = |part: &ReadPart| library_of.get(&missing.0) == Some(&part.library);
        let at = parts.iter().position(has).unwrap_or(0);
        parts[at].plan.missing.push(missing.clone());
    }
    ReadParts { parts, stream_goes_on }
}

/// A plan without the streams that go on in another library than they begin in; and these.
#[must_use]
pub fn without_torn(routes: &dyn ReadRoutes, wanted: &Wanted, plan: &ReadPlan) -> (ReadPlan, Vec<usize>) {
    let (mut library_of, mut torn): (HashMap<usize, usize>, Vec<usize>) = Default::default();
    for pass in &plan.passes {
        let library = routes.library_of(&wanted.volumes[pass.volume]);
        for run in &pass.runs {
            if *library_of.entry(run.stream).or_insert(library) != library && !torn.contains(&run.stream) {
                torn.push(run.stream);
            }
        }
    }
    let mut whole = plan.clone();
    whole.passes.iter_mut().for_each(|pass| pass.runs.retain(|run| !torn.contains(&run.stream)));
    whole.passes.retain(|pass| !pass.runs.is_empty());
    whole.missing.retain(|(stream, _)| !torn.contains(stream));
    (whole, torn)
}

/// A plan for each library, where each stream is read in one: they can be carried out at the same time. One plan where
/// they cannot.
#[must_use]
pub fn plans_by_library(wanted: &Wanted, plan: &ReadPlan, routes: &dyn ReadRoutes) -> Vec<ReadPlan> {
    let ReadParts { parts, stream_goes_on } = parts_of(routes, wanted, plan);
    if stream_goes_on { vec![plan.clone()] } else { parts.into_iter().map(|part| part.plan).collect() }
}

/// Takes streams apart by the libraries in which their members are whole, so that each is read in one of them. A member
/// that is whole in none stays in a stream that goes on from one library to another.
#[must_use]
pub fn split_by_library(wanted: Wanted, routes: &dyn ReadRoutes) -> Wanted {
    let Wanted { volumes, streams } = wanted;
    let libraries: Vec<usize> = volumes.iter().map(|place| routes.library_of(place)).collect();
    let streams = streams.into_iter().flat_map(|stream| by_library(stream, &libraries, routes)).collect();
    Wanted { volumes, streams }
}

fn by_library(stream: WantedStream, libraries: &[usize], routes: &dyn ReadRoutes) -> Vec<WantedStream> {
    let mut extents = stream.extents.clone();
    // The lowest copy first, as it is planned.
    extents.sort_by_key(|extent| (extent.copy, extent.offset));
    let mut order: Vec<usize> = Vec::new();
    for library in extents.iter().map(|extent| libraries[extent.volume]) {
        if !order.contains(&library) {
            order.push(library);
        }
    }
    if order.len() < 2 {
        return vec![stream];
    }
    order.sort_by_key(|library| routes.cost_of(*library));
    let mut rest = stream.members;
    let mut split = Vec::new();
    for library in order {
        let own: Vec<_> = extents.iter().filter(|extent| libraries[extent.volume] == library).copied().collect();
        let held = held_ranges(&own);
        let members: Vec<_> = rest.extract_if(.., |member| is_held(&held, member)).collect();
        if !members.is_empty() {
            split.push(WantedStream { members, extents: own, ..stream });
        }
    }
    if !rest.is_empty() {
        split.push(WantedStream { members: rest, extents, ..stream });
    }
    split
}

fn is_held(held: &[Range<u64>], member: &WantedMember) -> bool {
    let first = held.partition_point(|range| range.end <= member.offset);
    member.len == 0
        || held
            .get(first)
            .is_some_and(|range| range.start <= member.offset && member.offset.saturating_add(member.len) <= range.end)
}

/// Reads part by part. A stream that goes on in another library stays open meanwhile.
pub(super) fn read(
    routes: &dyn ReadRoutes,
    what: ToRead<'_>,
    (host, mut between): (&mut dyn ReadHost, Option<&mut BetweenBlocks>),
    consume: Consume<'_>,
) -> ReadReport {
    let ToRead { wanted, plan, stop, meters } = what;
    let queue_len = queue_len(open_at_once(plan).max(1));
    thread::scope(|scope| {
        let crew = Crew::new(scope, wanted, consume, queue_len, gaps_of(wanted, plan));
        let mut feeds = CrewFeeds { crew, feeds: HashMap::new() };
        let mut runs: HashMap<usize, usize> = HashMap::new();
        plan.passes.iter().flat_map(|pass| &pass.runs).for_each(|run| *runs.entry(run.stream).or_default() += 1);
        for stream in feeds.without_blocks(&runs) {
            feeds.start(stream, 0);
            feeds.end(stream);
        }
        let mut report = ReadReport::default();
        let parts = if plan.passes.is_empty() { Vec::new() } else { parts_of(routes, wanted, plan).parts };
        let across = Mutex::new(AcrossParts::new(feeds, &parts));
        for (number, ReadPart { library, mut plan }) in parts.into_iter().enumerate() {
            // The threads that take the streams know what no copy holds.
            plan.missing.clear();
            across.lock().unwrap_or_else(PoisonError::into_inner).begin(number, &plan);
            let mut host = InLibrary { host: Box::new(&mut *host), routes, library };
            let what = ToRead { wanted, plan: &plan, stop, meters };
            report.add(match routes.drives(library).0 {
                DrivesWay::Here(drives) => {
                    let between = between.as_deref_mut();
                    let access = AccessHere { host: &mut host, drives, between };
                    let mut feeds = across.lock().unwrap_or_else(PoisonError::into_inner);
                    read_into(wanted, &plan, access, (stop, meters), &mut *feeds)
                }
                DrivesWay::Elsewhere(far) => far.read(what, &mut host, &|work| {
                    work(&mut *across.lock().unwrap_or_else(PoisonError::into_inner));
                }),
                // A library has drives in one place.
                DrivesWay::Several(_) => ReadReport::default(),
            });
        }
        report
    })
}

/// Whoever mounts, for the part of a read that is in one library.
pub(crate) struct InLibrary<'a> {
    pub(crate) host: Box<dyn ReadHost + 'a>,
    pub(crate) routes: &'a dyn ReadRoutes,
    pub(crate) library: usize,
}

impl ReadHost for InLibrary<'_> {
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError> {
        if self.routes.library_of(place) != self.library {
            return Err(format!(
                "volume {}, which has it too, is in another library than what is read: try again, and it comes from there",
                place.volser
            )
            .into());
        }
        self.host.mount(place)
    }

    fn filled(&mut self, place: &VolumePlace) -> Option<Filled> {
        self.host.filled(place)
    }

    fn ordered(&mut self, order: &ReadOrder, notice: Option<String>) {
        self.host.ordered(order, notice);
    }

    fn release(&mut self, mount: MountId, place: &VolumePlace) {
        self.host.release(mount, place);
    }
}

/// Feeds that outlive the parts of a read.
struct AcrossParts<F> {
    feeds: F,
    started: HashSet<usize>,
    /// The last part that has something of a stream.
    last: HashMap<usize, usize>,
    part: usize,
    /// Streams of the part that is read.
    streams: HashSet<usize>,
    /// Streams that are open from the parts before: each keeps a thread.
    open_beside: usize,
}

impl<F: Feeds> AcrossParts<F> {
    fn new(feeds: F, parts: &[ReadPart]) -> Self {
        let mut last = HashMap::new();
        for (number, part) in parts.iter().enumerate() {
            part.plan.passes.iter().flat_map(|pass| &pass.runs).for_each(|run| {
                last.insert(run.stream, number);
            });
        }
        Self { feeds, started: HashSet::new(), last, part: 0, streams: HashSet::new(), open_beside: 0 }
    }

    fn begin(&mut self, part: usize, plan: &ReadPlan) {
        self.part = part;
        self.streams = plan.passes.iter().flat_map(|pass| &pass.runs).map(|run| run.stream).collect();
        let goes_on = |stream: &&usize| self.last.get(stream).is_some_and(|last| *last >= part);
        // Those that were begun and come again in this part count, too: a part does not know that they are open.
        self.open_beside = self.started.iter().filter(goes_on).count();
    }
}

impl<F: Feeds> Feeds for AcrossParts<F> {
    fn without_blocks(&self, _runs: &HashMap<usize, usize>) -> Vec<usize> {
        Vec::new()
    }

    fn start(&mut self, stream: usize, open: usize) {
        // A part that fails fails all streams that there are.
        if self.streams.contains(&stream) && self.started.insert(stream) {
            self.feeds.start(stream, open + self.open_beside);
        }
    }

    fn try_send(&mut self, stream: usize, piece: Piece) -> Option<Piece> {
        if self.streams.contains(&stream) { self.feeds.try_send(stream, piece) } else { None }
    }

    fn send(&mut self, stream: usize, piece: Piece) {
        if self.streams.contains(&stream) {
            self.feeds.send(stream, piece);
        }
    }

    fn end(&mut self, stream: usize) {
        if self.last.get(&stream) == Some(&self.part) {
            self.feeds.end(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_format::{ObjectId, Volser, VolumeId};

    use super::*;
    use crate::MountedDrives;
    use crate::read::{ExtentPlace, plan_reads};

    /// Volumes whose barcode begins with W are in the second library.
    struct ByLetter(MountedDrives);

    impl ReadRoutes for ByLetter {
        fn library_of(&self, place: &VolumePlace) -> usize {
            usize::from(place.volser.as_str().starts_with('W'))
        }

        fn drives(&self, _library: usize) -> DrivesAt<'_> {
            DrivesAt::from(&self.0)
        }
    }

    fn extent(volume: usize, offset: u64) -> ExtentPlace {
        ExtentPlace { volume, copy: 1, connection: 0, base: 0, first_lbn: 3, blocks: 5, offset, plain_len: 500 }
    }

    fn stream(extents: Vec<ExtentPlace>) -> WantedStream {
        let members = extents.iter().map(|extent| WantedMember { offset: extent.offset, len: 500, crc: 0 }).collect();
        WantedStream { object: ObjectId([1; 16]), connection: 0, chunk_len: 100, members, extents }
    }

    fn wanted(streams: Vec<WantedStream>) -> Wanted {
        let volume = |name: &str| VolumePlace { volser: Volser::new(name).unwrap(), volume: VolumeId(1) };
        Wanted { volumes: ["E1", "W1", "E2", "W2"].map(volume).into(), streams }
    }

    fn libraries(wanted: &Wanted) -> (Vec<(usize, usize)>, bool) {
        let routes = ByLetter(MountedDrives::default());
        let ReadParts { parts, stream_goes_on } = parts_of(&routes, wanted, &plan_reads(wanted));
        (parts.iter().map(|part| (part.library, part.plan.passes.len())).collect(), stream_goes_on)
    }

    #[test]
    fn each_library_is_gone_to_once_where_no_stream_goes_on_in_another() {
        let one_of_each = (0..4).map(|volume| stream(vec![extent(volume, 0)])).collect();
        assert_eq!(libraries(&wanted(one_of_each)), (vec![(0, 2), (1, 2)], false));
        let there_and_back = stream(vec![extent(0, 0), extent(1, 500), extent(2, 1000)]);
        assert_eq!(libraries(&wanted(vec![there_and_back])), (vec![(0, 1), (1, 1), (0, 1)], true));
        assert_eq!(libraries(&wanted(Vec::new())), (vec![(0, 0)], false));
    }

    #[test]
    fn what_no_copy_holds_is_told_with_what_is_read_of_its_stream() {
        let mut one_of_each: Vec<_> = (0..2).map(|volume| stream(vec![extent(volume, 0)])).collect();
        one_of_each.push(stream(Vec::new()));
        for stream in &mut one_of_each {
            stream.members = vec![WantedMember { offset: 0, len: 900, crc: 0 }];
        }
        let wanted = wanted(one_of_each);
        let plans = plans_by_library(&wanted, &plan_reads(&wanted), &ByLetter(MountedDrives::default()));
        let missing: Vec<Vec<usize>> =
            plans.iter().map(|plan| plan.missing.iter().map(|(stream, _)| *stream).collect()).collect();
        assert_eq!(missing, [vec![0, 2], vec![1]]);
    }

    #[test]
    fn streams_are_taken_apart_by_libraries_as_far_as_members_are_whole_there() {
        let routes = ByLetter(MountedDrives::default());
        let mut both = stream(vec![extent(0, 0), extent(1, 500), extent(2, 1000)]);
        let split = split_by_library(wanted(vec![both.clone()]), &routes);
        let members = |split: &Wanted| split.streams.iter().map(|stream| stream.members.len()).collect::<Vec<_>>();
        assert_eq!(members(&split), [2, 1]);
        assert_eq!(libraries(&split), (vec![(0, 2), (1, 1)], false));
        // One member that begins in one library and ends in the other.
        both.members = vec![WantedMember { offset: 400, len: 200, crc: 0 }];
        let split = split_by_library(wanted(vec![both]), &routes);
        assert_eq!((members(&split), libraries(&split).1), (vec![1], true));
    }
}
