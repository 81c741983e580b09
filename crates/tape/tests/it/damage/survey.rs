//! A small volume, and all that can be read of it.

use std::fs;
use std::path::{Path, PathBuf};

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, DriveError, DriveKey, Flush, KeySlotKind, ReadOutcome};

/// What the drive said at one block number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Block(Vec<u8>),
    Filemark,
    /// `ReadFailed` or `Integrity`, which name the block.
    Damaged,
}

/// How a volume is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Plain,
    Encrypted(Algorithm),
}

pub(crate) const CODINGS: [Coding; 3] =
    [Coding::Plain, Coding::Encrypted(Algorithm::Aes256Gcm), Coding::Encrypted(Algorithm::Aes256Ccm)];

/// A cartridge in a directory of its own, removed with it.
pub(crate) struct Sample {
    directory: tempfile::TempDir,
    coding: Coding,
}

/// Lengths of the sample's blocks; 0 stands for a filemark.
pub(crate) const LAYOUT: [usize; 9] = [80, 128, 0, 40, 40, 40, 0, 1, 200];

impl Sample {
    /// A cartridge with blocks after [`LAYOUT`].
    pub(crate) fn new(coding: Coding) -> Self {
        let sample = Self::blank(coding);
        sample.write_from(0, 1, &LAYOUT);
        sample
    }

    pub(crate) fn blank(coding: Coding) -> Self {
        let sample = Self { directory: tempfile::tempdir_in(memory_directory()).unwrap(), coding };
        let spec = CartridgeSpec {
            volser: "A00001".parse().unwrap(),
            capacity_bytes: 1 << 20,
            early_warning_bytes: 1 << 10,
            generation: "virtual".to_owned(),
        };
        spec.create(&sample.data()).unwrap();
        sample
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("A00001.tape")
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.directory.path().join("A00001.index")
    }

    pub(crate) fn drive(&self) -> CartridgeDrive {
        CartridgeDrive::new("virtual-0", self.data(), KeySlotKind::Fitted)
    }

    /// Loads, with the key in the slot if there is one.
    pub(crate) fn load(&self) -> Result<CartridgeDrive, DriveError> {
        let mut drive = self.drive();
        drive.load()?;
        if let Coding::Encrypted(algorithm) = self.coding {
            drive.set_key(Some(DriveKey { tag: KeyTag([3; 16]), algorithm, key: [4; 32] }))?;
        }
        Ok(drive)
    }

    /// Writes blocks of these lengths at `lbn`; `salt` makes their contents different from another writing's.
    pub(crate) fn write_from(&self, lbn: u64, salt: u8, lengths: &[usize]) {
        let mut drive = self.load().unwrap();
        drive.locate(lbn).unwrap();
        for (number, len) in (lbn..).zip(lengths) {
            match len {
                0 => drive.write_filemarks(1, Flush::Buffered).unwrap(),
                len => drive.write_block(&content(number, salt, *len)).unwrap(),
            };
        }
        drive.unload().unwrap();
    }

    pub(crate) fn erase(&self) {
        let mut drive = self.load().unwrap();
        drive.erase().unwrap();
        drive.unload().unwrap();
    }

    /// Reads everything, in order and by LOCATE, and checks that both agree.
    pub(crate) fn survey(&self) -> Vec<Seen> {
        let mut drive = self.load().unwrap();
        let in_order = read_on(&mut drive);
        drive.space_to_end_of_data().unwrap();
        assert_eq!(drive.position().unwrap().lbn, in_order.len() as u64, "end of data");
        for lbn in (0..in_order.len()).rev() {
            drive.locate(lbn as u64).unwrap();
            assert_eq!(read_one(&mut drive), Some(in_order[lbn].clone()), "block {lbn} by LOCATE");
        }
        in_order
    }

    /// The offset of each record in the data file, and the end of the last.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        let envelope = if self.coding == Coding::Plain { 0 } else { 36 };
        let mut offsets = vec![4096];
        for len in LAYOUT {
            let stored = if len == 0 { 0 } else { len + envelope };
            offsets.push(offsets.last().unwrap() + 36 + stored as u64);
        }
        assert_eq!(fs::metadata(self.data()).unwrap().len(), *offsets.last().unwrap());
        offsets
    }
}

/// A file system in memory where there is one: thousands of small changes need no disk here.
fn memory_directory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// The bytes of a block.
pub(crate) fn content(lbn: u64, salt: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (lbn as u8) ^ salt.wrapping_mul(101)).collect()
}

/// What the sample holds when nothing is wrong.
pub(crate) fn whole() -> Vec<Seen> {
    written(0, 1, &LAYOUT)
}

/// What [`Sample::write_from`] wrote.
pub(crate) fn written(lbn: u64, salt: u8, lengths: &[usize]) -> Vec<Seen> {
    let seen = |(number, len): (u64, &usize)| match len {
        0 => Seen::Filemark,
        len => Seen::Block(content(number, salt, *len)),
    };
    (lbn..).zip(lengths).map(seen).collect()
}

fn read_on(drive: &mut CartridgeDrive) -> Vec<Seen> {
    drive.locate(0).unwrap();
    std::iter::from_fn(|| read_one(drive)).collect()
}

/// Reads at the position, and checks that it moves on by one whatever is met; none at the end of data.
fn read_one(drive: &mut CartridgeDrive) -> Option<Seen> {
    let at = drive.position().unwrap().lbn;
    let mut buffer = [0; 3000];
    let seen = match drive.read_block(&mut buffer) {
        Ok(ReadOutcome::Block(len)) => Seen::Block(buffer[..len].to_vec()),
        Ok(ReadOutcome::Filemark) => Seen::Filemark,
        Ok(ReadOutcome::EndOfData) => return None,
        Err(DriveError::ReadFailed { lbn, .. } | DriveError::Integrity { lbn }) => {
            assert_eq!(lbn, at, "the error names the block");
            Seen::Damaged
        }
        Err(other) => panic!("unexpected error at block {at}: {other:?}"),
    };
    assert_eq!(drive.position().unwrap().lbn, at + 1);
    Some(seen)
}

/// Checks that `found` is the whole volume but for the blocks in `lost`, which are damaged; or missing, if they are the
/// last.
pub(crate) fn assert_only_lost(found: &[Seen], lost: &[usize], what: &str) {
    let whole = whole();
    for (lbn, expected) in whole.iter().enumerate() {
        match found.get(lbn) {
            Some(Seen::Damaged) => assert!(lost.contains(&lbn), "{what}: block {lbn} is lost for nothing"),
            Some(seen) => assert_eq!(seen, expected, "{what}: block {lbn}"),
            None => assert!((lbn..whole.len()).all(|lbn| lost.contains(&lbn)), "{what}: block {lbn} is missing"),
        }
    }
    assert!(found.len() <= whole.len(), "{what}: more blocks than were written");
}

/// Changes a file in place.
pub(crate) fn patch(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}
