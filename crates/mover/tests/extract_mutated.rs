//! Valid streams with random damage: no panic, nothing outside the target, no more memory than promised.
//!
//! `CAPSTAN_SEED` replays a failing round, `CAPSTAN_ROUNDS` makes it longer.
//!
//! A program of its own: its allocator counts what the process takes.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "it/torture/mod.rs"]
mod torture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::BufReader;
use std::sync::atomic::{AtomicUsize, Ordering};

use capstan_format::EntryKind;
use capstan_format::pax::{BLOCK_LEN, DataExtent, Member, encode, padding, put_attribute};
use capstan_mover::extract::{
    DeviceNodes, ExtractError, ExtractOptions, MemberChoice, Overwrite, Owners, RestoreTarget,
};
use torture::snapshot;

/// Counts what is allocated, to see that no stream makes the mover take more than it promises.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "an allocator is unsafe by its trait; this one counts and passes on")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What one extraction may take: an extended header and its copy, a sparse map, the journals, the cache of paths.
const MEMORY_MAX: usize = 80 << 20;

/// xorshift64*, enough to damage bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// One of each kind of member, and the offsets of its header blocks.
fn valid() -> (Vec<u8>, Vec<usize>) {
    let mut attributes = Vec::new();
    put_attribute(&mut attributes, b"user.key", b"value");
    put_attribute(
        &mut attributes,
        b"system.posix_acl_access",
        &[
            2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 5, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16,
            0, 5, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ],
    );
    let long = [b"deep/".repeat(40), b"leaf".to_vec()].concat();
    let extents = [DataExtent { offset: 4096, len: 700 }, DataExtent { offset: 100_000, len: 5 }];
    let mut bytes = Vec::new();
    let mut headers = Vec::new();
    let mut put = |path: &[u8], kind, link: &[u8], records: &[u8], extents: Option<&[DataExtent]>| {
        let (user, group, device) = (&b""[..], &b""[..], (1, 3));
        let size = match kind {
            EntryKind::File if extents.is_some() => 200_000,
            EntryKind::File => 1_000,
            _ => 0,
        };
        let begin = bytes.len();
        let (uid, gid, mode, mtime_ns) = (1, 2, 0o750, 1_700_000_000_000_000_001);
        encode(
            &Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents },
            &mut bytes,
        );
        headers.extend((begin..bytes.len()).step_by(BLOCK_LEN));
        let content = if extents.is_some() { 705 } else { size };
        bytes.resize(bytes.len() + content as usize + padding(content), b'c');
    };
    put(b"directory", EntryKind::Directory, b"", &attributes, None);
    put(b"directory/file", EntryKind::File, b"", &attributes, None);
    put(b"directory/link", EntryKind::Symlink, b"../../canary", b"", None);
    put(b"directory/link/through", EntryKind::File, b"", b"", None);
    put(b"directory/hard", EntryKind::HardLink, b"directory/file", b"", None);
    put(&long, EntryKind::File, b"", b"", None);
    put(b"sparse", EntryKind::File, b"", b"", Some(&extents));
    put(b"fifo", EntryKind::Fifo, b"", b"", None);
    put(b"device", EntryKind::CharDevice, b"", b"", None);
    put(b"directory/file", EntryKind::Symlink, b"/", b"", None);
    put(b"../escape", EntryKind::File, b"", b"", None);
    put(b"last", EntryKind::File, b"", b"", None);
    (bytes, headers)
}

/// Damages a stream; mostly in its headers, mostly with checksums that are right again, so that the damage gets
/// somewhere.
fn damage(bytes: &mut Vec<u8>, headers: &[usize], random: &mut Random) {
    const PIECES: [&[u8]; 12] = [
        b"../",
        b"/",
        b"..",
        b"\0",
        b"\xff",
        b"77777777777",
        b"\x80\xff\xff\xff",
        b"9999999999",
        b"\n",
        b"=",
        b" path=../x\n",
        b"-1",
    ];
    for _ in 0..1 + random.below(4) {
        let header = headers[random.below(headers.len())];
        let at = if random.below(8) == 0 { random.below(bytes.len()) } else { header + random.below(BLOCK_LEN) };
        match random.below(7) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                let end = (at + piece.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&piece[..end - at]);
            }
            3 => bytes[header + 156] = b"0123456xgLKS\0"[random.below(13)],
            4 => {
                let from = headers[random.below(headers.len())];
                bytes.copy_within(from..from + BLOCK_LEN, header);
            }
            5 => {
                // A field takes another field's place.
                let fields = [(0, 100), (100, 8), (124, 12), (136, 12), (157, 100), (329, 8), (345, 155)];
                let ((from, from_len), (to, to_len)) = (fields[random.below(7)], fields[random.below(7)]);
                let len = from_len.min(to_len);
                bytes.copy_within(header + from..header + from + len, header + to);
            }
            _ => {
                bytes[header + 124..header + 135].copy_from_slice(format!("{:011o}", random.below(1 << 30)).as_bytes());
            }
        }
        if random.below(10) != 0 {
            let block = &mut bytes[header..header + BLOCK_LEN];
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    if random.below(6) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
}

#[test]
fn damaged_streams_do_no_harm() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let fixed = number("CAPSTAN_SEED");
    let rounds = if fixed.is_some() { 1 } else { number("CAPSTAN_ROUNDS").unwrap_or(1_500) };
    let first = fixed.unwrap_or_else(|| RandomState::new().hash_one(0));
    let (stream, headers) = valid();
    let mut outcomes = [0u64; 2];
    let mut place = None;
    for round in 0..rounds {
        let seed = first.wrapping_add(round);
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        // A target is used some rounds long, so that streams meet what others left.
        if round % 50 == 0 || place.is_none() {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir(directory.path().join("canary")).unwrap();
            fs::write(directory.path().join("canary/file"), b"precious").unwrap();
            place = Some(directory);
        }
        let directory = place.as_ref().unwrap().path();
        let mut bytes = stream.clone();
        damage(&mut bytes, &headers, &mut random);
        let options = ExtractOptions {
            overwrite: [Overwrite::Never, Overwrite::Changed, Overwrite::Always][random.below(3)],
            owners: [Owners::Caller, Owners::Restore][random.below(2)],
            devices: DeviceNodes::Refuse,
            deferred_bytes_max: random.below(1_000),
            ..ExtractOptions::default()
        };
        let before = NOW.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let target = RestoreTarget::new(&directory.join("target"), options).unwrap();
        let mut input = BufReader::with_capacity(1 + random.below(5_000), &bytes[..]);
        let result = target.extractor().extract(&mut input, &mut |_| MemberChoice::Take, &mut |_| ());
        target.finish().unwrap_or_else(|error| panic!("CAPSTAN_SEED={seed}: {error:?}"));
        let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
        assert!(taken < MEMORY_MAX, "CAPSTAN_SEED={seed}: {taken} bytes of memory");
        assert!(
            matches!(result, Ok(()) | Err(ExtractError::Stream(_))),
            "CAPSTAN_SEED={seed}: the target is sound, so only the stream may be blamed: {result:?}"
        );
        outcomes[usize::from(result.is_ok())] += 1;
        let canary: Vec<_> =
            snapshot(&directory.join("canary")).into_iter().map(|(name, _, bytes)| (name, bytes)).collect();
        assert_eq!(canary, [("file".to_owned(), b"precious".to_vec())], "CAPSTAN_SEED={seed}");
        assert_eq!(fs::read_dir(directory).unwrap().count(), 2, "CAPSTAN_SEED={seed}: written beside the target");
    }
    if fixed.is_none() {
        assert!(outcomes.iter().all(|&count| count > rounds / 20), "the damage is of one kind only: {outcomes:?}");
    }
}
