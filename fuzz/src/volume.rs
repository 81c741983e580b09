//! A volume of hostile blocks, read as a rebuild, a restore and a verification read it.

use capstan_format::Volser;
use capstan_mover::{VolumeReader, read_label};
use capstan_tape::Drive;
use tempfile::TempDir;

use crate::scratch;
use crate::script::{VOLSER, write_cartridge};

/// Most blocks that are looked at one by one.
const BLOCKS_MAX: u64 = 64;

thread_local! {
    static DIRECTORY: TempDir = scratch::directory();
}

/// Label, checkpoints, catalog parts and session headers of a volume whose blocks the input made up.
pub fn volume(data: &[u8]) {
    DIRECTORY.with(|directory| {
        let mut drive = write_cartridge(&directory.path().join("F00001.tape"), data);
        read(&mut drive);
    });
}

fn read(drive: &mut dyn Drive) {
    let volser = Volser::new(VOLSER).expect("a barcode");
    let Ok(header) = read_label(drive, &volser) else { return };
    assert_eq!(header.volser, volser, "the label of another volume was taken");
    drive.space_to_end_of_data().expect("the end of data is known");
    let end = drive.position().expect("a loaded drive has a position").lbn;
    let mut reader = VolumeReader::new(drive, volser, header.volume);
    let mut at = reader.last_checkpoint_lbn().unwrap_or_default();
    let mut steps = 0;
    while let Some(lbn) = at {
        assert!(lbn < end, "a checkpoint behind the end of data");
        steps += 1;
        assert!(steps <= end, "the way from checkpoint to checkpoint does not end");
        let before = match reader.checkpoint(lbn) {
            Ok(found) => {
                assert_eq!(found.lbn, lbn);
                let _ = reader.catalog_part(&found);
                found.checkpoint.previous_lbn
            }
            Err(_) => reader.checkpoint_lbn_before(lbn).unwrap_or_default().unwrap_or(0),
        };
        at = (before > 0).then_some(before);
    }
    for lbn in 0..end.min(BLOCKS_MAX) {
        if let Ok((block, payload)) = reader.read(lbn) {
            assert_eq!(block.volume, header.volume, "a block of another life was taken");
            assert_eq!(payload.len(), block.stored_len as usize);
        }
        let _ = reader.session_record(lbn);
    }
}
