//! How a unit answers: good, or with sense data.

use capstan_tape::scsi::Command;
use capstan_tape::scsi::command::{CommandError, Length};
use capstan_tape::scsi::{SenseData, SenseKey};

use crate::device::{CommandStatus, Completion};

/// Why a command did not end with GOOD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// CHECK CONDITION.
    Check(SenseData),
    /// RESERVATION CONFLICT.
    Conflict,
    /// No answer at all.
    Lost,
}

pub(crate) type Answer = Result<(), Refusal>;

impl From<SenseData> for Refusal {
    fn from(sense: SenseData) -> Self {
        Self::Check(sense)
    }
}

/// Sense data with this key and these codes.
pub(crate) fn check(key: SenseKey, asc: u8, ascq: u8) -> Refusal {
    Refusal::Check(SenseData::new(key, asc, ascq))
}

/// INVALID FIELD IN CDB.
pub(crate) fn invalid_command_field(at: u16) -> Refusal {
    Refusal::Check(SenseData { field: Some((true, at)), ..SenseData::new(SenseKey::IllegalRequest, 0x24, 0x00) })
}

/// INVALID FIELD IN PARAMETER LIST.
pub(crate) fn invalid_parameter_field(at: u16) -> Refusal {
    Refusal::Check(SenseData { field: Some((false, at)), ..SenseData::new(SenseKey::IllegalRequest, 0x26, 0x00) })
}

/// PARAMETER LIST LENGTH ERROR.
pub(crate) fn parameter_length() -> Refusal {
    check(SenseKey::IllegalRequest, 0x1a, 0x00)
}

/// INVALID COMMAND OPERATION CODE.
pub(crate) fn unknown_command() -> Refusal {
    check(SenseKey::IllegalRequest, 0x20, 0x00)
}

impl From<CommandError> for Refusal {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::OperationCode => unknown_command(),
            CommandError::Field(at) => invalid_command_field(at),
        }
    }
}

/// How many bytes from its initiator a command takes, where blocks of fixed length are `block_len` long.
pub(crate) fn data_out_len(command: &Command, block_len: u32) -> u64 {
    match *command {
        Command::Write { length: Length::Variable(len), .. }
        | Command::SecurityProtocolOut { len, .. }
        | Command::WriteAttribute { len, .. }
        | Command::PersistentReserveOut { len, .. }
        | Command::GenerateRecommendedAccessOrder { len, .. } => u64::from(len),
        Command::Write { length: Length::Fixed(count), .. } => u64::from(count) * u64::from(block_len),
        Command::ModeSelect { len, .. } | Command::LogSelect { len, .. } | Command::SendDiagnostic { len, .. } => {
            u64::from(len)
        }
        _ => 0,
    }
}

/// The end of a command as the transport tells it.
pub(crate) fn completion(answer: Answer) -> Completion {
    match answer {
        Ok(()) => Completion::GOOD,
        Err(Refusal::Conflict) => Completion { status: CommandStatus::ReservationConflict, ..Completion::GOOD },
        Err(Refusal::Lost) => Completion { status: CommandStatus::Lost, ..Completion::GOOD },
        Err(Refusal::Check(sense)) => {
            Completion { status: CommandStatus::CheckCondition, sense: sense.to_bytes().to_vec(), data_out_len: None }
        }
    }
}
