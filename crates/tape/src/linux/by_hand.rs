//! Drives without a robot: a person brings cartridges.
//!
//! There is nothing to move and nothing to look into: which cartridge is in a drive is known only to who has the drive
//! in use, and who mounts asks the person until it is the right one.

use std::path::PathBuf;

use super::library::describe;
use super::scan::scan;
use super::{FedBy, OnDeviceWait};
use crate::hardware::BlockProtection;
use crate::{
    CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element, ElementAddress, Library,
};
use capstan_format::Volser;

/// Stand-alone drives, by their nodes.
pub struct ByHandLibrary {
    devices: Vec<PathBuf>,
    protection: BlockProtection,
    on_wait: OnDeviceWait,
}

impl ByHandLibrary {
    /// The drives behind these nodes, numbered as they are named.
    pub fn new(devices: Vec<PathBuf>, protection: BlockProtection, on_wait: OnDeviceWait) -> Self {
        Self { devices, protection, on_wait }
    }

    fn path(&self, drive: u32) -> Result<&PathBuf, ChangerError> {
        let drives = self.devices.len() as u32;
        self.devices.get(drive as usize).ok_or(ChangerError::UnknownDrive { drive, drives })
    }
}

impl Changer for ByHandLibrary {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        let numbers = 0..self.devices.len() as u32;
        Ok(numbers.map(|number| Element { address: ElementAddress::Drive(number), volser: None }).collect())
    }

    fn load(&mut self, _volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.path(drive).map(drop)
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.path(drive).map(drop)
    }

    fn carry_out_request(&mut self, _errand: &ChangerRequest) -> Result<(), ChangerError> {
        let library = "by hand".to_owned();
        let reason = "there is no robot: a person brings cartridges, and is asked to when they are needed".to_owned();
        Err(ChangerError::Unusable { library, reason })
    }
}

impl Library for ByHandLibrary {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        Ok(self.devices.len() as u32)
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        let what = "looking for drives in sysfs".to_owned();
        let nodes = scan().map_err(|source| ChangerError::Host { what, source })?;
        Ok(self.devices.iter().map(|path| describe(&nodes, Some(path.clone()))).collect())
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        super::open_drive(self.path(drive)?, FedBy::Person, self.protection, &self.on_wait)
    }

    /// A person brings it.
    fn create_cartridge(&mut self, _spec: &CartridgeSpec) -> Result<(), ChangerError> {
        Ok(())
    }
}
