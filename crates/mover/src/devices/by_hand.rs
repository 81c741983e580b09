//! A person as the robot: asked for a volume until it is in the drive.
//!
//! The cartridge's own memory says which one a person brought (its barcode, where a drive or program has written one),
//! or its label does. A cartridge with neither cannot be told from others: it is taken for the one that was asked for
//! only if no label of that is known. A wrong one is let go, and the person is asked again, in other words; the same
//! words are not said twice in a row.
//!
//! The drive is held meanwhile, and no lock is.

use std::time::{Duration, Instant};

use capstan_format::{KeyTag, Volser};
use capstan_tape::{Drive, DriveError, DriveKey, EncryptionState, Medium, barcode};

use super::{DevicesError, MountOrder, MountWatch};
use crate::{HostError, MoverError, read_label};

/// How often it is looked whether a cartridge has come.
const LOOKS: Duration = Duration::from_millis(500);
/// How seldom at last, while the wrong one stays: a look may load it, and wears it.
const LOOKS_AT_WRONG_MAX: Duration = Duration::from_secs(60);
/// How often whoever waits looks whether to stop.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// Whether anything was in the drive.
enum Came {
    Nothing,
    Wrong,
}

/// What a person has put into a drive.
enum Brought {
    Wanted,
    /// It has no name, and nothing speaks against it.
    Nameless,
    /// What it is instead.
    Other(String),
}

/// Who gives the key of a tag.
type Keys<'a> = &'a dyn Fn(KeyTag) -> Result<DriveKey, HostError>;

/// Asks for a volume until it is in the drive, and makes it ready.
pub(super) fn ask_for(
    drive: &mut dyn Drive,
    number: u32,
    order: &MountOrder,
    keys: Keys<'_>,
    watch: &dyn MountWatch,
) -> Result<Medium, DevicesError> {
    let (name, volser) = (drive.identity().name, &order.volser);
    let mut said = String::new();
    let mut say = |message: String| {
        if message != said {
            watch.waiting(message.clone());
            said = message;
        }
    };
    let mut wrong = LOOKS;
    loop {
        let came = match drive.load() {
            Ok(medium) => match brought(drive, &medium, order, keys)? {
                Brought::Wanted => return Ok(medium),
                Brought::Nameless => {
                    watch.notice(format!(
                        "the cartridge in drive {number} ({name}) has no name: it is taken for {volser}"
                    ));
                    return Ok(medium);
                }
                Brought::Other(what) => {
                    drive.unload().map_err(MoverError::drive(volser))?;
                    say(format!("drive {number} ({name}) holds {what}: take it out, and put volume {volser} in"));
                    Came::Wrong
                }
            },
            Err(DriveError::NoMedium { .. }) => {
                say(format!("put volume {volser} into drive {number} ({name})"));
                Came::Nothing
            }
            // A cartridge that this drive has no use for is a wrong one, too.
            Err(error @ (DriveError::Incompatible { .. } | DriveError::CleaningCartridge { .. })) => {
                say(format!("{error}: take it out, and put volume {volser} into drive {number} ({name})"));
                // It may be stuck there, which the next look would tell.
                let _ = drive.unload();
                Came::Wrong
            }
            Err(source) => return Err(MoverError::drive(volser)(source).into()),
        };
        wrong = match came {
            Came::Nothing => LOOKS,
            Came::Wrong => (wrong * 2).min(LOOKS_AT_WRONG_MAX),
        };
        pause(wrong, watch)?;
    }
}

fn pause(pause: Duration, watch: &dyn MountWatch) -> Result<(), DevicesError> {
    let began = Instant::now();
    while began.elapsed() < pause {
        if watch.is_stopped() {
            return Err(DevicesError::Stopped);
        }
        std::thread::sleep(STOP_EVERY);
    }
    Ok(())
}

fn brought(
    drive: &mut dyn Drive,
    medium: &Medium,
    order: &MountOrder,
    keys: Keys<'_>,
) -> Result<Brought, DevicesError> {
    let volser = &order.volser;
    if let Some(found) = &medium.volser {
        let is_it = same_barcode(found, volser);
        return Ok(if is_it { Brought::Wanted } else { Brought::Other(format!("volume {found}")) });
    }
    let without_label = || match order.labelled {
        true => Brought::Other("a cartridge without a label of ours".to_owned()),
        false => Brought::Nameless,
    };
    match medium.encryption {
        EncryptionState::Blank => return Ok(without_label()),
        EncryptionState::Plain => {}
        EncryptionState::Encrypted { tag, .. } => match keys(tag) {
            Ok(key) => drive.set_key(Some(key)).map_err(MoverError::drive(volser))?,
            // That the key is not to be had is for who opens the volume to say.
            Err(_) if order.first_key.is_none_or(|first| first == tag) => return Ok(Brought::Wanted),
            Err(_) => return Ok(Brought::Other("a cartridge with the key of another volume".to_owned())),
        },
    }
    let brought = match read_label(drive, volser) {
        Err(MoverError::Misplaced { reason, .. }) => Brought::Other(format!("another volume ({reason})")),
        Err(MoverError::NotLabelled { .. }) => without_label(),
        // Whatever else is wrong with its label, who opens the volume meets it again.
        Ok(_) | Err(_) => Brought::Wanted,
    };
    drive.set_key(None).map_err(MoverError::drive(volser))?;
    drive.locate(0).map_err(MoverError::drive(volser))?;
    Ok(brought)
}

/// Whether a cartridge's memory and the robot mean the same barcode: some leave out the two characters of the media
/// type.
pub(super) fn same_barcode(one: &Volser, other: &Volser) -> bool {
    let adds_type =
        |long: &Volser, short: &Volser| long.as_str().strip_prefix(short.as_str()).is_some_and(barcode::is_media_type);
    one == other || adds_type(one, other) || adds_type(other, one)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    /// TAPE1 was asked for, and TAPE10, a stranger's, was taken for it.
    #[test]
    fn a_barcode_that_begins_like_another_one_is_another_one() {
        let same = |one: &str, other: &str| same_barcode(&one.parse().unwrap(), &other.parse().unwrap());
        for (one, other, is_same) in [
            ("TAPE1", "TAPE1", true),
            ("A00001", "A00001L9", true),
            ("A00001", "A00001M8", true),
            ("A00001", "A00001LX", true),
            ("TAPE1", "TAPE10", false),
            ("TAPE1", "TAPE100", false),
            ("TAPE1", "TAPE1L", false),
            ("A0000", "A00001L9", false),
            ("A00001L8", "A00001L9", false),
        ] {
            assert_eq!((same(one, other), same(other, one)), (is_same, is_same), "{one} {other}");
        }
    }
}
