//! SCSI commands through the kernel's generic driver: `/dev/sg*`.
//!
//! The device is opened exclusively, so that no other program sends it commands through the same driver; those that
//! come by the tape driver (st) are kept out by having its node open, too ([`SgDevice::alone`]). The drive above
//! compares counts of commands all the same: the kernel itself, or who opened its node before, may send some.
//!
//! A command goes out by a write to the node, and what came of it is fetched by a read, so that a signal, or a process
//! that is stopped and goes on, interrupts only the waiting between them. SG_IO waits interruptibly as a whole: the
//! kernel would begin it anew, and the same block would go to the tape twice. Where the node is open for reading only,
//! to ask a device who it is, it is SG_IO, with signals blocked.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sibling::Sibling;
use super::waits::Watched;
use crate::ChangerError;
use crate::scsi::command::command_name;
use crate::scsi::{DataPhase, Reply, ScsiStatus, SenseData, Transport, TransportError};

mod kernel;

use kernel::{Call, Direction, Outcome};

/// Who else may use the device meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody through the generic driver: for drives and libraries in use.
    Exclusive,
    /// Anybody: for asking a device who it is.
    Shared,
}

/// What a command should be able to move: the longest block of LTO drives.
const DATA_MAX_MOST: i32 = 8 << 20;

/// What every host can move in one command, should the kernel not tell.
const DATA_MAX_LEAST: usize = 128 << 10;

/// What every kernel moves: a page. That it refuses as much has another reason.
const DATA_MAX_PAGE: usize = 4096;

/// How long the question may take by which the longest command is found.
const PROBE_WITHIN: Duration = Duration::from_secs(60);

/// A SCSI device behind the generic driver.
pub struct SgDevice {
    file: File,
    path: PathBuf,
    data_max: usize,
    /// The kernel's count of commands to this device; none where sysfs has it not.
    request_count: Option<File>,
    /// Keeps programs away that come by the tape driver.
    _sibling: Option<Sibling>,
    /// Tells somebody of a command that takes long.
    watched: Option<Watched>,
    call: Call,
    /// A command was sent, and what came of it could not be fetched.
    is_lost: bool,
}

impl SgDevice {
    /// Opens a device node of the generic driver, or a link to one. `EBUSY`: another program has it.
    ///
    /// # Errors
    /// `EBUSY` if another program has it; `InvalidInput` if it is no node of the generic driver; else it cannot be
    /// opened, or the kernel has taken the device offline.
    pub fn open(path: impl AsRef<Path>, sharing: Sharing) -> io::Result<Self> {
        Self::open_with(path.as_ref(), sharing, None)
    }

    /// The same; somebody is told of commands that take long.
    pub(super) fn open_watched(path: &Path, sharing: Sharing, watched: &Watched) -> io::Result<Self> {
        Self::open_with(path, sharing, Some(watched))
    }

    fn open_with(path: &Path, sharing: Sharing, watched: Option<&Watched>) -> io::Result<Self> {
        let flags = match sharing {
            Sharing::Exclusive => libc::O_EXCL | libc::O_NONBLOCK,
            Sharing::Shared => libc::O_NONBLOCK,
        };
        let opened = OpenOptions::new().read(true).write(sharing == Sharing::Exclusive).custom_flags(flags).open(path);
        let file = opened.map_err(|error| told(path, error))?;
        let metadata = file.metadata()?;
        if !metadata.file_type().is_char_device() || kernel::version(&file)? < kernel::VERSION_LEAST {
            let what = format!("{} is no device of the generic SCSI driver: give a path like /dev/sg0", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        let sysfs = PathBuf::from(format!("/sys/dev/char/{major}:{minor}/device"));
        check_online(path, &sysfs.join("state"))?;
        let watched = watched.cloned();
        let data_max = match sharing {
            Sharing::Exclusive => {
                // Blocks up to what the kernel grants need no memory of their own. How much it grants says nothing of
                // what it moves.
                drop(kernel::reserve(&file, DATA_MAX_MOST));
                let probe = || longest_moved(|len| takes(&file, len));
                match &watched {
                    Some(watched) => watched.during(command_name(INQUIRY[0]), Some(PROBE_WITHIN), probe),
                    None => probe(),
                }
            }
            Sharing::Shared => DATA_MAX_LEAST,
        };
        let request_count = File::open(sysfs.join("iorequest_cnt")).ok();
        let call = match sharing {
            Sharing::Exclusive => Call::InTwo,
            Sharing::Shared => Call::InOne,
        };
        let path = path.to_owned();
        Ok(Self { file, path, data_max, request_count, _sibling: None, watched, call, is_lost: false })
    }

    /// Keeps other programs from the drive by the tape driver, too, as long as this is open. [`ChangerError::InUse`] if
    /// one has it.
    ///
    /// # Errors
    /// [`ChangerError::InUse`] if another program has the drive by the tape driver; else that driver's node cannot be
    /// opened.
    pub fn alone(self) -> Result<Self, ChangerError> {
        let _sibling = Some(Sibling::of(&self.path)?);
        Ok(Self { _sibling, ..self })
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What one command can move. The kernel tells a limit that is for disks (1,280 KiB mostly) and keeps to that of the
/// adapter, which it does not tell: so ever less is tried, until the kernel takes it.
fn longest_moved(mut takes: impl FnMut(usize) -> bool) -> usize {
    let mut len = DATA_MAX_MOST as usize;
    while len > DATA_MAX_LEAST && !takes(len) {
        len /= 2;
    }
    len
}

/// Whether the kernel takes a command with this much room: INQUIRY, which changes nothing on the device and takes no
/// unit attention.
fn takes(file: &File, len: usize) -> bool {
    let (mut room, timeout) = (vec![0; len], PROBE_WITHIN);
    let (fd, milliseconds) = (file.as_raw_fd(), timeout.as_millis() as u32);
    let sent = kernel::send(fd, Call::InTwo, &INQUIRY, Direction::In(&mut room), milliseconds);
    match sent.map(|outcome| reply(INQUIRY[0], timeout, 36, &outcome)) {
        // A device that does not answer says nothing of lengths: the next command says what is wrong.
        Ok(Err(TransportError::Timeout { .. })) => true,
        Ok(reply) => reply.is_ok(),
        Err(_) => false,
    }
}

/// The question by which the longest command is found.
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 36, 0];

/// Refuses a device that the kernel has given up: whatever is sent to it fails, or is waited for in vain.
fn check_online(path: &Path, state: &Path) -> io::Result<()> {
    let told = std::fs::read_to_string(state).unwrap_or_default();
    if !["offline", "transport-offline"].contains(&told.trim()) {
        return Ok(());
    }
    let what = format!(
        "{} is offline: it did not answer, and the kernel has given it up (dmesg says when). Look at its power and cable; once it \
         answers, `echo running > {}` takes it back",
        path.display(),
        state.display()
    );
    Err(io::Error::new(io::ErrorKind::NotConnected, what))
}

fn told(path: &Path, error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EBUSY) => "another program uses it: end that one first",
        Some(libc::EACCES | libc::EPERM) => "no right to it: join the group that owns it, or ask root to",
        Some(libc::ENOENT) => "it is not there: `capstan drives scan` shows what is",
        Some(libc::ENXIO | libc::ENODEV) => "nothing is connected there any more: look at power and cable",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{}: {advice} ({error})", path.display()))
}

impl Transport for SgDevice {
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        let opcode = cdb.first().copied().unwrap_or(0);
        let (direction, len) = match data {
            DataPhase::None => (Direction::None, 0),
            DataPhase::Out(bytes) => (Direction::Out(bytes), bytes.len()),
            DataPhase::In(room) => {
                let len = room.len();
                (Direction::In(room), len)
            }
        };
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        if self.is_lost {
            let reason = "what came of an earlier command was never told".to_owned();
            return Err(TransportError::Lost { opcode, reason });
        }
        let send = || kernel::send(self.file.as_raw_fd(), self.call, cdb, direction, milliseconds);
        let sent = match &self.watched {
            Some(watched) => watched.during(command_name(opcode), Some(timeout), send),
            None => send(),
        };
        match sent {
            Ok(outcome) => reply(opcode, timeout, len, &outcome),
            Err(source) => match source.raw_os_error() {
                // The device went away, or a signal came all the same: it may have been sent.
                Some(code @ (libc::ENODEV | libc::ENXIO | libc::EIO | libc::EINTR)) => {
                    self.is_lost |= code != libc::ENXIO;
                    Err(TransportError::Lost { opcode, reason: source.to_string() })
                }
                // More than the adapter's queue takes, though what was tried at the open went through.
                Some(libc::EINVAL) if len > DATA_MAX_PAGE => {
                    self.data_max = self.data_max.min(len / 2);
                    Err(TransportError::TooLong { opcode, len })
                }
                _ => Err(TransportError::Host { opcode, source }),
            },
        }
    }

    fn commands_seen(&mut self) -> Option<u64> {
        let mut bytes = [0; 32];
        let len = self.request_count.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..len]).ok()?.trim();
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    }

    fn data_max(&self) -> usize {
        self.data_max
    }
}

/// What the host says of a command (`scsi_status.h`, `DID_...`).
mod host {
    pub(super) const OK: u16 = 0x00;
    pub(super) const TIME_OUT: u16 = 0x03;
    /// The device itself failed the command; its status says how.
    pub(super) const OF_TARGET: [u16; 3] = [0x10, 0x11, 0x13];

    pub(super) fn name(status: u16) -> &'static str {
        match status {
            0x01 => "no connection to the device",
            0x02 => "the bus stayed busy",
            0x04 => "no such target",
            0x05 => "the command was aborted",
            0x06 => "parity error",
            0x07 => "error in the host adapter",
            0x08 => "the bus or the device was reset",
            0x0b => "error that the host adapter would try again",
            0x0c | 0x0d => "the host adapter gave it back",
            0x0e | 0x0f => "the path to the device broke",
            0x12 => "the host adapter ran out of memory",
            _ => "unknown error of the host adapter",
        }
    }
}

/// The command was given up by the kernel's own clock (`DRIVER_TIMEOUT`).
const DRIVER_TIME_OUT: u16 = 0x06;

fn reply(opcode: u8, timeout: Duration, len: usize, outcome: &Outcome) -> Result<Reply, TransportError> {
    let status = ScsiStatus::of_code(outcome.status);
    let sense = SenseData::of_bytes(outcome.sense());
    if outcome.host_status == host::TIME_OUT || outcome.driver_status & 0x0f == DRIVER_TIME_OUT {
        return Err(TransportError::Timeout { opcode, after: timeout });
    }
    let of_target = host::OF_TARGET.contains(&outcome.host_status) && status != ScsiStatus::Good;
    if outcome.host_status != host::OK && !of_target {
        let reason = format!("{} (host status {:02x}h)", host::name(outcome.host_status), outcome.host_status);
        return Err(TransportError::Lost { opcode, reason });
    }
    // Some adapters deliver sense data without the status that belongs to it.
    let status = if status == ScsiStatus::Good && sense.is_some() && outcome.driver_status & 0x0f == 0x08 {
        ScsiStatus::CheckCondition
    } else {
        status
    };
    let left = usize::try_from(outcome.residual).unwrap_or(0);
    Ok(Reply { status, sense, moved: len.saturating_sub(left) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn outcome() -> Outcome {
        Outcome { status: 0, host_status: 0, driver_status: 0, residual: 0, sense: [0; 96], sense_len: 0 }
    }

    #[test]
    fn what_the_host_says_is_told_from_what_the_device_says() {
        let of = |outcome: &Outcome| reply(0x0a, Duration::from_secs(1), 100, outcome);
        assert_eq!(of(&outcome()).unwrap().moved, 100);
        assert_eq!(of(&Outcome { residual: 40, ..outcome() }).unwrap().moved, 60);
        assert_eq!(of(&Outcome { residual: -40, ..outcome() }).unwrap().moved, 100);
        assert_eq!(of(&Outcome { residual: 400, ..outcome() }).unwrap().moved, 0);
        let timeout = of(&Outcome { host_status: 3, ..outcome() });
        assert!(matches!(timeout, Err(TransportError::Timeout { opcode: 0x0a, .. })));
        let timeout = of(&Outcome { driver_status: 6, ..outcome() });
        assert!(matches!(timeout, Err(TransportError::Timeout { .. })));
        for host_status in [1, 2, 4, 5, 7, 8, 0x0e, 0x0f, 0x55] {
            let lost = of(&Outcome { host_status, ..outcome() });
            assert!(matches!(lost, Err(TransportError::Lost { .. })), "{host_status:x}");
        }
        let conflict = of(&Outcome { host_status: 0x11, status: 0x18, ..outcome() });
        assert_eq!(conflict.unwrap().status, ScsiStatus::ReservationConflict);
    }

    #[test]
    fn sense_data_without_a_status_are_a_check_condition() {
        let mut told = Outcome { driver_status: 8, sense_len: 18, ..outcome() };
        told.sense[..14].copy_from_slice(&[0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0]);
        let reply = reply(0, Duration::from_secs(1), 0, &told).unwrap();
        assert_eq!(reply.status, ScsiStatus::CheckCondition);
        assert_eq!(reply.sense.unwrap().codes(), (6, 0x29, 0));
    }

    /// The kernel granted 1,280 KiB of memory, and moved no more than 512 KiB: the first read failed.
    #[test]
    fn what_was_tried_counts() {
        for limit in [8 << 20, 512 << 10, 300 << 10] {
            let mut tried = Vec::new();
            let longest = longest_moved(|len| {
                tried.push(len);
                len <= limit
            });
            assert!(longest <= limit && longest * 2 > limit.min(DATA_MAX_MOST as usize - 1), "{limit}: {longest}");
            assert_eq!(tried.last(), Some(&longest), "nothing is taken for movable that was not tried");
        }
        assert_eq!(longest_moved(|_| false), DATA_MAX_LEAST);
    }

    #[test]
    fn what_the_kernel_has_given_up_is_refused_with_the_way_back() {
        let state = tempfile::NamedTempFile::new().unwrap();
        for (told, is_refused) in [("running\n", false), ("offline\n", true), ("transport-offline\n", true)] {
            std::fs::write(&state, told).unwrap();
            let checked = check_online(Path::new("/dev/sg0"), state.path());
            assert_eq!(checked.is_err(), is_refused, "{told}");
            if let Err(error) = checked {
                assert!(
                    error.to_string().contains("/dev/sg0 is offline") && error.to_string().contains("echo running")
                );
            }
        }
        assert!(check_online(Path::new("/dev/sg0"), Path::new("/nowhere")).is_ok());
    }

    #[test]
    fn a_file_is_no_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = SgDevice::open(file.path(), Sharing::Shared).err().unwrap();
        assert!(error.to_string().contains("no device of the generic SCSI driver"), "{error}");
        let error = SgDevice::open("/dev/null", Sharing::Shared).err().unwrap();
        assert!(error.to_string().contains("no device of the generic SCSI driver"), "{error}");
    }
}
