//! Which drives and libraries this host has, by what the kernel tells in sysfs, and which drive of the host is which of
//! a library.
//!
//! Nothing is opened for it, so that it disturbs no session: who a device is stands in sysfs, its serial number
//! included.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::scsi::inquiry::{self, DeviceType, page};

/// A drive or a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScsiNode {
    /// Which of the two.
    pub kind: DeviceType,
    /// Host, channel, target and unit, as the kernel counts them: `2:0:0:0`. May be another after the next start.
    pub address: String,
    /// Maker.
    pub vendor: String,
    /// Product.
    pub product: String,
    /// Revision of its firmware.
    pub revision: String,
    /// Serial number, where the device has told one.
    pub serial: Option<String>,
    /// Node of the generic driver: `/dev/sg3`.
    pub generic: Option<PathBuf>,
    /// Node of the tape driver that does not rewind: `/dev/nst0`.
    pub tape: Option<PathBuf>,
    /// Node of the changer driver: `/dev/sch0`.
    pub changer: Option<PathBuf>,
    /// Links by identifier to any of these nodes: paths that stay the same. Sorted.
    pub by_id: Vec<PathBuf>,
}

impl ScsiNode {
    /// The path to configure for SG_IO: a link by identifier if there is one to the generic node.
    pub fn generic_path(&self) -> Option<&Path> {
        self.stable(self.generic.as_deref()?)
    }

    /// The path to configure for the tape driver.
    pub fn tape_path(&self) -> Option<&Path> {
        self.stable(self.tape.as_deref()?)
    }

    /// Whether this is one of its nodes; links are to be followed before.
    pub fn has_node(&self, real: &Path) -> bool {
        [&self.generic, &self.tape, &self.changer].into_iter().flatten().any(|node| node == real)
    }

    fn stable<'a>(&'a self, node: &'a Path) -> Option<&'a Path> {
        let link = self.by_id.iter().find(|link| target_name(link).as_deref() == node.file_name());
        Some(link.map_or(node, PathBuf::as_path))
    }
}

/// What is there on this host.
///
/// # Errors
/// The kernel's list of SCSI devices is there and cannot be read.
pub fn scan() -> io::Result<Vec<ScsiNode>> {
    scan_in(Path::new("/sys"), Path::new("/dev"))
}

/// What is there by a tree that looks like `/sys` and one that looks like `/dev`: libraries and drives, in order of
/// address.
///
/// # Errors
/// The list of SCSI devices in `sysfs` is there and cannot be read.
pub fn scan_in(sysfs: &Path, dev: &Path) -> io::Result<Vec<ScsiNode>> {
    let class = sysfs.join("class/scsi_device");
    let entries = match fs::read_dir(&class) {
        Ok(entries) => entries,
        // A kernel without SCSI, or a host without a device.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let links = links_in(&dev.join("tape/by-id"));
    let mut nodes = Vec::new();
    for entry in entries {
        let entry = entry?;
        let address = entry.file_name().to_string_lossy().into_owned();
        // A device that is gone by now is none.
        if let Some(node) = node(&entry.path().join("device"), address, dev, &links) {
            nodes.push(node);
        }
    }
    nodes.sort_by_cached_key(|node| numbers(&node.address));
    Ok(nodes)
}

/// The drive of this host in each drive element of a library, by the serial numbers that the library tells
/// ([`crate::hardware::ScsiChanger::drive_serials`]); none where no drive, or more than one, has that number.
pub fn pair<'a>(nodes: &'a [ScsiNode], serials: &[Option<String>]) -> Vec<Option<&'a ScsiNode>> {
    let drive_of = |serial: &Option<String>| {
        let serial = serial.as_deref()?.trim();
        let mut found = nodes.iter().filter(|node| {
            node.kind == DeviceType::Tape && node.serial.as_deref() == Some(serial) && !serial.is_empty()
        });
        // Two paths to one drive: which of them is used, a person has to say.
        found.next().filter(|_| found.next().is_none())
    };
    serials.iter().map(drive_of).collect()
}

fn node(device: &Path, address: String, dev: &Path, links: &[PathBuf]) -> Option<ScsiNode> {
    let kind = match text(&device.join("type"))?.as_str() {
        "1" => DeviceType::Tape,
        "8" => DeviceType::Changer,
        _ => return None,
    };
    let named = |folder: &str, is_name: &dyn Fn(&str) -> bool| {
        let names = fs::read_dir(device.join(folder)).ok()?;
        let mut names: Vec<String> =
            names.flatten().map(|name| name.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names.into_iter().find(|name| is_name(name)).map(|name| dev.join(name))
    };
    let numbered = |name: &str, prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let generic = named("scsi_generic", &|name| numbered(name, "sg"));
    let tape = named("scsi_tape", &|name| numbered(name, "nst"));
    let changer = named("scsi_changer", &|name| numbered(name, "sch"));
    let names: Vec<_> = [&generic, &tape, &changer].into_iter().flatten().filter_map(|path| path.file_name()).collect();
    let leads_here = |link: &&PathBuf| target_name(link).is_some_and(|target| names.contains(&target.as_os_str()));
    Some(ScsiNode {
        kind,
        address,
        vendor: text(&device.join("vendor")).unwrap_or_default(),
        product: text(&device.join("model")).unwrap_or_default(),
        revision: text(&device.join("rev")).unwrap_or_default(),
        serial: fs::read(device.join("vpd_pg80")).ok().and_then(|bytes| inquiry::serial_of(&bytes, page::SERIAL)),
        by_id: links.iter().filter(leads_here).cloned().collect(),
        generic,
        tape,
        changer,
    })
}

fn links_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut links: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    links.sort();
    links
}

fn target_name(link: &Path) -> Option<std::ffi::OsString> {
    fs::read_link(link).ok()?.file_name().map(std::ffi::OsStr::to_owned)
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// `10:0:0:1` after `2:0:0:0`.
fn numbers(address: &str) -> Vec<u64> {
    address.split(':').map(|number| number.parse().unwrap_or(u64::MAX)).collect()
}
