//! A mounted volume: its label, its session headers and checkpoints, found by position alone.
//!
//! ```text
//! lbn 0      1              2         3 ...
//!     VOL1 | volume header | filemark | sessions ...
//! ```
//! A filemark stands behind the label and behind each checkpoint and nowhere else, so the last checkpoint is found from
//! the end of data by spacing back over one filemark, even when a crash left blocks behind it.

use capstan_format::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, CatalogPart, Checkpoint, Compression, SessionId, SessionRecord, VOL1_LEN,
    Volser, VolumeHeader, VolumeId, vol1_decode, vol1_encode,
};
use capstan_tape::{Drive, Flush, ReadOutcome};
use serde::{Deserialize, Serialize};

use crate::MoverError;

/// Where the first session begins on any volume.
pub const FIRST_SESSION_LBN: u64 = 3;
/// Longest block that a reader makes room for.
pub(crate) const BLOCK_LEN_MAX: usize = 16 << 20;
/// Longest catalog part that a reader makes room for.
const PART_LEN_MAX: u64 = 1 << 30;

/// Writes a label from the beginning of tape: every earlier life of the volume ends here. The key, if the volume is to
/// be encrypted, must be loaded before.
///
/// # Errors
/// The drive cannot rewind or write, or the flush fails: the volume may have no label then.
pub fn write_label(drive: &mut dyn Drive, header: &VolumeHeader) -> Result<(), MoverError> {
    let at = || MoverError::drive(&header.volser);
    drive.locate(0).map_err(at())?;
    drive.write_block(&vol1_encode(&header.volser)).map_err(at())?;
    drive.write_block(&header.encode()).map_err(at())?;
    drive.write_filemarks(1, Flush::Synchronous).map_err(at())?;
    Ok(())
}

/// Reads the label of the volume in the drive, which the changer or the operator calls `volser`.
///
/// # Errors
/// The drive cannot read, or what stands there is no label of ours or that of another volume.
pub fn read_label(drive: &mut dyn Drive, volser: &Volser) -> Result<VolumeHeader, MoverError> {
    let mut reader = VolumeReader { drive, volser: volser.clone(), volume: None, buffer: Vec::new(), at: None };
    let not_labelled = |reason: String| MoverError::NotLabelled { volser: volser.clone(), reason };
    match reader.read_raw(0)? {
        Raw::Block(len) if len >= VOL1_LEN => {
            vol1_decode(&reader.buffer[..len]).map_err(|error| not_labelled(error.to_string()))?;
        }
        Raw::Block(len) => return Err(not_labelled(format!("its first block has {len} bytes"))),
        Raw::Filemark | Raw::EndOfData => return Err(not_labelled("it is blank".to_owned())),
    }
    let header = match reader.read_raw(1)? {
        Raw::Block(len) => {
            let decoded = VolumeHeader::decode(&reader.buffer[..len]);
            decoded.map_err(|source| MoverError::Format { volser: volser.clone(), lbn: 1, source })?
        }
        Raw::Filemark | Raw::EndOfData => return Err(not_labelled("it has no volume header".to_owned())),
    };
    if header.volser != *volser {
        let reason = format!("its label says {}", header.volser);
        return Err(MoverError::Misplaced { volser: volser.clone(), lbn: 1, reason });
    }
    Ok(header)
}

/// A checkpoint as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundCheckpoint {
    /// Where it stands; the filemark is one further.
    pub lbn: u64,
    /// Whose it is.
    pub session: SessionId,
    /// Its fields.
    pub checkpoint: Checkpoint,
}

/// What stands at a place of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundBlock {
    /// A block of ours, whole; its header.
    Block(BlockHeader),
    /// A filemark.
    Filemark,
}

enum Raw {
    Block(usize),
    Filemark,
    EndOfData,
}

/// Reads blocks of one volume by number, checking that each is the one asked for.
pub struct VolumeReader<'a> {
    drive: &'a mut dyn Drive,
    volser: Volser,
    volume: Option<VolumeId>,
    buffer: Vec<u8>,
    at: Option<u64>,
}

impl<'a> VolumeReader<'a> {
    /// A reader over the volume in `drive`, whose label was read and found to be `volume`.
    pub fn new(drive: &'a mut dyn Drive, volser: Volser, volume: VolumeId) -> Self {
        Self { drive, volser, volume: Some(volume), buffer: Vec::new(), at: None }
    }

    /// The same, over a drive that stands at a block.
    pub(crate) fn standing_at(self, at: Option<u64>) -> Self {
        Self { at, ..self }
    }

    /// Where the drive stands, if that is known.
    pub(crate) fn stands_at(&self) -> Option<u64> {
        self.at
    }

    /// The volume's barcode.
    pub fn volser(&self) -> &Volser {
        &self.volser
    }

    fn size_buffer(&self, buffer: &mut Vec<u8>) {
        let len = (self.drive.block_limits().max as usize).min(BLOCK_LEN_MAX);
        if buffer.len() != len {
            // New memory is zero already, and most blocks use little of it: no page is touched for nothing.
            *buffer = vec![0; len];
        }
    }

    fn read_raw(&mut self, lbn: u64) -> Result<Raw, MoverError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.size_buffer(&mut buffer);
        let raw = self.read_raw_into(lbn, &mut buffer);
        self.buffer = buffer;
        raw
    }

    fn read_raw_into(&mut self, lbn: u64, buffer: &mut [u8]) -> Result<Raw, MoverError> {
        if self.at != Some(lbn) {
            self.at = None;
            self.drive.locate(lbn).map_err(MoverError::drive(&self.volser))?;
        }
        // An error leaves the position to be found again by a locate.
        self.at = None;
        let raw = match self.drive.read_block(buffer).map_err(MoverError::drive(&self.volser))? {
            ReadOutcome::Block(len) => Raw::Block(len),
            ReadOutcome::Filemark => Raw::Filemark,
            ReadOutcome::EndOfData => return Ok(Raw::EndOfData),
        };
        self.at = Some(lbn + 1);
        Ok(raw)
    }

    fn misplaced(&self, lbn: u64, reason: impl Into<String>) -> MoverError {
        MoverError::Misplaced { volser: self.volser.clone(), lbn, reason: reason.into() }
    }

    /// Reads the block at `lbn` into `buffer`: its header; the payload as stored stands behind it. Both are checked
    /// against checksum and volume.
    pub(crate) fn read_into(&mut self, lbn: u64, buffer: &mut [u8]) -> Result<BlockHeader, MoverError> {
        let len = match self.read_raw_into(lbn, buffer)? {
            Raw::Block(len) => len,
            Raw::Filemark => return Err(self.misplaced(lbn, "a filemark stands where a block should be")),
            Raw::EndOfData => return Err(self.misplaced(lbn, "the volume ends before this block: it was cut short")),
        };
        self.open(lbn, &buffer[..len])
    }

    fn open(&self, lbn: u64, block: &[u8]) -> Result<BlockHeader, MoverError> {
        let opened = BlockHeader::open(block);
        let (header, _) = opened.map_err(|source| MoverError::Format { volser: self.volser.clone(), lbn, source })?;
        if self.volume != Some(header.volume) {
            return Err(self.misplaced(lbn, format!("it was written to another life of a volume, {}", header.volume)));
        }
        Ok(header)
    }

    /// Reads the block at `lbn`: its header and its payload as stored.
    ///
    /// # Errors
    /// The drive cannot read it, or it is damaged, is not a block, or is of another volume or life.
    pub fn read(&mut self, lbn: u64) -> Result<(BlockHeader, &[u8]), MoverError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.size_buffer(&mut buffer);
        let header = self.read_into(lbn, &mut buffer);
        self.buffer = buffer;
        let header = header?;
        Ok((header, &self.buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + header.stored_len as usize]))
    }

    /// What stands at `lbn`; a block is checked as by [`VolumeReader::read`].
    ///
    /// # Errors
    /// The drive cannot read it, or it is damaged or is of another volume or life.
    pub fn find(&mut self, lbn: u64) -> Result<FoundBlock, MoverError> {
        match self.read_raw(lbn)? {
            Raw::Block(len) => Ok(FoundBlock::Block(self.open(lbn, &self.buffer[..len])?)),
            Raw::Filemark => Ok(FoundBlock::Filemark),
            Raw::EndOfData => Err(self.misplaced(lbn, "the volume ends before this block: it was cut short")),
        }
    }

    /// The last checkpoint on the volume, if it has any.
    ///
    /// # Errors
    /// The drive cannot position or read, or what stands there is damaged.
    pub fn last_checkpoint(&mut self) -> Result<Option<FoundCheckpoint>, MoverError> {
        self.last_checkpoint_lbn()?.map(|lbn| self.checkpoint(lbn)).transpose()
    }

    /// Where the last checkpoint stands, by the last filemark alone.
    ///
    /// # Errors
    /// The drive cannot position.
    pub fn last_checkpoint_lbn(&mut self) -> Result<Option<u64>, MoverError> {
        self.at = None;
        self.drive.space_to_end_of_data().map_err(MoverError::drive(&self.volser))?;
        self.filemark_before()
    }

    /// Where the checkpoint before the one at `lbn` stands, by filemarks alone: the way on where one cannot be read.
    ///
    /// # Errors
    /// The drive cannot position.
    pub fn checkpoint_lbn_before(&mut self, lbn: u64) -> Result<Option<u64>, MoverError> {
        self.at = None;
        self.drive.locate(lbn).map_err(MoverError::drive(&self.volser))?;
        self.filemark_before()
    }

    fn filemark_before(&mut self) -> Result<Option<u64>, MoverError> {
        self.drive.space_filemarks(-1).map_err(MoverError::drive(&self.volser))?;
        let filemark = self.drive.position().map_err(MoverError::drive(&self.volser))?.lbn;
        Ok((filemark > FIRST_SESSION_LBN).then(|| filemark - 1))
    }

    /// The checkpoint at `lbn`.
    ///
    /// # Errors
    /// The drive cannot read it, or it is damaged or is not a checkpoint of this life.
    pub fn checkpoint(&mut self, lbn: u64) -> Result<FoundCheckpoint, MoverError> {
        let volser = self.volser.clone();
        let (header, payload) = self.read(lbn)?;
        if header.kind != BlockKind::Checkpoint {
            return Err(MoverError::Misplaced { volser, lbn, reason: "no checkpoint stands here".to_owned() });
        }
        let plain = plain_payload(&header, payload, &volser, lbn)?;
        let checkpoint = Checkpoint::decode(&plain).map_err(|source| MoverError::Format { volser, lbn, source })?;
        if checkpoint.previous_lbn >= lbn || checkpoint.part_lbn > lbn {
            return Err(self.misplaced(lbn, "the checkpoint points forward"));
        }
        Ok(FoundCheckpoint { lbn, session: header.session, checkpoint })
    }

    /// The catalog part of a checkpoint.
    ///
    /// # Errors
    /// The drive cannot read it, or it is damaged or is not what its checkpoint says.
    pub fn catalog_part(&mut self, found: &FoundCheckpoint) -> Result<CatalogPart, MoverError> {
        let Checkpoint { part_lbn, part_blocks, part_len, .. } = found.checkpoint;
        if part_len > PART_LEN_MAX {
            return Err(self.misplaced(found.lbn, format!("a catalog part of {part_len} bytes is not believed")));
        }
        let mut bytes = Vec::new();
        for sequence in 0..part_blocks {
            let lbn = part_lbn + u64::from(sequence);
            let volser = self.volser.clone();
            let (header, payload) = self.read(lbn)?;
            if header.kind != BlockKind::Catalog || header.sequence != sequence || header.session != found.session {
                return Err(self.misplaced(lbn, format!("it is not piece {sequence} of the catalog part")));
            }
            bytes.extend_from_slice(&plain_payload(&header, payload, &volser, lbn)?);
            if bytes.len() as u64 > part_len {
                return Err(self.misplaced(lbn, "the catalog part is longer than its checkpoint says"));
            }
        }
        if bytes.len() as u64 != part_len {
            return Err(self.misplaced(found.lbn, "the catalog part is shorter than its checkpoint says"));
        }
        let (volser, lbn) = (self.volser.clone(), part_lbn);
        CatalogPart::decode(&bytes).map_err(|source| MoverError::Format { volser, lbn, source })
    }

    /// The session header at `lbn`.
    ///
    /// # Errors
    /// The drive cannot read it, or it is damaged or is not a session header of this life.
    pub fn session_record(&mut self, lbn: u64) -> Result<(SessionId, SessionRecord), MoverError> {
        let volser = self.volser.clone();
        let (header, payload) = self.read(lbn)?;
        if header.kind != BlockKind::Session {
            return Err(MoverError::Misplaced { volser, lbn, reason: "no session header stands here".to_owned() });
        }
        let plain = plain_payload(&header, payload, &volser, lbn)?;
        let record = SessionRecord::decode(&plain).map_err(|source| MoverError::Format { volser, lbn, source })?;
        Ok((header.session, record))
    }
}

/// A block's payload as it was before compression; its length is bounded before room is made for it.
pub(crate) fn plain_payload(
    header: &BlockHeader,
    payload: &[u8],
    volser: &Volser,
    lbn: u64,
) -> Result<Vec<u8>, MoverError> {
    let misplaced = |reason: String| MoverError::Misplaced { volser: volser.clone(), lbn, reason };
    match header.compression {
        Compression::None => Ok(payload.to_vec()),
        Compression::Zstd => {
            let plain_len = header.plain_len as usize;
            if plain_len > BLOCK_LEN_MAX {
                return Err(misplaced(format!("a payload of {plain_len} bytes is not believed")));
            }
            let plain = zstd::bulk::decompress(payload, plain_len);
            let plain = plain.map_err(|error| misplaced(format!("it cannot be decompressed: {error}")))?;
            if plain.len() != plain_len {
                return Err(misplaced(format!("it has {} bytes, its header says {plain_len}", plain.len())));
            }
            Ok(plain)
        }
    }
}

/// A block that is no data: header and small payload, stored as it is.
pub(crate) fn small_block(
    kind: BlockKind,
    volume: VolumeId,
    session: SessionId,
    sequence: u32,
    payload: &[u8],
) -> Vec<u8> {
    let header = BlockHeader {
        kind,
        compression: Compression::None,
        last: false,
        connection: 0,
        volume,
        session,
        object: capstan_format::ObjectId([0; 16]),
        sequence,
        stored_len: payload.len() as u32,
        offset: 0,
        plain_len: payload.len() as u32,
    };
    let mut block = vec![0; BLOCK_HEADER_LEN + payload.len()];
    block[BLOCK_HEADER_LEN..].copy_from_slice(payload);
    header.seal(&mut block);
    block
}
