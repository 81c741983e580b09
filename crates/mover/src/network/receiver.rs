//! The mover's end of a stream's block links: what comes in is checked, brought in order, and put into the session.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use capstan_format::{BLOCK_HEADER_LEN, Compression, EntryDecoder, FileEntry, ObjectId};

use super::frame::{BlockHead, Grant, Head, OnLink, nonsense, protocol_fault};
use super::{NetworkStream, SPEAKS_EVERY};
use crate::block::{Block, Chunk, ChunkPlace};
use crate::blocks_in::BlocksIn;
use crate::connection::StreamGate;
use crate::entries_room::EntriesHeld;
use crate::intake::{SetIn, StreamStart};
use crate::pack::Packer;
use crate::pool::Buffer;
use crate::{Connection, Stopped};

/// Bytes that a client may have under way, for each link of a stream.
pub(super) const WINDOW_BYTES: usize = 16 << 20;
/// Links of one stream that are taken, by their numbers.
pub(super) const LINK_NUMBERS: u16 = 16;
/// How often a client hears that it is waited for by the job's own bound.
const THROTTLED_SPEAKS_EVERY: Duration = Duration::from_millis(500);
/// How long a block may take to come, with the entries in front of it: it holds what others may need.
const BLOCK_WITHIN: Duration = Duration::from_secs(600);
/// How often whoever waits for room looks whether it is still wanted.
const ROOM_LOOKS: Duration = Duration::from_millis(100);
/// Connections that were replaced and still have a buffer or entries. While a stream has more of them, it gets no
/// further link: its client may try again once they are over.
const REPLACED_MAX: usize = 2;
/// Longest frame of packed entries.
const ENTRIES_LEN_MAX: u32 = 2 << 20;
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
    /// Which connection each link is: an older one gives way.
    links: HashMap<u16, u64>,
    /// How many there have been.
    connections: u64,
    /// Connections whose blocks are being read, of those that are links.
    arriving: HashSet<u64>,
    /// Connections that have a buffer or entries of a block that is not here, whether they are links or not.
    holding: HashSet<u64>,
    /// Blocks that have come before one in front of them.
    early: BTreeMap<u32, (Reserved, BlockHead, Pending)>,
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
    /// What the client has done against the protocol.
    fault: Option<String>,
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

/// A connection that is one of the links of a stream.
#[derive(Clone, Copy)]
pub(super) struct LinkOf {
    /// Which of them.
    pub(super) number: u16,
    /// Whether there may be several, and each hears what it has brought.
    pub(super) of_several: bool,
}

/// A link that is connected now.
struct LinkHere {
    of: LinkOf,
    /// Which connection it is, of all that there have been.
    connection: u64,
    /// Frames that it has brought.
    answered: u32,
}

impl LinkHere {
    fn grant(&self, (received, granted): (u32, u32), says_more: bool, is_held_back: bool) -> Grant {
        let on_link = OnLink { answered: self.answered, says_more, is_held_back };
        Grant::Takes { received, granted, on_link: self.of.of_several.then_some(on_link) }
    }
}

/// Entries that have come before their block.
struct Pending {
    sequence: u32,
    entries: Vec<FileEntry>,
    bytes: usize,
    held: Option<EntriesHeld>,
    /// Until when the block must be here.
    until: Instant,
    /// When the mover last said that it is there.
    spoke: Instant,
}

impl Pending {
    fn new() -> Self {
        let now = Instant::now();
        Self { sequence: 0, entries: Vec::new(), bytes: 0, held: None, until: now + BLOCK_WITHIN, spoke: now }
    }
}

/// Why a block link ended.
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
            links: HashMap::new(),
            connections: 0,
            arriving: HashSet::new(),
            holding: HashSet::new(),
            early: BTreeMap::new(),
            blocks: start.sequence,
            offset: start.offset,
            valid_len: 0,
            is_whole: false,
            is_over: false,
            reserved: Vec::new(),
            granted: 0,
            fault: None,
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
        state.early.clear();
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
    fn reserves_more(&self, state: &Received) -> bool {
        let (open, buffers) = (self.session.receivers.load(Ordering::Relaxed).max(1), self.session.pool.buffers());
        let window = (WINDOW_BYTES / self.session.pool.chunk_len()).max(2) * state.links.len().max(1);
        let ahead = self.session.throttle.as_ref().and_then(|throttle| throttle.ahead());
        let of_rate = ahead.map_or(window, |bytes| bytes as usize / self.session.pool.chunk_len() / open);
        let own = state.on_their_way();
        let share = (buffers / (2 * open)).min(of_rate).clamp(2, window);
        own < 2 || own < share && self.session.reserved.load(Ordering::Relaxed) < buffers / 2
    }

    /// Whether the last block is here.
    pub(super) fn is_whole(&self) -> bool {
        self.state().is_whole
    }

    /// What the client has done against the protocol, if it has: it would do it again.
    pub(super) fn fault(&self) -> Option<String> {
        self.state().fault.clone()
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
    pub(super) fn receive(&self, link: &mut dyn NetworkStream, of: LinkOf) -> io::Result<LinkEnd> {
        let mut here = {
            let mut state = self.state();
            if state.is_brought {
                return Ok(LinkEnd::Replaced);
            }
            if state.replaced_and_holding() > REPLACED_MAX {
                // Not a refusal, behind which a client would not come again.
                return Err(io::Error::other("links of this stream that were replaced still hold blocks"));
            }
            state.packer = None;
            state.connections += 1;
            let here = LinkHere { of, connection: state.connections, answered: 0 };
            if let Some(before) = state.links.insert(of.number, here.connection) {
                // What it still reads is not waited for.
                state.arriving.remove(&before);
            }
            here
        };
        let ended = self.receive_as(link, &mut here);
        let mut state = self.state();
        state.holding.remove(&here.connection);
        if state.has(&here) {
            state.links.remove(&of.number);
            if let Some(fault) = ended.as_ref().err().and_then(protocol_fault) {
                state.fault = Some(fault.to_owned());
            }
        }
        drop(state);
        ended
    }

    fn receive_as(&self, link: &mut dyn NetworkStream, here: &mut LinkHere) -> io::Result<LinkEnd> {
        let mut pending = Pending::new();
        loop {
            let stops = self.session.stop.load(Ordering::Relaxed);
            let Some((credit, has_free)) = self.credit(here) else { return Ok(LinkEnd::Replaced) };
            if stops {
                Grant::Stop.write(link)?;
                return Ok(LinkEnd::Stopped);
            }
            let wait = self.session.throttle.as_ref().and_then(|throttle| throttle.wait());
            let is_whole = self.state().is_whole;
            let says_more = !is_whole && (wait.is_some() || !has_free);
            here.grant(credit, says_more, wait.is_some()).write(link)?;
            if is_whole {
                return Ok(LinkEnd::Whole);
            }
            if let Some(wait) = wait {
                thread::sleep(wait.min(THROTTLED_SPEAKS_EVERY));
                continue;
            }
            if !has_free {
                // Nothing is read that there is no room for.
                if let Some(buffer) = self.session.pool.take_within(SPEAKS_EVERY) {
                    self.state().keep(self.reserve(buffer));
                }
                continue;
            }
            let frame = Head::read(link)?;
            if pending.entries.is_empty() {
                // A source may have been silent for hours: the time of its next block begins now.
                pending = Pending::new();
            }
            match frame {
                Head::StillHere if pending.entries.is_empty() => {}
                // They take room that others may need.
                Head::StillHere => return Err(nonsense("entries came without their block")),
                Head::Entries { sequence, len } => {
                    self.take_entries(link, here, (sequence, len), &mut pending)?;
                }
                Head::Block(head) => {
                    match self.take_block(link, here, head, std::mem::replace(&mut pending, Pending::new()))? {
                        Taken::Handed => {}
                        Taken::NotWanted => return Ok(LinkEnd::Replaced),
                        Taken::Stopped => {
                            Grant::Stop.write(link)?;
                            return Ok(LinkEnd::Stopped);
                        }
                    }
                }
            }
            here.answered = here.answered.wrapping_add(1);
        }
    }

    /// Reserves what is free, up to its share; how many blocks are here, how many may be sent in all, and whether one
    /// may come. None where this connection is not the link any more.
    fn credit(&self, here: &LinkHere) -> Option<((u32, u32), bool)> {
        let mut state = self.state();
        if !state.has(here) || state.is_over {
            return None;
        }
        while !state.is_whole && self.reserves_more(&state) {
            let Some(buffer) = self.session.pool.try_take() else { break };
            state.reserved.push(self.reserve(buffer));
        }
        let ahead = u32::try_from(state.on_their_way()).unwrap_or(u32::MAX);
        state.granted = state.granted.max(state.blocks.saturating_add(ahead));
        // Another link may bring what there is a block for; this one then waits for its client.
        Some(((state.blocks, state.granted), state.on_their_way() > 0))
    }

    fn take_entries(
        &self,
        link: &mut dyn NetworkStream,
        here: &LinkHere,
        (sequence, len): (u32, u32),
        pending: &mut Pending,
    ) -> io::Result<()> {
        let is_of_one = pending.entries.is_empty() || pending.sequence == sequence;
        let (granted, is_here) = {
            let state = self.state();
            (state.granted, sequence < state.blocks || state.early.contains_key(&sequence))
        };
        if len > ENTRIES_LEN_MAX || !is_of_one || sequence >= granted {
            return Err(nonsense("entries came that belong to no block"));
        }
        if is_here {
            // As their block: they came over a link that broke before it could say so.
            return io::copy(&mut link.take(len.into()), &mut io::sink()).map(drop);
        }
        pending.sequence = sequence;
        self.state().holding.insert(here.connection);
        let mut packed = vec![0; len as usize];
        read_until(link, &mut packed, pending.until, &|| self.is_wanted(here))?;
        for entry in EntryDecoder::new(&packed) {
            let entry = entry.map_err(|error| nonsense(&format!("an entry is damaged: {error}")))?;
            // It is for this client alone: the catalog would refuse it with all that others have in the checkpoint.
            if let Some(fault) = entry.fault() {
                return Err(nonsense(&format!("an entry {fault}")));
            }
            pending.bytes += entry_bytes(&entry);
            let is_sound = entry.offset.checked_add(entry.member_len).is_some_and(|end| end <= STREAM_LEN_MAX);
            // A member that ends here may have begun in an earlier stream of the object.
            let is_own = match entry.fragment().map_err(|_| nonsense("a fragment is damaged"))? {
                Some(_) => entry.connection == self.start.connection,
                None => entry.connection <= self.start.connection,
            };
            if !is_own || pending.bytes > ENTRIES_BYTES_MAX || !is_sound {
                return Err(nonsense("an entry is of another connection, lies nowhere, or is one too many"));
            }
            self.find_room(link, here, pending)?;
            pending.entries.push(entry);
        }
        Ok(())
    }

    /// Waits until there is room for the entries of a block, and says meanwhile that the mover is there.
    fn find_room(&self, link: &mut dyn NetworkStream, here: &LinkHere, pending: &mut Pending) -> io::Result<()> {
        let held = pending.held.get_or_insert_with(|| self.session.entries.hold());
        loop {
            // The stream is not locked while this waits: the blocks in front go on.
            let is_next = pending.sequence == self.state().blocks;
            if held.grows_to(pending.bytes, is_next, ROOM_LOOKS) {
                return Ok(());
            }
            let state = self.state();
            let credit = (state.blocks, state.granted);
            if !state.has(here) || state.is_over || self.session.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("nobody waits for these entries any more"));
            }
            drop(state);
            if pending.spoke.elapsed() >= SPEAKS_EVERY {
                here.grant(credit, true, false).write(link)?;
                pending.spoke = Instant::now();
            }
        }
    }

    fn take_block(
        &self,
        link: &mut dyn NetworkStream,
        here: &LinkHere,
        head: BlockHead,
        pending: Pending,
    ) -> io::Result<Taken> {
        let chunk_len = self.session.pool.chunk_len();
        let fits = head.plain_len as usize <= chunk_len && head.stored_len as usize <= chunk_len;
        let plain = head.compression != Compression::None || head.stored_len == head.plain_len;
        let follows = pending.entries.is_empty() || pending.sequence == head.sequence;
        let ends = !head.closes || head.last || self.may_end_early;
        if !(fits && plain && follows && ends) {
            return Err(does_not_follow());
        }
        let stored_len = head.stored_len as usize;
        let reserved = {
            let mut state = self.state();
            if !state.has(here) || state.is_over {
                return Ok(Taken::NotWanted);
            }
            if head.sequence < state.blocks || state.early.contains_key(&head.sequence) {
                drop(state);
                // It came over a link that broke before it could say so.
                io::copy(&mut link.take(stored_len as u64), &mut io::sink())?;
                return Ok(Taken::Handed);
            }
            if head.sequence >= state.granted || state.is_whole {
                return Err(nonsense("a block came that was not granted"));
            }
            state.arriving.insert(here.connection);
            state.holding.insert(here.connection);
            state.reserved.pop()
        };
        // One that was granted may have been kept for a link that is gone, and still reads.
        let reserved = reserved.or_else(|| self.buffer_for(here));
        let read = reserved.map(|mut reserved| {
            let place = BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + stored_len;
            let read = read_until(link, &mut reserved.buffer[place], pending.until, &|| self.is_wanted(here));
            (reserved, read)
        });
        let mut state = self.state();
        state.arriving.remove(&here.connection);
        state.holding.remove(&here.connection);
        if !state.has(here) || state.is_over {
            return Ok(Taken::NotWanted);
        }
        let Some((reserved, read)) = read else { return Ok(Taken::Stopped) };
        if let Err(error) = read {
            // It was granted, and comes again over another connection.
            state.keep(reserved);
            return Err(error);
        }
        // Another link may have brought it meanwhile.
        if head.sequence >= state.blocks {
            state.early.insert(head.sequence, (reserved, head, pending));
        }
        if let Some(throttle) = &self.session.throttle {
            throttle.took(stored_len as u64);
        }
        self.hand_on(&mut state)
    }

    /// Whether what a connection brings is wanted still.
    fn is_wanted(&self, here: &LinkHere) -> bool {
        let state = self.state();
        state.has(here) && !state.is_over
    }

    /// A buffer from the pool, as long as the link is one and the session goes on.
    fn buffer_for(&self, here: &LinkHere) -> Option<Reserved> {
        loop {
            if let Some(buffer) = self.session.pool.take_within(ROOM_LOOKS) {
                return Some(self.reserve(buffer));
            }
            let state = self.state();
            if !state.has(here) || state.is_over || self.session.stop.load(Ordering::Relaxed) {
                return None;
            }
        }
    }

    /// Hands on what is next. While the stream is locked: no block of another link may pass it.
    fn hand_on(&self, state: &mut Received) -> io::Result<Taken> {
        while let Some((reserved, head, pending)) = state.early.remove(&{ state.blocks }) {
            let end = head.offset.checked_add(u64::from(head.plain_len));
            let within = end.is_some_and(|end| head.valid_len <= end && end <= STREAM_LEN_MAX);
            let valid = within && head.valid_len >= state.valid_len && (!head.last || Some(head.valid_len) == end);
            if head.offset != state.offset || !valid {
                return Err(does_not_follow());
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
            state.blocks += 1;
            state.offset += u64::from(head.plain_len);
            state.valid_len = head.valid_len;
            state.is_whole = head.closes;
            if state.is_whole {
                state.reserved.clear();
                state.early.clear();
            }
            let (buffer, compression, stored_len) = (reserved.buffer, head.compression, head.stored_len);
            let Pending { entries, held: _held, .. } = pending;
            if (self.session.out)(Block { place, buffer, compression, stored_len, entries, _held }).is_err() {
                return Ok(Taken::Stopped);
            }
        }
        Ok(Taken::Handed)
    }
}

impl Received {
    fn has(&self, here: &LinkHere) -> bool {
        self.links.get(&here.of.number) == Some(&here.connection)
    }

    /// Blocks that have not been handed on, and have a buffer: on their way, or here before one in front of them.
    fn on_their_way(&self) -> usize {
        self.reserved.len() + self.arriving.len() + self.early.len()
    }

    /// How many connections that are links no more have something of a block.
    fn replaced_and_holding(&self) -> usize {
        let is_link = |connection: &u64| self.links.values().any(|link| link == connection);
        self.holding.iter().filter(|connection| !is_link(connection)).count()
    }

    /// Keeps a free block for what is on its way, if anything is.
    fn keep(&mut self, reserved: Reserved) {
        if !self.is_whole && !self.is_over {
            self.reserved.push(reserved);
        }
    }
}

/// Reads all of it, however slowly it comes, but not for ever, and not if nobody wants it any more.
fn read_until(
    link: &mut dyn NetworkStream,
    mut into: &mut [u8],
    until: Instant,
    is_wanted: &dyn Fn() -> bool,
) -> io::Result<()> {
    while !into.is_empty() {
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if !is_wanted() {
            return Err(io::Error::other("nobody waits for this block any more"));
        }
        match link.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => into = &mut into[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn does_not_follow() -> io::Error {
    nonsense("a block came that does not follow the one before")
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
pub(super) mod tests;
