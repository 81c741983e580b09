//! A library of virtual cartridges: a directory.
//!
//! ```text
//! slots/A00001.tape     a cartridge; A00001.index beside it
//! slots/A00002.partial  one that is being made, or whose maker was killed: the next to make it begins anew
//! mail/A00009.tape      the same, in the mail slot: put there by hand
//! drives/0              link to the cartridge in drive 0; absent if the drive is empty
//! drives/0.lock         locked by the process that uses drive 0
//! robot.lock            locked while a cartridge is moved
//! library.id            which library this is: a mount point without its disk has none
//! ```
//! Cartridges may lie in further folders ([`folders`]), with a link in `slots`.
//!
//! A drive opens whatever its link points to, so that changer and drive share a bay without sharing memory, and several
//! processes can use one library. A link was chosen over moving files because it can be neither half done nor lost: the
//! cartridge never leaves its slot's directory.
//!
//! Slots are numbered in order of volser; the slot of a cartridge that is in a drive is kept free for it.
//!
//! Locking: `robot.lock` before anything else, and only while links are looked at or changed. A drive's lock is held by
//! its process as long as the [`CartridgeDrive`] lives, a cartridge's lock while it is loaded. When a library is
//! opened, cartridges in drives that no process uses go back to their slots, as after a power failure; and loading
//! takes a cartridge from such a drive, too. So take a drive first and have a cartridge brought to it then: one in a
//! drive that is nobody's may be taken away.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use capstan_format::Volser;

use crate::lock::{Locked, LockedFile, try_lock, wait_lock};
use crate::{
    CartridgeDrive, CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element,
    ElementAddress, Finding, FolderRoom, KeySlotKind, Library, Tab,
};

mod folders;

pub use folders::FolderRules;

const EXTENSION: &str = "tape";
const SLOTS: &str = "slots";
const MAIL: &str = "mail";
const DRIVES: &str = "drives";
const MARKER: &str = "library.id";

/// A virtual library.
#[derive(Debug)]
pub struct VirtualLibrary {
    directory: PathBuf,
    drives: u32,
    rules: FolderRules,
}

impl VirtualLibrary {
    /// Opens the library in `directory`, which is made if it does not exist, with drives 0 to `drives` - 1.
    ///
    /// # Errors
    /// The directory cannot be made, or a cartridge that lies in a drive cannot be put back.
    pub fn open(directory: impl Into<PathBuf>, drives: u32) -> Result<Self, ChangerError> {
        let library = Self { directory: directory.into(), drives, rules: FolderRules::default() };
        for part in [SLOTS, MAIL, DRIVES] {
            fs::create_dir_all(library.directory.join(part)).map_err(library.host("cannot be made"))?;
        }
        library.empty_unused_drives()?;
        Ok(library)
    }

    /// Which library a directory holds, by its marker; `None` where there is no marker, or no directory.
    ///
    /// # Errors
    /// The marker is there and cannot be read.
    pub fn id(directory: &Path) -> io::Result<Option<String>> {
        match fs::read_to_string(directory.join(MARKER)) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks a directory, which is made if it does not exist, as the library `id`. Gives the id that it has then:
    /// another process may have been quicker.
    ///
    /// # Errors
    /// The directory or the marker cannot be written.
    pub fn mark(directory: &Path, id: &str) -> io::Result<String> {
        fs::create_dir_all(directory)?;
        let staged = directory.join(format!("{MARKER}.{id}"));
        fs::write(&staged, format!("{id}\n"))?;
        File::open(&staged)?.sync_all()?;
        // A link, unlike a rename, never takes the place of one that is there.
        let linked = fs::hard_link(&staged, directory.join(MARKER));
        fs::remove_file(&staged)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Self::id(directory)?.unwrap_or_else(|| id.to_owned())),
        }
    }

    /// Whether a cartridge is in a slot, the mail slot or a drive of the library in a directory.
    pub fn holds(directory: &Path, volser: &Volser) -> bool {
        [SLOTS, MAIL].iter().any(|part| directory.join(part).join(file_name(volser)).exists())
    }

    /// Takes a cartridge out of the library for good and deletes it. It must not be in a drive.
    ///
    /// # Errors
    /// [`ChangerError::UnknownVolume`] if it is in no slot; else its file cannot be deleted.
    pub fn remove_cartridge(&mut self, volser: &Volser) -> Result<(), ChangerError> {
        let _robot = self.robot()?;
        let place = self.in_slot(volser)?;
        // In a further folder it has a link here.
        let path = fs::canonicalize(&place).map_err(self.host("cannot delete a cartridge"))?;
        fs::remove_file(&path).map_err(self.host("cannot delete a cartridge"))?;
        if place.symlink_metadata().is_ok() {
            fs::remove_file(&place).map_err(self.host("cannot delete a cartridge"))?;
        }
        match fs::remove_file(path.with_extension("index")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.host("cannot delete an index")(error)),
            _ => Ok(()),
        }
    }

    /// Slides the tab of a cartridge, which must not be in a drive.
    ///
    /// # Errors
    /// [`ChangerError::UnknownVolume`] if it is in no slot; else its file cannot be written.
    pub fn slide_tab(&mut self, volser: &Volser, tab: Tab) -> Result<(), ChangerError> {
        let _robot = self.robot()?;
        Ok(tab.slide(&self.in_slot(volser)?)?)
    }

    /// Takes a drive into use; no other process, and no second caller, has it until the value is dropped.
    ///
    /// # Errors
    /// [`ChangerError::UnknownDrive`] if there is none of this number; [`ChangerError::InUse`] if somebody has it; else
    /// its lock cannot be taken.
    pub fn drive(&self, drive: u32, key_slot: KeySlotKind) -> Result<CartridgeDrive, ChangerError> {
        self.check_drive(drive)?;
        match self.lock_drive(drive)? {
            Locked::Ours(lock) => {
                let name = format!("virtual-{drive}");
                Ok(CartridgeDrive::in_library(name, self.bay(drive), key_slot, lock).leaving(self.rules.free_bytes))
            }
            Locked::HeldBy(holder) => Err(ChangerError::InUse { what: format!("drive {drive}"), holder }),
        }
    }

    /// As a library does that is switched on: what lies in a drive that nobody uses goes back to its slot.
    fn empty_unused_drives(&self) -> Result<(), ChangerError> {
        let _robot = self.robot()?;
        for drive in 0..self.drives {
            if let Locked::Ours(_lock) = self.lock_drive(drive)?
                && self.in_drive(drive)?.is_some()
            {
                self.take_out(drive)?;
            }
        }
        Ok(())
    }

    /// Holds the robot as long as the value lives.
    fn robot(&self) -> Result<LockedFile, ChangerError> {
        open_lock(&self.directory.join("robot.lock")).and_then(wait_lock).map_err(self.host("cannot lock its robot"))
    }

    fn lock_drive(&self, drive: u32) -> Result<Locked, ChangerError> {
        let path = self.directory.join(DRIVES).join(format!("{drive}.lock"));
        open_lock(&path).and_then(try_lock).map_err(self.host("cannot lock a drive"))
    }

    fn bay(&self, drive: u32) -> PathBuf {
        self.directory.join(DRIVES).join(drive.to_string())
    }

    fn check_drive(&self, drive: u32) -> Result<(), ChangerError> {
        if drive < self.drives { Ok(()) } else { Err(ChangerError::UnknownDrive { drive, drives: self.drives }) }
    }

    /// The cartridge in a drive.
    fn in_drive(&self, drive: u32) -> Result<Option<Volser>, ChangerError> {
        match fs::read_link(self.bay(drive)) {
            Ok(target) => volser_of(&target).map(Some).ok_or_else(|| {
                let odd = io::Error::new(io::ErrorKind::InvalidData, format!("it points to {}", target.display()));
                self.host("has a drive with something else than a cartridge in it")(odd)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.host("cannot look into a drive")(error)),
        }
    }

    /// The drive that a cartridge is in.
    fn drive_with(&self, volser: &Volser) -> Result<Option<u32>, ChangerError> {
        for drive in 0..self.drives {
            if self.in_drive(drive)?.as_ref() == Some(volser) {
                return Ok(Some(drive));
            }
        }
        Ok(None)
    }

    /// The path of a cartridge relative to the library, wherever it belongs.
    fn find(&self, volser: &Volser) -> Result<Option<PathBuf>, ChangerError> {
        for part in [SLOTS, MAIL] {
            let path = Path::new(part).join(file_name(volser));
            if self.directory.join(&path).try_exists().map_err(self.host("cannot be searched"))? {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// The path of a cartridge that is in no drive.
    fn in_slot(&self, volser: &Volser) -> Result<PathBuf, ChangerError> {
        let path = self.find(volser)?.ok_or_else(|| ChangerError::UnknownVolume { volser: volser.clone() })?;
        match self.drive_with(volser)? {
            Some(drive) => Err(self.in_other_drive(volser, drive)?),
            None => Ok(self.directory.join(path)),
        }
    }

    fn in_other_drive(&self, volser: &Volser, drive: u32) -> Result<ChangerError, ChangerError> {
        let holder = match self.lock_drive(drive)? {
            Locked::HeldBy(holder) => holder,
            Locked::Ours(_) => "no process".to_owned(),
        };
        Ok(ChangerError::InOtherDrive { volser: volser.clone(), drive, holder })
    }

    /// Refuses what would put one cartridge in the place of another that bears the same barcode.
    fn check_one(&self, volser: &Volser) -> Result<(), ChangerError> {
        let is_in = |part: &str| self.directory.join(part).join(file_name(volser)).symlink_metadata().is_ok();
        if is_in(SLOTS) && is_in(MAIL) {
            return Err(ChangerError::BarcodeTwice { volser: volser.clone() });
        }
        Ok(())
    }

    /// Brings a cartridge from one of the directories to another, with the index that may lie beside it.
    fn carry(&self, (from, to): (&str, &str), volser: &Volser) -> Result<(), ChangerError> {
        let place = |part: &str| self.directory.join(part).join(file_name(volser));
        let (from, to) = (place(from), place(to));
        // An index without its cartridge, or left behind, is made anew; so the cartridge goes last.
        match fs::rename(from.with_extension("index"), to.with_extension("index")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.host("cannot move an index")(error));
            }
            _ => {}
        }
        fs::rename(from, to).map_err(self.host("cannot move a cartridge"))
    }

    /// Removes a drive's link, if the drive let the cartridge go.
    fn take_out(&self, drive: u32) -> Result<(), ChangerError> {
        let bay = self.bay(drive);
        match File::open(&bay) {
            Ok(file) => {
                if let Locked::HeldBy(holder) = try_lock(file).map_err(self.host("cannot lock a cartridge"))? {
                    return Err(ChangerError::InUse { what: format!("the cartridge in drive {drive}"), holder });
                }
            }
            // Someone deleted the cartridge by hand; the drive is empty in any case.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(self.host("cannot look into a drive")(error)),
        }
        fs::remove_file(bay).map_err(self.host("cannot empty a drive"))
    }

    /// The cartridges in one of the directories, sorted.
    fn list(&self, part: &str) -> Result<Vec<Volser>, ChangerError> {
        let mut volsers = Vec::new();
        for entry in fs::read_dir(self.directory.join(part)).map_err(self.host("cannot be listed"))? {
            let entry = entry.map_err(self.host("cannot be listed"))?;
            let path = entry.path();
            // One in a further folder that is away is not there.
            let leads_nowhere = || entry.file_type().is_ok_and(|kind| kind.is_symlink()) && !path.exists();
            if path.extension().is_some_and(|extension| extension == EXTENSION) && !leads_nowhere() {
                volsers.extend(volser_of(&path));
            }
        }
        volsers.sort();
        Ok(volsers)
    }

    fn host(&self, what: &str) -> impl FnOnce(io::Error) -> ChangerError {
        let what = format!("library {} {what}", self.directory.display());
        move |source| ChangerError::Host { what, source }
    }
}

impl Changer for VirtualLibrary {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        let _robot = self.robot()?;
        let mut loaded = Vec::new();
        for drive in 0..self.drives {
            loaded.push(self.in_drive(drive)?);
        }
        let stored = |volsers: Vec<Volser>, address: fn(u32) -> ElementAddress| -> Vec<Element> {
            let in_drive = |volser: &Volser| loaded.iter().flatten().any(|loaded| loaded == volser);
            let element = |(number, volser): (u32, Volser)| Element {
                address: address(number),
                volser: Some(volser).filter(|volser| !in_drive(volser)),
            };
            (0..).zip(volsers).map(element).collect()
        };
        let mut elements = stored(self.list(SLOTS)?, ElementAddress::Slot);
        let mail = stored(self.list(MAIL)?, ElementAddress::ImportExport);
        elements
            .extend((0..).zip(loaded).map(|(drive, volser)| Element { address: ElementAddress::Drive(drive), volser }));
        elements.extend(mail);
        Ok(elements)
    }

    fn findings(&self) -> Vec<Finding> {
        self.usable_folders().1
    }

    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.check_drive(drive)?;
        let _robot = self.robot()?;
        match self.in_drive(drive)? {
            Some(found) if found == *volser => return Ok(()),
            Some(found) => return Err(ChangerError::DriveFull { drive, volser: found }),
            None => {}
        }
        let path = self.find(volser)?.ok_or_else(|| ChangerError::UnknownVolume { volser: volser.clone() })?;
        if let Some(other) = self.drive_with(volser)? {
            match self.lock_drive(other)? {
                // Left there by a job that was killed when this library was open already.
                Locked::Ours(_lock) => self.take_out(other)?,
                Locked::HeldBy(holder) => {
                    return Err(ChangerError::InOtherDrive { volser: volser.clone(), drive: other, holder });
                }
            }
        }
        symlink(Path::new("..").join(path), self.bay(drive)).map_err(self.host("cannot fill a drive"))
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.check_drive(drive)?;
        let _robot = self.robot()?;
        if self.in_drive(drive)?.is_none() {
            return Err(ChangerError::DriveEmpty { drive });
        }
        self.take_out(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        match request {
            ChangerRequest::Exchange { volser, drive } => {
                if self.in_drive(*drive)?.as_ref() == Some(volser) {
                    return Ok(());
                }
                if self.in_drive(*drive)?.is_some() {
                    self.unload(*drive)?;
                }
                self.load(volser, *drive)
            }
            ChangerRequest::Import { mail_slot } => {
                let _robot = self.robot()?;
                let element = ElementAddress::ImportExport(*mail_slot);
                let empty = || ChangerError::ElementEmpty { element };
                let volser = self.list(MAIL)?.into_iter().nth(*mail_slot as usize).ok_or_else(empty)?;
                self.in_slot(&volser)?;
                self.check_one(&volser)?;
                self.carry((MAIL, SLOTS), &volser)
            }
            ChangerRequest::Export { volser } => {
                let _robot = self.robot()?;
                self.in_slot(volser)?;
                self.check_one(volser)?;
                if self.list(MAIL)?.contains(volser) { Ok(()) } else { self.carry((SLOTS, MAIL), volser) }
            }
            // A directory is looked at each time anew.
            ChangerRequest::Clean { volser, drive } => self.load(volser, *drive),
            ChangerRequest::Initialize => self.initialize(),
        }
    }
}

impl Library for VirtualLibrary {
    fn rooms(&mut self) -> Result<Vec<FolderRoom>, ChangerError> {
        if self.rules.are_any() { self.rooms_now() } else { Ok(Vec::new()) }
    }

    fn drives(&mut self) -> Result<u32, ChangerError> {
        Ok(self.drives)
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        let one = DriveDescription { model: Some("virtual".to_owned()), class: None, serial: None, path: None };
        Ok(vec![one; self.drives as usize])
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        Ok(Box::new(self.drive(drive, KeySlotKind::Fitted)?))
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        let _robot = self.robot()?;
        if self.is_taken(&spec.volser) {
            return Err(ChangerError::VolserTaken { volser: spec.volser.clone() });
        }
        self.create_in_a_folder(spec)
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

fn file_name(volser: &Volser) -> String {
    format!("{volser}.{EXTENSION}")
}

fn volser_of(path: &Path) -> Option<Volser> {
    Volser::new(path.file_stem()?.to_str()?).ok()
}
