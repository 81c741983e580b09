//! What can go wrong while blocks move.

use capstan_format::{FormatError, Volser, VolumeId};
use capstan_tape::DriveError;
use thiserror::Error;

use crate::MountId;

/// Why a session, a read or a label could not be done.
#[derive(Debug, Error)]
pub enum MoverError {
    /// Host: no compressor could be made.
    #[error("cannot set up compression")]
    Compression(#[source] std::io::Error),
    /// Host: no thread could be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// Caller: stopped by the operator or because every copy has failed.
    #[error("the session was stopped")]
    Stopped,
    /// Drive or medium.
    #[error("volume {volser}: {source}")]
    Drive {
        /// The volume in the drive.
        volser: Volser,
        /// What the drive said.
        #[source]
        source: DriveError,
    },
    /// Medium: what was read is not what a writer writes.
    #[error("volume {volser}, block {lbn}: {source}")]
    Format {
        /// The volume.
        volser: Volser,
        /// The block.
        lbn: u64,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// Medium: a whole block, and not the one that belongs there.
    #[error("volume {volser}, block {lbn}: {reason}")]
    Misplaced {
        /// The volume.
        volser: Volser,
        /// The block.
        lbn: u64,
        /// What was found instead.
        reason: String,
    },
    /// Medium: another life of the volume, or another volume.
    #[error("volume {volser} was labelled again: its id is {found}, the catalog knows {expected}")]
    OtherVolume {
        /// The volume.
        volser: Volser,
        /// As the catalog knows it.
        expected: VolumeId,
        /// As its label says.
        found: VolumeId,
    },
    /// Medium: no label of ours.
    #[error("volume {volser} has no Capstan label: {reason}")]
    NotLabelled {
        /// The volume.
        volser: Volser,
        /// What was found.
        reason: String,
    },
    /// Caller: the volume was never mounted, was dismounted, or is in use by another part of the mover.
    #[error("mount {} is not known, or in use", .mount.0)]
    NotMounted {
        /// Which mount.
        mount: MountId,
    },
    /// Network: a mover elsewhere is gone, or a copy of its session has failed.
    #[error("{reason}")]
    Elsewhere {
        /// Why.
        reason: String,
    },
    /// Whoever runs the mover: it could not mount a volume or record a commit.
    #[error(transparent)]
    Host(Box<dyn std::error::Error + Send + Sync>),
}

impl MoverError {
    /// Whether what is on the volume is at fault, and not its drive, its key, or whoever mounts it.
    pub fn blames_medium(&self) -> bool {
        match self {
            Self::Drive { source, .. } => source.blames_medium(),
            Self::Format { .. } | Self::Misplaced { .. } | Self::OtherVolume { .. } | Self::NotLabelled { .. } => true,
            Self::Compression(_)
            | Self::Thread(_)
            | Self::Stopped
            | Self::NotMounted { .. }
            | Self::Elsewhere { .. }
            | Self::Host(_) => false,
        }
    }

    pub(crate) fn drive(volser: &Volser) -> impl FnOnce(DriveError) -> Self + '_ {
        move |source| Self::Drive { volser: volser.clone(), source }
    }
}
