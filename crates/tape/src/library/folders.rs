//! The folders in which a virtual library keeps its cartridges, and the room in them.
//!
//! The first is `slots` of the library's own directory. A cartridge in a further folder has a link in `slots`, so that
//! whoever moves or opens it need not know where it lies. A cartridge whose folder is away, as its disk is not mounted,
//! has a link that leads nowhere: it is not in the library until the folder is back, and its name stays taken.
//!
//! ```text
//! DIRECTORY/library.id            which library this is
//! DIRECTORY/slots/A00002.tape     link to FOLDER/A00002.tape
//! FOLDER/library.id               the same mark: a mount point without its disk has none
//! FOLDER/A00002.tape              a cartridge; A00002.index beside it
//! ```
//! A folder without the mark is not used: nobody knows whether it is new, or its disk is away. Whoever knows has it
//! marked ([`VirtualLibrary::mark_with_folders`]).

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use capstan_format::Volser;

use super::{EXTENSION, MAIL, MARKER, SLOTS, VirtualLibrary, file_name, volser_of};
use crate::cartridge::draw_life;
use crate::{CartridgeSpec, ChangerError, Finding, FolderRoom};

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
    /// Whether they say anything.
    pub(super) fn are_any(&self) -> bool {
        !self.further.is_empty() || self.free_bytes > 0 || self.high_percent > 0
    }

    /// The room in a folder, without what is in it.
    fn room(&self, folder: &Path) -> io::Result<FolderRoom> {
        let (found, disk) = (rustix::fs::statvfs(folder)?, fs::metadata(folder)?.dev());
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // As `df` has it: what is reserved for the administrator is neither taken nor free.
        let taken_bytes = bytes(found.f_blocks.saturating_sub(found.f_bfree));
        let free_bytes = bytes(found.f_bavail);
        let total_bytes = taken_bytes + free_bytes;
        let begins_from_bytes = if self.free_bytes == 0 { 0 } else { self.free_bytes.saturating_add(self.begin_bytes) };
        let share = |percent: u8| total_bytes / 100 * u64::from(percent);
        // A disk may be as good as full before it comes to its mark.
        let is_above = taken_bytes > share(self.high_percent) || free_bytes < begins_from_bytes;
        let wanted_bytes = match self.high_percent {
            0 => 0,
            _ if is_above => {
                taken_bytes.saturating_sub(share(self.low_percent)).max(begins_from_bytes.saturating_sub(free_bytes))
            }
            _ => 0,
        };
        let (folder, volumes) = (folder.display().to_string(), Vec::new());
        Ok(FolderRoom { folder, disk, total_bytes, free_bytes, begins_from_bytes, wanted_bytes, volumes })
    }
}

impl VirtualLibrary {
    /// The same library with further folders, and rules for the room in all of them. Cartridges that lie in a further
    /// folder and that it does not know, as its own directory was lost, are in its slots then. A further folder that
    /// cannot be used is a [`Finding`].
    #[must_use]
    pub fn with_folders(self, rules: FolderRules) -> Self {
        let library = Self { rules, ..self };
        let folders = library.usable_folders().0;
        // What is taken in by nobody now, is by the next who opens the library.
        if !folders.is_empty()
            && let Ok(_robot) = library.robot()
        {
            for folder in folders {
                let _ = library.adopt(&folder);
            }
        }
        library
    }

    /// Marks a directory and further folders, which are made if they do not exist, as one library, and gives its id:
    /// the one that a folder has, or else `id`.
    ///
    /// # Errors
    /// One of them cannot be written, is that of another library, or is empty where cartridges of the library lay.
    pub fn mark_with_folders(directory: &Path, further: &[PathBuf], id: &str) -> io::Result<String> {
        let own = match Self::id(directory)? {
            Some(own) => own,
            None => {
                let known = further.iter().find_map(|folder| Self::id(folder).transpose()).transpose()?;
                known.unwrap_or_else(|| id.to_owned())
            }
        };
        for folder in further {
            if Self::id(folder)?.is_none() && lies_in(directory, folder)? {
                let what = format!(
                    "cartridges of the library lay in {}, and it has no {MARKER}: mount its disk, or leave the folder out \
                     of the settings",
                    folder.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        }
        let own = Self::mark(directory, &own)?;
        for folder in further {
            if Self::mark(folder, &own)? != own {
                let what = format!(
                    "{} in {} is that of another library: use another folder, or remove that file if the folder is to be \
                     this library's",
                    MARKER,
                    folder.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            File::open(folder)?.sync_all()?;
        }
        Ok(own)
    }

    /// The same for this library, and what lies in its folders is in its slots then.
    pub(super) fn initialize(&self) -> Result<(), ChangerError> {
        if self.rules.further.is_empty() {
            return Ok(());
        }
        let id = draw_life().map_err(self.host("cannot be marked"))?;
        Self::mark_with_folders(&self.directory, &self.rules.further, &format!("{id:016x}"))
            .map_err(self.host("cannot be marked"))?;
        let _robot = self.robot()?;
        let adopt = |folder| self.adopt(folder).map_err(self.host("cannot take in the cartridges of a folder"));
        self.rules.further.iter().try_for_each(|folder| adopt(folder))
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

    /// Whether a further folder is there, and this library's.
    fn check_folder(&self, folder: &Path) -> Result<(), String> {
        let own = Self::id(&self.directory).map_err(|error| error.to_string())?;
        match Self::id(folder).map_err(|error| error.to_string())? {
            Some(id) if own.as_ref() == Some(&id) => Ok(()),
            Some(_) if own.is_some() => Err(format!(
                "its {MARKER} is that of another library: use another folder, or remove that file if the folder is to \
                 be this library's, and run `capstan library initialize`"
            )),
            _ => Err(format!(
                "it is not marked by the {MARKER} of the library: if it is on a disk of its own, mount that disk; if it \
                 is new, run `capstan library initialize`"
            )),
        }
    }

    /// Puts cartridges of a further folder into slots that have none of their name.
    fn adopt(&self, folder: &Path) -> io::Result<()> {
        for path in cartridges_in(folder)? {
            let Some(volser) = volser_of(&path) else { continue };
            let place = |part: &str| self.directory.join(part).join(file_name(&volser));
            if place(MAIL).symlink_metadata().is_ok() {
                continue;
            }
            match fs::read_link(place(SLOTS)) {
                // The link of a folder that had another path; not that of one that is away.
                Ok(target) => {
                    let is_of_now = |folder: &&Path| self.rules.further.iter().any(|further| further == folder);
                    if target.parent().filter(is_of_now).is_some() || target.exists() {
                        continue;
                    }
                    fs::remove_file(place(SLOTS))?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It is a cartridge of its own.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => continue,
                Err(error) => return Err(error),
            }
            symlink(&path, place(SLOTS))?;
        }
        Ok(())
    }

    /// Whether a cartridge has a name, be its folder away.
    pub(super) fn is_taken(&self, volser: &Volser) -> bool {
        let name = file_name(volser);
        let own = [SLOTS, MAIL].map(|part| self.directory.join(part));
        own.iter().chain(&self.rules.further).any(|folder| folder.join(&name).symlink_metadata().is_ok())
    }

    /// The room in each folder that can be used, and the cartridges in it.
    pub(super) fn rooms_now(&self) -> Result<Vec<FolderRoom>, ChangerError> {
        let own = self.directory.join(SLOTS);
        let mut rooms = vec![(own.clone(), self.rules.room(&own).map_err(self.host("cannot be asked for its room"))?)];
        for folder in self.usable_folders().0 {
            // Its disk may have gone since it was looked at.
            if let (Ok(real), Ok(room)) = (fs::canonicalize(&folder), self.rules.room(&folder)) {
                rooms.push((real, room));
            }
        }
        for volser in self.list(SLOTS)? {
            let place = own.join(file_name(&volser));
            let is_link = place.symlink_metadata().is_ok_and(|found| found.is_symlink());
            let target = is_link.then(|| fs::canonicalize(&place).ok()).flatten();
            let lies_in = target.as_deref().and_then(Path::parent).unwrap_or(&own);
            if let Some((_, room)) = rooms.iter_mut().find(|(folder, _)| folder == lies_in) {
                room.volumes.push(volser);
            }
        }
        Ok(rooms.into_iter().map(|(_, room)| room).collect())
    }

    /// Makes a cartridge in the folder of the file system that has most room.
    pub(super) fn create_in_a_folder(&self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        let place = self.directory.join(SLOTS).join(file_name(&spec.volser));
        if !self.rules.are_any() {
            return Ok(spec.create(&place)?);
        }
        let full = || ChangerError::FoldersFull { volser: spec.volser.clone() };
        let mut folders = vec![place.clone()];
        folders.extend(self.usable_folders().0.iter().map(|folder| folder.join(file_name(&spec.volser))));
        let room_of = |path: &PathBuf| self.rules.room(path.parent().unwrap_or(path)).ok().filter(FolderRoom::has_room);
        let with_room = folders.into_iter().filter_map(|path| Some((room_of(&path)?.free_bytes, path)));
        let mut with_room: Vec<_> = with_room.collect();
        // Of equals the first, which is the library's own.
        with_room.sort_by_key(|(free_bytes, _)| Reverse(*free_bytes));
        let mut failure = None;
        // A disk that cannot be written any more may have most room.
        let made = with_room.into_iter().map(|(_, path)| path).find(|path| {
            let made = spec.create(path);
            failure = made.err();
            failure.is_none()
        });
        let Some(path) = made else { return Err(failure.map_or_else(full, ChangerError::from)) };
        if path == place {
            return Ok(());
        }
        symlink(&path, &place).map_err(|error| {
            let _ = fs::remove_file(&path);
            self.host("cannot note a cartridge")(error)
        })
    }
}

/// Whether the slots of a library have links into a folder.
fn lies_in(directory: &Path, folder: &Path) -> io::Result<bool> {
    let slots = match fs::read_dir(directory.join(SLOTS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        slots => slots?,
    };
    for slot in slots {
        let target = fs::read_link(slot?.path()).ok();
        if target.as_deref().and_then(Path::parent) == Some(folder) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Data files of cartridges in a folder.
fn cartridges_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == EXTENSION)).collect())
}
