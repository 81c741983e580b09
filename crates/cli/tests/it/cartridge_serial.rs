//! What a drive reads out of a cartridge's memory, the key store knows of the volume: by the words of SCSI from one end
//! to the other.

use std::fs;
use std::sync::Arc;

use capstan_catalog::Promise;
use capstan_director::{BackupRequest, BackupWatch, Loss, Site};
use capstan_format::Volser;

use crate::local::{Ground, now_ns};

#[test]
fn the_key_store_learns_from_the_drive_which_cartridge_a_volume_is_on() {
    let layout = "[[drive]]\nmodel = \"LTO-9\"\nencryption = \"host\"\n[[cartridge]]\nbarcode = \"CAP001L9\"\ncapacity_mib = 64\n";
    let ground = Ground::new(layout, |_| {});
    fs::write(ground.source().join("file"), vec![7; 100_000]).unwrap();
    let site = Site::open(&ground.path("state"), Some(&ground.unlock), now_ns, Arc::new(|_| {})).unwrap();
    let site = site.with_library(ground.robot());
    let volser = Volser::new("CAP001L9").unwrap();
    site.label(&volser, None, None, Loss::Refuse, Promise::Keep).unwrap();
    let mut known = None;
    for _ in 0..2 {
        site.backup(&BackupRequest::of(vec![ground.source()]), &BackupWatch::default()).unwrap();
        let realm = site.keys().unwrap().realm().unwrap();
        let seen = &realm.unit(&volser).unwrap().cartridges;
        // Not its barcode, which cartridges of other libraries have as well: one that was begun anew elsewhere would
        // seem to be this one.
        let serial = *seen.own().unwrap();
        assert!(serial.as_str().len() == 16 && serial.as_str() != "CAP001L9", "{serial}");
        assert_eq!((seen.iter().count(), *known.get_or_insert(serial)), (1, serial));
    }
}
