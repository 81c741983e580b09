//! A person as the robot: asked for a volume until it is in the drive.
//!
//! Which cartridge a person brought, its own memory says (its barcode, where a drive or program has written one), or
//! its label. A cartridge with neither cannot be told from others: it is taken for the one that was asked for only if
//! the catalog knows no label of that. A wrong one is let go, and the person is asked again, in other words; the same
//! words are not said twice in a row.
//!
//! The drive is held meanwhile, and no lock of library, keys or catalog is.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use capstan_format::Volser;
use capstan_keys::{Cartridge, Name};
use capstan_mover::{MoverError, read_label};
use capstan_tape::{Drive, DriveError, EncryptionState, Medium};

use super::{Mounter, locked, same_barcode};
use crate::{DirectorError, Event};

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

impl Mounter {
    /// Asks for a volume until it is in the drive, and makes it ready.
    pub(super) fn ask_for(
        &self,
        drive: &mut dyn Drive,
        number: u32,
        serial: Option<&Name>,
        volser: &Volser,
    ) -> Result<Medium, DirectorError> {
        let name = drive.identity().name;
        let mut said = String::new();
        let mut say = |message: String| {
            if message != said {
                (self.events)(Event::Waiting { message: message.clone() });
                said = message;
            }
        };
        let mut wrong = LOOKS;
        loop {
            let brought = match drive.load() {
                Ok(medium) => match self.brought(drive, serial, &medium, volser)? {
                    Brought::Wanted => return Ok(medium),
                    Brought::Nameless => {
                        let message =
                            format!("the cartridge in drive {number} ({name}) has no name: it is taken for {volser}");
                        (self.events)(Event::Notice { message });
                        return Ok(medium);
                    }
                    Brought::Other(what) => {
                        drive.unload()?;
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
                Err(source) => return Err(DirectorError::Volume { volser: volser.clone(), source }),
            };
            wrong = match brought {
                Came::Nothing => LOOKS,
                Came::Wrong => (wrong * 2).min(LOOKS_AT_WRONG_MAX),
            };
            self.pause(wrong)?;
        }
    }

    fn pause(&self, pause: Duration) -> Result<(), DirectorError> {
        let began = Instant::now();
        while began.elapsed() < pause {
            if self.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            std::thread::sleep(STOP_EVERY);
        }
        Ok(())
    }

    fn brought(
        &self,
        drive: &mut dyn Drive,
        serial: Option<&Name>,
        medium: &Medium,
        volser: &Volser,
    ) -> Result<Brought, DirectorError> {
        if let Some(found) = &medium.volser {
            let is_it = same_barcode(found, volser);
            return Ok(if is_it { Brought::Wanted } else { Brought::Other(format!("volume {found}")) });
        }
        let known = locked(&self.catalog).volume(volser)?;
        let labelled = known.as_ref().is_some_and(|known| known.id.is_some());
        let without_label = || match labelled {
            true => Brought::Other("a cartridge without a label of ours".to_owned()),
            false => Brought::Nameless,
        };
        match medium.encryption {
            EncryptionState::Blank => return Ok(without_label()),
            EncryptionState::Plain => {}
            EncryptionState::Encrypted { tag, .. } => {
                match self.drive_key(Cartridge { volser, serial: medium.serial.as_ref() }, &tag, serial) {
                    Ok(key) => drive.set_key(Some(key))?,
                    // That the key is not to be had is for who opens the volume to say.
                    Err(_) if known.and_then(|known| known.key).is_none_or(|key| key.tag == tag) => {
                        return Ok(Brought::Wanted);
                    }
                    Err(_) => return Ok(Brought::Other("a cartridge with the key of another volume".to_owned())),
                }
            }
        }
        let brought = match read_label(drive, volser) {
            Err(MoverError::Misplaced { reason, .. }) => Brought::Other(format!("another volume ({reason})")),
            Err(MoverError::NotLabelled { .. }) => without_label(),
            // Whatever else is wrong with its label, who opens the volume meets it again.
            Ok(_) | Err(_) => Brought::Wanted,
        };
        drive.set_key(None)?;
        drive.locate(0)?;
        Ok(brought)
    }
}
