//! The modes a drive is set to: blocks of variable length, buffered, compression as wished.
//!
//! ```text
//! MODE SENSE(6) and MODE SELECT(6) data                     data compression page (0Fh, SSC-5)
//!   0  1  mode data length; 0 in MODE SELECT                  0  1  page code; bit 7 must be 0 in MODE SELECT
//!   1  1  medium type                                         1  1  0Eh
//!   2  1  bit 7 write-protected, bits 6-4 buffered mode       2  1  bit 7 DCE: compress what is written
//!   3  1  length of block descriptors: 8 or 0                 3  1  bit 7 DDE: decompress what is read
//!   4  1  density code
//!   5  3  number of blocks: 0
//!   9  3  length of blocks: 0 is variable
//! ```

use super::{DriveCompression, ScsiDrive};
use crate::DriveError;
use crate::hardware::line::{Done, Failure};
use crate::scsi::command::{Form, PageControl};
use crate::scsi::{Command, DataPhase, Transport};

/// Data compression.
const COMPRESSION_PAGE: u8 = 0x0f;

/// Header and block descriptor alone.
const NO_PAGE: u8 = 0x00;

/// A drive that returns from a write when the block is in its buffer.
const BUFFERED: u8 = 1 << 4;

/// What MODE SENSE tells of the medium.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modes {
    pub(super) write_protected: bool,
    pub(super) density: u8,
    pub(super) medium_type: u8,
}

/// Header and block descriptor of MODE SELECT: blocks of variable length, buffered.
pub(super) fn header(medium_type: u8, density: u8) -> [u8; 12] {
    [0, medium_type, BUFFERED, 8, density, 0, 0, 0, 0, 0, 0, 0]
}

/// A page with a subpage, as the drive has it.
pub(super) struct ModePage {
    /// What stands in front of it in MODE SELECT.
    pub(super) header: [u8; 12],
    pub(super) page: Vec<u8>,
}

impl ModePage {
    /// The parameters of MODE SELECT that set this page. Whether it can be saved is the drive's to say.
    pub(super) fn to_select(&self) -> Vec<u8> {
        let mut select = [&self.header[..], &self.page].concat();
        select[self.header.len()] &= 0x7f;
        select
    }
}

/// Whether the drive will not have a mode page set.
pub(super) fn is_refused(failure: &Failure) -> bool {
    matches!(failure.codes(), Some((0x5, 0x24 | 0x26, _)))
}

impl<T: Transport> ScsiDrive<T> {
    /// Sets the modes, and reads what the header says of the medium. After a reset a drive has its own again.
    pub(super) fn set_modes(&mut self) -> Result<Modes, DriveError> {
        let mut bytes = [0; 64];
        let asked = match self.mode_sense((COMPRESSION_PAGE, 0), &mut bytes) {
            Err(failure) if failure.is_not_known() => self.mode_sense((NO_PAGE, 0), &mut bytes),
            asked => asked,
        };
        let moved = self.checked("MODE SENSE", asked)?.moved.min(bytes.len());
        let told = &bytes[..moved.min(1 + usize::from(bytes[0]))];
        let [_, medium_type, specific, descriptors_len, ..] = *told else {
            let reason = "MODE SENSE returned nothing: reset it".to_owned();
            return Err(DriveError::Hardware { drive: self.line.name.clone(), reason });
        };
        let density = if descriptors_len >= 8 { told.get(4).copied().unwrap_or(0) } else { 0 };
        let mut select = header(medium_type, density).to_vec();
        if let Some(page) = told.get(4 + usize::from(descriptors_len)..)
            && let [code, len, ..] = *page
            && code & 0x3f == COMPRESSION_PAGE
            && let Some(page) = page.get(..2 + usize::from(len))
            && page.len() > 2
        {
            let start = select.len();
            select.extend_from_slice(page);
            select[start] &= 0x3f;
            match self.compression {
                DriveCompression::On => select[start + 2] |= 0x80,
                DriveCompression::Off => select[start + 2] &= !0x80,
            }
        }
        let mut done = self.mode_select(&select);
        // A drive that will not have its compression changed is left with it.
        if done.as_ref().is_err_and(is_refused) {
            select.truncate(12);
            done = self.mode_select(&select);
        }
        self.checked("MODE SELECT", done)?;
        self.set_protection()?;
        Ok(Modes { write_protected: specific & 0x80 != 0, density, medium_type })
    }

    /// A page with a subpage; none if the drive has no such page.
    pub(super) fn mode_page(&mut self, wanted: (u8, u8)) -> Result<Option<ModePage>, DriveError> {
        let mut bytes = [0; 64];
        let asked = match self.mode_sense(wanted, &mut bytes) {
            Err(failure) if failure.is_not_known() => return Ok(None),
            asked => asked,
        };
        let moved = self.checked("MODE SENSE", asked)?.moved.min(bytes.len());
        let told = &bytes[..moved.min(1 + usize::from(bytes[0]))];
        let [_, medium_type, _, descriptors_len, ..] = *told else { return Ok(None) };
        let density = if descriptors_len >= 8 { told.get(4).copied().unwrap_or(0) } else { 0 };
        let Some(page) = told.get(4 + usize::from(descriptors_len)..) else { return Ok(None) };
        let [code, subpage, high, low, ..] = *page else { return Ok(None) };
        let page = page.get(..4 + usize::from(u16::from_be_bytes([high, low])));
        let page = page.filter(|_| (code & 0x7f, subpage) == (0x40 | wanted.0, wanted.1));
        Ok(page.map(|page| ModePage { header: header(medium_type, density), page: page.to_vec() }))
    }

    fn mode_sense(&mut self, (page, subpage): (u8, u8), bytes: &mut [u8; 64]) -> Result<Done, Failure> {
        let command = Command::ModeSense {
            form: Form::Six,
            no_block_descriptor: false,
            control: PageControl::Current,
            page,
            subpage,
            allocation: bytes.len() as u16,
        };
        self.line.run(&command, DataPhase::In(bytes))
    }

    pub(super) fn mode_select(&mut self, parameters: &[u8]) -> Result<Done, Failure> {
        let len = parameters.len() as u16;
        let command = Command::ModeSelect { form: Form::Six, page_format: true, save: false, len };
        self.line.run(&command, DataPhase::Out(parameters))
    }
}
