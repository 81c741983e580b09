//! The client's end of a stream's block links: each block is kept until the mover has it.
//!
//! A stream begins with one link, and gets more where those that it has are waited for ([`super::links`]). Every link
//! takes the next block that is granted, in whatever order the links are ready; the mover brings them in order. A link
//! that breaks gives back what it had under way, for any link to send again, and is opened again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use capstan_format::{BLOCK_HEADER_LEN, EntryEncoder};
use rustix::time::{ClockId, clock_gettime};

use super::frame::{BlockHead, Grant, Head, OnLink, nonsense};
use super::hello::{SEVERAL_LINKS, connect_speaking};
use super::links::{BLOCK_LINKS_MAX, LinkChoice, LinkTimes, SoFar};
use super::receiver::{ENTRIES_BYTES_MAX, WINDOW_BYTES, entry_bytes};
use super::{Dial, JobToken, NetworkStream, Purpose, SILENT_MAX, SPEAKS_EVERY, why_broken};
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
/// How often one of several links looks what the others have left.
const LOOKS: Duration = Duration::from_millis(50);
/// How long a link that has no turn stays open.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// Sends the blocks of one stream.
pub(crate) struct BlockSender<'a> {
    pub(crate) dial: &'a dyn Dial,
    /// The job's token, and what names this process.
    pub(crate) token: (&'a JobToken, &'a JobToken),
    pub(crate) reading: u64,
    pub(crate) start: StreamStart,
    pub(crate) blocks: Receiver<Block>,
    /// Set where the mover takes no more.
    pub(crate) stop: &'a AtomicBool,
    /// How many links it may have.
    pub(crate) links: BlockLinks,
}

/// How many links a stream may have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BlockLinks {
    /// One: more cannot be opened, or would be no use.
    One,
    /// As many as its rate and the latency want.
    AsWanted(LinkTimes),
}

/// Why a stream was not sent to its end.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// The mover takes no more.
    Stopped,
    /// The source gave up before its end: that is in its own report.
    Unfinished,
    /// The mover cannot be reached, or does not take it: why, in words.
    Lost(String),
}

impl BlockSender<'_> {
    /// Sends all blocks, opening links again where they break.
    pub(crate) fn run(self) -> Result<(), NotSent> {
        let Self { dial, token, reading, start, blocks, stop, links } = self;
        let (times, max) = match links {
            BlockLinks::One => (LinkTimes::default(), 1),
            BlockLinks::AsWanted(times) => (times, BLOCK_LINKS_MAX),
        };
        let kept = Kept { received: start.sequence, next: start.sequence, ..Kept::default() };
        let sending = Sending {
            dial,
            token,
            stream: (reading, start.connection),
            stop,
            queue: Mutex::new(blocks),
            kept: Mutex::new(kept),
            changed: Condvar::new(),
            regrouped: Condvar::new(),
            links: AtomicU16::new(1),
            has_further: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
        };
        thread::scope(|scope| {
            let choice = LinkChoice::new(Instant::now(), times, max);
            let ended = sending.carry(0, Some(&mut More { scope, choice, begun: 1, sending: &sending }));
            if !matches!(ended, Ok(()) | Err(NotSent::Unfinished)) {
                stop.store(true, Ordering::Relaxed);
            }
            sending.kept().is_left = true;
            sending.tell_all();
            ended
        })
    }
}

/// What the links of a stream share.
struct Sending<'a> {
    dial: &'a dyn Dial,
    token: (&'a JobToken, &'a JobToken),
    /// The reading, and the connection in its object.
    stream: (u64, u16),
    stop: &'a AtomicBool,
    queue: Mutex<Receiver<Block>>,
    kept: Mutex<Kept>,
    /// Blocks have come, or word of the mover.
    changed: Condvar,
    /// The stream has ended, or other links are to take blocks.
    regrouped: Condvar,
    /// How many links take blocks; those that are numbered higher wait.
    links: AtomicU16,
    /// Whether there has been more than one.
    has_further: AtomicBool,
    bytes: AtomicU64,
    waited_ns: AtomicU64,
}

/// Where a stream is.
#[derive(Default)]
struct Kept {
    /// Blocks that were packed before the one in front of them.
    early: BTreeMap<u32, Arc<Block>>,
    /// Blocks that the mover does not have yet, in order.
    blocks: VecDeque<Arc<Block>>,
    /// The sequence of the first that is kept: the mover has those in front of it.
    received: u32,
    /// The first that no link has begun to send.
    next: u32,
    /// Those of links that broke.
    again: BTreeSet<u32>,
    granted: u32,
    /// Whether the last block is among those that were taken.
    is_whole: bool,
    /// Whether there will be no more blocks.
    is_over: bool,
    /// Whether the mover takes no more.
    is_stopped: bool,
    /// Whether the first link has left.
    is_left: bool,
}

enum Ended {
    Whole,
    Stopped,
    Unfinished,
    /// Only this link has, because it had no turn for a while.
    Unused,
}

impl Kept {
    fn take(&mut self, block: Block) {
        self.early.insert(block.place.sequence, Arc::new(block));
        while let Some(block) = self.early.remove(&(self.received + self.blocks.len() as u32)) {
            self.is_whole |= block.place.closes;
            self.blocks.push_back(block);
        }
    }

    fn ended(&self) -> Option<Ended> {
        match (self.is_whole && self.blocks.is_empty(), self.blocks.is_empty() && self.is_over) {
            (true, _) => Some(Ended::Whole),
            _ if self.is_stopped => Some(Ended::Stopped),
            (false, true) => Some(Ended::Unfinished),
            _ if self.is_left => Some(Ended::Stopped),
            _ => None,
        }
    }

    /// Whether there is a block that no link has sent.
    fn has_unsent(&self) -> bool {
        !self.again.is_empty() || ((self.next - self.received) as usize) < self.blocks.len()
    }

    /// The next block that may be sent.
    fn next_to_send(&mut self) -> Option<Arc<Block>> {
        let sequence = match self.again.pop_first() {
            Some(sequence) => sequence,
            None if self.has_unsent() && self.next < self.granted => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.blocks.get((sequence - self.received) as usize).cloned()
    }

    /// Gives up what the mover has.
    fn hear(&mut self, received: u32, granted: u32) -> io::Result<()> {
        if received > self.next {
            return Err(nonsense("the mover has blocks that were never sent"));
        }
        // What came over another link may be newer.
        self.blocks.drain(..received.saturating_sub(self.received) as usize);
        self.received = self.received.max(received);
        self.next = self.next.max(received);
        self.granted = self.granted.max(granted);
        self.again = self.again.split_off(&self.received);
        Ok(())
    }
}

/// Begins further links of a stream.
struct More<'scope, 'env, 'a> {
    scope: &'scope Scope<'scope, 'env>,
    sending: &'scope Sending<'a>,
    choice: LinkChoice,
    /// Links that were begun.
    begun: u16,
}

impl More<'_, '_, '_> {
    /// Looks how many links there should be, and begins those that are missing.
    fn look(&mut self) {
        let sending = self.sending;
        let waited = Duration::from_nanos(sending.waited_ns.load(Ordering::Relaxed));
        let so_far = SoFar { bytes: sending.bytes.load(Ordering::Relaxed), waited };
        let links = self.choice.look(Instant::now(), so_far);
        if sending.links.swap(links, Ordering::Relaxed) != links {
            sending.tell_all();
        }
        for number in self.begun..links {
            // What cannot be begun now is no loss: the others carry the stream.
            let Some(counted) = FurtherLink::one_more() else { return };
            let carry = move || {
                let _counted = counted;
                drop(sending.carry(number, None));
            };
            if thread::Builder::new().name("send".to_owned()).spawn_scoped(self.scope, carry).is_err() {
                return;
            }
            self.begun = number + 1;
            sending.has_further.store(true, Ordering::Relaxed);
        }
    }
}

/// One of the links that streams of this process have beside their first, until it is dropped. A mover serves one peer
/// over so many connections at a time, and first links and orders are not to miss theirs.
struct FurtherLink;

/// How many there are.
static FURTHER_LINKS: AtomicU16 = AtomicU16::new(0);
const FURTHER_LINKS_MAX: u16 = 128;

impl FurtherLink {
    fn one_more() -> Option<Self> {
        let more = |links: u16| Some(links + 1).filter(|links| *links <= FURTHER_LINKS_MAX);
        FURTHER_LINKS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for FurtherLink {
    fn drop(&mut self) {
        FURTHER_LINKS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One link, while it lasts.
struct BlockLink {
    stream: Box<dyn NetworkStream>,
    speaks: u32,
    /// Frames that were sent over it, and those of them that were answered.
    sent: u32,
    answered: u32,
    /// Whether the mover says more before it hears anything.
    says_more: bool,
    is_held_back: bool,
    spoke: Instant,
    /// When it last carried a block.
    carried: Instant,
}

impl<'a> Sending<'a> {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_all(&self) {
        // Whoever looked before the change waits by now.
        drop(self.kept());
        self.changed.notify_all();
        self.regrouped.notify_all();
    }

    /// Carries blocks over one link until the stream ends, opening it again where it breaks.
    fn carry(&self, number: u16, mut more: Option<&mut More<'_, '_, 'a>>) -> Result<(), NotSent> {
        let (mut failing_since, mut pause, mut before) = (None, PAUSE, self.kept().received);
        loop {
            let (mut under_way, mut heard) = (BTreeSet::new(), None);
            let error = match self.over_one_link(number, more.as_deref_mut(), (&mut under_way, &mut heard)) {
                Ok(Ended::Whole) => return Ok(()),
                Ok(Ended::Stopped) => return Err(NotSent::Stopped),
                Ok(Ended::Unfinished) => return Err(NotSent::Unfinished),
                Ok(Ended::Unused) => {
                    self.wait_for_turn(number, Duration::MAX);
                    continue;
                }
                Err(error) => error,
            };
            let mut kept = self.kept();
            let received = kept.received;
            let unanswered = under_way.split_off(&received);
            let is_idle = unanswered.is_empty();
            kept.again.extend(unanswered);
            drop(kept);
            self.changed.notify_all();
            // While others carry the stream, nothing is lost; nor while the mover lets links in and wants nothing, as
            // it waits for a volume. A link that is dropped at once is none, nor is one that carries words alone.
            let has_stood = is_idle && heard.is_some_and(|since: Instant| since.elapsed() > PAUSE_MAX);
            if received > before || has_stood {
                (failing_since, pause) = (None, PAUSE);
            }
            before = received;
            let since: Instant = *failing_since.get_or_insert_with(Instant::now);
            // The mover has said that it is over.
            let is_final = error.kind() == io::ErrorKind::PermissionDenied;
            let is_too_long = number == 0 && since.elapsed() > TRIES_FOR;
            if is_final || is_too_long || self.stop.load(Ordering::Relaxed) {
                let what =
                    if is_final { "what was read cannot be sent" } else { "the mover cannot be reached any more" };
                return Err(NotSent::Lost(format!("{what}: {}", why_broken(&error))));
            }
            self.wait_for_news(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits until the stream has ended, or as long as that.
    fn wait_for_news(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut kept = self.kept();
        while kept.ended().is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            kept = self.changed.wait_timeout(kept, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn over_one_link(
        &self,
        number: u16,
        mut more: Option<&mut More<'_, '_, 'a>>,
        (under_way, heard): (&mut BTreeSet<u32>, &mut Option<Instant>),
    ) -> io::Result<Ended> {
        if let Some(ended) = self.kept().ended() {
            return Ok(ended);
        }
        let (reading, connection) = self.stream;
        let purpose = Purpose::Blocks { reading, connection, link: number };
        let (mut stream, speaks) = connect_speaking(self.dial, self.token, purpose)?;
        stream.set_timeout(Some(SILENT_MAX))?;
        let mut link = BlockLink {
            stream,
            speaks,
            sent: 0,
            answered: 0,
            says_more: true,
            is_held_back: false,
            spoke: Instant::now(),
            carried: Instant::now(),
        };
        self.hear(&mut link, under_way)?;
        *heard = Some(Instant::now());
        loop {
            self.empty_queue();
            if let Some(more) = more.as_mut().filter(|_| link.speaks >= SEVERAL_LINKS && link.stream.crosses_network())
            {
                more.look();
            }
            let mut kept = self.kept();
            if let Some(ended) = kept.ended() {
                return Ok(ended);
            }
            let takes = number < self.links.load(Ordering::Relaxed);
            let block = if takes { kept.next_to_send() } else { None };
            let has_unsent = kept.has_unsent();
            let is_full = has_unsent && self.is_window_full(&kept);
            drop(kept);
            match block {
                Some(block) => {
                    under_way.insert(block.place.sequence);
                    self.send(&mut link, &block, under_way)?;
                }
                // A word of the mover comes without anything more from here.
                None if link.sent != link.answered || link.says_more && has_unsent => {
                    let began = Instant::now();
                    self.hear(&mut link, under_way)?;
                    // Free blocks are there, and word of them is on its way.
                    if takes && is_full && !link.is_held_back {
                        self.add_wait(began.elapsed());
                    }
                }
                None if takes => self.wait_for_more(&mut link)?,
                None if link.carried.elapsed() > UNUSED_MAX && under_way.is_empty() => return Ok(Ended::Unused),
                None => {
                    if let Some(quiet) = link.stays_quiet()? {
                        self.wait_for_turn(number, quiet);
                    }
                }
            }
        }
    }

    /// Whether the mover has as many free blocks for this stream as it gives to so many links.
    fn is_window_full(&self, kept: &Kept) -> bool {
        let Some(block) = kept.blocks.front() else { return false };
        let window = (WINDOW_BYTES / (block.buffer.len() - BLOCK_HEADER_LEN)).max(2);
        let links = usize::from(self.links.load(Ordering::Relaxed));
        (kept.granted - kept.received) as usize + 1 >= window * links
    }

    fn add_wait(&self, waited: Duration) {
        self.waited_ns.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Takes what is ready to be sent.
    fn empty_queue(&self) {
        // The thread that holds the queue takes its blocks.
        let Ok(mut queue) = self.queue.try_lock() else { return };
        let mut came = std::iter::from_fn(|| queue.try_next()).peekable();
        if came.peek().is_some() {
            let mut kept = self.kept();
            came.for_each(|block| kept.take(block));
            drop(kept);
            self.changed.notify_all();
        }
    }

    fn send(&self, link: &mut BlockLink, block: &Block, under_way: &mut BTreeSet<u32>) -> io::Result<()> {
        let mut lists = packed_entries(block)?;
        let last = lists.pop();
        for list in lists {
            send_entries(link, block, &list)?;
            // A long list may have to wait for room at the mover, which says meanwhile that it is there.
            while link.speaks >= SEVERAL_LINKS && link.sent != link.answered {
                link.stream.flush()?;
                self.hear(link, under_way)?;
            }
        }
        let (began, worked) = (Instant::now(), processor_time());
        if let Some(list) = last {
            send_entries(link, block, &list)?;
        }
        send_block(link, block)?;
        let (passed, worked) = (began.elapsed(), processor_time().saturating_sub(worked));
        if !link.is_held_back {
            self.add_wait(passed.saturating_sub(worked));
        }
        self.bytes.fetch_add(u64::from(block.stored_len), Ordering::Relaxed);
        link.spoke = Instant::now();
        link.carried = link.spoke;
        Ok(())
    }

    /// Hears what the mover says.
    fn hear(&self, link: &mut BlockLink, under_way: &mut BTreeSet<u32>) -> io::Result<()> {
        let grant = Grant::read(&mut link.stream)?;
        let mut kept = self.kept();
        match grant {
            Grant::Stop => kept.is_stopped = true,
            Grant::Takes { received, granted, on_link } => {
                kept.hear(received, granted)?;
                *under_way = under_way.split_off(&received);
                // A mover of the only link answers each block, and speaks while it has no room for more.
                let OnLink { answered, says_more, is_held_back } = on_link.unwrap_or_else(|| OnLink {
                    answered: if under_way.is_empty() { link.sent } else { link.sent.wrapping_sub(1) },
                    says_more: granted == received,
                    is_held_back: false,
                });
                (link.answered, link.says_more, link.is_held_back) = (answered, says_more, is_held_back);
            }
        }
        drop(kept);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for a block, or for what the other links hear, where this one has nothing to send and nothing to hear.
    fn wait_for_more(&self, link: &mut BlockLink) -> io::Result<()> {
        let Some(quiet) = link.stays_quiet()? else { return Ok(()) };
        // Whoever gives back what it had under way may do so between the last look and this.
        let limit = if self.has_further.load(Ordering::Relaxed) { quiet.min(LOOKS) } else { quiet };
        let kept = self.kept();
        let queue = if kept.is_over { None } else { self.queue.try_lock().ok() };
        let Some(mut queue) = queue else {
            if kept.ended().is_none() {
                drop(self.changed.wait_timeout(kept, limit));
            }
            return Ok(());
        };
        drop(kept);
        match queue.next_within(limit) {
            Ok(block) => self.kept().take(block),
            Err(Nothing::More) => self.kept().is_over = true,
            Err(Nothing::Yet) => return Ok(()),
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until this link is to take blocks, the stream has ended, or so long.
    fn wait_for_turn(&self, number: u16, limit: Duration) {
        let kept = self.kept();
        let waits = |kept: &mut Kept| kept.ended().is_none() && number >= self.links.load(Ordering::Relaxed);
        drop(self.regrouped.wait_timeout_while(kept, limit, waits));
    }
}

impl BlockLink {
    /// How long it may stay quiet; none where it has just spoken.
    fn stays_quiet(&mut self) -> io::Result<Option<Duration>> {
        let quiet = SPEAKS_EVERY.saturating_sub(self.spoke.elapsed());
        if !quiet.is_zero() {
            return Ok(Some(quiet));
        }
        Head::StillHere.write(&mut self.stream)?;
        self.stream.flush()?;
        self.sent += 1;
        self.spoke = Instant::now();
        Ok(None)
    }
}

/// What this thread has worked so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The entries that end in a block, packed, a list for each frame.
fn packed_entries(block: &Block) -> io::Result<Vec<Vec<u8>>> {
    if block.entries.iter().map(entry_bytes).sum::<usize>() > ENTRIES_BYTES_MAX {
        // So many paths end in one block only where they have no content: they are gone.
        let reason = "more paths are gone since the last backup than an incremental can record over a network: back \
                      it up in full";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let (mut lists, mut encoder) = (Vec::new(), EntryEncoder::new());
    for entry in &block.entries {
        encoder.push(entry);
        if encoder.len() >= ENTRIES_LEN {
            lists.push(std::mem::take(&mut encoder).finish());
        }
    }
    if !encoder.is_empty() {
        lists.push(encoder.finish());
    }
    Ok(lists)
}

fn send_entries(link: &mut BlockLink, block: &Block, packed: &[u8]) -> io::Result<()> {
    link.sent += 1;
    Head::Entries { sequence: block.place.sequence, len: packed.len() as u32 }.write(&mut link.stream)?;
    link.stream.write_all(packed)
}

fn send_block(link: &mut BlockLink, block: &Block) -> io::Result<()> {
    let place = &block.place;
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
    link.sent += 1;
    Head::Block(head).write(&mut link.stream)?;
    link.stream.write_all(&block.buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + block.stored_len as usize])?;
    link.stream.flush()
}
