//! A volume written block by block, as the input says: what `volume` and `rebuild` read.
//!
//! ```text
//! 0 filemark    1 block: length (2), bytes    2 block header and payload: length (2), bytes; checksum made right
//! ```
//! Any other first byte counts modulo 3. The drive is the product's own, so what stands on the cartridge is sound and
//! what is in the blocks is not: a volume as a faulty writer, or a hostile one, leaves it.

use std::path::Path;

use capstan_format::Volser;
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, Flush, KeySlotKind};

use crate::input::Input;
use crate::mend;

/// The barcode of the one volume.
pub(crate) const VOLSER: &str = "F00001";
/// Most blocks of one input.
const BLOCKS_MAX: usize = 256;

/// Makes the cartridge at `path`, plain, with the blocks of the script.
pub(crate) fn write_cartridge(path: &Path, script: &[u8]) -> CartridgeDrive {
    let volser = Volser::new(VOLSER).expect("a barcode");
    let spec = CartridgeSpec {
        volser,
        capacity_bytes: 64 << 20,
        early_warning_bytes: 1 << 20,
        generation: "virtual".to_owned(),
    };
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(path.with_extension("index"));
    spec.create(path).expect("room for a cartridge");
    let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
    drive.load().expect("a new cartridge loads");
    let mut input = Input::new(script);
    for _ in 0..BLOCKS_MAX {
        if input.is_empty() {
            break;
        }
        let act = input.byte() % 3;
        if act == 0 {
            drive.write_filemarks(1, Flush::Buffered).expect("room for a filemark");
            continue;
        }
        let mut block = input.counted().to_vec();
        if act == 2 {
            mend::block(&mut block);
        }
        if !block.is_empty() {
            drive.write_block(&block).expect("room for a block");
        }
    }
    drive
}
