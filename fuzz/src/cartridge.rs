//! Virtual cartridges: data file and index of any bytes in a drive.

use std::fs;
use std::path::{Path, PathBuf};

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::{CartridgeDrive, Drive, DriveError, DriveKey, EncryptionState, Flush, KeySlotKind, ReadOutcome};
use tempfile::TempDir;

use crate::input::Input;
use crate::{mend, scratch};

/// The file is 512 bytes of cartridge memory, laid out in both copies, and records; otherwise it is a file as it is.
const LAID_OUT: u8 = 1;
/// Checksums are made right.
const MENDED: u8 = 2;
/// There is an index.
const INDEXED: u8 = 4;
/// The drive has a key slot and a key in it, under whatever tag the cartridge names.
const KEYED: u8 = 8;
/// A block is appended at the end.
const APPENDED: u8 = 16;

/// Room for a block here; longer ones are refused by the drive, which is an answer too.
const BUFFER_LEN: usize = 64 << 10;
/// Most blocks that are looked at one by one.
const BLOCKS_MAX: u64 = 4096;

thread_local! {
    static DIRECTORY: TempDir = scratch::directory();
}

/// A data file and an index of any bytes (behind settings): loaded, read from one end to the other, block by block in
/// any order, filemark by filemark, and appended to. Whichever way a block is reached, it is the same block.
pub fn cartridge(data: &[u8]) {
    let mut input = Input::new(data);
    let settings = input.byte();
    let mut index = if settings & INDEXED != 0 { input.counted().to_vec() } else { Vec::new() };
    let mut file = Vec::new();
    if settings & LAID_OUT != 0 {
        let rest = input.rest();
        let (memory, records) = rest.split_at(rest.len().min(512));
        file.resize(4096, 0);
        file[..memory.len()].copy_from_slice(memory);
        file.copy_within(..memory.len(), 2048);
        file.extend_from_slice(records);
    } else {
        file.extend_from_slice(input.rest());
    }
    if settings & MENDED != 0 {
        mend::cartridge(&mut file);
        if let Some(life) = file.get(48..).and_then(|rest| rest.first_chunk()) {
            mend::index(&mut index, *life);
        }
    }
    DIRECTORY.with(|directory| {
        let path = directory.path().join("A00001.tape");
        fs::write(&path, &file).expect("room for a cartridge");
        let index_path = path.with_extension("index");
        if settings & INDEXED != 0 {
            fs::write(&index_path, &index).expect("room for an index");
        } else {
            let _ = fs::remove_file(&index_path);
        }
        Bench { path, settings, file_len: file.len() as u64 }.run();
    });
}

struct Bench {
    path: PathBuf,
    settings: u8,
    file_len: u64,
}

/// What a read gave: a block's bytes, a filemark, or an error's words.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Met {
    Block(Vec<u8>),
    Filemark,
    Failed(String),
}

impl Bench {
    fn run(&self) {
        let Some(mut drive) = load(&self.path, self.settings) else { return };
        let blocks = self.read_through(&mut drive);
        self.visit(&mut drive, &blocks);
        count_filemarks(&mut drive, &blocks);
        if self.settings & APPENDED != 0 {
            self.append(&mut drive, &blocks);
        }
    }

    /// Everything from the beginning to the end of data.
    fn read_through(&self, drive: &mut CartridgeDrive) -> Vec<Met> {
        drive.locate(0).expect("the beginning is always there");
        let mut buffer = vec![0; BUFFER_LEN];
        let mut blocks = Vec::new();
        loop {
            let lbn = drive.position().expect("a loaded drive has a position").lbn;
            let met = match drive.read_block(&mut buffer) {
                Ok(ReadOutcome::EndOfData) => break,
                Ok(ReadOutcome::Block(len)) => Met::Block(buffer[..len].to_vec()),
                Ok(ReadOutcome::Filemark) => Met::Filemark,
                Err(error) => Met::Failed(format!("{error:?}")),
            };
            blocks.push(met);
            let next = drive.position().expect("a loaded drive has a position").lbn;
            // Without the key the drive stays where it is, as a real one does.
            if next == lbn {
                break;
            }
            assert_eq!(next, lbn + 1, "a read passes over one block");
            assert!(next <= self.file_len / 36, "more blocks than headers have room in the file");
        }
        blocks
    }

    /// Each block by its number, from the last to the first.
    fn visit(&self, drive: &mut CartridgeDrive, blocks: &[Met]) {
        let mut buffer = vec![0; BUFFER_LEN];
        for (lbn, expected) in (0u64..).zip(blocks).take(BLOCKS_MAX as usize).collect::<Vec<_>>().into_iter().rev() {
            if let Err(error) = drive.locate(lbn) {
                assert!(matches!(expected, Met::Failed(_)), "block {lbn} was read and cannot be located: {error}");
                continue;
            }
            match (drive.read_block(&mut buffer), expected) {
                (Ok(ReadOutcome::Block(len)), Met::Block(bytes)) => assert_eq!(&buffer[..len], bytes, "block {lbn}"),
                (Ok(ReadOutcome::Filemark), Met::Filemark) | (Err(_), Met::Failed(_)) => {}
                (met, expected) => {
                    // An index with right checksums and wrong numbers was made by somebody, and may lead anywhere.
                    let forged = INDEXED | MENDED;
                    assert!(self.settings & forged == forged, "block {lbn} is {met:?} and was {expected:?}");
                }
            }
        }
    }

    fn append(&self, drive: &mut CartridgeDrive, blocks: &[Met]) {
        const BLOCK: &[u8] = b"written behind hostile bytes";
        drive.space_to_end_of_data().expect("the end of data is known");
        let end = drive.position().expect("a loaded drive has a position").lbn;
        let written = drive.write_block(BLOCK).and_then(|_| drive.write_filemarks(1, Flush::Synchronous));
        match written {
            Ok(_) => {}
            Err(DriveError::WriteFailed { .. } | DriveError::Deferred { .. }) => panic!("there was room to write"),
            Err(_) => return,
        }
        drive.locate(end).expect("what was written can be located");
        let mut buffer = vec![0; BUFFER_LEN];
        assert!(matches!(drive.read_block(&mut buffer), Ok(ReadOutcome::Block(len)) if &buffer[..len] == BLOCK));
        drive.unload().expect("what was written can be flushed");
        let Some(mut drive) = load(&self.path, self.settings) else { panic!("it was loaded before") };
        let again = self.read_through_after_append(&mut drive);
        if end as usize == blocks.len() {
            assert_eq!(again.len(), blocks.len() + 2, "blocks are lost over an unload");
        }
    }

    fn read_through_after_append(&self, drive: &mut CartridgeDrive) -> Vec<Met> {
        Self { path: self.path.clone(), settings: self.settings, file_len: self.file_len + 4096 }.read_through(drive)
    }
}

fn load(path: &Path, settings: u8) -> Option<CartridgeDrive> {
    let slot = if settings & KEYED != 0 { KeySlotKind::Fitted } else { KeySlotKind::Missing };
    let mut drive = CartridgeDrive::new("virtual-0", path, slot);
    let medium = drive.load().ok()?;
    if slot == KeySlotKind::Fitted {
        let key = match medium.encryption {
            EncryptionState::Encrypted { algorithm, tag } => Some(DriveKey { tag, algorithm, key: [7; 32] }),
            EncryptionState::Blank => {
                Some(DriveKey { tag: KeyTag([7; 16]), algorithm: Algorithm::Aes256Ccm, key: [7; 32] })
            }
            EncryptionState::Plain => None,
        };
        drive.set_key(key).expect("the drive has a key slot");
    }
    Some(drive)
}

/// Forward over every filemark, and back over as many.
fn count_filemarks(drive: &mut CartridgeDrive, blocks: &[Met]) {
    drive.locate(0).expect("the beginning is always there");
    let mut forward = 0u64;
    while forward < BLOCKS_MAX && drive.space_filemarks(1).is_ok() {
        forward += 1;
    }
    let _ = drive.space_to_end_of_data();
    let mut backward = 0u64;
    while backward < BLOCKS_MAX && drive.space_filemarks(-1).is_ok() {
        backward += 1;
    }
    assert_eq!(forward, backward, "filemarks forward and backward");
    let readable = blocks.iter().filter(|met| **met == Met::Filemark).count() as u64;
    assert!(readable <= forward || forward == BLOCKS_MAX, "{readable} filemarks were read, {forward} found by spacing");
}
