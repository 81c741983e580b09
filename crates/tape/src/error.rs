//! What can go wrong in a drive, each with its blame.

use std::io::{self, ErrorKind};
use std::time::Duration;

use capstan_format::{Algorithm, BLOCK_HEADER_LEN, KeyTag};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::scsi::TransportError;
use crate::scsi::sense::Sense;

/// What `data.block_kib` may be where a block of so many bytes at most is written, its header included.
fn block_kib_within(limit: u32) -> u32 {
    limit.saturating_sub(BLOCK_HEADER_LEN as u32) >> 10
}

/// An error and its causes on one line; some errors repeat their cause, which is said once.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    without_error_numbers(&text)
}

/// A message without the numbers that the standard library puts behind what the system says:
/// `Permission denied (os error 13)` tells an operator nothing that `Permission denied` does not.
pub fn without_error_numbers(text: &str) -> String {
    const MARK: &str = " (os error ";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(MARK) {
        out.push_str(before);
        let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        rest = match behind[digits..].strip_prefix(')') {
            Some(after) if digits > 0 => after,
            _ => {
                out.push_str(MARK);
                behind
            }
        };
    }
    out.push_str(rest);
    out
}

/// Why a drive did not do what it was asked. Sense key, code and qualifier of the SCSI condition stand in parentheses.
#[derive(Debug, Error)]
pub enum DriveError {
    /// Host: no cartridge in the drive (2/3A/00).
    #[error("drive {drive} holds no cartridge")]
    NoMedium {
        /// The drive.
        drive: String,
    },
    /// Medium: barred by its tab (7/27/00).
    #[error("the cartridge in drive {drive} is write-protected: slide its tab, or choose another volume")]
    WriteProtected {
        /// The drive.
        drive: String,
    },
    /// Medium: it is WORM, and what was asked for would write over what is on it, or erase it (7/30/0C). Nothing was
    /// written.
    #[error(
        "the cartridge in drive {drive} is WORM: what is on it stays, and more is only written at its end of data; choose another volume"
    )]
    WriteOnce {
        /// The drive.
        drive: String,
    },
    /// Medium: a block cannot be read (3/xx on a read, which passes over it), or not be reached (3/11, 3/14, 3/31/00 on
    /// the way to it, where the drive stays).
    #[error("block {lbn} cannot be read: {reason}")]
    ReadFailed {
        /// Its logical block number.
        lbn: u64,
        /// What was found.
        reason: String,
    },
    /// Medium: a write failed (3/xx on a write, 3/0C/00 and 3/50/00 on whatever else writes the buffer out).
    #[error("write at block {lbn} failed")]
    WriteFailed {
        /// The logical block number.
        lbn: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Drive: an earlier write failed (response 71h); everything since the last synchronous flush is uncommitted.
    #[error("an earlier write failed after it was accepted: nothing since the last flush is on the medium")]
    Deferred {
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Medium: nothing is written there (8/00/05).
    #[error("block {lbn} lies beyond the end of data at block {end_of_data}")]
    BlankCheck {
        /// What was asked for.
        lbn: u64,
        /// Where data ends.
        end_of_data: u64,
    },
    /// Medium: no room (D/00/02); the block was not written.
    #[error("the cartridge is full at block {lbn}")]
    EndOfMedium {
        /// Where the write was tried.
        lbn: u64,
    },
    /// Caller: the block on the medium is longer than the buffer; it was passed over.
    #[error("block {lbn} has {found} bytes, the buffer {buffer}")]
    BlockTooLong {
        /// Its logical block number.
        lbn: u64,
        /// Its length.
        found: usize,
        /// Length of the buffer.
        buffer: usize,
    },
    /// Host: its kernel and adapter move less in one command. Nothing was moved; a block that is longer was passed
    /// over.
    #[error(
        "this host moves at most {limit} bytes in one command to drive {drive}, not {len}: set data.block_kib in \
         capstan.toml to {} or less to write; a volume with longer blocks needs another host or host adapter",
        block_kib_within(*limit)
    )]
    HostLimit {
        /// The drive.
        drive: String,
        /// What was to be moved.
        len: usize,
        /// What can be.
        limit: u32,
    },
    /// Caller: a block outside the limits.
    #[error(
        "a block of {len} bytes is outside the limits of drive and host, {min} to {max}: set data.block_kib in \
         capstan.toml to {} or less",
        block_kib_within(*max)
    )]
    BlockLength {
        /// What was asked for.
        len: usize,
        /// Shortest.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// Medium: another generation or format (3/30, 5/30/00).
    #[error("drive {drive} cannot use this cartridge: {reason}")]
    Incompatible {
        /// The drive.
        drive: String,
        /// Why.
        reason: String,
    },
    /// Medium: of a generation that is not for this drive (3/30/00, 5/30/05).
    #[error(transparent)]
    Unfit(#[from] Box<UnfitDrive>),
    /// Keys: the block is encrypted and no key is loaded, or the drive has no key slot (7/74/01).
    #[error("block {lbn} is encrypted with key {tag}, which is not loaded in drive {drive}")]
    NoKey {
        /// The drive.
        drive: String,
        /// The block.
        lbn: u64,
        /// The key it needs.
        tag: KeyTag,
    },
    /// Keys: the block is encrypted with another key than the loaded one (7/74/03); it was not passed over.
    #[error("what is to be read is encrypted with key {needed}, but drive {drive} holds key {loaded}")]
    WrongKey {
        /// The drive.
        drive: String,
        /// The key on the medium.
        needed: KeyTag,
        /// The key in the slot.
        loaded: KeyTag,
    },
    /// Medium or attacker: ciphertext and tag do not agree (7/74/04).
    #[error("block {lbn} was altered: its authentication tag does not match")]
    Integrity {
        /// The block.
        lbn: u64,
    },
    /// Medium or attacker: a block in plain where encrypted ones are (7/74/02); it was passed over.
    #[error(
        "block {lbn} is not encrypted, though its volume is: another program wrote it there, or somebody put it there"
    )]
    PlainBlock {
        /// The block.
        lbn: u64,
    },
    /// Caller: what may not be mixed: appending plain blocks to an encrypted volume or the reverse (7/26/10).
    #[error("drive {drive} may not append here: {reason}")]
    MixedEncryption {
        /// The drive.
        drive: String,
        /// Which rule.
        reason: &'static str,
    },
    /// Medium: blocks on it have as many keys as its memory can name; nothing was written.
    #[error("the cartridge in drive {drive} has {keys} keys and no room for another: continue on another volume")]
    KeyListFull {
        /// The drive.
        drive: String,
        /// How many it has.
        keys: usize,
    },
    /// Keys: the block needs a key that whoever has the keys did not give; nothing was read or written, and nothing
    /// moved.
    #[error("block {lbn} is encrypted with key {tag}, which is not available")]
    KeyUnavailable {
        /// The block.
        lbn: u64,
        /// The key.
        tag: KeyTag,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Caller: a key for a drive that does not encrypt (5/20/00).
    #[error("drive {drive} has no key slot: use an encrypting drive, or a plain volume")]
    NoKeySlot {
        /// The drive.
        drive: String,
    },
    /// Medium: the beginning of tape was met before the last filemark asked for (0/00/04); the drive stands there.
    #[error("the beginning of tape was reached: there are fewer filemarks before this position")]
    BeginningOfMedium,
    /// Host: someone else uses the cartridge or the drive.
    #[error("{what} is in use by {holder}: wait until it is done, or end it")]
    InUse {
        /// The cartridge or drive.
        what: String,
        /// The process that holds it.
        holder: String,
    },
    /// Medium: the end of data could not be found (8/14/03): read-only recovery.
    #[error("the end of data is lost: {reason}")]
    EndOfDataLost {
        /// What was found.
        reason: String,
    },
    /// Host: reset or power-on (6/29/00): the position is unknown.
    #[error("drive {drive} was reset: its position is unknown until a locate succeeds")]
    Reset {
        /// The drive.
        drive: String,
    },
    /// Host: other programs sent commands to the drive, which stands elsewhere since. Nothing was written there.
    #[error(
        "another program on this host sent {commands} commands to drive {drive} in mid-session, and it stands at block {found} instead of \
         {expected} (rewound by hand, say, or reset): keep others from the drive, and begin again at the last flush"
    )]
    MovedByOthers {
        /// The drive.
        drive: String,
        /// How many commands.
        commands: u64,
        /// Where it was left.
        expected: u64,
        /// Where it is.
        found: u64,
    },
    /// Drive: hardware (4/xx).
    #[error("drive {drive} failed: {reason}")]
    Hardware {
        /// The drive.
        drive: String,
        /// What it said.
        reason: String,
    },
    /// Host or cable: nothing came back (timeout, adapter, session). What was being written may or may not be on the
    /// tape.
    #[error(
        "drive {drive} is out of reach: look at its power, cable and host adapter, then begin again at the last flush"
    )]
    OutOfReach {
        /// The drive.
        drive: String,
        /// What the host says.
        #[source]
        source: TransportError,
    },
    /// Drive or host: the command was given up (b/xx), perhaps half done; the position is unknown until a locate
    /// succeeds.
    #[error("drive {drive} aborted {command} ({sense}): start again from the last flush")]
    Aborted {
        /// The drive.
        drive: String,
        /// The command.
        command: &'static str,
        /// What it said.
        sense: Sense,
    },
    /// Drive: it was not ready in time (2/04/xx, BUSY).
    #[error("drive {drive} is not ready after {} s ({reason}): look at its panel, then try again", .waited.as_secs())]
    NotReady {
        /// The drive.
        drive: String,
        /// What it said last.
        reason: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Operator: a cleaning cartridge (2/30/03).
    #[error("drive {drive} holds a cleaning cartridge: wait until it is done, take it out, load a data cartridge")]
    CleaningCartridge {
        /// The drive.
        drive: String,
    },
    /// Operator or host: another cartridge than the one that was loaded (6/28/00, then another serial number in its
    /// memory).
    #[error("drive {drive} now holds {found} instead of {expected}: find out who changed it, and load again")]
    MediumChanged {
        /// The drive.
        drive: String,
        /// What was loaded.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Host: another host took the drive's reservation away (6/2A/03 to 05, or RESERVATION CONFLICT). Nothing may be
    /// written any more, and the reservation must not be taken back unasked.
    #[error(
        "another host took drive {drive} over: find out who shares it, and reserve it again only when that host is done"
    )]
    ReservationLost {
        /// The drive.
        drive: String,
    },
    /// Host: another host changed or cleared the key in the drive (6/2A/11 and 12, 7/2A/13).
    #[error("another host changed the key in drive {drive}: find out who shares it, load the key and locate again")]
    KeyLost {
        /// The drive.
        drive: String,
    },
    /// Keys: the drive is given its keys by a key manager of its own (7/74/21 or a key that nobody here loaded).
    #[error(
        "drive {drive} takes its keys from elsewhere: leave encryption to it, or set it to keys from the application"
    )]
    KeysFromElsewhere {
        /// The drive.
        drive: String,
    },
    /// Caller: a cipher that the drive has not.
    #[error("drive {drive} has no {}: take a key for {}, or another drive", name(*.algorithm), names(.offered))]
    CipherMissing {
        /// The drive.
        drive: String,
        /// What was asked for.
        algorithm: Algorithm,
        /// What it has.
        offered: Vec<Algorithm>,
    },
    /// Drive: it does not say that it uses the key that it was given. Nothing was written with it.
    #[error(
        "drive {drive} did not take the key ({reason}): nothing may be written; reset the drive or take another one"
    )]
    KeyNotTaken {
        /// The drive.
        drive: String,
        /// What it says instead.
        reason: String,
    },
    /// Drive: it does not do what it was asked. With 5/xx nothing was changed; after anything else, such as a medium
    /// error on the way to a block (3/xx), the position is unknown until a locate succeeds.
    #[error("drive {drive} refused {command}: {sense}")]
    Refused {
        /// The drive.
        drive: String,
        /// The command.
        command: &'static str,
        /// What it said.
        sense: Sense,
    },
    /// Met by a mover in another process, in its words: nobody decides by more than what it says here.
    #[error("{text}")]
    Reported {
        /// The error and its causes.
        text: String,
        /// See [`DriveError::blames_medium`].
        blames_medium: bool,
        /// What is at fault.
        blame: Blame,
        /// The drive, where it is known.
        drive: Option<String>,
    },
    /// Host: the file below a virtual cartridge, or the system call below a real drive.
    #[error("{what}")]
    Host {
        /// What was done to what.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// What is at fault where something goes wrong in a drive, as far as one error tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blame {
    /// The cartridge, or what is on it.
    Medium,
    /// The cartridge or the drive: another one of either would tell.
    Either,
    /// The drive, the way to it, or whoever else uses it.
    Drive,
    /// This machine: a full disk below a virtual cartridge, or what the system refuses.
    Host,
    /// Nobody: the cartridge is for other drives, or another host.
    Unfit,
    /// Whoever has the keys.
    Keys,
}

impl DriveError {
    /// What is at fault.
    pub fn blame(&self) -> Blame {
        match self {
            Self::WriteProtected { .. }
            | Self::WriteOnce { .. }
            | Self::ReadFailed { .. }
            | Self::BlankCheck { .. }
            | Self::EndOfMedium { .. }
            | Self::BlockTooLong { .. }
            | Self::NoKey { .. }
            | Self::WrongKey { .. }
            | Self::Integrity { .. }
            | Self::PlainBlock { .. }
            | Self::MixedEncryption { .. }
            | Self::KeyListFull { .. }
            | Self::BeginningOfMedium
            | Self::EndOfDataLost { .. } => Blame::Medium,
            Self::WriteFailed { .. } | Self::Deferred { .. } if self.is_of_disk() => Blame::Host,
            Self::WriteFailed { .. }
            | Self::Deferred { .. }
            | Self::Hardware { .. }
            | Self::Aborted { .. }
            | Self::NotReady { .. }
            | Self::NoMedium { .. }
            | Self::Refused { .. }
            | Self::CleaningCartridge { .. } => Blame::Either,
            Self::Host { .. } | Self::BlockLength { .. } => Blame::Host,
            Self::NoKeySlot { .. }
            | Self::InUse { .. }
            | Self::Reset { .. }
            | Self::MovedByOthers { .. }
            | Self::OutOfReach { .. }
            | Self::MediumChanged { .. }
            | Self::ReservationLost { .. }
            | Self::KeyLost { .. }
            | Self::KeysFromElsewhere { .. }
            | Self::CipherMissing { .. }
            | Self::KeyNotTaken { .. } => Blame::Drive,
            Self::Incompatible { .. } | Self::Unfit(_) | Self::HostLimit { .. } => Blame::Unfit,
            Self::KeyUnavailable { .. } => Blame::Keys,
            Self::Reported { blame, .. } => *blame,
        }
    }

    /// The drive, where the error names it and it may be at fault.
    pub fn drive(&self) -> Option<&str> {
        match self {
            Self::Hardware { drive, .. }
            | Self::Aborted { drive, .. }
            | Self::NotReady { drive, .. }
            | Self::NoMedium { drive }
            | Self::Refused { drive, .. }
            | Self::CleaningCartridge { drive } => Some(drive),
            Self::Reported { drive, .. } => drive.as_deref(),
            _ => None,
        }
    }

    /// Whether what is on the cartridge is at fault: reading it again, here or elsewhere, is not expected to help.
    pub fn blames_medium(&self) -> bool {
        matches!(
            self,
            Self::ReadFailed { .. }
                | Self::BlankCheck { .. }
                | Self::BlockTooLong { .. }
                | Self::Integrity { .. }
                | Self::PlainBlock { .. }
                | Self::BeginningOfMedium
                | Self::EndOfDataLost { .. }
                | Self::Reported { blames_medium: true, .. }
        )
    }

    /// Whether something could not be put on the medium: the cartridge is at fault, or the drive. What a
    /// full disk below a virtual cartridge does not take is no fault of either.
    pub fn is_failed_write(&self) -> bool {
        matches!(self, Self::WriteFailed { .. } | Self::Deferred { .. }) && !self.is_of_disk()
    }

    /// Whether another try, here or elsewhere, may find it gone by itself.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Reset { .. }
                | Self::MovedByOthers { .. }
                | Self::Hardware { .. }
                | Self::OutOfReach { .. }
                | Self::Aborted { .. }
                | Self::NotReady { .. }
                | Self::InUse { .. }
                | Self::ReservationLost { .. }
                | Self::KeyLost { .. }
                | Self::Reported { blame: Blame::Drive | Blame::Either, .. }
        )
    }

    /// Whether the disk below a virtual cartridge takes nothing more.
    fn is_of_disk(&self) -> bool {
        let of_disk = |kind| {
            matches!(
                kind,
                ErrorKind::StorageFull
                    | ErrorKind::QuotaExceeded
                    | ErrorKind::ReadOnlyFilesystem
                    | ErrorKind::FileTooLarge
            )
        };
        let mut causes = std::iter::successors(std::error::Error::source(self), |cause| cause.source());
        causes.any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| of_disk(error.kind())))
    }
}

fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Aes256Gcm => "AES-256-GCM",
        Algorithm::Aes256Ccm => "AES-256-CCM",
    }
}

fn names(algorithms: &[Algorithm]) -> String {
    algorithms.iter().copied().map(name).collect::<Vec<_>>().join(" or ")
}

/// Why a drive cannot be used for a cartridge as it is wanted.
#[derive(Debug, Clone, Serialize, Deserialize, Error)]
pub enum UnfitDrive {
    /// The drive's model neither reads nor writes it.
    #[error("drive {drive}, {model}, cannot use a cartridge of {generation}: take {instead}")]
    Foreign {
        /// The drive.
        drive: String,
        /// What it is: a drive of a model, or at the pace of one.
        model: String,
        /// The cartridge's.
        generation: String,
        /// Which drives read it.
        instead: String,
    },
    /// The drive's model reads it and does not write it.
    #[error("drive {drive}, {model}, only reads cartridges of {generation}: to write this one take {instead}")]
    ReadOnly {
        /// The drive.
        drive: String,
        /// Its model.
        model: String,
        /// The cartridge's.
        generation: String,
        /// Which drives write it.
        instead: String,
    },
    /// It does not encrypt.
    #[error(
        "drive {drive}, {model}, does not encrypt this cartridge, and it is encrypted, or is to be: take a drive that \
         encrypts, and a cartridge of LTO-4 or later"
    )]
    Plain {
        /// The drive.
        drive: String,
        /// Its model.
        model: String,
    },
    /// It is of another model than those that are meant.
    #[error("drive {drive}, {model}, is none of those that the storage unit has: {wanted}")]
    OtherModel {
        /// The drive.
        drive: String,
        /// Its model.
        model: String,
        /// Those that are meant.
        wanted: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_system_errors_are_left_out_and_nothing_else() {
        let denied = io::Error::from_raw_os_error(13);
        assert_eq!(
            without_error_numbers(&format!("a: {denied}; b: {denied}")),
            "a: Permission denied; b: Permission denied"
        );
        for text in ["", "a file (os error x)", "a file (os error )", "a file (os error 1", "a file (copy 1)"] {
            assert_eq!(without_error_numbers(text), text);
        }
    }
}
