//! Reservations of drives: other hosts are kept away from a drive that this one uses.

use capstan_format::crc32c;
use capstan_tape::{ChangerError, Drive, DriveError};

/// The first half of a mover's reservation key: "CPST".
const KEY_PREFIX: u64 = 0x4350_5354;

/// The reservation key of this host: the same in every process, so that one finds what another that was killed has
/// left.
fn mover_key() -> u64 {
    let name = rustix::system::uname();
    (KEY_PREFIX << 32) | u64::from(crc32c(name.nodename().to_bytes()))
}

/// Keeps other hosts away from a drive, where it can be done.
pub(crate) fn reserve(drive: &mut dyn Drive) -> Result<(), ChangerError> {
    let Some(care) = drive.care() else { return Ok(()) };
    match care.reserve(mover_key()) {
        Err(DriveError::InUse { what, holder }) => Err(ChangerError::InUse { what, holder }),
        // A drive that knows no reservations is used without; what else is wrong with it the next command tells.
        _ => Ok(()),
    }
}

/// Lets others have a drive that is not needed any more.
pub(crate) fn release(drive: &mut dyn Drive) {
    if let Some(care) = drive.care() {
        // A reservation that stays is this host's own, and taken over by its next mount.
        let _ = care.release();
    }
}
