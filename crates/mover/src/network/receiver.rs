//! The mover's end of a block connection: what comes in is checked, and put into the session.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use capstan_format::{BLOCK_HEADER_LEN, Compression, EntryDecoder, FileEntry, ObjectId};

use super::frame::{BlockHead, Grant, Head, nonsense};
use super::{NetworkStream, SPEAKS_EVERY};
use crate::block::{Block, Chunk, ChunkPlace};
use crate::blocks_in::BlocksIn;
use crate::connection::StreamGate;
use crate::intake::{SetIn, StreamStart};
use crate::pack::Packer;
use crate::pool::Buffer;
use crate::{Connection, Stopped};

/// Bytes that a client may have under way on one connection.
const WINDOW_BYTES: usize = 16 << 20;
/// How often a client hears that it is waited for by the job's own bound.
const THROTTLED_SPEAKS_EVERY: Duration = Duration::from_millis(500);
/// Longest frame of packed entries.
const ENTRIES_LEN_MAX: u32 = 4 << 20;
/// Bytes of the entries that may end in one block, unpacked. All paths that are gone since the base of an incremental
/// end in one: two millions of the usual length.
pub(super) const ENTRIES_BYTES_MAX: usize = 512 << 20;
/// Longest stream that is believed.
const STREAM_LEN_MAX: u64 = 1 << 60;
/// Bytes of an entry beside its path.
const ENTRY_BYTES: usize = 128;

/// What an entry takes in memory.
pub(super) fn entry_bytes(entry: &FileEntry) -> usize {
    ENTRY_BYTES + entry.path.len() + entry.link.len()
}

/// One connection of an object, as far as it has come.
pub(super) struct BlockReceiver {
    object: ObjectId,
    start: StreamStart,
    /// Whether it may end in front of its last block, because that stands on the volume already.
    may_end_early: bool,
    stream: u64,
    session: BlocksIn,
    state: Mutex<Received>,
}

struct Received {
    /// Which block connection feeds it: an older one gives way.
    link: u64,
    /// The sequence of the next block: how many have come, counted from the first of all.
    blocks: u32,
    offset: u64,
    valid_len: u64,
    /// Whether the last block is here.
    is_whole: bool,
    /// Whether the reading is over, however it ended.
    is_over: bool,
    reserved: Vec<Reserved>,
    granted: u32,
    /// Packs what a client in this process reads; none once its stream is over, or a network connection has come.
    packer: Option<Packer>,
    /// Whether a client in this process brings the stream.
    is_brought: bool,
}

/// A free block that is kept for what is on its way.
struct Reserved {
    buffer: Buffer,
    _counted: Counted,
}

/// One of the blocks that all connections of the session have reserved, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a block connection ended.
#[derive(Debug)]
pub(super) enum LinkEnd {
    /// All of the stream is here.
    Whole,
    /// Another connection has taken over, or the reading is over.
    Replaced,
    /// The session takes no more.
    Stopped,
}

impl BlockReceiver {
    pub(super) fn new(set: &SetIn, object: ObjectId, start: StreamStart, may_end_early: bool) -> Self {
        let (session, packer) = (set.blocks.clone(), Some(set.packer.share()));
        let stream = session.open_received(object);
        let state = Mutex::new(Received {
            link: 0,
            blocks: start.sequence,
            offset: start.offset,
            valid_len: 0,
            is_whole: false,
            is_over: false,
            reserved: Vec::new(),
            granted: 0,
            packer,
            is_brought: false,
        });
        Self { object, start, may_end_early, stream, session, state }
    }

    fn state(&self) -> MutexGuard<'_, Received> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reading is over: whatever still comes is not wanted.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.reserved.clear();
        // The session waits for its packers.
        state.packer = None;
        if !std::mem::replace(&mut state.is_over, true) {
            let cut_at = (!state.is_whole).then_some(state.blocks);
            self.session.close_received(self.stream, self.object, self.start.sequence, cut_at);
        }
    }

    fn reserve(&self, buffer: Buffer) -> Reserved {
        self.session.reserved.fetch_add(1, Ordering::Relaxed);
        Reserved { buffer, _counted: Counted(Arc::clone(&self.session.reserved)) }
    }

    /// Whether one more free block is reserved. Half of the pool is for what is on its way, whatever others do, and
    /// each connection has its share of that. Two blocks each may have in any case.
    fn reserves_more(&self, own: usize) -> bool {
        let (open, buffers) = (self.session.receivers.load(Ordering::Relaxed).max(1), self.session.pool.buffers());
        let window = (WINDOW_BYTES / self.session.pool.chunk_len()).max(2);
        let share = (buffers / (2 * open)).clamp(2, window);
        own < 2 || own < share && self.session.reserved.load(Ordering::Relaxed) < buffers / 2
    }

    /// Whether the last block is here.
    pub(super) fn is_whole(&self) -> bool {
        self.state().is_whole
    }

    /// The stream as a connection of this process, which this stops; none where another one has come, or it is over.
    pub(super) fn connection_here(self: &Arc<Self>, stop: &Arc<AtomicBool>) -> Option<Connection> {
        let mut state = self.state();
        if state.packer.is_none() || std::mem::replace(&mut state.is_brought, true) {
            return None;
        }
        let (blocks, start) = (&self.session, self.start);
        let stream = (self.stream, self.object, start.connection);
        let gate = Arc::clone(self) as Arc<dyn StreamGate>;
        let connection = Connection::through(gate, stream, blocks.pool.clone(), Arc::clone(stop));
        Some(connection.starting_at(start.sequence, start.offset).throttled(blocks.throttle.clone()))
    }

    /// Takes in what comes over a connection, until all is here or the connection ends.
    pub(super) fn receive(&self, link: &mut dyn NetworkStream) -> io::Result<LinkEnd> {
        let number = {
            let mut state = self.state();
            if state.is_brought {
                return Ok(LinkEnd::Replaced);
            }
            state.packer = None;
            state.link += 1;
            state.link
        };
        let (mut entries, mut entries_bytes) = (Vec::new(), 0);
        loop {
            let stops = self.session.stop.load(Ordering::Relaxed);
            match self.credit(number) {
                Some(_) if stops => {
                    Grant::Stop.write(link)?;
                    return Ok(LinkEnd::Stopped);
                }
                Some((grant, has_free)) => {
                    grant.write(link)?;
                    if self.state().is_whole {
                        return Ok(LinkEnd::Whole);
                    }
                    if let Some(wait) = self.session.throttle.as_ref().and_then(|throttle| throttle.wait()) {
                        thread::sleep(wait.min(THROTTLED_SPEAKS_EVERY));
                        continue;
                    }
                    if !has_free {
                        // Nothing is read that there is no room for.
                        if let Some(buffer) = self.session.pool.take_within(SPEAKS_EVERY) {
                            let reserved = self.reserve(buffer);
                            self.state().reserved.push(reserved);
                        }
                        continue;
                    }
                }
                None => return Ok(LinkEnd::Replaced),
            }
            match Head::read(link)? {
                Head::StillHere => {}
                Head::Entries { sequence, len } => {
                    self.take_entries(link, sequence, len, &mut entries, &mut entries_bytes)?;
                }
                Head::Block(head) => {
                    entries_bytes = 0;
                    let taken = self.take_block(link, number, head, std::mem::take(&mut entries))?;
                    match taken {
                        Taken::Handed => {}
                        Taken::NotWanted => return Ok(LinkEnd::Replaced),
                        Taken::Stopped => {
                            Grant::Stop.write(link)?;
                            return Ok(LinkEnd::Stopped);
                        }
                    }
                }
            }
        }
    }

    /// Reserves what is free, up to its share; what the client is to be told, and whether a block may come. None where
    /// this connection is not the one that feeds the stream any more.
    fn credit(&self, link: u64) -> Option<(Grant, bool)> {
        let mut state = self.state();
        if state.link != link || state.is_over {
            return None;
        }
        while !state.is_whole && self.reserves_more(state.reserved.len()) {
            let Some(buffer) = self.session.pool.try_take() else { break };
            state.reserved.push(self.reserve(buffer));
        }
        let free = u32::try_from(state.reserved.len()).unwrap_or(u32::MAX);
        state.granted = state.granted.max(state.blocks.saturating_add(free));
        Some((Grant::Takes { received: state.blocks, granted: state.granted }, free > 0))
    }

    fn take_entries(
        &self,
        link: &mut dyn NetworkStream,
        sequence: u32,
        len: u32,
        entries: &mut Vec<FileEntry>,
        bytes: &mut usize,
    ) -> io::Result<()> {
        if len > ENTRIES_LEN_MAX || sequence != self.state().blocks {
            return Err(nonsense("entries came that belong to no block"));
        }
        let mut packed = vec![0; len as usize];
        link.read_exact(&mut packed)?;
        for entry in EntryDecoder::new(&packed) {
            let entry = entry.map_err(|error| nonsense(&format!("an entry is damaged: {error}")))?;
            // It is for this client alone: the catalog would refuse it with all that others have in the checkpoint.
            if let Some(fault) = entry.fault() {
                return Err(nonsense(&format!("an entry {fault}")));
            }
            *bytes += entry_bytes(&entry);
            let is_sound = entry.offset.checked_add(entry.member_len).is_some_and(|end| end <= STREAM_LEN_MAX);
            // A member that ends here may have begun in an earlier stream of the object.
            let is_own = match entry.fragment().map_err(|_| nonsense("a fragment is damaged"))? {
                Some(_) => entry.connection == self.start.connection,
                None => entry.connection <= self.start.connection,
            };
            if !is_own || *bytes > ENTRIES_BYTES_MAX || !is_sound {
                return Err(nonsense("an entry is of another connection, lies nowhere, or is one too many"));
            }
            entries.push(entry);
        }
        Ok(())
    }

    fn take_block(
        &self,
        link: &mut dyn NetworkStream,
        number: u64,
        head: BlockHead,
        entries: Vec<FileEntry>,
    ) -> io::Result<Taken> {
        let chunk_len = self.session.pool.chunk_len();
        let mut buffer = {
            let mut state = self.state();
            let end = head.offset.checked_add(u64::from(head.plain_len));
            let follows = head.sequence == state.blocks && head.offset == state.offset && !state.is_whole;
            let fits = head.plain_len as usize <= chunk_len && head.stored_len as usize <= chunk_len;
            let plain = head.compression != Compression::None || head.stored_len == head.plain_len;
            let within = end.is_some_and(|end| head.valid_len <= end && end <= STREAM_LEN_MAX);
            let valid = within && head.valid_len >= state.valid_len && (!head.last || Some(head.valid_len) == end);
            let ends = !head.closes || head.last || self.may_end_early;
            if !(follows && fits && plain && valid && ends) {
                return Err(nonsense("a block came that does not follow the one before"));
            }
            match state.reserved.pop() {
                Some(reserved) if state.link == number && !state.is_over => reserved.buffer,
                Some(_) => return Ok(Taken::NotWanted),
                None => return Err(nonsense("a block came that was not granted")),
            }
        };
        let read = link.read_exact(&mut buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + head.stored_len as usize]);
        let mut state = self.state();
        if state.link != number || state.is_over {
            return Ok(Taken::NotWanted);
        }
        if let Err(error) = read {
            state.reserved.push(self.reserve(buffer));
            return Err(error);
        }
        let place = ChunkPlace {
            stream: self.stream,
            first_sequence: self.start.sequence,
            closes: head.closes,
            object: self.object,
            connection: self.start.connection,
            sequence: head.sequence,
            offset: head.offset,
            plain_len: head.plain_len,
            last: head.last,
            valid_len: head.valid_len,
        };
        let (compression, stored_len) = (head.compression, head.stored_len);
        state.blocks += 1;
        state.offset += u64::from(head.plain_len);
        state.valid_len = head.valid_len;
        state.is_whole = head.closes;
        if state.is_whole {
            state.reserved.clear();
        }
        if let Some(throttle) = &self.session.throttle {
            throttle.took(u64::from(stored_len));
        }
        // While the stream is locked: no block of another connection may pass it.
        let handed = (self.session.out)(Block { place, buffer, compression, stored_len, entries });
        Ok(if handed.is_ok() { Taken::Handed } else { Taken::Stopped })
    }
}

impl StreamGate for BlockReceiver {
    fn pass(&self, chunk: Chunk, stop: &AtomicBool) -> Result<(), Stopped> {
        let wants_spare = self.state().packer.as_ref().ok_or(Stopped)?.wants_spare();
        // Outside of the lock: whoever ends the stream waits for no buffer.
        let spare = wants_spare.then(|| self.session.pool.take_unless(stop).ok_or(Stopped)).transpose()?;
        let closes = chunk.place.closes;
        let mut state = self.state();
        let stops = self.session.stop.load(Ordering::Relaxed);
        // Whoever ends the stream says in front of which block, and takes the packer away, for which the session waits.
        let packer = state.packer.as_mut().filter(|_| !stops).ok_or(Stopped)?;
        spare.map_or(Ok(()), |spare| packer.take_spare(spare))?;
        packer.hand_on(chunk, stop)?;
        state.blocks += 1;
        state.is_whole = closes;
        Ok(())
    }
}

enum Taken {
    Handed,
    NotWanted,
    Stopped,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use capstan_format::{EntryEncoder, EntryFlags, EntryKind};

    use super::*;
    use crate::StreamSink;
    use crate::control::{Control, Controls};
    use crate::pack::PackOptions;
    use crate::pool::BlockPool;
    use crate::queue::{Receiver, Sender, queue};

    /// A receiver, the blocks that it has handed on, and what it has said of its stream.
    fn receiver() -> (Arc<BlockReceiver>, Arc<Mutex<Vec<u32>>>, Receiver<Control>) {
        let (pool, handed) = (BlockPool::new(8, 1024), Arc::new(Mutex::new(Vec::new())));
        let (controls, said) = queue(usize::MAX);
        let to = Arc::clone(&handed);
        let out: crate::pack::PackedTo = Arc::new(move |block: Block| {
            to.lock().unwrap().push(block.place.sequence);
            Ok(())
        });
        let packer = Packer::storing(&pool, Arc::clone(&out));
        let set = SetIn { blocks: blocks_in(pool, out, controls), packer };
        (Arc::new(BlockReceiver::new(&set, ObjectId([1; 16]), StreamStart::whole(0), false)), handed, said)
    }

    fn blocks_in(pool: BlockPool, out: crate::pack::PackedTo, controls: Sender<Control>) -> BlocksIn {
        BlocksIn {
            pool,
            out,
            controls: Controls(controls),
            stop: Arc::default(),
            streams: Arc::default(),
            receivers: Arc::default(),
            reserved: Arc::default(),
            pack: PackOptions::Store,
            throttle: None,
        }
    }

    fn brought(receiver: &Arc<BlockReceiver>) -> Option<Connection> {
        receiver.connection_here(&Arc::default())
    }

    fn write(connection: &mut Connection) -> Result<(), Stopped> {
        connection.space()?;
        connection.advance(100);
        connection.flush()
    }

    /// The blocks in front of which streams were cut.
    fn cuts(mut said: Receiver<Control>) -> Vec<u32> {
        let cut = |control| if let Control::Cut { sequence, .. } = control { Some(sequence) } else { None };
        std::iter::from_fn(|| said.try_next()).filter_map(cut).collect()
    }

    #[test]
    fn what_a_source_here_hands_on_behind_the_end_of_its_stream_does_not_come() {
        let (receiver, handed, said) = receiver();
        let mut connection = brought(&receiver).unwrap();
        assert!(brought(&receiver).is_none(), "a stream is brought once");
        write(&mut connection).unwrap();
        write(&mut connection).unwrap();
        receiver.end();
        assert!(write(&mut connection).is_err());
        drop(connection);
        assert_eq!((handed.lock().unwrap().clone(), cuts(said), receiver.is_whole()), (vec![0, 1], vec![2], false));
    }

    #[test]
    fn a_stream_that_a_source_here_finishes_is_whole_and_one_that_it_drops_is_cut_once() {
        let (receiver, handed, said) = receiver();
        let mut connection = brought(&receiver).unwrap();
        write(&mut connection).unwrap();
        connection.finish().unwrap();
        receiver.end();
        assert_eq!((handed.lock().unwrap().clone(), cuts(said), receiver.is_whole()), (vec![0, 1], vec![], true));

        let (receiver, handed, said) = self::receiver();
        let mut connection = brought(&receiver).unwrap();
        write(&mut connection).unwrap();
        drop(connection);
        receiver.end();
        assert_eq!((handed.lock().unwrap().clone(), cuts(said), receiver.is_whole()), (vec![0], vec![1], false));
        assert!(brought(&receiver).is_none());

        // What stops its job stops the stream, though its reader was not told yet.
        let (receiver, handed, _) = self::receiver();
        let mut connection = brought(&receiver).unwrap();
        receiver.session.stop.store(true, Ordering::Relaxed);
        assert!(write(&mut connection).is_err() && handed.lock().unwrap().is_empty());
    }

    /// The catalog refused it with the whole checkpoint: every job of the session failed, and its volume was suspect.
    #[test]
    fn an_entry_that_a_catalog_would_refuse_ends_the_connection_that_brings_it() {
        let (receiver, _, _) = receiver();
        let taken = |path: &str, size: u64| {
            let entry = FileEntry {
                path: path.as_bytes().to_vec(),
                kind: EntryKind::File,
                flags: EntryFlags::default(),
                mode: 0o644,
                uid: 0,
                gid: 0,
                size,
                mtime_ns: 0,
                change: 0,
                crc: 0,
                connection: 0,
                offset: 0,
                member_len: 1024,
                link: Vec::new(),
            };
            let mut encoder = EntryEncoder::new();
            encoder.push(&entry);
            let packed = encoder.finish();
            let (mut near, mut far) = UnixStream::pair().unwrap();
            near.write_all(&packed).unwrap();
            let (mut entries, mut bytes) = (Vec::new(), 0);
            receiver
                .take_entries(&mut far, 0, packed.len() as u32, &mut entries, &mut bytes)
                .map(|()| entries.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(taken("home/ada/letter", 1 << 40), Ok(1));
        for path in ["", "/home", "home/", "a\0b"] {
            assert!(taken(path, 1).unwrap_err().contains("is no path of a member"), "{path:?}");
        }
        assert!(taken("home", 1 << 63).unwrap_err().contains("reaches further than any stream"));
    }

    /// A walk that meets nothing new, or a program that prints nothing, may last for hours.
    #[test]
    fn a_session_does_not_wait_for_a_source_here_whose_stream_is_over() {
        let pool = BlockPool::new(8, 1024);
        let out: crate::pack::PackedTo = Arc::new(|_: Block| Ok(()));
        let (packer, workers) =
            Packer::start(PackOptions::Zstd(1), 1, &pool, Arc::clone(&out), Arc::default()).unwrap();
        let (controls, _said) = queue(usize::MAX);
        let set = SetIn { blocks: blocks_in(pool, out, controls), packer };
        let receiver = Arc::new(BlockReceiver::new(&set, ObjectId([1; 16]), StreamStart::whole(0), false));
        drop(set);
        let mut connection = brought(&receiver).unwrap();
        write(&mut connection).unwrap();
        receiver.end();
        // With the source's connection still there.
        workers.join();
        assert!(write(&mut connection).is_err());
    }
}
