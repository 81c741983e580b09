//! Mounts in libraries whose drives fail, are full, or are in use.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use capstan_format::Volser;
use capstan_mover::devices::{
    ChangerOrder, Devices, DevicesError, DismountOrder, DriveReservation, KeySource, KeyWanted, Loader, LocalDevices,
    MountOrder, MountReport, MountWatch, ReservationKey,
};
use capstan_mover::{HostError, MountedDrives};
use capstan_tape::{
    BlockLimits, CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveCare, DriveDescription, DriveError,
    DriveIdentity, DriveKey, Element, ElementAddress, Finding, Flush, Library, Medium, Position, ReadOutcome,
    VirtualLibrary, WriteOutcome,
};

/// What goes wrong, by drive.
#[derive(Default)]
struct Trouble {
    /// Its node is gone.
    gone: HashSet<u32>,
    /// Another program has it.
    in_use: HashSet<u32>,
    /// So many loads fail.
    loads_fail: HashMap<u32, u32>,
    /// So many unloads fail.
    unloads_fail: HashMap<u32, u32>,
    /// It has not let go of its cartridge.
    held: HashSet<u32>,
    /// It is full of a cartridge that has no barcode.
    of_no_name: HashSet<u32>,
    /// The inventory does not tell.
    says_nothing: bool,
    /// The library, and how many unloads found it locked or not.
    library: Option<Weak<Mutex<dyn Library>>>,
    unlocked: u32,
    locked: u32,
    /// In which order drives were taken.
    taken: Vec<u32>,
}

impl Trouble {
    /// Whether one more fails.
    fn fails(counts: &mut HashMap<u32, u32>, drive: u32) -> Result<(), DriveError> {
        match counts.get_mut(&drive) {
            Some(count) if *count > 0 => {
                *count -= 1;
                Err(DriveError::Hardware { drive: format!("virtual-{drive}"), reason: "a worn head".to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// A virtual library in which something goes wrong.
struct Troubled {
    inner: VirtualLibrary,
    trouble: Arc<Mutex<Trouble>>,
}

impl Troubled {
    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap()
    }
}

impl Changer for Troubled {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        self.inner.inventory()
    }

    /// As a robot does it, which takes nothing out of another drive.
    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        if self.trouble().of_no_name.contains(&drive) {
            let (what, holder) = (format!("drive {drive}"), "a cartridge without a barcode".to_owned());
            return Err(ChangerError::InUse { what, holder });
        }
        let in_drive = |element: &Element| match element.address {
            ElementAddress::Drive(other) if other != drive && element.volser.as_ref() == Some(volser) => Some(other),
            _ => None,
        };
        match self.inner.inventory()?.iter().find_map(in_drive) {
            Some(drive) => {
                Err(ChangerError::InOtherDrive { volser: volser.clone(), drive, holder: "nobody".to_owned() })
            }
            None => self.inner.load(volser, drive),
        }
    }

    /// As a library does it that does not have its drives unload.
    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        if self.trouble().held.contains(&drive) {
            let (what, holder) = (format!("the cartridge in drive {drive}"), "the drive".to_owned());
            return Err(ChangerError::InUse { what, holder });
        }
        self.inner.unload(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        self.inner.carry_out_request(request)
    }

    fn findings(&self) -> Vec<Finding> {
        let trouble = self.trouble();
        let told = trouble.of_no_name.iter().filter(|_| !trouble.says_nothing);
        told.map(|drive| Finding::NoBarcode { at: ElementAddress::Drive(*drive) }).collect()
    }
}

impl Library for Troubled {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        self.inner.drives()
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        self.inner.describe_drives()
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        let what = format!("/dev/sg{drive}");
        if self.trouble().gone.contains(&drive) {
            return Err(ChangerError::Host { what, source: std::io::ErrorKind::NotFound.into() });
        }
        if self.trouble().in_use.contains(&drive) {
            return Err(ChangerError::InUse { what, holder: "somebody".to_owned() });
        }
        self.trouble().taken.push(drive);
        let (inner, trouble) = (self.inner.take_drive(drive)?, Arc::clone(&self.trouble));
        Ok(Box::new(TroubledDrive { inner, number: drive, trouble }))
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        self.inner.create_cartridge(spec)
    }
}

/// A drive of it.
struct TroubledDrive {
    inner: Box<dyn Drive>,
    number: u32,
    trouble: Arc<Mutex<Trouble>>,
}

impl Drive for TroubledDrive {
    fn identity(&self) -> DriveIdentity {
        self.inner.identity()
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        let mut trouble = self.trouble.lock().unwrap();
        trouble.held.insert(self.number);
        Trouble::fails(&mut trouble.loads_fail, self.number)?;
        self.inner.load()
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        let mut trouble = self.trouble.lock().unwrap();
        let library = trouble.library.as_ref().and_then(Weak::upgrade).unwrap();
        match library.try_lock() {
            Ok(_) => trouble.unlocked += 1,
            Err(_) => trouble.locked += 1,
        }
        Trouble::fails(&mut trouble.unloads_fail, self.number)?;
        trouble.held.remove(&self.number);
        self.inner.unload()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        self.inner.medium()
    }

    fn block_limits(&self) -> BlockLimits {
        self.inner.block_limits()
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.inner.position()
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.inner.locate(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.inner.space_to_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.inner.space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        self.inner.read_block(buffer)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        self.inner.write_block(block)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        self.inner.write_filemarks(count, flush)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.inner.erase()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        self.inner.set_key(key)
    }

    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        self.inner.recommended_order(stretches)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        self.inner.care()
    }
}

/// Has no key.
struct NoKeys;

impl KeySource for NoKeys {
    fn key(&self, wanted: &KeyWanted) -> Result<DriveKey, HostError> {
        Err(format!("nobody has key {}", wanted.tag).into())
    }
}

/// Keeps what it is told.
#[derive(Default)]
struct Notices(Mutex<Vec<String>>);

impl MountWatch for Notices {
    fn waiting(&self, message: String) {
        panic!("{message}");
    }

    fn notice(&self, message: String) {
        self.0.lock().unwrap().push(message);
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

/// A library of two drives with cartridges A00001 and A00002, and what goes wrong there.
struct Site {
    _folder: tempfile::TempDir,
    devices: LocalDevices,
    trouble: Arc<Mutex<Trouble>>,
    notices: Notices,
}

impl Site {
    fn new() -> Self {
        let (folder, trouble) = (tempfile::tempdir().unwrap(), Arc::<Mutex<Trouble>>::default());
        let inner = VirtualLibrary::open(folder.path(), 2).unwrap();
        let library: Arc<Mutex<dyn Library>> = Arc::new(Mutex::new(Troubled { inner, trouble: Arc::clone(&trouble) }));
        trouble.lock().unwrap().library = Some(Arc::downgrade(&library));
        let mounted = Arc::new(MountedDrives::new());
        let devices = LocalDevices::new(library, Loader::Robot, None, Arc::new(NoKeys), mounted);
        for name in ["A00001", "A00002"] {
            devices.change(&ChangerOrder::Create(spec(name))).unwrap();
        }
        Self { _folder: folder, devices, trouble, notices: Notices::default() }
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap()
    }

    fn try_mount(&self, name: &str) -> Result<MountReport, DevicesError> {
        let reservation = DriveReservation { key: ReservationKey::new("mounts", 1), living: None };
        let (labelled, first_key, needs) = Default::default();
        let order = MountOrder { volser: volser(name), reservation, labelled, first_key, needs };
        self.devices.mount(&order, &self.notices)
    }

    fn mount(&self, name: &str) -> MountReport {
        self.try_mount(name).unwrap()
    }

    fn dismount(&self, report: &MountReport) {
        let order = DismountOrder { mount: report.mount, description: None };
        self.devices.dismount(&order).unwrap().outcome.unwrap();
    }

    /// The drive that a volume is in.
    fn drive_of(&self, name: &str) -> Option<u32> {
        let elements = self.devices.inventory().unwrap().elements;
        match elements.into_iter().find(|element| element.volser == Some(volser(name))).unwrap().address {
            ElementAddress::Drive(number) => Some(number),
            _ => None,
        }
    }

    fn notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.notices.0.lock().unwrap())
    }
}

fn spec(name: &str) -> CartridgeSpec {
    CartridgeSpec {
        volser: volser(name),
        capacity_bytes: 16 << 20,
        early_warning_bytes: 1 << 20,
        generation: "virtual".to_owned(),
    }
}

fn volser(name: &str) -> Volser {
    name.parse().unwrap()
}

/// A drive whose node was gone was tried first, as it was empty, and its error ended every job, though another drive
/// stood idle.
#[test]
fn a_drive_that_cannot_be_opened_is_passed_over_and_told_once() {
    let site = Site::new();
    site.trouble().gone.insert(0);
    for told in [1, 0] {
        let report = site.mount("A00001");
        assert_eq!(report.number, 1);
        let notices = site.notices();
        assert!(notices.len() == told && notices.iter().all(|text| text.contains("/dev/sg0")), "{notices:?}");
        site.dismount(&report);
    }
    site.trouble().gone.clear();
    let (one, other) = (site.mount("A00001"), site.mount("A00002"));
    assert_eq!(one.number + other.number, 1, "it is used again");
    site.dismount(&one);
    site.dismount(&other);
}

#[test]
fn a_drive_that_is_in_use_is_waited_for_before_one_that_cannot_be_opened_is_an_error() {
    let site = Site::new();
    site.trouble().gone.insert(0);
    site.trouble().in_use.insert(1);
    let busy = site.try_mount("A00001");
    assert!(matches!(&busy, Err(DevicesError::NoDrive(ChangerError::InUse { .. }))), "{busy:?}");
    site.trouble().gone.insert(1);
    let gone = site.try_mount("A00001");
    assert!(matches!(&gone, Err(DevicesError::Changer(ChangerError::Host { .. }))), "{gone:?}");
    site.trouble().gone.clear();
    site.trouble().in_use.clear();
    site.dismount(&site.mount("A00001"));
}

/// Its cartridge was not let go of, so that the robot could not fetch it; and as it held the volume, it was tried first
/// for ever.
#[test]
fn a_drive_that_fails_a_load_lets_go_and_is_tried_last_until_one_succeeds() {
    let site = Site::new();
    site.trouble().loads_fail.insert(0, 1);
    let failed = site.try_mount("A00001");
    assert!(matches!(failed, Err(DevicesError::Mover(_))), "{failed:?}");
    assert_eq!(site.drive_of("A00001"), None, "it went back to its slot");
    for _ in 0..2 {
        let report = site.mount("A00001");
        assert_eq!(report.number, 1);
        site.dismount(&report);
    }
    let (one, other) = (site.mount("A00001"), site.mount("A00002"));
    assert_eq!((one.number, other.number), (1, 0), "it is better than none");
    site.dismount(&one);
    site.dismount(&other);
    let again = site.mount("A00001");
    assert_eq!(again.number, 0, "it has loaded a cartridge since");
    site.dismount(&again);
}

#[test]
fn a_volume_in_a_drive_that_failed_is_fetched_out_for_another_one() {
    let site = Site::new();
    site.trouble().loads_fail.insert(0, 1);
    site.trouble().unloads_fail.insert(0, 1);
    site.try_mount("A00001").unwrap_err();
    assert_eq!(site.drive_of("A00001"), Some(0), "it is stuck there");
    let report = site.mount("A00001");
    assert_eq!(report.number, 1);
    site.dismount(&report);
    // Now it stays there, and is read where it is.
    let other = site.mount("A00002");
    assert_eq!(other.number, 1);
    site.trouble().loads_fail.insert(0, 1);
    site.trouble().unloads_fail.insert(0, 2);
    site.try_mount("A00001").unwrap_err();
    site.dismount(&other);
    let report = site.mount("A00001");
    assert_eq!(report.number, 0);
    site.dismount(&report);
}

/// It counted as an empty one, was tried first, and ended the mount though another drive was empty.
#[test]
fn a_drive_with_a_cartridge_of_no_name_is_tried_last_and_waited_for() {
    let site = Site::new();
    site.trouble().of_no_name.insert(0);
    let report = site.mount("A00001");
    assert_eq!((report.number, std::mem::take(&mut site.trouble().taken)), (1, vec![1]));
    let busy = site.try_mount("A00002").map_err(|error| error.to_string());
    assert!(busy.as_ref().is_err_and(|text| text.starts_with("drive 1 is in use by ")), "{busy:?}");
    site.dismount(&report);
    // Even one that has failed is better.
    site.trouble().loads_fail.insert(1, 1);
    site.try_mount("A00001").unwrap_err();
    site.trouble().taken.clear();
    let report = site.mount("A00001");
    assert_eq!((report.number, site.trouble().taken.clone()), (1, vec![1]));
    site.dismount(&report);
}

/// What the inventory did not tell.
#[test]
fn a_robot_that_cannot_fill_one_drive_fills_another() {
    let site = Site::new();
    site.trouble().of_no_name.insert(0);
    site.trouble().says_nothing = true;
    let report = site.mount("A00001");
    assert_eq!((report.number, site.trouble().taken.clone()), (1, vec![0, 1]));
    site.dismount(&report);
}

/// The robot stood still for everybody while one drive unloaded, which may take two hours.
#[test]
fn the_library_is_free_while_a_drive_unloads() {
    let site = Site::new();
    let unloads = |what: &str, unlocked: u32| {
        let trouble = site.trouble();
        assert_eq!((trouble.unlocked, trouble.locked), (unlocked, 0), "{what}");
    };
    let (one, other) = (volser("A00001"), volser("A00002"));
    let change = |order| site.devices.change(&order).unwrap();
    change(ChangerOrder::Load { volser: one.clone(), drive: 0 });
    change(ChangerOrder::Request(ChangerRequest::Exchange { volser: other.clone(), drive: 0 }));
    unloads("exchange", 1);
    change(ChangerOrder::Unload { drive: 0 });
    unloads("unload", 2);
    // Left by others: in both drives, as an empty one is taken first.
    site.devices.change(&ChangerOrder::Create(spec("A00003"))).unwrap();
    change(ChangerOrder::Load { volser: one, drive: 0 });
    change(ChangerOrder::Load { volser: other, drive: 1 });
    let report = site.mount("A00003");
    unloads("a drive that is full", 3);
    site.dismount(&report);
    change(ChangerOrder::Unload { drive: 1 - report.number });
    unloads("dismount and unload", 5);
    site.trouble().loads_fail.insert(0, 1);
    site.trouble().unloads_fail.insert(0, 1);
    site.try_mount("A00001").unwrap_err();
    site.dismount(&site.mount("A00001"));
    unloads("a drive that failed", 8);
}
