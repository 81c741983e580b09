//! Finding devices in a tree that looks like sysfs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use capstan_tape::linux::scan::{pair, scan_in};
use capstan_tape::scsi::inquiry::DeviceType;

fn device(root: &Path, address: &str, kind: &str, serial: Option<&str>, nodes: &[(&str, &str)]) {
    let device = root.join("sys/class/scsi_device").join(address).join("device");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("type"), format!("{kind}\n")).unwrap();
    fs::write(device.join("vendor"), "IBM     \n").unwrap();
    fs::write(device.join("model"), "ULT3580-TD9     \n").unwrap();
    fs::write(device.join("rev"), "R3G0\n").unwrap();
    if let Some(serial) = serial {
        let mut page = vec![1, 0x80, 0, serial.len() as u8];
        page.extend_from_slice(serial.as_bytes());
        fs::write(device.join("vpd_pg80"), page).unwrap();
    }
    for (folder, name) in nodes {
        fs::create_dir_all(device.join(folder).join(name)).unwrap();
    }
}

#[test]
fn drives_and_libraries_are_found_with_their_nodes_and_paired() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    assert_eq!(scan_in(&root.join("sys"), &root.join("dev")).unwrap(), []);
    let tape = |st: &'static str, nst: &'static str| {
        [("scsi_tape", "st0a"), ("scsi_tape", "nst0a"), ("scsi_tape", st), ("scsi_tape", nst)]
    };
    let mut nodes = tape("st0", "nst0").to_vec();
    nodes.push(("scsi_generic", "sg3"));
    device(root, "10:0:0:0", "1", Some("  0013AABBCC"), &nodes);
    let mut nodes = tape("st1", "nst1").to_vec();
    nodes.push(("scsi_generic", "sg4"));
    device(root, "2:0:1:0", "1", Some("0013AABBDD"), &nodes);
    device(root, "2:0:1:1", "8", Some("LIB1"), &[("scsi_generic", "sg5"), ("scsi_changer", "sch0")]);
    device(root, "0:0:0:0", "0", Some("DISK"), &[("scsi_generic", "sg0")]);
    device(root, "9:0:0:0", "1", None, &[]);
    let by_id = root.join("dev/tape/by-id");
    fs::create_dir_all(&by_id).unwrap();
    symlink("../../nst0", by_id.join("scsi-35000-nst")).unwrap();
    symlink("../../st0", by_id.join("scsi-35000")).unwrap();
    symlink("../../sg5", by_id.join("scsi-1LIB1")).unwrap();

    let found = scan_in(&root.join("sys"), &root.join("dev")).unwrap();
    let addresses: Vec<&str> = found.iter().map(|node| node.address.as_str()).collect();
    assert_eq!(addresses, ["2:0:1:0", "2:0:1:1", "9:0:0:0", "10:0:0:0"]);
    let drive = &found[3];
    assert_eq!((drive.kind, drive.serial.as_deref()), (DeviceType::Tape, Some("0013AABBCC")));
    assert_eq!((drive.vendor.as_str(), drive.product.as_str()), ("IBM", "ULT3580-TD9"));
    assert_eq!(drive.tape_path(), Some(by_id.join("scsi-35000-nst").as_path()));
    assert_eq!(drive.generic_path(), Some(root.join("dev/sg3").as_path()), "no link leads to it");
    assert_eq!(found[1].generic_path(), Some(by_id.join("scsi-1LIB1").as_path()));
    assert_eq!(found[1].changer, Some(root.join("dev/sch0")));
    assert_eq!(found[2].serial, None);

    let told = |serial: &str| Some(serial.to_owned());
    let paired = pair(&found, &[told("0013AABBDD"), None, told("0013AABBCC"), told("gone"), told("LIB1"), told("")]);
    let paired: Vec<_> = paired.iter().map(|node| node.map(|node| node.address.as_str())).collect();
    assert_eq!(paired, [Some("2:0:1:0"), None, Some("10:0:0:0"), None, None, None]);
    // Two paths to one drive: a person has to say which.
    device(root, "11:0:0:0", "1", Some("0013AABBCC"), &[]);
    let found = scan_in(&root.join("sys"), &root.join("dev")).unwrap();
    assert_eq!(pair(&found, &[told("0013AABBCC")]), [None]);
}
