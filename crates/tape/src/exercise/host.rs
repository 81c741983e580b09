//! What stands between a drive and us: kernel, drivers, adapter.

use std::fs;
use std::path::{Path, PathBuf};

use super::facts::{Fact, Section};
use crate::linux::scan::ScsiNode;

/// Settings of the drivers that decide how long a block may be.
const DRIVER_SETTINGS: &[(&str, &str)] = &[
    ("st: bytes of its fixed buffer", "/sys/bus/scsi/drivers/st/fixed_buffer_size"),
    ("st: most segments a block is split over", "/sys/bus/scsi/drivers/st/max_sg_segs"),
    ("st: direct I/O", "/sys/bus/scsi/drivers/st/try_direct_io"),
    ("st: version", "/sys/bus/scsi/drivers/st/version"),
    ("sg: bytes reserved at open", "/sys/module/sg/parameters/def_reserved_size"),
    ("sg: version", "/sys/module/sg/version"),
];

pub(super) fn facts(node: Option<&ScsiNode>) -> Section {
    let mut section = Section::new("Host");
    let mut add = |name: &str, path: &Path| {
        if let Ok(value) = fs::read_to_string(path) {
            section.facts.push(Fact::open(name, value.trim().replace(char::is_control, " ")));
        }
    };
    add("kernel", Path::new("/proc/sys/kernel/osrelease"));
    for (name, path) in DRIVER_SETTINGS {
        add(name, Path::new(path));
    }
    let Some(node) = node else {
        section.facts.push(Fact::open("device", "not found in sysfs"));
        return section;
    };
    let number = node.address.split(':').next().unwrap_or_default();
    let host = PathBuf::from(format!("/sys/class/scsi_host/host{number}"));
    for (name, file) in [
        ("adapter: driver", "proc_name"),
        ("adapter: most segments a command", "sg_tablesize"),
        ("adapter: commands at once", "can_queue"),
        ("adapter: firmware", "version_fw"),
    ] {
        add(name, &host.join(file));
    }
    let device = PathBuf::from(format!("/sys/class/scsi_device/{}/device", node.address));
    for (name, file) in [("device: queue depth", "queue_depth"), ("device: time-out, s", "timeout")] {
        add(name, &device.join(file));
    }
    section
}
