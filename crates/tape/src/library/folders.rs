//! The folders in which a virtual library keeps its cartridges, and the room in them.
//!
//! The first is `slots` of the library's own directory. A cartridge in a further folder has a link in `slots`, so that
//! whoever moves or opens it need not know where it lies. A cartridge whose folder is away, as its disk is not mounted,
//! has a link that leads nowhere: it is not in the library until the folder is back.
//!
//! ```text
//! DIRECTORY/library.id            which library this is
//! DIRECTORY/folders               further folders that it has used, one a line
//! DIRECTORY/slots/A00002.tape     link to FOLDER/A00002.tape
//! FOLDER/library.id               the same mark: a mount point without its disk has none
//! FOLDER/A00002.tape              a cartridge; A00002.index beside it
//! ```

use std::cmp::Reverse;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{SLOTS, VirtualLibrary, file_name, volser_of};
use crate::cartridge::draw_life;
use crate::{CartridgeSpec, ChangerError, Finding, FolderRoom};

/// The file that names the folders that were used.
const USED: &str = "folders";

/// Where a virtual library puts cartridges, and how much room it leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderRules {
    /// Folders besides its own, by absolute path, on other file systems or the same.
    pub further: Vec<PathBuf>,
    /// Bytes that stay free on each file system: a cartridge there counts as full where there is less. 0 for none.
    pub free_bytes: u64,
    /// Bytes more than that which must be free for a cartridge to be begun.
    pub begin_bytes: u64,
    /// Cartridges that hold nothing any more should give their room back where more than so much of a file system is
    /// taken, in percent; 0 for never.
    pub high_percent: u8,
    /// They should do so until no more than this is taken.
    pub low_percent: u8,
}

impl FolderRules {
    /// The room in a folder, without what is in it.
    fn room(&self, folder: PathBuf) -> io::Result<FolderRoom> {
        let found = rustix::fs::statvfs(&folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // As `df` has it: what is reserved for the administrator is neither taken nor free.
        let taken_bytes = bytes(found.f_blocks.saturating_sub(found.f_bfree));
        let free_bytes = bytes(found.f_bavail);
        let total_bytes = taken_bytes + free_bytes;
        let share = |percent: u8| total_bytes / 100 * u64::from(percent);
        let is_above = self.high_percent > 0 && taken_bytes > share(self.high_percent);
        let wanted_bytes = if is_above { taken_bytes.saturating_sub(share(self.low_percent)) } else { 0 };
        let begins_from_bytes = if self.free_bytes == 0 { 0 } else { self.free_bytes + self.begin_bytes };
        Ok(FolderRoom { folder, total_bytes, free_bytes, begins_from_bytes, wanted_bytes, volumes: Vec::new() })
    }
}

impl VirtualLibrary {
    /// The same library with further folders, and rules for the room in all of them. Cartridges that lie in a further
    /// folder and that it does not know, as its own directory was lost, are in its slots then.
    ///
    /// # Errors
    /// The directory cannot be written. A further folder that cannot be used is a [`Finding`].
    pub fn with_folders(self, rules: FolderRules) -> Result<Self, ChangerError> {
        let library = Self { rules, ..self };
        if !library.rules.further.is_empty() {
            let _robot = library.robot()?;
            let id = Self::id(&library.directory).map_err(library.host("has a mark that cannot be read"))?;
            if id.is_none() {
                let id = draw_life().map_err(library.host("cannot be marked"))?;
                Self::mark(&library.directory, &format!("{id:016x}")).map_err(library.host("cannot be marked"))?;
            }
            for folder in library.usable_folders().0 {
                library.adopt(&folder).map_err(library.host("cannot take in the cartridges of a folder"))?;
            }
        }
        Ok(library)
    }

    /// Folders besides its own that can be used, and what is wrong with the others.
    pub(super) fn usable_folders(&self) -> (Vec<PathBuf>, Vec<Finding>) {
        let (mut usable, mut findings) = (Vec::new(), Vec::new());
        for folder in &self.rules.further {
            match self.check_folder(folder) {
                Ok(()) => usable.push(folder.clone()),
                Err(reason) => findings.push(Finding::FolderAway { folder: folder.display().to_string(), reason }),
            }
        }
        (usable, findings)
    }

    /// Whether a further folder is there, and this library's: one that was never used becomes it.
    fn check_folder(&self, folder: &Path) -> Result<(), String> {
        let own = Self::id(&self.directory).map_err(|error| error.to_string())?.unwrap_or_default();
        match Self::id(folder).map_err(|error| error.to_string())? {
            Some(id) if id == own => Ok(()),
            Some(_) => Err(format!(
                "its {} is that of another library: use another folder, or remove that file if the folder is to be \
                 this library's",
                super::MARKER
            )),
            None if self.used_folders().iter().any(|used| used == folder) => Err(format!(
                "it holds no {}, which marks it: if it is on a disk of its own, mount that disk",
                super::MARKER
            )),
            None => self.take_in(folder, &own).map_err(|error| format!("it cannot be marked: {error}")),
        }
    }

    fn take_in(&self, folder: &Path, own: &str) -> io::Result<()> {
        // Noted first: one that was marked and is not noted would be marked again without its disk.
        let mut used = OpenOptions::new().create(true).append(true).open(self.directory.join(USED))?;
        fs::create_dir_all(folder)?;
        writeln!(used, "{}", folder.display())?;
        used.sync_all()?;
        Self::mark(folder, own)?;
        File::open(folder)?.sync_all()
    }

    fn used_folders(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.directory.join(USED)).unwrap_or_default();
        text.lines().map(PathBuf::from).collect()
    }

    /// Puts cartridges of a further folder into slots that have none of their name.
    fn adopt(&self, folder: &Path) -> io::Result<()> {
        for path in cartridges_in(folder)? {
            let Some(volser) = volser_of(&path) else { continue };
            let known = [SLOTS, super::MAIL].map(|part| self.directory.join(part).join(file_name(&volser)));
            if known.iter().all(|place| place.symlink_metadata().is_err()) {
                symlink(&path, &known[0])?;
            }
        }
        Ok(())
    }

    /// The room in each folder that can be used, and the cartridges in it.
    pub(super) fn rooms_now(&self) -> Result<Vec<FolderRoom>, ChangerError> {
        let own = self.directory.join(SLOTS);
        let (further, _) = self.usable_folders();
        let mut rooms = Vec::new();
        for folder in std::iter::once(own.clone()).chain(further) {
            match self.rules.room(folder.clone()) {
                Ok(room) => rooms.push(room),
                Err(error) if folder == own => return Err(self.host("cannot be asked for its room")(error)),
                // Its disk went since it was looked at.
                Err(_) => {}
            }
        }
        for volser in self.list(SLOTS)? {
            let place = own.join(file_name(&volser));
            let lies_in = fs::read_link(&place).ok().and_then(|target| target.parent().map(Path::to_owned));
            let folder = lies_in.unwrap_or_else(|| own.clone());
            if let Some(room) = rooms.iter_mut().find(|room| room.folder == folder) {
                room.volumes.push(volser);
            }
        }
        Ok(rooms)
    }

    /// Makes a cartridge in the folder of the file system that has most room.
    pub(super) fn create_in_a_folder(&self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        let place = self.directory.join(SLOTS).join(file_name(&spec.volser));
        if self.rules == FolderRules::default() {
            return Ok(spec.create(&place)?);
        }
        let rooms = self.rooms_now()?;
        // Of equals the first, which is the library's own.
        let best = rooms.iter().filter(|room| room.has_room()).min_by_key(|room| Reverse(room.free_bytes));
        let best = best.ok_or_else(|| ChangerError::FoldersFull { volser: spec.volser.clone() })?;
        if best.folder == self.directory.join(SLOTS) {
            return Ok(spec.create(&place)?);
        }
        let path = best.folder.join(file_name(&spec.volser));
        spec.create(&path)?;
        symlink(&path, &place).map_err(self.host("cannot note a cartridge"))
    }
}

/// Data files of cartridges in a folder.
fn cartridges_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == super::EXTENSION)).collect())
}
