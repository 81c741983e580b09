//! Volumes whose every checksum is right and whose catalog parts lie.

use std::path::Path;
use std::sync::Arc;

use capstan_catalog::{Database, ObjectFilter};
use capstan_director::{Config, InitOptions, Place, RebuildOptions, Site, rebuild};
use capstan_format::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, CatalogPart, Checkpoint, Compression, EntryEncoder, EntryFlags,
    EntryKind, FileEntry, ObjectId, ObjectKind, ObjectRecord, ObjectState, SessionId, SessionRecord, Volser,
    VolumeHeader, VolumeId,
};
use capstan_keys::create_key_file;
use capstan_mover::write_label;
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, Flush, KeySlotKind};

const CLOCK: fn() -> i64 = || 1_790_000_000_000_000_000;
const VOLUME: VolumeId = VolumeId(1);

fn file(path: &str, offset: u64) -> FileEntry {
    FileEntry {
        path: path.into(),
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
        offset,
        member_len: 512,
        link: Vec::new(),
    }
}

/// A complete object of one file.
fn part(object: ObjectId, entry: &FileEntry) -> CatalogPart {
    let record = ObjectRecord {
        object,
        source: b"/source".to_vec(),
        client: "host".to_owned(),
        policy: String::new(),
        kind: ObjectKind::Tree,
        state: ObjectState::Complete,
        base: None,
        copy: 1,
        chunk_len: 4096,
        started_ns: 1,
        ended_ns: 2,
        expires_ns: 0,
        is_locked: false,
        consolidates: None,
        tags: Vec::new(),
    };
    let mut run = EntryEncoder::new();
    run.push(entry);
    CatalogPart { objects: vec![record], entries: vec![(object, run.finish())], ..CatalogPart::default() }
}

fn put(drive: &mut dyn Drive, kind: BlockKind, payload: &[u8]) {
    let header = BlockHeader {
        kind,
        compression: Compression::None,
        last: false,
        connection: 0,
        volume: VOLUME,
        session: SessionId(1),
        object: ObjectId([0; 16]),
        sequence: 0,
        stored_len: payload.len() as u32,
        offset: 0,
        plain_len: payload.len() as u32,
    };
    let mut block = [&[0; BLOCK_HEADER_LEN][..], payload].concat();
    header.seal(&mut block);
    drive.write_block(&block).unwrap();
}

/// A plain volume with one checkpoint for each part.
fn write_volume(path: &Path, volser: &Volser, parts: &[CatalogPart]) {
    let (capacity_bytes, early_warning_bytes) = (16 << 20, 1 << 20);
    let spec =
        CartridgeSpec { volser: volser.clone(), capacity_bytes, early_warning_bytes, generation: "virtual".to_owned() };
    spec.create(path).unwrap();
    let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Missing);
    drive.load().unwrap();
    let (volser, pool) = (volser.clone(), "default".to_owned());
    let label = VolumeHeader { volume: VOLUME, volser, labelled_ns: 1, pool, block_len_max: 1 << 16, recycled: 0 };
    write_label(&mut drive, &label).unwrap();
    let session = SessionRecord { started_ns: 1, host: "host".to_owned(), software: "capstan".to_owned() };
    put(&mut drive, BlockKind::Session, &session.encode());
    let mut previous_lbn = 0;
    for (number, part) in (1..).zip(parts) {
        let part_lbn = drive.position().unwrap().lbn;
        let part = part.encode();
        put(&mut drive, BlockKind::Catalog, &part);
        let checkpoint = Checkpoint {
            number,
            previous_lbn,
            part_lbn,
            part_blocks: 1,
            part_len: part.len() as u64,
            closed: false,
            written_ns: 1,
        };
        previous_lbn = drive.position().unwrap().lbn;
        put(&mut drive, BlockKind::Checkpoint, &checkpoint.encode());
        drive.write_filemarks(1, Flush::Synchronous).unwrap();
    }
    drive.unload().unwrap();
}

/// A member that ended beyond 64 bits was taken into the catalog, and every plan that had to do with its object
/// panicked. Then it was refused, and the rebuild gave up the volume with it: the checkpoints before it, which were
/// good, were lost.
#[test]
fn a_refused_checkpoint_costs_none_of_those_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let unlock = create_key_file(&directory.path().join("key")).unwrap();
    Site::init(
        &state,
        &InitOptions { config: Config::default(), encryption: None, database: Database::Sqlite },
        Some(&unlock),
    )
    .unwrap();
    let volser = Volser::new("H00001").unwrap();
    let (good, hostile) = (ObjectId([1; 16]), ObjectId([2; 16]));
    let parts = [part(good, &file("source/file", 0)), part(hostile, &file("source/far", u64::MAX))];
    write_volume(&state.join("library/slots/H00001.tape"), &volser, &parts);

    let report = rebuild(
        &state,
        Some(&unlock),
        CLOCK,
        Arc::new(|_| ()),
        &RebuildOptions { discard_old: true, ..RebuildOptions::default() },
    )
    .unwrap();
    let [(found, problem)] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert!(*found == volser && problem.contains("reaches further than any stream"), "{problem}");

    let site = Site::open(&state, Some(&unlock), CLOCK, Arc::new(|_| ())).unwrap();
    let objects = site.catalog().objects(&ObjectFilter::default()).unwrap();
    assert_eq!(objects.iter().map(|object| object.id).collect::<Vec<_>>(), [good]);
    let plan = site.plan_restore(&[Place { object: good, paths: Vec::new() }]).unwrap();
    assert_eq!(plan.members, 1);
}
