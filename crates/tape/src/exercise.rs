//! A drive of metal, tried out: what it says of itself, whether it keeps the rules, how fast it is.
//!
//! The tape in it is overwritten. It goes three ways, never at the same time: SCSI questions through the generic driver
//! (`facts`), then the [conformance suite](crate::conformance) and the measurements through the driver whose node was
//! named. What comes of it is a report for people, in Markdown, that its owner can send to us: without serial numbers
//! and barcodes unless wanted.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::conformance::{self, Readback, Report};
use crate::hardware::BlockProtection;
use crate::linux::scan::{ScsiNode, scan};
use crate::linux::sg::{SgDevice, Sharing};
use crate::linux::{FedBy, OnDeviceWait, open_drive};
use crate::{ChangerError, Drive, DriveError, DriveIdentity, EncryptionState, Medium, Rewritability, with_causes};

mod facts;
mod host;
mod measure;
mod text;

pub use facts::{Fact, Section};
pub use measure::{DriveMeasurements, Rate, Timing};

/// Whether what is on the tape may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Only a blank tape is taken.
    Keep,
    /// Any tape is.
    Overwrite,
}

/// Whether a report tells serial numbers and barcodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serials {
    /// It does not.
    LeftOut,
    /// It does.
    Told,
}

/// Why a drive is not tried.
#[derive(Debug, Error)]
pub enum ExerciseError {
    /// Operator: there is something on the tape.
    #[error(
        "the cartridge in {device} is not blank: put in another one, or say --overwrite if what is on it may be lost"
    )]
    NotBlank {
        /// The drive's node.
        device: String,
    },
    /// Operator: it would be used up for nothing.
    #[error(
        "the cartridge in {device} is WORM, and what is tried here writes over what it has written: put in another one"
    )]
    WriteOnce {
        /// The drive's node.
        device: String,
    },
    /// Operator: by its tab.
    #[error("the cartridge in {device} is write-protected: slide its tab, or put in another one")]
    WriteProtected {
        /// The drive's node.
        device: String,
    },
    /// Somebody put in another cartridge meanwhile.
    #[error("the cartridge in {device} was exchanged since it was looked at: nothing was written; start again")]
    Exchanged {
        /// The drive's node.
        device: String,
    },
    /// Operator: no tape.
    #[error("{device} is empty: put in a cartridge that may be overwritten (`capstan library load` moves one there)")]
    Empty {
        /// The drive's node.
        device: String,
    },
    /// The drive.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The node, or who else uses it.
    #[error(transparent)]
    Device(#[from] ChangerError),
}

/// Which of the kernel's drivers a drive is used by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// The generic one (sg): SCSI commands of our own.
    Generic,
    /// The tape driver (st).
    Tape,
}

/// A drive with a tape that may be overwritten.
pub struct TestedDrive {
    device: PathBuf,
    driver: Driver,
    contents: Contents,
    identity: DriveIdentity,
    medium: Medium,
    node: Option<ScsiNode>,
    on_wait: OnDeviceWait,
}

/// All that was found.
#[derive(Debug)]
pub struct Exercised {
    /// The node that it was used by.
    pub device: PathBuf,
    /// The driver that the node belongs to.
    pub driver: Driver,
    /// The drive.
    pub identity: DriveIdentity,
    /// The cartridge, as it was before.
    pub medium: Medium,
    /// The host: kernel, adapter, drivers.
    pub host: Section,
    /// What the drive said of itself before, or why it could not be asked.
    pub facts: Vec<Section>,
    /// Rules.
    pub rules: Report,
    /// Times and rates.
    pub measurements: DriveMeasurements,
    /// What its logs said afterwards.
    pub logs_after: Vec<Section>,
}

impl TestedDrive {
    /// Loads the tape in a drive, and looks whether it may be used. Nothing is written.
    ///
    /// # Errors
    /// [`ExerciseError::Empty`], [`ExerciseError::WriteProtected`], [`ExerciseError::WriteOnce`] and
    /// [`ExerciseError::NotBlank`] if the tape may not be used; else the drive cannot be opened or does not load it.
    pub fn open(device: &Path, contents: Contents, on_wait: OnDeviceWait) -> Result<Self, ExerciseError> {
        let (identity, medium) = look_at(device, contents, &on_wait)?;
        let real = std::fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
        let node = scan().unwrap_or_default().into_iter().find(|node| node.has_node(&real));
        let is_generic = node.as_ref().and_then(|node| node.generic.as_deref()) == Some(&*real);
        let driver = if is_generic { Driver::Generic } else { Driver::Tape };
        Ok(Self { device: device.to_owned(), driver, contents, identity, medium, node, on_wait })
    }

    /// The drive.
    pub fn identity(&self) -> &DriveIdentity {
        &self.identity
    }

    /// The cartridge.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Tries everything. `bytes`: how much is written, and read, to measure rates. `on_step` is told what goes on.
    ///
    /// # Errors
    /// As [`TestedDrive::open`], and [`ExerciseError::Exchanged`]: who was asked in between may have taken their time,
    /// and another program the drive. What goes wrong afterwards is in the report.
    pub fn exercise(self, bytes: u64, on_step: &mut dyn FnMut(&str)) -> Result<Exercised, ExerciseError> {
        on_step("asking the drive what it is");
        let facts = self.ask(facts::all);
        let host = host::facts(self.node.as_ref());
        let (_, now) = look_at(&self.device, self.contents, &self.on_wait)?;
        if now.volser != self.medium.volser {
            return Err(ExerciseError::Exchanged { device: self.device.display().to_string() });
        }
        let mut drive = open_drive(&self.device, FedBy::Robot, BlockProtection::Off, &self.on_wait)?;
        on_step("checking rules");
        let rules = conformance::check(&mut drive, Readback::Keeps, &mut |checked| {
            on_step(&text::of_check(checked));
        });
        let mut measurements = match &rules.drive_lost_at {
            Some(rule) => DriveMeasurements::not_made(&format!("the drive was lost at the rule \"{rule}\"")),
            None => measure::all(&mut drive, bytes, on_step),
        };
        drop(drive);
        on_step("asking its logs");
        let logs_after = self.ask(facts::logs);
        let drive = open_drive(&self.device, FedBy::Robot, BlockProtection::Off, &self.on_wait);
        measurements.problems.extend(let_go(drive));
        let Self { device, driver, identity, medium, .. } = self;
        Ok(Exercised { device, driver, identity, medium, host, facts, rules, measurements, logs_after })
    }

    /// Asks by SCSI commands, while no other driver of ours has the drive.
    fn ask(&self, what: fn(&mut dyn crate::scsi::Transport) -> Vec<Section>) -> Vec<Section> {
        let why = match self.node.as_ref().and_then(ScsiNode::generic_path) {
            None => "the kernel gives the drive no generic node (modprobe sg)".to_owned(),
            Some(path) => match SgDevice::open(path, Sharing::Exclusive) {
                Ok(mut device) => return what(&mut device),
                Err(error) => error.to_string(),
            },
        };
        vec![Section::not_asked(&why)]
    }
}

/// Loads the tape in a drive, and looks whether it may be used.
fn look_at(
    device: &Path,
    contents: Contents,
    on_wait: &OnDeviceWait,
) -> Result<(DriveIdentity, Medium), ExerciseError> {
    let name = device.display().to_string();
    let mut drive = open_drive(device, FedBy::Robot, BlockProtection::Off, on_wait)?;
    let medium = match drive.load() {
        Err(DriveError::NoMedium { .. }) => return Err(ExerciseError::Empty { device: name }),
        loaded => loaded?,
    };
    if medium.write_protected {
        return Err(ExerciseError::WriteProtected { device: name });
    }
    if medium.rewritability == Rewritability::WriteOnce {
        return Err(ExerciseError::WriteOnce { device: name });
    }
    if medium.encryption != EncryptionState::Blank && contents == Contents::Keep {
        return Err(ExerciseError::NotBlank { device: name });
    }
    Ok((drive.identity(), medium))
}

/// Unloads the drive at the end. That it does not is one more thing to report, after hours of work.
fn let_go(drive: Result<Box<dyn Drive>, ChangerError>) -> Option<String> {
    let let_go = drive.and_then(|mut drive| Ok(drive.unload()?));
    let_go.err().map(|error| format!("the cartridge was not let go of at the end: {}", with_causes(&error)))
}

impl Exercised {
    /// Whether the drive kept all rules, but for those that have an excuse, and all measurements could be made.
    pub fn verdict(&self) -> DriveVerdict {
        match self.rules.broken().next().is_none() && self.measurements.problems.is_empty() {
            true => DriveVerdict::Good,
            false => DriveVerdict::Broken,
        }
    }

    /// The report.
    pub fn to_markdown(&self, serials: Serials) -> String {
        text::markdown(self, serials)
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveVerdict {
    /// Nothing to say against it.
    Good,
    /// The report says what is wrong.
    Broken,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of hours was thrown away because the last command failed.
    #[test]
    fn a_drive_that_does_not_let_go_is_a_problem_in_the_report() {
        let busy = ChangerError::InUse { what: "drive /dev/sg1".to_owned(), holder: "mt (process 17)".to_owned() };
        let told = let_go(Err(busy)).unwrap_or_default();
        assert!(told.contains("not let go of at the end: drive /dev/sg1 is in use by mt"), "{told}");
        assert_eq!(let_go(Ok(Box::new(crate::NullDrive::new()))), None);
    }
}
