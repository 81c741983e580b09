//! The header at the front of every block that Capstan writes behind a volume's label.
//!
//! With it any block can be placed without a catalog. 64 bytes, then the payload:
//! ```text
//!  0  4  magic "CPB1"
//!  4  1  kind: 1 data, 2 session header, 3 catalog part, 4 checkpoint
//!  5  1  flags: bit 0 payload is a zstd frame; bit 1 last block of this connection of the object
//!  6  2  connection
//!  8  8  volume id
//! 16  8  session id
//! 24 16  object id (zero where the block belongs to no object)
//! 40  4  sequence: 0, 1, 2 ... within object and connection (within the part for kind 3)
//! 44  4  payload length as stored
//! 48  8  offset of the payload in the connection's stream, before compression
//! 56  4  payload length before compression
//! 60  4  CRC32C of bytes 0 to 59 and the payload as stored
//! ```
//! The offset counts within one connection: an object read over several connections is the concatenation of their
//! streams in order of their numbers, so that sources need not be put in order while they are read.

use crate::cursor::Cursor;
use crate::{FormatError, ObjectId, SessionId, VolumeId};

/// Length of a block header.
pub const BLOCK_HEADER_LEN: usize = 64;

const MAGIC: [u8; 4] = *b"CPB1";
const CRC_AT: usize = 60;
const FLAG_ZSTD: u8 = 1;
const FLAG_LAST: u8 = 2;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// A piece of an object's payload.
    Data,
    /// The first block of a session: a [`crate::SessionRecord`].
    Session,
    /// A piece of a [`crate::CatalogPart`].
    Catalog,
    /// A [`crate::Checkpoint`], the last block before a filemark.
    Checkpoint,
}

/// How a block's payload was compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Stored as it was read.
    None,
    /// One zstd frame.
    Zstd,
}

/// A decoded block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// What the block holds.
    pub kind: BlockKind,
    /// How the payload is stored.
    pub compression: Compression,
    /// No further block of this connection of the object follows.
    pub last: bool,
    /// The source that fed the block.
    pub connection: u16,
    /// The life of the volume it was written in.
    pub volume: VolumeId,
    /// The session that wrote it.
    pub session: SessionId,
    /// The object it belongs to.
    pub object: ObjectId,
    /// Its number within object and connection.
    pub sequence: u32,
    /// Payload bytes as stored.
    pub stored_len: u32,
    /// Where the payload begins in the connection's stream.
    pub offset: u64,
    /// Payload bytes before compression.
    pub plain_len: u32,
}

impl BlockHeader {
    /// Writes the header to the front of `block`, whose remaining bytes are the payload as stored.
    ///
    /// # Panics
    /// If `block` is not exactly header and payload.
    pub fn seal(&self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK_HEADER_LEN + self.stored_len as usize, "a block is its header and payload");
        let kind = match self.kind {
            BlockKind::Data => 1,
            BlockKind::Session => 2,
            BlockKind::Catalog => 3,
            BlockKind::Checkpoint => 4,
        };
        let zstd = if self.compression == Compression::Zstd { FLAG_ZSTD } else { 0 };
        let last = if self.last { FLAG_LAST } else { 0 };
        block[0..4].copy_from_slice(&MAGIC);
        block[4] = kind;
        block[5] = zstd | last;
        block[6..8].copy_from_slice(&self.connection.to_le_bytes());
        block[8..16].copy_from_slice(&self.volume.0.to_le_bytes());
        block[16..24].copy_from_slice(&self.session.0.to_le_bytes());
        block[24..40].copy_from_slice(&self.object.0);
        block[40..44].copy_from_slice(&self.sequence.to_le_bytes());
        block[44..48].copy_from_slice(&self.stored_len.to_le_bytes());
        block[48..56].copy_from_slice(&self.offset.to_le_bytes());
        block[56..60].copy_from_slice(&self.plain_len.to_le_bytes());
        let crc = block_crc(block);
        block[CRC_AT..BLOCK_HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes a block and checks length and checksum; returns the header and the payload as stored.
    ///
    /// # Errors
    /// [`FormatError::Magic`] if the bytes do not begin as a block; [`FormatError::Checksum`] and
    /// [`FormatError::Truncated`] if it is damaged; [`FormatError::Field`] if a field has a value that no writer
    /// writes.
    pub fn open(block: &[u8]) -> Result<(Self, &[u8]), FormatError> {
        let mut cursor = Cursor::new("block", block);
        if cursor.array::<4>()? != MAGIC {
            return Err(FormatError::Magic { what: "block" });
        }
        let kind = cursor.u8()?;
        let flags = cursor.u8()?;
        let connection = cursor.u16()?;
        let volume = VolumeId(cursor.u64()?);
        let session = SessionId(cursor.u64()?);
        let object = ObjectId(cursor.array()?);
        let sequence = cursor.u32()?;
        let stored_len = cursor.u32()?;
        let offset = cursor.u64()?;
        let plain_len = cursor.u32()?;
        let stored = cursor.u32()?;
        let payload = cursor.take(stored_len as usize)?;
        if !cursor.is_empty() {
            return Err(cursor.field("bytes behind the payload", &(block.len() - cursor.position())));
        }
        let computed = block_crc(block);
        if stored != computed {
            return Err(FormatError::Checksum { what: "block", stored, computed });
        }
        let kind = match kind {
            1 => BlockKind::Data,
            2 => BlockKind::Session,
            3 => BlockKind::Catalog,
            4 => BlockKind::Checkpoint,
            other => return Err(cursor.field("kind", &other)),
        };
        if flags & !(FLAG_ZSTD | FLAG_LAST) != 0 {
            return Err(cursor.field("flags", &flags));
        }
        let compression = if flags & FLAG_ZSTD != 0 { Compression::Zstd } else { Compression::None };
        if compression == Compression::None && plain_len != stored_len {
            return Err(cursor.field("plain length", &plain_len));
        }
        let last = flags & FLAG_LAST != 0;
        let header = Self {
            kind,
            compression,
            last,
            connection,
            volume,
            session,
            object,
            sequence,
            stored_len,
            offset,
            plain_len,
        };
        Ok((header, payload))
    }
}

fn block_crc(block: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..CRC_AT]);
    digest.update(&block[BLOCK_HEADER_LEN..]);
    digest.finalize() as u32
}
