//! The client's end of a block connection: each block is kept until the mover has it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capstan_format::{BLOCK_HEADER_LEN, EntryEncoder};
use capstan_tape::with_causes;

use super::frame::{BlockHead, Grant, Head, nonsense};
use super::hello::connect;
use super::receiver::{ENTRIES_BYTES_MAX, entry_bytes};
use super::{Dial, JobToken, NetworkStream, Purpose, SILENT_MAX, SPEAKS_EVERY};
use crate::block::Block;
use crate::intake::StreamStart;
use crate::queue::{Nothing, Receiver};

/// Bytes of packed entries after which they are sent.
const ENTRIES_LEN: usize = 1 << 20;
/// How long a connection that broke is opened again.
const TRIES_FOR: Duration = Duration::from_secs(120);
/// How long after the first failure.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Sends the blocks of one connection.
pub(crate) struct BlockSender<'a> {
    pub(crate) dial: &'a dyn Dial,
    /// The job's token, and what names this process.
    pub(crate) token: (&'a JobToken, &'a JobToken),
    pub(crate) reading: u64,
    pub(crate) start: StreamStart,
    pub(crate) blocks: Receiver<Block>,
    /// Set where the mover takes no more.
    pub(crate) stop: &'a AtomicBool,
}

/// Where a stream is.
#[derive(Default)]
struct Sending {
    /// Blocks that were packed before the one in front of them.
    early: BTreeMap<u32, Block>,
    /// Blocks that the mover does not have yet, in order.
    kept: VecDeque<Block>,
    /// The sequence of the first that is kept: the mover has those in front of it.
    received: u32,
    granted: u32,
    /// Whether the last block is among those that were taken.
    is_whole: bool,
    /// Whether there will be no more blocks.
    is_over: bool,
}

/// Why a stream was not sent to its end.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// The mover takes no more.
    Stopped,
    /// The source gave up before its end: that is in its own report.
    Unfinished,
    /// The mover cannot be reached.
    Lost(String),
}

impl BlockSender<'_> {
    /// Sends all blocks, opening the connection again where it breaks.
    pub(crate) fn run(mut self) -> Result<(), NotSent> {
        let mut sending = Sending { received: self.start.sequence, ..Sending::default() };
        let ended = self.send(&mut sending);
        if !matches!(ended, Ok(()) | Err(NotSent::Unfinished)) {
            self.stop.store(true, Ordering::Relaxed);
        }
        ended
    }

    fn send(&mut self, sending: &mut Sending) -> Result<(), NotSent> {
        let (mut failing_since, mut pause) = (None, PAUSE);
        loop {
            let before = sending.received;
            let error = match self.over_one_link(sending) {
                Ok(Ended::Whole) => return Ok(()),
                Ok(Ended::Stopped) => return Err(NotSent::Stopped),
                Ok(Ended::Unfinished) => return Err(NotSent::Unfinished),
                Err(error) => error,
            };
            if sending.received > before {
                (failing_since, pause) = (None, PAUSE);
            }
            let since: Instant = *failing_since.get_or_insert_with(Instant::now);
            // The mover has said that it is over.
            let is_final = error.kind() == io::ErrorKind::PermissionDenied;
            if is_final || since.elapsed() > TRIES_FOR || self.stop.load(Ordering::Relaxed) {
                return Err(NotSent::Lost(with_causes(&error)));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn over_one_link(&mut self, sending: &mut Sending) -> io::Result<Ended> {
        let purpose = Purpose::Blocks { reading: self.reading, connection: self.start.connection };
        let mut link = connect(self.dial, self.token, purpose)?;
        link.set_timeout(Some(SILENT_MAX))?;
        if !sending.listen(&mut link)? {
            return Ok(Ended::Stopped);
        }
        let mut next = sending.received;
        loop {
            sending.put_in_order();
            if sending.is_whole && sending.kept.is_empty() {
                return Ok(Ended::Whole);
            }
            let at = (next - sending.received) as usize;
            if at < sending.kept.len() && next < sending.granted {
                send_block(&mut link, &sending.kept[at])?;
                next += 1;
                if let Some(block) = self.blocks.try_next() {
                    sending.take(block);
                }
                continue;
            }
            if !sending.kept.is_empty() {
                // The mover answers each block, and speaks while it has no room for more.
                if !sending.listen(&mut link)? {
                    return Ok(Ended::Stopped);
                }
                next = next.max(sending.received);
                continue;
            }
            if sending.is_over {
                return Ok(Ended::Unfinished);
            }
            match self.blocks.next_within(SPEAKS_EVERY) {
                Ok(block) => sending.take(block),
                Err(Nothing::More) => sending.is_over = true,
                Err(Nothing::Yet) => {
                    Head::StillHere.write(&mut link)?;
                    link.flush()?;
                    if !sending.listen(&mut link)? {
                        return Ok(Ended::Stopped);
                    }
                }
            }
        }
    }
}

enum Ended {
    Whole,
    Stopped,
    Unfinished,
}

impl Sending {
    fn take(&mut self, block: Block) {
        self.early.insert(block.place.sequence, block);
    }

    fn put_in_order(&mut self) {
        while let Some(block) = self.early.remove(&(self.received + self.kept.len() as u32)) {
            self.is_whole |= block.place.closes;
            self.kept.push_back(block);
        }
    }

    /// Hears what the mover says, and gives up what it has; whether it takes more.
    fn listen(&mut self, link: &mut impl NetworkStream) -> io::Result<bool> {
        let Grant::Takes { received, granted } = Grant::read(link)? else { return Ok(false) };
        let had = received.checked_sub(self.received).filter(|had| *had as usize <= self.kept.len());
        let Some(had) = had else { return Err(nonsense("the mover has blocks that were never sent")) };
        self.kept.drain(..had as usize);
        (self.received, self.granted) = (received, granted);
        Ok(true)
    }
}

fn send_block(link: &mut impl NetworkStream, block: &Block) -> io::Result<()> {
    if block.entries.iter().map(entry_bytes).sum::<usize>() > ENTRIES_BYTES_MAX {
        // So many paths end in one block only where they have no content: they are gone.
        let reason = "more paths are gone since the last backup than an incremental can record over a network: back \
                      it up in full";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let place = &block.place;
    let mut encoder = EntryEncoder::new();
    for entry in &block.entries {
        encoder.push(entry);
        if encoder.len() >= ENTRIES_LEN {
            send_entries(link, place.sequence, std::mem::take(&mut encoder))?;
        }
    }
    if !encoder.is_empty() {
        send_entries(link, place.sequence, encoder)?;
    }
    let head = BlockHead {
        compression: block.compression,
        last: place.last,
        closes: place.closes,
        sequence: place.sequence,
        offset: place.offset,
        valid_len: place.valid_len,
        plain_len: place.plain_len,
        stored_len: block.stored_len,
    };
    Head::Block(head).write(link)?;
    link.write_all(&block.buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + block.stored_len as usize])?;
    link.flush()
}

fn send_entries(link: &mut impl NetworkStream, sequence: u32, entries: EntryEncoder) -> io::Result<()> {
    let packed = entries.finish();
    Head::Entries { sequence, len: packed.len() as u32 }.write(link)?;
    link.write_all(&packed)
}
