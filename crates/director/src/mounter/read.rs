//! The mounter as readers see it: volumes that the catalog knows, with their keys, and in which order to read from
//! each.
//!
//! A volume that is given back stays in its drive until another one is wanted, or until the mounter is dropped: what
//! follows is likely to be on it, too. So an act that reads a volume ten times mounts it once.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use capstan_catalog::Verified;
use capstan_format::Volser;
use capstan_mover::{
    BadBlocks, BetweenBlocks, Filled, HostError, MountId, ReadHost, ReadOrder, VolumePlace, read_between,
};
use capstan_tape::with_causes;

use super::seats::DriveOfJob;
use super::{Drives, InDrive, Mounter, locked};
use crate::hold::Hold;
use crate::shared_volumes::Wanted;
use crate::{DirectorError, Event};

/// How long a reader that has a volume in one drive waits in vain for a second drive, all in all.
const SECOND_DRIVE_WITHIN: Duration = Duration::from_secs(300);
/// How often it looks whether one is free.
const LOOKS: Duration = Duration::from_millis(200);

/// What the readers of one act met, beside what they read.
#[derive(Default)]
struct ReadMet {
    /// Volumes of which a key is not there, each key once, and why: what is read says so in words only.
    without_key: Vec<(Volser, DirectorError)>,
    /// In which order volumes were read, where there was a choice.
    orders: Vec<ReadOrder>,
    /// Volumes that could not be read at all, because of what is on them, and why.
    unreadable: Vec<(VolumePlace, String)>,
    /// Volumes that could not be mounted while no other volume was read.
    not_mounted: Vec<Volser>,
}

/// What there is to read copies from.
#[derive(Debug, Clone)]
pub(crate) struct PresentForCopies {
    /// Volumes that can be read.
    pub(crate) all: Vec<Volser>,
    /// Those in the library that is written in, if its only drive is that of the copy.
    pub(crate) beside: Option<HashSet<Volser>>,
}

/// Mounts volumes for read plans.
pub(crate) struct ReadMounter {
    mounter: Mounter,
    /// Volumes that are being read, and that each counts among those of the act.
    volumes: Vec<(Arc<InDrive>, DriveOfJob)>,
    /// Whether it reads volumes together with other restores of this process.
    shares_volumes: bool,
    /// How long a second drive was waited for in vain, all in all: damage after damage.
    waited_beside: Cell<Duration>,
    /// Volumes that were reserved together before the first was read, and seats.
    reserved: Option<(Vec<Volser>, Hold)>,
    /// A volume that was given back and is in its drive still.
    held: Option<(VolumePlace, MountId)>,
    met: Arc<Mutex<ReadMet>>,
    /// What there was to read copies from when it was first asked.
    pub(crate) present: Option<PresentForCopies>,
}

impl ReadMounter {
    pub(crate) fn new(mounter: Mounter) -> Self {
        Self {
            mounter,
            volumes: Vec::new(),
            shares_volumes: false,
            waited_beside: Cell::default(),
            reserved: None,
            held: None,
            met: Arc::default(),
            present: None,
        }
    }

    /// The same, of whose drives the queue knows nothing.
    #[must_use]
    pub(crate) fn outside_queue(mut self) -> Self {
        self.mounter = self.mounter.outside_queue();
        self
    }

    /// The same for a restore, which reads a volume together with others.
    #[must_use]
    pub(crate) fn sharing_volumes(mut self) -> Self {
        self.shares_volumes = true;
        self
    }

    /// What is written meanwhile goes to where volumes of a pool are.
    pub(crate) fn write_to(&mut self, pool: &str) -> Result<(), DirectorError> {
        let Mounter { libraries, catalog, library, .. } = &self.mounter;
        self.mounter.library = libraries.of_pool(catalog, pool, library)?;
        Ok(())
    }

    /// Another one, for a part of the same act that is carried out at the same time.
    pub(crate) fn beside(&self) -> Self {
        let mut beside = Self::new(self.mounter.beside());
        (beside.met, beside.shares_volumes) = (Arc::clone(&self.met), self.shares_volumes);
        beside
    }

    /// Gives away the volumes of which a key is not there, each key once, and why.
    pub(crate) fn take_without_key(&self) -> Vec<(Volser, DirectorError)> {
        std::mem::take(&mut locked(&self.met).without_key)
    }

    /// Gives away the volumes that could not be mounted.
    pub(crate) fn take_not_mounted(&self) -> Vec<Volser> {
        std::mem::take(&mut locked(&self.met).not_mounted)
    }

    /// Gives away in which order volumes were read, where there was a choice.
    pub(crate) fn take_orders(&self) -> Vec<ReadOrder> {
        std::mem::take(&mut locked(&self.met).orders)
    }

    /// Of the job whose drives it uses.
    pub(crate) fn mounter(&self) -> &Mounter {
        &self.mounter
    }

    /// Why something was not read: the key that is not there, if it is that.
    pub(crate) fn why_not(&mut self, reason: String) -> DirectorError {
        let without_key = &mut locked(&self.met).without_key;
        match without_key.is_empty() {
            true => DirectorError::Output { reason },
            false => without_key.swap_remove(0).1,
        }
    }

    /// Brings a volume into a drive, if it is not there still, and checks that it is the one that is meant.
    pub(crate) fn open(&mut self, place: &VolumePlace) -> Result<MountId, DirectorError> {
        match self.held.take() {
            Some((held, mount)) if held == *place => return Ok(mount),
            held => {
                self.held = held;
                self.put_back();
            }
        }
        let volume = if self.shares_volumes { self.shared_volume(place)? } else { Arc::new(self.mounted(place)?) };
        let mount = volume.mount;
        self.volumes.push((volume, self.mounter.drives.one_more()));
        Ok(mount)
    }

    /// A volume in a drive, which other restores may read, too.
    fn shared_volume(&self, place: &VolumePlace) -> Result<Arc<InDrive>, DirectorError> {
        let mounts = Arc::clone(&self.mounter.mounts);
        let library = self.mounter.libraries.of_volume(&self.mounter.catalog, &place.volser, &self.mounter.library)?;
        if !library.data_path.shares_drives() {
            return self.mounted(place).map(Arc::new);
        }
        if !self.volumes.is_empty() {
            // Whoever mounts it may wait for a drive of this reader.
            return mounts.shared.in_drive(place).map_or_else(|| self.mounted(place).map(Arc::new), Ok);
        }
        let told = || {
            let message = format!("another restore wants volume {}, too: they read it together", place.volser);
            (self.mounter.events)(Event::Notice { message });
        };
        match mounts.shared.wanted(place, || self.mounter.is_to_stop(), told)? {
            Wanted::InDrive(volume) => Ok(volume),
            Wanted::ToMount(mounting) => Ok(mounting.came_in(self.mounted(place)?)),
        }
    }

    /// Reserves a volume and has it mounted.
    fn mounted(&self, place: &VolumePlace) -> Result<InDrive, DirectorError> {
        let hold = self.hold(&place.volser)?;
        let mut volume = self.mounter.mount_to_read(&place.volser, place.volume, hold).inspect_err(|error| {
            let unreadable = &mut locked(&self.met).unreadable;
            if error.blames_medium() && unreadable.iter().all(|(known, _)| known != place) {
                unreadable.push((place.clone(), with_causes(error)));
            }
        })?;
        let now_ns = self.mounter.now_ns();
        let counted = locked(&self.mounter.catalog).update_volume(&place.volser, |known| {
            known.mounts += 1;
            known.read_ns = Some(now_ns);
        });
        if let Err(error) = counted {
            // Statistics: a catalog that cannot be written (its disk is full, say) does not make a volume unreadable.
            let message = format!("that volume {} was read could not be noted: {error}", place.volser);
            (self.mounter.events)(Event::Notice { message });
        }
        volume.of_job = None;
        Ok(volume)
    }

    /// Reserves volumes for a job that writes at the same time, and seats for both: it must not wait for a volume once
    /// it has begun to write. Whether it has them.
    pub(crate) fn reserve(&mut self, volumes: Vec<Volser>, drives: Drives) -> Result<bool, DirectorError> {
        self.let_go();
        let hold = match drives {
            Drives::Waited => self.mounter.hold_to_read(&volumes, true)?,
            Drives::IfFree => match self.mounter.hold_to_read_if_free(&volumes, true)? {
                Some(hold) => Some(hold),
                None => return Ok(false),
            },
        };
        self.reserved = hold.map(|hold| (volumes, hold));
        Ok(true)
    }

    /// Whether these volumes are reserved for it, and seats for both.
    pub(crate) fn has_reserved(&self, volumes: &[Volser]) -> bool {
        self.reserved.as_ref().is_some_and(|(reserved, _)| reserved == volumes)
    }

    /// Gives back what was reserved together, and the volume that is in a drive still.
    pub(crate) fn let_go(&mut self) {
        self.put_back();
        self.reserved = None;
    }

    /// Reserves a volume that is to be read, unless it is reserved.
    fn hold(&self, volser: &Volser) -> Result<Option<Hold>, DirectorError> {
        match &self.reserved {
            Some((volumes, _)) if volumes.contains(volser) => Ok(None),
            // Another copy stands in: whoever has its volume may wait for one that is reserved here.
            Some(_) => self.mounter.holds.volume(volser).map(Some),
            None if self.volumes.is_empty() => self.mounter.hold_to_read(std::slice::from_ref(volser), false),
            None => {
                let began = Instant::now();
                let held = self.hold_beside(volser, SECOND_DRIVE_WITHIN.saturating_sub(self.waited_beside.get()));
                if held.is_err() {
                    self.waited_beside.set(self.waited_beside.get() + began.elapsed());
                }
                held
            }
        }
    }

    /// Reserves a volume and a drive for it while another one is being read. Whoever has all other drives may wait for
    /// this one in turn: so the wait ends, and what was wanted of the volume is not read.
    fn hold_beside(&self, volser: &Volser, within: Duration) -> Result<Option<Hold>, DirectorError> {
        let (began, mut said) = (Instant::now(), false);
        let library = self.mounter.libraries.of_volume(&self.mounter.catalog, volser, &self.mounter.library)?;
        let own = self.volumes.iter().filter(|(volume, _)| volume.library.name == library.name).count();
        // Nobody else has what this reader has itself.
        let there_is_one = library.devices.drives().map_or(true, |drives| drives as usize > own);
        loop {
            match self.mounter.hold_to_read_if_free(std::slice::from_ref(volser), false) {
                Ok(None) => {}
                // As where it is the only volume: whoever restores must be able to, on a full disk too.
                Err(DirectorError::Catalog(_)) => return Ok(None),
                held => return held,
            }
            if self.mounter.is_to_stop() {
                return Err(DirectorError::Interrupted);
            }
            if !there_is_one || began.elapsed() >= within {
                let what = format!("volume {volser}, or each drive that could read it,");
                return Err(DirectorError::InUse { what, holder: "other jobs".to_owned() });
            }
            if !std::mem::replace(&mut said, true) {
                let message = format!(
                    "a drive is waited for to read volume {volser} in place of what is damaged, for {} minutes at most",
                    within.as_secs() / 60
                );
                (self.mounter.events)(Event::Waiting { message });
            }
            self.mounter.note_wait_at(&library.name);
            std::thread::sleep(LOOKS);
        }
    }

    /// Brings back what is in a drive still.
    pub(crate) fn put_back(&mut self) {
        let Some((place, mount)) = self.held.take() else { return };
        let Some(at) = self.volumes.iter().position(|(volume, _)| volume.mount == mount) else { return };
        let ((volume, _of_job), volser) = (self.volumes.swap_remove(at), place.volser);
        if let Some(hold) = &volume.hold {
            self.mounter.mounts_no_more_under(hold);
        }
        // Others may read it still.
        let Some(volume) = Arc::into_inner(volume) else { return };
        if let Err(error) = self.mounter.dismount(volume) {
            (self.mounter.events)(Event::Notice { message: format!("volume {volser} could not be put back: {error}") });
        }
    }

    /// Reads what is left of these blocks in front of `end_lbn`, with nothing else.
    pub(crate) fn read_between(
        &mut self,
        place: &VolumePlace,
        between: &mut BetweenBlocks,
        end_lbn: u64,
    ) -> Result<(), DirectorError> {
        let mount = self.open(place)?;
        let library = self
            .volumes
            .iter()
            .find(|(volume, _)| volume.mount == mount)
            .map(|(volume, _)| Arc::clone(&volume.library));
        let library = library.unwrap_or_else(|| Arc::clone(&self.mounter.library));
        let read = read_between(library.data_path.drives(), mount, place, between, end_lbn);
        self.release(mount, place);
        Ok(read?)
    }

    /// Puts on record that a volume, or what it holds of an object, was read in full, and what was found bad.
    pub(crate) fn record_verified(&self, place: &VolumePlace, verified: Verified, bad: &[BadBlocks]) {
        self.mounter.record_verified(place, verified, bad);
    }

    /// Notes in the catalog what reading found bad, and says so.
    pub(crate) fn note_bad(&mut self, bad: &[BadBlocks], found_by: &str) {
        let unreadable = std::mem::take(&mut locked(&self.met).unreadable);
        self.mounter.note_bad(bad, &unreadable, found_by);
    }
}

impl Drop for ReadMounter {
    fn drop(&mut self) {
        self.put_back();
    }
}

impl ReadHost for ReadMounter {
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError> {
        let opened = self.open(place);
        // Beside another volume it may only have been busy.
        if matches!(&opened, Err(error) if self.volumes.is_empty() && !matches!(error, DirectorError::Interrupted)) {
            let not_mounted = &mut locked(&self.met).not_mounted;
            if !not_mounted.contains(&place.volser) {
                not_mounted.push(place.volser.clone());
            }
        }
        match opened {
            Err(error @ (DirectorError::Keys(_) | DirectorError::KeysLocked)) => {
                let text = with_causes(&error);
                let without_key = &mut locked(&self.met).without_key;
                if without_key.iter().all(|(volser, _)| *volser != place.volser) {
                    without_key.push((place.volser.clone(), error));
                }
                Err(text.into())
            }
            other => Ok(other?),
        }
    }

    fn filled(&mut self, place: &VolumePlace) -> Option<Filled> {
        // Without what the catalog knows there is no model's order, and the drive's all the same.
        let known = locked(&self.mounter.catalog).volume(&place.volser).ok().flatten();
        Some(known.map_or(Filled::default(), |known| Filled { end_lbn: known.end_of_data_lbn, bytes: known.written }))
    }

    fn ordered(&mut self, order: &ReadOrder, notice: Option<String>) {
        if let Some(message) = notice {
            (self.mounter.events)(Event::Notice { message });
        }
        (self.mounter.events)(Event::Ordered { order: order.clone() });
        locked(&self.met).orders.push(order.clone());
    }

    fn release(&mut self, mount: MountId, place: &VolumePlace) {
        for (volser, error) in self.mounter.take_missed(&place.volser) {
            let without_key = &mut locked(&self.met).without_key;
            if without_key.iter().all(|(other, known)| *other != volser || with_causes(known) != with_causes(&error)) {
                without_key.push((volser, error));
            }
        }
        self.put_back();
        self.held = Some((place.clone(), mount));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_keys::create_key_file;

    use super::*;
    use crate::{Config, InitOptions, Site};

    /// Two readers that each have a drive and meet damage would wait for each other.
    #[test]
    fn nobody_waits_for_ever_for_a_second_drive() {
        let dir = tempfile::tempdir().unwrap();
        let unlock = create_key_file(&dir.path().join("key")).unwrap();
        let (state, mut config) = (dir.path().join("state"), Config::default());
        config.library.drives = 1;
        let options = InitOptions { config, encryption: None, database: capstan_catalog::Database::Sqlite };
        Site::init(&state, &options, Some(&unlock)).unwrap();
        let site = Site::open(&state, Some(&unlock), || 0, Arc::new(|_| {})).unwrap();
        let other = Mounter::new(&site);
        let seat = other.seats(1).unwrap();
        let reader = ReadMounter::new(Mounter::new(&site));
        let volser = Volser::new("A00001").unwrap();
        let waited = reader.hold_beside(&volser, Duration::from_millis(50));
        assert!(matches!(&waited, Err(DirectorError::InUse { .. })), "{:?}", waited.err());
        drop(seat);
        assert!(reader.hold_beside(&volser, Duration::from_millis(50)).unwrap().is_some());
    }
}
