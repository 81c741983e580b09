//! A volume in a drive of a mover, as whoever decides has it: what was reported of it, and orders about it.

use std::sync::Arc;

use capstan_catalog::MediumKind;
use capstan_format::{CatalogPart, SessionId, SessionRecord, Volser, VolumeHeader, VolumeId};
use capstan_keys::{Cartridge, Name};
use capstan_mover::devices::{VolumeReport, VolumeRequest};
use capstan_mover::{FoundCheckpoint, MountId};
use capstan_tape::{DriveError, DriveKey, EncryptionState, Medium, Position, Rewritability, VolumeDescription};

use crate::hold::Hold;
use crate::libraries::LibraryAt;
use crate::mounter::seats::DriveOfJob;
use crate::{DirectorError, WriteOnceBar};

/// A volume in a drive. Where it is dropped and not dismounted, the drive is let go of and the volume stays in it.
pub(crate) struct InDrive {
    /// The library whose drive it is in.
    pub(crate) library: Arc<LibraryAt>,
    pub(crate) mount: MountId,
    /// The drive.
    pub(crate) drive: String,
    /// The drive's serial number, if that is a name: what those who give out keys know it by.
    pub(crate) serial: Option<Name>,
    pub(crate) volser: Volser,
    pub(crate) medium: Medium,
    /// What the drive says against writing on it.
    pub(crate) worn: Option<String>,
    /// Its reservation, which ends behind the dismount. None where nothing could be recorded, and it is only read.
    pub(crate) hold: Option<Hold>,
    /// It counts among those of its job; none where readers count it.
    pub(super) of_job: Option<DriveOfJob>,
    /// Whether it was dismounted.
    pub(super) is_over: bool,
}

impl Drop for InDrive {
    fn drop(&mut self) {
        if !self.is_over {
            self.library.devices.abandon(self.mount);
        }
    }
}

/// What a request is answered with, or that it was answered with something else.
macro_rules! answer {
    ($report:expr, $pattern:pat => $value:expr) => {
        match $report? {
            $pattern => Ok($value),
            _ => Err(DirectorError::MoverLost(std::io::Error::other("it answers another question"))),
        }
    };
}

impl InDrive {
    fn ask(&self, request: &VolumeRequest) -> Result<VolumeReport, DirectorError> {
        Ok(self.library.devices.at_volume(self.mount, request)?)
    }

    pub(crate) fn set_key(&self, key: Option<DriveKey>) -> Result<(), DirectorError> {
        Ok(self.library.devices.set_key(self.mount, key)?)
    }

    pub(crate) fn read_label(&self) -> Result<VolumeHeader, DirectorError> {
        answer!(self.ask(&VolumeRequest::ReadLabel), VolumeReport::Label(header) => header)
    }

    /// Writes a label; everything that was on the volume is gone.
    pub(crate) fn write_label(&mut self, header: VolumeHeader) -> Result<(), DirectorError> {
        self.medium = answer!(self.ask(&VolumeRequest::WriteLabel(header)), VolumeReport::Medium(medium) => medium)?;
        Ok(())
    }

    pub(crate) fn end_of_data(&self) -> Result<Position, DirectorError> {
        answer!(self.ask(&VolumeRequest::EndOfData), VolumeReport::Position(position) => position)
    }

    pub(crate) fn flush(&self) -> Result<(), DirectorError> {
        answer!(self.ask(&VolumeRequest::Flush), VolumeReport::Done => ())
    }

    pub(crate) fn erase(&self) -> Result<(), DirectorError> {
        answer!(self.ask(&VolumeRequest::Erase), VolumeReport::Done => ())
    }

    pub(crate) fn describe(&self, description: VolumeDescription) -> Result<(), DirectorError> {
        answer!(self.ask(&VolumeRequest::Describe(description)), VolumeReport::Done => ())
    }

    pub(crate) fn last_checkpoint(&self, life: VolumeId) -> Result<Option<FoundCheckpoint>, DirectorError> {
        answer!(self.ask(&VolumeRequest::LastCheckpoint(life)), VolumeReport::Checkpoint(found) => found)
    }

    pub(crate) fn last_checkpoint_lbn(&self, life: VolumeId) -> Result<Option<u64>, DirectorError> {
        answer!(self.ask(&VolumeRequest::LastCheckpointLbn(life)), VolumeReport::Lbn(lbn) => lbn)
    }

    pub(crate) fn checkpoint(&self, life: VolumeId, lbn: u64) -> Result<FoundCheckpoint, DirectorError> {
        answer!(self.ask(&VolumeRequest::Checkpoint(life, lbn)), VolumeReport::Checkpoint(Some(found)) => found)
    }

    pub(crate) fn checkpoint_lbn_before(&self, life: VolumeId, lbn: u64) -> Result<Option<u64>, DirectorError> {
        answer!(self.ask(&VolumeRequest::CheckpointLbnBefore(life, lbn)), VolumeReport::Lbn(lbn) => lbn)
    }

    pub(crate) fn session_record(&self, life: VolumeId, lbn: u64) -> Result<(SessionId, SessionRecord), DirectorError> {
        let report = self.ask(&VolumeRequest::SessionRecord(life, lbn));
        answer!(report, VolumeReport::Session(session, record) => (session, record))
    }

    pub(crate) fn catalog_part(&self, life: VolumeId, found: &FoundCheckpoint) -> Result<CatalogPart, DirectorError> {
        Ok(self.library.devices.catalog_part(self.mount, life, found)?)
    }

    /// Refuses a write-protected volume, before anything is forgotten for its sake.
    pub(crate) fn check_writable(&self) -> Result<(), DirectorError> {
        if !self.medium.write_protected {
            return Ok(());
        }
        let source = DriveError::WriteProtected { drive: self.drive.clone() };
        Err(DirectorError::Volume { volser: self.volser.clone(), source })
    }

    /// The cartridge, for those who give out keys.
    pub(crate) fn cartridge(&self) -> Cartridge<'_> {
        Cartridge { volser: &self.volser, serial: self.medium.serial.as_ref() }
    }

    /// Whether it can be written anew; what the catalog knows, where the drive cannot say.
    pub(crate) fn kind(&self, known: MediumKind) -> MediumKind {
        match self.medium.rewritability {
            Rewritability::Rewritable => MediumKind::Rewritable,
            Rewritability::WriteOnce => MediumKind::WriteOnce,
            Rewritability::Unknown => known,
        }
    }

    /// Refuses a volume that keeps what is on it, before anything is forgotten for its sake.
    pub(crate) fn check_rewritable(&self) -> Result<(), DirectorError> {
        let keeps = self.medium.rewritability == Rewritability::WriteOnce;
        if !keeps || self.medium.encryption == EncryptionState::Blank {
            return Ok(());
        }
        Err(DirectorError::WriteOnce { volser: self.volser.clone(), because: WriteOnceBar::HoldsData })
    }

    /// Refuses a write-once volume whose data does not end at `append_lbn`: what stands there cannot be written over.
    pub(crate) fn check_ends_at(&self, append_lbn: u64) -> Result<(), DirectorError> {
        if self.medium.rewritability != Rewritability::WriteOnce {
            return Ok(());
        }
        let end = self.end_of_data()?;
        if end.lbn == append_lbn {
            return Ok(());
        }
        // A label without its filemark, and no room for one: the end of data is in front of where it was to be.
        let behind = end.lbn.checked_sub(append_lbn);
        let because = behind.map_or(WriteOnceBar::NoLabel, |blocks| WriteOnceBar::Tail { blocks });
        Err(DirectorError::WriteOnce { volser: self.volser.clone(), because })
    }

    /// Refuses a volume that its drive calls worn or damaged.
    pub(crate) fn check_sound(&self) -> Result<(), DirectorError> {
        let Some(reason) = self.worn.clone() else { return Ok(()) };
        Err(DirectorError::VolumeWorn { volser: self.volser.clone(), reason })
    }
}
