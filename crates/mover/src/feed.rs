//! Executing a read plan: one reader goes over the volumes, each stream's blocks go to a thread that has no other at
//! the time.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_format::{BlockKind, ObjectId, Volser, VolumeId};
use capstan_tape::{Drive, with_causes};

use crate::crew::{Crew, queue_len};
use crate::meters::{AtDrive, ReadMeters};
use crate::pool::{BlockPool, Buffer};
use crate::queue::{Refused, Sender};
use crate::read::{ReadPlan, VolumePlace, Wanted, WantedStream};
use crate::stream::{Gap, Piece, StreamReader};
use crate::stretch::{Stretch, open_at_once, order_or_position, stretches};
use crate::volume::{BLOCK_LEN_MAX, VolumeReader};
use crate::{HostError, MoverError};

/// Blocks in flight over all streams beyond their queues.
const SPARE_BUFFERS: usize = 8;
/// Most damages that are kept with their places; beyond that they are counted.
const DAMAGES_MAX: usize = 10_000;
/// Most ranges of bad blocks that are kept; beyond that the last one of the volume grows over what is between.
const BAD_RANGES_MAX: usize = 10_000;

/// Mounts volumes for reading.
pub trait ReadHost {
    /// Mounts a volume whose label says what `place` says, key loaded.
    fn mount(&mut self, place: &VolumePlace) -> Result<Box<dyn Drive>, HostError>;

    /// In which order to read these stretches of the volume in the drive: their places in the list, which is front to
    /// back. An order that leaves something out, or names it twice, is none, and the list's is taken.
    fn order(&mut self, drive: &mut dyn Drive, place: &VolumePlace, stretches: &[Stretch]) -> Vec<usize> {
        let _ = (drive, place);
        (0..stretches.len()).collect()
    }

    /// Called before a run of blocks is read, which begins at `lbn`: for whoever reads what stands in front of it on
    /// the way.
    fn on_the_way(&mut self, reader: &mut VolumeReader<'_>, lbn: u64) {
        let _ = (reader, lbn);
    }

    /// Takes the drive back.
    fn release(&mut self, drive: Box<dyn Drive>, place: &VolumePlace);
}

/// A block, or a run of blocks, that could not be read from one copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The volume.
    pub volser: Volser,
    /// The block; `None` where the whole volume could not be mounted.
    pub lbn: Option<u64>,
    /// The object it belongs to.
    pub object: ObjectId,
    /// The connection.
    pub connection: u16,
    /// Offset of the block in the stream.
    pub offset: u64,
    /// What was wrong.
    pub reason: String,
    /// Whether the medium is at fault. A key that is not there, or a drive that does not answer, says nothing of what
    /// is written.
    pub of_medium: bool,
}

/// Consecutive blocks of a volume that are written badly, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadBlocks {
    /// The volume.
    pub volser: Volser,
    /// Its life.
    pub volume: VolumeId,
    /// The first.
    pub first_lbn: u64,
    /// How many.
    pub blocks: u64,
    /// What is wrong with the first.
    pub reason: String,
}

/// Adds a block to ranges of bad blocks, in bounded room and leaving none out.
pub fn add_bad_block(bad: &mut Vec<BadBlocks>, place: &VolumePlace, lbn: u64, reason: &str) {
    let full = bad.len() >= BAD_RANGES_MAX;
    if let Some(last) = bad.iter_mut().rev().find(|last| last.volser == place.volser && last.volume == place.volume) {
        let end = last.first_lbn + last.blocks;
        if (last.first_lbn..end).contains(&lbn) {
            return;
        }
        if lbn == end || full && lbn > end {
            last.blocks = lbn + 1 - last.first_lbn;
            return;
        }
        if full && lbn < last.first_lbn {
            (last.first_lbn, last.blocks) = (lbn, end - lbn);
            return;
        }
    }
    let (volser, volume) = (place.volser.clone(), place.volume);
    bad.push(BadBlocks { volser, volume, first_lbn: lbn, blocks: 1, reason: reason.to_owned() });
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lbn {
            Some(_) => f.write_str(&self.reason),
            None => write!(f, "volume {} cannot be mounted: {}", self.volser, self.reason),
        }
    }
}

/// What reading met.
#[derive(Debug, Default)]
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
}

/// A volume by its index, and the drive that it is in, or why it could not be mounted.
type InDrive = (usize, Result<Box<dyn Drive>, String>);

/// Executes a plan. `consume` runs on one of several threads for each stream and reads the stream's members in order.
/// Once `stop` is set nothing more is read. `meters` tell meanwhile who waits for whom.
pub fn read_streams(
    wanted: &Wanted,
    plan: &ReadPlan,
    host: &mut dyn ReadHost,
    (stop, meters): (&AtomicBool, &ReadMeters),
    consume: &(dyn Fn(usize, &mut StreamReader<'_>) + Sync),
) -> ReadReport {
    let chunk_len = wanted.streams.iter().map(|stream| stream.chunk_len as usize).max().unwrap_or(0);
    let chunk_len = chunk_len.min(BLOCK_LEN_MAX);
    // A stream's last run tells when its thread may go on with another; the most streams open at once bound the
    // buffers.
    let mut runs_left: HashMap<usize, usize> = HashMap::new();
    for run in plan.passes.iter().flat_map(|pass| &pass.runs) {
        *runs_left.entry(run.stream).or_default() += 1;
    }
    let open = open_at_once(plan).max(1);
    let queue_len = queue_len(open);
    let buffers = (open * (queue_len + 1)).min(256) + SPARE_BUFFERS;
    let pool = BlockPool::new(buffers, chunk_len);
    let mut report = ReadReport::default();
    let mut at_drive = AtDrive::begin(meters);
    std::thread::scope(|scope| {
        let mut crew = Crew::new(scope, wanted, consume, queue_len, gaps_of(wanted, plan));
        for stream in crew.without_blocks(&runs_left) {
            drop(crew.start(stream, 0));
        }
        let mut feeds: HashMap<usize, Sender<Piece>> = HashMap::new();
        let mut other = OtherCopy { wanted, open: None };
        // A volume stays in its drive while the next pass is over it, too.
        let mut mounted: Option<InDrive> = None;
        for pass in &plan.passes {
            let place = &wanted.volumes[pass.volume];
            if mounted.as_ref().is_none_or(|(volume, _)| *volume != pass.volume) {
                if let Some((volume, Ok(drive))) = mounted.take() {
                    host.release(drive, &wanted.volumes[volume]);
                }
                // It may be in a drive already, standing in for another copy.
                other.close_if(pass.volume, host);
                mounted = Some((pass.volume, host.mount(place).map_err(|error| with_causes(error.as_ref()))));
            }
            let Some((_, source)) = &mut mounted else { continue };
            let (stretches, runs_of) = stretches(&pass.runs);
            let order = match source {
                Ok(drive) if stretches.len() > 1 => {
                    order_or_position(host.order(drive.as_mut(), place, &stretches), stretches.len())
                }
                _ => (0..stretches.len()).collect(),
            };
            let mut reader =
                source.as_mut().map(|drive| VolumeReader::new(drive.as_mut(), place.volser.clone(), place.volume));
            for run in order.iter().flat_map(|&stretch| &pass.runs[runs_of[stretch].clone()]) {
                let open = feeds.len();
                let feed = feeds.entry(run.stream).or_insert_with(|| at_drive.waits(|| crew.start(run.stream, open)));
                if let Ok(reader) = &mut reader {
                    host.on_the_way(reader, run.lbn);
                }
                let stream = &wanted.streams[run.stream];
                for index in 0..u64::from(run.blocks) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (lbn, offset) = (run.lbn + index, run.offset + index * u64::from(stream.chunk_len));
                    let end = (offset + u64::from(stream.chunk_len)).min(run.offset + run.plain_len);
                    let buffer = pool.try_take().unwrap_or_else(|| at_drive.waits(|| pool.take()));
                    let read = match &mut reader {
                        Ok(reader) => read_piece(reader, lbn, stream, (run.connection, run.base), offset, buffer)
                            .map_err(|e| (with_causes(&e), Some(lbn), e.blames_medium())),
                        Err(reason) => Err((reason.clone(), None, false)),
                    };
                    report.blocks += 1;
                    let piece = read.unwrap_or_else(|(reason, lbn, of_medium)| {
                        let (object, connection) = (stream.object, run.connection);
                        let volser = place.volser.clone();
                        if let Some(lbn) = lbn.filter(|_| of_medium) {
                            add_bad_block(&mut report.bad, place, lbn, &reason);
                        }
                        let damage = Damage { volser, lbn, object, connection, offset, reason, of_medium };
                        other.recover(host, stream, offset..end, pass.volume, damage, &pool, &mut report)
                    });
                    if let Piece::Block { plain_len, .. } = &piece {
                        report.plain_bytes += *plain_len as u64;
                    }
                    // A consumer that gave up early does not want the rest.
                    if let Err(Refused::Full(piece)) = feed.try_send(piece) {
                        let _ = at_drive.waits(|| feed.send(piece));
                    }
                }
                if let Some(left) = runs_left.get_mut(&run.stream) {
                    *left -= 1;
                    if *left == 0 {
                        feeds.remove(&run.stream);
                    }
                }
            }
        }
        if let Some((volume, Ok(drive))) = mounted {
            host.release(drive, &wanted.volumes[volume]);
        }
        other.close(host);
        // What threads still do with what they were given is not the drive's time.
        drop(at_drive);
    });
    report
}

/// What no copy holds, by stream.
fn gaps_of(wanted: &Wanted, plan: &ReadPlan) -> HashMap<usize, Vec<Gap>> {
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

/// The volume of another copy that stands in for a damaged one; it stays mounted until another is needed.
struct OtherCopy<'a> {
    wanted: &'a Wanted,
    open: Option<(usize, Box<dyn Drive>)>,
}

impl OtherCopy<'_> {
    #[expect(clippy::too_many_arguments, reason = "one step of the read loop, kept out of it for its length")]
    fn recover(
        &mut self,
        host: &mut dyn ReadHost,
        stream: &WantedStream,
        range: Range<u64>,
        failed: usize,
        damage: Damage,
        pool: &BlockPool,
        report: &mut ReadReport,
    ) -> Piece {
        let covers = |extent: &&crate::ExtentPlace| {
            extent.volume != failed && extent.offset <= range.start && range.start < extent.offset + extent.plain_len
        };
        let mut why = damage.to_string();
        for extent in stream.extents.iter().filter(covers) {
            let place = &self.wanted.volumes[extent.volume];
            if self.open.as_ref().is_none_or(|(volume, _)| *volume != extent.volume) {
                self.close(host);
                match host.mount(place) {
                    Ok(drive) => self.open = Some((extent.volume, drive)),
                    Err(error) => {
                        why = format!(
                            "{why}; volume {} cannot be mounted: {}",
                            place.volser,
                            with_causes(error.as_ref())
                        );
                        continue;
                    }
                }
            }
            let Some((_, drive)) = &mut self.open else { continue };
            let mut reader = VolumeReader::new(drive.as_mut(), place.volser.clone(), place.volume);
            let index = (range.start - extent.offset) / u64::from(stream.chunk_len.max(1));
            let offset = extent.offset + index * u64::from(stream.chunk_len);
            let buffer = pool.take();
            match read_piece(
                &mut reader,
                extent.first_lbn + index,
                stream,
                (extent.connection, extent.base),
                offset,
                buffer,
            ) {
                Ok(piece) => {
                    report.recovered_count += 1;
                    if report.recovered.len() < DAMAGES_MAX {
                        report.recovered.push(damage);
                    }
                    return piece;
                }
                Err(error) => {
                    let reason = with_causes(&error);
                    if error.blames_medium() {
                        add_bad_block(&mut report.bad, place, extent.first_lbn + index, &reason);
                    }
                    why = format!("{why}; {reason}");
                }
            }
        }
        report.lost_count += 1;
        if report.lost.len() < DAMAGES_MAX {
            report.lost.push(damage);
        }
        Piece::Gap((range, why.into()))
    }

    fn close_if(&mut self, volume: usize, host: &mut dyn ReadHost) {
        if self.open.as_ref().is_some_and(|(open, _)| *open == volume) {
            self.close(host);
        }
    }

    fn close(&mut self, host: &mut dyn ReadHost) {
        if let Some((volume, drive)) = self.open.take() {
            host.release(drive, &self.wanted.volumes[volume]);
        }
    }
}
