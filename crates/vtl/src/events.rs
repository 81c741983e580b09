//! What happens in a library while it is served, for whoever shows it.

mod teller;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use capstan_format::Volser;
use capstan_tape::with_causes;
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use teller::Teller;

/// What a drive that is an encryption agent knows of the key of the cartridge in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeKeyState {
    /// Nothing is written on it: it gets a key of its own with its first block.
    Blank,
    /// It was written without encryption: it is read, and not appended to.
    Plain,
    /// The drive has its key.
    Held,
    /// The drive did not get its key; why, another event has told.
    Missing,
}

/// Something that who runs the library may want to know.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
#[schemars(rename = "LibraryServed")]
pub enum TargetEvent {
    /// An initiator has logged in.
    LoggedIn {
        /// Its name.
        initiator: String,
        /// Where it is.
        address: SocketAddr,
    },
    /// Its session has ended.
    LoggedOut {
        /// Its name.
        initiator: String,
        /// Where it was.
        address: SocketAddr,
    },
    /// A login was refused.
    LoginRefused {
        /// The name it gave, if it came so far.
        initiator: Option<String>,
        /// Where it is.
        address: SocketAddr,
        /// Why, and what to do if it should come in.
        reason: String,
    },
    /// A cartridge is threaded.
    Mounted {
        /// The drive, from 0.
        drive: usize,
        /// The cartridge.
        barcode: String,
        /// Its key, where the drive is an encryption agent.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<VolumeKeyState>,
    },
    /// A drive has let a cartridge go.
    Dismounted {
        /// The drive, from 0.
        drive: usize,
        /// The cartridge.
        barcode: String,
    },
    /// A cartridge is in a drive that cannot use it.
    NotMounted {
        /// The drive, from 0.
        drive: usize,
        /// The cartridge.
        barcode: String,
        /// Why.
        reason: String,
    },
    /// An encryption agent has no key for what it is to do.
    KeyTrouble {
        /// The drive, from 0.
        drive: usize,
        /// The cartridge.
        barcode: String,
        /// Why, and what to do.
        reason: String,
    },
    /// There is no room for what a host wrote.
    DiskFull {
        /// The drive, from 0.
        drive: usize,
        /// The cartridge.
        barcode: String,
        /// What the host says.
        reason: String,
    },
    /// What a host wrote did not get onto a cartridge's file.
    WriteFailed {
        /// The drive, from 0.
        drive: usize,
        /// The cartridge.
        barcode: String,
        /// Why.
        reason: String,
    },
    /// A fault that was ordered has happened.
    FaultHappened {
        /// `robot`, `drive 0`, `wire`.
        unit: String,
        /// Which, as `capstan vtl inject` names it.
        fault: String,
    },
    /// The door was opened: the robot moves nothing.
    DoorOpened {
        /// Commands that are refused until it is closed.
        commands: u32,
    },
    /// The door is closed, and hosts are told to look what is where.
    DoorClosed,
    /// A cartridge was made.
    Created {
        /// The cartridge.
        barcode: String,
        /// Where it is.
        place: String,
    },
    /// A host has put a cartridge into the mail slot.
    InMailSlot {
        /// The cartridge.
        barcode: String,
        /// Which one.
        place: String,
    },
    /// A cartridge was put into the mail slot from outside.
    Imported {
        /// The cartridge.
        barcode: String,
        /// Where it is.
        place: String,
    },
    /// A cartridge was taken out of the mail slot.
    Exported {
        /// The cartridge.
        barcode: String,
    },
    /// Somebody wanted a cartridge that a host keeps where it is.
    RemovalPrevented {
        /// Where it is, or where it was to go.
        unit: String,
        /// The cartridge.
        barcode: String,
        /// The initiators that prevent it.
        by: Vec<String>,
    },
    /// More happened than is told.
    Withheld {
        /// What.
        what: &'static str,
        /// How often.
        count: u64,
    },
}

/// Where events go. It is called under locks of the library: it must neither wait nor ask the library for anything.
pub type TargetEvents = Arc<dyn Fn(TargetEvent) + Send + Sync>;

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSeverity {
    /// All is as it should be.
    Notice,
    /// Somebody should do something, or know why something did not happen.
    Trouble,
}

impl TargetEvent {
    /// How much it matters.
    pub fn gravity(&self) -> EventSeverity {
        match self {
            Self::LoggedIn { .. }
            | Self::LoggedOut { .. }
            | Self::Dismounted { .. }
            | Self::FaultHappened { .. }
            | Self::DoorOpened { .. }
            | Self::DoorClosed
            | Self::Created { .. }
            | Self::InMailSlot { .. }
            | Self::Imported { .. }
            | Self::Exported { .. }
            | Self::Mounted { .. } => EventSeverity::Notice,
            Self::LoginRefused { .. }
            | Self::NotMounted { .. }
            | Self::KeyTrouble { .. }
            | Self::DiskFull { .. }
            | Self::WriteFailed { .. }
            | Self::RemovalPrevented { .. }
            | Self::Withheld { .. } => EventSeverity::Trouble,
        }
    }

    /// Many of it, for [`TargetEvent::Withheld`].
    fn many(&self) -> &'static str {
        match self {
            Self::LoggedIn { .. } => "logins",
            Self::LoggedOut { .. } => "ends of sessions",
            Self::LoginRefused { .. } => "refused logins",
            Self::Mounted { .. } => "mounts",
            Self::Dismounted { .. } => "dismounts",
            Self::NotMounted { .. } => "cartridges that could not be mounted",
            Self::KeyTrouble { .. } => "keys that were missing",
            Self::DiskFull { .. } => "writes for which there was no room",
            Self::WriteFailed { .. } => "failed writes",
            Self::FaultHappened { .. } => "faults that were ordered",
            Self::DoorOpened { .. } | Self::DoorClosed => "openings of the door",
            Self::Created { .. } => "new cartridges",
            Self::InMailSlot { .. } => "moves to the mail slot",
            Self::Imported { .. } => "imports",
            Self::Exported { .. } => "exports",
            Self::RemovalPrevented { .. } => "removals that were prevented",
            Self::Withheld { what, .. } => what,
        }
    }
}

impl fmt::Display for TargetEvent {
    /// One line, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoggedIn { initiator, address } => write!(f, "{initiator} at {address} logged in"),
            Self::LoggedOut { initiator, address } => write!(f, "{initiator} at {address} is gone"),
            Self::LoginRefused { initiator, address, reason } => match initiator {
                Some(initiator) => write!(f, "{initiator} at {address} was refused: {reason}"),
                None => write!(f, "a login from {address} was refused: {reason}"),
            },
            Self::Mounted { drive, barcode, key } => {
                let key = match key {
                    None => "",
                    Some(VolumeKeyState::Blank) => "; blank: it gets a key with its first block",
                    Some(VolumeKeyState::Plain) => "; not encrypted: it is read, and written only from its beginning",
                    Some(VolumeKeyState::Held) => "; encrypted, and its key is there",
                    Some(VolumeKeyState::Missing) => {
                        "; encrypted, and the key of its first block is NOT there: what has it cannot be read"
                    }
                };
                write!(f, "drive {drive}: {barcode} is mounted{key}")
            }
            Self::Dismounted { drive, barcode } => write!(f, "drive {drive}: {barcode} is dismounted"),
            Self::NotMounted { drive, barcode, reason } => {
                write!(f, "drive {drive}: {barcode} cannot be mounted: {reason}")
            }
            Self::KeyTrouble { drive, barcode, reason } => write!(f, "drive {drive}, {barcode}: {reason}"),
            Self::DiskFull { drive, barcode, reason } => write!(
                f,
                "drive {drive}, {barcode}: the disk is full ({reason}). The host was told that its write failed. Make room where \
                 the library's folder is, or serve it from a larger file system; then run the host's job again"
            ),
            Self::WriteFailed { drive, barcode, reason } => write!(
                f,
                "drive {drive}, {barcode}: {reason}. The host was told that its write failed; look at the disk below the library's \
                 folder (dmesg) before its job runs again"
            ),
            Self::FaultHappened { unit, fault } => write!(f, "{unit}: the fault {fault} happened, as ordered"),
            Self::DoorOpened { commands } => {
                write!(f, "robot: the door is open, as ordered, for {commands} commands")
            }
            Self::DoorClosed => write!(f, "robot: the door is closed"),
            Self::Created { barcode, place } => write!(f, "{barcode} is made, and in {place}"),
            Self::InMailSlot { barcode, place } => {
                write!(f, "{barcode} is in {place}: take it out with `capstan vtl export`")
            }
            Self::Imported { barcode, place } => write!(f, "{barcode} was put into {place}"),
            Self::Exported { barcode } => write!(f, "{barcode} was taken out"),
            Self::RemovalPrevented { unit, barcode, by } => write!(
                f,
                "{unit}: {barcode} stays where it is, as {} prevents its removal: end the job that uses it, or log that host out",
                by.join(" and ")
            ),
            Self::Withheld { what, count } => write!(f, "and {count} more {what}"),
        }
    }
}

/// Nobody listens.
pub(crate) fn unheard() -> TargetEvents {
    Arc::new(|_| {})
}

/// Whether the host had no room.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge);
        }
        cause = error.source();
    }
    false
}

/// A drive's way to its listener.
#[derive(Clone)]
pub(crate) struct DriveVoice {
    pub(crate) drive: usize,
    pub(crate) events: TargetEvents,
}

impl DriveVoice {
    pub(crate) fn tell(&self, event: TargetEvent) {
        (self.events)(event);
    }

    pub(crate) fn write_failed(&self, volser: &Volser, error: &(dyn Error + 'static)) {
        let (drive, barcode, reason) = (self.drive, volser.to_string(), with_causes(error));
        self.tell(match is_full(error) {
            true => TargetEvent::DiskFull { drive, barcode, reason },
            false => TargetEvent::WriteFailed { drive, barcode, reason },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_broken_one_through_all_causes() {
        let full = capstan_tape::DriveError::Deferred {
            source: Box::new(capstan_tape::DriveError::WriteFailed {
                lbn: 7,
                source: io::Error::from(io::ErrorKind::StorageFull),
            }),
        };
        assert!(is_full(&full));
        assert!(with_causes(&full).contains("no storage space"), "{}", with_causes(&full));
        let broken = capstan_tape::DriveError::WriteFailed { lbn: 7, source: io::Error::other("dust") };
        assert!(!is_full(&broken));
        assert!(with_causes(&broken).ends_with(": dust"), "{}", with_causes(&broken));
    }
}
