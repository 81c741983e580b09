//! A drive that fetches the keys that blocks name, so that a volume with several keys is read like one with a single
//! key.
//!
//! A read that meets a block of another key than the loaded one asks for that key, loads it, and reads again, once.
//! What is written is written with the key that the caller loaded and no other: a key that came for a read is taken out
//! again before anything is written, and the caller's, of which only the name is kept here, is asked for once more.
//! Where it cannot be had nothing is written.
//!
//! ```text
//! caller          set_key(B)    read (of A)    read (of A)    write        read (of A)    set_key(A)    write
//! key slot        B             A, fetched     A              B, fetched   A, fetched     A             A
//! ```
//! Each load draws a new mount key in the drive, so nonces begin anew under a key that was never used, however often
//! keys change places. Keeping the caller's key here instead of asking for it again would leave one more copy of a
//! secret in memory for as long as the volume is mounted; and a key that was destroyed meanwhile must not be written
//! with.

use capstan_format::{Algorithm, KeyTag};

use crate::{
    BlockLimits, Drive, DriveCare, DriveError, DriveIdentity, DriveKey, Flush, Medium, Position, ReadOutcome,
    WriteOutcome,
};

/// A drive, and who has the keys.
pub struct Keyed<D, F> {
    drive: D,
    keys: F,
    /// Name of the key that the caller loaded, which is written with; none for an empty slot.
    wanted: Option<(Algorithm, KeyTag)>,
    slot: Slot,
}

/// What is in the key slot of the drive inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// What the caller wants there.
    AsWanted,
    /// A key that came for a read, or what a load that failed has left: nothing is written.
    ForReading,
}

impl<D, F, E> Keyed<D, F>
where
    D: Drive,
    F: FnMut(&KeyTag) -> Result<DriveKey, E> + Send,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A drive with an empty key slot, and what gives the key of a tag. What that says when it gives none is the source
    /// of [`DriveError::KeyUnavailable`].
    pub fn new(drive: D, keys: F) -> Self {
        Self { drive, keys, wanted: None, slot: Slot::AsWanted }
    }

    /// Fetches the key that block `lbn` needs and loads it.
    fn load_key(&mut self, lbn: u64, tag: KeyTag) -> Result<(), DriveError> {
        let unavailable = |source| DriveError::KeyUnavailable { lbn, tag, source };
        let key = (self.keys)(&tag).map_err(|source| unavailable(source.into()))?;
        if key.tag != tag {
            return Err(unavailable(format!("key {} came in its place", key.tag).into()));
        }
        let name = Some((key.algorithm, tag));
        self.slot = Slot::ForReading;
        self.drive.set_key(Some(key))?;
        if name == self.wanted {
            self.slot = Slot::AsWanted;
        }
        Ok(())
    }

    /// Sees that what is written now is written with the caller's key.
    fn ready_to_write(&mut self) -> Result<(), DriveError> {
        if self.slot == Slot::AsWanted {
            return Ok(());
        }
        let Some((_, tag)) = self.wanted else { return self.set_key(None) };
        let lbn = self.drive.position()?.lbn;
        self.load_key(lbn, tag)?;
        match self.slot {
            Slot::AsWanted => Ok(()),
            Slot::ForReading => {
                let source = "it came for another cipher than before".into();
                Err(DriveError::KeyUnavailable { lbn, tag, source })
            }
        }
    }
}

impl<D, F, E> Drive for Keyed<D, F>
where
    D: Drive,
    F: FnMut(&KeyTag) -> Result<DriveKey, E> + Send,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn identity(&self) -> DriveIdentity {
        self.drive.identity()
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        self.drive.load()
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.wanted = None;
        // Of an unload that failed nobody knows what became of the key.
        self.slot = Slot::ForReading;
        self.drive.unload()?;
        self.slot = Slot::AsWanted;
        Ok(())
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        self.drive.medium()
    }

    fn block_limits(&self) -> BlockLimits {
        self.drive.block_limits()
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.drive.position()
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.drive.locate(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.drive.space_to_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.drive.space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        let needed = match self.drive.read_block(buffer) {
            Err(DriveError::NoKey { tag, .. }) => tag,
            Err(DriveError::WrongKey { needed, .. }) => needed,
            outcome => return outcome,
        };
        // The drive stands in front of the block still.
        let lbn = self.drive.position()?.lbn;
        self.load_key(lbn, needed)?;
        self.drive.read_block(buffer)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        self.ready_to_write()?;
        self.drive.write_block(block)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        // A flush alone writes nothing new.
        if count > 0 {
            self.ready_to_write()?;
        }
        self.drive.write_filemarks(count, flush)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.drive.erase()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        self.wanted = key.as_ref().map(|key| (key.algorithm, key.tag));
        self.slot = Slot::ForReading;
        self.drive.set_key(key)?;
        self.slot = Slot::AsWanted;
        Ok(())
    }

    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        self.drive.recommended_order(stretches)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        self.drive.care()
    }
}
