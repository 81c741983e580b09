//! The mounter: has volumes mounted, loads keys, checks labels, and records what drives say.
//!
//! It decides and records. What touches library and drives is [`Devices`], which may be in another process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_catalog::{Catalog, DamagedBlocks, Moment, Volume, VolumeState};
use capstan_format::{Volser, VolumeHeader, VolumeId};
use capstan_keys::KeyError;
use capstan_mover::devices::{
    DevicesError, DismountOrder, DriveReservation, Loader, MountOrder, MountReport, MountWatch, ReservationKey,
};
use capstan_tape::{
    ChangerError, DriveError, DriveNeeds, ElementAddress, EncryptionState, FolderRoom, WriteFit, barcode, with_causes,
};

use crate::drive_keys::BlockKeys;
use crate::hold::{Hold, Holds};
use crate::libraries::{Libraries, LibraryAt};
use crate::mounts::Mounts;
use crate::shared::Clock;
use crate::site::{Site, locked};
use crate::{DirectorError, Event, Events, WriteOnceBar};

mod findings;
mod in_drive;
mod keys;
mod read;
mod seats;

pub(crate) use in_drive::InDrive;
pub(crate) use read::{PresentForCopies, ReadMounter};
pub(crate) use seats::Drives;

/// Mounts and dismounts for one job. What is in drives is shared with all other jobs of the process ([`Mounts`]).
#[derive(Clone)]
pub(crate) struct Mounter {
    pub(crate) catalog: Arc<Mutex<Catalog>>,
    pub(crate) keys: BlockKeys,
    /// All libraries: a volume is mounted in the one that it is in.
    pub(crate) libraries: Libraries,
    /// The one that the job writes in.
    pub(crate) library: Arc<LibraryAt>,
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    pub(crate) holds: Arc<Holds>,
    pub(crate) mounts: Arc<Mounts>,
    drives: Arc<seats::JobDrives>,
    /// Whether the catalog stands in for one that cannot be written: what others reserve is not in it.
    is_stand_in: bool,
    /// Whether its job has a place in a queue, which knows of its wait for a drive.
    is_of_queue: bool,
    /// Whether volumes are mounted in that library alone.
    is_here_alone: bool,
    /// What drives are to do with them.
    purpose: MountPurpose,
    /// Whether a drive is not waited for that others have: another volume may do.
    is_impatient: bool,
    /// How long a job that has a drive waits for another one among drives that differ.
    unlike_waits: Duration,
    /// How often whoever waits for a drive looks for one.
    looks: Duration,
    /// Set when whoever waits for a person is to stop.
    stop: Arc<AtomicBool>,
    /// Volumes that were to be gone on with and are not any more, and why.
    passed_over: Arc<Mutex<Vec<(Volser, String)>>>,
}

/// What volumes are mounted for.
#[derive(Debug, Clone, Default)]
struct MountPurpose {
    /// Whether they are written.
    writes: bool,
    /// Whether what is written is encrypted.
    encrypts: bool,
    /// Models of drives that are used for it; none for all.
    models: Arc<[String]>,
    /// Whether what is on them does not matter: it is not read, and written over.
    afresh: bool,
    /// Whether what is known of a cartridge may be wrong, as a person says who means it.
    is_forced: bool,
}

impl Mounter {
    pub(crate) fn new(site: &Site) -> Self {
        Self {
            catalog: Arc::clone(&site.catalog),
            keys: site.block_keys(),
            libraries: site.libraries.clone(),
            library: Arc::clone(&site.library),
            clock: site.clock,
            events: Arc::clone(&site.events),
            holds: Arc::clone(&site.holds),
            mounts: Arc::clone(&site.mounts),
            drives: Arc::default(),
            is_stand_in: site.is_read_only(),
            is_of_queue: false,
            is_here_alone: false,
            purpose: MountPurpose::default(),
            is_impatient: false,
            unlike_waits: seats::UNLIKE_WAITS_MAX,
            looks: seats::LOOKS,
            stop: Arc::clone(&site.stop),
            passed_over: Arc::default(),
        }
    }

    /// The same mounter, which gives up waiting for a person when this is set.
    #[must_use]
    pub(crate) fn stopped_by(self, stop: &Arc<AtomicBool>) -> Self {
        Self { stop: Arc::clone(stop), ..self }
    }

    /// Another one for the same act, which waits for drives as if it were another job.
    #[must_use]
    pub(crate) fn beside(&self) -> Self {
        Self { drives: Arc::default(), ..self.clone() }
    }

    /// The same mounter for a run of a queue.
    #[must_use]
    pub(crate) fn of_queue(self) -> Self {
        Self { is_of_queue: true, ..self }
    }

    /// The same mounter for drives that the queue does not count.
    #[must_use]
    pub(crate) fn outside_queue(&self) -> Self {
        Self { is_of_queue: false, ..self.clone() }
    }

    /// Whether whoever waits is to stop.
    pub(crate) fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The same mounter, which tells somebody else what happens.
    #[must_use]
    pub(crate) fn telling(self, events: Events) -> Self {
        Self { events, ..self }
    }

    pub(crate) fn now_ns(&self) -> i64 {
        (self.clock)()
    }

    /// Barcodes of volumes that can be read: those in slots and drives of all libraries that answer. What lies in a
    /// mail slot is outside, on its way to the vault or waiting for `library import`; cleaning cartridges are no
    /// volumes. A person can fetch every volume there is. Which library has a volume is noted.
    ///
    /// With one library, what it answers is the answer, a failure too.
    pub(crate) fn present(&self) -> Result<Vec<Volser>, DirectorError> {
        if !self.libraries.are_several() {
            return self.present_here();
        }
        let (mut all, mut answered, mut failure) = (Vec::new(), Vec::new(), None);
        let libraries = self.libraries.all();
        let is_asked = |library: &&Arc<LibraryAt>| {
            Arc::ptr_eq(library, &self.library) || !self.mounts.silent.is_silent(&library.name)
        };
        for library in libraries.iter().filter(is_asked) {
            let found = self.volumes_in(library, is_inside);
            self.mounts.silent.note(&library.name, found.is_ok());
            match found {
                Ok(found) => {
                    answered.push(&library.name);
                    all.extend(found.into_iter().map(|volser| (volser, &library.name)));
                }
                Err(error) => {
                    self.mounts.silent.tell(&library.name, &with_causes(&error), &self.events);
                    failure = failure.or(Some(error));
                }
            }
        }
        if let (Some(error), true) = (failure, answered.is_empty()) {
            return Err(error);
        }
        // Whoever restores must be able to on a full disk, too.
        if let Err(error) = self.note_libraries(&all, &answered) {
            let message = format!("in which libraries volumes are could not be noted: {}", with_causes(&error));
            (self.events)(Event::Notice { message });
        }
        let mut volumes: Vec<_> = all.into_iter().map(|(volser, _)| volser).collect();
        volumes.sort();
        volumes.dedup();
        Ok(volumes)
    }

    /// The same of the library that the job writes in.
    pub(crate) fn present_here(&self) -> Result<Vec<Volser>, DirectorError> {
        self.volumes_in(&self.library, is_inside)
    }

    /// Barcodes of volumes that the job may write on: those in its library, unless the catalog knows them in another
    /// one that has them, or does not answer.
    pub(crate) fn present_to_write(&self) -> Result<Vec<Volser>, DirectorError> {
        let mut here = self.present_here()?;
        // One that does not answer holds up no job whose volumes are all known to be here.
        if !self.elsewhere(&here)?.is_empty() {
            self.present()?;
            let elsewhere = self.elsewhere(&here)?;
            here.retain(|volser| !elsewhere.contains(volser));
        }
        Ok(here)
    }

    /// Those of some volumes that the catalog knows in another library.
    fn elsewhere(&self, volumes: &[Volser]) -> Result<Vec<Volser>, DirectorError> {
        if !self.libraries.are_several() {
            return Ok(Vec::new());
        }
        let mut known = locked(&self.catalog).volumes()?;
        known.retain(|known| {
            let is_elsewhere = known.library != self.library.name && self.libraries.get(&known.library).is_some();
            is_elsewhere && volumes.contains(&known.volser)
        });
        Ok(known.into_iter().map(|volume| volume.volser).collect())
    }

    /// The same mounter, for volumes that are written: they are mounted in the library that the job writes in, wherever
    /// the catalog has seen them.
    #[must_use]
    pub(crate) fn here_alone(self) -> Self {
        Self { is_here_alone: true, ..self }
    }

    /// The same mounter, for volumes that are written, encrypted or not: with drives that can do that, and of these
    /// models if some are named.
    #[must_use]
    pub(crate) fn for_writing(self, encrypts: bool, models: &Arc<[String]>) -> Self {
        let purpose = MountPurpose { writes: true, encrypts, models: Arc::clone(models), ..MountPurpose::default() };
        Self { purpose, ..self }
    }

    /// Whether a drive that others have is waited for.
    pub(crate) fn waits_for_drives_now(&self) -> bool {
        !self.is_impatient
    }

    /// The same mounter, for what is done in a library.
    #[must_use]
    pub(crate) fn in_library(self, library: &Arc<LibraryAt>) -> Self {
        Self { library: Arc::clone(library), ..self }
    }

    /// From now on, whether a drive that others have is waited for.
    pub(crate) fn waits_for_drives(&mut self, waits: bool) {
        self.is_impatient = !waits;
    }

    /// The same mounter, for a volume that is written over as a person wants it: its key is not needed. What is known
    /// of its generation refuses no drive if the person means it (`--force`), since it may be wrong.
    #[must_use]
    pub(crate) fn for_writing_over(self, encrypts: bool, is_forced: bool) -> Self {
        let purpose = MountPurpose { writes: true, encrypts, afresh: true, is_forced, ..MountPurpose::default() };
        Self { purpose, ..self }
    }

    /// How well the drives of the library that the job writes in suit volumes, by their generations; those that are not
    /// named suit.
    pub(crate) fn write_fits(&self, volumes: &[Volume]) -> Result<HashMap<Volser, WriteFit>, DirectorError> {
        let MountPurpose { encrypts, models, .. } = &self.purpose;
        let generations: Vec<Option<String>> = volumes.iter().map(generation_of).collect();
        if models.is_empty() && generations.iter().all(Option::is_none) {
            return Ok(HashMap::new());
        }
        let drives = self.library.devices.describe_drives()?;
        let mut known: HashMap<Option<String>, WriteFit> = HashMap::new();
        let mut fit = |generation: Option<String>| {
            let needs =
                |generation| DriveNeeds { generation, writes: true, encrypts: *encrypts, models: models.to_vec() };
            *known.entry(generation.clone()).or_insert_with(|| needs(generation).write_fit(&drives))
        };
        let volumes = volumes.iter().map(|volume| volume.volser.clone());
        Ok(volumes.zip(generations).map(|(volser, generation)| (volser, fit(generation))).collect())
    }

    /// Barcodes of volumes in the library that the job writes in, its mail slots included.
    pub(crate) fn anywhere_here(&self) -> Result<Vec<Volser>, DirectorError> {
        self.volumes_in(&self.library, |_| true)
    }

    /// The same mounter, for jobs that write on a volume: in the library that has it.
    pub(crate) fn at_volume(self, volser: &Volser) -> Result<Self, DirectorError> {
        if !self.libraries.are_several() || self.anywhere_here().is_ok_and(|volumes| volumes.contains(volser)) {
            return Ok(self);
        }
        let library = match self.other_library(volser, &self.library) {
            Some(other) => other,
            None => Arc::clone(self.libraries.of_volume(&self.catalog, volser, &self.library)?),
        };
        Ok(Self { library, ..self })
    }

    /// Whether a library with a robot has a volume, its mail slots included.
    pub(crate) fn is_in_a_robot(&self, volser: &Volser) -> Result<bool, DirectorError> {
        let known = Arc::clone(self.libraries.of_volume(&self.catalog, volser, &self.library)?);
        for library in self.libraries.all().iter().filter(|library| library.config.loader() == Loader::Robot) {
            match self.volumes_in(library, |_| true) {
                Ok(volumes) if volumes.contains(volser) => return Ok(true),
                // Whether another one has it is no reason to keep it.
                Err(error) if Arc::ptr_eq(library, &known) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(false)
    }

    /// The volumes that the catalog knows in the library.
    pub(crate) fn volumes_of_library(&self) -> Result<Vec<Volume>, DirectorError> {
        let mut volumes = locked(&self.catalog).volumes()?;
        volumes.retain(|volume| volume.library == self.library.name || !self.libraries.are_several());
        Ok(volumes)
    }

    /// The room in the folders of the library that the job writes in, where it has rules for that.
    pub(crate) fn rooms(&self) -> Result<Vec<FolderRoom>, DirectorError> {
        match self.library.config.is_virtual() {
            true => Ok(self.library.devices.inventory()?.rooms),
            false => Ok(Vec::new()),
        }
    }

    fn volumes_in(
        &self,
        library: &LibraryAt,
        wanted: impl Fn(ElementAddress) -> bool,
    ) -> Result<Vec<Volser>, DirectorError> {
        if library.config.loader() == Loader::Person {
            let catalog = locked(&self.catalog);
            let (mut volumes, sent) = (catalog.volumes()?, catalog.sent_volumes()?);
            drop(catalog);
            volumes.retain(|volume| volume.library == library.name || !self.libraries.are_several());
            // What is at a vault lies on no shelf.
            volumes.retain(|volume| sent.iter().all(|sent| sent.volser != volume.volser));
            return Ok(volumes.into_iter().map(|volume| volume.volser).collect());
        }
        let there = library.devices.inventory()?.elements.into_iter().filter(|element| wanted(element.address));
        let volumes = there.filter_map(|element| element.volser);
        Ok(volumes.filter(|volser| !barcode::is_cleaning(volser)).collect())
    }

    /// Notes which libraries volumes were found in. One stays noted where it was if it is there too, or if that library
    /// did not answer: the other one may be a stranger of the same barcode.
    fn note_libraries(&self, found: &[(Volser, &String)], answered: &[&String]) -> Result<(), DirectorError> {
        if self.is_stand_in {
            return Ok(());
        }
        let mut there: HashMap<&Volser, Vec<&String>> = HashMap::new();
        found.iter().for_each(|(volser, library)| there.entry(volser).or_default().push(library));
        let mut catalog = locked(&self.catalog);
        for volume in catalog.volumes()? {
            let Some(libraries) = there.get(&volume.volser) else { continue };
            let is_known = self.libraries.get(&volume.library).is_some();
            let stays = libraries.contains(&&volume.library) || is_known && !answered.contains(&&volume.library);
            if let (false, Some(first)) = (stays, libraries.first()) {
                catalog.update_volume(&volume.volser, |volume| volume.library.clone_from(first))?;
            }
        }
        Ok(())
    }

    /// Another library than this one that has a volume.
    fn other_library(&self, volser: &Volser, than: &LibraryAt) -> Option<Arc<LibraryAt>> {
        let others = self.libraries.all().iter().filter(|library| library.name != than.name);
        let mut robots = others.filter(|library| library.config.loader() == Loader::Robot);
        let has = |library: &&Arc<LibraryAt>| {
            self.volumes_in(library, is_inside).is_ok_and(|volumes| volumes.contains(volser))
        };
        robots.find(has).map(Arc::clone)
    }

    /// Reserves a volume, brings it into a free drive and makes it ready.
    pub(crate) fn mount(&self, volser: &Volser) -> Result<InDrive, DirectorError> {
        self.mount_held(volser, Some(self.holds.volume(volser)?))
    }

    /// Brings a volume that is reserved into a free drive and makes it ready.
    pub(crate) fn mount_held(&self, volser: &Volser, hold: Option<Hold>) -> Result<InDrive, DirectorError> {
        if barcode::is_cleaning(volser) {
            return Err(DirectorError::Changer(ChangerError::CleaningCartridge { volser: volser.clone() }));
        }
        if let Some(hold) = &hold {
            self.mounts_under(hold);
        }
        let (mut waited, mut looked) =
            (seats::DriveWait::default(), self.is_here_alone || !self.libraries.are_several());
        let known = match self.is_here_alone {
            true => &self.library,
            false => self.libraries.of_volume(&self.catalog, volser, &self.library)?,
        };
        let mut library = Arc::clone(known);
        loop {
            match library.devices.mount(&self.mount_order(volser, hold.as_ref())?, self) {
                Ok(report) => return self.mounted_volume(report, volser, &library, hold),
                Err(DevicesError::NoDrive(busy)) if self.is_impatient => return Err(DirectorError::Changer(busy)),
                Err(DevicesError::NoDrive(busy)) => self.wait_for_drive(volser, busy, &library, &mut waited)?,
                // It may have been moved since it was seen there.
                Err(
                    error @ (DevicesError::Changer(ChangerError::UnknownVolume { .. }) | DevicesError::Connection(_)),
                ) if !looked => match self.other_library(volser, &library) {
                    Some(other) => (library, looked) = (other, true),
                    None => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What a volume needs of a drive for what it is mounted for.
    pub(crate) fn needs_of(&self, volser: &Volser) -> Result<DriveNeeds, DirectorError> {
        let known = locked(&self.catalog).volume(volser)?;
        Ok(self.needs_of_known(volser, known.as_ref()))
    }

    fn needs_of_known(&self, volser: &Volser, known: Option<&Volume>) -> DriveNeeds {
        let MountPurpose { writes, encrypts, models, afresh, is_forced } = &self.purpose;
        let is_encrypted = !afresh && known.is_some_and(|known| known.key.is_some());
        let generation = known.map_or_else(|| barcode::generation(volser), generation_of);
        let generation = generation.filter(|_| !is_forced);
        DriveNeeds { generation, writes: *writes, encrypts: *encrypts || is_encrypted, models: models.to_vec() }
    }

    fn mount_order(&self, volser: &Volser, hold: Option<&Hold>) -> Result<MountOrder, DirectorError> {
        let known = locked(&self.catalog).volume(volser)?;
        Ok(MountOrder {
            needs: self.needs_of_known(volser, known.as_ref()),
            volser: volser.clone(),
            reservation: self.reservation(hold),
            labelled: known.as_ref().is_some_and(|known| known.id.is_some()),
            first_key: known.and_then(|known| known.key).map(|key| key.tag),
        })
    }

    /// Notes that a volume in a drive is at no vault any more.
    fn note_back(&self, volser: &Volser) {
        if self.is_stand_in {
            return;
        }
        let mut catalog = locked(&self.catalog);
        let was_sent = catalog.sent_volumes().map(|sent| sent.iter().any(|sent| sent.volser == *volser));
        let noted = match was_sent {
            Ok(false) => return,
            Ok(true) => {
                let now_ns = self.now_ns();
                catalog.note_back(std::slice::from_ref(volser), now_ns, now_ns).map(drop)
            }
            Err(error) => Err(error),
        };
        drop(catalog);
        if let Err(error) = noted {
            let message =
                format!("that volume {volser} is back from its vault could not be noted: {}", with_causes(&error));
            (self.events)(Event::Notice { message });
        }
    }

    /// Records what was reported of a mount.
    fn mounted_volume(
        &self,
        report: MountReport,
        volser: &Volser,
        library: &Arc<LibraryAt>,
        hold: Option<Hold>,
    ) -> Result<InDrive, DirectorError> {
        // What a person brought in its place may have named others.
        self.forget_missed(volser);
        self.note_back(volser);
        self.note_left_alerts(&report.drive, volser, &report.left_alerts);
        if let Some(health) = &report.health {
            self.note_health(health, volser, Moment::Mounted);
        }
        let drive = report.drive.clone();
        (self.events)(Event::Mounted { volser: volser.clone(), drive: drive.clone() });
        let volume = InDrive {
            library: Arc::clone(library),
            mount: report.mount,
            drive,
            serial: report.drive_serial.and_then(|serial| serial.parse().ok()),
            volser: volser.clone(),
            medium: report.medium,
            worn: self.worn(volser),
            hold,
            of_job: Some(self.drives.one_more()),
            is_over: false,
        };
        match self.note_kind(&volume) {
            Ok(()) => Ok(volume),
            Err(error) => {
                let _ = self.dismount(volume);
                Err(error)
            }
        }
    }

    /// By which key a drive is reserved for this mount, and the generations of jobs that live, where they are known.
    fn reservation(&self, hold: Option<&Hold>) -> DriveReservation {
        let generation = hold.map_or_else(|| self.last_generation(), Hold::generation);
        let key = ReservationKey::new(self.holds.catalog_name(), generation);
        if generation == 0 || self.is_stand_in || self.holds.catalog_name().is_empty() {
            return DriveReservation { key, living: None };
        }
        let living = self.holds.living().ok();
        let living = living.map(|living| living.into_iter().map(|held| held.generation).collect());
        DriveReservation { key, living }
    }

    /// Keeps what the drive says of the medium, and where it is, for those who plan without a drive.
    fn note_kind(&self, volume: &InDrive) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        let Some(known) = catalog.volume(&volume.volser)? else { return Ok(()) };
        let kind = volume.kind(known.medium);
        let generation = volume.medium.generation.as_ref().or(known.generation.as_ref());
        if kind != known.medium || known.library != volume.library.name || known.generation.as_ref() != generation {
            catalog.update_volume(&volume.volser, |known| {
                known.medium = kind;
                known.generation = generation.cloned();
                known.library.clone_from(&volume.library.name);
            })?;
        }
        Ok(())
    }

    /// Unloads the drive and brings the volume back to its slot.
    pub(crate) fn dismount(&self, volume: InDrive) -> Result<(), DirectorError> {
        self.dismount_as(volume, None)
    }

    /// The same for a volume that was written: its cartridge's memory says what the catalog knows of it.
    pub(crate) fn dismount_written(&self, volume: InDrive) -> Result<(), DirectorError> {
        let description = self.description(&volume.volser);
        self.dismount_as(volume, description)
    }

    fn dismount_as(
        &self,
        mut volume: InDrive,
        description: Option<capstan_tape::VolumeDescription>,
    ) -> Result<(), DirectorError> {
        let report = volume.library.devices.dismount(&DismountOrder { mount: volume.mount, description })?;
        volume.is_over = true;
        let volser = &volume.volser;
        if let Some(health) = &report.health {
            self.note_health(health, volser, Moment::Leaving);
        }
        self.set_worn_aside(volser);
        locked(&self.mounts.left_alerts).retain(|(other, _)| other != volser);
        (self.events)(Event::Dismounted { volser: volser.clone(), drive: report.drive });
        for message in report.notices {
            (self.events)(Event::Notice { message });
        }
        Ok(report.outcome?)
    }

    /// Loads the key that the medium names, if it names one, and reads the label.
    pub(crate) fn open_label(&self, volume: &mut InDrive) -> Result<VolumeHeader, DirectorError> {
        if let EncryptionState::Encrypted { tag, .. } = volume.medium.encryption {
            let key = self.keys.drive_key(volume.cartridge(), &tag, volume.serial.as_ref())?;
            volume.set_key(Some(key))?;
        }
        volume.read_label()
    }

    /// Mounts a volume that is reserved to read it: like [`Mounter::mount_known`], and also where its label cannot be
    /// read, or has a key that is not there any more while later blocks have others. Which life a block belongs to each
    /// block says itself.
    pub(crate) fn mount_to_read(
        &self,
        volser: &Volser,
        life: VolumeId,
        hold: Option<Hold>,
    ) -> Result<InDrive, DirectorError> {
        self.mount_checked(volser, hold, |volume| match self.check_life(volume, life) {
            Err(DirectorError::Keys(error)) if is_gone(&error) => match volume.medium.encryption {
                EncryptionState::Encrypted { tag, .. } if self.went_on(volser, &tag)? => Ok(()),
                _ => Err(error.into()),
            },
            Err(error)
                if is_damaged_label(&error)
                    && volume.medium.encryption != EncryptionState::Blank
                    && self.volume(volser)?.checkpoint_lbn > 0 =>
            {
                let reason = with_causes(&error);
                let message =
                    format!("the label of volume {volser} cannot be read ({reason}); its blocks are read all the same");
                (self.events)(Event::Notice { message });
                if self.volume(volser)?.state != VolumeState::Suspect {
                    // Nothing can be added to it. On a full disk that is found again.
                    let _ = self.suspect(volser, &format!("its label cannot be read: {reason}"));
                }
                Ok(())
            }
            checked => checked,
        })
    }

    /// Mounts a volume that is reserved and must be the life that the catalog knows.
    pub(crate) fn mount_known(&self, volser: &Volser, life: VolumeId, hold: Hold) -> Result<InDrive, DirectorError> {
        self.mount_checked(volser, Some(hold), |volume| self.check_life(volume, life))
    }

    fn check_life(&self, volume: &mut InDrive, life: VolumeId) -> Result<(), DirectorError> {
        let header = self.open_label(volume)?;
        if header.volume == life {
            return Ok(());
        }
        let (volser, expected, found) = (volume.volser.clone(), life, header.volume);
        Err(capstan_mover::MoverError::OtherVolume { volser, expected, found }.into())
    }

    fn mount_checked(
        &self,
        volser: &Volser,
        hold: Option<Hold>,
        check: impl FnOnce(&mut InDrive) -> Result<(), DirectorError>,
    ) -> Result<InDrive, DirectorError> {
        let mut volume = self.mount_held(volser, hold)?;
        if let Err(error) = check(&mut volume) {
            // What is wrong with the volume matters more than that it could not be unloaded.
            let _ = self.dismount(volume);
            return Err(error);
        }
        Ok(volume)
    }

    /// Notes that a volume is not what it should be; it is read, and not written, until an operator clears it.
    pub(crate) fn suspect(&self, volser: &Volser, reason: &str) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        let known = catalog.update_volume(volser, |volume| {
            if volume.state != VolumeState::Retired {
                volume.state = VolumeState::Suspect;
            }
            volume.errors += 1;
        })?;
        if let Some(life) = known.id {
            // How far it can be read is not known: a verification says.
            let note = DamagedBlocks { first_lbn: 0, blocks: 0, reason: reason.to_owned() };
            catalog.record_damage(volser, life, &[note], "mount", self.now_ns())?;
        }
        Ok(())
    }

    /// Notes that a write-once volume is written no more, and says why.
    pub(crate) fn close_write_once(&self, volser: Volser, because: WriteOnceBar) -> Result<(), DirectorError> {
        let state = match because {
            WriteOnceBar::Tail { .. } => VolumeState::Full,
            WriteOnceBar::HoldsData | WriteOnceBar::NoLabel | WriteOnceBar::Scratch => VolumeState::Retired,
        };
        locked(&self.catalog).update_volume(&volser, |volume| volume.state = state)?;
        let error = DirectorError::WriteOnce { volser, because };
        (self.events)(Event::Notice { message: error.to_string() });
        Ok(())
    }

    pub(crate) fn volume(&self, volser: &Volser) -> Result<Volume, DirectorError> {
        let found = locked(&self.catalog).volume(volser)?;
        found.ok_or_else(|| DirectorError::UnknownVolume { volser: volser.to_string() })
    }
}

/// Whether a label is there and cannot be read; not that there is none, or another one.
fn is_damaged_label(error: &DirectorError) -> bool {
    match error {
        DirectorError::Mover(capstan_mover::MoverError::Format { .. }) => !error.is_of_later_version(),
        other => other.of_drive().is_some_and(|error| {
            matches!(
                error,
                DriveError::ReadFailed { .. }
                    | DriveError::Integrity { .. }
                    | DriveError::Reported { blames_medium: true, .. }
            )
        }),
    }
}

/// Whether a place is not a mail slot.
fn is_inside(address: ElementAddress) -> bool {
    !matches!(address, ElementAddress::ImportExport(_))
}

/// Whether this key is out of reach for good, or until somebody says otherwise, while others of its volume may not be.
fn is_gone(error: &KeyError) -> bool {
    matches!(error, KeyError::KeyDestroyed { .. } | KeyError::KeyMissing { .. })
        || error.past_its_time().is_some()
        || error.unconfirmed()
}

/// The generation of a volume's cartridge, as its drive said, or as its barcode says until it was mounted.
pub fn generation_of(volume: &Volume) -> Option<String> {
    volume.generation.clone().or_else(|| barcode::generation(&volume.volser))
}

impl MountWatch for Mounter {
    fn waiting(&self, message: String) {
        (self.events)(Event::Waiting { message });
    }

    fn notice(&self, message: String) {
        (self.events)(Event::Notice { message });
    }

    fn is_stopped(&self) -> bool {
        self.is_to_stop()
    }
}
