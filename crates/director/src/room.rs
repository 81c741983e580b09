//! Expired volumes of a virtual library give their room back, where a disk is taken above its high mark.
//!
//! A scratch volume keeps what expired until it is written anew, so that an expiry can be undone. On tape that costs
//! nothing; on a disk it is room that others need. So it is given back when the disk fills: from the high mark of the
//! library down to its low mark, the volumes that were labelled first go first.

use std::path::PathBuf;

use capstan_catalog::{Promise, Volume, VolumeState};
use capstan_format::Volser;
use capstan_keys::Cartridge;
use capstan_tape::{ChangerError, FolderRoom, with_causes};

use crate::admin::blank_row;
use crate::label::check_all_known;
use crate::mounter::Mounter;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// A volume that was made blank, as its folder's disk was taken above the high mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomGivenBack {
    /// The volume.
    pub volser: Volser,
    /// Bytes that it gave back.
    pub bytes: u64,
    /// Its folder.
    pub folder: PathBuf,
    /// How much of the folder's disk was taken before, in percent.
    pub percent: u64,
}

impl Site {
    /// Makes volumes of virtual libraries blank that hold only what has expired, where a disk is taken above its high
    /// mark; gives them. What has expired on them can be taken back no more. What keeps a volume as it is, is told.
    pub fn give_room_back(&self) -> Vec<RoomGivenBack> {
        let mounter = Mounter::new(self);
        let libraries = mounter.libraries.all().iter().map(|library| mounter.clone().in_library(library));
        libraries.flat_map(|mounter| give_room_back(&mounter)).collect()
    }

    /// Whether a disk of a virtual library is taken above its high mark. One that cannot be asked needs nothing now.
    pub fn needs_room(&self) -> bool {
        let virtual_ones = self.libraries.all().iter().filter(|library| library.config.is_virtual());
        let mut rooms = virtual_ones.filter_map(|library| library.devices.inventory_at_once().ok());
        rooms.any(|inventory| inventory.rooms.iter().any(|room| room.wanted_bytes > 0))
    }
}

/// The same in the library of a mounter. Nobody is waited for.
pub(crate) fn give_room_back(mounter: &Mounter) -> Vec<RoomGivenBack> {
    let mut mounter = mounter.beside().here_alone();
    mounter.waits_for_drives(false);
    let (mut tried, mut given) = (Vec::new(), Vec::new());
    loop {
        let (room, volume) = match next(&mounter, &tried) {
            Ok(Some(next)) => next,
            Ok(None) => return given,
            Err(error) => {
                let message = format!("expired volumes cannot give their room back: {}", with_causes(&error));
                (mounter.events)(Event::Notice { message });
                return given;
            }
        };
        tried.push(volume.volser.clone());
        let percent = room.percent_taken();
        let (volser, folder) = (volume.volser.clone(), room.folder.display());
        match make_blank(&mounter, &volume) {
            Ok(true) => {
                let message = format!(
                    "volume {volser} held only what has expired, and was made blank: the disk of {folder} was {percent} % full"
                );
                (mounter.events)(Event::Notice { message });
                given.push(RoomGivenBack { volser, bytes: volume.written, folder: room.folder, percent });
            }
            // Somebody uses it, or all drives: next time.
            Ok(false) | Err(DirectorError::InUse { .. } | DirectorError::Changer(ChangerError::InUse { .. })) => {}
            Err(error) => {
                let message =
                    format!("volume {volser} keeps the room that it takes in {folder}: {}", with_causes(&error));
                (mounter.events)(Event::Notice { message });
            }
        }
    }
}

/// The volume whose turn it is, and its folder.
fn next(mounter: &Mounter, tried: &[Volser]) -> Result<Option<(FolderRoom, Volume)>, DirectorError> {
    let library = &mounter.library;
    let mut rooms = mounter.rooms()?;
    rooms.retain(|room| room.wanted_bytes > 0);
    if rooms.is_empty() {
        return Ok(None);
    }
    let mut volumes = locked(&mounter.catalog).volumes()?;
    volumes.retain(|volume| is_expired(volume) && volume.library == library.name && !tried.contains(&volume.volser));
    volumes.sort_by_key(|volume| (volume.labelled_ns, volume.volser.clone()));
    let with_room = volumes.into_iter().find_map(|volume| {
        let room = rooms.iter().position(|room| room.volumes.contains(&volume.volser))?;
        Some((rooms.swap_remove(room), volume))
    });
    Ok(with_room)
}

/// Whether a volume holds something, and all of that has expired.
pub(crate) fn is_expired(volume: &Volume) -> bool {
    volume.state == VolumeState::Scratch && volume.pool.is_none() && volume.written > 0
}

/// Makes a volume blank; false if that is not what it is any more.
fn make_blank(mounter: &Mounter, volume: &Volume) -> Result<bool, DirectorError> {
    let volser = &volume.volser;
    let hold = mounter.holds.volume(volser)?;
    // Since it was looked at, another job may have had it.
    let known = mounter.volume(volser)?;
    if !is_expired(&known) || !locked(&mounter.catalog).objects_on(volser)?.is_empty() {
        return Ok(false);
    }
    let mut mounted = mounter.clone().for_writing_over(false, false).mount_held(volser, Some(hold))?;
    let erasable = mounted.check_writable().and_then(|()| mounted.check_rewritable());
    if let Err(error) = erasable.and_then(|()| check_all_known(mounter, &mut mounted, &known)) {
        mounter.dismount(mounted)?;
        return Err(error);
    }
    // The catalog forgets before the medium does, as when a person has it erased.
    locked(&mounter.catalog).relabelled(&blank_row(known), Promise::Keep)?;
    let (erased, serial) = (mounted.erase(), mounted.medium.serial);
    mounter.dismount(mounted)?;
    erased?;
    mounter.keys_ended(Cartridge { volser, serial: serial.as_ref() })?;
    Ok(true)
}
