//! How the fixtures were made: `cargo test -p capstan-director --test it -- --ignored golden::make`.
//!
//! It makes what is missing and touches nothing that is there. Ids, lives and keys are drawn at random, so no two runs
//! make the same bytes; that is no loss, because what was made once is what counts. The host's name goes onto the
//! volumes: `unshare --uts sh -c 'hostname golden; cargo test ...'` keeps it out of them.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use capstan_catalog::{Database, Promise};
use capstan_director::{
    BackupRequest, BackupWatch, Config, InitOptions, Level, Loss, Retention, Shortfall, Site, Target,
};
use capstan_format::Algorithm;
use capstan_format::crc32c;
use capstan_mover::TreeOptions;
use zeroize::Zeroizing;

use super::site::{CLOCK, PASSPHRASE, fixtures, new_unlock, no_events};
use super::tree::{LARGE, change, describe, make};
use super::{CCM, GCM, PLAIN};

/// Where the source lies: its path goes onto the volumes.
const SOURCE: &str = "/tmp/golden/source";

/// A second later each time it is asked: an incremental stands on the latest object of its source, so there must be
/// one.
fn later() -> i64 {
    static SECONDS: AtomicI64 = AtomicI64::new(0);
    CLOCK() + SECONDS.fetch_add(1, Ordering::Relaxed) * 1_000_000_000
}

/// How a volume is written.
struct Recipe {
    name: &'static str,
    volser: &'static str,
    encryption: Option<Algorithm>,
    connections: u16,
    compression: i32,
}

const RECIPES: [Recipe; 3] = [
    Recipe { name: "plain", volser: PLAIN, encryption: None, connections: 1, compression: 1 },
    Recipe { name: "gcm", volser: GCM, encryption: Some(Algorithm::Aes256Gcm), connections: 2, compression: 1 },
    Recipe { name: "ccm", volser: CCM, encryption: Some(Algorithm::Aes256Ccm), connections: 1, compression: 0 },
];

/// A cartridge that was just written, and where on it things stand.
struct Written {
    bytes: Vec<u8>,
    /// Two blocks that hold nothing but the large file.
    large_lbns: [u64; 2],
    /// Blocks of the first backup, its filemark included.
    first_end_lbn: u64,
}

#[test]
#[ignore = "writes into testdata; for when a fixture is added"]
fn make_fixtures() {
    let directory = tempfile::tempdir().unwrap();
    let site = new_site(directory.path());
    let source = Path::new(SOURCE);
    let mut volumes = Vec::new();
    for recipe in &RECIPES {
        let _ = fs::remove_dir_all(source);
        fs::create_dir_all(source).unwrap();
        make(source);
        let full = describe(source);
        backup(&site, recipe, Level::Full);
        let first_end_lbn = site.catalog().volume(&recipe.volser.parse().unwrap()).unwrap().unwrap().end_of_data_lbn;
        change(source);
        let incremental = describe(source);
        backup(&site, recipe, Level::Incremental);
        keep("expected_full.txt", full.as_bytes());
        keep("expected_incremental.txt", incremental.as_bytes());
        let large_lbns = large_lbns(&site, recipe);
        let bytes = fs::read(site.library_dir().join("slots").join(format!("{}.tape", recipe.volser))).unwrap();
        volumes.push(Written { bytes, large_lbns, first_end_lbn });
    }
    let (export, _) = site.export_keys(&[], &Zeroizing::new(PASSPHRASE.to_owned())).unwrap();
    keep("keys.export", &export);
    for (recipe, volume) in RECIPES.iter().zip(&volumes) {
        keep(&format!("good_{}.tape", recipe.name), &volume.bytes);
    }
    let [plain, gcm, ccm] = &volumes[..] else { panic!("three recipes, three volumes") };
    keep("fail_truncated_plain.tape", &plain.truncated());
    keep("fail_flipped_data_plain.tape", &plain.flipped(plain.large_lbns[0]));
    keep("fail_flipped_data_gcm.tape", &gcm.flipped(gcm.large_lbns[0]));
    keep("fail_forged_data_ccm.tape", &ccm.forged(ccm.large_lbns[0]));
    keep("fail_swapped_blocks_plain.tape", &plain.swapped());
    keep("fail_swapped_blocks_gcm.tape", &gcm.swapped());
    keep("fail_flipped_label_plain.tape", &plain.flipped(0));
    keep("fail_flipped_label_ccm.tape", &ccm.flipped(0));
    let _ = fs::remove_dir_all(source);
}

/// Writes a fixture that is not there yet. All of them belong to one run: their keys and expectations do.
fn keep(name: &str, bytes: &[u8]) {
    let path = fixtures().join(name);
    if path.exists() && name.starts_with("expected_") {
        return;
    }
    assert!(!path.exists(), "{name} is there; what is there is never changed");
    fs::write(path, bytes).unwrap();
}

fn new_site(directory: &Path) -> Site {
    let path = directory.join("state");
    let mut config = Config::default();
    config.data.block_kib = 4;
    config.data.buffer_mib = 8;
    let unlock = new_unlock(directory);
    Site::init(&path, &InitOptions { config, encryption: None, database: Database::Sqlite }, Some(&unlock)).unwrap();
    let site = Site::open(&path, Some(&unlock), later, no_events()).unwrap();
    for recipe in &RECIPES {
        site.add_pool(recipe.name, recipe.encryption, None).unwrap();
        // For scratch: the pools take them from there in the order of their barcodes, and label each once.
        site.label(&recipe.volser.parse().unwrap(), None, Some(64 << 20), Loss::Refuse, Promise::Keep).unwrap();
    }
    site
}

fn backup(site: &Site, recipe: &Recipe, level: Level) {
    let request = BackupRequest {
        sources: vec![PathBuf::from(SOURCE)],
        stream: None,
        pool: recipe.name.to_owned(),
        policy: recipe.name.to_owned(),
        retention: Retention::OfPool,
        is_locked: false,
        connections: recipe.connections,
        copies: 1,
        drives: 1,
        drives_by_need: false,
        level,
        full_every_ns: None,
        tree: TreeOptions::default(),
        target: Target::Pool,
        compression: Some(recipe.compression),
        count_first: false,
        shortfall: Shortfall::Fail,
        tags: Vec::new(),
        waits_for_writer: false,
        session: None,
        run: None,
        bandwidth: None,
        network: None,
    };
    let report = site.backup(&request, &BackupWatch::default()).unwrap();
    assert!(report.sources.iter().all(|source| source.report.as_ref().is_ok_and(|read| read.problems.is_empty())));
}

fn large_lbns(site: &Site, recipe: &Recipe) -> [u64; 2] {
    let catalog = site.catalog();
    let path = [SOURCE.trim_start_matches('/'), "/", LARGE].concat().into_bytes();
    let full = catalog.objects_on(&recipe.volser.parse().unwrap()).unwrap().into_iter().find(|o| o.base.is_none());
    let full = full.unwrap();
    let entry = catalog.index(full.id).unwrap().get(&path).unwrap().unwrap();
    let chunk_len = u64::from(full.chunk_len);
    // Behind the headers and the block that they share with the file before.
    let offset = (entry.offset + 2048).next_multiple_of(chunk_len);
    assert!(offset + 2 * chunk_len <= entry.offset + entry.member_len, "the large file fills no two blocks");
    let extents = catalog.extents(full.id, None).unwrap();
    let [first, second] = [offset, offset + chunk_len].map(|offset| {
        let holds = |extent: &&capstan_catalog::Extent| {
            let record = &extent.record;
            record.connection == entry.connection && (record.offset..record.offset + record.plain_len).contains(&offset)
        };
        let record = &extents.iter().find(holds).unwrap().record;
        record.first_lbn + (offset - record.offset) / chunk_len
    });
    [first, second]
}

/// Damage, done to the bytes of a cartridge as docs/FORMAT.md describes them.
impl Written {
    const RECORD_HEADER_LEN: usize = 36;

    /// Where the record header of a block stands, and its stored bytes.
    fn record(&self, lbn: u64) -> (usize, Range<usize>) {
        let mut at = 4096;
        for _ in 0..lbn {
            at = self.stored(at).end;
        }
        (at, self.stored(at))
    }

    fn stored(&self, header_at: usize) -> Range<usize> {
        let field = self.bytes[header_at + 24..header_at + 28].first_chunk().unwrap();
        let begin = header_at + Self::RECORD_HEADER_LEN;
        begin..begin + u32::from_le_bytes(*field) as usize
    }

    /// In the middle of the block behind the first backup's second successor.
    fn truncated(&self) -> Vec<u8> {
        let (_, stored) = self.record(self.first_end_lbn + 2);
        self.bytes[..(stored.start + stored.end) / 2].to_vec()
    }

    fn flipped(&self, lbn: u64) -> Vec<u8> {
        let (_, stored) = self.record(lbn);
        let mut bytes = self.bytes.clone();
        bytes[(stored.start + stored.end) / 2] ^= 0x10;
        bytes
    }

    /// Flipped, and the record's checksum made right.
    fn forged(&self, lbn: u64) -> Vec<u8> {
        let (header_at, stored) = self.record(lbn);
        let mut bytes = self.flipped(lbn);
        mend(&mut bytes, header_at, stored);
        bytes
    }

    /// Two blocks of the large file in each other's place, as a drive leaves them that positioned wrong.
    fn swapped(&self) -> Vec<u8> {
        let [(first_at, first), (second_at, second)] = self.large_lbns.map(|lbn| self.record(lbn));
        let mut bytes = self.bytes.clone();
        if first.len() == second.len() {
            bytes[first.clone()].copy_from_slice(&self.bytes[second.clone()]);
            bytes[second.clone()].copy_from_slice(&self.bytes[first.clone()]);
        } else {
            panic!("noise that was not compressed has blocks of one length");
        }
        mend(&mut bytes, first_at, first);
        mend(&mut bytes, second_at, second);
        bytes
    }
}

/// Makes both checksums of a record header right.
fn mend(bytes: &mut [u8], header_at: usize, stored: Range<usize>) {
    let data_crc = crc32c(&bytes[stored]);
    bytes[header_at + 28..header_at + 32].copy_from_slice(&data_crc.to_le_bytes());
    let mut checked = bytes[header_at..header_at + 32].to_vec();
    checked.extend_from_slice(&(header_at as u64).to_le_bytes());
    let crc = crc32c(&checked);
    bytes[header_at + 32..header_at + 36].copy_from_slice(&crc.to_le_bytes());
}
