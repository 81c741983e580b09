//! Executing a read plan: one reader goes over the volumes, each stream's blocks go to a thread of that stream.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_format::{BLOCK_HEADER_LEN, BlockKind, Compression, ObjectId, Volser};
use capstan_tape::Drive;
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::pool::{BlockPool, Buffer};
use crate::read::{ReadPlan, VolumePlace, Wanted, WantedMember, WantedStream};
use crate::volume::{BLOCK_LEN_MAX, VolumeReader};
use crate::{HostError, MoverError};

/// Blocks that may wait for a stream's thread.
const STREAM_QUEUE: usize = 4;
/// Blocks in flight over all streams beyond their queues.
const SPARE_BUFFERS: usize = 8;
/// Most damages that are kept with their places; beyond that they are counted.
const DAMAGES_MAX: usize = 10_000;

/// Mounts volumes for reading.
pub trait ReadHost {
    /// Mounts a volume whose label says what `place` says, key loaded.
    fn mount(&mut self, place: &VolumePlace) -> Result<Box<dyn Drive>, HostError>;

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
}

/// A volume by its index, and the drive that it is in, or why it could not be mounted.
type InDrive = (usize, Result<Box<dyn Drive>, String>);

enum Piece {
    Block { offset: u64, plain_len: usize, stored_len: usize, compression: Compression, buffer: Buffer },
    Gap { range: Range<u64>, damage: Arc<str> },
}

/// Executes a plan. `consume` runs on a thread of its own for each stream and reads the stream's members in order. Once `stop`
/// is set nothing more is read.
pub fn read_streams(
    wanted: &Wanted,
    plan: &ReadPlan,
    host: &mut dyn ReadHost,
    stop: &AtomicBool,
    consume: &(dyn Fn(usize, &mut StreamReader<'_>) + Sync),
) -> ReadReport {
    let chunk_len = wanted.streams.iter().map(|stream| stream.chunk_len as usize).max().unwrap_or(0);
    let chunk_len = chunk_len.min(BLOCK_LEN_MAX);
    // A stream's last run tells when its thread may end; the most streams open at once bound the buffers.
    let mut runs_left: HashMap<usize, usize> = HashMap::new();
    for run in plan.passes.iter().flat_map(|pass| &pass.runs) {
        *runs_left.entry(run.stream).or_default() += 1;
    }
    let buffers = (runs_left.len().max(1) * (STREAM_QUEUE + 1)).min(256) + SPARE_BUFFERS;
    let pool = BlockPool::new(buffers, chunk_len);
    let mut report = ReadReport::default();
    std::thread::scope(|scope| {
        let mut feeds: HashMap<usize, Sender<Piece>> = HashMap::new();
        let start = |stream: usize| {
            let (sender, pieces) = bounded(STREAM_QUEUE);
            let plan_of = &wanted.streams[stream];
            scope.spawn(move || {
                let mut reader = StreamReader::new(plan_of, pieces);
                consume(stream, &mut reader);
            });
            sender
        };
        for (stream, range) in &plan.missing {
            let object = wanted.streams[*stream].object;
            let damage =
                format!("bytes {} to {} of object {object} are on no volume in the library", range.start, range.end);
            let feed = feeds.entry(*stream).or_insert_with(|| start(*stream));
            let _ = feed.send(Piece::Gap { range: range.clone(), damage: damage.into() });
        }
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
                mounted = Some((pass.volume, host.mount(place).map_err(|error| chain(error.as_ref()))));
            }
            let Some((_, source)) = &mut mounted else { continue };
            {
                let mut reader =
                    source.as_mut().map(|drive| VolumeReader::new(drive.as_mut(), place.volser.clone(), place.volume));
                for run in &pass.runs {
                    let feed = feeds.entry(run.stream).or_insert_with(|| start(run.stream));
                    let stream = &wanted.streams[run.stream];
                    for index in 0..u64::from(run.blocks) {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let (lbn, offset) = (run.lbn + index, run.offset + index * u64::from(stream.chunk_len));
                        let end = (offset + u64::from(stream.chunk_len)).min(run.offset + run.plain_len);
                        let buffer = pool.take();
                        let read = match &mut reader {
                            Ok(reader) => read_piece(reader, lbn, stream, (run.connection, run.base), offset, buffer)
                                .map_err(|e| (chain(&e), Some(lbn))),
                            Err(reason) => Err((reason.clone(), None)),
                        };
                        report.blocks += 1;
                        let piece = read.unwrap_or_else(|(reason, lbn)| {
                            let (object, connection) = (stream.object, run.connection);
                            let volser = place.volser.clone();
                            let damage = Damage { volser, lbn, object, connection, offset, reason };
                            other.recover(host, stream, offset..end, pass.volume, damage, &pool, &mut report)
                        });
                        if let Piece::Block { plain_len, .. } = &piece {
                            report.plain_bytes += *plain_len as u64;
                        }
                        // A consumer that gave up early does not want the rest.
                        let _ = feed.send(piece);
                    }
                    if let Some(left) = runs_left.get_mut(&run.stream) {
                        *left -= 1;
                        if *left == 0 {
                            feeds.remove(&run.stream);
                        }
                    }
                }
            }
        }
        if let Some((volume, Ok(drive))) = mounted {
            host.release(drive, &wanted.volumes[volume]);
        }
        other.close(host);
    });
    report
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
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
                        why = format!("{why}; volume {} cannot be mounted: {}", place.volser, chain(error.as_ref()));
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
                Err(error) => why = format!("{why}; {}", chain(&error)),
            }
        }
        report.lost_count += 1;
        if report.lost.len() < DAMAGES_MAX {
            report.lost.push(damage);
        }
        Piece::Gap { range, damage: why.into() }
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

/// One stream's bytes, member by member.
pub struct StreamReader<'a> {
    plan: &'a WantedStream,
    pieces: Receiver<Piece>,
    plain: Vec<u8>,
    /// Offset of `plain` in the stream.
    plain_offset: u64,
    gaps: Vec<(Range<u64>, Arc<str>)>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl<'a> StreamReader<'a> {
    fn new(plan: &'a WantedStream, pieces: Receiver<Piece>) -> Self {
        Self { plan, pieces, plain: Vec::new(), plain_offset: 0, gaps: Vec::new(), decompressor: None }
    }

    /// The members that are wanted, in order.
    pub fn members(&self) -> &'a [WantedMember] {
        &self.plan.members
    }

    /// The bytes of a range of the stream. Ranges must be taken in order; what is not read of one is passed over.
    pub fn range<'r>(&'r mut self, range: Range<u64>) -> RangeBytes<'r, 'a> {
        RangeBytes { at: range.start, end: range.end, reader: self }
    }

    /// The plain bytes from `at` on, as many as are at hand.
    fn bytes_at(&mut self, at: u64) -> io::Result<&[u8]> {
        loop {
            let end = self.plain_offset + self.plain.len() as u64;
            if self.plain_offset <= at && at < end {
                return Ok(&self.plain[(at - self.plain_offset) as usize..]);
            }
            self.gaps.retain(|(range, _)| range.end > at);
            if let Some((_, damage)) = self.gaps.iter().find(|(range, _)| range.contains(&at)) {
                return Err(io::Error::other(damage.to_string()));
            }
            let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "reading stopped before this point");
            match self.pieces.recv().map_err(|_| ended())? {
                Piece::Gap { range, damage } => self.gaps.push((range, damage)),
                Piece::Block { offset, plain_len, stored_len, compression, buffer } => {
                    let stored = &buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + stored_len];
                    self.plain_offset = offset;
                    self.plain.clear();
                    match compression {
                        Compression::None => self.plain.extend_from_slice(stored),
                        Compression::Zstd => {
                            let decompressor = match &mut self.decompressor {
                                Some(decompressor) => decompressor,
                                none => none.insert(zstd::bulk::Decompressor::new()?),
                            };
                            self.plain.reserve(plain_len);
                            decompressor.decompress_to_buffer(stored, &mut self.plain)?;
                        }
                    }
                    if self.plain.len() != plain_len {
                        return Err(io::Error::other("a block holds more or less than its header says"));
                    }
                }
            }
        }
    }
}

/// The bytes of a range of a stream, as a reader.
pub struct RangeBytes<'r, 'a> {
    reader: &'r mut StreamReader<'a>,
    at: u64,
    end: u64,
}

impl BufRead for RangeBytes<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.end {
            return Ok(&[]);
        }
        let left = (self.end - self.at).try_into().unwrap_or(usize::MAX);
        let bytes = self.reader.bytes_at(self.at)?;
        Ok(&bytes[..bytes.len().min(left)])
    }

    fn consume(&mut self, len: usize) {
        self.at += len as u64;
    }
}

impl Read for RangeBytes<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        self.consume(len);
        Ok(len)
    }
}
