//! The drive that keeps nothing: for measuring what feeds it.

use crate::{
    BlockLimits, Drive, DriveCare, DriveError, DriveIdentity, DriveKey, EncryptionState, Flush, Medium, Position,
    ReadOutcome, Rewritability, WriteOutcome,
};

/// Longest block, as the virtual drive has it.
const BLOCK_LEN_MAX: u32 = 2 * 1024 * 1024;
/// More than anyone writes, and far from overflow when added to.
const CAPACITY_BYTES: u64 = 1 << 60;

/// A drive that takes everything, counts it and forgets it. What was written cannot be read, and says so.
#[derive(Debug, Default)]
pub struct NullDrive {
    loaded: Option<Loaded>,
    written: Written,
}

/// What a [`NullDrive`] took since it was made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Blocks.
    pub blocks: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Filemarks.
    pub filemarks: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Loaded {
    lbn: u64,
    end_of_data: u64,
    used_bytes: u64,
}

impl NullDrive {
    /// An empty drive.
    pub fn new() -> Self {
        Self::default()
    }

    /// What it took so far.
    pub fn written(&self) -> Written {
        self.written
    }

    fn loaded(&mut self) -> Result<&mut Loaded, DriveError> {
        self.loaded.as_mut().ok_or_else(|| DriveError::NoMedium { drive: NAME.to_owned() })
    }

    fn append(&mut self, records: u64, bytes: u64) -> Result<(), DriveError> {
        let loaded = self.loaded()?;
        if loaded.lbn == 0 {
            loaded.used_bytes = 0;
        }
        loaded.lbn += records;
        loaded.end_of_data = loaded.lbn;
        loaded.used_bytes += bytes;
        Ok(())
    }
}

const NAME: &str = "null";

impl Drive for NullDrive {
    fn identity(&self) -> DriveIdentity {
        DriveIdentity { name: NAME.to_owned(), model: NAME.to_owned(), encrypts: false }
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        self.loaded.get_or_insert_default().lbn = 0;
        self.medium()
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.loaded = None;
        Ok(())
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        let loaded = self.loaded()?;
        Ok(Medium {
            volser: None,
            serial: None,
            generation: None,
            capacity_bytes: CAPACITY_BYTES,
            remaining_bytes: CAPACITY_BYTES.saturating_sub(loaded.used_bytes),
            write_protected: false,
            rewritability: Rewritability::Rewritable,
            encryption: if loaded.end_of_data > 0 { EncryptionState::Plain } else { EncryptionState::Blank },
        })
    }

    fn block_limits(&self) -> BlockLimits {
        BlockLimits { min: 1, max: BLOCK_LEN_MAX }
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        Ok(Position { lbn: self.loaded()?.lbn, early_warning: false })
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        let loaded = self.loaded()?;
        if lbn > loaded.end_of_data {
            return Err(DriveError::BlankCheck { lbn, end_of_data: loaded.end_of_data });
        }
        loaded.lbn = lbn;
        Ok(())
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        let loaded = self.loaded()?;
        loaded.lbn = loaded.end_of_data;
        Ok(())
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        let loaded = self.loaded()?;
        match count {
            0 => Ok(()),
            // Where filemarks stood is forgotten with the rest.
            1.. => {
                loaded.lbn = loaded.end_of_data;
                Err(DriveError::BlankCheck { lbn: loaded.lbn, end_of_data: loaded.end_of_data })
            }
            _ => {
                loaded.lbn = 0;
                Err(DriveError::BeginningOfMedium)
            }
        }
    }

    fn read_block(&mut self, _buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        let loaded = self.loaded()?;
        if loaded.lbn == loaded.end_of_data {
            return Ok(ReadOutcome::EndOfData);
        }
        loaded.lbn += 1;
        Err(DriveError::ReadFailed { lbn: loaded.lbn - 1, reason: "the null drive keeps nothing".to_owned() })
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        let BlockLimits { min, max } = self.block_limits();
        if block.len() < min as usize || block.len() > max as usize {
            return Err(DriveError::BlockLength { len: block.len(), min, max });
        }
        self.append(1, block.len() as u64)?;
        self.written.blocks += 1;
        self.written.bytes += block.len() as u64;
        Ok(WriteOutcome::Written)
    }

    fn write_filemarks(&mut self, count: u32, _flush: Flush) -> Result<WriteOutcome, DriveError> {
        self.loaded()?;
        if count > 0 {
            self.append(u64::from(count), 0)?;
            self.written.filemarks += u64::from(count);
        }
        Ok(WriteOutcome::Written)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        *self.loaded()? = Loaded::default();
        Ok(())
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        match key {
            None => Ok(()),
            Some(_) => Err(DriveError::NoKeySlot { drive: NAME.to_owned() }),
        }
    }

    fn recommended_order(&mut self, _: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        Ok(None)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        None
    }
}
