//! What is at fault: a volume, its medium, a drive, the keys, or none of them.

use capstan_catalog::CatalogError;
use capstan_keys::KeyError;
use capstan_mover::MoverError;
use capstan_tape::{Blame, DriveError};

use super::DirectorError;

/// Whether the catalog refused what a volume's catalog part says: the checkpoints before it are none the worse.
pub(crate) fn refuses_part(error: &CatalogError) -> bool {
    matches!(error, CatalogError::PartRefused { .. } | CatalogError::PartDamaged { .. } | CatalogError::TooLarge { .. })
}

impl DirectorError {
    /// Whether nobody can be asked for keys at all: no matter of one volume, and no volume is the worse for it.
    pub(crate) fn no_keys_at_all(&self) -> bool {
        matches!(self, Self::KeysLocked | Self::Keys(KeyError::Cluster(_)))
    }

    /// Whether a volume has no label of ours.
    pub(crate) fn is_without_label(&self) -> bool {
        matches!(self, Self::Mover(MoverError::NotLabelled { .. }))
    }

    /// Whether it is a matter of the volume in the drive, as what was read from it or its drive says; and not of the
    /// catalog, the keys, the robot or the host, which are no reason to set a volume aside.
    pub(crate) fn blames_volume(&self) -> bool {
        match self {
            // What is written under a key that is out of reach may be whole.
            _ if matches!(self.blame(), Some(Blame::Keys | Blame::Unfit)) => false,
            Self::VolumeDiffers { .. } | Self::Volume { .. } | Self::Drive(_) => true,
            Self::Catalog(error) => refuses_part(error),
            Self::Mover(error) => match error {
                MoverError::Drive { .. }
                | MoverError::Format { .. }
                | MoverError::Misplaced { .. }
                | MoverError::OtherVolume { .. }
                | MoverError::NotLabelled { .. } => true,
                MoverError::Compression(_)
                | MoverError::Thread(_)
                | MoverError::Stopped
                | MoverError::NotMounted { .. }
                | MoverError::Elsewhere { .. }
                | MoverError::Host(_) => false,
            },
            _ => false,
        }
    }

    /// Whether a label or a block was written by a later version of this program.
    pub(crate) fn is_of_later_version(&self) -> bool {
        matches!(self, Self::Mover(MoverError::Format { source, .. }) if source.is_of_later_version())
    }

    /// Whether a drive does not take a cartridge because it was made for others.
    pub(crate) fn is_of_unfit_drive(&self) -> bool {
        self.blame() == Some(Blame::Unfit)
    }

    /// Whether a drive, or the way to it, failed: the volume in it need be no worse for it.
    pub(crate) fn is_of_drive(&self) -> bool {
        matches!(self.blame(), Some(Blame::Drive | Blame::Either | Blame::Host))
    }

    /// What is at fault where a drive said something.
    pub(crate) fn blame(&self) -> Option<Blame> {
        self.of_drive().map(DriveError::blame)
    }

    /// What a drive said.
    pub(crate) fn of_drive(&self) -> Option<&DriveError> {
        match self {
            Self::Drive(source) | Self::Volume { source, .. } | Self::Mover(MoverError::Drive { source, .. }) => {
                Some(source)
            }
            _ => None,
        }
    }

    /// Whether what is written on a volume is at fault, and not its drive, its key, the robot or the host.
    pub(crate) fn blames_medium(&self) -> bool {
        match self {
            Self::Drive(error) | Self::Volume { source: error, .. } => error.blames_medium(),
            Self::Mover(error) => error.blames_medium(),
            _ => false,
        }
    }

    /// Why a copy failed: the cause speaks for itself where it is the director's own: no volume, no key, no space.
    pub(crate) fn of_copy(error: MoverError) -> Self {
        match error {
            MoverError::Host(cause) => match cause.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::CopiesFailed(MoverError::Host(other)),
            },
            other => Self::CopiesFailed(other),
        }
    }
}
