//! Requests that went wrong on the way: the seeds of the fuzz target with bytes changed, cut and put together, at
//! random.
//!
//! `CAPSTAN_SEED` replays a run, `CAPSTAN_ROUNDS` makes it longer.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use capstan_kmip::{
    BATCH_COUNT_MAX, Item, Limits, ManagedObject, MemoryStore, Permitted, Requester, Tag, Value, answer, decode, encode,
};

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

/// One message, and a million answers: what is asked at once is bounded, whatever its count says, and refused as a
/// whole.
#[test]
fn a_batch_that_is_a_bomb_is_refused_as_a_whole() {
    let requester = Requester { domain: "library".to_owned(), permitted: Permitted::All };
    let create = || {
        let attribute = |name: &str, value: Value| {
            let (name, value) = (Item::text(Tag::ATTRIBUTE_NAME, name), Item::new(Tag::ATTRIBUTE_VALUE, value));
            Item::structure(Tag::ATTRIBUTE, vec![name, value])
        };
        let attributes = vec![
            attribute("Cryptographic Algorithm", Value::Enumeration(3)),
            attribute("Cryptographic Length", Value::Integer(256)),
            attribute("Cryptographic Usage Mask", Value::Integer(12)),
        ];
        let payload = vec![
            Item::new(Tag::OBJECT_TYPE, Value::Enumeration(2)),
            Item::structure(Tag::TEMPLATE_ATTRIBUTE, attributes),
        ];
        let payload = Item::structure(Tag::REQUEST_PAYLOAD, payload);
        Item::structure(Tag::BATCH_ITEM, vec![Item::new(Tag::OPERATION, Value::Enumeration(1)), payload])
    };
    let message = |count: i32, items: usize| {
        let version = vec![
            Item::new(Tag::PROTOCOL_VERSION_MAJOR, Value::Integer(1)),
            Item::new(Tag::PROTOCOL_VERSION_MINOR, Value::Integer(4)),
        ];
        let header =
            vec![Item::structure(Tag::PROTOCOL_VERSION, version), Item::new(Tag::BATCH_COUNT, Value::Integer(count))];
        let header = Item::structure(Tag::REQUEST_HEADER, header);
        let items = std::iter::repeat_with(|| Item::new(Tag::BATCH_ITEM, create().value)).take(items);
        encode(&Item::structure(Tag::REQUEST_MESSAGE, std::iter::once(header).chain(items).collect()))
    };
    let objects = MemoryStore::new();
    let made = |count, items| answer(&message(count, items), &requester, &objects, NOW_S).changes.len();
    let most = i32::try_from(BATCH_COUNT_MAX).unwrap();
    assert_eq!(made(most, BATCH_COUNT_MAX), BATCH_COUNT_MAX, "as many as may be");
    for (count, items) in [(most + 1, BATCH_COUNT_MAX + 1), (3000, 3000), (i32::MAX, 1), (-1, 1), (0, 0), (1, 3000)] {
        let decided = answer(&message(count, items), &requester, &objects, NOW_S);
        assert!(decided.changes.is_empty(), "{count} said, {items} there: nothing is made");
        assert!(decided.response.len() < 1024, "{count} said, {items} there: {} bytes", decided.response.len());
    }
}

#[test]
fn every_request_has_an_answer() {
    let seed = number("CAPSTAN_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_secs() ^ u64::from(now.subsec_nanos())
    });
    println!("CAPSTAN_SEED={seed} cargo test -p capstan-kmip --test it hostile");
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
