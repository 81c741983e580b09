//! Opening the node, making a cartridge ready, letting it go.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::scan::scan;
use super::super::sg::{SgDevice, Sharing};
use super::super::sibling::holder;
use super::StDrive;
use super::kernel::{Node, Operation, Status};
use super::place::says_end_of_data;
use crate::hardware::{DriveCompression, Waiting};
use crate::hardware::{generation_of_density, model_of};
use crate::scsi::sense::{OFFLINE, Sense};
use crate::scsi::{Command, DataPhase, Transport};
use crate::{BlockLimits, DriveError, EncryptionState, Medium, Rewritability};

/// Options of the driver (`MT_ST_...`), as `/sys/class/scsi_tape/*/options` shows them.
mod option {
    /// Goes to the end of data at once instead of by counting filemarks.
    pub(super) const FAST_END_OF_DATA: u32 = 0x20;
    /// Block numbers as SCSI has them, not as the drive's maker.
    pub(super) const LOGICAL_BLOCKS: u32 = 0x800;
    pub(super) const WANTED: u32 = FAST_END_OF_DATA | LOGICAL_BLOCKS;

    const BUFFERED_WRITES: u32 = 0x1;
    const ASYNCHRONOUS_WRITES: u32 = 0x2;
    const TWO_FILEMARKS: u32 = 0x10;
    const NO_BLOCK_LIMITS: u32 = 0x200;
    const SYSTEM_V: u32 = 0x1000;
    const NO_WAIT: u32 = 0x2000;
    const SILI: u32 = 0x4000;
    const NO_WAIT_FOR_FILEMARKS: u32 = 0x8000;
    /// With them errors come late, commands end before they are done, or a long block is cut in silence.
    pub(super) const UNWANTED: u32 = BUFFERED_WRITES
        | ASYNCHRONOUS_WRITES
        | TWO_FILEMARKS
        | NO_BLOCK_LIMITS
        | SYSTEM_V
        | NO_WAIT
        | SILI
        | NO_WAIT_FOR_FILEMARKS;

    /// What is to be done with them.
    pub(super) const SET: u32 = 0x3000_0000;
    pub(super) const CLEAR: u32 = 0x4000_0000;
    pub(super) const TIMEOUT: u32 = 0x7000_0000;
    pub(super) const LONG_TIMEOUT: u32 = 0x7010_0000;
}

/// For reads and writes; LTO-9 asks for 2340 s.
const TIMEOUT_S: u32 = 2400;
/// For motion and loads; the driver's own default. ERASE has eight times as long.
const LONG_TIMEOUT_S: u32 = 14_000;

/// Between two looks at a drive that is becoming ready.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How many looks until the drive is asked by its other node.
const LOOKS_TO_ASK: u32 = 10;
const SENSE_WITHIN: Duration = Duration::from_secs(30);

/// The shortest of longest blocks: every drive takes that.
const BLOCK_BYTES_LEAST: u32 = 512;

/// What the drive calls itself; the node's name if the kernel does not say.
pub(super) fn model(path: &Path) -> String {
    let said = fs::canonicalize(path).ok().and_then(|node| {
        let name = node.file_name()?.to_str()?.to_owned();
        fs::read_to_string(format!("/sys/class/scsi_tape/{name}/device/model")).ok()
    });
    match said.as_deref().map(str::trim) {
        Some(product) if !product.is_empty() => model_of(product),
        _ => path.display().to_string(),
    }
}

impl StDrive {
    /// Opens the node anew, which is when the driver looks at the cartridge and its write protection.
    pub(super) fn open_node(&mut self) -> Result<(), DriveError> {
        // Only one may have it open.
        self.node = None;
        let node = Node::open(&self.path, &self.watched).map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => DriveError::InUse { what: format!("drive {}", self.name), holder: holder(&self.path) },
            Some(libc::ENXIO | libc::ENODEV) => self.failed("open", Errno::NXIO),
            _ => DriveError::Host { what: format!("open drive {}", self.name), source },
        })?;
        self.node = Some(node);
        Ok(())
    }

    fn open_now(&self) -> Result<&Node, DriveError> {
        self.node.as_ref().ok_or_else(|| self.no_medium())
    }

    pub(super) fn make_ready(&mut self) -> Result<(), DriveError> {
        self.settle()?;
        self.loaded = None;
        self.at = None;
        self.early_warning_from = None;
        let status = self.wait_for_medium()?;
        let node = self.open_now()?;
        self.options(node)?;
        let begun = node.operate(Operation::Rewind, 0).and_then(|()| node.operate(Operation::SetBlockLen, 0));
        begun.map_err(|error| self.failed("making the cartridge ready", error))?;
        if let Some(compression) = self.settings.compression {
            let on = u32::from(compression == DriveCompression::On);
            node.operate(Operation::Compress, on).map_err(|error| self.failed("switching compression", error))?;
        }
        let (longest, encryption) = self.first_look(node)?;
        self.limits = BlockLimits { min: 1, max: longest };
        let generation = generation_of_density(status.density());
        let capacity_bytes = self.settings.capacity_bytes.unwrap_or_else(|| native_capacity(generation.as_deref()));
        self.loaded = Some(Medium {
            volser: None,
            serial: None,
            generation,
            capacity_bytes,
            remaining_bytes: capacity_bytes,
            write_protected: status.write_protected(),
            // Neither MTIOCGET nor sysfs passes on the medium type.
            rewritability: Rewritability::Unknown,
            encryption,
        });
        self.seek(0)
    }

    /// Until a cartridge is ready; if there is none, until it would have been noticed.
    fn wait_for_medium(&mut self) -> Result<Status, DriveError> {
        let began = Instant::now();
        let (mut asked, mut looks) = (false, 0u32);
        loop {
            self.open_node()?;
            let node = self.open_now()?;
            let status = node.status().map_err(|error| self.failed("asking the driver for its status", error))?;
            let waited = began.elapsed();
            if status.online() {
                return Ok(status);
            } else if !asked {
                // A cartridge that was unloaded and not taken away.
                asked = true;
                let _ = node.operate(Operation::Load, 1);
                continue;
            } else if status.empty() && waited >= self.settings.noticed_within {
                return Err(self.no_medium());
            } else if waited >= self.settings.ready_within {
                let reason = "the tape driver does not say why".to_owned();
                return Err(DriveError::NotReady { drive: self.name.clone(), reason, waited });
            }
            // One that was not there yet may have to be loaded when it is.
            asked = !status.empty();
            looks += 1;
            if looks.is_multiple_of(LOOKS_TO_ASK) {
                let sense = sense_beside(&self.path);
                if let Some(error) = sense.and_then(|sense| in_vain(&self.name, sense, waited)) {
                    return Err(error);
                }
                let said = sense.map_or_else(
                    || "the tape driver does not say why".to_owned(),
                    |sense| Waiting { device: String::new(), sense: Some(sense), waited }.said(),
                );
                self.watched.not_ready(said, waited);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn options(&self, node: &Node) -> Result<(), DriveError> {
        let orders = [
            option::SET | option::WANTED,
            option::CLEAR | option::UNWANTED,
            option::TIMEOUT | TIMEOUT_S,
            option::LONG_TIMEOUT | LONG_TIMEOUT_S,
        ];
        let set = orders.into_iter().try_for_each(|order| node.operate(Operation::SetOptions, order));
        match set {
            Ok(()) => Ok(()),
            Err(Errno::PERM) if self.options_are_set() => Ok(()),
            Err(Errno::PERM) => {
                let what = format!(
                    "drive {}: the tape driver's options need CAP_SYS_ADMIN: run as root, or let stinit set scsi2logical=1 \
                     fast-eom=1 buffering=0 async-writes=0 two-fms=0 noblklimits=0 sysv=0 sili=0 timeout={TIMEOUT_S}",
                    self.name
                );
                Err(DriveError::Host { what, source: io::ErrorKind::PermissionDenied.into() })
            }
            Err(error) => Err(self.failed("setting the tape driver's options", error)),
        }
    }

    /// Whether somebody set them before us. Time-outs cannot be asked for.
    fn options_are_set(&self) -> bool {
        let node = fs::canonicalize(&self.path).ok();
        let name = node.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let text = name.and_then(|name| fs::read_to_string(format!("/sys/class/scsi_tape/{name}/options")).ok());
        let options = text.and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok());
        options.is_some_and(|options| options & (option::WANTED | option::UNWANTED) == option::WANTED)
    }

    /// Reads at the beginning: whether anything is written, and how long a block may be. The driver cannot be asked for
    /// the drive's limits, but refuses a read beyond them, or beyond its own memory, before the tape moves.
    fn first_look(&self, node: &Node) -> Result<(u32, EncryptionState), DriveError> {
        let mut longest = self.settings.block_bytes_max;
        let mut room = vec![0; longest as usize];
        loop {
            let read = node.read(&mut room[..longest as usize]);
            let blank = match read {
                Err(Errno::INVAL | Errno::OVERFLOW) if longest / 2 >= BLOCK_BYTES_LEAST => {
                    longest /= 2;
                    continue;
                }
                Ok(0) => node.position() == Ok(0),
                Ok(_) | Err(Errno::NOMEM) => false,
                Err(Errno::IO) => node.operate(Operation::ForwardBlocks, 1).is_err() && says_end_of_data(node),
                Err(error) => return Err(self.failed("reading the first block", error)),
            };
            // Of an encrypted volume the driver only says that its first block cannot be read.
            return Ok((longest, if blank { EncryptionState::Blank } else { EncryptionState::Plain }));
        }
    }

    pub(super) fn let_go(&mut self) -> Result<(), DriveError> {
        self.settle()?;
        self.loaded = None;
        self.at = None;
        self.early_warning_from = None;
        if self.node.is_none() {
            self.open_node()?;
        }
        let node = self.open_now()?;
        let online = node.status().is_ok_and(Status::online);
        match node.operate(Operation::Offline, 0) {
            Err(error) if online => Err(self.failed("UNLOAD", error)),
            _ => Ok(()),
        }
    }
}

/// What the drive itself says, by its generic node: the tape driver keeps that to itself. Nothing is known of the tape
/// yet that a unit attention, which would be taken along, could make wrong.
fn sense_beside(path: &Path) -> Option<Sense> {
    let real = fs::canonicalize(path).ok()?;
    let generic = scan().ok()?.into_iter().find(|node| node.has_node(&real))?.generic?;
    let mut device = SgDevice::open(generic, Sharing::Shared).ok()?;
    let reply = device.execute(&Command::TestUnitReady.to_cdb(), DataPhase::None, SENSE_WITHIN).ok()?;
    reply.sense.map(|data| data.sense)
}

/// Why there is nothing to wait for.
fn in_vain(drive: &str, sense: Sense, waited: Duration) -> Option<DriveError> {
    let drive = drive.to_owned();
    match (sense.key, sense.asc, sense.ascq) {
        (0x2, 0x30, 0x03) => Some(DriveError::CleaningCartridge { drive }),
        (0x2..=0x4, 0x30, _) => Some(DriveError::Incompatible { drive, reason: sense.to_string() }),
        (0x2, 0x04, 0x03 | OFFLINE) => Some(DriveError::NotReady { drive, reason: sense.to_string(), waited }),
        _ => None,
    }
}

/// Native capacity of a generation, where a model has it; otherwise no limit is known.
fn native_capacity(generation: Option<&str>) -> u64 {
    let model = generation.and_then(|name| crate::model::built_in(name).ok());
    model.map_or(u64::MAX, |model| (model.capacity_gb.value * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::sense::About;

    /// Over st the program waited two hours for a cleaning cartridge, without a word.
    #[test]
    fn what_no_waiting_helps_ends_the_wait() {
        let met = |key, asc, ascq| {
            in_vain("/dev/nst0", Sense { about: About::ThisCommand, key, asc, ascq }, Duration::from_secs(5))
        };
        assert!(matches!(met(2, 0x30, 3), Some(DriveError::CleaningCartridge { .. })));
        assert!(matches!(met(3, 0x30, 0), Some(DriveError::Incompatible { .. })));
        assert!(matches!(met(2, 0x04, 0x12), Some(DriveError::NotReady { .. })), "offline");
        assert!(met(2, 0x04, 0x01).is_none(), "becoming ready");
    }
}
