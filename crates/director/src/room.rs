//! Expired volumes of a virtual library give their room back, where a disk is taken above its high mark.
//!
//! A scratch volume keeps what expired until it is written anew, so that an expiry can be undone. On tape that costs
//! nothing; on a disk it is room that others need. So it is given back when the disk fills: from the high mark of the
//! library down to its low mark, the volumes that were labelled first go first.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_catalog::{Promise, Volume, VolumeState};
use capstan_format::Volser;
use capstan_keys::Cartridge;
use capstan_mover::devices::LibraryInventory;
use capstan_tape::{ChangerError, FolderRoom, with_causes};

use crate::admin::blank_row;
use crate::label::check_all_known;
use crate::libraries::LibraryAt;
use crate::mounter::Mounter;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// A disk of a virtual library that is taken above its high mark.
pub(crate) struct FullDisk {
    /// Bytes that its volumes should give back.
    pub(crate) wanted_bytes: u64,
    /// Its folders.
    rooms: Vec<FolderRoom>,
    /// The volumes in them, the first labelled first.
    pub(crate) volumes: Vec<Volume>,
}

impl FullDisk {
    /// The full disks of a library, of which the catalog knows these volumes.
    pub(crate) fn of(inventory: &LibraryInventory, volumes: &[Volume]) -> Vec<Self> {
        let mut by_disk: HashMap<u64, Vec<FolderRoom>> = HashMap::new();
        for room in inventory.rooms.iter().filter(|room| room.wanted_bytes > 0) {
            by_disk.entry(room.disk).or_default().push(room.clone());
        }
        let disk = |rooms: Vec<FolderRoom>| {
            let is_there = |volume: &&Volume| rooms.iter().any(|room| room.volumes.contains(&volume.volser));
            let mut own: Vec<Volume> = volumes.iter().filter(is_there).cloned().collect();
            own.sort_by_key(|volume| (volume.labelled_ns, volume.volser.clone()));
            let wanted_bytes = rooms.iter().map(|room| room.wanted_bytes).max().unwrap_or_default();
            Self { wanted_bytes, rooms, volumes: own }
        };
        by_disk.into_values().map(disk).collect()
    }

    fn room_of(&self, volser: &Volser) -> Option<&FolderRoom> {
        self.rooms.iter().find(|room| room.volumes.contains(volser))
    }
}

impl Site {
    /// Makes volumes of virtual libraries blank that hold only what has expired, where a disk is taken above its high
    /// mark; gives them. What has expired on them can be taken back no more. What keeps a volume as it is, is told
    /// once.
    pub fn give_room_back(&self) -> Vec<Volser> {
        let mounter = Mounter::new(self);
        let asked = self.virtual_libraries().into_iter().map(|(library, inventory)| {
            let mounter = mounter.clone().in_library(&library);
            give_back(&mounter, &inventory)
        });
        asked.flatten().collect()
    }

    /// Whether a disk of a virtual library is taken above its high mark. One that cannot be asked needs nothing now.
    pub fn needs_room(&self) -> bool {
        let asked = self.virtual_libraries();
        asked.iter().any(|(_, inventory)| inventory.rooms.iter().any(|room| room.wanted_bytes > 0))
    }

    /// The full disks of all virtual libraries that can be asked.
    pub(crate) fn full_disks(&self) -> Result<Vec<FullDisk>, DirectorError> {
        let mounter = Mounter::new(self);
        let mut disks = Vec::new();
        for (library, inventory) in &self.virtual_libraries() {
            disks.extend(FullDisk::of(inventory, &mounter.clone().in_library(library).volumes_of_library()?));
        }
        Ok(disks)
    }

    /// Virtual libraries that can be asked, and what is in each.
    pub(crate) fn virtual_libraries(&self) -> Vec<(Arc<LibraryAt>, LibraryInventory)> {
        let libraries = self.libraries.all().iter().filter(|library| library.config.is_virtual());
        libraries.filter_map(|library| Some((Arc::clone(library), self.ask(library).ok()?))).collect()
    }
}

/// The same in the library of a mounter. Nobody is waited for.
pub(crate) fn give_room_back(mounter: &Mounter) {
    if mounter.library.config.is_virtual()
        && let Ok(inventory) = mounter.library.devices.inventory()
    {
        give_back(mounter, &inventory);
    }
}

fn give_back(mounter: &Mounter, inventory: &LibraryInventory) -> Vec<Volser> {
    let mut mounter = mounter.beside().here_alone();
    mounter.waits_for_drives(false);
    if inventory.rooms.iter().all(|room| room.wanted_bytes == 0) {
        return Vec::new();
    }
    // A catalog that cannot be read is told of by who works with it.
    let volumes = mounter.volumes_of_library().unwrap_or_default();
    let mut given = Vec::new();
    for disk in FullDisk::of(inventory, &volumes) {
        let mut left_bytes = disk.wanted_bytes;
        for volume in disk.volumes.iter().filter(|volume| is_expired(volume)) {
            if left_bytes == 0 || mounter.is_to_stop() {
                break;
            }
            let Some(room) = disk.room_of(&volume.volser) else { continue };
            match empty(&mounter, volume, room) {
                Emptied::Stays => continue,
                // Others give room back at the same time.
                Emptied::ByOthers => {}
                Emptied::Now => given.push(volume.volser.clone()),
            }
            left_bytes = left_bytes.saturating_sub(volume.written);
        }
    }
    given
}

/// What came of a volume that was to be made blank.
enum Emptied {
    Now,
    /// Somebody has it, or has just made it blank.
    ByOthers,
    /// It cannot be made blank.
    Stays,
}

/// Makes a volume blank, unless it could not be made so a while ago, and tells of it.
fn empty(mounter: &Mounter, volume: &Volume, room: &FolderRoom) -> Emptied {
    let (volser, stubborn) = (&volume.volser, &mounter.mounts.stubborn);
    if stubborn.has(volser) {
        return Emptied::Stays;
    }
    let (folder, percent) = (&room.folder, room.percent_taken());
    let notice = |message| (mounter.events)(Event::Notice { message });
    match make_blank(mounter, volser) {
        Ok(true) => {
            notice(format!(
                "volume {volser} held only what has expired, and was made blank: the disk of {folder} was {percent} % full"
            ));
            Emptied::Now
        }
        // Or all drives are in use: next time.
        Ok(false) | Err(DirectorError::InUse { .. } | DirectorError::Changer(ChangerError::InUse { .. })) => {
            Emptied::ByOthers
        }
        Err(error) => {
            let reason = with_causes(&error);
            if stubborn.note(volser, &reason) {
                notice(format!("volume {volser} keeps the room that it takes in {folder}: {reason}"));
            }
            Emptied::Stays
        }
    }
}

/// Whether a volume holds something, and all of that has expired.
pub(crate) fn is_expired(volume: &Volume) -> bool {
    volume.state == VolumeState::Scratch && volume.pool.is_none() && volume.written > 0
}

/// Makes a volume blank; false if it is not expired any more.
fn make_blank(mounter: &Mounter, volser: &Volser) -> Result<bool, DirectorError> {
    let hold = mounter.holds.volume(volser)?;
    // Since it was looked at, another job may have had it.
    let known = mounter.volume(volser)?;
    if !is_expired(&known) {
        return Ok(false);
    }
    let mut mounted = mounter.clone().for_writing_over(false, false).mount_held(volser, Some(hold))?;
    let erasable = mounted.check_writable().and_then(|()| mounted.check_rewritable());
    let erasable = erasable.and_then(|()| check_all_known(mounter, &mut mounted, &known));
    let given_up = erasable.and_then(|()| give_up(mounter, &known));
    if !matches!(given_up, Ok(true)) {
        mounter.dismount(mounted)?;
        return given_up;
    }
    let erased = mounted.erase().and_then(|()| {
        let blank = |row: &mut Volume| *row = Volume { recycled: row.recycled, ..blank_row(row.clone()) };
        Ok(locked(&mounter.catalog).update_volume(volser, blank)?)
    });
    let serial = mounted.medium.serial;
    mounter.dismount(mounted)?;
    erased?;
    mounter.keys_ended(Cartridge { volser, serial: serial.as_ref() })?;
    Ok(true)
}

/// Has the catalog forget what was on a volume, before the medium does; false if something on it is kept after all. It
/// stays an expired one that holds something until it is erased, so that whoever comes next goes on.
fn give_up(mounter: &Mounter, known: &Volume) -> Result<bool, DirectorError> {
    let mut catalog = locked(&mounter.catalog);
    let is_same = |now: &Volume| is_expired(now) && now.id == known.id;
    let Some(now) = catalog.volume(&known.volser)?.filter(is_same) else { return Ok(false) };
    if !catalog.objects_on(&known.volser)?.is_empty() {
        return Ok(false);
    }
    let Volume { state, written, key, labelled_ns, recycled, .. } = now.clone();
    // One that could not be erased last time has ended its life already.
    let recycled = recycled + u32::from(now.id.is_some());
    let row = Volume { state, written, key, labelled_ns, recycled, ..blank_row(now) };
    catalog.relabelled(&row, Promise::Keep)?;
    Ok(true)
}
