//! Drives and libraries as the Linux kernel offers them.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::hardware::{BlockProtection, DriveCompression, ScsiDrive};
use crate::{ChangerError, Drive, DriveError};
use waits::Watched;

mod by_hand;
mod library;
pub mod scan;
pub mod sg;
mod sibling;
pub mod st;
mod survey;
pub mod waits;

pub use by_hand::ByHandLibrary;
pub use library::LinuxLibrary;
pub use survey::{DrivePlace, NodeAccess, Survey, SurveyedChanger, SurveyedDrive, survey};
pub use waits::OnDeviceWait;

/// Major numbers of device nodes (Documentation/admin-guide/devices.txt).
const GENERIC_MAJOR: u32 = 21;
const TAPE_MAJOR: u32 = 9;

/// What is kept for the last part of a volume's catalog in front of a drive's own early warning, as on virtual
/// cartridges.
const RESERVE_BYTES: u64 = 256 << 20;

/// Who puts cartridges into a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FedBy {
    /// A robot, or somebody who has done so: one that lies in the drive's mouth is to be taken, and one that the drive
    /// has not noticed yet is waited for.
    Robot,
    /// A person, who is asked to.
    Person,
}

/// Takes the drive behind a device node into use: through the driver that the node belongs to. Blocks are protected
/// over `sg` only.
///
/// # Errors
/// [`ChangerError::InUse`] if another program has the drive; [`ChangerError::Host`] if the path is no node of a tape
/// drive or cannot be opened; else the drive does not answer.
pub fn open_drive(
    path: &Path,
    fed_by: FedBy,
    protection: BlockProtection,
    on_wait: &OnDeviceWait,
) -> Result<Box<dyn Drive>, ChangerError> {
    open_named(path, fed_by, protection, on_wait).map(|(drive, _)| drive)
}

/// The same, with the serial number that the drive tells. The tape driver cannot ask for it.
fn open_named(
    path: &Path,
    fed_by: FedBy,
    protection: BlockProtection,
    on_wait: &OnDeviceWait,
) -> Result<(Box<dyn Drive>, Option<String>), ChangerError> {
    let name = path.display().to_string();
    let host = |source| ChangerError::Host { what: name.clone(), source };
    let metadata = std::fs::metadata(path).map_err(|source| ChangerError::Host {
        what: format!("{name} cannot be looked at: `capstan drives scan` shows what there is"),
        source,
    })?;
    let major = metadata.file_type().is_char_device().then(|| libc::major(metadata.rdev()));
    match major {
        Some(GENERIC_MAJOR) => {
            let watched = Watched::new(&format!("drive {name}"), on_wait);
            let device = sg::SgDevice::open_watched(path, sg::Sharing::Exclusive, &watched)
                .map_err(|source| sibling::in_use(path, source))?
                .alone()?;
            let drive = match ScsiDrive::open(device, name, DriveCompression::Off) {
                // Who looks for a free drive goes on to the next.
                Err(DriveError::InUse { what, holder }) => return Err(ChangerError::InUse { what, holder }),
                opened => opened?,
            };
            let drive = drive.with_reserve(RESERVE_BYTES).with_protection(protection);
            let drive = match fed_by {
                FedBy::Robot => drive.fed_by_robot(),
                FedBy::Person => drive.fed_by_hand(),
            };
            let serial = drive.serial().map(str::to_owned);
            Ok((Box::new(drive.with_on_wait(watched.on_wait())), serial))
        }
        Some(TAPE_MAJOR) => match st::StDrive::open_watched(path, st::StSettings::fed_by(fed_by), on_wait) {
            Ok(drive) => Ok((Box::new(drive), None)),
            // Who looks for a free drive goes on to the next.
            Err(DriveError::InUse { what, holder }) => Err(ChangerError::InUse { what, holder }),
            Err(error) => Err(error.into()),
        },
        _ => {
            let odd = "it is no node of a tape drive: `capstan drives scan` shows what there is";
            Err(host(std::io::Error::new(std::io::ErrorKind::InvalidInput, odd)))
        }
    }
}
