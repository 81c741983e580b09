//! A virtual library for tests, whose drives are other than they are.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use capstan_catalog::Database;
use capstan_format::Volser;
use capstan_keys::{Unlock, create_key_file};
use capstan_tape::{
    CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element, Library, VirtualLibrary,
};
use tempfile::TempDir;

use crate::site::{InitOptions, Site};
use crate::{BackupRequest, Config, Event};

/// A state directory, and a source of one file.
pub(crate) struct StateInTests {
    dir: TempDir,
    unlock: Unlock,
    /// Backs the source up.
    pub(crate) request: BackupRequest,
}

impl StateInTests {
    pub(crate) fn new(config: Config, content: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, unlock) = (dir.path().join("source"), create_key_file(&dir.path().join("key")).unwrap());
        let options = InitOptions { config, encryption: None, database: Database::Sqlite };
        Site::init(&dir.path().join("state"), &options, Some(&unlock)).unwrap();
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("a"), content).unwrap();
        Self { dir, unlock, request: BackupRequest::of(vec![source]) }
    }

    pub(crate) fn open(&self) -> Site {
        self.open_told(|_| {})
    }

    /// The same, with whoever is told what happens.
    pub(crate) fn open_told(&self, events: impl Fn(Event) + Send + Sync + 'static) -> Site {
        Site::open(&self.dir.path().join("state"), Some(&self.unlock), || 1, Arc::new(events)).unwrap()
    }

    /// A process of its own, whose drive is dressed so.
    pub(crate) fn open_dressed(
        &self,
        events: impl Fn(Event) + Send + Sync + 'static,
        dressed: fn(Box<dyn Drive>) -> Box<dyn Drive>,
    ) -> Site {
        let site = self.open_told(events);
        let inner = VirtualLibrary::open(site.library_dir(), 1).unwrap();
        site.with_library(LibraryInTests { inner, described: |drives| drives, dressed })
    }
}

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
