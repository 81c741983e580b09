//! The mounter: brings volumes and drives together, loads keys, checks labels.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use capstan_catalog::{Catalog, DamagedBlocks, MediumKind, Moment, Volume, VolumeState};
use capstan_format::{KeyTag, Volser, VolumeHeader, VolumeId};
use capstan_keys::{Cartridge, KeyError, Name};
use capstan_mover::read_label;
use capstan_tape::model::DriveModel;
use capstan_tape::{
    ChangerError, Drive, DriveError, Element, ElementAddress, EncryptionState, Library, Medium, Paced, Rewritability,
    WallClock, barcode,
};

use crate::config::Loader;
use crate::drive_reservation::{MoverKey, release, reserve};
use crate::hold::{Hold, Holds};
use crate::mounts::Mounts;
use crate::shared::Clock;
use crate::site::{SharedKeys, SharedLibrary, Site, locked};
use crate::{DirectorError, Event, Events, WriteOnceBar};

mod by_hand;
mod findings;
mod keys;
mod read;
mod seats;

pub(crate) use keys::{for_drive, note_destroyed};
pub(crate) use read::ReadMounter;
pub(crate) use seats::Drives;

/// A volume in a drive.
pub(crate) struct InDrive {
    pub(crate) drive: Box<dyn Drive>,
    pub(crate) number: u32,
    /// The drive's serial number, if that is a name: what those who give out keys know it by.
    pub(crate) serial: Option<Name>,
    pub(crate) volser: Volser,
    pub(crate) medium: Medium,
    /// What the drive says against writing on it.
    pub(crate) worn: Option<String>,
    /// Its reservation, which ends behind the dismount. None where nothing could be recorded, and it is only read.
    pub(crate) hold: Option<Hold>,
}

impl InDrive {
    /// Refuses a write-protected volume, before anything is forgotten for its sake.
    pub(crate) fn check_writable(&self) -> Result<(), DirectorError> {
        if !self.medium.write_protected {
            return Ok(());
        }
        let source = DriveError::WriteProtected { drive: self.drive.identity().name };
        Err(DirectorError::Volume { volser: self.volser.clone(), source })
    }

    /// The cartridge, for those who give out keys.
    pub(crate) fn cartridge(&self) -> Cartridge<'_> {
        Cartridge { volser: &self.volser, serial: self.medium.serial.as_ref() }
    }

    /// Whether it can be written anew; what the catalog knows, where the drive cannot say.
    pub(crate) fn kind(&self, known: MediumKind) -> MediumKind {
        match self.medium.rewritability {
            Rewritability::Rewritable => MediumKind::Rewritable,
            Rewritability::WriteOnce => MediumKind::WriteOnce,
            Rewritability::Unknown => known,
        }
    }

    /// Refuses a volume that keeps what is on it, before anything is forgotten for its sake.
    pub(crate) fn check_rewritable(&self) -> Result<(), DirectorError> {
        let keeps = self.medium.rewritability == Rewritability::WriteOnce;
        if !keeps || self.medium.encryption == EncryptionState::Blank {
            return Ok(());
        }
        Err(DirectorError::WriteOnce { volser: self.volser.clone(), because: WriteOnceBar::HoldsData })
    }

    /// Refuses a write-once volume whose data does not end at `append_lbn`: what stands there cannot be written over.
    pub(crate) fn check_ends_at(&mut self, append_lbn: u64) -> Result<(), DirectorError> {
        if self.medium.rewritability != Rewritability::WriteOnce {
            return Ok(());
        }
        let ends = self.drive.space_to_end_of_data().and_then(|()| self.drive.position());
        let end = ends.map_err(|source| DirectorError::Volume { volser: self.volser.clone(), source })?;
        if end.lbn == append_lbn {
            return Ok(());
        }
        // A label without its filemark, and no room for one: the end of data is in front of where it was to be.
        let behind = end.lbn.checked_sub(append_lbn);
        let because = behind.map_or(WriteOnceBar::NoLabel, |blocks| WriteOnceBar::Tail { blocks });
        Err(DirectorError::WriteOnce { volser: self.volser.clone(), because })
    }

    /// Refuses a volume that its drive calls worn or damaged.
    pub(crate) fn check_sound(&self) -> Result<(), DirectorError> {
        let Some(reason) = self.worn.clone() else { return Ok(()) };
        Err(DirectorError::VolumeWorn { volser: self.volser.clone(), reason })
    }
}

/// Mounts and dismounts for one job. What is in drives is shared with all other jobs of the process ([`Mounts`]).
#[derive(Clone)]
pub(crate) struct Mounter {
    pub(crate) catalog: Arc<Mutex<Catalog>>,
    pub(crate) keys: Option<SharedKeys>,
    pub(crate) library: SharedLibrary,
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    pub(crate) holds: Arc<Holds>,
    pub(crate) mounts: Arc<Mounts>,
    drives: Arc<seats::JobDrives>,
    /// Whether the catalog stands in for one that cannot be written: what others reserve is not in it.
    is_stand_in: bool,
    /// Who brings cartridges.
    loader: Loader,
    /// Set when whoever waits for a person is to stop.
    stop: Arc<AtomicBool>,
    /// Whose time drives take.
    pace: Option<DriveModel>,
    /// Keys that blocks named and that could not be had, until somebody asks.
    missed: Arc<Mutex<Vec<(Volser, KeyTag)>>>,
    /// Volumes that were to be gone on with and are not any more, and why.
    passed_over: Arc<Mutex<Vec<(Volser, String)>>>,
}

impl Mounter {
    pub(crate) fn new(site: &Site) -> Self {
        Self {
            catalog: Arc::clone(&site.catalog),
            keys: site.keys.clone(),
            library: Arc::clone(&site.library),
            clock: site.clock,
            events: Arc::clone(&site.events),
            holds: Arc::clone(&site.holds),
            mounts: Arc::clone(&site.mounts),
            drives: Arc::default(),
            is_stand_in: site.is_read_only(),
            loader: site.config.library.loader(),
            stop: Arc::default(),
            // A setting that names no model was refused when it was read.
            pace: site.config.pace().unwrap_or_default(),
            missed: Arc::default(),
            passed_over: Arc::default(),
        }
    }

    /// The same mounter, which gives up waiting for a person when this is set.
    #[must_use]
    pub(crate) fn stopped_by(self, stop: &Arc<AtomicBool>) -> Self {
        Self { stop: Arc::clone(stop), ..self }
    }

    pub(crate) fn now_ns(&self) -> i64 {
        (self.clock)()
    }

    /// Barcodes of volumes that jobs may take: those in slots and drives. What lies in a mail slot is outside, on its
    /// way to the vault or waiting for `library import`; cleaning cartridges are no volumes. A person can fetch every
    /// volume there is.
    pub(crate) fn present(&self) -> Result<Vec<Volser>, DirectorError> {
        self.volumes_at(|address| !matches!(address, ElementAddress::ImportExport(_)))
    }

    /// Barcodes of volumes in the library, its mail slots included.
    pub(crate) fn present_anywhere(&self) -> Result<Vec<Volser>, DirectorError> {
        self.volumes_at(|_| true)
    }

    fn volumes_at(&self, wanted: impl Fn(ElementAddress) -> bool) -> Result<Vec<Volser>, DirectorError> {
        if self.loader == Loader::Person {
            let volumes = locked(&self.catalog).volumes()?;
            return Ok(volumes.into_iter().map(|volume| volume.volser).collect());
        }
        let elements = locked(&self.library).inventory().map_err(DirectorError::Changer)?;
        let there = elements.into_iter().filter(|element| wanted(element.address));
        let volumes = there.filter_map(|element| element.volser);
        Ok(volumes.filter(|volser| !barcode::is_cleaning(volser)).collect())
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
        let (mut hold, mut said) = (hold, false);
        loop {
            match self.mount_in_a_free_drive(volser, &mut hold)? {
                Ok(volume) => return Ok(volume),
                Err(busy) => self.wait_for_drive(volser, busy, &mut said)?,
            }
        }
    }

    /// Brings a volume into a free drive and makes it ready; why there is none, if there is none.
    fn mount_in_a_free_drive(
        &self,
        volser: &Volser,
        hold: &mut Option<Hold>,
    ) -> Result<Result<InDrive, ChangerError>, DirectorError> {
        let (key, living) = self.mover_key(hold.as_ref());
        let mut library = locked(&self.library);
        let drives = library.drives().map_err(DirectorError::Changer)?;
        let mut busy = ChangerError::UnknownDrive { drive: 0, drives };
        let elements = library.inventory().map_err(DirectorError::Changer)?;
        if let Some(address) = mail_slot_of(&elements, volser) {
            return Err(DirectorError::InMailSlot { volser: volser.clone(), place: address.to_string() });
        }
        for number in in_order(drives, volser, &elements) {
            let mut drive = match library.take_drive(number) {
                Ok(drive) => drive,
                Err(error @ ChangerError::InUse { .. }) => {
                    busy = error;
                    continue;
                }
                Err(error) => return Err(DirectorError::Changer(error)),
            };
            if let Some(source) = barcode::foreign_to(volser, &drive.identity()) {
                // Another drive may take it, now or when it is free.
                if !matches!(busy, ChangerError::InUse { .. }) {
                    busy = ChangerError::Foreign { volser: volser.clone(), source: Box::new(source) };
                }
                continue;
            }
            if let Err(reserved) = reserve(drive.as_mut(), key, living.as_deref()) {
                busy = reserved;
                continue;
            }
            // A person may have put it in already.
            if self.loader == Loader::Robot && !holds(&elements, number, Some(volser)) {
                self.take_left_alerts(drive.as_mut(), volser);
            }
            let loaded = match library.load(volser, number) {
                Err(ChangerError::DriveFull { .. }) => {
                    // Left by a process that was killed: nobody uses this drive any more.
                    let let_go = drive.unload().map_err(ChangerError::from);
                    let_go.and_then(|()| library.unload(number)).and_then(|()| library.load(volser, number))
                }
                loaded => loaded,
            };
            if let Err(error) = loaded {
                release(drive.as_mut());
                return Err(DirectorError::Changer(error));
            }
            let serial = serial(&mut *library, number);
            drop(library);
            let on = keys::OnCartridge::default();
            let mut drive = self.keyed(self.paced(drive, number), volser, serial.clone(), &on);
            let ready = match self.loader {
                Loader::Robot => {
                    drive.load().map_err(|source| DirectorError::Volume { volser: volser.clone(), source })
                }
                Loader::Person => self.ask_for(drive.as_mut(), number, serial.as_ref(), volser),
            };
            let medium = match ready {
                // The kernel's tape driver does not tell what the barcode may.
                Ok(medium) if medium.rewritability == Rewritability::Unknown => {
                    Medium { rewritability: barcode::rewritability(volser), ..medium }
                }
                Ok(medium) => medium,
                Err(error) => {
                    // The cartridge goes back; that it could not be loaded is the error to report.
                    release(drive.as_mut());
                    let _ = locked(&self.library).unload(number);
                    return Err(error);
                }
            };
            if let Some(serial) = medium.serial {
                let _ = on.set(serial);
            }
            if let Some(found) = medium.volser.as_ref().filter(|found| !same_barcode(found, volser)) {
                let (found, drive_name) = (found.clone(), drive.identity().name);
                // What is wrong with the library matters more than that the cartridge could not be put back.
                let _ = drive.unload();
                release(drive.as_mut());
                let _ = locked(&self.library).unload(number);
                return Err(DirectorError::WrongCartridge { volser: volser.clone(), found, drive: drive_name });
            }
            self.ask_drive(drive.as_mut(), volser, Moment::Mounted);
            (self.events)(Event::Mounted { volser: volser.clone(), drive: drive.identity().name });
            let worn = self.worn(volser);
            let hold = hold.take();
            let volume = InDrive { drive, number, serial, volser: volser.clone(), medium, worn, hold };
            if let Err(error) = self.note_kind(&volume) {
                let _ = self.dismount(volume.drive, number, volser);
                return Err(error);
            }
            return Ok(Ok(volume));
        }
        Ok(Err(busy))
    }

    /// By which key drives are reserved for this mount, and the generations of jobs that live, where they are known.
    fn mover_key(&self, hold: Option<&Hold>) -> (MoverKey, Option<Vec<u64>>) {
        let generation = hold.map_or_else(|| self.last_generation(), Hold::generation);
        let key = MoverKey::new(self.holds.catalog_name(), generation);
        if generation == 0 || self.is_stand_in || self.holds.catalog_name().is_empty() {
            return (key, None);
        }
        let living = self.holds.living().ok();
        (key, living.map(|living| living.into_iter().map(|held| held.generation).collect()))
    }

    /// Keeps what the drive says of the medium, for those who plan without a drive.
    fn note_kind(&self, volume: &InDrive) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        let Some(known) = catalog.volume(&volume.volser)? else { return Ok(()) };
        let kind = volume.kind(known.medium);
        if kind != known.medium {
            catalog.update_volume(&volume.volser, |known| known.medium = kind)?;
        }
        Ok(())
    }

    fn paced(&self, drive: Box<dyn Drive>, number: u32) -> Box<dyn Drive> {
        let Some(model) = &self.pace else { return drive };
        let paced = Paced::new(drive, model.clone(), WallClock::start());
        locked(&self.mounts.meters).push((number, paced.meter()));
        Box::new(paced)
    }

    /// Says how a paced drive fared with what it wrote.
    fn tell_pace(&self, number: u32, volser: &Volser) {
        let mut meters = locked(&self.mounts.meters);
        let Some(at) = meters.iter().position(|(drive, _)| *drive == number) else { return };
        let totals = meters.swap_remove(at).1.totals();
        let name = self.pace.as_ref().map(|model| model.name.as_str()).unwrap_or_default();
        if totals.tape_mb < 1.0 {
            return;
        }
        let message = format!(
            "volume {volser}, at the pace of {name}: {:.0} MB in {:.1} s, the tape moved {:.0} % of the time and went back {}",
            totals.tape_mb,
            totals.elapsed_s,
            100.0 * totals.streaming_s / totals.elapsed_s.max(f64::MIN_POSITIVE),
            if totals.backhitches == 1 { "once".to_owned() } else { format!("{} times", totals.backhitches) }
        );
        (self.events)(Event::Notice { message });
    }

    /// Unloads the drive and brings the volume back to its slot.
    pub(crate) fn dismount(
        &self,
        mut drive: Box<dyn Drive>,
        number: u32,
        volser: &Volser,
    ) -> Result<(), DirectorError> {
        self.ask_drive(drive.as_mut(), volser, Moment::Leaving);
        self.set_worn_aside(volser);
        locked(&self.mounts.left_alerts).retain(|(other, _)| other != volser);
        let name = drive.identity().name;
        let unloaded = drive.unload();
        release(drive.as_mut());
        (self.events)(Event::Dismounted { volser: volser.clone(), drive: name });
        self.tell_pace(number, volser);
        let back = locked(&self.library).unload(number);
        unloaded.map_err(|source| DirectorError::Volume { volser: volser.clone(), source })?;
        if self.loader == Loader::Person {
            (self.events)(Event::Notice { message: format!("take volume {volser} out of drive {number}") });
        }
        back.map_err(DirectorError::Changer)
    }

    /// Loads the key that the medium names, if it names one, and reads the label.
    pub(crate) fn open_label(&self, volume: &mut InDrive) -> Result<VolumeHeader, DirectorError> {
        if let EncryptionState::Encrypted { tag, .. } = volume.medium.encryption {
            let key = self.drive_key(volume.cartridge(), &tag, volume.serial.as_ref())?;
            volume.drive.set_key(Some(key))?;
        }
        Ok(read_label(volume.drive.as_mut(), &volume.volser)?)
    }

    /// Mounts a volume that is reserved to read it: like [`Mounter::mount_known`], and also where its label has a key
    /// that is not there any more while later blocks have others. Which life a block belongs to each block says itself.
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
            let _ = self.dismount(volume.drive, volume.number, volser);
            return Err(error);
        }
        Ok(volume)
    }

    /// Notes that a volume is not what it should be; it is read, and not written, until an operator clears it.
    pub(crate) fn suspect(&self, volser: &Volser, reason: &str) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        let known = catalog.update_volume(volser, |volume| {
            volume.state = VolumeState::Suspect;
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

/// Whether this key is out of reach for good, or until somebody says otherwise, while others of its volume may not be.
fn is_gone(error: &KeyError) -> bool {
    matches!(error, KeyError::KeyDestroyed { .. } | KeyError::KeyMissing { .. })
        || error.past_its_time().is_some()
        || error.unconfirmed()
}

/// The serial number of a drive, if the library tells it and it is a name.
fn serial(library: &mut dyn Library, number: u32) -> Option<Name> {
    // A library that cannot tell has given the drive all the same, and keys are asked for without its name.
    let mut drives = library.describe_drives().ok()?.into_iter();
    drives.nth(number as usize)?.serial?.trim().parse().ok()
}

/// Whether a cartridge's memory and the robot mean the same barcode: some leave out the two characters of the media
/// type.
fn same_barcode(one: &Volser, other: &Volser) -> bool {
    one.as_str().starts_with(other.as_str()) || other.as_str().starts_with(one.as_str())
}

/// Drives in the order in which they are tried for a volume: one that it is in already, empty ones, and last those that
/// hold what somebody else may want to find there.
fn in_order(drives: u32, volser: &Volser, elements: &[Element]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..drives).collect();
    order.sort_by_key(|number| match (holds(elements, *number, Some(volser)), holds(elements, *number, None)) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    });
    order
}

/// The mail slot that a volume lies in.
fn mail_slot_of(elements: &[Element], volser: &Volser) -> Option<ElementAddress> {
    let there = elements.iter().find(|element| element.volser.as_ref() == Some(volser))?;
    matches!(there.address, ElementAddress::ImportExport(_)).then_some(there.address)
}

/// Whether this, a volume or none, is in a drive.
fn holds(elements: &[Element], drive: u32, volser: Option<&Volser>) -> bool {
    let address = ElementAddress::Drive(drive);
    let there = elements.iter().find(|element| element.address == address);
    there.and_then(|element| element.volser.as_ref()) == volser
}
