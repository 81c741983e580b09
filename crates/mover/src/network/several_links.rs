//! Streams over several links, which are slow, far away, and break.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use capstan_format::{BLOCK_HEADER_LEN, Compression, EntryFlags, EntryKind, FileEntry, ObjectId};
use capstan_tape::Draw;

use super::hello::{Hello, OLDEST, SEVERAL_LINKS, VERSION, Welcome};
use super::links::LinkTimes;
use super::receiver::LinkOf;
use super::receiver::tests::receiver_of;
use super::{BlockLinks, BlockSender, Dial, NetworkStream, Purpose, SILENT_MAX};
use crate::JobToken;
use crate::block::{Block, ChunkPlace};
use crate::intake::StreamStart;
use crate::link::Link;
use crate::pack::PackedTo;
use crate::pool::BlockPool;
use crate::queue::queue;

const CHUNK_LEN: usize = 4 << 10;
/// Bytes that are on their way at a time, one way.
const UNDER_WAY: usize = 64 << 10;

/// A way to a mover.
struct Way {
    receiver: Arc<super::receiver::BlockReceiver>,
    /// The version that the mover speaks.
    version: u32,
    random: Mutex<Draw>,
    /// How long a byte takes: from half as long on.
    delay: Duration,
    /// Whether connections break, each after so many bytes at most; the last ones hold.
    breaks: Option<u64>,
    broken: AtomicU32,
    /// The links that connections were for.
    opened: Arc<Mutex<Vec<u16>>>,
}

/// Blocks that the mover has room for: more than the way has.
const POOL: usize = 2_048;
/// How many connections break.
const BREAKS: u32 = 8;

impl Way {
    fn below(&self, end: u64) -> u64 {
        self.random.lock().unwrap().below(end)
    }

    /// Passes on what comes, each piece so long after it came; cuts both ways after so many bytes.
    fn pass(&self, mut from: UnixStream, mut to: UnixStream, (delay, cut_after): (Duration, u64)) {
        const PIECE: usize = 4 << 10;
        let (put, take) = sync_channel::<(Instant, Vec<u8>)>(UNDER_WAY / PIECE);
        let ends = [from.try_clone().unwrap(), to.try_clone().unwrap()];
        thread::spawn(move || {
            let mut left = cut_after;
            for (due, bytes) in take {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let len = (bytes.len() as u64).min(left) as usize;
                left -= len as u64;
                if to.write_all(&bytes[..len]).is_err() || left == 0 {
                    break;
                }
            }
            ends.iter().for_each(|end| drop(end.shutdown(std::net::Shutdown::Both)));
        });
        thread::spawn(move || {
            let mut bytes = vec![0; PIECE];
            while let Ok(len @ 1..) = from.read(&mut bytes) {
                if put.send((Instant::now() + delay, bytes[..len].to_vec())).is_err() {
                    break;
                }
            }
        });
    }
}

impl Dial for Way {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        let ((near, near_far), (far_near, far)) = (UnixStream::pair()?, UnixStream::pair()?);
        let delay = self.delay.mul_f64((50 + self.below(50)) as f64 / 100.0);
        let breaks = self.breaks.filter(|_| self.broken.fetch_add(1, Ordering::Relaxed) < BREAKS);
        let cut_after = || breaks.map_or(u64::MAX, |most| 200 + self.below(most));
        self.pass(near_far.try_clone()?, far_near.try_clone()?, (delay, cut_after()));
        // What comes back is little.
        self.pass(far_near, near_far, (delay, cut_after()));
        let (receiver, version, opened) = (Arc::clone(&self.receiver), self.version, Arc::clone(&self.opened));
        thread::spawn(move || {
            let mut link = Link(far);
            link.0.set_timeout(Some(SILENT_MAX))?;
            let Ok(hello) = link.open_short::<Hello>(OLDEST..=version)? else {
                return link.send(&Welcome::Speaks(version), &[]);
            };
            let Purpose::Blocks { link: number, .. } = hello.purpose else { panic!("blocks are sent") };
            opened.lock().unwrap().push(number);
            link.send(&Welcome::Taken, &[])?;
            let of_several = hello.version >= SEVERAL_LINKS;
            receiver.receive(&mut link.0, LinkOf { number, of_several }).map(drop)
        });
        Ok(Box::new(near))
    }
}

/// What the block at this place in its stream holds.
fn content(sequence: u32) -> impl Iterator<Item = u8> {
    (0..CHUNK_LEN as u32).map(move |at| (sequence.wrapping_mul(2_654_435_761) >> 16) as u8 ^ at as u8)
}

fn entry(sequence: u32) -> FileEntry {
    FileEntry {
        path: format!("srv/{sequence}").into_bytes(),
        kind: EntryKind::File,
        flags: EntryFlags::default(),
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: 0,
        mtime_ns: 0,
        change: 0,
        crc: 0,
        connection: 0,
        offset: u64::from(sequence) * CHUNK_LEN as u64,
        member_len: 512,
        link: Vec::new(),
    }
}

/// What ends in this block: in one of them, if there is a long one, so much that it takes several frames.
fn ends_in(sequence: u32, has_long: bool) -> Vec<FileEntry> {
    if sequence != 6 || !has_long {
        return if sequence.is_multiple_of(3) { vec![entry(sequence)] } else { Vec::new() };
    }
    let mut draw = Draw::new(7);
    let mut name = || (0..4).map(|_| format!("{:016x}", draw.below(u64::MAX))).collect::<String>();
    (0..40_000).map(|_| FileEntry { path: format!("srv/{}", name()).into_bytes(), ..entry(sequence) }).collect()
}

/// Blocks of a stream, with what ends in them; not quite in order, as several threads pack them.
fn blocks(count: u32, has_long: bool, pool: &BlockPool) -> impl Iterator<Item = Block> {
    let swapped = (0..count).map(move |at| if at ^ 1 < count { at ^ 1 } else { at });
    swapped.map(move |sequence| {
        let mut buffer = pool.take();
        buffer[BLOCK_HEADER_LEN..].iter_mut().zip(content(sequence)).for_each(|(to, byte)| *to = byte);
        let (offset, plain_len) = (u64::from(sequence) * CHUNK_LEN as u64, CHUNK_LEN as u32);
        let last = sequence + 1 == count;
        let place = ChunkPlace {
            stream: 0,
            first_sequence: 0,
            closes: last,
            object: ObjectId([1; 16]),
            connection: 0,
            sequence,
            offset,
            plain_len,
            last,
            valid_len: offset + u64::from(plain_len),
        };
        let entries = ends_in(sequence, has_long);
        Block { place, buffer, compression: Compression::None, stored_len: plain_len, entries, _held: None }
    })
}

/// Sends a stream, and checks what the mover hands on; the links that it had connections for.
fn sent(count: u32, version: u32, (delay, breaks): (Duration, Option<u64>), seed: u64) -> Vec<u16> {
    println!("# seed {seed}");
    // Over connections that break it would never come.
    let has_long = breaks.is_none();
    let (handed, told) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let (next, wrong) = (Arc::clone(&handed), Arc::clone(&told));
    let out: PackedTo = Arc::new(move |block: Block| {
        let sequence = next.fetch_add(1, Ordering::Relaxed);
        let is_right = block.place.sequence == sequence
            && block.entries == ends_in(sequence, has_long)
            && block.buffer[BLOCK_HEADER_LEN..].iter().copied().eq(content(sequence));
        wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        Ok(())
    });
    let (controls, _said) = queue(usize::MAX);
    let receiver = receiver_of(BlockPool::new(POOL, CHUNK_LEN), out, controls);
    let (random, opened) = (Mutex::new(Draw::new(seed)), Arc::default());
    let way = Way { receiver, version, random, delay, breaks, broken: AtomicU32::new(0), opened };
    let (put, blocks_in) = queue(usize::MAX);
    let (token, process, stop) = (JobToken([1; 32]), JobToken([2; 32]), AtomicBool::new(false));
    // Links are tried all the time.
    let moment = Duration::from_millis(20);
    let links = BlockLinks::AsWanted(LinkTimes { watch: moment, settle: moment, pause: (moment, moment) });
    let (token, start) = ((&token, &process), StreamStart::whole(0));
    let sender = BlockSender { dial: &way, token, reading: 1, start, blocks: blocks_in, stop: &stop, links };
    let ended = thread::scope(|scope| {
        let sends = scope.spawn(move || sender.run());
        let pool = BlockPool::new(64, CHUNK_LEN);
        blocks(count, has_long, &pool).for_each(|block| assert!(put.send(block).is_ok()));
        drop(put);
        sends.join().unwrap()
    });
    assert!(ended.is_ok(), "seed {seed}: {ended:?}");
    assert_eq!((handed.load(Ordering::Relaxed), told.load(Ordering::Relaxed)), (count, 0), "seed {seed}");
    assert!(way.receiver.is_whole() && !stop.load(Ordering::Relaxed), "seed {seed}");
    let opened = way.opened.lock().unwrap();
    opened.clone()
}

fn seed() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64
}

#[test]
fn a_long_way_gets_several_links_and_the_stream_comes_in_order() {
    let opened = sent(4_000, VERSION, (Duration::from_millis(20), None), seed());
    assert!(opened.iter().any(|link| *link > 0), "{opened:?}");
}

#[test]
fn links_that_break_lose_nothing_and_bring_nothing_twice() {
    for _ in 0..2 {
        sent(700, VERSION, (Duration::from_millis(10), Some(300_000)), seed());
    }
}

#[test]
fn a_mover_of_before_has_one_link_which_may_break() {
    let opened = sent(800, SEVERAL_LINKS - 1, (Duration::from_millis(2), Some(600_000)), seed());
    assert!(opened.iter().all(|link| *link == 0), "{opened:?}");
}
