//! Commands as bytes.

use super::{Address, Command, Destination, END_OF_DATA, FILE, Form, Length, OBJECT, PositionForm, cdb_len};
use crate::scsi::bytes::low24;

impl Command {
    /// The command descriptor block: 6, 10, 12 or 16 bytes. Numbers that no form has room for are cut.
    pub fn to_cdb(&self) -> Vec<u8> {
        let flag = |set: bool, at: u8| if set { 1u8 << at } else { 0 };
        let mut cdb = [0u8; 16];
        match *self {
            Self::TestUnitReady => {}
            Self::Rewind { immediate } => cdb[..2].copy_from_slice(&[0x01, flag(immediate, 0)]),
            Self::RequestSense { descriptor, allocation } => {
                cdb[..5].copy_from_slice(&[0x03, flag(descriptor, 0), 0, 0, allocation]);
            }
            Self::ReadBlockLimits { object_identifier } => {
                cdb[..2].copy_from_slice(&[0x05, flag(object_identifier, 0)]);
            }
            Self::Read { length, suppress_incorrect_length, at } => {
                transfer(&mut cdb, (0x08, 0x88), flag(suppress_incorrect_length, 1), length, at);
            }
            Self::Write { length, at } => transfer(&mut cdb, (0x0a, 0x8a), 0, length, at),
            Self::WriteFilemarks { count, immediate, at } => {
                transfer(&mut cdb, (0x10, 0x80), flag(immediate, 0), Length::Variable(count), at);
            }
            Self::Space { over, count } => {
                cdb[1] = over as u8;
                match i32::try_from(count) {
                    Ok(count) if (-0x80_0000..0x80_0000).contains(&count) => {
                        cdb[0] = 0x11;
                        cdb[2..5].copy_from_slice(&low24(count.cast_unsigned()));
                    }
                    _ => {
                        cdb[0] = 0x91;
                        cdb[4..12].copy_from_slice(&count.to_be_bytes());
                    }
                }
            }
            Self::Inquiry { vital_product_data, allocation } => {
                cdb[..3].copy_from_slice(&[
                    0x12,
                    flag(vital_product_data.is_some(), 0),
                    vital_product_data.unwrap_or(0),
                ]);
                cdb[3..5].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::Verify { length, to_end_of_data, by_filemarks, check_protection, compare } => {
                let flags =
                    flag(to_end_of_data, 5) | flag(check_protection, 4) | flag(by_filemarks, 3) | flag(compare, 1);
                transfer(&mut cdb, (0x13, 0x13), flags, length, None);
            }
            Self::ModeSelect { form, page_format, save, len } => {
                cdb[1] = flag(page_format, 4) | flag(save, 0);
                match form {
                    Form::Six => (cdb[0], cdb[4]) = (0x15, len as u8),
                    Form::Ten => {
                        cdb[0] = 0x55;
                        cdb[7..9].copy_from_slice(&len.to_be_bytes());
                    }
                }
            }
            Self::ModeSense { form, no_block_descriptor, control, page, subpage, allocation } => {
                cdb[1..4].copy_from_slice(&[flag(no_block_descriptor, 3), ((control as u8) << 6) | page, subpage]);
                match form {
                    Form::Six => (cdb[0], cdb[4]) = (0x1a, allocation as u8),
                    Form::Ten => {
                        cdb[0] = 0x5a;
                        cdb[7..9].copy_from_slice(&allocation.to_be_bytes());
                    }
                }
            }
            Self::Reserve => cdb[0] = 0x16,
            Self::Release => cdb[0] = 0x17,
            Self::Erase { long, immediate, at } => {
                let flags = flag(long, 0) | flag(immediate, 1);
                match at {
                    None => cdb[..2].copy_from_slice(&[0x19, flags]),
                    Some(at) => {
                        cdb[..4].copy_from_slice(&[0x93, flags, 0, at.partition]);
                        cdb[4..12].copy_from_slice(&at.lbn.to_be_bytes());
                    }
                }
            }
            Self::LoadUnload { load, hold, end_of_tape, retension, immediate } => {
                let what = flag(load, 0) | flag(retension, 1) | flag(end_of_tape, 2) | flag(hold, 3);
                cdb[..5].copy_from_slice(&[0x1b, flag(immediate, 0), 0, 0, what]);
            }
            Self::SendDiagnostic { self_test, len } => {
                cdb[..2].copy_from_slice(&[0x1d, flag(self_test, 2)]);
                cdb[3..5].copy_from_slice(&len.to_be_bytes());
            }
            Self::PreventRemoval { prevent } => (cdb[0], cdb[4]) = (0x1e, flag(prevent, 0)),
            Self::Locate { to, partition, immediate } => {
                let flags = flag(partition.is_some(), 1) | flag(immediate, 0);
                let (kind, number) = match to {
                    Destination::Object(lbn) => (OBJECT, lbn),
                    Destination::File(file) => (FILE, file),
                    Destination::EndOfData => (END_OF_DATA, 0),
                };
                cdb[..4].copy_from_slice(&[0x92, (kind << 3) | flags, 0, partition.unwrap_or(0)]);
                cdb[4..12].copy_from_slice(&number.to_be_bytes());
            }
            Self::ReadPosition { form } => {
                cdb[0] = 0x34;
                match form {
                    PositionForm::Short => {}
                    PositionForm::Long => cdb[1] = 0x06,
                    PositionForm::Extended { allocation } => {
                        cdb[1] = 0x08;
                        cdb[7..9].copy_from_slice(&allocation.to_be_bytes());
                    }
                }
            }
            Self::ReportDensity { of_medium, medium_type, allocation } => {
                cdb[..2].copy_from_slice(&[0x44, flag(of_medium, 0) | flag(medium_type, 1)]);
                cdb[7..9].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::LogSelect { reset, save, page, len } => {
                cdb[..3].copy_from_slice(&[0x4c, flag(reset, 1) | flag(save, 0), (1 << 6) | page]);
                cdb[7..9].copy_from_slice(&len.to_be_bytes());
            }
            Self::LogSense { save, control, page, subpage, from_parameter, allocation } => {
                cdb[..4].copy_from_slice(&[0x4d, flag(save, 0), ((control as u8) << 6) | page, subpage]);
                cdb[5..7].copy_from_slice(&from_parameter.to_be_bytes());
                cdb[7..9].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::PersistentReserveIn { action, allocation } => {
                cdb[..2].copy_from_slice(&[0x5e, action]);
                cdb[7..9].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::PersistentReserveOut { action, scope, kind, len } => {
                cdb[..3].copy_from_slice(&[0x5f, action, (scope << 4) | kind]);
                cdb[5..9].copy_from_slice(&len.to_be_bytes());
            }
            Self::ReadAttribute { action, volume, partition, first, allocation } => {
                cdb[..2].copy_from_slice(&[0x8c, action]);
                (cdb[5], cdb[7]) = (volume, partition);
                cdb[8..10].copy_from_slice(&first.to_be_bytes());
                cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::WriteAttribute { write_through, partition, len } => {
                cdb[..2].copy_from_slice(&[0x8d, flag(write_through, 0)]);
                cdb[7] = partition;
                cdb[10..14].copy_from_slice(&len.to_be_bytes());
            }
            Self::ReportLuns { select, allocation } => {
                cdb[..3].copy_from_slice(&[0xa0, 0, select]);
                cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::SecurityProtocolIn { protocol, specific, allocation } => {
                security(&mut cdb, 0xa2, protocol, specific, allocation);
            }
            Self::SecurityProtocolOut { protocol, specific, len } => security(&mut cdb, 0xb5, protocol, specific, len),
            Self::ReportSupportedOperationCodes { options, opcode, action, timeouts, allocation } => {
                cdb[..4].copy_from_slice(&[0xa3, 0x0c, flag(timeouts, 7) | options, opcode]);
                cdb[4..6].copy_from_slice(&action.to_be_bytes());
                cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::ReportSupportedTaskFunctions { allocation } => {
                cdb[..2].copy_from_slice(&[0xa3, 0x0d]);
                cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::ReceiveRecommendedAccessOrder { limits, offset, allocation } => {
                cdb[..2].copy_from_slice(&[0xa3, flag(limits, 7) | 0x1d]);
                cdb[2..6].copy_from_slice(&offset.to_be_bytes());
                cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
            }
            Self::GenerateRecommendedAccessOrder { process, len } => {
                cdb[..3].copy_from_slice(&[0xa4, 0x1d, process]);
                cdb[6..10].copy_from_slice(&len.to_be_bytes());
            }
            Self::InitializeElementStatus => cdb[0] = 0x07,
            Self::PositionToElement { transport, to } => {
                cdb[0] = 0x2b;
                elements(&mut cdb, &[transport, to]);
            }
            Self::MoveMedium { transport, from, to } => {
                cdb[0] = 0xa5;
                elements(&mut cdb, &[transport, from, to]);
            }
            Self::ExchangeMedium { transport, from, to, second_to } => {
                cdb[0] = 0xa6;
                elements(&mut cdb, &[transport, from, to, second_to]);
            }
            Self::ReadElementStatus { volume_tags, kind, start, count, no_motion, device_identifiers, allocation } => {
                cdb[..2].copy_from_slice(&[0xb8, flag(volume_tags, 4) | kind]);
                elements(&mut cdb, &[start, count]);
                cdb[6] = flag(no_motion, 1) | flag(device_identifiers, 0);
                cdb[7..10].copy_from_slice(&low24(allocation));
            }
        }
        cdb[..cdb_len(cdb[0]).unwrap_or(16)].to_vec()
    }
}

/// READ, WRITE, WRITE FILEMARKS and VERIFY are laid out alike.
fn transfer(cdb: &mut [u8; 16], (six, sixteen): (u8, u8), flags: u8, length: Length, at: Option<Address>) {
    let (fixed, count) = match length {
        Length::Variable(bytes) => (0, bytes),
        Length::Fixed(blocks) => (1, blocks),
    };
    cdb[1] = flags | fixed;
    match at {
        None => {
            cdb[0] = six;
            cdb[2..5].copy_from_slice(&low24(count));
        }
        Some(at) => {
            (cdb[0], cdb[3]) = (sixteen, at.partition);
            cdb[4..12].copy_from_slice(&at.lbn.to_be_bytes());
            cdb[12..15].copy_from_slice(&low24(count));
        }
    }
}

fn security(cdb: &mut [u8; 16], opcode: u8, protocol: u8, specific: u16, len: u32) {
    cdb[..2].copy_from_slice(&[opcode, protocol]);
    cdb[2..4].copy_from_slice(&specific.to_be_bytes());
    cdb[6..10].copy_from_slice(&len.to_be_bytes());
}

fn elements(cdb: &mut [u8; 16], addresses: &[u16]) {
    for (field, address) in cdb[2..].chunks_exact_mut(2).zip(addresses) {
        field.copy_from_slice(&address.to_be_bytes());
    }
}
