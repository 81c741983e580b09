//! A connection: one source's stream, cut into chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_format::{BLOCK_HEADER_LEN, FileEntry, ObjectId};

use crate::block::{Block, Chunk, ChunkPlace};
use crate::control::Controls;
use crate::pack::Packer;
use crate::pool::{BlockPool, Buffer};
use crate::throttle::{SLEEPS_MAX, Throttle};
use crate::{Stopped, StoredBlock, StreamSink};

/// The sink that a source writes one connection's stream to.
///
/// Dropping it without [`Connection::finish`] leaves the object open: what was handed on stays, the rest is not
/// reported.
pub struct Connection {
    stream: u64,
    object: ObjectId,
    number: u16,
    first_sequence: u32,
    pool: BlockPool,
    way: Way,
    /// Who interleaves its blocks with others, if anybody does here.
    controls: Option<Controls>,
    stop: Arc<AtomicBool>,
    throttle: Option<Arc<Throttle>>,
    /// Whoever sends its blocks to a mover elsewhere.
    sending: Option<Box<dyn StreamSending>>,
    is_finished: bool,
    buffer: Option<Buffer>,
    filled: usize,
    sequence: u32,
    /// Offset of the current chunk.
    offset: u64,
    valid_len: u64,
    entries: Vec<FileEntry>,
    /// The last block that was handed over as it is: it may be the connection's last.
    passed: Option<StoredBlock>,
    takes_fragments: bool,
}

/// Sends the blocks of a connection to a mover elsewhere. Where it is dropped, what was not sent will not be.
pub(crate) trait StreamSending: Send {
    /// Waits until the mover has all of them.
    fn wait(self: Box<Self>) -> Result<(), Stopped>;
}

/// Whoever expects a stream, for whom it may be over before it is for the source. What packs its chunks is theirs, and
/// they see to the stream's end, however the connection ends.
pub(crate) trait StreamGate: Send + Sync {
    /// Packs the next chunk and hands it on, unless the stream is over.
    fn pass(&self, chunk: Chunk, stop: &AtomicBool) -> Result<(), Stopped>;
}

/// Where chunks go.
enum Way {
    Packed(Packer),
    Through(Arc<dyn StreamGate>),
}

/// What ends with a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// Nothing.
    None,
    /// A run of chunks; other blocks of the connection may stand elsewhere.
    Run,
    /// The connection.
    Connection,
}

impl Connection {
    pub(crate) fn new(
        stream: (u64, ObjectId, u16),
        pool: BlockPool,
        packer: Packer,
        controls: Option<Controls>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let mut connection = Self::on_its_way(stream, pool, Way::Packed(packer), stop);
        connection.controls = controls;
        connection
    }

    /// One whose chunks go to whoever expects its stream.
    pub(crate) fn through(
        gate: Arc<dyn StreamGate>,
        stream: (u64, ObjectId, u16),
        pool: BlockPool,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self::on_its_way(stream, pool, Way::Through(gate), stop)
    }

    fn on_its_way(
        (stream, object, number): (u64, ObjectId, u16),
        pool: BlockPool,
        way: Way,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            stream,
            object,
            number,
            first_sequence: 0,
            pool,
            way,
            controls: None,
            stop,
            throttle: None,
            sending: None,
            is_finished: false,
            buffer: None,
            filled: 0,
            sequence: 0,
            offset: 0,
            valid_len: 0,
            entries: Vec::new(),
            passed: None,
            takes_fragments: true,
        }
    }

    /// For a mover that may be of an older version.
    pub(crate) fn taking_fragments(mut self, takes_fragments: bool) -> Self {
        self.takes_fragments = takes_fragments;
        self
    }

    /// Goes on with a stream where earlier blocks of it end, for a copy that lacks what comes then.
    pub(crate) fn starting_at(mut self, sequence: u32, offset: u64) -> Self {
        self.first_sequence = sequence;
        self.sequence = sequence;
        self.offset = offset;
        self
    }

    pub(crate) fn throttled(mut self, throttle: Option<Arc<Throttle>>) -> Self {
        self.throttle = throttle;
        self
    }

    pub(crate) fn sent_by(mut self, sending: Box<dyn StreamSending>) -> Self {
        self.sending = Some(sending);
        self
    }

    /// Hands on what is left; more of the stream may stand on the volumes already.
    ///
    /// # Errors
    /// The session was stopped, or no copy is left that writes.
    pub fn finish_range(mut self) -> Result<(), Stopped> {
        self.hand_on(Edge::Run)?;
        self.wait_until_sent()
    }

    /// Hands on what is left as the connection's last block. A connection always has one, even if it is empty.
    ///
    /// # Errors
    /// The session was stopped, or no copy is left that writes.
    pub fn finish(mut self) -> Result<(), Stopped> {
        self.hand_on(Edge::Connection)?;
        self.wait_until_sent()
    }

    fn wait_until_sent(&mut self) -> Result<(), Stopped> {
        self.sending.take().map_or(Ok(()), StreamSending::wait)
    }

    /// Hands on a chunk that is not full, so that a slow source's data does not wait for a checkpoint.
    ///
    /// # Errors
    /// The session was stopped, or no copy is left that writes.
    pub fn flush(&mut self) -> Result<(), Stopped> {
        if self.filled > 0 || self.passed.is_some() || !self.entries.is_empty() {
            self.hand_on(Edge::None)
        } else {
            Ok(())
        }
    }

    /// Whether a block may be handed on as it was read: the stream is cut there, and whoever packs is here. `is_end`
    /// says that nothing follows it; others have to be full.
    pub fn passes(&self, block: &StoredBlock, is_end: bool) -> bool {
        let chunk_len = self.pool.chunk_len();
        let is_at_edge = self.filled == 0 || self.filled == chunk_len;
        let has_len = block.plain_len == chunk_len || is_end && block.plain_len < chunk_len;
        let has_room = block.buffer.len() == BLOCK_HEADER_LEN + chunk_len;
        matches!(self.way, Way::Packed(_)) && is_at_edge && has_len && has_room
    }

    /// Hands on a block as it was read, which goes on where the stream ends, with the entries that it brings.
    /// `valid_len` is where the last member ends that ends in it, if one does.
    ///
    /// # Errors
    /// The session was stopped, or no copy is left that writes.
    pub fn pass_on(
        &mut self,
        mut block: StoredBlock,
        entries: impl IntoIterator<Item = FileEntry>,
        valid_len: Option<u64>,
    ) -> Result<(), Stopped> {
        if self.filled > 0 || self.passed.is_some() {
            self.hand_on(Edge::None)?;
        }
        // Whoever reads has few buffers, and the session as many as the drive is to be fed from.
        let mut own = match self.buffer.take() {
            Some(own) => own,
            None => self.pool.take_unless(&self.stop).ok_or(Stopped)?,
        };
        own.exchange(&mut block.buffer);
        block.buffer = own;
        self.entries.extend(entries);
        self.valid_len = valid_len.unwrap_or(self.valid_len);
        self.passed = Some(block);
        Ok(())
    }

    fn hand_on(&mut self, edge: Edge) -> Result<(), Stopped> {
        if edge == Edge::Connection {
            // A member that goes on in the next connection is reported there: this stream is whole all the same.
            self.valid_len = self.position();
        }
        let passed = self.passed.take();
        self.filled = passed.as_ref().map_or(self.filled, |passed| passed.plain_len);
        let (buffer, stored) = match (passed, self.buffer.take()) {
            (Some(passed), _) => (passed.buffer, Some((passed.compression, passed.stored_len))),
            (None, Some(buffer)) => (buffer, None),
            (None, None) => (self.pool.take_unless(&self.stop).ok_or(Stopped)?, None),
        };
        let place = ChunkPlace {
            stream: self.stream,
            first_sequence: self.first_sequence,
            closes: edge != Edge::None,
            object: self.object,
            connection: self.number,
            sequence: self.sequence,
            offset: self.offset,
            plain_len: self.filled as u32,
            last: edge == Edge::Connection,
            valid_len: self.valid_len,
        };
        let taken = self.filled as u64;
        self.sequence = self.sequence.checked_add(1).expect("a connection has fewer than 2^32 blocks");
        self.offset += self.filled as u64;
        self.filled = 0;
        let entries = std::mem::take(&mut self.entries);
        let handed = match (&mut self.way, stored) {
            (Way::Packed(packer), Some((compression, stored_len))) => {
                let stored_len = stored_len as u32;
                packer.hand_on_packed(Block { place, buffer, compression, stored_len, entries, _held: None })
            }
            (Way::Packed(packer), None) => packer.hand_on(Chunk { place, buffer, entries }, &self.stop),
            (Way::Through(gate), _) => gate.pass(Chunk { place, buffer, entries }, &self.stop),
        };
        match handed {
            Ok(()) => {
                self.is_finished = edge != Edge::None;
                self.pay(taken)?;
            }
            // It will not come.
            Err(_) => self.sequence -= 1,
        }
        handed
    }

    /// Waits as long as the job's bound wants after so many bytes.
    fn pay(&self, taken: u64) -> Result<(), Stopped> {
        let Some(throttle) = &self.throttle else { return Ok(()) };
        throttle.took(taken);
        // The last one of a stream holds nobody up.
        while let Some(wait) = throttle.wait().filter(|_| !self.is_finished) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stopped);
            }
            std::thread::sleep(wait.min(SLEEPS_MAX));
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let (false, Some(controls)) = (self.is_finished, &self.controls) {
            controls.cut(self.stream, self.object, self.first_sequence, self.sequence);
        }
    }
}

impl StreamSink for Connection {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        if self.filled == self.pool.chunk_len() || self.passed.is_some() {
            self.hand_on(Edge::None)?;
        }
        if self.buffer.is_none() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stopped);
            }
            self.buffer = Some(self.pool.take_unless(&self.stop).ok_or(Stopped)?);
        }
        let buffer = self.buffer.as_mut().ok_or(Stopped)?;
        Ok(&mut buffer[BLOCK_HEADER_LEN + self.filled..])
    }

    fn advance(&mut self, len: usize) {
        self.filled += len;
        assert!(self.filled <= self.pool.chunk_len(), "a source took more of a chunk than there was");
    }

    fn position(&self) -> u64 {
        let passed = self.passed.as_ref().map_or(0, |passed| passed.plain_len);
        self.offset + (self.filled + passed) as u64
    }

    fn connection(&self) -> u16 {
        self.number
    }

    fn takes_fragments(&self) -> bool {
        self.takes_fragments
    }

    fn left_of_chunk(&self) -> usize {
        if self.buffer.is_some() { self.pool.chunk_len() - self.filled } else { 0 }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn member(&mut self, entry: FileEntry) {
        self.valid_len = self.position();
        self.entries.push(entry);
    }
}
