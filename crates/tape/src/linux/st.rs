//! A real drive behind the kernel's tape driver (st): `/dev/nst0`.
//!
//! For hosts where SG_IO is not allowed, or where the tape driver is wanted. It is the poorer kind: the driver keeps
//! sense data to itself, so that what went wrong is inferred from an error number, the driver's status and the
//! position. Keys, the medium's memory, its serial number and the drive's logs cannot be had. Prefer [`super::sg`]
//! where it works.
//!
//! # No write goes to a position that was not verified
//! The block number of the next write is known from READ POSITION after a load, a locate or a space, and counted on.
//! After any error it is unknown until READ POSITION agrees; where it does not, [`DriveError::Reset`] is all there is
//! until a locate succeeds. Since somebody else may meet the news of a reset before the driver does, the kernel's count
//! of commands to the device is compared before each write, and the position asked where it differs; each synchronous
//! flush asks it, too, before it says that blocks are on the medium.
//!
//! # The driver's own ideas, and what is done about them
//! ```text
//!   it adds a filemark behind a write at close, rewind, seek, bsf      a flush (0 filemarks) or a step of 0 blocks
//!   - at any position, and after an error, too                           goes before, and it thinks it is not writing
//!   it tells early warning by refusing the next write (ENOSPC)         its status is read after each write; what is
//!                                                                        refused is sent again, and refused again is full
//!   end of data behind a filemark reads as a filemark, elsewhere       its status tells the first; a step of one block
//!     as an I/O error                                                    tells the second from a block that is unreadable
//!   a block longer than the buffer: passed, its length not told        read again with room for any
//!   locate as the drive's maker counts, answers before the end         options, set when the drive is loaded
//! ```
//! SILI is off: with it, and with blocks of variable length, a drive cuts a block that is longer than the buffer in
//! silence (SSC-5, 6.9).
//!
//! # Limits
//! Block numbers have 32 bits. A process that is killed in mid-write leaves the filemark of the driver's close behind
//! the last block. The capacity is that of the generation, and what remains of it is what was not written since the
//! beginning: at most that much. A cartridge that another one was exchanged for behind the driver's back is not
//! noticed: read the label after a reset. The driver's options need CAP_SYS_ADMIN, or `stinit` before us.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::hardware::DriveCompression;
use crate::{
    BlockLimits, Drive, DriveCare, DriveError, DriveIdentity, DriveKey, Flush, Medium, Position, ReadOutcome,
    WriteOutcome,
};

mod kernel;
mod place;
mod read;
mod ready;
mod write;

use super::waits::Watched;
use super::{FedBy, OnDeviceWait};
use kernel::Node;

/// What cannot be asked from the tape driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StSettings {
    /// Longest block to be written or read. What the drive and the driver can do lowers it when a cartridge is loaded.
    pub block_bytes_max: u32,
    /// Native capacity of the cartridges; none: that of the generation which the medium's density code stands for.
    pub capacity_bytes: Option<u64>,
    /// Whether the drive compresses; none leaves it as it is.
    pub compression: Option<DriveCompression>,
    /// How long a cartridge may take until it is ready.
    pub ready_within: Duration,
    /// How long the drive may say that it is empty.
    pub noticed_within: Duration,
}

impl Default for StSettings {
    /// Blocks of 2 MiB, and 130 minutes: an LTO-9 cartridge that is new is calibrated for up to two hours. A drive that
    /// says that it is empty is.
    fn default() -> Self {
        Self {
            block_bytes_max: 2 << 20,
            capacity_bytes: None,
            compression: None,
            ready_within: Duration::from_secs(7800),
            noticed_within: Duration::ZERO,
        }
    }
}

impl StSettings {
    /// A cartridge that a robot has just brought may not have been noticed yet.
    pub(super) fn fed_by(fed_by: FedBy) -> Self {
        let noticed_within = match fed_by {
            FedBy::Robot => Duration::from_secs(60),
            FedBy::Person => Duration::ZERO,
        };
        Self { noticed_within, ..Self::default() }
    }
}

/// A drive behind a node of the tape driver.
pub struct StDrive {
    path: PathBuf,
    /// Tells somebody of what takes long.
    watched: Watched,
    name: String,
    model: String,
    settings: StSettings,
    /// None only where opening it again failed.
    node: Option<Node>,
    limits: BlockLimits,
    loaded: Option<Medium>,
    /// Where the next read or write belongs; unknown after anything that may have moved the tape.
    at: Option<u64>,
    /// The last block number that was known, for messages.
    last_lbn: u64,
    /// Blocks or filemarks were written since the last synchronous flush.
    unflushed: bool,
    /// From this block on early warning lies behind.
    early_warning_from: Option<u64>,
    /// Commands that the kernel had sent to the drive when our last one had ended.
    commands: Option<u64>,
}

impl StDrive {
    /// Claims the drive behind a node that does not rewind: `/dev/nst0`, or better a link in `/dev/tape/by-id`.
    ///
    /// # Errors
    /// [`DriveError::InUse`] if another program has it; [`DriveError::Host`] if it is no tape node that does not
    /// rewind, or cannot be opened.
    pub fn open(path: impl AsRef<Path>, settings: StSettings) -> Result<Self, DriveError> {
        let nobody: OnDeviceWait = std::sync::Arc::new(|_| {});
        Self::open_watched(path.as_ref(), settings, &nobody)
    }

    /// The same; `on_wait` is told of what takes long.
    pub(super) fn open_watched(path: &Path, settings: StSettings, on_wait: &OnDeviceWait) -> Result<Self, DriveError> {
        let name = path.display().to_string();
        let host = |source| DriveError::Host { what: format!("open drive {name}"), source };
        if !Node::stays_at_close(path).map_err(host)? {
            let what =
                format!("{name} is no tape node that stays where it is when it is closed: give one like /dev/nst0");
            return Err(DriveError::Host { what, source: io::ErrorKind::InvalidInput.into() });
        }
        let limits = BlockLimits { min: 1, max: settings.block_bytes_max };
        let mut drive = Self {
            path: path.to_owned(),
            watched: Watched::new(&format!("drive {name}"), on_wait),
            model: ready::model(path),
            name,
            settings,
            node: None,
            limits,
            loaded: None,
            at: None,
            last_lbn: 0,
            unflushed: false,
            early_warning_from: None,
            commands: None,
        };
        drive.open_node()?;
        Ok(drive)
    }

    /// The node, if a cartridge was loaded.
    fn node(&self) -> Result<&Node, DriveError> {
        match (&self.node, &self.loaded) {
            (Some(node), Some(_)) => Ok(node),
            _ => Err(self.no_medium()),
        }
    }

    fn no_medium(&self) -> DriveError {
        DriveError::NoMedium { drive: self.name.clone() }
    }

    fn reset(&self) -> DriveError {
        DriveError::Reset { drive: self.name.clone() }
    }

    fn known(&self) -> Result<u64, DriveError> {
        self.node()?;
        self.at.ok_or_else(|| self.reset())
    }

    fn stand_at(&mut self, lbn: u64) {
        self.at = Some(lbn);
        self.last_lbn = lbn;
        self.commands = self.node.as_ref().and_then(Node::commands_seen);
    }

    /// What an error number means whatever was done.
    fn failed(&self, what: &str, error: Errno) -> DriveError {
        let drive = self.name.clone();
        match error {
            Errno::NOMEDIUM => DriveError::NoMedium { drive },
            Errno::ACCESS | Errno::ROFS => DriveError::WriteProtected { drive },
            Errno::NXIO | Errno::NODEV => DriveError::Hardware {
                drive,
                reason: "it is not connected any more: look at power and cable".to_owned(),
            },
            Errno::IO => {
                let reason = format!("{what} failed, and the tape driver does not say why: the kernel's log does");
                DriveError::Hardware { drive, reason }
            }
            error => DriveError::Host { what: format!("{what} on drive {drive}"), source: error.into() },
        }
    }

    fn medium_mut(&mut self) -> Result<&mut Medium, DriveError> {
        match &mut self.loaded {
            Some(medium) => Ok(medium),
            None => Err(DriveError::NoMedium { drive: self.name.clone() }),
        }
    }
}

impl Drop for StDrive {
    /// Without this, the driver would write a filemark behind blocks that wait for their flush.
    fn drop(&mut self) {
        if self.unflushed {
            let _ = self.flush();
        }
    }
}

impl Drive for StDrive {
    fn identity(&self) -> DriveIdentity {
        DriveIdentity { name: self.name.clone(), model: self.model.clone(), encrypts: false }
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        self.make_ready()?;
        self.medium()
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.let_go()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        self.medium_mut().cloned()
    }

    fn block_limits(&self) -> BlockLimits {
        self.limits
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        let lbn = self.known()?;
        self.verify(lbn)?;
        let early_warning = self.early_warning_from.is_some_and(|from| lbn >= from);
        Ok(Position { lbn, early_warning })
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.seek(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.seek_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.pass_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        self.read_next(buffer)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        self.write_next(block)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        self.mark(count, flush)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.erase_all()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        match key {
            None => Ok(()),
            Some(_) => Err(DriveError::NoKeySlot { drive: self.name.clone() }),
        }
    }

    fn recommended_order(&mut self, _: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        Ok(None)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        None
    }
}
