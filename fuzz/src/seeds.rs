//! What the corpora begin with: valid encodings made by the product itself, and attacks made by hand.
//!
//! `cargo test -p capstan-fuzz -- --ignored write_seeds` puts them into `fuzz/corpus/`. Run it when the format has
//! grown, then `cargo +nightly fuzz cmin TARGET`, and commit what is left.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod catalog;
mod clients;
mod commands;
mod enrolments;
mod iscsi;
mod streams;
mod volumes;

use std::path::Path;

use capstan_format::{
    Algorithm, BLOCK_HEADER_LEN, BlockHeader, BlockKind, CatalogPart, Compression, Envelope, ObjectId, SessionId,
    Volser, VolumeHeader, VolumeId, vol1_encode,
};
use capstan_keys::{Agent, Argon2Cost, ExportSelection, Name, SealedStore, Unlock, create_key_file};

use crate::scratch;
use crate::script::VOLSER;
use catalog::{catalog_part, checkpoint, entries, session_record, session_trailer};
use streams::{extract, pax_reader};
use volumes::{cartridge, written};

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

/// The fixtures of the key node: each read by its own decoder.
fn backups() -> Seeds {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/keyd/testdata/v1");
    ["root.sealed", "core.backup", "database.backup"].map(|name| std::fs::read(folder.join(name)).unwrap()).into()
}

fn key_store() -> Seeds {
    let directory = scratch::directory();
    let passphrase = || String::from("a passphrase").into();
    let path = directory.path().join("keys.db");
    let mut store = SealedStore::create(&path, &Unlock::passphrase(passphrase()), CHEAP).unwrap();
    let key = store
        .key_for_new_volume(
            &volser(),
            &Agent::anything(Name::default()),
            &Name::default(),
            Algorithm::Aes256Ccm,
            NOW_NS,
        )
        .unwrap();
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

type SeededTarget = (&'static str, fn() -> Seeds, fn(&[u8]));

const TARGETS: [SeededTarget; 14] = [
    ("label", label, crate::label),
    ("block", block, crate::block),
    ("session_trailer", session_trailer, crate::session_trailer),
    ("pax_reader", pax_reader, crate::pax_reader),
    ("extract", extract, crate::extract),
    ("key_store", key_store, crate::key_store),
    ("backup", backups, crate::backup),
    ("cartridge", cartridge, crate::cartridge),
    ("volume", written, crate::volume),
    ("rebuild", written, crate::rebuild),
    ("iscsi", iscsi::conversations, crate::iscsi),
    ("commands", commands::conversations, crate::commands),
    ("enrolment", enrolments::enrolment, crate::enrolment),
    ("client", clients::conversations, crate::client),
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
    use capstan_keyd::{backup::CoreBackup, root::SealedRoot};
    use capstan_keys::{KeyExport, StoreHeader};
    assert_eq!(vol1_decode(&label()[0]).unwrap(), volser());
    assert!(label()[2..].iter().all(|seed| VolumeHeader::decode(seed).is_ok()));
    assert!(block()[..5].iter().all(|seed| BlockHeader::open(seed).is_ok()));
    assert!(block()[5..].iter().all(|seed| Envelope::decode(seed).is_ok()));
    assert!(EntryDecoder::new(&entries()).all(|entry| entry.is_ok()));
    assert!(CatalogPart::decode(&catalog_part()).is_ok());
    let backed_up: Vec<_> = clients::conversations().iter().map(|seed| crate::client::is_backed_up(seed)).collect();
    assert_eq!(backed_up[..2], [true, true], "what a real client sends is taken");
    let [root, core, _] = &backups()[..] else { panic!("three kinds") };
    assert!(SealedRoot::decode(root).is_ok() && CoreBackup::decode(core).is_ok());
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
