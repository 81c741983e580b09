//! Executing a read plan: one reader goes over the volumes, each stream's blocks go to a thread that has no other at
//! the time.

mod apart;
mod several;
mod to_the_end;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use capstan_format::{BlockKind, Volser};
use capstan_tape::{Drive, with_causes};
use serde::{Deserialize, Serialize};

use crate::crew::{Crew, queue_len};
use crate::damage::{BadBlocks, Damage, FailedMember, add_bad_block};
use crate::intake::ExpectedStreams;
use crate::meters::{AtDrive, ReadMeters};
use crate::order::{Chosen, choose};
use crate::pool::{BlockPool, Buffer};
use crate::queue::{Refused, Sender};
use crate::read::{ExtentPlace, Pass, ReadPlan, Run, VolumePlace, Wanted, WantedStream};
use crate::shared_drive::DriveShare;
use crate::stream::{Gap, Piece, StreamReader};
use crate::stretch::{Stretch, open_at_once, order_or_position, stretches};
use crate::throttle::Throttle;
use crate::volume::{BLOCK_LEN_MAX, VolumeReader};
use crate::{BetweenBlocks, Filled, HostError, MountId, MountedDrives, MoverError, ReadOrder};

pub use apart::{plans_apart, shares_of};
pub(crate) use several::{InLibrary, parts_of};
pub use several::{ReadRoutes, plans_by_library, split_by_library, without_torn};
pub(crate) use to_the_end::{NOT_ALL, UpToTheEnd};

/// Blocks in flight over all streams beyond their queues.
const SPARE_BUFFERS: usize = 8;
/// Most damages that are kept with their places; beyond that they are counted, and [`ReadReport::keep_lost`] chooses.
const DAMAGES_MAX: usize = 10_000;

/// What a read asks of whoever decides, and what it reports. All of it is data, as in [`crate::CopyHost`].
pub trait ReadHost: Send {
    /// Mounts a volume whose label says what `place` says, key loaded.
    ///
    /// # Errors
    /// It cannot be mounted; what is wanted of it comes from another copy, or not at all.
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError>;

    /// How far the volume is written, so that the best order to read its parts can be found; none to read it from front
    /// to back.
    fn filled(&mut self, place: &VolumePlace) -> Option<Filled> {
        let _ = place;
        None
    }

    /// Takes note of the order in which a volume is read, and why it is not the drive's where that could not be asked.
    fn ordered(&mut self, order: &ReadOrder, notice: Option<String>) {
        let _ = (order, notice);
    }

    /// Ends a mount whose drive the read has given back.
    fn release(&mut self, mount: MountId, place: &VolumePlace);
}

impl<H: ReadHost + ?Sized> ReadHost for &mut H {
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError> {
        (**self).mount(place)
    }

    fn filled(&mut self, place: &VolumePlace) -> Option<Filled> {
        (**self).filled(place)
    }

    fn ordered(&mut self, order: &ReadOrder, notice: Option<String>) {
        (**self).ordered(order, notice);
    }

    fn release(&mut self, mount: MountId, place: &VolumePlace) {
        (**self).release(mount, place);
    }
}

/// What a read mounts its volumes with.
pub struct VolumeAccess<'a> {
    /// Who mounts them.
    pub host: &'a mut dyn ReadHost,
    /// The drives that they are mounted in.
    pub drives: DrivesAt<'a>,
    /// Blocks besides what is wanted, which are read on the way past them; then everything is read from front to back.
    pub between: Option<&'a mut BetweenBlocks>,
}

/// Where drives are.
#[derive(Clone, Copy)]
pub struct DrivesAt<'a>(pub(crate) DrivesWay<'a>);

#[derive(Clone, Copy)]
pub(crate) enum DrivesWay<'a> {
    Here(&'a MountedDrives),
    Elsewhere(&'a dyn ReadsElsewhere),
    /// Of several libraries.
    Several(&'a dyn ReadRoutes),
}

impl<'a> From<&'a MountedDrives> for DrivesAt<'a> {
    fn from(drives: &'a MountedDrives) -> Self {
        Self(DrivesWay::Here(drives))
    }
}

impl<'a> From<&'a dyn ReadRoutes> for DrivesAt<'a> {
    fn from(routes: &'a dyn ReadRoutes) -> Self {
        Self(DrivesWay::Several(routes))
    }
}

/// What is to be read, and whoever is told meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct ToRead<'a> {
    pub(crate) wanted: &'a Wanted,
    pub(crate) plan: &'a ReadPlan,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) meters: &'a ReadMeters,
}

/// Calls what it is given with where pieces go, in the thread that it is called in.
pub(crate) type WithFeeds<'a> = dyn Fn(&mut dyn FnMut(&mut dyn Feeds)) + Sync + 'a;

/// A read that was begun, to be gone on with until all is read. What it met; `None` where whoever reads is gone.
pub(crate) type RunRead<'a> = Box<dyn FnOnce(&mut dyn ReadHost) -> Option<ReadReport> + Send + 'a>;

/// Counters of a verification.
#[derive(Clone, Copy)]
pub(crate) struct VerifyCounters<'a> {
    pub(crate) members: &'a AtomicU64,
    pub(crate) bytes: &'a AtomicU64,
    pub(crate) taken: &'a AtomicU64,
}

/// What a verification elsewhere gave.
#[derive(Debug, Default)]
pub(crate) struct VerifiedElsewhere {
    pub(crate) read: ReadReport,
    pub(crate) failed: Vec<FailedMember>,
    /// Why it was not gone on with.
    pub(crate) broken: Option<String>,
}

/// A mover elsewhere, as whoever reads sees it.
pub(crate) trait ReadsElsewhere: Send + Sync {
    /// Reads, and hands on in this process what is read.
    fn read(&self, what: ToRead<'_>, host: &mut dyn ReadHost, with_feeds: &WithFeeds<'_>) -> ReadReport;

    /// Has checksums compared there.
    fn verify(
        &self,
        what: ToRead<'_>,
        host: &mut dyn ReadHost,
        between: Option<&mut BetweenBlocks>,
        counters: VerifyCounters<'_>,
    ) -> VerifiedElsewhere;

    /// Has what is read sent to a client; with what that client comes for it.
    fn send<'a>(
        &'a self,
        what: ToRead<'a>,
        client: &str,
        throttle: Throttle,
    ) -> Result<(ExpectedStreams, RunRead<'a>), MoverError>;

    /// Has blocks of a mounted volume read that stand in front of `end_lbn`.
    fn read_between(
        &self,
        mount: MountId,
        place: &VolumePlace,
        between: &mut BetweenBlocks,
        end_lbn: u64,
    ) -> Result<(), MoverError>;
}

/// A mounted volume, and this read's part of its drive.
struct OpenVolume {
    mount: MountId,
    drive: DriveShare,
}

impl OpenVolume {
    /// Reads a block when it has its turn; none where it was told to stop before. Behind it the read wants `next`.
    fn read(
        &self,
        place: &VolumePlace,
        (lbn, next): (u64, Option<u64>),
        stop: &AtomicBool,
        read: impl FnOnce(&mut VolumeReader<'_>) -> Result<Piece, MoverError>,
    ) -> Option<Result<Piece, MoverError>> {
        self.drive.turn((lbn, next), stop, |drive, at| with_reader(place, drive, at, read))
    }
}

/// Reads with a drive that stands at a block.
fn with_reader<T>(
    place: &VolumePlace,
    drive: &mut dyn Drive,
    at: &mut Option<u64>,
    read: impl FnOnce(&mut VolumeReader<'_>) -> T,
) -> T {
    let mut reader = VolumeReader::new(drive, place.volser.clone(), place.volume).standing_at(*at);
    let done = read(&mut reader);
    *at = reader.stands_at();
    done
}

/// What a read of this process mounts its volumes with.
pub(crate) struct AccessHere<'a> {
    pub(crate) host: &'a mut dyn ReadHost,
    pub(crate) drives: &'a MountedDrives,
    pub(crate) between: Option<&'a mut BetweenBlocks>,
}

impl AccessHere<'_> {
    fn open(&mut self, place: &VolumePlace) -> Result<OpenVolume, String> {
        let mount = self.host.mount(place).map_err(|error| with_causes(error.as_ref()))?;
        match self.drives.share(mount) {
            Ok(drive) => Ok(OpenVolume { mount, drive }),
            Err(error) => {
                self.host.release(mount, place);
                Err(with_causes(&error))
            }
        }
    }

    fn close(&mut self, volume: OpenVolume, place: &VolumePlace) {
        self.drives.end_share(volume.mount, volume.drive);
        self.host.release(volume.mount, place);
    }

    /// In which order to read stretches of an open volume.
    fn order(&mut self, volume: &OpenVolume, place: &VolumePlace, stretches: &[Stretch]) -> Vec<usize> {
        let in_position = (0..stretches.len()).collect();
        // With others, what the drive passes is read for whoever wants it.
        if self.between.is_some() || stretches.len() < 2 || volume.drive.has_others() {
            return in_position;
        }
        let Some(filled) = self.host.filled(place) else { return in_position };
        let chosen = volume.drive.between_turns(|drive, at| {
            *at = None;
            choose(drive, &place.volser, filled, stretches)
        });
        let Chosen { order, told, notice } = chosen;
        self.host.ordered(&told, notice);
        order_or_position(order, stretches.len())
    }
}

/// What reading met.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ReadReport {
    /// Blocks read.
    pub blocks: u64,
    /// Bytes of the streams in them.
    pub plain_bytes: u64,
    /// Blocks that were damaged in one copy and came from another.
    pub recovered: Vec<Damage>,
    /// Blocks that no copy gives.
    pub lost: Vec<Damage>,
    /// How many blocks were recovered, listed or not.
    pub recovered_count: u64,
    /// How many were lost, listed or not.
    pub lost_count: u64,
    /// All blocks that the medium was at fault for, whether or not another copy gave them.
    pub bad: Vec<BadBlocks>,
    /// Volumes whose mover could not be asked for them.
    #[serde(skip)]
    pub out_of_reach: Vec<Volser>,
}

impl ReadReport {
    /// Takes in what another part of the same read met.
    pub(crate) fn add(&mut self, part: Self) {
        self.blocks += part.blocks;
        self.plain_bytes += part.plain_bytes;
        let room = |kept: &Vec<Damage>| DAMAGES_MAX.saturating_sub(kept.len());
        self.recovered.extend(part.recovered.into_iter().take(room(&self.recovered)));
        part.lost.into_iter().for_each(|damage| self.keep_lost(damage));
        self.recovered_count += part.recovered_count;
        self.lost_count += part.lost_count;
        self.bad.extend(part.bad);
        self.out_of_reach.extend(part.out_of_reach);
    }

    /// Keeps a block that no copy gives, as long as there is room. The first of each volume that the medium is not at
    /// fault for always has some: whoever has all of a volume read must not take it for read.
    fn keep_lost(&mut self, damage: Damage) {
        let says_it = |kept: &Damage| !kept.of_medium && kept.volser == damage.volser;
        // The last ones first: those that are kept beyond the bound stand there.
        let is_said = || damage.of_medium || self.lost.iter().rev().any(says_it);
        if self.lost.len() < DAMAGES_MAX || !is_said() {
            self.lost.push(damage);
        }
    }
}

/// Executes a plan. `consume` runs on one of several threads for each stream and reads the stream's members in order.
/// Once `stop` is set nothing more is read. `meters` tell meanwhile who waits for whom.
pub fn read_streams(
    wanted: &Wanted,
    plan: &ReadPlan,
    access: VolumeAccess<'_>,
    (stop, meters): (&AtomicBool, &ReadMeters),
    consume: &(dyn Fn(usize, &mut StreamReader<'_>) + Sync),
) -> ReadReport {
    let VolumeAccess { host, drives, between } = access;
    let queue_len = queue_len(open_at_once(plan).max(1));
    match drives.0 {
        DrivesWay::Here(drives) => std::thread::scope(|scope| {
            let crew = Crew::new(scope, wanted, consume, queue_len, gaps_of(wanted, plan));
            let access = AccessHere { host, drives, between };
            read_into(wanted, plan, access, (stop, meters), &mut CrewFeeds { crew, feeds: HashMap::new() })
        }),
        DrivesWay::Elsewhere(far) => {
            // What no copy holds is said by whoever reads.
            let with_feeds = |work: &mut dyn FnMut(&mut dyn Feeds)| {
                std::thread::scope(|scope| {
                    let crew = Crew::new(scope, wanted, consume, queue_len, HashMap::new());
                    work(&mut CrewFeeds { crew, feeds: HashMap::new() });
                });
            };
            far.read(ToRead { wanted, plan, stop, meters }, host, &with_feeds)
        }
        DrivesWay::Several(routes) => {
            several::read(routes, ToRead { wanted, plan, stop, meters }, (host, between), consume)
        }
    }
}

/// Reads what is left of some blocks of a mounted volume in front of `end_lbn`, with nothing else.
///
/// # Errors
/// [`MoverError::NotMounted`]; or the mover is gone.
pub fn read_between(
    drives: DrivesAt<'_>,
    mount: MountId,
    place: &VolumePlace,
    between: &mut BetweenBlocks,
    end_lbn: u64,
) -> Result<(), MoverError> {
    match drives.0 {
        DrivesWay::Here(drives) => {
            let mut drive = drives.take(mount)?;
            between.read_up_to(&mut VolumeReader::new(drive.as_mut(), place.volser.clone(), place.volume), end_lbn);
            drives.give_back(mount, drive);
            Ok(())
        }
        DrivesWay::Elsewhere(far) => far.read_between(mount, place, between, end_lbn),
        DrivesWay::Several(routes) => {
            read_between(routes.drives(routes.library_of(place)), mount, place, between, end_lbn)
        }
    }
}

/// Executes a plan, and hands on what is read as it is read.
pub(crate) fn read_into(
    wanted: &Wanted,
    plan: &ReadPlan,
    access: AccessHere<'_>,
    (stop, meters): (&AtomicBool, &ReadMeters),
    feeds: &mut dyn Feeds,
) -> ReadReport {
    let pool = pool_for(wanted, open_at_once(plan));
    // A stream's last run tells when its thread may go on with another; the most streams open at once bound the
    // buffers.
    let mut runs_left: HashMap<usize, usize> = HashMap::new();
    for run in plan.passes.iter().flat_map(|pass| &pass.runs) {
        *runs_left.entry(run.stream).or_default() += 1;
    }
    let at_drive = AtDrive::begin(meters);
    for stream in feeds.without_blocks(&runs_left) {
        feeds.start(stream, 0);
        feeds.end(stream);
    }
    let (report, open) = (ReadReport::default(), HashSet::new());
    let mut reading = Reading { wanted, access, stop, pool, at_drive, feeds, open, runs_left, other: None, report };
    // A volume stays in its drive while the next pass is over it, too.
    let mut mounted = None;
    for pass in &plan.passes {
        if !reading.feeds.are_taken() {
            break;
        }
        let source = reading.mounted(pass.volume, &mut mounted);
        reading.pass(pass, source);
    }
    if let Some((volume, Ok(open))) = mounted {
        reading.access.close(open, &wanted.volumes[volume]);
    }
    reading.close_other();
    reading.report
}

/// The buffers of a read of which so many streams are open at once.
pub(crate) fn pool_for(wanted: &Wanted, open: usize) -> BlockPool {
    let open = open.max(1);
    let chunk_len = wanted.streams.iter().map(|stream| stream.chunk_len as usize).max().unwrap_or(0);
    let buffers = (open * (queue_len(open) + 1)).min(256) + SPARE_BUFFERS;
    BlockPool::new(buffers, chunk_len.min(BLOCK_LEN_MAX))
}

/// Where the pieces of streams go, in the order in which they are read.
pub(crate) trait Feeds {
    /// Streams of which nothing is read, and whose consumers are told why.
    fn without_blocks(&self, runs: &HashMap<usize, usize>) -> Vec<usize>;

    /// Starts a stream while so many others are open.
    fn start(&mut self, stream: usize, open: usize);

    /// Hands a piece on, or gives it back if that has to be waited for.
    fn try_send(&mut self, stream: usize, piece: Piece) -> Option<Piece>;

    /// Hands a piece on.
    fn send(&mut self, stream: usize, piece: Piece);

    /// Nothing more comes of a stream.
    fn end(&mut self, stream: usize);

    /// Whether anybody takes what is read.
    fn are_taken(&self) -> bool {
        true
    }
}

/// Threads of this process take the streams.
pub(crate) struct CrewFeeds<'scope, 'env> {
    pub(crate) crew: Crew<'scope, 'env>,
    /// Where pieces of the streams go that are open.
    pub(crate) feeds: HashMap<usize, Sender<Piece>>,
}

impl Feeds for CrewFeeds<'_, '_> {
    fn without_blocks(&self, runs: &HashMap<usize, usize>) -> Vec<usize> {
        self.crew.without_blocks(runs)
    }

    fn start(&mut self, stream: usize, open: usize) {
        let feed = self.crew.start(stream, open);
        self.feeds.insert(stream, feed);
    }

    fn try_send(&mut self, stream: usize, piece: Piece) -> Option<Piece> {
        // A consumer that gave up early does not want the rest.
        match self.feeds.get_mut(&stream)?.try_send(piece) {
            Err(Refused::Full(piece)) => Some(piece),
            Ok(()) | Err(Refused::Gone(_)) => None,
        }
    }

    fn send(&mut self, stream: usize, piece: Piece) {
        if let Some(feed) = self.feeds.get_mut(&stream) {
            let _ = feed.send(piece);
        }
    }

    fn end(&mut self, stream: usize) {
        self.feeds.remove(&stream);
    }
}

/// A volume by its index, open, or why it could not be mounted.
type Source = (usize, Result<OpenVolume, String>);

/// A run of [`read_streams`]. Dropped with it, the drive's time ends: what threads still do with what they were given
/// is not the drive's.
struct Reading<'a, 'v> {
    wanted: &'a Wanted,
    access: AccessHere<'v>,
    stop: &'a AtomicBool,
    pool: BlockPool,
    at_drive: AtDrive<'a>,
    feeds: &'a mut dyn Feeds,
    /// Streams that are open.
    open: HashSet<usize>,
    /// Runs of each stream that were not read yet.
    runs_left: HashMap<usize, usize>,
    /// The volume of another copy that stands in for a damaged one; it stays mounted until another is needed.
    other: Option<(usize, OpenVolume)>,
    report: ReadReport,
}

impl Reading<'_, '_> {
    /// The volume of a pass, mounted in place of the one before it.
    fn mounted<'m>(&mut self, volume: usize, mounted: &'m mut Option<Source>) -> &'m mut Result<OpenVolume, String> {
        if mounted.as_ref().is_none_or(|(before, _)| *before != volume) {
            if let Some((before, Ok(open))) = mounted.take() {
                self.access.close(open, &self.wanted.volumes[before]);
            }
            // It may be in a drive already, standing in for another copy.
            if self.other.as_ref().is_some_and(|(other, _)| *other == volume) {
                self.close_other();
            }
        }
        let place = &self.wanted.volumes[volume];
        let (_, source) = mounted.get_or_insert_with(|| (volume, self.access.open(place)));
        source
    }

    /// Reads what a pass wants of a volume, or says of all of it why the volume could not be mounted.
    fn pass(&mut self, pass: &Pass, source: &mut Result<OpenVolume, String>) {
        let place = &self.wanted.volumes[pass.volume];
        let (stretches, runs_of) = stretches(&pass.runs);
        let order = match source {
            Ok(open) => self.access.order(open, place, &stretches),
            Err(_) => (0..stretches.len()).collect(),
        };
        let mut left = VecDeque::from(order);
        let mut is_by_position = false;
        while let Some(stretch) = left.pop_front() {
            let runs = &pass.runs[runs_of[stretch].clone()];
            // Since others have come, the drive goes forward.
            if let (false, Ok(open), Some(last)) = (is_by_position, &source, runs.last())
                && left.len() > 1
                && open.drive.has_others()
            {
                let place = |stretch: &usize| pass.runs[runs_of[*stretch].start].lbn;
                left.make_contiguous().sort_by_key(|stretch| (place(stretch) < last.lbn, place(stretch)));
                is_by_position = true;
            }
            let behind = left.front().map(|stretch| pass.runs[runs_of[*stretch].start].lbn);
            self.stretch(pass.volume, runs, source, behind);
        }
    }

    /// Reads runs of a volume that follow each other; behind them the pass wants the block `behind`.
    fn stretch(&mut self, volume: usize, runs: &[Run], source: &Result<OpenVolume, String>, behind: Option<u64>) {
        let place = &self.wanted.volumes[volume];
        for (run, next) in runs.iter().zip(runs.iter().skip(1).map(|next| Some(next.lbn)).chain([behind])) {
            if let (Ok(open), Some(between)) = (&source, &mut self.access.between) {
                open.drive.between_turns(|drive, at| {
                    with_reader(place, drive, at, |reader| between.read_up_to(reader, run.lbn));
                });
            }
            self.run(run, volume, source, next);
        }
    }

    /// Reads a run of blocks and hands them to the thread of their stream.
    fn run(&mut self, run: &Run, volume: usize, source: &Result<OpenVolume, String>, behind: Option<u64>) {
        let stream = &self.wanted.streams[run.stream];
        let open = self.open.len();
        if self.open.insert(run.stream) {
            self.at_drive.waits(|| self.feeds.start(run.stream, open));
        }
        for index in 0..u64::from(run.blocks) {
            if self.stop.load(Ordering::Relaxed) || !self.feeds.are_taken() {
                break;
            }
            let offset = run.offset + index * u64::from(stream.chunk_len);
            let end = (offset + u64::from(stream.chunk_len)).min(run.offset + run.plain_len);
            let lbn = run.lbn + index;
            let next = if index + 1 < u64::from(run.blocks) { Some(lbn + 1) } else { behind };
            let Some(piece) = self.piece(stream, run, volume, (lbn, next), offset..end, source) else { break };
            if let Piece::Block { plain_len, .. } = &piece {
                self.report.plain_bytes += *plain_len as u64;
            }
            if let Some(piece) = self.feeds.try_send(run.stream, piece) {
                self.at_drive.waits(|| self.feeds.send(run.stream, piece));
            }
        }
        if let Some(left) = self.runs_left.get_mut(&run.stream) {
            *left -= 1;
            if *left == 0 {
                self.open.remove(&run.stream);
                self.feeds.end(run.stream);
            }
        }
    }

    /// One block of a stream: from the volume that was planned, or from another copy; none where it is told to stop.
    fn piece(
        &mut self,
        stream: &WantedStream,
        run: &Run,
        volume: usize,
        (lbn, next): (u64, Option<u64>),
        range: Range<u64>,
        source: &Result<OpenVolume, String>,
    ) -> Option<Piece> {
        let buffer = self.pool.try_take().unwrap_or_else(|| self.at_drive.waits(|| self.pool.take()));
        let place = &self.wanted.volumes[volume];
        let read = match source {
            Ok(open) => open
                .read(place, (lbn, next), self.stop, |reader| {
                    read_piece(reader, lbn, stream, (run.connection, run.base), range.start, buffer)
                })?
                .map_err(|error| (with_causes(&error), Some(lbn), error.blames_medium())),
            Err(reason) => Err((reason.clone(), None, false)),
        };
        self.report.blocks += 1;
        Some(read.unwrap_or_else(|(reason, lbn, of_medium)| {
            if let Some(lbn) = lbn.filter(|_| of_medium) {
                add_bad_block(&mut self.report.bad, place, lbn, &reason);
            }
            let (volser, object) = (place.volser.clone(), stream.object);
            let (connection, offset) = (run.connection, range.start);
            let damage = Damage { volser, lbn, object, connection, offset, reason, of_medium };
            self.recover(stream, range, volume, damage)
        }))
    }

    /// A block that could not be read, from another copy.
    fn recover(&mut self, stream: &WantedStream, range: Range<u64>, failed: usize, damage: Damage) -> Piece {
        let covers = |extent: &&ExtentPlace| {
            extent.volume != failed && extent.offset <= range.start && range.start < extent.offset + extent.plain_len
        };
        let mut why = damage.to_string();
        for extent in stream.extents.iter().filter(covers) {
            let place = &self.wanted.volumes[extent.volume];
            if self.other.as_ref().is_none_or(|(volume, _)| *volume != extent.volume) {
                self.close_other();
                match self.access.open(place) {
                    Ok(open) => self.other = Some((extent.volume, open)),
                    Err(reason) => {
                        why = format!("{why}; volume {} cannot be mounted: {reason}", place.volser);
                        continue;
                    }
                }
            }
            let Some((_, open)) = &self.other else { continue };
            let index = (range.start - extent.offset) / u64::from(stream.chunk_len.max(1));
            let (lbn, offset) = (extent.first_lbn + index, extent.offset + index * u64::from(stream.chunk_len));
            let streams_part = (extent.connection, extent.base);
            let buffer = self.pool.take();
            // Damage rarely comes alone, but where the next is nobody knows.
            let read = open.read(place, (lbn, None), self.stop, |reader| {
                read_piece(reader, lbn, stream, streams_part, offset, buffer)
            });
            let Some(read) = read else { break };
            match read {
                Ok(piece) => {
                    self.report.recovered_count += 1;
                    if self.report.recovered.len() < DAMAGES_MAX {
                        self.report.recovered.push(damage);
                    }
                    return piece;
                }
                Err(error) => {
                    let reason = with_causes(&error);
                    if error.blames_medium() {
                        add_bad_block(&mut self.report.bad, place, lbn, &reason);
                    }
                    why = format!("{why}; {reason}");
                }
            }
        }
        self.report.lost_count += 1;
        self.report.keep_lost(damage);
        Piece::Gap((range, why.into()))
    }

    fn close_other(&mut self) {
        if let Some((volume, open)) = self.other.take() {
            self.access.close(open, &self.wanted.volumes[volume]);
        }
    }
}

/// What no copy holds, by stream.
pub(crate) fn gaps_of(wanted: &Wanted, plan: &ReadPlan) -> HashMap<usize, Vec<Gap>> {
    let mut gaps: HashMap<usize, Vec<Gap>> = HashMap::new();
    for (stream, range) in &plan.missing {
        let object = wanted.streams[*stream].object;
        let damage =
            format!("bytes {} to {} of object {object} are on no volume in the library", range.start, range.end);
        gaps.entry(*stream).or_default().push((range.clone(), damage.into()));
    }
    gaps
}

fn read_piece(
    reader: &mut VolumeReader<'_>,
    lbn: u64,
    stream: &WantedStream,
    (connection, base): (u16, u64),
    offset: u64,
    mut buffer: Buffer,
) -> Result<Piece, MoverError> {
    let header = reader.read_into(lbn, &mut buffer)?;
    let belongs = header.kind == BlockKind::Data
        && header.object == stream.object
        && header.connection == connection
        && base + header.offset == offset
        && header.plain_len <= stream.chunk_len;
    if !belongs {
        let reason = format!(
            "it belongs to object {}, connection {}, offset {}, not to object {}, connection {}, offset {}",
            header.object,
            header.connection,
            header.offset,
            stream.object,
            connection,
            offset - base
        );
        return Err(MoverError::Misplaced { volser: reader.volser().clone(), lbn, reason });
    }
    let (plain_len, stored_len) = (header.plain_len as usize, header.stored_len as usize);
    Ok(Piece::Block { offset, plain_len, stored_len, compression: header.compression, buffer })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::ObjectId;

    use super::*;

    fn lost(volume: &str, lbn: u64, of_medium: bool) -> Damage {
        let (volser, object) = (Volser::new(volume).unwrap(), ObjectId([1; 16]));
        Damage { volser, lbn: Some(lbn), object, connection: 0, offset: 0, reason: String::new(), of_medium }
    }

    fn others(report: &ReadReport) -> Vec<(&str, Option<u64>)> {
        let others = report.lost.iter().filter(|damage| !damage.of_medium);
        others.map(|damage| (damage.volser.as_str(), damage.lbn)).collect()
    }

    /// A drive failed behind more bad blocks than are kept. A verification found only faults of the medium in the list,
    /// took the whole volume for read, and took damage off the record that nobody had looked at.
    #[test]
    fn what_was_not_read_is_said_however_many_blocks_are_bad() {
        let mut report = ReadReport::default();
        let bad = DAMAGES_MAX as u64 + 5;
        (0..bad).for_each(|lbn| report.keep_lost(lost("A00001", lbn, true)));
        assert_eq!(report.lost.len(), DAMAGES_MAX);
        for lbn in bad..bad + 5 {
            report.keep_lost(lost("A00001", lbn, false));
            report.keep_lost(lost("A00002", lbn, false));
        }
        assert_eq!(others(&report), [("A00001", Some(bad)), ("A00002", Some(bad))]);
        assert_eq!(report.lost.len(), DAMAGES_MAX + 2, "the list keeps its bound");

        // So it is with what several parts of a read met.
        let mut whole = ReadReport::default();
        (0..bad).for_each(|lbn| whole.keep_lost(lost("A00003", lbn, true)));
        whole.add(report);
        assert_eq!(others(&whole), [("A00001", Some(bad)), ("A00002", Some(bad))]);
    }
}
