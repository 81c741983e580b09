//! Requests that went wrong on the way: the seeds of the fuzz target with bytes changed, cut and put together, at random.
//!
//! `CAPSTAN_SEED` replays a run, `CAPSTAN_ROUNDS` makes it longer.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use capstan_kmip::{Limits, ManagedObject, MemoryStore, Permitted, Requester, Tag, answer, decode, encode};

const NOW_S: i64 = 1_790_000_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

#[test]
fn every_request_has_an_answer() {
    let seed = number("CAPSTAN_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_secs() ^ u64::from(now.subsec_nanos())
    });
    println!("CAPSTAN_SEED={seed} cargo test -p capstan-kmip --test hostile");
    let mut random = Random(seed);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ttlv");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let requester = Requester { domain: "library".to_owned(), permitted: Permitted::All };
    let mut objects = MemoryStore::new();
    let (mut decoded, mut changed) = (0, 0);
    let rounds = number("CAPSTAN_ROUNDS").unwrap_or(3000);
    for _ in 0..rounds {
        let mut request = seeds[random.below(seeds.len())].clone();
        for _ in 0..random.below(4) {
            let at = random.below(request.len());
            match random.below(6) {
                // Tags, types and lengths lie at multiples of 8; most values are small.
                0 => request[at / 8 * 8 + 3] = random.below(12) as u8,
                1 => request[at / 8 * 8 + 7] = (random.below(12) * 8) as u8,
                2 => request[at / 8 * 8 + 2] = random.next() as u8,
                3 => request[at] = random.below(64) as u8,
                4 => request[at] ^= 1 << random.below(8),
                _ => {
                    let other = &seeds[random.below(seeds.len())];
                    let from = random.below(other.len()) / 8 * 8;
                    let len = (other.len() - from).min(64).min(request.len() - at / 8 * 8);
                    request[at / 8 * 8..][..len].copy_from_slice(&other[from..][..len]);
                }
            }
        }
        decoded += usize::from(decode(&request, &Limits::default()).is_ok());
        let decided = answer(&request, &requester, &objects, NOW_S);
        let response =
            decode(&decided.response, &Limits { len_max: 8 << 20, depth_max: 20, items_max: 1 << 20 }).unwrap();
        assert_eq!(response.tag, Tag::RESPONSE_MESSAGE);
        assert_eq!(*encode(&response), *decided.response);
        for changes in [&decided.changes, &decided.notes] {
            for change in changes {
                assert_eq!(ManagedObject::decode(&change.object().encode()).unwrap(), **change.object());
                changed += 1;
            }
            objects.apply(changes).unwrap();
        }
    }
    println!("{decoded} of {rounds} requests were messages; {changed} changes");
    assert!(decoded > 0 && changed > 0, "nothing got past the door");
}
