//! The first two blocks of a volume: the ANSI label that any program reads, then our volume header.
//!
//! `VOL1` (ANSI X3.27, 80 bytes of ASCII): identifier `VOL1`, volume serial of six characters (space-padded; a volser
//! of eight loses its media type here and has it in the volume header), and the label-standard version `3` at byte 79.
//!
//! The volume header, 128 bytes:
//! ```text
//!   0  8  magic "CPSTNVOL"
//!   8  4  format version
//!  12  4  largest block length written to this volume
//!  16  8  volume id
//!  24  8  volser, space-padded
//!  32  8  labelled at, nanoseconds since 1970 (signed)
//!  40  1  length of the pool's name; 41 63 the name, UTF-8, zero-padded
//! 104  4  times the volume was labelled before
//! 108 16  zero
//! 124  4  CRC32C of bytes 0 to 123
//! ```

use serde::{Deserialize, Serialize};

use crate::cursor::Cursor;
use crate::{FormatError, Volser, VolumeId, crc32c};

/// Version of the format that this crate writes.
pub const FORMAT_VERSION: u32 = 1;
/// Length of the ANSI label.
pub const VOL1_LEN: usize = 80;

const HEADER_LEN: usize = 128;
const MAGIC: [u8; 8] = *b"CPSTNVOL";
const POOL_LEN_MAX: usize = 63;

/// The ANSI `VOL1` label of a volume.
pub fn vol1_encode(volser: &Volser) -> [u8; VOL1_LEN] {
    let mut label = [b' '; VOL1_LEN];
    label[..4].copy_from_slice(b"VOL1");
    for (slot, byte) in label[4..10].iter_mut().zip(volser.as_str().bytes()) {
        *slot = byte;
    }
    label[VOL1_LEN - 1] = b'3';
    label
}

/// The serial in an ANSI `VOL1` label: six characters at most.
///
/// # Errors
/// [`FormatError::Truncated`] and [`FormatError::Magic`] if it is no such label; [`FormatError::Field`] if the serial
/// is no barcode.
pub fn vol1_decode(block: &[u8]) -> Result<Volser, FormatError> {
    if block.len() < VOL1_LEN {
        let found = block.len() as u64;
        return Err(FormatError::Truncated { what: "VOL1 label", needed: VOL1_LEN as u64, found });
    }
    if &block[..4] != b"VOL1" {
        return Err(FormatError::Magic { what: "VOL1 label" });
    }
    let serial = String::from_utf8_lossy(&block[4..10]);
    Volser::new(serial.trim_end())
}

/// What Capstan says about a volume in its second block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeHeader {
    /// This life of the volume.
    pub volume: VolumeId,
    /// The whole barcode.
    pub volser: Volser,
    /// When it was labelled, nanoseconds since 1970.
    pub labelled_ns: i64,
    /// The pool it was labelled for, at most 63 bytes.
    pub pool: String,
    /// Largest block that will be written.
    pub block_len_max: u32,
    /// How many lives the volume had before.
    pub recycled: u32,
}

impl VolumeHeader {
    /// The block's bytes.
    ///
    /// # Panics
    /// If the pool's name is longer than 63 bytes; names are checked where they are made.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.pool.len() <= POOL_LEN_MAX, "pool names have at most {POOL_LEN_MAX} bytes");
        let mut bytes = vec![0; HEADER_LEN];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.block_len_max.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.volume.0.to_le_bytes());
        bytes[24..32].fill(b' ');
        bytes[24..24 + self.volser.as_str().len()].copy_from_slice(self.volser.as_str().as_bytes());
        bytes[32..40].copy_from_slice(&self.labelled_ns.to_le_bytes());
        bytes[40] = self.pool.len() as u8;
        bytes[41..41 + self.pool.len()].copy_from_slice(self.pool.as_bytes());
        bytes[104..108].copy_from_slice(&self.recycled.to_le_bytes());
        let crc = crc32c(&bytes[..HEADER_LEN - 4]);
        bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the block and checks its checksum.
    ///
    /// # Errors
    /// [`FormatError::Magic`] if it is no volume header; [`FormatError::Version`] if a later program wrote it;
    /// [`FormatError::Truncated`] and [`FormatError::Checksum`] if it is damaged; [`FormatError::Field`] if a field has
    /// a value that no writer writes.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut cursor = Cursor::new("volume header", block);
        if cursor.array::<8>()? != MAGIC {
            return Err(FormatError::Magic { what: "volume header" });
        }
        let version = cursor.u32()?;
        if version > FORMAT_VERSION {
            return Err(FormatError::Version { what: "volume header", found: version, supported: FORMAT_VERSION });
        }
        let block_len_max = cursor.u32()?;
        let volume = VolumeId(cursor.u64()?);
        let volser = cursor.array::<8>()?;
        let labelled_ns = cursor.u64()?.cast_signed();
        let pool_len = usize::from(cursor.u8()?);
        let pool = cursor.array::<POOL_LEN_MAX>()?;
        let recycled = cursor.u32()?;
        cursor.take(16)?;
        let stored = cursor.u32()?;
        if !cursor.is_empty() {
            return Err(cursor.field("length", &block.len()));
        }
        let computed = crc32c(&block[..HEADER_LEN - 4]);
        if stored != computed {
            return Err(FormatError::Checksum { what: "volume header", stored, computed });
        }
        if pool_len > POOL_LEN_MAX {
            return Err(cursor.field("pool name length", &pool_len));
        }
        let pool = str::from_utf8(&pool[..pool_len]).map_err(|_| cursor.field("pool name", &"not UTF-8"))?.to_owned();
        let volser = Volser::new(String::from_utf8_lossy(&volser).trim_end())?;
        Ok(Self { volume, volser, labelled_ns, pool, block_len_max, recycled })
    }
}
