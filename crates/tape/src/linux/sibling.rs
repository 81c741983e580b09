//! The tape driver's node of a drive that is driven through the generic driver: held open, so that no other program
//! gets it.
//!
//! `O_EXCL` keeps others from the generic node alone; through `/dev/nst0` anybody could rewind the tape under our feet.
//! The tape driver gives its device to one program at a time, whichever of its nodes is opened, so having one open
//! keeps all others out, and who was first is told at once instead of when blocks are missing.
//!
//! What the tape driver does meanwhile (`drivers/scsi/st.c`): at the open it asks the drive whether it is ready,
//! without waiting (`O_NONBLOCK`), takes what unit attentions there are, and reads limits and modes: so it is opened
//! before we send anything. Then it does nothing until the close, at which it writes filemarks only behind writes of
//! its own. It is opened for reading, because a write-protected cartridge refuses anything else.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::TAPE_MAJOR;
use super::scan::scan;
use crate::ChangerError;

/// The tape driver's node, which stays ours as long as this lives.
pub(super) struct Sibling {
    /// None where there is no such node, or it may not be opened: then other programs are noticed only by their
    /// commands.
    _node: Option<File>,
}

impl Sibling {
    /// Takes the tape driver's node of the drive behind a generic node. [`ChangerError::InUse`] if another program has
    /// it.
    pub(super) fn of(generic: &Path) -> Result<Self, ChangerError> {
        let nodes = std::fs::canonicalize(generic).and_then(|real| Ok((real, scan()?)));
        // Who the device is, is asked for anyway by who opens it, with better words for what is missing.
        let Ok((real, nodes)) = nodes else { return Ok(Self { _node: None }) };
        let tape = nodes.into_iter().find(|node| node.has_node(&real)).and_then(|node| node.tape);
        let Some(tape) = tape else { return Ok(Self { _node: None }) };
        match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&tape) {
            Ok(node) => Ok(Self { _node: Some(node) }),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(ChangerError::InUse {
                what: format!("drive {}, by its other node {},", generic.display(), tape.display()),
                holder: holder(&tape),
            }),
            // No right to it, no driver behind it, another host's reservation: none of these is another program here.
            Err(_) => Ok(Self { _node: None }),
        }
    }
}

/// Who has a device open, as far as this user may see; by any node that leads to it.
pub(super) fn holder(node: &Path) -> String {
    let unknown = || "another program".to_owned();
    let Some(device) = std::fs::metadata(node).ok().and_then(|metadata| device_of(&metadata)) else { return unknown() };
    let Ok(processes) = std::fs::read_dir("/proc") else { return unknown() };
    let ours = std::process::id();
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |process: &u32| {
        let Ok(open) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
        open.flatten().any(|file| std::fs::metadata(file.path()).ok().and_then(|of| device_of(&of)) == Some(device))
    };
    match numbers.filter(holds).min_by_key(|process| *process == ours) {
        None => unknown(),
        Some(process) if process == ours => "this program".to_owned(),
        Some(process) => {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            format!("{} (process {process})", name.trim())
        }
    }
}

/// Which device a node leads to: driver, and number in it.
fn device_of(metadata: &Metadata) -> Option<(u32, u32)> {
    if !metadata.file_type().is_char_device() {
        return None;
    }
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    Some((
        major,
        match major {
            TAPE_MAJOR => tape_number(minor),
            _ => minor,
        },
    ))
}

/// The drive's number in the tape driver's minor numbers, which hold the mode and whether it rewinds, too (`TAPE_NR` in
/// `st.c`).
fn tape_number(minor: u32) -> u32 {
    (minor & !0xff) >> 3 | minor & 0x1f
}

/// A generic node that somebody else has open is a drive in use.
pub(super) fn in_use(node: &Path, source: io::Error) -> ChangerError {
    let name = node.display().to_string();
    if source.kind() == io::ErrorKind::ResourceBusy {
        return ChangerError::InUse { what: format!("drive {name}"), holder: holder(node) };
    }
    ChangerError::Host { what: name, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn all_nodes_of_a_drive_have_its_number() {
        for (minor, drive) in
            [(0, 0), (128, 0), (96, 0), (224, 0), (3, 3), (131, 3), (31, 31), (256, 32), (256 + 128 + 96 + 5, 37)]
        {
            assert_eq!(tape_number(minor), drive, "{minor}");
        }
    }

    #[test]
    fn who_has_a_device_open_is_named() {
        let _ours = File::open("/dev/full").unwrap();
        let told = holder(Path::new("/dev/full"));
        assert!(told == "this program" || told.contains("(process "), "{told}");
        assert_eq!(holder(Path::new("/nowhere")), "another program");
    }

    #[test]
    fn a_device_without_a_tape_driver_is_nobodys() {
        assert!(Sibling::of(Path::new("/dev/null")).is_ok());
        assert!(Sibling::of(Path::new("/nowhere")).is_ok());
    }

    #[test]
    fn a_busy_node_names_its_drive() {
        let error = in_use(Path::new("/dev/sg9"), io::Error::from_raw_os_error(libc::EBUSY)).to_string();
        assert!(error.contains("/dev/sg9 is in use by another program"), "{error}");
    }
}
