//! Opening a drive: who it is and what it can do.

use super::guard::{BlockProtection, Guard};
use super::keys::KeySlot;
use super::ready::Empty;
use super::reservation::Reserved;
use super::reserve::Reserve;
use super::{DriveCompression, LocateKnown, PositionAsked, ScsiDrive};
use crate::hardware::line::{Failure, Line};
use crate::hardware::timeouts::Timeouts;
use crate::health::Cleaning;
use crate::scsi::bytes::{be16, be24};
use crate::scsi::encryption;
use crate::scsi::inquiry::{self, DeviceType, Inquiry, page};
use crate::scsi::protection::CHECKSUM_LEN;
use crate::scsi::{Command, DataPhase, SenseKey, Transport};
use crate::{BlockLimits, DriveError};

/// Unit attentions that may wait for a nexus that comes new: one of each kind, and some to spare.
const UNIT_ATTENTIONS_MAX: usize = 16;

/// The longest block that the length in READ(6) and WRITE(6) can say.
const LENGTH_MAX: u32 = 0x00ff_ffff;

impl<T: Transport> ScsiDrive<T> {
    /// Asks the device who it is and what it can do; the medium is not touched. `name` is how messages and the catalog
    /// call the drive: a path by identifier, `/dev/tape/by-id/...`.
    ///
    /// # Errors
    /// [`DriveError::Hardware`] if it is no tape drive; else it does not answer.
    pub fn open(transport: T, name: impl Into<String>, compression: DriveCompression) -> Result<Self, DriveError> {
        let mut drive = Self {
            line: Line::new(transport, name.into(), Timeouts::of_drive()),
            inquiry: Inquiry {
                device_type: DeviceType::Tape as u8,
                vendor: String::new(),
                product: String::new(),
                revision: String::new(),
            },
            serial: None,
            limits: BlockLimits { min: 1, max: LENGTH_MAX },
            longest_on_tape: LENGTH_MAX,
            algorithms: Vec::new(),
            knows_ciphers: false,
            compression,
            position_asked: PositionAsked::Long,
            locate_known: LocateKnown::Sixteen,
            loaded: None,
            slot: KeySlot::Empty,
            at: None,
            last_lbn: 0,
            unflushed: false,
            in_doubt: true,
            others: None,
            reserved: Reserved::No,
            when_empty: Empty::Load,
            recovered_errors: 0,
            cleaning: Cleaning::NotAsked,
            generation_known: None,
            guard: Guard::new(BlockProtection::Off),
            reserve: Reserve::NotWished,
        };
        drive.limits.max = drive.movable();
        drive.identify()?;
        drive.drain_attentions();
        match drive.ask_limits() {
            // One that another host has reserved answers this when that host has let go of it, or is gone: with the
            // cartridge it is asked again.
            Ok(()) | Err(DriveError::InUse { .. }) => {}
            Err(DriveError::Reset { .. }) => drive.ask_limits()?,
            Err(error) => return Err(error),
        }
        drive.ask_timeouts();
        // Where it does not say so now, it is asked again.
        let _ = drive.ask_ciphers();
        Ok(drive)
    }

    fn identify(&mut self) -> Result<(), DriveError> {
        let mut bytes = [0; 96];
        let command = Command::Inquiry { vital_product_data: None, allocation: bytes.len() as u16 };
        let moved = self.command("INQUIRY", &command, DataPhase::In(&mut bytes))?.moved.min(bytes.len());
        let name = &self.line.name;
        let Some(inquiry) = Inquiry::of_bytes(&bytes[..moved]) else {
            let reason = "nothing answers there: look at its power and cable".to_owned();
            return Err(DriveError::Hardware { drive: name.clone(), reason });
        };
        if inquiry.device_type != DeviceType::Tape as u8 {
            let reason =
                format!("it is no tape drive but a device of type {:02x}h: give the drive's path", inquiry.device_type);
            return Err(DriveError::Hardware { drive: name.clone(), reason });
        }
        self.inquiry = inquiry;
        self.serial = self.vital_page(page::SERIAL).and_then(|bytes| inquiry::serial_of(&bytes, page::SERIAL));
        if self.serial.is_none() {
            self.serial = self
                .vital_page(page::IDENTIFICATION)
                .and_then(|bytes| inquiry::page_body(&bytes, page::IDENTIFICATION)?.get(4..).map(<[u8]>::to_vec))
                .and_then(|designator| inquiry::serial_of_designator(&designator));
        }
        Ok(())
    }

    /// A vital product data page; none if the drive has it not.
    fn vital_page(&mut self, page: u8) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 252];
        let command = Command::Inquiry { vital_product_data: Some(page), allocation: bytes.len() as u16 };
        let done = self.line.run(&command, DataPhase::In(&mut bytes)).ok()?;
        bytes.truncate(done.moved);
        Some(bytes)
    }

    /// Takes the unit attentions that wait for a nexus that comes new: nothing is known yet that could become wrong by
    /// one.
    fn drain_attentions(&mut self) {
        for _ in 0..UNIT_ATTENTIONS_MAX {
            match self.line.run(&Command::TestUnitReady, DataPhase::None) {
                Err(Failure::Check(data)) if data.sense.key == SenseKey::UnitAttention as u8 => {}
                // Ready or not: the next command says what matters.
                _ => break,
            }
        }
    }

    /// READ BLOCK LIMITS: at first, and with each cartridge, as it may have its own. A drive that says nothing without
    /// one is taken to know no limits until then.
    pub(super) fn ask_limits(&mut self) -> Result<(), DriveError> {
        let mut bytes = [0; 6];
        let command = Command::ReadBlockLimits { object_identifier: false };
        match self.line.run(&command, DataPhase::In(&mut bytes)) {
            Err(failure) if matches!(failure.codes(), Some((0x2, ..))) && self.loaded.is_none() => return Ok(()),
            done => self.checked("READ BLOCK LIMITS", done)?,
        };
        let max = match be24(&bytes, 1) {
            0 => LENGTH_MAX,
            max => max,
        };
        self.longest_on_tape = max;
        self.limits = BlockLimits { min: u32::from(be16(&bytes, 4)).max(1), max: max.min(self.movable()) };
        Ok(())
    }

    /// Longest block that one command can move.
    pub(super) fn movable(&self) -> u32 {
        let movable = u32::try_from(self.line.transport.data_max()).unwrap_or(u32::MAX).min(LENGTH_MAX);
        match self.guard.wish {
            BlockProtection::Off => movable,
            BlockProtection::WhereOffered => movable.saturating_sub(CHECKSUM_LEN as u32),
        }
    }

    /// Time-outs as the drive reports them; without, the table is good enough.
    pub(super) fn ask_timeouts(&mut self) {
        let mut bytes = vec![0; 16_384.min(self.line.transport.data_max())];
        let allocation = bytes.len() as u32;
        let command =
            Command::ReportSupportedOperationCodes { options: 0, opcode: 0, action: 0, timeouts: true, allocation };
        if let Ok(done) = self.line.run(&command, DataPhase::In(&mut bytes)) {
            self.line.timeouts.take_reported(&bytes[..done.moved.min(bytes.len())]);
        }
    }

    /// Learns which ciphers the drive has, unless that is known. One that only does not answer now need not be without:
    /// a key of somebody else may be in it.
    pub(super) fn ask_ciphers(&mut self) -> Result<(), DriveError> {
        if self.knows_ciphers {
            return Ok(());
        }
        let mut asked = self.ask_security_page(encryption::page::CAPABILITIES);
        if matches!(&asked, Err(failure) if matches!(failure.codes(), Some((0x6, ..)))) {
            asked = self.ask_security_page(encryption::page::CAPABILITIES);
        }
        self.algorithms = match asked {
            Ok(bytes) => {
                if encryption::is_set_elsewhere(&bytes) {
                    self.slot = KeySlot::Elsewhere;
                }
                encryption::algorithms_of(&bytes)
            }
            // It knows no such command.
            Err(failure) if matches!(failure.codes(), Some((0x5, ..))) => Vec::new(),
            Err(failure) => return Err(self.failed("SECURITY PROTOCOL IN", failure)),
        };
        self.knows_ciphers = true;
        Ok(())
    }

    /// A page of tape data encryption.
    pub(super) fn ask_security_page(&mut self, specific: u16) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; 1024];
        let allocation = bytes.len() as u32;
        let command = Command::SecurityProtocolIn { protocol: encryption::PROTOCOL, specific, allocation };
        let done = self.line.run(&command, DataPhase::In(&mut bytes))?;
        bytes.truncate(done.moved);
        Ok(bytes)
    }
}

/// The model by the product's name: `LTO-9` for `ULTRIUM-TD9`, `ULT3580-HH9` and `Ultrium 9-SCSI`; otherwise the name
/// itself.
pub(crate) fn model_of(product: &str) -> String {
    let name = product.to_ascii_uppercase();
    let generation = ["-TD", "-HH", "ULTRIUM ", "ULTRIUM-", "LTO-", "LTO "].into_iter().find_map(|mark| {
        let (_, behind) = name.split_once(mark)?;
        let digits = behind.len() - behind.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        behind[..digits].parse::<u8>().ok().filter(|number| (1..=20).contains(number))
    });
    match generation {
        Some(number) => format!("LTO-{number}"),
        None => product.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_known_by_their_makers_names() {
        for (product, model) in [
            ("ULTRIUM-TD9", "LTO-9"),
            ("ULT3580-HH8", "LTO-8"),
            ("ULTRIUM-HH7", "LTO-7"),
            ("Ultrium 6-SCSI", "LTO-6"),
            ("T10000D", "T10000D"),
            ("ULTRIUM-", "ULTRIUM-"),
        ] {
            assert_eq!(model_of(product), model);
        }
    }
}
