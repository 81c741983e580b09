//! The cartridge memory: what a cartridge knows about itself, in the first 4 KiB of its data file.
//!
//! Two copies, at offset 0 and at 2048, each 512 bytes:
//! ```text
//!   0  8  magic "CPSTNCRT"
//!   8  4  version: 3 if it is write-once, else 2 if there are further keys, else 1
//!  12  4  zero
//!  16  8  sequence: the valid copy with the higher one counts
//!  24  8  volser, space-padded
//!  32  8  capacity, bytes
//!  40  8  early-warning reserve, bytes
//!  48  8  life: drawn at random when writing begins at the beginning of tape, and at an erase
//!  56  1  tab: 0 writable, 1 write-protected
//!  57  1  encryption: 0 blank, 1 plain, 2 encrypted
//!  58  1  algorithm, if encrypted: 1 AES-256-GCM, 2 AES-256-CCM
//!  59  1  length of the generation's name
//!  60 16  key tag, if encrypted: key number 0, that of block 0
//!  76 32  generation's name, UTF-8, zero-padded
//! 108  1  version 2: number of further keys, 1 to 23; version 3: the same, or 0
//! 109  1  version 3: 1, write-once
//! 110  2  zero
//! 112 16  versions 2 and 3: tag of each further key, in the order in which they came: key number 1, 2, ...
//!     up to 496  zero
//! 496  8  serial number, drawn at random when the cartridge is made; 0 on one that an older program made
//! 504  4  zero
//! 508  4  CRC32C of bytes 0 to 507
//! ```
//! A change is written to one copy, synchronised, then to the other: a crash leaves the old state or the new one, and
//! once the change is done either copy may be damaged without loss.
//!
//! A volume that is written with one key is as version 1 had it, byte for byte, so that older programs read it; version
//! 2 begins with the second key. Keys are added and never taken away until the volume is begun anew: what names a key
//! may outlive the blocks under it, and never the other way round.
//!
//! That a cartridge is write-once is decided when it is made, and no change of the memory changes it. It is a version
//! of its own so that programs that know nothing of it refuse the cartridge, and do not write over what is to stay.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser, crc32c};

use super::record::{u32_at, u64_at};
use crate::{EncryptionState, Rewritability};

/// Where the first record stands.
pub(super) const RECORDS_AT: u64 = 4096;

const MAGIC: [u8; 8] = *b"CPSTNCRT";
/// One key at most.
const VERSION_ONE_KEY: u32 = 1;
/// Further keys.
const VERSION_SEVERAL_KEYS: u32 = 2;
/// Write-once.
const VERSION: u32 = 3;
const COPY_LEN: usize = 512;
const COPIES_AT: [u64; 2] = [0, 2048];
const CRC_AT: usize = COPY_LEN - 4;
const GENERATION_LEN_MAX: usize = 32;
const WRITE_ONCE_AT: usize = 109;
const FURTHER_KEYS_AT: usize = 112;
const SERIAL_AT: usize = 496;
/// Keys that a memory has room for: one for each encryption period of a volume that is appended to.
pub(super) const KEYS_MAX: usize = 24;

/// The slider on a cartridge that bars writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    /// The cartridge may be written.
    Writable,
    /// It may not.
    Protected,
}

/// A decoded copy of the cartridge memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) sequence: u64,
    pub(super) volser: Volser,
    pub(super) capacity_bytes: u64,
    pub(super) early_warning_bytes: u64,
    pub(super) life: u64,
    pub(super) tab: Tab,
    pub(super) rewritability: Rewritability,
    /// How the volume is written, and its first key.
    pub(super) encryption: EncryptionState,
    /// Keys that came later.
    pub(super) further_keys: Vec<KeyTag>,
    pub(super) generation: String,
    /// 0 if it has none.
    pub(super) serial: u64,
}

impl Memory {
    fn encode(&self) -> [u8; COPY_LEN] {
        let mut bytes = [0; COPY_LEN];
        bytes[0..8].copy_from_slice(&MAGIC);
        let version = match (self.rewritability, self.further_keys.is_empty()) {
            (Rewritability::WriteOnce, _) => VERSION,
            (_, false) => VERSION_SEVERAL_KEYS,
            (_, true) => VERSION_ONE_KEY,
        };
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].fill(b' ');
        bytes[24..24 + self.volser.as_str().len()].copy_from_slice(self.volser.as_str().as_bytes());
        bytes[32..40].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.early_warning_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.life.to_le_bytes());
        bytes[56] = match self.tab {
            Tab::Writable => 0,
            Tab::Protected => 1,
        };
        match self.encryption {
            EncryptionState::Blank => bytes[57] = 0,
            EncryptionState::Plain => bytes[57] = 1,
            EncryptionState::Encrypted { algorithm, tag } => {
                bytes[57] = 2;
                bytes[58] = algorithm.code();
                bytes[60..76].copy_from_slice(&tag.0);
            }
        }
        // Names are checked where they are made; a longer one would only be cut here.
        let generation = &self.generation.as_bytes()[..self.generation.len().min(GENERATION_LEN_MAX)];
        bytes[59] = generation.len() as u8;
        bytes[76..76 + generation.len()].copy_from_slice(generation);
        // A list is never made longer than this.
        let further_keys = &self.further_keys[..self.further_keys.len().min(KEYS_MAX - 1)];
        bytes[108] = further_keys.len() as u8;
        bytes[WRITE_ONCE_AT] = u8::from(self.rewritability == Rewritability::WriteOnce);
        for (tag, place) in further_keys.iter().zip(bytes[FURTHER_KEYS_AT..].chunks_exact_mut(16)) {
            place.copy_from_slice(&tag.0);
        }
        bytes[SERIAL_AT..SERIAL_AT + 8].copy_from_slice(&self.serial.to_le_bytes());
        let crc = crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; COPY_LEN]) -> Result<Self, String> {
        if bytes[0..8] != MAGIC {
            return Err("it is not a virtual cartridge, or its memory is damaged".to_owned());
        }
        if u32_at(bytes, CRC_AT) != crc32c(&bytes[..CRC_AT]) {
            return Err("both copies of its memory are damaged".to_owned());
        }
        let version = u32_at(bytes, 8);
        if !(VERSION_ONE_KEY..=VERSION).contains(&version) {
            return Err(format!("its format has version {version}, this program knows {VERSION}: use a newer Capstan"));
        }
        let field = |name: &str| format!("its memory holds an impossible {name}");
        let text = |bytes: &[u8], name| str::from_utf8(bytes).map(str::to_owned).map_err(|_| field(name));
        let volser = text(&bytes[24..32], "volser")?;
        let volser = Volser::new(volser.trim_end()).map_err(|_| field("volser"))?;
        let tab = match bytes[56] {
            0 => Tab::Writable,
            1 => Tab::Protected,
            _ => return Err(field("tab")),
        };
        let encryption = match bytes[57] {
            0 => EncryptionState::Blank,
            1 => EncryptionState::Plain,
            2 => {
                let algorithm = Algorithm::from_code(bytes[58]).ok_or_else(|| field("algorithm"))?;
                EncryptionState::Encrypted { algorithm, tag: tag_at(bytes, 60) }
            }
            _ => return Err(field("encryption state")),
        };
        let further_keys = match (version, bytes[57], usize::from(bytes[108])) {
            (VERSION_ONE_KEY, _, _) | (VERSION, _, 0) => Vec::new(),
            (_, 2, count @ 1..KEYS_MAX) => (0..count).map(|at| tag_at(bytes, FURTHER_KEYS_AT + 16 * at)).collect(),
            _ => return Err(field("list of keys")),
        };
        let rewritability = match (version, bytes[WRITE_ONCE_AT]) {
            (VERSION, 1) => Rewritability::WriteOnce,
            (VERSION, _) => return Err(field("kind of medium")),
            _ => Rewritability::Rewritable,
        };
        let generation_len = usize::from(bytes[59]);
        if generation_len > GENERATION_LEN_MAX {
            return Err(field("generation"));
        }
        let generation = text(&bytes[76..76 + generation_len], "generation")?;
        Ok(Self {
            sequence: u64_at(bytes, 16),
            volser,
            capacity_bytes: u64_at(bytes, 32),
            early_warning_bytes: u64_at(bytes, 40),
            life: u64_at(bytes, 48),
            tab,
            rewritability,
            encryption,
            further_keys,
            generation,
            serial: u64_at(bytes, SERIAL_AT),
        })
    }

    /// Reads the newer valid copy. The inner error says why there is none.
    pub(super) fn read(file: &File) -> io::Result<Result<Self, String>> {
        let mut best: Result<Self, String> = Err("it is shorter than a cartridge's memory".to_owned());
        let mut unreadable = None;
        for at in COPIES_AT {
            let mut bytes = [0; COPY_LEN];
            match file.read_exact_at(&mut bytes, at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                // The other copy may be whole.
                Err(error) => {
                    unreadable = Some(error);
                    continue;
                }
            }
            best = match (best, Self::decode(&bytes)) {
                (Ok(first), Ok(second)) if second.sequence > first.sequence => Ok(second),
                (Ok(first), _) => Ok(first),
                (Err(_), second) => second,
            };
        }
        match (best, unreadable) {
            (Err(_), Some(error)) => Err(error),
            (best, _) => Ok(best),
        }
    }

    /// Writes both copies, one after the other, each synchronised.
    pub(super) fn write(&mut self, file: &File) -> io::Result<()> {
        self.sequence += 1;
        let bytes = self.encode();
        for at in COPIES_AT {
            file.write_all_at(&bytes, at)?;
            file.sync_data()?;
        }
        Ok(())
    }
}

impl Memory {
    /// What hosts read as the serial number of the medium. The barcode would not do: cartridges of several libraries
    /// have the same.
    pub(super) fn serial_number(&self) -> Option<MediumSerial> {
        (self.serial != 0).then(|| MediumSerial::new(&format!("{:016X}", self.serial)).ok()).flatten()
    }

    /// The key of a number that a block names; none if there is no such key.
    pub(super) fn key(&self, number: u8) -> Option<KeyTag> {
        match (self.encryption, number) {
            (EncryptionState::Encrypted { tag, .. }, 0) => Some(tag),
            (_, 0) => None,
            (_, further) => self.further_keys.get(usize::from(further) - 1).copied(),
        }
    }

    /// The number of a key, if blocks may name it.
    pub(super) fn number_of(&self, tag: &KeyTag) -> Option<u8> {
        (0..KEYS_MAX as u8).find(|number| self.key(*number).as_ref() == Some(tag))
    }
}

fn tag_at(bytes: &[u8; COPY_LEN], at: usize) -> KeyTag {
    let mut tag = [0; 16];
    tag.copy_from_slice(&bytes[at..at + 16]);
    KeyTag(tag)
}

/// Whether a generation's name fits the memory.
pub(super) fn generation_fits(name: &str) -> bool {
    name.len() <= GENERATION_LEN_MAX
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn memory() -> Memory {
        Memory {
            sequence: 0,
            volser: Volser::new("A00001L9").unwrap(),
            capacity_bytes: 1 << 30,
            early_warning_bytes: 1 << 20,
            life: 42,
            tab: Tab::Writable,
            rewritability: Rewritability::Rewritable,
            encryption: EncryptionState::Encrypted { algorithm: Algorithm::Aes256Ccm, tag: KeyTag([9; 16]) },
            further_keys: Vec::new(),
            generation: "LTO-9".to_owned(),
            serial: 0,
        }
    }

    #[test]
    fn a_serial_number_stands_where_older_programs_read_nothing() {
        let memory = Memory { serial: 0x0123_4567_89ab_cdef, ..memory() };
        let bytes = memory.encode();
        assert_eq!(bytes[496..508], [0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 1, 0, 0, 0, 0]);
        assert_eq!(Memory::decode(&bytes).unwrap().serial_number().unwrap().as_str(), "0123456789ABCDEF");
    }

    #[test]
    fn either_copy_is_enough() {
        let file = tempfile::tempfile().unwrap();
        let mut memory = memory();
        memory.write(&file).unwrap();
        for at in COPIES_AT {
            file.write_all_at(&[0xff; COPY_LEN], at).unwrap();
            assert_eq!(Memory::read(&file).unwrap(), Ok(memory.clone()));
            file.write_all_at(&memory.encode(), at).unwrap();
        }
    }

    #[test]
    fn a_torn_change_leaves_the_old_state() {
        let file = tempfile::tempfile().unwrap();
        let mut memory = memory();
        memory.write(&file).unwrap();
        let mut changed = Memory { tab: Tab::Protected, sequence: memory.sequence + 1, ..memory.clone() };
        file.write_all_at(&changed.encode()[..300], COPIES_AT[0]).unwrap();
        assert_eq!(Memory::read(&file).unwrap(), Ok(memory.clone()));
        changed.sequence = memory.sequence;
        changed.write(&file).unwrap();
        assert_eq!(Memory::read(&file).unwrap(), Ok(changed));
    }

    #[test]
    fn each_flipped_bit_is_refused() {
        for memory in [memory(), several_keys(), write_once()] {
            let bytes = memory.encode();
            for bit in 0..COPY_LEN * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Memory::decode(&flipped).is_err(), "bit {bit}");
            }
        }
    }

    fn write_once() -> Memory {
        Memory { rewritability: Rewritability::WriteOnce, ..memory() }
    }

    #[test]
    fn bytes_of_a_write_once_cartridge_stand_where_the_page_says() {
        for memory in [write_once(), Memory { rewritability: Rewritability::WriteOnce, ..several_keys() }] {
            let bytes = memory.encode();
            assert_eq!(&bytes[8..12], &[3, 0, 0, 0]);
            assert_eq!(&bytes[108..112], &[memory.further_keys.len() as u8, 1, 0, 0]);
            assert_eq!(Memory::decode(&bytes), Ok(memory));
        }
    }

    fn several_keys() -> Memory {
        Memory { further_keys: vec![KeyTag([0xa1; 16]), KeyTag([0xa2; 16])], ..memory() }
    }

    #[test]
    fn bytes_of_several_keys_stand_where_the_page_says() {
        let memory = several_keys();
        let bytes = memory.encode();
        assert_eq!(&bytes[8..12], &[2, 0, 0, 0]);
        assert_eq!(&bytes[57..59], &[2, 2]);
        assert_eq!(&bytes[60..76], &[9; 16]);
        assert_eq!(&bytes[108..112], &[2, 0, 0, 0]);
        assert_eq!(&bytes[112..128], &[0xa1; 16]);
        assert_eq!(&bytes[128..144], &[0xa2; 16]);
        assert_eq!(&bytes[144..508], &[0; 364]);
        assert_eq!(Memory::decode(&bytes).as_ref(), Ok(&memory));
        assert_eq!(memory.key(2), Some(KeyTag([0xa2; 16])));
        assert_eq!((memory.key(3), memory.number_of(&KeyTag([0xa1; 16]))), (None, Some(1)));
        let one = Memory { further_keys: Vec::new(), ..memory };
        assert_eq!(one.encode()[8..12], [1, 0, 0, 0], "one key is version 1");
    }

    #[test]
    fn a_list_of_keys_that_cannot_be_is_refused() {
        let sealed = |change: &dyn Fn(&mut [u8; COPY_LEN])| {
            let mut bytes = several_keys().encode();
            change(&mut bytes);
            let crc = crc32c(&bytes[..CRC_AT]);
            bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            Memory::decode(&bytes)
        };
        for count in [0, KEYS_MAX as u8, 255] {
            assert!(sealed(&|bytes| bytes[108] = count).is_err(), "{count} further keys");
        }
        assert!(sealed(&|bytes| bytes[57] = 1).is_err(), "keys of a plain volume");
        assert!(sealed(&|bytes| bytes[8] = 3).is_err(), "write-once, and does not say so");
        assert!(sealed(&|bytes| bytes[8] = 4).is_err(), "a later version");
        let full = Memory { further_keys: vec![KeyTag([1; 16]); KEYS_MAX - 1], ..memory() };
        assert_eq!(Memory::decode(&full.encode()), Ok(full));
    }

    #[test]
    fn an_empty_file_is_no_cartridge() {
        assert!(Memory::read(&tempfile::tempfile().unwrap()).unwrap().is_err());
    }
}
