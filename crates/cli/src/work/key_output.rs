//! What commands of keys say, to people and to whoever reads JSON.

use capstan_format::{MediumSerial, Volser};

use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, KeyEvent};
use crate::units;

/// Says what was done, to people or as a line of JSON.
pub(super) fn tell(cli: &Globals, text: &str, event: &KeyEvent) -> Result<(), Failure> {
    if cli.json {
        return json::print(event);
    }
    println!("{text}");
    Ok(())
}

/// Says that another cartridge has the barcode of a volume.
pub(super) fn warn_of_another(volser: &Volser, serial: Option<MediumSerial>, since_ns: i64) {
    let Some(serial) = serial else { return };
    eprintln!(
        "{volser}: cartridge {serial} has this barcode as well, first seen {}: see which of the two belongs in the library",
        units::time(since_ns)
    );
}
