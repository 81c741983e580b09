//! Cartridges, and volumes as scripts.

use std::path::Path;
use std::sync::Arc;

use capstan_catalog::Database;
use capstan_director::{BackupRequest, BackupWatch, Config, InitOptions, Level, Site};
use capstan_format::{
    Algorithm, BLOCK_HEADER_LEN, BlockHeader, BlockKind, CatalogPart, Checkpoint, Compression, KeyTag, vol1_encode,
};
use capstan_keys::create_key_file;
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, DriveKey, Flush, KeySlotKind, ReadOutcome};

use super::catalog::{claims, session_record};
use super::{NOW_NS, Seeds, sealed, volser, volume_header};
use crate::scratch;
use crate::script::VOLSER;

pub(super) fn cartridge() -> Seeds {
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
            drive.set_key(Some(DriveKey { tag: KeyTag([7; 16]), algorithm, key: [7; 32] })).unwrap();
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
pub(super) fn written() -> Seeds {
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
    let unlock = create_key_file(&directory.path().join("key")).unwrap();
    Site::init(&state, &InitOptions { config, encryption: None, database: Database::Sqlite }, Some(&unlock)).unwrap();
    let site = Site::open(&state, Some(&unlock), || NOW_NS, Arc::new(|_| ())).unwrap();
    site.label(
        &volser(),
        Some("default"),
        Some(16 << 20),
        capstan_director::Loss::Refuse,
        capstan_catalog::Promise::Keep,
    )
    .unwrap();
    let mut seeds: Seeds = claims().iter().map(claimed).collect();
    seeds.push(script(&state));
    for level in [Level::Full, Level::Incremental] {
        let request = BackupRequest { policy: "nightly".to_owned(), level, ..BackupRequest::of(vec![source.clone()]) };
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
fn claimed(part: &CatalogPart) -> Vec<u8> {
    let plain = |kind, payload: &[u8]| sealed(kind, Compression::None, false, payload);
    let part = part.encode();
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
