//! The devices of this process: its library, its drives.
//!
//! Locking: the library is locked while the robot moves, and for nothing else: not while a drive loads, a key is
//! fetched or a person is waited for. What is known of mounts is locked for one look or change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use capstan_format::{CatalogPart, MediumSerial, Volser, VolumeId};
use capstan_tape::model::DriveModel;
use capstan_tape::{
    AlertDemand, ChangerError, ChangerRequest, Drive, DriveDescription, DriveError, DriveKey, DriveNeeds, Element,
    ElementAddress, Finding, Flush, Keyed, Library, Medium, MonotonicClock, PaceMeter, Paced, Rewritability, barcode,
    with_causes,
};

use super::{
    ChangerOrder, Devices, DevicesError, DismountOrder, DismountReport, DriveReservation, KeySource, KeyWanted,
    LibraryInventory, MountOrder, MountReport, MountWatch, VolumeReport, VolumeRequest, by_hand,
};
use crate::{DriveHealth, FoundCheckpoint, MountId, MountedDrives, MoverError, VolumeReader, read_label, write_label};

/// Who brings cartridges to drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loader {
    /// A robot, or what stands for one.
    Robot,
    /// A person, who is asked.
    Person,
}

/// A library and its drives, used by this process.
pub struct LocalDevices {
    library: Arc<Mutex<dyn Library>>,
    loader: Loader,
    /// Whose time drives take.
    pace: Option<DriveModel>,
    keys: Arc<dyn KeySource>,
    drives: Arc<MountedDrives>,
    mounts: Mutex<HashMap<MountId, InDrive>>,
    /// Drives that failed when they were to be used last, and how.
    failed: Mutex<HashMap<u32, String>>,
    /// What was where when the library was asked last.
    last_inventory: Mutex<Option<LibraryInventory>>,
}

/// The library, while the robot moves.
type LockedLibrary<'a> = MutexGuard<'a, dyn Library + 'static>;

/// A volume that is in a drive.
#[derive(Clone)]
struct InDrive {
    number: u32,
    volser: Volser,
    /// What a paced drive does.
    meter: Option<PaceMeter>,
}

impl LocalDevices {
    /// Devices with no volume mounted. `pace` gives drives the time of a model; `drives` is where the data path of this
    /// process takes mounted drives from.
    pub fn new(
        library: Arc<Mutex<dyn Library>>,
        loader: Loader,
        pace: Option<DriveModel>,
        keys: Arc<dyn KeySource>,
        drives: Arc<MountedDrives>,
    ) -> Self {
        let (mounts, failed, last_inventory) = Default::default();
        Self { library, loader, pace, keys, drives, mounts, failed, last_inventory }
    }

    fn library(&self) -> LockedLibrary<'_> {
        // A thread that panicked leaves a library as it was after the last whole move.
        self.library.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inventory_of(&self, library: &mut (dyn Library + 'static)) -> Result<LibraryInventory, DevicesError> {
        let elements = library.inventory()?;
        let inventory = LibraryInventory { elements, findings: library.findings(), rooms: library.rooms()? };
        *self.last_inventory() = Some(inventory.clone());
        Ok(inventory)
    }

    fn last_inventory(&self) -> MutexGuard<'_, Option<LibraryInventory>> {
        self.last_inventory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mounts(&self) -> MutexGuard<'_, HashMap<MountId, InDrive>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<u32, String>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with a mounted drive that nobody uses at the time.
    fn with_drive<T>(
        &self,
        mount: MountId,
        work: impl FnOnce(&mut dyn Drive, &Volser) -> Result<T, MoverError>,
    ) -> Result<T, DevicesError> {
        let volser = self.mounts().get(&mount).map(|known| known.volser.clone());
        let volser = volser.ok_or(MoverError::NotMounted { mount })?;
        let mut drive = self.drives.take(mount)?;
        let done = work(drive.as_mut(), &volser);
        self.drives.give_back(mount, drive);
        Ok(done?)
    }

    /// A drive that is free and takes the volume, with the volume brought to it. `notices`: drives that failed and were
    /// not known to.
    fn take_drive(&self, order: &MountOrder, notices: &mut Vec<String>) -> Result<Taken, DevicesError> {
        let volser = &order.volser;
        let mut library = self.library();
        let drives = library.drives()?;
        let mut busy = ChangerError::UnknownDrive { drive: 0, drives };
        let mut failure = None;
        let LibraryInventory { elements, findings, .. } = self.inventory_of(&mut *library)?;
        if let Some(address) = mail_slot_of(&elements, volser) {
            return Err(DevicesError::InMailSlot { volser: volser.clone(), place: address.to_string() });
        }
        let described = library.describe_drives()?;
        let failed: Vec<u32> = self.failed().keys().copied().collect();
        let of_no_name = drives_of_no_name(&findings);
        let known = Known { elements: &elements, of_no_name: &of_no_name, failed: &failed, described: &described };
        for number in in_order(drives, volser, &order.needs, &known) {
            let unfit = described.get(number as usize).and_then(|drive| order.needs.refusal_of(number as usize, drive));
            if let Some(source) = unfit {
                if self.loader == Loader::Robot && holds(&elements, number, Some(volser)) {
                    library = self.bring_back(library, number, &order.reservation)?;
                }
                // Another drive may be fit for it, now or when it is free.
                if !matches!(busy, ChangerError::InUse { .. }) {
                    busy = ChangerError::Foreign { volser: volser.clone(), source: Box::new(source) };
                }
                continue;
            }
            let mut drive = match library.take_drive(number) {
                Ok(drive) => drive,
                Err(error @ ChangerError::InUse { .. }) => {
                    busy = error;
                    continue;
                }
                // No other drive can get what is in this one.
                Err(error) if holds(&elements, number, Some(volser)) => return Err(error.into()),
                Err(error) => {
                    let text = with_causes(&error);
                    let message = format!("drive {number} cannot be used, so another one is tried: {text}");
                    if self.failed().insert(number, text).is_none() {
                        notices.push(message);
                    }
                    failure = failure.or(Some(error.into()));
                    continue;
                }
            };
            // Reserved first: what a drive can do it says to whoever may use it.
            if let Err(reserved) = reserve(drive.as_mut(), &order.reservation) {
                busy = reserved;
                continue;
            }
            if let Some(source) = order.needs.refusal(&drive.identity(), described.get(number as usize)) {
                release(drive.as_mut());
                if self.loader == Loader::Robot && holds(&elements, number, Some(volser)) {
                    drop(drive);
                    library = self.bring_back(library, number, &order.reservation)?;
                }
                if !matches!(busy, ChangerError::InUse { .. }) {
                    busy = ChangerError::Foreign { volser: volser.clone(), source: Box::new(source) };
                }
                continue;
            }
            // A person may have put it in already.
            let comes = self.loader == Loader::Robot && !holds(&elements, number, Some(volser));
            let left_alerts = if comes { left_alerts(drive.as_mut()) } else { Vec::new() };
            let mut loaded = library.load(volser, number);
            // It was left in a drive that had failed.
            if let Err(ChangerError::InOtherDrive { drive: other, .. }) = loaded
                && failed.contains(&other)
            {
                match self.bring_back(library, other, &order.reservation) {
                    Ok(locked) => {
                        library = locked;
                        loaded = library.load(volser, number);
                    }
                    Err(error) => {
                        library = self.library();
                        release(drive.as_mut());
                        match error {
                            DevicesError::NoDrive(in_use) => busy = in_use,
                            // That drive may read it all the same, and is tried last.
                            error => failure = failure.or(Some(error)),
                        }
                        continue;
                    }
                }
            }
            let loaded = match loaded {
                Err(ChangerError::DriveFull { .. }) => {
                    // Left by a process that was killed: nobody uses this drive any more, and nobody can now.
                    drop(library);
                    let let_go = drive.unload().map_err(ChangerError::from);
                    library = self.library();
                    let_go.and_then(|()| library.unload(number)).and_then(|()| library.load(volser, number))
                }
                loaded => loaded,
            };
            if let Err(error) = loaded {
                release(drive.as_mut());
                if !matches!(error, ChangerError::InUse { .. }) {
                    return Err(error.into());
                }
                // The robot cannot bring it to this one: a cartridge without a name is in it, say. What somebody has
                // who ends it some time is waited for first.
                if !matches!(busy, ChangerError::InUse { .. }) {
                    busy = error;
                }
                continue;
            }
            let serial = serial_of(&mut *library, number);
            return Ok(Taken { drive, number, serial, left_alerts });
        }
        match (busy, failure) {
            (busy @ ChangerError::InUse { .. }, _) | (busy, None) => Err(DevicesError::NoDrive(busy)),
            (_, Some(failure)) => Err(failure),
        }
    }

    /// Brings a volume back to its slot that somebody left in a drive which cannot be used for what is wanted of it
    /// now. The library is not locked while the drive unloads.
    fn bring_back<'a>(
        &'a self,
        mut library: LockedLibrary<'a>,
        number: u32,
        reservation: &DriveReservation,
    ) -> Result<LockedLibrary<'a>, DevicesError> {
        let mut drive = match library.take_drive(number) {
            Ok(drive) => drive,
            Err(error @ ChangerError::InUse { .. }) => return Err(DevicesError::NoDrive(error)),
            Err(error) => return Err(error.into()),
        };
        reserve(drive.as_mut(), reservation).map_err(DevicesError::NoDrive)?;
        drop(library);
        let unloaded = drive.unload().map_err(ChangerError::from);
        release(drive.as_mut());
        let mut library = self.library();
        unloaded.and_then(|()| library.unload(number))?;
        Ok(library)
    }

    /// The same drive, at its pace and with the keys that blocks name.
    fn dressed(
        &self,
        drive: Box<dyn Drive>,
        volser: &Volser,
        serial: Option<&String>,
        cartridge: &Arc<OnceLock<MediumSerial>>,
    ) -> (Box<dyn Drive>, Option<PaceMeter>) {
        let (drive, meter): (Box<dyn Drive>, _) = match &self.pace {
            None => (drive, None),
            Some(model) => {
                let paced = Paced::new(drive, model.clone(), MonotonicClock::start());
                let meter = paced.meter();
                (Box::new(paced), Some(meter))
            }
        };
        let (keys, volser, cartridge) = (Arc::clone(&self.keys), volser.clone(), Arc::clone(cartridge));
        let serial = serial.cloned();
        let fetch = move |tag: &capstan_format::KeyTag| {
            let (volser, cartridge, drive) = (volser.clone(), cartridge.get().copied(), serial.clone());
            keys.key(&KeyWanted { tag: *tag, volser, cartridge, drive })
        };
        (Box::new(Keyed::new(drive, fetch)), meter)
    }

    /// Says how a paced drive fared with what it wrote.
    fn pace_of(&self, known: &InDrive) -> Option<String> {
        let totals = known.meter.as_ref()?.totals();
        let name = self.pace.as_ref().map(|model| model.name.as_str()).unwrap_or_default();
        (totals.tape_mb >= 1.0).then(|| {
            format!(
                "volume {}, at the pace of {name}: {:.0} MB in {:.1} s, the tape moved {:.0} % of the time and went back {}",
                known.volser,
                totals.tape_mb,
                totals.elapsed_s,
                100.0 * totals.streaming_s / totals.elapsed_s.max(f64::MIN_POSITIVE),
                if totals.backhitches == 1 { "once".to_owned() } else { format!("{} times", totals.backhitches) }
            )
        })
    }
}

/// A drive in use, with a volume in front of it.
struct Taken {
    drive: Box<dyn Drive>,
    number: u32,
    serial: Option<String>,
    left_alerts: Vec<u16>,
}

impl Devices for LocalDevices {
    fn drives(&self) -> Result<u32, DevicesError> {
        Ok(self.library().drives()?)
    }

    fn describe_drives(&self) -> Result<Vec<DriveDescription>, DevicesError> {
        Ok(self.library().describe_drives()?)
    }

    fn inventory(&self) -> Result<LibraryInventory, DevicesError> {
        self.inventory_of(&mut *self.library())
    }

    fn inventory_at_once(&self) -> Result<LibraryInventory, DevicesError> {
        match self.library.try_lock() {
            Ok(mut library) => self.inventory_of(&mut *library),
            Err(TryLockError::Poisoned(library)) => self.inventory_of(&mut *library.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let last = self.last_inventory().clone();
                last.map_or_else(|| self.inventory(), Ok)
            }
        }
    }

    fn change(&self, order: &ChangerOrder) -> Result<(), DevicesError> {
        let mut library = self.library();
        match order {
            ChangerOrder::Create(spec) => library.create_cartridge(spec)?,
            ChangerOrder::Load { volser, drive } => {
                let _taken = library.take_drive(*drive)?;
                match library.load(volser, *drive) {
                    // This is the order that cleans.
                    Err(ChangerError::CleaningCartridge { .. }) => {
                        library.carry_out_request(&ChangerRequest::Clean { volser: volser.clone(), drive: *drive })?;
                    }
                    loaded => loaded?,
                }
            }
            ChangerOrder::Unload { drive } => {
                let mut taken = library.take_drive(*drive)?;
                drop(library);
                taken.unload().map_err(ChangerError::from)?;
                self.library().unload(*drive)?;
            }
            ChangerOrder::Request(request @ ChangerRequest::Exchange { volser, drive }) => {
                // Before anything is let go for its sake.
                if !library.inventory()?.iter().any(|element| element.volser.as_ref() == Some(volser)) {
                    return Err(ChangerError::UnknownVolume { volser: volser.clone() }.into());
                }
                let mut taken = library.take_drive(*drive)?;
                drop(library);
                taken.unload().map_err(ChangerError::from)?;
                self.library().carry_out_request(request)?;
            }
            ChangerOrder::Request(request) => library.carry_out_request(request)?,
        }
        Ok(())
    }

    fn mount(&self, order: &MountOrder, watch: &dyn MountWatch) -> Result<MountReport, DevicesError> {
        let volser = &order.volser;
        if barcode::is_cleaning(volser) {
            return Err(ChangerError::CleaningCartridge { volser: volser.clone() }.into());
        }
        let mut notices = Vec::new();
        let taken = self.take_drive(order, &mut notices);
        // Where there was no other one, the error says it.
        if !matches!(taken, Err(DevicesError::Changer(_))) {
            notices.into_iter().for_each(|message| watch.notice(message));
        }
        let Taken { drive, number, serial, left_alerts } = taken?;
        let cartridge = Arc::default();
        let (mut drive, meter) = self.dressed(drive, volser, serial.as_ref(), &cartridge);
        let ready = match self.loader {
            Loader::Robot => drive.load().map_err(|error| MoverError::drive(volser)(error).into()),
            Loader::Person => {
                let keys = |tag| {
                    let (volser, cartridge, drive) = (volser.clone(), cartridge.get().copied(), serial.clone());
                    self.keys.key(&KeyWanted { tag, volser, cartridge, drive })
                };
                by_hand::ask_for(drive.as_mut(), number, order, &keys, watch)
            }
        };
        let medium = match ready {
            // The kernel's tape driver does not tell what the barcode may.
            Ok(medium) if medium.rewritability == Rewritability::Unknown => {
                Medium { rewritability: barcode::rewritability(volser), ..medium }
            }
            Ok(medium) => medium,
            Err(error) => {
                if is_of_drive(&error) {
                    self.failed().insert(number, with_causes(&error));
                }
                // The cartridge goes back; that it could not be loaded is the error to report. Many robots fetch no
                // cartridge that the drive has not let go of.
                let _ = drive.unload();
                release(drive.as_mut());
                let _ = self.library().unload(number);
                return Err(error);
            }
        };
        self.failed().remove(&number);
        if let Some(serial) = medium.serial {
            let _ = cartridge.set(serial);
        }
        if let Some(found) = medium.volser.as_ref().filter(|found| !by_hand::same_barcode(found, volser)) {
            let (found, name) = (found.clone(), drive.identity().name);
            // What is wrong with the library matters more than that the cartridge could not be put back.
            let _ = drive.unload();
            release(drive.as_mut());
            let _ = self.library().unload(number);
            return Err(DevicesError::WrongCartridge { volser: volser.clone(), found, drive: name });
        }
        let health = DriveHealth::of(drive.as_mut());
        let name = drive.identity().name;
        let mount = self.drives.add(drive);
        self.mounts().insert(mount, InDrive { number, volser: volser.clone(), meter });
        Ok(MountReport { mount, number, drive: name, drive_serial: serial, medium, left_alerts, health })
    }

    fn set_key(&self, mount: MountId, key: Option<DriveKey>) -> Result<(), DevicesError> {
        self.with_drive(mount, |drive, volser| drive.set_key(key).map_err(MoverError::drive(volser)))
    }

    fn at_volume(&self, mount: MountId, request: &VolumeRequest) -> Result<VolumeReport, DevicesError> {
        self.with_drive(mount, |drive, volser| carry_out(drive, volser, request))
    }

    fn catalog_part(
        &self,
        mount: MountId,
        volume: VolumeId,
        found: &FoundCheckpoint,
    ) -> Result<CatalogPart, DevicesError> {
        self.with_drive(mount, |drive, volser| VolumeReader::new(drive, volser.clone(), volume).catalog_part(found))
    }

    fn dismount(&self, order: &DismountOrder) -> Result<DismountReport, DevicesError> {
        let mount = order.mount;
        let mut drive = self.drives.take(mount)?;
        self.drives.remove(mount);
        let known = self.mounts().remove(&mount).ok_or(MoverError::NotMounted { mount })?;
        let mut notices = Vec::new();
        if let (Some(description), Some(care)) = (&order.description, drive.care())
            && let Err(error) = care.describe_volume(description)
        {
            notices.push(undescribed(&known.volser, &error));
        }
        let health = DriveHealth::of(drive.as_mut());
        let name = drive.identity().name;
        let unloaded = drive.unload();
        release(drive.as_mut());
        notices.extend(self.pace_of(&known));
        // The drive stays in use until the robot has been there.
        let back = self.library().unload(known.number);
        drop(drive);
        let outcome = match unloaded {
            Err(error) => Err(MoverError::drive(&known.volser)(error).into()),
            Ok(()) => {
                if self.loader == Loader::Person {
                    notices.push(format!("take volume {} out of drive {}", known.volser, known.number));
                }
                back.map_err(DevicesError::from)
            }
        };
        Ok(DismountReport { drive: name, health, notices, outcome })
    }

    fn abandon(&self, mount: MountId) {
        drop(self.drives.remove(mount));
        self.mounts().remove(&mount);
    }
}

fn undescribed(volser: &Volser, error: &DriveError) -> String {
    format!("the memory of cartridge {volser} could not be written: {}", with_causes(error))
}

fn carry_out(drive: &mut dyn Drive, volser: &Volser, request: &VolumeRequest) -> Result<VolumeReport, MoverError> {
    let at = || MoverError::drive(volser);
    let reader = |drive, volume: &VolumeId| VolumeReader::new(drive, volser.clone(), *volume);
    Ok(match request {
        VolumeRequest::ReadLabel => VolumeReport::Label(read_label(drive, volser)?),
        VolumeRequest::WriteLabel(header) => {
            write_label(drive, header)?;
            VolumeReport::Medium(drive.medium().map_err(at())?)
        }
        VolumeRequest::EndOfData => {
            drive.space_to_end_of_data().map_err(at())?;
            VolumeReport::Position(drive.position().map_err(at())?)
        }
        VolumeRequest::Flush => {
            drive.write_filemarks(0, Flush::Synchronous).map_err(at())?;
            VolumeReport::Done
        }
        VolumeRequest::Erase => {
            drive.erase().map_err(at())?;
            VolumeReport::Done
        }
        VolumeRequest::Describe(description) => {
            if let Some(care) = drive.care() {
                care.describe_volume(description).map_err(at())?;
            }
            VolumeReport::Done
        }
        VolumeRequest::LastCheckpoint(volume) => VolumeReport::Checkpoint(reader(drive, volume).last_checkpoint()?),
        VolumeRequest::LastCheckpointLbn(volume) => VolumeReport::Lbn(reader(drive, volume).last_checkpoint_lbn()?),
        VolumeRequest::Checkpoint(volume, lbn) => {
            VolumeReport::Checkpoint(Some(reader(drive, volume).checkpoint(*lbn)?))
        }
        VolumeRequest::CheckpointLbnBefore(volume, lbn) => {
            VolumeReport::Lbn(reader(drive, volume).checkpoint_lbn_before(*lbn)?)
        }
        VolumeRequest::SessionRecord(volume, lbn) => {
            let (session, record) = reader(drive, volume).session_record(*lbn)?;
            VolumeReport::Session(session, record)
        }
    })
}

/// Keeps other hosts away from a drive, where it can be done.
fn reserve(drive: &mut dyn Drive, reservation: &DriveReservation) -> Result<(), ChangerError> {
    let Some(care) = drive.care() else { return Ok(()) };
    let (key, living) = (reservation.key, reservation.living.as_deref());
    match care.reserve(key.0, &|other| living.is_some_and(|living| key.is_gone(other, living))) {
        Err(DriveError::InUse { what, holder }) => Err(ChangerError::InUse { what, holder }),
        // A drive that knows no reservations is used without; what else is wrong with it the next command tells.
        _ => Ok(()),
    }
}

/// Lets others have a drive that is not needed any more.
fn release(drive: &mut dyn Drive) {
    if let Some(care) = drive.care() {
        // A reservation that stays is this host's own, or of a job that is gone: the next mount takes it over.
        let _ = care.release();
    }
}

/// Flags that are up before a volume comes into a drive. What is said of a cartridge is said of the one before, and
/// some drives go on saying it.
fn left_alerts(drive: &mut dyn Drive) -> Vec<u16> {
    let Some(care) = drive.care() else { return Vec::new() };
    let of_cartridge =
        |alert: &capstan_tape::TapeAlert| !matches!(alert.demand, AlertDemand::Cleaning | AlertDemand::Repair);
    care.alerts().iter().filter(|alert| of_cartridge(alert)).map(|alert| alert.flag).collect()
}

/// The serial number of a drive, if the library tells it.
fn serial_of(library: &mut dyn Library, number: u32) -> Option<String> {
    // A library that cannot tell has given the drive all the same, and keys are asked for without its name.
    let mut drives = library.describe_drives().ok()?.into_iter();
    Some(drives.nth(number as usize)?.serial?.trim().to_owned())
}

/// Whether the drive may be at fault that a volume could not be loaded: another one is tried first then.
fn is_of_drive(error: &DevicesError) -> bool {
    let DevicesError::Mover(MoverError::Drive { source, .. }) = error else { return false };
    matches!(source, DriveError::Hardware { .. } | DriveError::OutOfReach { .. } | DriveError::NotReady { .. })
}

/// What is known of drives before one is taken.
struct Known<'a> {
    elements: &'a [Element],
    /// Those with a cartridge that has no name.
    of_no_name: &'a [u32],
    /// Those that failed.
    failed: &'a [u32],
    described: &'a [DriveDescription],
}

/// Drives in the order in which they are tried for a volume: one that it is in already, empty ones, and then those that
/// hold what somebody else may want to find there; among those, as what the volume needs says. Those that failed when
/// they were to be used last come behind them, even if it is in one of them, and last those with a cartridge that no
/// job knows by name.
fn in_order(drives: u32, volser: &Volser, needs: &DriveNeeds, known: &Known<'_>) -> Vec<u32> {
    let mut order: Vec<u32> = (0..drives).collect();
    let holds = |number: u32, volser| holds(known.elements, number, volser);
    let full = |number: u32| match (holds(number, Some(volser)), holds(number, None)) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    };
    let turn = |number: u32| known.described.get(number as usize).map(|drive| needs.turn_of(drive));
    order.sort_by_key(|number| {
        let (of_no_name, failed) = (known.of_no_name.contains(number), known.failed.contains(number));
        (of_no_name, failed, full(*number), turn(*number))
    });
    order
}

/// Drives with a cartridge that has no barcode, or none that is a volser.
fn drives_of_no_name(findings: &[Finding]) -> Vec<u32> {
    let number = |finding: &Finding| match finding {
        Finding::NoBarcode { at: ElementAddress::Drive(number) }
        | Finding::NoVolser { at: ElementAddress::Drive(number), .. } => Some(*number),
        _ => None,
    };
    findings.iter().filter_map(number).collect()
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
