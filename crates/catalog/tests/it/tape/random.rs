//! Seeded randomness for tests: a failing test prints its seed, and the seed replays it.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(unreachable_pub, reason = "shared by the tests of this crate")]

use capstan_format::{EntryFlags, EntryKind, FileEntry, Fragment};

/// splitmix64 (Steele, Lea, Flood 2014): small, and every seed is a good one.
pub struct Random(pub u64);

impl Random {
    /// A seed from the environment (`CAPSTAN_SEED`), else from the clock; printed, so that a failure can be replayed.
    pub fn seeded(test: &str) -> Self {
        let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var("CAPSTAN_SEED").ok().map_or_else(clock, |seed| seed.parse().unwrap());
        println!("{test}: CAPSTAN_SEED={seed}");
        Self(seed)
    }

    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.u64() % bound
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

impl Random {
    /// A path over few components, so that paths meet, nest, and begin alike.
    pub fn path(&mut self) -> Vec<u8> {
        const COMPONENTS: [&[u8]; 9] =
            [b"a", b"b", b"a-b", b"a.b", b"a b", b"\xff\xfe", "ä".as_bytes(), b"ab", b"%_'\""];
        let components: Vec<&[u8]> =
            (0..=self.below(4)).map(|_| COMPONENTS[self.below(COMPONENTS.len() as u64) as usize]).collect();
        components.join(&b'/')
    }

    /// A number that is often small, and sometimes at the edge of what fits.
    pub fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::MAX - self.below(2),
            1 => (1 << 63) - self.below(2),
            2 => self.u64(),
            _ => self.below(5000),
        }
    }

    /// What a stream has of a file, from an offset of it on: whether it is all that was missing, and which stream it
    /// goes on from.
    pub fn fragment(
        &mut self,
        file: &FileEntry,
        (connection, offset, member_len): (u16, u64, u64),
        is_whole: bool,
        continues: Option<(u16, u64)>,
    ) -> FileEntry {
        let content = if is_whole { file.size } else { file.size / 2 };
        let fragment = Fragment { content, header_len: 1024, header_crc: self.u64() as u32, continues };
        let flags = EntryFlags::FRAGMENT;
        FileEntry { flags, connection, offset, member_len, link: fragment.encode(), ..file.clone() }
    }

    /// An entry of any kind with any values.
    pub fn entry(&mut self, connection: u16, offset: u64) -> FileEntry {
        let kind = EntryKind::from_code(1 + self.below(8) as u8).unwrap();
        let linked = kind == EntryKind::HardLink;
        FileEntry {
            path: self.path(),
            kind,
            flags: if self.chance(4) {
                EntryFlags(self.u64() as u8 & !EntryFlags::FRAGMENT.0)
            } else {
                EntryFlags::default()
            },
            mode: if self.chance(8) { self.u64() as u32 } else { 0o644 },
            uid: self.number() as u32,
            gid: self.number() as u32,
            size: self.number(),
            mtime_ns: self.number().cast_signed(),
            change: self.u64() as u32,
            crc: if self.chance(3) { 0 } else { self.u64() as u32 },
            connection,
            offset,
            member_len: if self.chance(4) { self.number() >> 8 } else { 512 * self.below(9) },
            link: if linked { self.path() } else { Vec::new() },
        }
    }
}
