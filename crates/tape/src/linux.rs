//! Drives and libraries as the Linux kernel offers them.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::scsi::{Compression, ScsiDrive};
use crate::{ChangerError, Drive};

mod by_hand;
mod library;
pub mod scan;
pub mod sg;
mod survey;

pub use by_hand::ByHandLibrary;
pub use library::{LinuxLibrary, OnDeviceWait};
pub use survey::{Access, DrivePlace, Survey, SurveyedChanger, SurveyedDrive, survey};

/// Major numbers of device nodes (Documentation/admin-guide/devices.txt).
const GENERIC_MAJOR: u32 = 21;

/// Takes the drive behind a device node into use: through the driver that the node belongs to.
pub fn open_drive(path: &Path, on_wait: &OnDeviceWait) -> Result<Box<dyn Drive>, ChangerError> {
    let name = path.display().to_string();
    let host = |source| ChangerError::Host { what: name.clone(), source };
    let metadata = std::fs::metadata(path).map_err(host)?;
    let major = metadata.file_type().is_char_device().then(|| libc::major(metadata.rdev()));
    match major {
        Some(GENERIC_MAJOR) => {
            let device = sg::SgDevice::open(path, sg::Sharing::Exclusive).map_err(|source| in_use(&name, source))?;
            let on_wait = on_wait.clone();
            let drive = ScsiDrive::open(device, name, Compression::Off)?;
            Ok(Box::new(drive.with_on_wait(Box::new(move |waiting| on_wait(waiting.to_string())))))
        }
        _ => {
            let odd = "it is no node of a tape drive: `capstan drives scan` shows what there is";
            Err(host(std::io::Error::new(std::io::ErrorKind::InvalidInput, odd)))
        }
    }
}

/// A node that somebody else has open is a drive in use.
fn in_use(name: &str, source: std::io::Error) -> ChangerError {
    if source.kind() == std::io::ErrorKind::ResourceBusy {
        return ChangerError::InUse { what: format!("drive {name}"), holder: "another program".to_owned() };
    }
    ChangerError::Host { what: name.to_owned(), source }
}
