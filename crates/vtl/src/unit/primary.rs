//! Commands that all units answer alike: who they are, and which commands they know.

use capstan_tape::scsi::Command;
use capstan_tape::scsi::command::{Form, PageControl, cdb_len};
use capstan_tape::scsi::inquiry::{DeviceType, Inquiry, identification, page, vital_product_data};
use capstan_tape::scsi::protection;

use super::answer::{Answer, Refusal, check, invalid_command_field, invalid_parameter_field, parameter_length};
use crate::device::DataIn;
use capstan_tape::scsi::SenseKey;

/// Who a unit is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: DeviceType,
    pub(crate) product: String,
    pub(crate) serial: String,
    /// Name of the target port.
    pub(crate) port: String,
}

const VENDOR: &str = "CAPSTAN";

impl Identity {
    fn inquiry(&self) -> Inquiry {
        Inquiry {
            device_type: self.device as u8,
            vendor: VENDOR.to_owned(),
            product: self.product.clone(),
            revision: env!("CARGO_PKG_VERSION").replace('.', ""),
        }
    }

    /// "vendor, product, serial", as libraries repeat it.
    pub(crate) fn designator(&self) -> Vec<u8> {
        let body = identification(&self.inquiry(), &self.serial, None);
        body[4..].to_vec()
    }

    /// INQUIRY.
    pub(crate) fn tell(&self, data: Option<u8>, allocation: u16, data_in: &mut DataIn) -> Answer {
        let tape = self.device == DeviceType::Tape;
        let bytes = match data {
            None => self.inquiry().to_bytes().to_vec(),
            Some(code) => {
                let body = match code {
                    page::SUPPORTED if tape => {
                        vec![
                            page::SUPPORTED,
                            page::SERIAL,
                            page::IDENTIFICATION,
                            page::EXTENDED,
                            page::SEQUENTIAL,
                            page::MANUFACTURER_SERIAL,
                            page::TAPE_ALERT,
                            page::BLOCK_PROTECTION,
                        ]
                    }
                    page::SUPPORTED => vec![page::SUPPORTED, page::SERIAL, page::IDENTIFICATION, page::EXTENDED],
                    page::SERIAL => self.serial.clone().into_bytes(),
                    page::MANUFACTURER_SERIAL if tape => self.serial.clone().into_bytes(),
                    page::IDENTIFICATION => identification(&self.inquiry(), &self.serial, Some(&self.port)),
                    page::EXTENDED => vec![0; 60],
                    // WORM: write-once cartridges are known. TSMC: timestamps are not kept.
                    page::SEQUENTIAL if tape => vec![0x01, 0],
                    // One bit for each flag that may ever be raised: all of them.
                    page::TAPE_ALERT if tape => vec![0xff; 8],
                    page::BLOCK_PROTECTION if tape => protection::vital_body(),
                    _ => return Err(invalid_command_field(2)),
                };
                vital_product_data(self.device, code, &body)
            }
        };
        data_in.put(&bytes, usize::from(allocation));
        Ok(())
    }
}

/// REPORT LUNS.
pub(crate) fn report_luns(luns: &[u64], select: u8, allocation: u32, data_in: &mut DataIn) -> Answer {
    // Well-known units (1) there are none of.
    let luns: &[u64] = match select {
        0 | 2 => luns,
        1 => &[],
        _ => return Err(invalid_command_field(2)),
    };
    let mut bytes = ((luns.len() * 8) as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0; 4]);
    for lun in luns {
        // Flat space addressing begins at 256; below it, peripheral device addressing.
        let field = if *lun < 256 { *lun } else { 0x4000 | lun } << 48;
        bytes.extend_from_slice(&field.to_be_bytes());
    }
    data_in.put(&bytes, allocation as usize);
    Ok(())
}

/// REPORT SUPPORTED OPERATION CODES: what [`Command::of_cdb`] takes, and `known` says the unit carries out.
pub(crate) fn report_operation_codes(
    device: DeviceType,
    known: impl Fn(&Command) -> bool,
    (options, opcode, action): (u8, u8, u16),
    timeouts: Option<&dyn Fn(u8) -> u32>,
    data_in: &mut DataIn,
    allocation: u32,
) -> Answer {
    // Whether a command is known by its first bytes alone.
    let supported = |opcode: u8, action: u16| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (opcode, action as u8);
        Command::of_cdb(device, &cdb).is_ok_and(|command| known(&command))
    };
    let has_actions = |opcode: u8| matches!(opcode, 0x5e | 0x5f | 0x34 | 0x8c | 0xa3 | 0xa4);
    let timeout_of = |opcode: u8| {
        let seconds = timeouts.map_or(0, |timeouts| timeouts(opcode));
        let mut descriptor = [0; 12];
        descriptor[1] = 0x0a;
        descriptor[4..8].copy_from_slice(&(seconds / 2).to_be_bytes());
        descriptor[8..12].copy_from_slice(&seconds.to_be_bytes());
        descriptor
    };
    let mut bytes = Vec::new();
    if options == 0 {
        bytes.extend_from_slice(&[0; 4]);
        for opcode in 0..=0xffu8 {
            let actions = if has_actions(opcode) { 0..32u16 } else { 0..1 };
            for action in actions.filter(|action| supported(opcode, *action)) {
                bytes.extend_from_slice(&[opcode, 0]);
                bytes.extend_from_slice(&action.to_be_bytes());
                bytes.extend_from_slice(&[0, u8::from(has_actions(opcode)) | if timeouts.is_some() { 2 } else { 0 }]);
                bytes.extend_from_slice(&(cdb_len(opcode).unwrap_or(16) as u16).to_be_bytes());
                if timeouts.is_some() {
                    bytes.extend_from_slice(&timeout_of(opcode));
                }
            }
        }
        let len = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&len.to_be_bytes());
    } else {
        if (options == 1 && has_actions(opcode)) || (options == 2 && !has_actions(opcode)) || options > 3 {
            return Err(invalid_command_field(if options > 3 { 2 } else { 4 }));
        }
        let len = cdb_len(opcode).unwrap_or(16);
        let support = if supported(opcode, action) { 3 } else { 1 };
        bytes.extend_from_slice(&[0, support | if timeouts.is_some() { 0x80 } else { 0 }]);
        bytes.extend_from_slice(&(len as u16).to_be_bytes());
        let mut usage = vec![0xff; len];
        usage[0] = opcode;
        bytes.extend_from_slice(&usage);
        if timeouts.is_some() {
            bytes.extend_from_slice(&timeout_of(opcode));
        }
    }
    data_in.put(&bytes, allocation as usize);
    Ok(())
}

/// What a unit says in a mode parameter header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModeHeader {
    pub(crate) medium_type: u8,
    /// Write protection, buffered mode, speed.
    pub(crate) device_specific: u8,
    /// Density and block length, of drives.
    pub(crate) block_descriptor: Option<[u8; 8]>,
}

/// What MODE SENSE asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModeWanted {
    pub(crate) form: Form,
    pub(crate) no_block_descriptor: bool,
    pub(crate) control: PageControl,
    pub(crate) page: u8,
    pub(crate) subpage: u8,
}

/// MODE SENSE data. `pages`: code, subpage and bytes of each, in order.
pub(crate) fn mode_data(
    wanted: ModeWanted,
    header: ModeHeader,
    pages: &[(u8, u8, Vec<u8>)],
) -> Result<Vec<u8>, Refusal> {
    if wanted.control == PageControl::Saved {
        // SAVING PARAMETERS NOT SUPPORTED
        return Err(check(SenseKey::IllegalRequest, 0x39, 0x00));
    }
    let is_wanted = |(page, subpage, _): &&(u8, u8, Vec<u8>)| match (wanted.page, wanted.subpage) {
        (0x3f, 0xff) => true,
        (0x3f, 0x00) => *subpage == 0,
        (code, 0xff) => *page == code,
        (code, sub) => *page == code && *subpage == sub,
    };
    let mut body = Vec::new();
    for (.., bytes) in pages.iter().filter(is_wanted) {
        match wanted.control {
            PageControl::Changeable => {
                // Which may be changed is found out by changing: the header alone is kept.
                let keep = if bytes[0] & 0x40 != 0 { 4 } else { 2 };
                body.extend_from_slice(&bytes[..keep]);
                body.resize(body.len() + bytes.len() - keep, 0);
            }
            _ => body.extend_from_slice(bytes),
        }
    }
    // Page 00h asks for the header alone, as `st` does.
    if body.is_empty() && wanted.page != 0 {
        return Err(invalid_command_field(2));
    }
    let descriptor = header.block_descriptor.filter(|_| !wanted.no_block_descriptor);
    let descriptor = descriptor.as_ref().map_or(&[][..], |bytes| &bytes[..]);
    let mut bytes = match wanted.form {
        Form::Six => vec![0, header.medium_type, header.device_specific, descriptor.len() as u8],
        Form::Ten => vec![0, 0, header.medium_type, header.device_specific, 0, 0, 0, descriptor.len() as u8],
    };
    bytes.extend_from_slice(descriptor);
    bytes.extend_from_slice(&body);
    match wanted.form {
        Form::Six => bytes[0] = (bytes.len() - 1).min(255) as u8,
        Form::Ten => {
            let len = (bytes.len() - 2) as u16;
            bytes[..2].copy_from_slice(&len.to_be_bytes());
        }
    }
    Ok(bytes)
}

/// MODE SELECT data, taken apart.
pub(crate) struct ModeSelected<'a> {
    pub(crate) device_specific: u8,
    pub(crate) block_descriptor: Option<&'a [u8]>,
    /// Each page whole, with its header, and where it stands in the list.
    pub(crate) pages: Vec<(usize, &'a [u8])>,
}

/// Takes a MODE SELECT parameter list apart.
pub(crate) fn mode_selected(form: Form, bytes: &[u8]) -> Result<ModeSelected<'_>, Refusal> {
    let header_len = if form == Form::Six { 4 } else { 8 };
    let header = bytes.get(..header_len).ok_or_else(parameter_length)?;
    let (device_specific, descriptor_len) = match form {
        Form::Six => (header[2], usize::from(header[3])),
        Form::Ten => (header[3], usize::from(u16::from_be_bytes([header[6], header[7]]))),
    };
    if descriptor_len != 0 && descriptor_len != 8 {
        return Err(invalid_parameter_field((header_len - 1) as u16));
    }
    let pages_at = header_len + descriptor_len;
    let descriptor = bytes.get(header_len..pages_at).ok_or_else(parameter_length)?;
    let mut pages = Vec::new();
    let mut at = pages_at;
    while at < bytes.len() {
        let left = &bytes[at..];
        let len = match left {
            [code, _, high, low, ..] if code & 0x40 != 0 => 4 + usize::from(u16::from_be_bytes([*high, *low])),
            [_, len, ..] => 2 + usize::from(*len),
            _ => return Err(parameter_length()),
        };
        pages.push((at, left.get(..len).ok_or_else(parameter_length)?));
        at += len;
    }
    let block_descriptor = Some(descriptor).filter(|descriptor| !descriptor.is_empty());
    Ok(ModeSelected { device_specific, block_descriptor, pages })
}
