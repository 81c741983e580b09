//! A virtual library for tests, whose drives are other than they are.

use capstan_format::Volser;
use capstan_tape::{
    CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element, Library, VirtualLibrary,
};

/// The library, what it says of its drives, and what they are dressed in.
pub(crate) struct LibraryInTests {
    pub(crate) inner: VirtualLibrary,
    pub(crate) described: fn(Vec<DriveDescription>) -> Vec<DriveDescription>,
    pub(crate) dressed: fn(Box<dyn Drive>) -> Box<dyn Drive>,
}

impl Changer for LibraryInTests {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        self.inner.inventory()
    }

    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.inner.load(volser, drive)
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.inner.unload(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        self.inner.carry_out_request(request)
    }
}

impl Library for LibraryInTests {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        self.inner.drives()
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        Ok((self.described)(self.inner.describe_drives()?))
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        Ok((self.dressed)(self.inner.take_drive(drive)?))
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        self.inner.create_cartridge(spec)
    }
}
