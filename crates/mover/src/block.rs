//! Chunks on their way to becoming blocks.

use capstan_format::{BLOCK_HEADER_LEN, BlockHeader, BlockKind, Compression, FileEntry, ObjectId, SessionId, VolumeId};

use crate::entries_room::EntriesHeld;
use crate::pool::Buffer;

/// What a chunk is, before it is known on which volume it will stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    /// Which run of chunks it belongs to; one connection of one object may have several, one after the other.
    pub(crate) stream: u64,
    /// Sequence of that run's first chunk.
    pub(crate) first_sequence: u32,
    /// Whether the run ends here.
    pub(crate) closes: bool,
    pub(crate) object: ObjectId,
    pub(crate) connection: u16,
    pub(crate) sequence: u32,
    pub(crate) offset: u64,
    pub(crate) plain_len: u32,
    pub(crate) last: bool,
    /// End of the last whole member in the stream once this chunk is written.
    pub(crate) valid_len: u64,
}

/// A chunk as a source filled it: payload behind room for the header.
pub(crate) struct Chunk {
    pub(crate) place: ChunkPlace,
    pub(crate) buffer: Buffer,
    /// Members that end in this chunk.
    pub(crate) entries: Vec<FileEntry>,
}

/// A chunk ready for the drive, but for the header that only its volume can complete.
pub(crate) struct Block {
    pub(crate) place: ChunkPlace,
    pub(crate) buffer: Buffer,
    pub(crate) compression: Compression,
    pub(crate) stored_len: u32,
    pub(crate) entries: Vec<FileEntry>,
    /// Their room, if they came over a network.
    pub(crate) _held: Option<EntriesHeld>,
}

impl Block {
    /// Length on the volume.
    pub(crate) fn len(&self) -> usize {
        BLOCK_HEADER_LEN + self.stored_len as usize
    }

    pub(crate) fn header(&self, volume: VolumeId, session: SessionId) -> BlockHeader {
        let place = self.place;
        BlockHeader {
            kind: BlockKind::Data,
            compression: self.compression,
            last: place.last,
            connection: place.connection,
            volume,
            session,
            object: place.object,
            sequence: place.sequence,
            stored_len: self.stored_len,
            offset: place.offset,
            plain_len: place.plain_len,
        }
    }
}
