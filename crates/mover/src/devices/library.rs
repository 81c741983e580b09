//! Which library a mover has: its settings, and what they open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use capstan_tape::hardware::BlockProtection;
use capstan_tape::linux::{ByHandLibrary, LinuxLibrary};
use capstan_tape::model::{DriveModel, ModelError, built_in};
use capstan_tape::{ChangerError, FolderRules, Library, VirtualLibrary};
use serde::{Deserialize, Serialize};

use super::{KeySource, Loader, LocalDevices};
use crate::MountedDrives;

/// The library: a folder of virtual cartridges, or a real one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LibraryConfig {
    /// The mover whose library it is; empty for this host's own. Of one elsewhere, `changer` says which kind it is.
    pub mover: String,
    /// Device node of a real library's changer (`capstan drives scan`); [`BY_HAND`] for drives without one; empty for
    /// virtual cartridges.
    pub changer: PathBuf,
    /// Its drives, by device node; if none is named, all whose serial number the library tells and this host finds.
    /// Without a changer they are all there are.
    pub devices: Vec<PathBuf>,
    /// Where the cartridges lie; relative to the state directory.
    pub path: PathBuf,
    /// Further folders for virtual cartridges, on other file systems perhaps; a new one goes where most room is.
    pub folders: Vec<PathBuf>,
    /// MiB that stay free on the file system of each folder: where there is less, a virtual cartridge counts as full.
    pub free_mib: u64,
    /// Percent of a file system above which expired virtual cartridges give their room back; 0 for never.
    pub high_percent: u8,
    /// Percent down to which they do.
    pub low_percent: u8,
    /// How many drives it has: two copies at once need two.
    pub drives: u32,
    /// Capacity of a new cartridge, in MiB.
    pub volume_mib: u64,
    /// Most cartridges it makes by itself when a pool needs one; 0 makes none.
    pub volumes_max: u32,
    /// Drives take the time of this one, by its model; empty for as fast as the disk is.
    pub pace: String,
    /// Blocks have checksums on their way to a real drive and back, where it offers that.
    pub protect_blocks: bool,
}

impl Default for LibraryConfig {
    fn default() -> Self {
        Self {
            mover: String::new(),
            changer: PathBuf::new(),
            devices: Vec::new(),
            path: PathBuf::from("library"),
            folders: Vec::new(),
            free_mib: 0,
            high_percent: 0,
            low_percent: 0,
            drives: 4,
            volume_mib: 100 * 1024,
            volumes_max: 1000,
            pace: String::new(),
            protect_blocks: false,
        }
    }
}

/// The part of a virtual cartridge for which there must be room before one is begun.
const BEGIN_SHARE: u64 = 16;

/// `library.changer` of drives that a person brings cartridges to.
pub const BY_HAND: &str = "by hand";

impl LibraryConfig {
    /// Who brings cartridges to its drives.
    pub fn loader(&self) -> Loader {
        if self.changer.as_os_str() == BY_HAND { Loader::Person } else { Loader::Robot }
    }

    /// Whether cartridges are files of ours, here or at a mover.
    pub fn is_virtual(&self) -> bool {
        self.changer.as_os_str().is_empty()
    }

    /// Whether cartridges are files of this host.
    pub fn is_folder_here(&self) -> bool {
        self.is_virtual() && self.mover.is_empty()
    }

    /// What is wrong with the settings, in words for whoever wrote them.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.loader() == Loader::Person && self.devices.is_empty() && self.mover.is_empty() {
            return Err("library.changer is \"by hand\", so library.devices must name the drives".to_owned());
        }
        if self.drives == 0 || self.volume_mib == 0 {
            return Err("library.drives and library.volume_mib must be above 0".to_owned());
        }
        self.check_folders()?;
        self.pace().map(drop).map_err(|error| format!("library.pace: {error}"))
    }

    fn check_folders(&self) -> Result<(), String> {
        let Self { folders, free_mib, high_percent, low_percent, .. } = self;
        let has_rules = !folders.is_empty() || *free_mib > 0 || *high_percent > 0 || *low_percent > 0;
        if has_rules && !self.is_folder_here() {
            let names = "library.folders, free_mib, high_percent and low_percent";
            return Err(format!("{names} are for virtual cartridges, and stand with the host that has their disks"));
        }
        if !folders.is_empty() && *free_mib == 0 {
            return Err("library.folders needs library.free_mib: how many MiB are to stay free in each folder before \
                        the next one is used"
                .to_owned());
        }
        if (*high_percent > 0 || *low_percent > 0) && !(low_percent < high_percent && *high_percent < 100) {
            return Err(format!(
                "library.low_percent = {low_percent} must be less than library.high_percent = {high_percent}, and that \
                 less than 100"
            ));
        }
        Ok(())
    }

    /// Its further folders, by absolute path; relative ones are below `dir`.
    pub fn folders_below(&self, dir: &Path) -> Vec<PathBuf> {
        let absolute = |folder: &PathBuf| {
            let folder = dir.join(folder);
            std::path::absolute(&folder).unwrap_or(folder)
        };
        self.folders.iter().map(absolute).collect()
    }

    /// What its folders are to be like.
    fn folder_rules(&self, dir: &Path) -> FolderRules {
        let mib = |mib: u64| mib.saturating_mul(1 << 20);
        FolderRules {
            further: self.folders_below(dir),
            free_bytes: mib(self.free_mib),
            begin_bytes: mib(self.volume_mib) / BEGIN_SHARE,
            high_percent: self.high_percent,
            low_percent: self.low_percent,
        }
    }

    /// The drive whose time its drives take.
    ///
    /// # Errors
    /// There is no such model.
    pub fn pace(&self) -> Result<Option<DriveModel>, ModelError> {
        if self.pace.is_empty() { Ok(None) } else { built_in(&self.pace).map(Some) }
    }

    /// Opens it; relative paths are below `dir`. `on_wait` is told what is waited for.
    ///
    /// # Errors
    /// The folder of virtual cartridges cannot be used. A real library is asked at its first use.
    pub fn open(
        &self,
        dir: &Path,
        on_wait: Arc<dyn Fn(String) + Send + Sync>,
    ) -> Result<Arc<Mutex<dyn Library>>, ChangerError> {
        if self.is_virtual() {
            let library = VirtualLibrary::open(dir.join(&self.path), self.drives)?;
            return Ok(Arc::new(Mutex::new(library.with_folders(self.folder_rules(dir)))));
        }
        let protection = if self.protect_blocks { BlockProtection::WhereOffered } else { BlockProtection::Off };
        let (changer, devices) = (self.changer.clone(), self.devices.clone());
        if self.loader() == Loader::Person {
            return Ok(Arc::new(Mutex::new(ByHandLibrary::new(devices, protection, on_wait))));
        }
        Ok(Arc::new(Mutex::new(LinuxLibrary::new(changer, devices, protection, on_wait))))
    }

    /// The devices of this process over a library that these settings have opened; `drives` is where its data path
    /// takes mounted drives from.
    pub fn devices(
        &self,
        library: &Arc<Mutex<dyn Library>>,
        keys: Arc<dyn KeySource>,
        drives: &Arc<MountedDrives>,
    ) -> LocalDevices {
        // A setting that names no model was refused when it was read.
        let pace = self.pace().unwrap_or_default();
        LocalDevices::new(Arc::clone(library), self.loader(), pace, keys, Arc::clone(drives))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_folders_that_contradict_each_other_are_refused() {
        let of = |change: fn(&mut LibraryConfig)| {
            let mut config = LibraryConfig::default();
            change(&mut config);
            config.check().err().unwrap_or_default()
        };
        assert_eq!(of(|_| {}), "");
        assert_eq!(of(|config| (config.folders, config.free_mib) = (vec!["two".into()], 1)), "");
        assert_eq!(of(|config| (config.high_percent, config.low_percent) = (80, 60)), "");
        assert!(of(|config| config.folders = vec!["two".into()]).contains("free_mib"));
        assert!(of(|config| config.low_percent = 40).contains("high_percent"));
        assert!(of(|config| (config.high_percent, config.low_percent) = (60, 60)).contains("low_percent"));
        assert!(of(|config| (config.high_percent, config.low_percent) = (100, 60)).contains("100"));
        assert!(of(|config| (config.mover, config.free_mib) = ("heron".to_owned(), 5)).contains("has their disks"));
        assert!(of(|config| (config.changer, config.free_mib) = ("/dev/sg3".into(), 5)).contains("virtual"));
    }
}
