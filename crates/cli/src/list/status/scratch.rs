//! Libraries of a cell that run out of volumes which a pool could take next.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use capstan_catalog::{Volume, VolumeState};
use capstan_director::{ExpiryPlan, Site, TellEvent};
use capstan_mover::devices::LibraryConfig;
use rustix::fs::{StatVfs, statvfs};

use super::attention::Attention;
use crate::units;

/// How many such volumes each library has.
pub(super) struct RunningOut {
    /// Libraries of which volumes are known.
    libraries: Vec<ScratchLeft>,
    /// How many each should have.
    wanted: usize,
}

/// How many such volumes a library has left.
struct ScratchLeft {
    library: String,
    is_virtual: bool,
    /// Whether its disk has no room for as many as it may make.
    lacks_disk: bool,
    left: usize,
    /// Empty ones that no drive there writes.
    unfit: usize,
}

impl RunningOut {
    /// What is known of each. Volumes that the server's next expiry frees count as free.
    pub(super) fn of(site: &Site, volumes: &[Volume], expiry: &ExpiryPlan) -> Self {
        let wanted = site.config().attention.scratch_volumes as usize;
        // What is not known of drives speaks against no volume.
        let unfit = site.volumes_that_no_drive_writes(volumes).unwrap_or_default();
        let expires = site.config().server.expires().is_some() && !expiry.takes_most() && expiry.refusal.is_none();
        let is_free = |volume: &Volume| expires && expiry.frees.contains(&volume.volser);
        let left_of = |(name, library): (&str, &LibraryConfig)| {
            let own: Vec<_> = volumes.iter().filter(|volume| volume.library == name).collect();
            let empty = own.iter().copied().filter(|volume| is_empty(volume) || is_free(volume));
            let (unfit, fit): (Vec<&Volume>, Vec<&Volume>) = empty.partition(|volume| unfit.contains(&volume.volser));
            let allowed =
                if library.is_virtual() { (library.volumes_max as usize).saturating_sub(own.len()) } else { 0 };
            let made = room_on_disk(site.dir(), library).map_or(allowed, |room| room.min(allowed));
            let left = ScratchLeft {
                library: name.to_owned(),
                is_virtual: library.is_virtual(),
                lacks_disk: made < allowed,
                left: fit.len() + made,
                unfit: unfit.len(),
            };
            // Of a library without volumes nothing is known yet.
            (!own.is_empty()).then_some(left)
        };
        Self { libraries: site.config().all_libraries().filter_map(left_of).collect(), wanted }
    }

    /// How many each library has.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.libraries.iter().map(|library| (library.library.as_str(), library.left))
    }

    pub(super) fn lines(&self, lines: &mut Vec<Attention>) {
        for ScratchLeft { library, is_virtual, lacks_disk, left, unfit } in
            self.libraries.iter().filter(|library| library.left < self.wanted)
        {
            let subject = match left {
                0 => format!("no volume is left in library {library} for a pool that needs one"),
                1 => format!("1 volume is left in library {library} for pools that need one"),
                _ => format!("{left} volumes are left in library {library} for pools that need one"),
            };
            let others = match unfit {
                0 => String::new(),
                _ => format!(" (of generations that no drive there writes: {})", units::count(*unfit as u64)),
            };
            let then = if *left == 0 { ": a backup that fills its volume cannot go on" } else { "" };
            let more = match is_virtual {
                true if *lacks_disk => "Its disk has no room for more: give it a larger one",
                true => "Raise its volumes_max in capstan.toml and restart the server",
                false => "Put new cartridges into it and run `capstan label`",
            };
            let text = format!(
                "{subject}{others}{then}. {more}, empty volumes that hold little (`capstan reclaim \
                 --dry-run`), or let backups go (`capstan expire --dry-run`)"
            );
            lines.push(Attention::told(TellEvent::Scratch, format!("scratch {library}"), subject, text));
        }
    }
}

/// How many cartridges its disks have room for; none where nobody here can tell. `dir` is the state directory.
fn room_on_disk(dir: &Path, library: &LibraryConfig) -> Option<usize> {
    let folders = library.is_folder_here().then(|| std::iter::once(&library.path).chain(&library.folders))?;
    // Two folders on one file system share its room.
    let found = |folder: PathBuf| Some((std::fs::metadata(&folder).ok()?.dev(), statvfs(&folder).ok()?));
    let disks: HashMap<u64, StatVfs> = folders.filter_map(|folder| found(dir.join(folder))).collect();
    let room = |disk: &StatVfs| {
        let free_mib = disk.f_bavail.saturating_mul(disk.f_frsize) >> 20;
        free_mib.saturating_sub(library.free_mib).checked_div(library.volume_mib)
    };
    let rooms: Vec<u64> = disks.values().filter_map(room).collect();
    (!rooms.is_empty()).then(|| usize::try_from(rooms.iter().sum::<u64>()).ok()).flatten()
}

/// Whether any pool may take it: one that is labelled for a pool is that pool's.
fn is_empty(volume: &Volume) -> bool {
    volume.pool.is_none() && matches!(volume.state, VolumeState::Blank | VolumeState::Scratch)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand cartridges were left, of 100 GiB each, on a disk with 66.
    #[test]
    fn a_disk_has_room_for_so_many_cartridges_as_it_has() {
        let here = Path::new("/");
        let of = |volume_mib, mover: &str| {
            let path = ".".into();
            room_on_disk(here, &LibraryConfig { path, volume_mib, mover: mover.to_owned(), ..LibraryConfig::default() })
        };
        assert_eq!(of(u64::MAX, ""), Some(0));
        assert!(of(1, "").is_some_and(|room| room > 0));
        assert_eq!(of(1, "heron"), None, "nobody here knows the disk of a mover");
        let of_folders = |free_mib, folders: &[&str]| {
            let (path, folders) = (".".into(), folders.iter().map(Into::into).collect());
            room_on_disk(here, &LibraryConfig { path, folders, volume_mib: 1, free_mib, ..LibraryConfig::default() })
        };
        assert_eq!(of_folders(u64::MAX, &["tmp"]), Some(0), "all of it is to stay free");
        let (one, two) = (of_folders(1, &[]).unwrap_or_default(), of_folders(1, &["./", "../"]).unwrap_or_default());
        assert!(one > 0 && two < one + one / 2, "folders of one disk are counted once: {one}, {two}");
        assert_eq!(room_on_disk(Path::new("/nowhere/at/all"), &LibraryConfig::default()), None);
    }
}
