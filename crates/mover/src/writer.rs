//! A session on one volume: blocks, extents, checkpoints, trailer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use capstan_format::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, CatalogPart, Checkpoint, Compression, EntryEncoder, ExtentRecord,
    ObjectId, ObjectRecord, PartRecord, SessionId, SessionRecord, Volser, VolumeId,
};
use capstan_tape::{Drive, DriveError, Flush, WriteOutcome};

use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::drive_health::DriveHealth;
use crate::volume::{FIRST_SESSION_LBN, VolumeReader, small_block};
use crate::{MountId, MoverError};

/// Level for catalog parts: they are small beside the data and read whenever a catalog is rebuilt.
const PART_ZSTD_LEVEL: i32 = 3;
/// Bytes that a checkpoint takes for an extent, about. A client may send blocks that are an extent each.
const EXTENT_BYTES: usize = 64;

/// A volume in a drive, ready to be appended to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// The drive; the key, if the volume has one, is loaded.
    pub mount: MountId,
    /// The volume's barcode.
    pub volser: Volser,
    /// This life of the volume, as its label says.
    pub volume: VolumeId,
    /// Where the next session begins: behind the filemark of the last checkpoint, or behind the label.
    pub append_lbn: u64,
    /// Id for the session that begins here.
    pub session: SessionId,
}

/// What a flush has made safe, to be recorded in the catalog.
#[derive(Debug)]
pub struct Commit {
    /// The volume.
    pub volser: Volser,
    /// Its life.
    pub volume: VolumeId,
    /// The session.
    pub session: SessionId,
    /// What the session says of itself.
    pub session_record: SessionRecord,
    /// Where the checkpoint stands.
    pub checkpoint_lbn: u64,
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// What it adds.
    pub part: CatalogPart,
    /// Where data ends.
    pub end_lbn: u64,
    /// Bytes written to the volume in this session so far.
    pub session_bytes: u64,
}

/// Whether a data block found room.
pub(crate) enum Taken {
    Written,
    /// It did not: here it is again, for the next volume.
    NoRoom(Arc<Block>),
}

/// A session that is being written.
pub(crate) struct VolumeWriter {
    drive: Box<dyn Drive>,
    mount: MountId,
    volser: Volser,
    volume: VolumeId,
    session: SessionId,
    record: SessionRecord,
    lbn: u64,
    number: u64,
    previous_lbn: u64,
    session_bytes: u64,
    bytes_since: u64,
    early_warning: bool,
    extents: Vec<ExtentRecord>,
    chunk_len: u32,
    /// Whether the last extent may grow: no checkpoint came since.
    extent_open: bool,
    parts: HashMap<(ObjectId, u16), u64>,
    entries: Vec<(ObjectId, EntryEncoder)>,
    touched: HashSet<ObjectId>,
    scratch: Vec<u8>,
}

impl VolumeWriter {
    /// The writer of a session, which [`VolumeWriter::begin`] begins.
    pub(crate) fn new(mounted: Mounted, drive: Box<dyn Drive>, record: SessionRecord, chunk_len: usize) -> Self {
        let Mounted { mount, volser, volume, append_lbn, session } = mounted;
        Self {
            drive,
            mount,
            volser,
            volume,
            session,
            record,
            lbn: append_lbn,
            number: 0,
            previous_lbn: 0,
            session_bytes: 0,
            bytes_since: 0,
            early_warning: false,
            extents: Vec::new(),
            chunk_len: chunk_len as u32,
            extent_open: false,
            parts: HashMap::new(),
            entries: Vec::new(),
            touched: HashSet::new(),
            scratch: Vec::new(),
        }
    }

    /// Goes to where the session is to begin, sees that it is the place, and writes the session header.
    pub(crate) fn begin(&mut self) -> Result<(), MoverError> {
        let append_lbn = self.lbn;
        if append_lbn > FIRST_SESSION_LBN {
            let checkpoint_lbn = append_lbn - 2;
            let volser = self.volser.clone();
            VolumeReader::new(self.drive.as_mut(), volser, self.volume).checkpoint(checkpoint_lbn)?;
            self.previous_lbn = checkpoint_lbn;
        }
        self.drive.locate(append_lbn).map_err(MoverError::drive(&self.volser))?;
        let found = self.drive.position().map_err(MoverError::drive(&self.volser))?.lbn;
        if found != append_lbn {
            let reason = format!("the drive stands at block {found}; nothing was written");
            return Err(MoverError::Misplaced { volser: self.volser.clone(), lbn: append_lbn, reason });
        }
        let payload = self.record.encode();
        let block = small_block(BlockKind::Session, self.volume, self.session, 0, &payload);
        self.put(&block)
    }

    pub(crate) fn volser(&self) -> &Volser {
        &self.volser
    }

    /// Bytes written since the last checkpoint.
    pub(crate) fn bytes_since(&self) -> u64 {
        self.bytes_since
    }

    /// Bytes that the next checkpoint takes, about: packed entries, and where blocks lie.
    pub(crate) fn part_bytes(&self) -> usize {
        self.entries.iter().map(|(_, run)| run.len()).sum::<usize>() + self.extents.len() * EXTENT_BYTES
    }

    /// Whether early warning was met: close the session and go on to another volume.
    pub(crate) fn is_full(&self) -> bool {
        self.early_warning
    }

    /// Gives the drive back.
    pub(crate) fn into_drive(self) -> (MountId, Box<dyn Drive>) {
        (self.mount, self.drive)
    }

    /// Whether the drive tells of its health.
    pub(crate) fn tells_health(&mut self) -> bool {
        self.drive.care().is_some()
    }

    /// Asks the drive behind a flush how it and the volume are; the next block follows the last one whatever that did.
    pub(crate) fn health(&mut self, told: impl FnOnce(&DriveHealth)) -> Result<(), MoverError> {
        let drive = self.drive.as_mut();
        let Some(health) = DriveHealth::of(drive) else { return Ok(()) };
        told(&health);
        // A question that failed leaves the position in doubt. Nothing is lost with it here; what else was, the drive
        // says itself.
        if drive.position().is_ok_and(|position| position.lbn == self.lbn) {
            return Ok(());
        }
        drive.locate(self.lbn).map_err(MoverError::drive(&self.volser))
    }

    fn put(&mut self, block: &[u8]) -> Result<(), MoverError> {
        let outcome = self.drive.write_block(block).map_err(MoverError::drive(&self.volser))?;
        self.early_warning |= outcome == WriteOutcome::EarlyWarning;
        self.lbn += 1;
        self.session_bytes += block.len() as u64;
        self.bytes_since += block.len() as u64;
        Ok(())
    }

    /// Writes a data block.
    pub(crate) fn write(&mut self, mut block: Arc<Block>) -> Result<Taken, MoverError> {
        let header = block.header(self.volume, self.session);
        let len = block.len();
        let written = match Arc::get_mut(&mut block) {
            // The only holder: the header goes in front of the payload where it lies.
            Some(only) => {
                header.seal(&mut only.buffer[..len]);
                self.put(&only.buffer[..len])
            }
            None => {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.clear();
                scratch.extend_from_slice(&block.buffer[..len]);
                header.seal(&mut scratch);
                let written = self.put(&scratch);
                self.scratch = scratch;
                written
            }
        };
        match written {
            Ok(()) => self.note(&header, block.place.valid_len, len as u64),
            Err(MoverError::Drive { source: DriveError::EndOfMedium { .. }, .. }) => return Ok(Taken::NoRoom(block)),
            Err(error) => return Err(error),
        }
        let entries = match Arc::try_unwrap(block) {
            Ok(block) => block.entries,
            Err(shared) => shared.entries.clone(),
        };
        if !entries.is_empty() {
            let object = header.object;
            let at = match self.entries.iter().position(|(other, _)| *other == object) {
                Some(at) => at,
                None => {
                    self.entries.push((object, EntryEncoder::new()));
                    self.entries.len() - 1
                }
            };
            entries.iter().for_each(|entry| self.entries[at].1.push(entry));
        }
        Ok(Taken::Written)
    }

    fn note(&mut self, header: &BlockHeader, valid_len: u64, stored_len: u64) {
        let lbn = self.lbn - 1;
        self.touched.insert(header.object);
        self.parts.insert((header.object, header.connection), valid_len);
        let plain_len = u64::from(header.plain_len);
        if let Some(last) = self.extents.last_mut().filter(|_| self.extent_open) {
            let goes_on = last.object == header.object
                && last.connection == header.connection
                && last.first_lbn + u64::from(last.blocks) == lbn
                && last.first_sequence + last.blocks == header.sequence
                && last.offset + last.plain_len == header.offset
                && last.plain_len == u64::from(last.blocks) * u64::from(self.chunk_len);
            if goes_on {
                last.blocks += 1;
                last.plain_len += plain_len;
                last.stored_len += stored_len;
                return;
            }
        }
        self.extent_open = true;
        self.extents.push(ExtentRecord {
            object: header.object,
            connection: header.connection,
            first_sequence: header.sequence,
            first_lbn: lbn,
            blocks: 1,
            offset: header.offset,
            plain_len,
            stored_len,
        });
    }

    /// Notes that an object's record changed, so that the next checkpoint carries it.
    pub(crate) fn touch(&mut self, object: ObjectId) {
        self.touched.insert(object);
    }

    /// Notes all streams of an object, and how long they are: whoever has this volume alone knows then what is missing.
    pub(crate) fn note_streams(&mut self, object: ObjectId, streams: impl Iterator<Item = (u16, u64)>) {
        for (connection, valid_len) in streams {
            let noted = self.parts.entry((object, connection)).or_default();
            *noted = valid_len.max(*noted);
        }
    }

    /// Whether a checkpoint would add anything.
    pub(crate) fn has_news(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Writes catalog part, checkpoint and filemark, flushes, and returns what is safe now.
    pub(crate) fn checkpoint(
        &mut self,
        objects: &HashMap<ObjectId, ObjectRecord>,
        closed: bool,
        now_ns: i64,
    ) -> Result<Commit, MoverError> {
        let mut touched: Vec<_> = std::mem::take(&mut self.touched).into_iter().collect();
        touched.sort();
        let mut parts: Vec<_> = std::mem::take(&mut self.parts)
            .into_iter()
            .map(|((object, connection), valid_len)| PartRecord { object, connection, valid_len })
            .collect();
        parts.sort_by_key(|part| (part.object, part.connection));
        let runs = std::mem::take(&mut self.entries);
        let part = CatalogPart {
            objects: touched.iter().filter_map(|object| objects.get(object).cloned()).collect(),
            parts,
            extents: std::mem::take(&mut self.extents),
            entries: runs.into_iter().map(|(object, run)| (object, run.finish())).collect(),
            continued_on: None,
        };
        self.extent_open = false;
        let bytes = part.encode();
        let part_lbn = self.lbn;
        let mut part_blocks = 0;
        for piece in bytes.chunks(self.chunk_len as usize) {
            let block = self.part_block(piece, part_blocks)?;
            self.put(&block)?;
            part_blocks += 1;
        }
        self.number += 1;
        let checkpoint = Checkpoint {
            number: self.number,
            previous_lbn: self.previous_lbn,
            part_lbn,
            part_blocks,
            part_len: bytes.len() as u64,
            closed,
            written_ns: now_ns,
        };
        let checkpoint_lbn = self.lbn;
        self.put(&small_block(BlockKind::Checkpoint, self.volume, self.session, 0, &checkpoint.encode()))?;
        let outcome = self.drive.write_filemarks(1, Flush::Synchronous).map_err(MoverError::drive(&self.volser))?;
        self.early_warning |= outcome == WriteOutcome::EarlyWarning;
        self.lbn += 1;
        self.previous_lbn = checkpoint_lbn;
        self.bytes_since = 0;
        Ok(Commit {
            volser: self.volser.clone(),
            volume: self.volume,
            session: self.session,
            session_record: self.record.clone(),
            checkpoint_lbn,
            checkpoint,
            part,
            end_lbn: self.lbn,
            session_bytes: self.session_bytes,
        })
    }

    fn part_block(&self, piece: &[u8], sequence: u32) -> Result<Vec<u8>, MoverError> {
        let packed = zstd::bulk::compress(piece, PART_ZSTD_LEVEL).map_err(MoverError::Compression)?;
        let (compression, stored) = match packed.len() < piece.len() {
            true => (Compression::Zstd, packed.as_slice()),
            false => (Compression::None, piece),
        };
        let header = BlockHeader {
            kind: BlockKind::Catalog,
            compression,
            last: false,
            connection: 0,
            volume: self.volume,
            session: self.session,
            object: ObjectId([0; 16]),
            sequence,
            stored_len: stored.len() as u32,
            offset: 0,
            plain_len: piece.len() as u32,
        };
        let mut block = vec![0; BLOCK_HEADER_LEN + stored.len()];
        block[BLOCK_HEADER_LEN..].copy_from_slice(stored);
        header.seal(&mut block);
        Ok(block)
    }
}
