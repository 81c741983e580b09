//! Measures the catalog on a real tree: bytes a file version by column, rows a second, time of a directory listing.
//!
//! ```text
//! cargo run --release -p capstan-catalog --example measure -- /usr [COPIES] [hash|time] [keep]
//! ```
//! The tree is walked and not read: in place of each file's CRC32C stands a hash of its path, which compresses as
//! badly. The change fingerprint is a hash of 32 bits, or 24 bits of the change time and 8 of a hash (the default).
//! With `COPIES` the tree is recorded that many times, under numbered directories, to see how times grow.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use capstan_catalog::{Catalog, CheckpointSeen, Volume, VolumeState};
use capstan_format::{
    CatalogPart, Checkpoint, EntryEncoder, EntryFlags, EntryKind, FileEntry, ObjectId, ObjectKind, ObjectRecord,
    ObjectState, SessionId, Volser, VolumeId,
};
use parquet::file::reader::{FileReader, SerializedFileReader};

const CONNECTIONS: u16 = 4;
/// Entries of a checkpoint.
const CHECKPOINT_ENTRIES: usize = 100_000;

/// How the change fingerprint of an entry is made.
#[derive(Clone, Copy)]
enum Fingerprint {
    Hash,
    Time,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = arguments.first().map_or("/usr", String::as_str);
    let copies: u32 = arguments.get(1).map_or(Ok(1), |copies| copies.parse())?;
    let fingerprint = match arguments.get(2).map(String::as_str) {
        Some("hash") => Fingerprint::Hash,
        _ => Fingerprint::Time,
    };
    let dir = &std::env::temp_dir().join(format!("capstan-measure-{}", std::process::id()));

    let mut tree = Vec::new();
    walk(Path::new(root), fingerprint, &mut tree);
    println!("{} entries below {root}, recorded {copies} time(s)", tree.len());

    let mut catalog = Catalog::open(dir)?;
    let volser = Volser::new("A00001L9")?;
    let volume = VolumeId(1);
    catalog.put_volume(&Volume { id: Some(volume), state: VolumeState::Filling, ..Volume::blank(volser.clone()) })?;
    let object = ObjectId([1; 16]);
    let rows = tree.len() as u64 * u64::from(copies);
    let (mut number, mut recording, mut pieces_len) = (0, 0.0, 0);
    let mut ends = [0u64; CONNECTIONS as usize];
    for copy in 0..copies {
        for chunk in tree.chunks(CHECKPOINT_ENTRIES) {
            let mut encoder = EntryEncoder::new();
            for entry in chunk {
                let mut entry = entry.clone();
                if copies > 1 {
                    let path = format!("copy{copy:04}/").into_bytes();
                    entry.path = [path, entry.path].concat();
                    entry.change ^= hash((entry.change, copy)) & 0xff;
                    entry.crc = if entry.crc == 0 { 0 } else { hash((entry.crc, copy)) };
                }
                let end = &mut ends[usize::from(entry.connection)];
                entry.offset = *end;
                *end += entry.member_len;
                encoder.push(&entry);
            }
            let run = encoder.finish();
            pieces_len += run.len();
            number += 1;
            let last = number == (tree.len().div_ceil(CHECKPOINT_ENTRIES) * copies as usize) as u64;
            let part = CatalogPart {
                objects: vec![record(object, last)],
                entries: vec![(object, run)],
                ..CatalogPart::default()
            };
            let checkpoint = Checkpoint {
                number,
                previous_lbn: 0,
                part_lbn: number,
                part_blocks: 1,
                part_len: 1,
                closed: last,
                written_ns: 1,
            };
            let seen = CheckpointSeen {
                volser: &volser,
                volume,
                session: SessionId(1),
                session_record: None,
                lbn: number,
                checkpoint: &checkpoint,
                part: &part,
            };
            let begun = Instant::now();
            catalog.record_checkpoint(&seen)?;
            recording += begun.elapsed().as_secs_f64();
        }
    }
    println!(
        "record   {:9.0} rows/s, {:.1} bytes a row on tape",
        rows as f64 / recording,
        pieces_len as f64 / rows as f64
    );
    let begun = Instant::now();
    let index = catalog.index(object)?;
    println!("pending  {:9.0} rows/s to open, {} rows", rows as f64 / begun.elapsed().as_secs_f64(), index.len());
    drop(index);
    let (begun, busy_before) = (Instant::now(), busy());
    let counts = catalog.seal_index(object)?;
    let (wall, processor) = (begun.elapsed().as_secs_f64(), busy() - busy_before);
    println!("seal     {:9.0} rows/s, {:.0} a second of processor time", rows as f64 / wall, rows as f64 / processor);
    sizes(&dir.join(format!("index/{object}.1.parquet")), counts.entries)?;

    let begun = Instant::now();
    let read =
        catalog.index(object)?.iter().filter(|entry| entry.as_ref().is_ok_and(|entry| entry.size < u64::MAX)).count();
    println!("iterate  {:9.0} rows/s", read as f64 / begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let found = catalog.index(object)?.find(&|path| path.ends_with(b".conf")).count();
    println!("find     {:9.0} rows/s, {found} found", read as f64 / begun.elapsed().as_secs_f64());

    listings(&catalog, object, &tree, copies)?;
    match arguments.get(3).map(String::as_str) {
        Some("keep") => println!("the catalog stays in {}", dir.display()),
        _ => fs::remove_dir_all(dir)?,
    }
    Ok(())
}

/// Lists directories from all over the tree.
fn listings(catalog: &Catalog, object: ObjectId, tree: &[FileEntry], copies: u32) -> Result<(), Box<dyn Error>> {
    let dirs: Vec<&FileEntry> = tree.iter().filter(|entry| entry.kind == EntryKind::Directory).collect();
    let mut times: Vec<(f64, f64, usize)> = Vec::new();
    for step in 0..200 {
        let dir = &dirs[step * dirs.len() / 200];
        let prefix = if copies > 1 { format!("copy{:04}/", step as u32 % copies) } else { String::new() };
        let path = [prefix.as_bytes(), &dir.path].concat();
        let begun = busy();
        let index = catalog.index(object)?;
        let opened = busy() - begun;
        let rows = index.children(&path).count();
        times.push((busy() - begun, opened, rows));
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "listing  median {:.1} ms, worst {:.1} ms ({} rows) of processor time, of it {:.2} ms to open the index",
        median.0 * 1e3,
        worst.0 * 1e3,
        worst.2,
        median.1 * 1e3
    );
    Ok(())
}

fn sizes(path: &Path, rows: u64) -> Result<(), Box<dyn Error>> {
    let file = fs::File::open(path)?;
    let len = file.metadata()?.len();
    let reader = SerializedFileReader::new(file)?;
    let mut columns: Vec<(String, i64)> = Vec::new();
    for group in reader.metadata().row_groups() {
        for (at, column) in group.columns().iter().enumerate() {
            if columns.len() <= at {
                columns.push((column.column_path().string(), 0));
            }
            columns[at].1 += column.compressed_size();
        }
    }
    for (name, size) in columns {
        println!("  {name:<12} {:7.3} bytes a row", size as f64 / rows as f64);
    }
    println!("  {:<12} {:7.3} bytes a row, {len} in all", "file", len as f64 / rows as f64);
    Ok(())
}

fn record(object: ObjectId, last: bool) -> ObjectRecord {
    ObjectRecord {
        object,
        source: b"/usr".to_vec(),
        client: "here".to_owned(),
        policy: String::new(),
        kind: ObjectKind::Tree,
        state: if last { ObjectState::Complete } else { ObjectState::Open },
        base: None,
        copy: 1,
        chunk_len: 1 << 20,
        started_ns: 1,
        ended_ns: i64::from(last),
        expires_ns: 0,
        is_locked: false,
        consolidates: None,
        tags: Vec::new(),
    }
}

/// Processor time of this process so far, in seconds.
fn busy() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn hash(value: impl Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish() as u32
}

fn walk(path: &Path, fingerprint: Fingerprint, out: &mut Vec<FileEntry>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    let kind = match metadata.mode() & 0o170_000 {
        0o040_000 => EntryKind::Directory,
        0o120_000 => EntryKind::Symlink,
        0o100_000 => EntryKind::File,
        _ => EntryKind::Fifo,
    };
    let mtime_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
    let bytes = path.as_os_str().as_bytes();
    // A tar header, and a pax header with its records where the time has a fraction or the path is long.
    let headers = if metadata.mtime_nsec() != 0 || bytes.len() > 100 { 512 + 1024 } else { 512 };
    let size = if kind == EntryKind::Directory { 0 } else { metadata.size() };
    let content = if kind == EntryKind::File { size.div_ceil(512) * 512 } else { 0 };
    out.push(FileEntry {
        path: bytes[1..].to_vec(),
        kind,
        flags: EntryFlags::default(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        size,
        mtime_ns,
        change: match fingerprint {
            Fingerprint::Hash => hash((metadata.ctime(), metadata.ctime_nsec(), metadata.ino())),
            Fingerprint::Time => (metadata.ctime() as u32) << 8 | hash((metadata.ctime_nsec(), metadata.ino())) & 0xff,
        },
        crc: if kind == EntryKind::File && size > 0 { hash(bytes) } else { 0 },
        connection: (hash(path.parent()) % u32::from(CONNECTIONS)) as u16,
        offset: 0,
        member_len: headers + content,
        link: Vec::new(),
    });
    if kind != EntryKind::Directory {
        return;
    }
    let Ok(names) = fs::read_dir(path) else { return };
    let mut names: Vec<_> = names.filter_map(|entry| Some(entry.ok()?.file_name().into_vec())).collect();
    names.sort();
    for name in names {
        walk(&path.join(std::ffi::OsStr::from_bytes(&name)), fingerprint, out);
    }
}
