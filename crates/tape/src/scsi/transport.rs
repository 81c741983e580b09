//! The way of a command to a device.

use std::io;
use std::time::Duration;

use super::SenseData;

/// What a command sends, or room for what it returns.
#[derive(Debug)]
pub enum DataPhase<'a> {
    /// Neither.
    None,
    /// To the device.
    Out(&'a [u8]),
    /// From the device.
    In(&'a mut [u8]),
}

/// How a command ended (SAM-5, 5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScsiStatus {
    /// GOOD.
    Good,
    /// CHECK CONDITION.
    CheckCondition,
    /// BUSY or TASK SET FULL: try again.
    Busy,
    /// RESERVATION CONFLICT.
    ReservationConflict,
    /// Another one, by its code.
    Other(u8),
}

impl ScsiStatus {
    /// By its code.
    pub fn of_code(code: u8) -> Self {
        match code {
            0x00 => Self::Good,
            0x02 => Self::CheckCondition,
            0x08 | 0x28 => Self::Busy,
            0x18 => Self::ReservationConflict,
            other => Self::Other(other),
        }
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// How the command ended.
    pub status: ScsiStatus,
    /// Sense data, where there are any.
    pub sense: Option<SenseData>,
    /// Bytes of [`DataPhase::In`] that were filled, or of [`DataPhase::Out`] that were taken.
    pub moved: usize,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The device did not answer in time. Whether the command was carried out is not known, nor where the tape stands.
    #[error("no answer to command {opcode:02x}h within {} s", .after.as_secs())]
    Timeout {
        /// Which command.
        opcode: u8,
        /// How long it was waited for.
        after: Duration,
    },
    /// The way to the device broke: cable, adapter, session. Whether the command was carried out is not known.
    #[error("the connection to the device broke during command {opcode:02x}h: {reason}")]
    Lost {
        /// Which command.
        opcode: u8,
        /// What the host says of it.
        reason: String,
    },
    /// The host moves less in one command than this; the command was never sent. [`Transport::data_max`] is less from
    /// now on.
    #[error("the host moves less than the {len} bytes of command {opcode:02x}h")]
    TooLong {
        /// Which command.
        opcode: u8,
        /// What it was to move.
        len: usize,
    },
    /// The command was never sent.
    #[error("the host refused to send command {opcode:02x}h")]
    Host {
        /// Which command.
        opcode: u8,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Carries commands to one logical unit.
pub trait Transport: Send {
    /// Sends a command and waits for its end.
    ///
    /// # Errors
    /// [`TransportError::Timeout`] and [`TransportError::Lost`] if nothing came back: the command may have been carried
    /// out. [`TransportError::TooLong`] and [`TransportError::Host`] if it was never sent. A status other than GOOD is
    /// no error.
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, timeout: Duration) -> Result<Reply, TransportError>;

    /// How many commands this logical unit has been given by anyone on this host so far, if the host counts them: one
    /// more than were sent here says that a unit attention may have reached somebody else.
    fn commands_seen(&mut self) -> Option<u64> {
        None
    }

    /// Most bytes that one command can move.
    fn data_max(&self) -> usize;
}
