//! Measures the catalog of a large cell: checkpoints of eight movers, sealing, and searches among all files.
//!
//! ```text
//! cargo run --release -p capstan-director --example many_files -- DIR OBJECTS ENTRIES
//!
//! OBJECTS x ENTRIES made up paths --record_checkpoint--> pieces --seal_index--> index files --find, ls--> times
//! ```
//! `CAPSTAN_DATABASE` names a PostgreSQL database; otherwise the tables are in SQLite. The floors are those of
//! docs/PERFORMANCE.md.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use capstan_catalog::{Catalog, CheckpointSeen, Database, Volume, VolumeState};
use capstan_director::{Config, FileSearch, InitOptions, PathPattern, Searched, SearchedFor, Site, path_pattern};
use capstan_format::{
    CatalogPart, Checkpoint, EntryEncoder, EntryFlags, EntryKind, FileEntry, ObjectId, ObjectKind, ObjectRecord,
    ObjectState, SessionId, Volser, VolumeId,
};
use capstan_keys::{Unlock, create_key_file};

const MOVERS: u32 = 8;
/// Entries of a checkpoint.
const CHECKPOINT_ENTRIES: u32 = 100_000;
/// Checkpoints that each mover brings while they are counted; they are made before.
const CHECKPOINTS_COUNTED: u32 = 6;
/// Files of a directory.
const FILES_OF_DIRECTORY: u32 = 40;
/// Directories that are listed, and names that are looked for.
const LISTED: u32 = 500;
const LOOKED_FOR: u32 = 20;
/// One file among all.
const NEEDLE: &str = "quarterly-zebra-figures.xlsx";
const WORDS: [&str; 32] = [
    "account", "backup", "budget", "catalog", "client", "contract", "customer", "design", "draft", "export", "figure",
    "helper", "image", "index", "invoice", "journal", "kernel", "letter", "manual", "module", "network", "notes",
    "office", "order", "photo", "project", "report", "sample", "server", "summary", "ticket", "video",
];
const ENDINGS: [&str; 12] = ["txt", "pdf", "docx", "jpg", "rs", "py", "html", "xlsx", "json", "so", "log", "conf"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, objects, entries] = &arguments[..] else { return Err("many_files DIR OBJECTS ENTRIES".into()) };
    let (dir, objects, entries): (&Path, u32, u32) = (Path::new(dir), objects.parse()?, entries.parse()?);
    let database = match std::env::var("CAPSTAN_DATABASE") {
        Ok(url) => url.parse()?,
        Err(_) => Database::Sqlite,
    };
    let state = dir.join("state");
    let unlock = create_key_file(&dir.join("key"))?;
    Site::init(&state, &InitOptions { config: Config::default(), encryption: None, database }, Some(&unlock))?;
    let site = open(&state, &unlock)?;
    let catalog_dir = site.catalog().dir().to_owned();

    counted(&catalog_dir)?;
    fill(&catalog_dir, objects, entries)?;
    listings(&site, objects, entries)?;
    searches(&site, objects, entries)
}

fn open(state: &Path, unlock: &Unlock) -> Result<Site, Box<dyn Error>> {
    let now_ns = || 1_800_000_000_000_000_000;
    Ok(Site::open(state, Some(unlock), now_ns, Arc::new(|_| {}))?)
}

/// A row of the table.
fn row(what: &str, measured: f64, unit: &str, floor: f64, is_at_least: bool) {
    let is_met = if is_at_least { measured >= floor } else { measured <= floor };
    let bound = if is_at_least { "at least" } else { "at most" };
    let verdict = if is_met { "pass" } else { "**missed**" };
    println!("| {what} | {measured:.3} {unit} | {bound} {floor} {unit} | {verdict} |");
}

/// Checkpoints of eight movers at the same time, into one catalog as a server has it. They are made before, as movers
/// make them.
fn counted(dir: &Path) -> Result<(), Box<dyn Error>> {
    let mut catalog = Catalog::open(dir)?;
    let mut made = Vec::new();
    for mover in 0..MOVERS {
        let volser = Volser::new(&format!("M{mover:05}"))?;
        let (volume, object) = (VolumeId(u64::from(mover) + 1), object_of(1_000_000 + mover));
        catalog.put_volume(&Volume {
            id: Some(volume),
            state: VolumeState::Filling,
            ..Volume::blank(volser.clone())
        })?;
        let parts: Vec<_> = (0..CHECKPOINTS_COUNTED)
            // It goes on, and is not searched below.
            .map(|number| part(object, mover, number, CHECKPOINT_ENTRIES, CHECKPOINTS_COUNTED + 1))
            .collect();
        made.push((volser, volume, parts));
    }
    let catalog = Mutex::new(catalog);
    let begun = Instant::now();
    thread::scope(|scope| {
        for (volser, volume, parts) in &made {
            let catalog = &catalog;
            scope.spawn(move || {
                for (number, part) in parts.iter().enumerate() {
                    record(&mut catalog.lock().unwrap(), (volser, *volume), number as u64 + 1, part);
                }
            });
        }
    });
    let entries = f64::from(MOVERS * CHECKPOINTS_COUNTED * CHECKPOINT_ENTRIES);
    let rate = entries / begun.elapsed().as_secs_f64() / 1e6;
    row("checkpoints of 8 movers taken in: million entries a second", rate, "", 1.0, true);
    Ok(())
}

/// Records all objects and seals them, by as many threads as there are processors.
fn fill(dir: &Path, objects: u32, entries: u32) -> Result<(), Box<dyn Error>> {
    let (volser, volume) = (Volser::new("A00001")?, VolumeId(100));
    let state = VolumeState::Filling;
    Catalog::open(dir)?.put_volume(&Volume { id: Some(volume), state, ..Volume::blank(volser.clone()) })?;
    let (next, lbn) = (AtomicU32::new(0), Mutex::new(0u64));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let begun = Instant::now();
    let sealing: f64 = thread::scope(|scope| {
        let works = || {
            let (mut catalog, mut sealing) = (Catalog::open(dir).unwrap(), 0.0);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= objects {
                    return sealing;
                }
                let object = object_of(number);
                let checkpoints = entries.div_ceil(CHECKPOINT_ENTRIES);
                for checkpoint in 0..checkpoints {
                    let len = CHECKPOINT_ENTRIES.min(entries - checkpoint * CHECKPOINT_ENTRIES);
                    let part = part(object, number, checkpoint, len, checkpoints);
                    let mut lbn = lbn.lock().unwrap();
                    *lbn += 1;
                    record(&mut catalog, (&volser, volume), *lbn, &part);
                }
                let begun = Instant::now();
                catalog.seal_index(object).unwrap();
                sealing += begun.elapsed().as_secs_f64();
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(works)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let all = f64::from(objects) * f64::from(entries);
    let stored: u64 =
        std::fs::read_dir(dir.join("index"))?.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
    println!(
        "| {all} entries of {objects} objects made up, recorded and sealed | {:.0} s | | |",
        begun.elapsed().as_secs_f64()
    );
    println!("| bytes of index files, an entry | {:.2} | | |", stored as f64 / all);
    // Each thread seals beside the others, which make entries up and record them.
    let rate = all / (sealing / threads as f64) / 1e6;
    row("sealed beside that: million entries a second", rate, "", 1.0, true);
    Ok(())
}

fn record(catalog: &mut Catalog, (volser, volume): (&Volser, VolumeId), lbn: u64, part: &CatalogPart) {
    let checkpoint = Checkpoint {
        number: lbn,
        previous_lbn: 0,
        part_lbn: lbn,
        part_blocks: 1,
        part_len: 1,
        closed: false,
        written_ns: 1,
    };
    let seen = CheckpointSeen {
        volser,
        volume,
        session: SessionId(1),
        session_record: None,
        lbn,
        checkpoint: &checkpoint,
        part,
    };
    catalog.record_checkpoint(&seen).unwrap();
}

/// A checkpoint of an object: so many entries.
fn part(object: ObjectId, seed: u32, number: u32, entries: u32, of: u32) -> CatalogPart {
    let mut encoder = EntryEncoder::new();
    let mut end = u64::from(number) << 40;
    for at in 0..entries {
        let row = number * CHECKPOINT_ENTRIES + at;
        let mut entry = entry(seed, row);
        entry.offset = end;
        end += entry.member_len;
        encoder.push(&entry);
    }
    let state = if number + 1 == of { ObjectState::Complete } else { ObjectState::Open };
    let record = ObjectRecord {
        object,
        source: format!("/srv{seed}").into_bytes(),
        client: format!("host{:03}", seed % 200),
        policy: String::new(),
        kind: ObjectKind::Tree,
        state,
        base: None,
        copy: 1,
        chunk_len: 1 << 20,
        started_ns: 1 + i64::from(seed),
        ended_ns: i64::from(number + 1 == of),
        expires_ns: 0,
        is_locked: false,
        consolidates: None,
        tags: Vec::new(),
    };
    CatalogPart { objects: vec![record], entries: vec![(object, encoder.finish())], ..CatalogPart::default() }
}

fn object_of(number: u32) -> ObjectId {
    let mut id = [7; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    ObjectId(id)
}

/// A number that is drawn from two others.
fn drawn(seed: u32, at: u32) -> u64 {
    let mixed = (u64::from(seed) << 32 | u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

/// The directory of a row.
fn directory(seed: u32, row: u32) -> String {
    let number = row / FILES_OF_DIRECTORY;
    let draw = drawn(seed ^ 0xd1e5, number);
    let word = |shift: u32| WORDS[(draw >> shift) as usize % WORDS.len()];
    format!("srv{seed}/{}/{}-{number:05}/{}", word(0), word(8), word(16))
}

fn name(seed: u32, row: u32) -> String {
    if (seed, row) == (1, 4_321) {
        return NEEDLE.to_owned();
    }
    let draw = drawn(seed, row);
    let word = |shift: u32| WORDS[(draw >> shift) as usize % WORDS.len()];
    let ending = ENDINGS[(draw >> 40) as usize % ENDINGS.len()];
    match draw >> 60 {
        0..4 => format!("IMG_2{:03}{:04}_{:06}.jpg", draw % 30, (draw >> 5) % 1232, (draw >> 16) % 240_000),
        4..8 => format!("{}_{}.{ending}", word(0), word(8)),
        8..12 => format!("{}-{:04}.{ending}", word(0), draw % 10_000),
        12..14 => format!("{:016x}.{ending}", drawn(row, seed)),
        _ => format!("{}-{}-{}.{ending}", word(0), word(8), row % FILES_OF_DIRECTORY),
    }
}

fn entry(seed: u32, row: u32) -> FileEntry {
    let draw = drawn(seed ^ 0x517e, row);
    let size = draw % 200_000;
    FileEntry {
        path: format!("{}/{}", directory(seed, row), name(seed, row)).into_bytes(),
        kind: EntryKind::File,
        flags: EntryFlags(0),
        mode: 0o644,
        uid: 1000 + (draw % 5) as u32,
        gid: 1000,
        size,
        mtime_ns: 1_700_000_000_000_000_000 + (draw >> 20) as i64 % 31_536_000 * 1_000_000_000,
        change: (draw >> 8) as u32,
        crc: (draw >> 30) as u32,
        connection: 0,
        offset: 0,
        member_len: 512 + ((size + 511) & !511),
        link: Vec::new(),
    }
}

/// Directories from all over, as `ls` lists them.
fn listings(site: &Site, objects: u32, entries: u32) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for step in 0..LISTED {
        let number = drawn(step, 1) as u32 % objects;
        let path = directory(number, drawn(step, 2) as u32 % entries);
        let object = site.catalog().object(object_of(number))?.ok_or("an object is gone")?;
        let begun = Instant::now();
        let found = site.list_files(&object, path.as_bytes(), false, None)?.count();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        assert!(found > 0, "{path} is empty");
    }
    times.sort_by(f64::total_cmp);
    row("a directory listed, p99", times[times.len() * 99 / 100], "ms", 100.0, false);
    Ok(())
}

/// Looks for files in all objects; gives how many there are, and the seconds it took.
fn search(site: &Site, glob: &str) -> Result<(usize, f64), Box<dyn Error>> {
    let PathPattern { matches, parts } = path_pattern(glob)?;
    let search = FileSearch {
        wanted: SearchedFor::Matching(&*matches, &parts),
        searched: Searched::Versions,
        client: None,
        is_of: &|_| true,
        with_open: false,
        after: None,
        is_over: &|| false,
        threads: 8,
    };
    let (mut found, begun) = (0, Instant::now());
    let end = site.search_files(&search, &mut |_, _| {
        found += 1;
        ControlFlow::Continue(())
    })?;
    assert!(end.damaged.is_empty() && end.next.is_none());
    Ok((found, begun.elapsed().as_secs_f64()))
}

fn searches(site: &Site, objects: u32, entries: u32) -> Result<(), Box<dyn Error>> {
    let one = |glob: &str, floor: f64| -> Result<(), Box<dyn Error>> {
        let (found, took) = search(site, glob)?;
        assert!(found > 0, "{glob} is not found");
        row(&format!("`find '{glob}'`: {found} found"), took, "s", floor, false);
        Ok(())
    };
    one(NEEDLE, 1.0)?;
    let mut times: Vec<(f64, String, usize)> = Vec::new();
    for step in 0..LOOKED_FOR {
        let seed = drawn(step, 3) as u32 % objects;
        let name = name(seed, drawn(step, 4) as u32 % entries);
        let (found, took) = search(site, &name)?;
        times.push((took, name, found));
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, (slowest, name, found)) = (times[times.len() / 2].0, &times[times.len() - 1]);
    row(&format!("{LOOKED_FOR} names that there are, drawn: the middle one"), median, "s", 1.0, false);
    println!("| the slowest of them, `{name}`: {found} found | {slowest:.3} s | | |");
    one("quarterly-z*", 2.0)?;
    one("IMG_20191*", 2.0)?;
    one("*zebra*", 10.0)?;
    one("*z?b?a*", 10.0)?;
    one("**/journal-*/*/account-*.so", 10.0)
}
