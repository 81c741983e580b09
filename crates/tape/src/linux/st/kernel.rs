//! The kernel's side of a tape node (`linux/mtio.h`): the one place of unsafe code.
#![allow(unsafe_code, reason = "ioctl on the tape driver has no safe binding")]

use std::ffi::{c_int, c_long, c_short};
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

use super::super::waits::Watched;

/// `struct mtop`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Order {
    operation: c_short,
    count: c_int,
}

/// `struct mtget`.
#[repr(C)]
struct Report {
    kind: c_long,
    partition: c_long,
    density_and_block: c_long,
    general: c_long,
    errors: c_long,
    file: c_int,
    block: c_int,
}

/// `struct mtpos`.
#[repr(C)]
struct Place {
    block: c_long,
}

const MTIOCTOP: Opcode = opcode::write::<Order>(b'm', 1);
const MTIOCGET: Opcode = opcode::read::<Report>(b'm', 2);
const MTIOCPOS: Opcode = opcode::read::<Place>(b'm', 3);

/// Operations that a tape node is given (MTIOCTOP), with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    ForwardFilemarks = 1,
    BackFilemarks = 2,
    ForwardBlocks = 3,
    WriteFilemarks = 5,
    Rewind = 6,
    Offline = 7,
    Nothing = 8,
    EndOfData = 12,
    Erase = 13,
    SetBlockLen = 20,
    Seek = 22,
    SetOptions = 24,
    Load = 30,
    Compress = 32,
    WriteFilemarksBuffered = 35,
}

impl Operation {
    /// Its command, for messages.
    fn name(self) -> &'static str {
        match self {
            Self::ForwardFilemarks | Self::BackFilemarks | Self::ForwardBlocks | Self::EndOfData => "SPACE",
            Self::WriteFilemarks | Self::WriteFilemarksBuffered => "WRITE FILEMARKS",
            Self::Rewind => "REWIND",
            Self::Offline => "UNLOAD",
            Self::Load => "LOAD",
            Self::Erase => "ERASE",
            Self::Seek => "LOCATE",
            Self::Nothing | Self::SetBlockLen | Self::SetOptions | Self::Compress => "a change of its settings",
        }
    }
}

/// What the driver says of the drive (MTIOCGET), without a command to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Status {
    general: u64,
    density_and_block: u64,
}

impl Status {
    /// A cartridge is there and ready.
    pub(super) fn online(self) -> bool {
        self.general & 0x0100_0000 != 0
    }

    /// There is no cartridge, or it is not threaded.
    pub(super) fn empty(self) -> bool {
        self.general & 0x0004_0000 != 0
    }

    pub(super) fn write_protected(self) -> bool {
        self.general & 0x0400_0000 != 0
    }

    /// The last command met the end of data.
    pub(super) fn end_of_data(self) -> bool {
        self.general & 0x0800_0000 != 0
    }

    /// The last command met early warning, or the end of the medium.
    pub(super) fn end_of_tape(self) -> bool {
        self.general & 0x2000_0000 != 0
    }

    /// The medium's density code.
    pub(super) fn density(self) -> u8 {
        (self.density_and_block >> 24) as u8
    }
}

/// An open tape node.
pub(super) struct Node {
    file: File,
    watched: Watched,
    /// The kernel's count of commands to the device; none where sysfs has it not.
    request_count: Option<File>,
}

/// Number of the tape driver, and the bit of its nodes that do not rewind when they are closed.
const MAJOR: u32 = 9;
const STAYS: u32 = 0x80;

impl Node {
    /// Whether the path leads to a tape node that does not rewind when it is closed.
    pub(super) fn stays_at_close(path: &Path) -> std::io::Result<bool> {
        let metadata = path.metadata()?;
        let device = metadata.rdev();
        let is_tape = metadata.file_type().is_char_device() && libc::major(device) == MAJOR;
        Ok(is_tape && libc::minor(device) & STAYS != 0)
    }

    /// Opens it for reading and writing, without waiting for a cartridge.
    pub(super) fn open(path: &Path, watched: &Watched) -> std::io::Result<Self> {
        let open = || loop {
            // Write protection is found when it is written to: an open that asks for it would wait for a cartridge,
            // too.
            match OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                opened => break opened,
            }
        };
        let file = watched.during("its opening", None, open)?;
        let device = file.metadata()?.rdev();
        let count = format!("/sys/dev/char/{}:{}/device/iorequest_cnt", libc::major(device), libc::minor(device));
        Ok(Self { file, watched: watched.clone(), request_count: File::open(count).ok() })
    }

    pub(super) fn operate(&self, operation: Operation, count: u32) -> Result<(), Errno> {
        // The kernel takes the same bits for unsigned where a count can be large: a block's number.
        let order = Order { operation: operation as c_short, count: count.cast_signed() };
        self.uninterrupted(operation.name(), || {
            // SAFETY: MTIOCTOP reads one `struct mtop`, which `Order` is laid out as.
            unsafe { ioctl(self.file.as_fd(), Setter::<MTIOCTOP, Order>::new(order)) }
        })
    }

    pub(super) fn status(&self) -> Result<Status, Errno> {
        let report = self.uninterrupted("the status", || {
            // SAFETY: MTIOCGET writes one `struct mtget`, which `Report` is laid out as; any bits are valid for it.
            unsafe { ioctl(self.file.as_fd(), Getter::<MTIOCGET, Report>::new()) }
        })?;
        Ok(Status { general: report.general as u64, density_and_block: report.density_and_block as u64 })
    }

    /// The block number, by READ POSITION.
    pub(super) fn position(&self) -> Result<u32, Errno> {
        let place = self.uninterrupted("READ POSITION", || {
            // SAFETY: MTIOCPOS writes one `struct mtpos`, which `Place` is laid out as; any bits are valid for it.
            unsafe { ioctl(self.file.as_fd(), Getter::<MTIOCPOS, Place>::new()) }
        })?;
        // The kernel has 32 bits of it, on some machines with a sign.
        Ok(place.block as u32)
    }

    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.uninterrupted("READ", || rustix::io::read(&self.file, &mut *buffer))
    }

    pub(super) fn write(&self, block: &[u8]) -> Result<usize, Errno> {
        self.uninterrupted("WRITE", || rustix::io::write(&self.file, block))
    }

    /// How many commands the kernel has sent to the device, from whatever program; none if it does not say.
    pub(super) fn commands_seen(&self) -> Option<u64> {
        let mut bytes = [0; 32];
        let len = self.request_count.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..len]).ok()?.trim();
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    }

    /// Again, if a signal came: the tape driver looks for one only before it sends a command.
    fn uninterrupted<T>(&self, what: &'static str, mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        self.watched.during(what, None, || {
            loop {
                match call() {
                    Err(Errno::INTR) => {}
                    done => return done,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `linux/mtio.h` gives them on x86-64.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn requests_have_the_numbers_of_the_kernel() {
        assert_eq!([MTIOCTOP, MTIOCGET, MTIOCPOS], [0x4008_6d01, 0x8030_6d02, 0x8008_6d03]);
    }

    #[test]
    fn the_status_is_read_as_the_kernel_writes_it() {
        let status = |general| Status { general, density_and_block: 0x6000_0000 };
        let loaded = status(0x4101_0000);
        assert!(loaded.online() && !loaded.empty() && !loaded.end_of_data() && !loaded.write_protected());
        assert!(status(0x0904_0000).empty());
        assert!(status(0x0901_0000).end_of_data());
        assert!(status(0x2101_0000).end_of_tape());
        assert!(status(0x4501_0000).write_protected());
        assert_eq!(loaded.density(), 0x60);
    }

    #[test]
    fn other_files_are_no_tape_nodes() {
        assert!(!Node::stays_at_close(Path::new("/dev/null")).expect("it is there"));
        assert!(Node::stays_at_close(Path::new("/dev/not there")).is_err());
    }
}
