//! What is to go wrong: in a drive, in the robot, at the command chosen, once.
//!
//! The wire has faults of its own ([`crate::iscsi::WireFaults`]). A drive's buffer and medium have those of
//! [`capstan_tape::FaultyDrive`], which these orders reach through the drive. An order waits for a command of its
//! class, lets as many pass as it is told, and happens.

use std::fmt;
use std::str::FromStr;

use capstan_format::Volser;
use capstan_tape::scsi::Command;
use serde::{Deserialize, Serialize};

mod drawn;

pub use drawn::{ROBOT_SENSE_ROWS, SENSE_ROWS, drawn_faults};

/// Which unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultyUnit {
    /// The robot.
    Robot,
    /// A drive, from 0.
    Drive(usize),
}

/// Commands that a fault waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandClass {
    /// Any that is not answered whatever happens.
    Any,
    /// A block is written.
    Write,
    /// Filemarks are written.
    Filemark,
    /// What was written is to be on the medium.
    Flush,
    /// A block is read.
    Read,
    /// The tape is sent somewhere.
    Move,
    /// A cartridge is threaded or let go.
    Load,
    /// The position is asked for.
    Position,
    /// A key is set.
    Key,
    /// The robot is to move a cartridge.
    Carry,
    /// The robot is asked what is where.
    Inventory,
}

impl CommandClass {
    const ALL: [(Self, &'static str); 11] = [
        (Self::Any, "any"),
        (Self::Write, "write"),
        (Self::Filemark, "filemark"),
        (Self::Flush, "flush"),
        (Self::Read, "read"),
        (Self::Move, "move"),
        (Self::Load, "load"),
        (Self::Position, "position"),
        (Self::Key, "key"),
        (Self::Carry, "carry"),
        (Self::Inventory, "inventory"),
    ];

    /// Names of all.
    pub fn names() -> String {
        Self::ALL.map(|(_, name)| name).join(", ")
    }

    pub(crate) fn holds(self, command: &Command) -> bool {
        match self {
            Self::Any => true,
            Self::Write => matches!(command, Command::Write { .. }),
            Self::Filemark => matches!(command, Command::WriteFilemarks { count: 1.., .. }),
            Self::Flush => matches!(command, Command::WriteFilemarks { immediate: false, .. }),
            Self::Read => matches!(command, Command::Read { .. }),
            Self::Move => {
                matches!(command, Command::Locate { .. } | Command::Space { .. } | Command::Rewind { .. })
            }
            Self::Load => matches!(command, Command::LoadUnload { .. }),
            Self::Position => matches!(command, Command::ReadPosition { .. }),
            Self::Key => matches!(command, Command::SecurityProtocolOut { .. }),
            Self::Carry => matches!(command, Command::MoveMedium { .. } | Command::ExchangeMedium { .. }),
            Self::Inventory => matches!(command, Command::ReadElementStatus { .. }),
        }
    }
}

impl fmt::Display for CommandClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(class, _)| class == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for CommandClass {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text).map(|(class, _)| *class);
        found.ok_or_else(|| format!("no class of commands is called {text:?}: {}", Self::names()))
    }
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceFault {
    /// The command fails with these sense data.
    Sense {
        /// Sense key.
        key: u8,
        /// Additional sense code.
        asc: u8,
        /// Qualifier.
        ascq: u8,
        /// Said of an earlier command.
        #[serde(default)]
        deferred: bool,
        /// Carried out first.
        #[serde(default)]
        carried_out: bool,
    },
    /// Blocks from this one on are taken and lost; told by a deferred error after so many, or at the next flush.
    LoseWrites {
        /// Writes that are still taken.
        told_after: u64,
    },
    /// Blocks from this one on are in the buffer when, after so many, the power goes: filemarks are missing afterwards,
    /// too.
    LosePower {
        /// Writes that are still taken.
        after: u64,
    },
    /// The unit is reset in front of the command.
    Reset {
        /// Whether its users are told; otherwise somebody else on the same host has swallowed it.
        told: bool,
    },
    /// The command is never answered.
    Lose {
        /// Whether it was carried out.
        carried_out: bool,
    },
    /// The block at the position cannot be read, ever.
    Unreadable,
    /// Early warning lies here, and behind.
    EarlyWarning,
    /// The tape ends here, in the middle of what is to be written.
    EndOfMedium,
    /// The end of data is not found, so many times.
    EndOfDataLost {
        /// Searches that fail.
        searches: u32,
    },
    /// A person slid the tab of the cartridge before it was put in.
    SlideTab,
    /// The drive raises a TapeAlert flag.
    Alert {
        /// Which, from 1 to 64.
        flag: u16,
    },
    /// The drive recovers from so many errors of the medium, and only counts them.
    SoftErrors {
        /// How many.
        count: u32,
    },
    /// Another host takes the unit over.
    StealReservation,
    /// Another host sets a key of its own.
    ChangeKey,
    /// Another cartridge lies in the drive than the one that was there, changed by hand.
    ChangeTape {
        /// Which.
        volser: String,
        /// Whether the drive's users are told.
        told: bool,
    },
    /// The robot brings another cartridge than it was asked for, and does not know.
    WrongTape {
        /// Which.
        volser: String,
    },
    /// Every element that holds a cartridge says this barcode: a label that was printed twice, or stuck on the wrong
    /// cartridge.
    Mislabelled {
        /// Which.
        volser: String,
    },
    /// Somebody opens the door; the robot moves nothing for so many commands, and takes the inventory anew then.
    DoorOpen {
        /// Commands that are refused.
        commands: u32,
    },
}

/// Faults by the names that people give them, what each takes behind a colon, and when it happens if nothing else is
/// said.
const NAMED: &[(&str, &str)] = &[
    ("sense:K/AA/QQ", "the command fails with this sense key, code and qualifier, in hexadecimal"),
    ("deferred:K/AA/QQ", "the same, said of an earlier command"),
    ("lose-writes:N", "blocks are taken and lost; told after N more, or at the next flush"),
    ("lose-power:N", "the same, and after N more the drive comes back from a loss of power"),
    ("reset", "the unit is reset"),
    ("reset-unseen", "the unit is reset, and somebody else on the host was told"),
    ("lose-command", "the command is never answered and not carried out"),
    ("lose-answer", "the command is carried out and never answered"),
    ("unreadable", "the next block cannot be read, ever"),
    ("early-warning", "early warning lies here"),
    ("end-of-medium", "the tape ends here"),
    ("end-of-data-lost", "the end of data is not found once"),
    ("slide-tab", "the next cartridge is write-protected"),
    ("alert:N", "the drive raises TapeAlert flag N, from 1 to 64"),
    ("soft-errors:N", "the drive recovers from N errors by itself, and counts them"),
    ("steal-reservation", "another host takes the unit over"),
    ("change-key", "another host sets a key"),
    ("change-tape:VOLSER", "another cartridge is put into the drive by hand"),
    ("change-tape-unseen:VOLSER", "the same, and somebody else on the host was told"),
    ("wrong-tape:VOLSER", "the robot brings this cartridge instead"),
    ("mislabelled:VOLSER", "all cartridges have this barcode"),
    ("door-open:N", "somebody opens the door for N commands"),
];

impl DeviceFault {
    /// Names and explanations of all, a line each.
    pub fn explained() -> String {
        let lines: Vec<String> = NAMED.iter().map(|(name, is)| format!("  {name:<28}{is}")).collect();
        lines.join("\n")
    }

    /// At which commands it happens, if nothing else is said.
    pub fn natural_class(&self, unit: FaultyUnit) -> CommandClass {
        match self {
            Self::LoseWrites { .. }
            | Self::LosePower { .. }
            | Self::EarlyWarning
            | Self::EndOfMedium
            | Self::Alert { .. }
            | Self::SoftErrors { .. }
            | Self::StealReservation
            | Self::ChangeKey => CommandClass::Write,
            Self::ChangeTape { .. } | Self::Reset { told: false } => CommandClass::Position,
            Self::Unreadable => CommandClass::Read,
            Self::EndOfDataLost { .. } => CommandClass::Move,
            Self::SlideTab => CommandClass::Load,
            Self::WrongTape { .. } | Self::DoorOpen { .. } => CommandClass::Carry,
            Self::Mislabelled { .. } => CommandClass::Inventory,
            Self::Sense { key, asc, ascq, .. } => {
                let rows = if unit == FaultyUnit::Robot { ROBOT_SENSE_ROWS } else { SENSE_ROWS };
                let row = rows.iter().find(|(_, k, a, q)| (k, a, q) == (key, asc, ascq));
                row.map_or(CommandClass::Any, |(class, ..)| *class)
            }
            Self::Reset { told: true } | Self::Lose { .. } => CommandClass::Any,
        }
    }
}

impl FromStr for DeviceFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("no fault is called {text:?}; there are\n{}", Self::explained());
        let (name, with) = text.split_once(':').unwrap_or((text, ""));
        let number = || with.parse::<u32>().map_err(|_| format!("{name} takes a number behind a colon, not {with:?}"));
        let volser = || Volser::new(with).map(|volser| volser.to_string()).map_err(|error| error.to_string());
        let sense = |deferred| {
            let mut parts = with.split('/').map(|part| u8::from_str_radix(part, 16));
            match (parts.next(), parts.next(), parts.next(), parts.next()) {
                (Some(Ok(key @ 0..=0xf)), Some(Ok(asc)), Some(Ok(ascq)), None) => {
                    Ok(Self::Sense { key, asc, ascq, deferred, carried_out: false })
                }
                _ => Err(format!("{name} takes key, code and qualifier in hexadecimal, as in {name}:3/0c/00")),
            }
        };
        Ok(match name {
            "sense" => sense(false)?,
            "deferred" => sense(true)?,
            "lose-writes" => Self::LoseWrites { told_after: number()?.into() },
            "lose-power" => Self::LosePower { after: number()?.into() },
            "reset" => Self::Reset { told: true },
            "reset-unseen" => Self::Reset { told: false },
            "lose-command" => Self::Lose { carried_out: false },
            "lose-answer" => Self::Lose { carried_out: true },
            "unreadable" => Self::Unreadable,
            "early-warning" => Self::EarlyWarning,
            "end-of-medium" => Self::EndOfMedium,
            "end-of-data-lost" => Self::EndOfDataLost { searches: 1 },
            "slide-tab" => Self::SlideTab,
            "alert" => match number()? {
                flag @ 1..=64 => Self::Alert { flag: flag as u16 },
                other => return Err(format!("TapeAlert has flags 1 to 64, not {other}")),
            },
            "soft-errors" => Self::SoftErrors { count: number()? },
            "steal-reservation" => Self::StealReservation,
            "change-key" => Self::ChangeKey,
            "change-tape" => Self::ChangeTape { volser: volser()?, told: true },
            "change-tape-unseen" => Self::ChangeTape { volser: volser()?, told: false },
            "wrong-tape" => Self::WrongTape { volser: volser()? },
            "mislabelled" => Self::Mislabelled { volser: volser()? },
            "door-open" => Self::DoorOpen { commands: number()? },
            _ => return Err(unknown()),
        })
    }
}

impl fmt::Display for DeviceFault {
    /// As people name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sense { key, asc, ascq, deferred, .. } => {
                let name = if *deferred { "deferred" } else { "sense" };
                write!(f, "{name}:{key:x}/{asc:02x}/{ascq:02x}")
            }
            Self::LoseWrites { told_after } => write!(f, "lose-writes:{told_after}"),
            Self::LosePower { after } => write!(f, "lose-power:{after}"),
            Self::Reset { told: true } => f.write_str("reset"),
            Self::Reset { told: false } => f.write_str("reset-unseen"),
            Self::Lose { carried_out: false } => f.write_str("lose-command"),
            Self::Lose { carried_out: true } => f.write_str("lose-answer"),
            Self::Unreadable => f.write_str("unreadable"),
            Self::EarlyWarning => f.write_str("early-warning"),
            Self::EndOfMedium => f.write_str("end-of-medium"),
            Self::EndOfDataLost { .. } => f.write_str("end-of-data-lost"),
            Self::SlideTab => f.write_str("slide-tab"),
            Self::Alert { flag } => write!(f, "alert:{flag}"),
            Self::SoftErrors { count } => write!(f, "soft-errors:{count}"),
            Self::StealReservation => f.write_str("steal-reservation"),
            Self::ChangeKey => f.write_str("change-key"),
            Self::ChangeTape { volser, told: true } => write!(f, "change-tape:{volser}"),
            Self::ChangeTape { volser, told: false } => write!(f, "change-tape-unseen:{volser}"),
            Self::WrongTape { volser } => write!(f, "wrong-tape:{volser}"),
            Self::Mislabelled { volser } => write!(f, "mislabelled:{volser}"),
            Self::DoorOpen { commands } => write!(f, "door-open:{commands}"),
        }
    }
}

/// One fault, and when it happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultOrder {
    /// Where.
    pub unit: FaultyUnit,
    /// At which command.
    pub at: CommandClass,
    /// How many of these commands pass unharmed first.
    pub passing: u32,
    /// What.
    pub fault: DeviceFault,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn every_fault_that_is_explained_can_be_named() {
        for (name, _) in NAMED {
            let text = name.replace("K/AA/QQ", "3/0c/00").replace(":N", ":3").replace("VOLSER", "A00001L9");
            assert_eq!(text.parse::<DeviceFault>().unwrap().to_string(), text, "and is called so when it happens");
        }
        assert!("sense:3/0c".parse::<DeviceFault>().is_err());
        assert!("lightning".parse::<DeviceFault>().unwrap_err().contains("lose-power"));
    }
}
