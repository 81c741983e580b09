//! Settings of a drive: MODE SENSE, MODE SELECT, REPORT DENSITY SUPPORT.

use capstan_tape::Rewritability;
use capstan_tape::scsi::SenseKey;
use capstan_tape::scsi::attribute::LTO_WRITE_ONCE;
use capstan_tape::scsi::command::{Form, PageControl};
use capstan_tape::scsi::protection::{self, LogicalBlockProtection};

use super::CommandContext;
use crate::device::DataIn;
use crate::unit::answer::{Answer, check, invalid_command_field, invalid_parameter_field};
use crate::unit::nexuses::Attention;
use crate::unit::primary::{ModeHeader, ModeWanted, mode_data, mode_selected};

/// Medium configuration mode page (SSC-5).
const MEDIUM_CONFIGURATION: u8 = 0x1d;

/// What initiators can set; a reset brings back what was at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Modes {
    /// Length of blocks in fixed mode; 0 for variable ones.
    pub(super) block_len: u32,
    /// 0: a write ends when it is on the medium; 1: when it is in the buffer.
    pub(super) buffered: u8,
    /// Whether the drive would compress. A virtual one keeps the setting and stores blocks as they come.
    compression: bool,
    /// MiB in front of early warning at which the programmable one is told; 0 for none.
    pub(super) programmable_early_warning_mb: u16,
    /// Checksums behind blocks on their way.
    pub(super) protection: LogicalBlockProtection,
}

impl Default for Modes {
    fn default() -> Self {
        Self {
            block_len: 0,
            buffered: 1,
            compression: true,
            programmable_early_warning_mb: 0,
            protection: LogicalBlockProtection::NONE,
        }
    }
}

impl Modes {
    /// Mode pages: code, subpage, bytes.
    fn pages(&self) -> Vec<(u8, u8, Vec<u8>)> {
        let mut configuration = vec![0x10, 0x0e];
        configuration.resize(16, 0);
        // Early warning is told; the compression algorithm is the default one; a short erase.
        (configuration[8], configuration[10], configuration[14]) = (0x40, 0x18, u8::from(self.compression));
        let mut extension = vec![0x50, 0x01, 0x00, 0x1c];
        extension.resize(32, 0);
        extension[6..8].copy_from_slice(&self.programmable_early_warning_mb.to_be_bytes());
        let mut compression = vec![0x0f, 0x0e];
        compression.resize(16, 0);
        compression[2] = 0x40 | if self.compression { 0x80 } else { 0 };
        compression[3] = 0x80;
        // IBM LTO's compression, as most drives name it.
        (compression[7], compression[11]) = (0x01, 0x01);
        let page = |bytes: &[u8]| (bytes[0] & 0x3f, 0, bytes.to_vec());
        vec![
            page(&[0x01, 0x0a, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            page(&[0x02, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            page(&[0x0a, 0x0a, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (protection::PAGE, protection::SUBPAGE, self.protection.to_page()),
            page(&compression),
            page(&configuration),
            (0x10, 0x01, extension),
            page(&[0x11, 0x06, 0, 0, 0, 0x03, 0, 0]),
            page(&[0x1c, 0x0a, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ]
    }
}

impl CommandContext<'_> {
    fn density(&self) -> u8 {
        self.unit.model.density_code.as_ref().map_or(0, |code| code.value)
    }

    fn is_write_once(&self) -> bool {
        let loaded = self.state.loaded.as_ref();
        loaded.is_some_and(|loaded| loaded.medium.rewritability == Rewritability::WriteOnce)
    }

    /// Medium type in the mode parameter header, as LTO drives tell it: the generation, and 8h, or Ch of write-once
    /// cartridges; 0, the default, of all others.
    fn medium_type(&self) -> u8 {
        let generation = self.state.loaded.as_ref().and_then(|loaded| loaded.medium.generation.as_deref());
        let number = generation.and_then(|name| name.strip_prefix("LTO-")).and_then(|number| number.parse::<u8>().ok());
        let Some(code) = number.and_then(|number| number.checked_mul(0x10)) else { return 0 };
        match self.is_write_once() {
            true => Some(code | 0x0c).filter(|code| LTO_WRITE_ONCE.contains(code)).unwrap_or(0),
            false => code | 0x08,
        }
    }

    /// Medium configuration: whether the medium is write-once, and what of it may be written over all the same: no
    /// label (0), and of the filemarks at its end none, for which SSC-5 has no code; 2 is what LTO drives say, which
    /// let all but one be written over.
    fn medium_configuration(&self) -> Vec<u8> {
        let mut page = vec![MEDIUM_CONFIGURATION, 0x1e];
        page.resize(32, 0);
        if self.is_write_once() {
            (page[2], page[5]) = (0x01, 0x02);
        }
        page
    }

    fn pages(&self, modes: &Modes) -> Vec<(u8, u8, Vec<u8>)> {
        let mut pages = modes.pages();
        pages.push((MEDIUM_CONFIGURATION, 0, self.medium_configuration()));
        pages
    }

    /// MODE SENSE.
    pub(super) fn tell_modes(&mut self, wanted: ModeWanted, allocation: u16, data_in: &mut DataIn) -> Answer {
        let modes = if wanted.control == PageControl::Default { Modes::default() } else { self.state.modes.clone() };
        let loaded = self.state.loaded.as_ref();
        let protected = loaded.is_some_and(|loaded| {
            loaded.medium.write_protected || loaded.access != capstan_tape::model::Access::ReadWrite
        });
        let density = if loaded.is_some() { self.density() } else { 0 };
        let len = modes.block_len.to_be_bytes();
        let header = ModeHeader {
            medium_type: self.medium_type(),
            device_specific: (modes.buffered << 4) | if protected { 0x80 } else { 0 },
            block_descriptor: Some([density, 0, 0, 0, 0, len[1], len[2], len[3]]),
        };
        data_in.put(&mode_data(wanted, header, &self.pages(&modes))?, usize::from(allocation));
        Ok(())
    }

    /// MODE SELECT.
    pub(super) fn set_modes(&mut self, form: Form, page_format: bool, save: bool, len: u16) -> Answer {
        if save {
            return Err(invalid_command_field(1));
        }
        if len == 0 {
            return Ok(());
        }
        let selected = mode_selected(form, super::parameters(self.data_out, usize::from(len))?)?;
        if !page_format && !selected.pages.is_empty() {
            return Err(invalid_command_field(1));
        }
        let mut modes = self.state.modes.clone();
        let header_len: u16 = if form == Form::Six { 4 } else { 8 };
        match selected.device_specific >> 4 & 0x07 {
            mode @ (0 | 1) => modes.buffered = mode,
            // 2: until every initiator's blocks are on the medium; there is one buffer.
            2 => modes.buffered = 1,
            _ => return Err(invalid_parameter_field(if form == Form::Six { 2 } else { 3 })),
        }
        if let Some(descriptor) = selected.block_descriptor {
            // 7Fh: as it is; 00h: the default.
            if !matches!(descriptor[0], 0x00 | 0x7f) && descriptor[0] != self.density() {
                return Err(invalid_parameter_field(header_len));
            }
            let block_len = u32::from_be_bytes([0, descriptor[5], descriptor[6], descriptor[7]]);
            if block_len > self.unit.model.block_len_max.value {
                return Err(invalid_parameter_field(header_len + 5));
            }
            modes.block_len = block_len;
        }
        let current = self.pages(&modes);
        for (at, page) in selected.pages {
            let code = page[0] & 0x3f;
            let subpage = if page[0] & 0x40 != 0 { page[1] } else { 0 };
            let known = current.iter().find(|(known, sub, _)| (*known, *sub) == (code, subpage));
            let Some((.., known)) = known else { return Err(invalid_parameter_field(at as u16)) };
            if known.len() != page.len() {
                return Err(invalid_parameter_field(at as u16 + 1));
            }
            match (code, subpage) {
                (0x0f, 0) => modes.compression = page[2] & 0x80 != 0,
                (0x10, 0) => modes.compression = page[14] != 0,
                (0x10, 1) => modes.programmable_early_warning_mb = u16::from_be_bytes([page[6], page[7]]),
                (protection::PAGE, protection::SUBPAGE) => {
                    modes.protection = LogicalBlockProtection::of_page(page)
                        .map_err(|byte| invalid_parameter_field(at as u16 + byte))?;
                }
                // The others hold nothing that could be set: what differs is refused, not passed over.
                _ if page[1..] == known[1..] => {}
                _ => return Err(invalid_parameter_field(at as u16 + 2)),
            }
        }
        if modes != self.state.modes {
            self.state.modes = modes;
            self.state.nexuses.tell_all(Some(self.initiator), Attention::ModeChanged);
        }
        Ok(())
    }

    /// REPORT DENSITY SUPPORT.
    pub(super) fn tell_densities(
        &mut self,
        of_medium: bool,
        medium_type: bool,
        allocation: u16,
        data_in: &mut DataIn,
    ) -> Answer {
        if medium_type {
            return Err(invalid_command_field(1));
        }
        if of_medium {
            self.state.loaded()?;
        }
        let code = self.density();
        if code == 0 {
            // DENSITY SUPPORT of a drive whose code is not known.
            return Err(check(SenseKey::IllegalRequest, 0x24, 0x00));
        }
        let mut descriptor = vec![code, code, 0xa0, 0x00, 0x00];
        // Bits per mm, width and tracks are not known of models; capacity in MB is.
        descriptor.extend_from_slice(&[0, 0, 0]);
        descriptor.extend_from_slice(&127u16.to_be_bytes());
        descriptor.extend_from_slice(&0u16.to_be_bytes());
        let megabytes = (self.unit.model.capacity_gb.value * 1000.0) as u32;
        descriptor.extend_from_slice(&megabytes.to_be_bytes());
        let text = |text: &str, len: usize| {
            let mut field: Vec<u8> = text.bytes().take(len).collect();
            field.resize(len, b' ');
            field
        };
        descriptor.extend_from_slice(&text("CAPSTAN", 8));
        descriptor.extend_from_slice(&text(&self.unit.model.name.replace("LTO-", "U-"), 8));
        descriptor.extend_from_slice(&text(&self.unit.model.name, 20));
        let mut bytes = (descriptor.len() as u16 + 2).to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&descriptor);
        data_in.put(&bytes, usize::from(allocation));
        Ok(())
    }
}
