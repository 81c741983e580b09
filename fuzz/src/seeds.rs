//! What the corpora begin with: valid encodings made by the product itself, and attacks made by hand.
//!
//! `cargo test -p capstan-fuzz -- --ignored write_seeds` puts them into `fuzz/corpus/`. Run it when the format has grown,
//! then `cargo +nightly fuzz cmin TARGET`, and commit what is left.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;
use std::sync::Arc;

use capstan_director::{BackupRequest, BackupWatch, Config, InitOptions, Level, Shortfall, Site, Target, TreeOptions};
use capstan_format::pax::{self, DataExtent, Member};
use capstan_format::{
    Algorithm, BLOCK_HEADER_LEN, BlockHeader, BlockKind, CatalogPart, Checkpoint, Compression, EntryEncoder,
    EntryFlags, EntryKind, Envelope, ExtentRecord, FileEntry, ObjectId, ObjectKind, ObjectRecord, ObjectState,
    PartRecord, SessionId, SessionRecord, Volser, VolumeHeader, VolumeId, vol1_encode,
};
use capstan_keys::{Argon2Cost, ExportSelection, SealedStore, Unlock, create_key_file};
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, DriveKey, Flush, KeySlotKind, ReadOutcome};

use crate::scratch;
use crate::script::VOLSER;

type Seeds = Vec<Vec<u8>>;

const VOLUME: VolumeId = VolumeId(0x0123_4567_89ab_cdef);
const OBJECT: ObjectId = ObjectId([7; 16]);
const NOW_NS: i64 = 1_790_000_000_123_456_789;
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 64, iterations: 1, lanes: 1 };

fn volser() -> Volser {
    Volser::new(VOLSER).unwrap()
}

fn volume_header(pool: &str) -> Vec<u8> {
    let (volume, labelled_ns, pool) = (VOLUME, NOW_NS, pool.to_owned());
    VolumeHeader { volume, volser: volser(), labelled_ns, pool, block_len_max: 1 << 20, recycled: 2 }.encode()
}

fn label() -> Seeds {
    let eight = Volser::new("A00012L9").unwrap();
    vec![vol1_encode(&volser()).to_vec(), vol1_encode(&eight).to_vec(), volume_header("default"), volume_header("")]
}

fn sealed(kind: BlockKind, compression: Compression, last: bool, plain: &[u8]) -> Vec<u8> {
    let stored = match compression {
        Compression::None => plain.to_vec(),
        Compression::Zstd => zstd::bulk::compress(plain, 1).unwrap(),
    };
    let header = BlockHeader {
        kind,
        compression,
        last,
        connection: 1,
        volume: VOLUME,
        session: SessionId(5),
        object: OBJECT,
        sequence: 0,
        stored_len: stored.len() as u32,
        offset: 0,
        plain_len: plain.len() as u32,
    };
    let mut block = vec![0; BLOCK_HEADER_LEN];
    block.extend_from_slice(&stored);
    header.seal(&mut block);
    block
}

fn block() -> Seeds {
    let envelope = |algorithm| {
        let mut bytes = Envelope { algorithm, mount_salt: [3; 11], counter: 9 }.encode().to_vec();
        bytes.extend_from_slice(&[0xa5; 40]);
        bytes
    };
    vec![
        sealed(BlockKind::Data, Compression::None, false, b"payload"),
        sealed(BlockKind::Data, Compression::Zstd, true, &[0; 1000]),
        sealed(BlockKind::Session, Compression::None, false, &session_record()),
        sealed(BlockKind::Catalog, Compression::Zstd, false, &catalog_part()),
        sealed(BlockKind::Checkpoint, Compression::None, false, &checkpoint()),
        envelope(Algorithm::Aes256Gcm),
        envelope(Algorithm::Aes256Ccm),
    ]
}

fn session_record() -> Vec<u8> {
    SessionRecord { started_ns: NOW_NS, host: "mover-1".to_owned(), software: "capstan 0.1.0".to_owned() }.encode()
}

fn checkpoint() -> Vec<u8> {
    let (number, previous_lbn, part_lbn, part_blocks, part_len) = (2, 7, 12, 1, 400);
    Checkpoint { number, previous_lbn, part_lbn, part_blocks, part_len, closed: true, written_ns: NOW_NS }.encode()
}

fn entries() -> Vec<u8> {
    let mut encoder = EntryEncoder::new();
    let kinds = [
        ("a", EntryKind::Directory),
        ("a/file", EntryKind::File),
        ("a/file.link", EntryKind::HardLink),
        ("a/name", EntryKind::Symlink),
        ("b/old", EntryKind::Deleted),
    ];
    for (number, (path, kind)) in (0..).zip(kinds) {
        encoder.push(&FileEntry {
            path: path.into(),
            kind,
            flags: EntryFlags::GREW.with(EntryFlags::SPARSE),
            mode: 0o644,
            uid: 1000,
            gid: 100,
            size: 5,
            mtime_ns: NOW_NS - number,
            change: 1,
            crc: 2,
            connection: 1,
            offset: 1024 * number as u64,
            member_len: 1024,
            link: if kind == EntryKind::HardLink { b"a/file".to_vec() } else { Vec::new() },
        });
    }
    encoder.finish()
}

fn catalog_part() -> Vec<u8> {
    let object = ObjectRecord {
        object: OBJECT,
        source: b"/srv/data".to_vec(),
        client: "host".to_owned(),
        policy: "nightly".to_owned(),
        kind: ObjectKind::Tree,
        state: ObjectState::Complete,
        base: Some(ObjectId([6; 16])),
        copy: 1,
        chunk_len: 1 << 18,
        started_ns: NOW_NS,
        ended_ns: NOW_NS + 1,
        expires_ns: 0,
    };
    let extent = ExtentRecord {
        object: OBJECT,
        connection: 1,
        first_sequence: 0,
        first_lbn: 4,
        blocks: 3,
        offset: 0,
        plain_len: 700_000,
        stored_len: 300_000,
    };
    CatalogPart {
        objects: vec![object.clone(), ObjectRecord { base: None, state: ObjectState::Open, ..object }],
        parts: vec![PartRecord { object: OBJECT, connection: 1, valid_len: 699_392 }],
        extents: vec![extent],
        entries: vec![(OBJECT, entries())],
        continued_on: Some(volser()),
    }
    .encode()
}

fn session_trailer() -> Seeds {
    vec![session_record(), checkpoint(), catalog_part(), CatalogPart::default().encode(), entries()]
}

const PLAIN: Member<'_> = Member {
    path: b"file",
    kind: EntryKind::File,
    mode: 0o640,
    uid: 0,
    gid: 0,
    user: b"root",
    group: b"root",
    size: 0,
    mtime_ns: 1_700_000_000_000_000_000,
    link: b"",
    device: (0, 0),
    records: b"",
    extents: None,
};

fn put(stream: &mut Vec<u8>, member: &Member<'_>, content: &[u8]) {
    pax::encode(member, stream);
    stream.extend_from_slice(content);
    stream.resize(stream.len().next_multiple_of(pax::BLOCK_LEN), 0);
}

fn stream(members: &[(Member<'_>, &[u8])]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (member, content) in members {
        put(&mut stream, member, content);
    }
    stream
}

fn file<'a>(path: &'a [u8], content: &'a [u8]) -> (Member<'a>, &'a [u8]) {
    (Member { path, size: content.len() as u64, ..PLAIN }, content)
}

fn linked<'a>(kind: EntryKind, path: &'a [u8], link: &'a [u8]) -> (Member<'a>, &'a [u8]) {
    (Member { path, link, kind, ..PLAIN }, b"")
}

fn streams() -> Seeds {
    let directory = |path| (Member { path, kind: EntryKind::Directory, mode: 0o2750, ..PLAIN }, &b""[..]);
    let mut records = Vec::new();
    pax::put_attribute(&mut records, b"user.note", b"of value");
    pax::put_attribute(&mut records, b"user.odd=%name", b"");
    pax::put_attribute(
        &mut records,
        b"security.capability",
        &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    pax::put_record(&mut records, b"SCHILY.acl.access", b"user::rw-,user:1000:r--,group::r--,mask::r--,other::---");
    let attributes = Member { records: &records, size: 3, mode: 0o4755, uid: 1000, mtime_ns: -5, ..PLAIN };
    let extents = [DataExtent { offset: 4096, len: 3 }, DataExtent { offset: 1 << 33, len: 2 }];
    let sparse = Member { extents: Some(&extents), size: (1 << 33) + 512, ..PLAIN };
    let long = [b"a-directory-with-a-name/".repeat(12), b"file".to_vec()].concat();
    let device = |kind| (Member { path: b"device", kind, device: (1, 3), ..PLAIN }, &b""[..]);
    let mut ended = stream(&[file(b"a", b"a")]);
    ended.resize(ended.len() + 1024, 0);
    let mut gnu = stream(&[(Member { size: 9, ..PLAIN }, b"long/name"), file(b"x", b"y")]);
    gnu[156] = b'L';
    let mut global = stream(&[(Member { size: 11, ..PLAIN }, b"11 uid=123\n"), file(b"x", b"y")]);
    global[156] = b'g';
    vec![
        stream(&[directory(b"d"), directory(b"d/e"), file(b"d/e/f", b"content"), file(b"d/g", &[9; 1500])]),
        stream(&[(attributes, b"abc"), file("d/\u{e4}\u{ff}".as_bytes(), b"")]),
        stream(&[(sparse, b"abcde")]),
        stream(&[file(&long, b"x"), file(b"\xff\xfe", b"not UTF-8")]),
        stream(&[file(b"f", b"1"), linked(EntryKind::HardLink, b"h", b"f"), linked(EntryKind::Symlink, b"s", b"f")]),
        stream(&[device(EntryKind::CharDevice), device(EntryKind::BlockDevice), device(EntryKind::Fifo)]),
        ended,
        gnu,
        global,
    ]
}

/// Streams that want out, and what a furnished target has in it to help them.
fn attacks() -> Seeds {
    let (hard, soft) = (EntryKind::HardLink, EntryKind::Symlink);
    let directory = |path| (Member { path, kind: EntryKind::Directory, mode: 0, ..PLAIN }, &b""[..]);
    vec![
        stream(&[file(b"../canary/letter", b"mine")]),
        stream(&[file(b"a/../../canary/letter", b"mine")]),
        stream(&[linked(soft, b"x", b"../canary"), file(b"x/letter", b"mine"), file(b"x/new", b"mine")]),
        stream(&[linked(soft, b"x", b".."), directory(b"x/canary"), linked(soft, b"x/canary/alias", b"y")]),
        stream(&[linked(soft, b"x", b"../canary/letter"), file(b"x", b"mine")]),
        stream(&[linked(soft, b"x", b"../canary/letter"), linked(hard, b"y", b"x"), file(b"y", b"mine")]),
        stream(&[linked(hard, b"y", b"../canary/letter"), file(b"y", b"mine")]),
        stream(&[directory(b"x"), linked(soft, b"x", b"../canary"), directory(b"x")]),
        stream(&[file(b"out/letter", b"mine"), file(b"l", b"mine"), directory(b"out"), directory(b"out/sealed")]),
        stream(&[linked(hard, b"h", b"out/letter"), linked(hard, b"k", b"l"), file(b"k", b"mine"), directory(b".")]),
        stream(&[directory(b"."), directory(b".."), directory(b"s"), file(b"s/e/new", b"x"), file(b"d", b"x")]),
        stream(&[file(b"dangling", b"made"), file(b"f", b"new"), file(b"D/F", b"case"), file(b"d/F", b"case")]),
    ]
}

fn behind(settings: &[u8], seeds: &Seeds) -> Seeds {
    let put = |setting: u8| seeds.iter().map(move |seed| [&[setting][..], seed].concat());
    settings.iter().flat_map(|&setting| put(setting)).collect()
}

fn pax_reader() -> Seeds {
    behind(&[0, 85, 255], &streams())
}

fn extract() -> Seeds {
    [behind(&[0, 1 | 8, 2 | 16, 4 | 32], &streams()), behind(&[0, 2 | 4, 5 | 8, 6 | 16], &attacks())].concat()
}

fn key_store() -> Seeds {
    let directory = scratch::directory();
    let passphrase = || String::from("a passphrase").into();
    let path = directory.path().join("keys.db");
    let mut store = SealedStore::create(&path, &Unlock::passphrase(passphrase()), CHEAP).unwrap();
    let key = store.key_for_new_volume(&volser(), Algorithm::Aes256Ccm, NOW_NS).unwrap();
    store.activate(&volser(), &key.tag(), NOW_NS).unwrap();
    let export = store.export(&ExportSelection::All, &passphrase(), CHEAP).unwrap();
    let key_file = directory.path().join("key");
    let by_file = create_key_file(&key_file).unwrap();
    let other = directory.path().join("other.db");
    SealedStore::create(&other, &by_file, CHEAP).unwrap();
    // A header with one slot stands somewhere in the database's file.
    let header = |path: &Path| {
        let file = std::fs::read(path).unwrap();
        let at = file.windows(8).position(|bytes| bytes == b"CAPSKEYS").unwrap();
        file[at..at + 29 + 70 + 4].to_vec()
    };
    vec![header(&path), header(&other), export, std::fs::read(key_file).unwrap()]
}

fn cartridge() -> Seeds {
    let directory = scratch::directory();
    let path = directory.path().join("A00001.tape");
    let mut seeds = Vec::new();
    for algorithm in [None, Some(Algorithm::Aes256Gcm), Some(Algorithm::Aes256Ccm)] {
        let _ = std::fs::remove_file(&path);
        let spec = CartridgeSpec {
            volser: volser(),
            capacity_bytes: 1 << 20,
            early_warning_bytes: 1 << 16,
            generation: "virtual".to_owned(),
        };
        spec.create(&path).unwrap();
        let mut drive = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Fitted);
        drive.load().unwrap();
        if let Some(algorithm) = algorithm {
            drive.set_key(Some(DriveKey { tag: capstan_format::KeyTag([7; 16]), algorithm, key: [7; 32] })).unwrap();
        }
        for len in [1, 80, 200] {
            drive.write_block(&vec![0x55; len]).unwrap();
        }
        drive.write_filemarks(2, Flush::Synchronous).unwrap();
        drive.write_block(b"behind the filemarks").unwrap();
        drive.unload().unwrap();
        drop(drive);
        let file = std::fs::read(&path).unwrap();
        let index = std::fs::read(path.with_extension("index")).unwrap();
        let laid_out = [&file[..512], &file[4096..]].concat();
        for settings in [1, 1 | 2, 1 | 2 | 8, 1 | 2 | 8 | 16, 1 | 2 | 16] {
            seeds.push([&[settings][..], &laid_out].concat());
        }
        let counted = [&(index.len() as u16).to_le_bytes()[..], &index].concat();
        for settings in [1 | 4 | 8, 1 | 2 | 4 | 8 | 16] {
            seeds.push([&[settings][..], &counted, &laid_out].concat());
        }
        seeds.push([&[2][..], &file].concat());
    }
    seeds
}

/// A volume as the product writes it, as a script, every checksum to be made again.
fn written() -> Seeds {
    let directory = scratch::directory();
    let state = directory.path().join("state");
    let source = directory.path().join("source");
    std::fs::create_dir_all(source.join("d")).unwrap();
    std::fs::write(source.join("d/file"), [0x42; 600]).unwrap();
    std::fs::write(source.join("d/other"), "short").unwrap();
    std::fs::hard_link(source.join("d/file"), source.join("again")).unwrap();
    whole_seconds(&source);
    let mut config = Config::default();
    config.library.drives = 1;
    config.data.block_kib = 4;
    config.data.buffer_mib = 8;
    config.data.compression_level = 0;
    let unlock = Unlock::passphrase(String::from("a passphrase").into());
    Site::init(&state, &InitOptions { config, encryption: None }, &unlock).unwrap();
    let site = Site::open(&state, Some(&unlock), || NOW_NS, Arc::new(|_| ())).unwrap();
    site.label(&volser(), Some("default"), Some(16 << 20), capstan_director::Loss::Refuse).unwrap();
    let mut seeds = vec![claimed(), script(&state)];
    for level in [Level::Full, Level::Incremental] {
        let request = BackupRequest {
            sources: vec![source.clone()],
            stream: None,
            pool: "default".to_owned(),
            policy: "nightly".to_owned(),
            connections: 1,
            copies: 1,
            level,
            tree: TreeOptions::default(),
            target: Target::Pool,
            compression: None,
            count_first: false,
            shortfall: Shortfall::Fail,
        };
        site.backup(&request, &BackupWatch::default()).unwrap();
        seeds.push(script(&state));
        // For the incremental to find: one file gone, one new.
        let _ = std::fs::remove_file(source.join("d/other"));
        std::fs::write(source.join("new"), "new").unwrap();
    }
    seeds
}

/// Times without nanoseconds need no extended headers, and short inputs are fuzzed sooner.
fn whole_seconds(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            whole_seconds(&path);
        }
        let whole = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        std::fs::File::open(path).unwrap().set_modified(whole).unwrap();
    }
}

/// A volume that claims to hold an object and holds its catalog alone: all of a rebuild in few bytes.
fn claimed() -> Vec<u8> {
    let plain = |kind, payload: &[u8]| sealed(kind, Compression::None, false, payload);
    let part = catalog_part();
    let checkpoint = Checkpoint {
        number: 1,
        previous_lbn: 0,
        part_lbn: 4,
        part_blocks: 1,
        part_len: part.len() as u64,
        closed: true,
        written_ns: NOW_NS,
    };
    let blocks = [
        (1, vol1_encode(&volser()).to_vec()),
        (1, volume_header("default")),
        (0, Vec::new()),
        (2, plain(BlockKind::Session, &session_record())),
        (2, plain(BlockKind::Catalog, &part)),
        (2, plain(BlockKind::Checkpoint, &checkpoint.encode())),
        (0, Vec::new()),
    ];
    let mut script = Vec::new();
    for (act, bytes) in blocks {
        script.push(act);
        if act != 0 {
            script.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_le_bytes());
            script.extend_from_slice(&bytes);
        }
    }
    script
}

fn script(state: &Path) -> Vec<u8> {
    let path = state.join("library/slots").join(format!("{VOLSER}.tape"));
    let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Missing);
    drive.load().unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut script = Vec::new();
    loop {
        let block = match drive.read_block(&mut buffer).unwrap() {
            ReadOutcome::EndOfData => return script,
            ReadOutcome::Filemark => {
                script.push(0);
                continue;
            }
            ReadOutcome::Block(len) => &buffer[..len],
        };
        let plain = match BlockHeader::open(block) {
            Err(_) => None,
            Ok((header, payload)) => Some(match header.compression {
                Compression::None => block.to_vec(),
                Compression::Zstd => {
                    let plain = zstd::bulk::decompress(payload, header.plain_len as usize).unwrap();
                    let stored_len = plain.len() as u32;
                    let mut block = [vec![0; BLOCK_HEADER_LEN], plain].concat();
                    BlockHeader { compression: Compression::None, stored_len, ..header }.seal(&mut block);
                    block
                }
            }),
        };
        let (act, bytes) = plain.as_deref().map_or((1, block), |plain| (2, plain));
        script.push(act);
        script.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_le_bytes());
        script.extend_from_slice(bytes);
    }
}

type SeededTarget = (&'static str, fn() -> Seeds, fn(&[u8]));

const TARGETS: [SeededTarget; 9] = [
    ("label", label, crate::label),
    ("block", block, crate::block),
    ("session_trailer", session_trailer, crate::session_trailer),
    ("pax_reader", pax_reader, crate::pax_reader),
    ("extract", extract, crate::extract),
    ("key_store", key_store, crate::key_store),
    ("cartridge", cartridge, crate::cartridge),
    ("volume", written, crate::volume),
    ("rebuild", written, crate::rebuild),
];

#[test]
fn every_seed_passes_its_target() {
    for (name, seeds, target) in TARGETS {
        for (number, seed) in seeds().iter().enumerate() {
            println!("{name}, seed {number}");
            target(seed);
        }
    }
}

/// The seeds are what they pretend to be: a target that is fed refused bytes alone tests nothing.
#[test]
fn seeds_are_valid() {
    use capstan_format::{EntryDecoder, vol1_decode};
    use capstan_keys::{KeyExport, StoreHeader};
    assert_eq!(vol1_decode(&label()[0]).unwrap(), volser());
    assert!(label()[2..].iter().all(|seed| VolumeHeader::decode(seed).is_ok()));
    assert!(block()[..5].iter().all(|seed| BlockHeader::open(seed).is_ok()));
    assert!(block()[5..].iter().all(|seed| Envelope::decode(seed).is_ok()));
    assert!(EntryDecoder::new(&entries()).all(|entry| entry.is_ok()));
    assert!(CatalogPart::decode(&catalog_part()).is_ok());
    let keys = key_store();
    assert!(keys[..2].iter().all(|seed| StoreHeader::decode(seed).is_ok()) && KeyExport::decode(&keys[2]).is_ok());
}

#[test]
#[ignore = "writes into fuzz/corpus; for when the format has grown"]
fn write_seeds() {
    for (name, seeds, _) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (number, seed) in seeds().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:02}")), seed).unwrap();
        }
    }
}
