//! The header in front of each block and filemark of a virtual cartridge.
//!
//! ```text
//!  0  4  magic "CPR1"
//!  4  8  life of the volume
//! 12  1  kind: 1 plain block, 2 encrypted block, 3 filemark
//! 13  1  encrypted block: number of its key in the cartridge memory; else zero
//! 14  2  zero
//! 16  8  logical block number
//! 24  4  stored length: 0 for a filemark
//! 28  4  CRC32C of the stored bytes
//! 32  4  CRC32C of bytes 0 to 31 and the file offset of this header (8 bytes, little-endian)
//! ```
//! The life, drawn at random whenever writing begins at the beginning of tape, keeps records of an earlier life from
//! being taken for records of this one. The offset inside the checksum does the same for a record that was moved, and
//! for the image of a cartridge that is itself the payload of a block: its headers do not pass where they now stand, so
//! a scan may look for headers in the middle of anything.

use capstan_format::{ENVELOPE_LEN, crc32c};

/// Longest block that a virtual drive takes, bytes: that of a T10000.
pub(super) const BLOCK_LEN_MAX: u32 = 2 * 1024 * 1024;
/// Longest record without its header: the longest block in its envelope.
pub(super) const STORED_LEN_MAX: u32 = BLOCK_LEN_MAX + ENVELOPE_LEN as u32;
/// Bytes of a record header.
pub(super) const RECORD_HEADER_LEN: usize = 36;

const MAGIC: [u8; 4] = *b"CPR1";
const CRC_AT: usize = 32;
/// Magic and life: what a scan searches for.
pub(super) const NEEDLE_LEN: usize = 12;

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    PlainBlock,
    EncryptedBlock {
        /// Number of its key in the cartridge memory.
        key: u8,
    },
    Filemark,
}

/// A decoded record header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) kind: RecordKind,
    pub(super) life: u64,
    pub(super) lbn: u64,
    pub(super) stored_len: u32,
    pub(super) data_crc: u32,
}

impl RecordHeader {
    /// Bytes of the whole record.
    pub(super) fn record_len(&self) -> u64 {
        RECORD_HEADER_LEN as u64 + u64::from(self.stored_len)
    }

    pub(super) fn encode(&self, offset: u64) -> [u8; RECORD_HEADER_LEN] {
        let mut bytes = [0; RECORD_HEADER_LEN];
        bytes[..NEEDLE_LEN].copy_from_slice(&needle(self.life));
        bytes[12] = match self.kind {
            RecordKind::PlainBlock => 1,
            RecordKind::EncryptedBlock { .. } => 2,
            RecordKind::Filemark => 3,
        };
        if let RecordKind::EncryptedBlock { key } = self.kind {
            bytes[13] = key;
        }
        bytes[16..24].copy_from_slice(&self.lbn.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.data_crc.to_le_bytes());
        let crc = header_crc(&bytes, offset);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header that stands at `offset` of a volume in its life `life`; the error says what is wrong with it.
    pub(super) fn decode(bytes: &[u8; RECORD_HEADER_LEN], offset: u64, life: u64) -> Result<Self, &'static str> {
        if bytes[..4] != MAGIC {
            return Err("its record header is damaged");
        }
        if u32_at(bytes, CRC_AT) != header_crc(bytes, offset) {
            return Err("its record header is damaged, or stands where it was not written");
        }
        let found = u64_at(bytes, 4);
        if found != life {
            return Err("it belongs to an earlier life of the volume");
        }
        let stored_len = u32_at(bytes, 24);
        let kind = match bytes[12] {
            1 if (1..=BLOCK_LEN_MAX).contains(&stored_len) => RecordKind::PlainBlock,
            2 if (ENVELOPE_LEN as u32 + 1..=STORED_LEN_MAX).contains(&stored_len) => {
                RecordKind::EncryptedBlock { key: bytes[13] }
            }
            3 if stored_len == 0 => RecordKind::Filemark,
            _ => return Err("its record header has an impossible kind or length"),
        };
        Ok(Self { kind, life, lbn: u64_at(bytes, 16), stored_len, data_crc: u32_at(bytes, 28) })
    }
}

/// The first bytes of every record header of one life.
pub(super) fn needle(life: u64) -> [u8; NEEDLE_LEN] {
    let mut bytes = [0; NEEDLE_LEN];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..].copy_from_slice(&life.to_le_bytes());
    bytes
}

fn header_crc(bytes: &[u8; RECORD_HEADER_LEN], offset: u64) -> u32 {
    let mut checked = [0; CRC_AT + 8];
    checked[..CRC_AT].copy_from_slice(&bytes[..CRC_AT]);
    checked[CRC_AT..].copy_from_slice(&offset.to_le_bytes());
    crc32c(&checked)
}

/// Little-endian field of a buffer whose length the caller knows.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// Little-endian field of a buffer whose length the caller knows.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: RecordHeader = RecordHeader {
        kind: RecordKind::EncryptedBlock { key: 3 },
        life: 0x0102_0304_0506_0708,
        lbn: 7,
        stored_len: 100,
        data_crc: 0xdead_beef,
    };

    #[test]
    fn bytes_stand_where_the_page_says() {
        let bytes = HEADER.encode(4096);
        assert_eq!(&bytes[..4], b"CPR1");
        assert_eq!(&bytes[4..12], &[8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(&bytes[12..16], &[2, 3, 0, 0]);
        assert_eq!(&bytes[16..24], &[7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[24..28], &[100, 0, 0, 0]);
        assert_eq!(&bytes[28..32], &[0xef, 0xbe, 0xad, 0xde]);
        assert_eq!(RecordHeader::decode(&bytes, 4096, HEADER.life), Ok(HEADER));
    }

    #[test]
    fn each_flipped_bit_another_place_and_another_life_are_refused() {
        let bytes = HEADER.encode(4096);
        for bit in 0..RECORD_HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordHeader::decode(&flipped, 4096, HEADER.life).is_err(), "bit {bit}");
        }
        assert!(RecordHeader::decode(&bytes, 4097, HEADER.life).is_err());
        assert!(RecordHeader::decode(&bytes, 4096, HEADER.life + 1).is_err());
    }
}
