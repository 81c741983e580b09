//! Command descriptor blocks of tape drives and media changers, in both directions.
//!
//! A command that exists in several lengths is one variant; what was said in which length is kept only where it matters
//! (explicit addresses of the 16-byte forms). [`Command::to_cdb`] takes the form that every drive since LTO-1 knows,
//! and a longer one where a number does not fit.

use super::bytes::{be16, be24, be32, be64};
use super::inquiry::DeviceType;

mod encode;

/// What SPACE passes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's own names")]
pub enum SpaceOver {
    Blocks = 0,
    Filemarks = 1,
    SequentialFilemarks = 2,
    EndOfData = 3,
}

/// What LOCATE goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// A logical block number.
    Object(u64),
    /// Behind so many filemarks.
    File(u64),
    /// The end of data.
    EndOfData,
}

/// Which form of READ POSITION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionForm {
    /// 20 bytes.
    Short,
    /// 32 bytes, with the number of filemarks.
    Long,
    /// 32 bytes, with 64-bit block numbers; as many as fit the allocation length.
    Extended {
        /// Most bytes wanted.
        allocation: u16,
    },
}

/// Length in READ and WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// One block of so many bytes.
    Variable(u32),
    /// So many blocks of the length that was set by MODE SELECT.
    Fixed(u32),
}

/// Where the 16-byte forms want to be before they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Partition.
    pub partition: u8,
    /// Logical block number.
    pub lbn: u64,
}

/// Which values MODE SENSE and LOG SENSE return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's own names")]
pub enum PageControl {
    Current = 0,
    Changeable = 1,
    Default = 2,
    Saved = 3,
}

impl PageControl {
    fn of_bits(byte: u8) -> Self {
        match byte >> 6 {
            0 => Self::Current,
            1 => Self::Changeable,
            2 => Self::Default,
            _ => Self::Saved,
        }
    }
}

/// The long or the short form of MODE SENSE and MODE SELECT, which differ in their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named by the length of the command")]
pub enum Form {
    Six,
    Ten,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's own names, in whole words; lengths are in bytes")]
pub enum Command {
    TestUnitReady,
    Rewind {
        immediate: bool,
    },
    RequestSense {
        descriptor: bool,
        allocation: u8,
    },
    ReadBlockLimits {
        object_identifier: bool,
    },
    Read {
        length: Length,
        suppress_incorrect_length: bool,
        at: Option<Address>,
    },
    Write {
        length: Length,
        at: Option<Address>,
    },
    WriteFilemarks {
        count: u32,
        immediate: bool,
        at: Option<Address>,
    },
    Space {
        over: SpaceOver,
        count: i64,
    },
    Inquiry {
        vital_product_data: Option<u8>,
        allocation: u16,
    },
    Verify {
        length: Length,
        to_end_of_data: bool,
        by_filemarks: bool,
        check_protection: bool,
        compare: bool,
    },
    ModeSelect {
        form: Form,
        page_format: bool,
        save: bool,
        len: u16,
    },
    ModeSense {
        form: Form,
        no_block_descriptor: bool,
        control: PageControl,
        page: u8,
        subpage: u8,
        allocation: u16,
    },
    Reserve,
    Release,
    Erase {
        long: bool,
        immediate: bool,
        at: Option<Address>,
    },
    LoadUnload {
        load: bool,
        hold: bool,
        end_of_tape: bool,
        retension: bool,
        immediate: bool,
    },
    SendDiagnostic {
        self_test: bool,
        len: u16,
    },
    PreventRemoval {
        prevent: bool,
    },
    Locate {
        to: Destination,
        partition: Option<u8>,
        immediate: bool,
    },
    ReadPosition {
        form: PositionForm,
    },
    ReportDensity {
        of_medium: bool,
        medium_type: bool,
        allocation: u16,
    },
    LogSelect {
        reset: bool,
        save: bool,
        page: u8,
        len: u16,
    },
    LogSense {
        save: bool,
        control: PageControl,
        page: u8,
        subpage: u8,
        from_parameter: u16,
        allocation: u16,
    },
    PersistentReserveIn {
        action: u8,
        allocation: u16,
    },
    PersistentReserveOut {
        action: u8,
        scope: u8,
        kind: u8,
        len: u32,
    },
    ReadAttribute {
        action: u8,
        volume: u8,
        partition: u8,
        first: u16,
        allocation: u32,
    },
    WriteAttribute {
        write_through: bool,
        partition: u8,
        len: u32,
    },
    ReportLuns {
        select: u8,
        allocation: u32,
    },
    SecurityProtocolIn {
        protocol: u8,
        specific: u16,
        allocation: u32,
    },
    SecurityProtocolOut {
        protocol: u8,
        specific: u16,
        len: u32,
    },
    ReportSupportedOperationCodes {
        options: u8,
        opcode: u8,
        action: u16,
        timeouts: bool,
        allocation: u32,
    },
    ReportSupportedTaskFunctions {
        allocation: u32,
    },
    ReceiveRecommendedAccessOrder {
        limits: bool,
        offset: u32,
        allocation: u32,
    },
    GenerateRecommendedAccessOrder {
        process: u8,
        len: u32,
    },
    InitializeElementStatus,
    PositionToElement {
        transport: u16,
        to: u16,
    },
    MoveMedium {
        transport: u16,
        from: u16,
        to: u16,
    },
    ExchangeMedium {
        transport: u16,
        from: u16,
        to: u16,
        second_to: u16,
    },
    ReadElementStatus {
        volume_tags: bool,
        kind: u8,
        start: u16,
        count: u16,
        no_motion: bool,
        device_identifiers: bool,
        allocation: u32,
    },
}

/// Why a command descriptor block is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// The operation code, or its service action, is not for this kind of device (5/20/00).
    OperationCode,
    /// The byte at this place is not understood (5/24/00).
    Field(u16),
}

const OBJECT: u8 = 0;
const FILE: u8 = 1;
const END_OF_DATA: u8 = 3;

impl Command {
    /// Reads a command for a device of this kind. Bits that are reserved, and a control byte, are not looked at.
    ///
    /// # Errors
    /// [`CommandError::OperationCode`] if it is no command of this kind of device; [`CommandError::Field`] if it is cut
    /// short, or a field in it is not supported.
    pub fn of_cdb(device: DeviceType, cdb: &[u8]) -> Result<Self, CommandError> {
        let opcode = *cdb.first().ok_or(CommandError::OperationCode)?;
        if cdb.len() < cdb_len(opcode).ok_or(CommandError::OperationCode)? {
            return Err(CommandError::Field(0));
        }
        if let Some(command) = Self::of_any_device(opcode, cdb)? {
            return Ok(command);
        }
        match device {
            DeviceType::Tape => Self::of_tape(opcode, cdb),
            DeviceType::Changer => Self::of_changer(opcode, cdb),
        }
    }

    /// Primary commands (SPC-5).
    fn of_any_device(opcode: u8, cdb: &[u8]) -> Result<Option<Self>, CommandError> {
        Ok(Some(match opcode {
            0x00 => Self::TestUnitReady,
            0x03 => Self::RequestSense { descriptor: bit(cdb[1], 0), allocation: cdb[4] },
            0x12 => {
                if !bit(cdb[1], 0) && cdb[2] != 0 {
                    return Err(CommandError::Field(2));
                }
                Self::Inquiry { vital_product_data: bit(cdb[1], 0).then_some(cdb[2]), allocation: be16(cdb, 3) }
            }
            0x15 => Self::ModeSelect {
                form: Form::Six,
                page_format: bit(cdb[1], 4),
                save: bit(cdb[1], 0),
                len: u16::from(cdb[4]),
            },
            0x55 => Self::ModeSelect {
                form: Form::Ten,
                page_format: bit(cdb[1], 4),
                save: bit(cdb[1], 0),
                len: be16(cdb, 7),
            },
            0x1a | 0x5a => Self::ModeSense {
                form: if opcode == 0x1a { Form::Six } else { Form::Ten },
                no_block_descriptor: bit(cdb[1], 3),
                control: PageControl::of_bits(cdb[2]),
                page: cdb[2] & 0x3f,
                subpage: cdb[3],
                allocation: if opcode == 0x1a { u16::from(cdb[4]) } else { be16(cdb, 7) },
            },
            0x16 | 0x56 => Self::Reserve,
            0x17 | 0x57 => Self::Release,
            0x1d => Self::SendDiagnostic { self_test: bit(cdb[1], 2), len: be16(cdb, 3) },
            0x1e => Self::PreventRemoval { prevent: bit(cdb[4], 0) },
            0x4c => {
                Self::LogSelect { reset: bit(cdb[1], 1), save: bit(cdb[1], 0), page: cdb[2] & 0x3f, len: be16(cdb, 7) }
            }
            0x4d => Self::LogSense {
                save: bit(cdb[1], 0),
                control: PageControl::of_bits(cdb[2]),
                page: cdb[2] & 0x3f,
                subpage: cdb[3],
                from_parameter: be16(cdb, 5),
                allocation: be16(cdb, 7),
            },
            0x5e => Self::PersistentReserveIn { action: cdb[1] & 0x1f, allocation: be16(cdb, 7) },
            0x5f => Self::PersistentReserveOut {
                action: cdb[1] & 0x1f,
                scope: cdb[2] >> 4,
                kind: cdb[2] & 0x0f,
                len: be32(cdb, 5),
            },
            0x8c => Self::ReadAttribute {
                action: cdb[1] & 0x1f,
                volume: cdb[5],
                partition: cdb[7],
                first: be16(cdb, 8),
                allocation: be32(cdb, 10),
            },
            0x8d => Self::WriteAttribute { write_through: bit(cdb[1], 0), partition: cdb[7], len: be32(cdb, 10) },
            0xa0 => Self::ReportLuns { select: cdb[2], allocation: be32(cdb, 6) },
            0xa2 => {
                if bit(cdb[4], 7) {
                    return Err(CommandError::Field(4));
                }
                Self::SecurityProtocolIn { protocol: cdb[1], specific: be16(cdb, 2), allocation: be32(cdb, 6) }
            }
            0xb5 => {
                if bit(cdb[4], 7) {
                    return Err(CommandError::Field(4));
                }
                Self::SecurityProtocolOut { protocol: cdb[1], specific: be16(cdb, 2), len: be32(cdb, 6) }
            }
            0xa3 if cdb[1] & 0x1f == 0x0c => Self::ReportSupportedOperationCodes {
                options: cdb[2] & 0x07,
                timeouts: bit(cdb[2], 7),
                opcode: cdb[3],
                action: be16(cdb, 4),
                allocation: be32(cdb, 6),
            },
            0xa3 if cdb[1] & 0x1f == 0x0d => Self::ReportSupportedTaskFunctions { allocation: be32(cdb, 6) },
            _ => return Ok(None),
        }))
    }

    /// Stream commands (SSC-5).
    fn of_tape(opcode: u8, cdb: &[u8]) -> Result<Self, CommandError> {
        let length = |at: usize| match bit(cdb[1], 0) {
            true => Length::Fixed(be24(cdb, at)),
            false => Length::Variable(be24(cdb, at)),
        };
        let address = || Some(Address { partition: cdb[3], lbn: be64(cdb, 4) });
        Ok(match opcode {
            0x01 => Self::Rewind { immediate: bit(cdb[1], 0) },
            0x05 => Self::ReadBlockLimits { object_identifier: bit(cdb[1], 0) },
            0x08 => Self::Read { length: length(2), suppress_incorrect_length: bit(cdb[1], 1), at: None },
            0x88 => Self::Read { length: length(12), suppress_incorrect_length: bit(cdb[1], 1), at: address() },
            0x0a => Self::Write { length: length(2), at: None },
            0x8a => Self::Write { length: length(12), at: address() },
            0x10 => Self::WriteFilemarks { count: be24(cdb, 2), immediate: bit(cdb[1], 0), at: None },
            0x80 => Self::WriteFilemarks { count: be24(cdb, 12), immediate: bit(cdb[1], 0), at: address() },
            0x11 => {
                // 24 bits, signed.
                let count = (be24(cdb, 2) << 8).cast_signed() >> 8;
                Self::Space { over: space_over(cdb[1])?, count: i64::from(count) }
            }
            0x91 => Self::Space { over: space_over(cdb[1])?, count: be64(cdb, 4).cast_signed() },
            0x13 => Self::Verify {
                length: length(2),
                to_end_of_data: bit(cdb[1], 5),
                check_protection: bit(cdb[1], 4),
                by_filemarks: bit(cdb[1], 3),
                compare: bit(cdb[1], 1),
            },
            0x19 => Self::Erase { long: bit(cdb[1], 0), immediate: bit(cdb[1], 1), at: None },
            0x93 => Self::Erase { long: bit(cdb[1], 0), immediate: bit(cdb[1], 1), at: address() },
            0x1b => Self::LoadUnload {
                load: bit(cdb[4], 0),
                retension: bit(cdb[4], 1),
                end_of_tape: bit(cdb[4], 2),
                hold: bit(cdb[4], 3),
                immediate: bit(cdb[1], 0),
            },
            0x2b => Self::Locate {
                to: Destination::Object(u64::from(be32(cdb, 3))),
                partition: bit(cdb[1], 1).then_some(cdb[8]),
                immediate: bit(cdb[1], 0),
            },
            0x92 => Self::Locate {
                to: match (cdb[1] >> 3) & 0x07 {
                    OBJECT => Destination::Object(be64(cdb, 4)),
                    FILE => Destination::File(be64(cdb, 4)),
                    END_OF_DATA => Destination::EndOfData,
                    _ => return Err(CommandError::Field(1)),
                },
                partition: bit(cdb[1], 1).then_some(cdb[3]),
                immediate: bit(cdb[1], 0),
            },
            0x34 => Self::ReadPosition {
                form: match cdb[1] & 0x1f {
                    // 01h is the same with block numbers of the vendor's kind.
                    0x00 | 0x01 => PositionForm::Short,
                    0x06 => PositionForm::Long,
                    0x08 => PositionForm::Extended { allocation: be16(cdb, 7) },
                    _ => return Err(CommandError::Field(1)),
                },
            },
            0x44 => {
                Self::ReportDensity { of_medium: bit(cdb[1], 0), medium_type: bit(cdb[1], 1), allocation: be16(cdb, 7) }
            }
            0xa3 if cdb[1] & 0x1f == 0x1d => Self::ReceiveRecommendedAccessOrder {
                limits: bit(cdb[1], 7),
                offset: be32(cdb, 2),
                allocation: be32(cdb, 6),
            },
            0xa4 if cdb[1] & 0x1f == 0x1d => {
                Self::GenerateRecommendedAccessOrder { process: cdb[2] & 0x07, len: be32(cdb, 6) }
            }
            _ => return Err(CommandError::OperationCode),
        })
    }

    /// Media changer commands (SMC-3).
    fn of_changer(opcode: u8, cdb: &[u8]) -> Result<Self, CommandError> {
        Ok(match opcode {
            0x07 | 0x37 | 0xe7 => Self::InitializeElementStatus,
            0x2b => Self::PositionToElement { transport: be16(cdb, 2), to: be16(cdb, 4) },
            0xa5 => {
                // The other side up: no cartridge of ours has two.
                if bit(cdb[10], 0) {
                    return Err(CommandError::Field(10));
                }
                Self::MoveMedium { transport: be16(cdb, 2), from: be16(cdb, 4), to: be16(cdb, 6) }
            }
            0xa6 => {
                if cdb[10] & 0x03 != 0 {
                    return Err(CommandError::Field(10));
                }
                Self::ExchangeMedium {
                    transport: be16(cdb, 2),
                    from: be16(cdb, 4),
                    to: be16(cdb, 6),
                    second_to: be16(cdb, 8),
                }
            }
            0xb8 => {
                let kind = cdb[1] & 0x0f;
                if kind > 4 {
                    return Err(CommandError::Field(1));
                }
                Self::ReadElementStatus {
                    volume_tags: bit(cdb[1], 4),
                    kind,
                    start: be16(cdb, 2),
                    count: be16(cdb, 4),
                    no_motion: bit(cdb[6], 1),
                    device_identifiers: bit(cdb[6], 0),
                    allocation: be24(cdb, 7),
                }
            }
            _ => return Err(CommandError::OperationCode),
        })
    }

    /// LOCATE(10) to a block, for drives that do not know the 16-byte form, which [`Command::to_cdb`] takes.
    pub fn locate_10(lbn: u32) -> [u8; 10] {
        let mut cdb = [0x2b, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        cdb[3..7].copy_from_slice(&lbn.to_be_bytes());
        cdb
    }
}

fn bit(byte: u8, at: u8) -> bool {
    byte >> at & 1 == 1
}

fn space_over(byte: u8) -> Result<SpaceOver, CommandError> {
    Ok(match byte & 0x0f {
        0 => SpaceOver::Blocks,
        1 => SpaceOver::Filemarks,
        2 => SpaceOver::SequentialFilemarks,
        3 => SpaceOver::EndOfData,
        _ => return Err(CommandError::Field(1)),
    })
}

/// Length of a command by its group (SPC-5, 4.2); none for groups that have no fixed one.
pub fn cdb_len(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        // A vendor's INITIALIZE ELEMENT STATUS WITH RANGE, which became 37h.
        7 if opcode == 0xe7 => Some(10),
        _ => None,
    }
}

/// The name of a command, for messages.
pub(crate) fn command_name(opcode: u8) -> &'static str {
    match opcode {
        0x00 => "TEST UNIT READY",
        0x01 => "REWIND",
        0x05 => "READ BLOCK LIMITS",
        0x07 | 0x37 | 0xe7 => "INITIALIZE ELEMENT STATUS",
        0x08 | 0x88 => "READ",
        0x0a | 0x8a => "WRITE",
        0x10 | 0x80 => "WRITE FILEMARKS",
        0x11 | 0x91 => "SPACE",
        0x12 => "INQUIRY",
        0x13 => "VERIFY",
        0x15 | 0x55 => "MODE SELECT",
        0x19 | 0x93 => "ERASE",
        0x1a | 0x5a => "MODE SENSE",
        0x1b => "LOAD UNLOAD",
        0x1e => "PREVENT ALLOW MEDIUM REMOVAL",
        0x2b | 0x92 => "LOCATE",
        0x34 => "READ POSITION",
        0x4d => "LOG SENSE",
        0x5e => "PERSISTENT RESERVE IN",
        0x5f => "PERSISTENT RESERVE OUT",
        0x8c => "READ ATTRIBUTE",
        0x8d => "WRITE ATTRIBUTE",
        0xa2 => "SECURITY PROTOCOL IN",
        0xb5 => "SECURITY PROTOCOL OUT",
        0xa5 => "MOVE MEDIUM",
        0xa6 => "EXCHANGE MEDIUM",
        0xb8 => "READ ELEMENT STATUS",
        _ => "a command",
    }
}

#[cfg(test)]
mod tests;
