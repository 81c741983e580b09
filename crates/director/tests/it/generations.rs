//! A library whose drives are not alike: cartridges of several generations, and drives that encrypt beside drives that
//! do not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use capstan_catalog::Promise;
use capstan_director::{
    BackupRequest, BackupWatch, Config, DirectorError, Event, Level, Loss, Shortfall, Site, UnitConfig,
};
use capstan_format::{Algorithm, Volser};
use capstan_tape::model::built_in;
use capstan_tape::{
    CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element, ElementAddress, Finding,
    KeySlotKind, Library, PaceClock, Paced, VirtualLibrary,
};

use crate::place::{Bench, small};

/// A drive of LTO-4 that does not encrypt, as one that is used over `st`.
const PLAIN: &str = "plain";

/// A virtual library whose drives are as these models, and take no time.
struct Mixed {
    inner: VirtualLibrary,
    models: Vec<&'static str>,
}

impl Changer for Mixed {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        self.inner.inventory()
    }

    /// As a robot does it, which takes nothing out of another drive.
    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        let in_drive = |element: &Element| match element.address {
            ElementAddress::Drive(other) if other != drive && element.volser.as_ref() == Some(volser) => Some(other),
            _ => None,
        };
        match self.inventory()?.iter().find_map(in_drive) {
            Some(drive) => {
                Err(ChangerError::InOtherDrive { volser: volser.clone(), drive, holder: "nobody".to_owned() })
            }
            None => self.inner.load(volser, drive),
        }
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.inner.unload(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        self.inner.carry_out_request(request)
    }

    fn findings(&self) -> Vec<Finding> {
        self.inner.findings()
    }
}

impl Library for Mixed {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        self.inner.drives()
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        let described = self.inner.describe_drives()?.into_iter().zip(&self.models);
        let class = |model: &str| if model == PLAIN { "LTO-4".to_owned() } else { model.to_owned() };
        Ok(described.map(|(drive, model)| DriveDescription { class: Some(class(model)), ..drive }).collect())
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        let (model, keys) = match self.models[drive as usize] {
            PLAIN => ("LTO-4", KeySlotKind::Missing),
            model => (model, KeySlotKind::Fitted),
        };
        Ok(Box::new(Paced::new(self.inner.drive(drive, keys)?, built_in(model).unwrap(), NoTime::default())))
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        self.inner.create_cartridge(spec)
    }
}

/// A clock that is at once where somebody waits for.
#[derive(Default)]
struct NoTime(AtomicU64);

impl PaceClock for NoTime {
    fn now_s(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn wait_until(&mut self, at_s: f64) {
        self.0.store(at_s.max(self.now_s()).to_bits(), Ordering::Relaxed);
    }
}

fn volser(text: &str) -> Volser {
    Volser::new(text).unwrap()
}

/// A bench whose library makes no cartridges, and has these: barcode and generation.
fn bench(drives: u32, encryption: Option<Algorithm>, cartridges: &[(&str, &str)]) -> Bench {
    let mut config = Config { ..small() };
    config.library.drives = drives;
    config.library.volumes_max = 0;
    let units = |models: &[&str]| UnitConfig {
        libraries: vec!["main".to_owned()],
        models: models.iter().map(|&model| model.to_owned()).collect(),
        ..UnitConfig::default()
    };
    config.units = [("new".to_owned(), units(&["LTO-9"])), ("old".to_owned(), units(&["LTO-7", "LTO-8"]))].into();
    let bench = Bench::encrypted(config, encryption);
    let mut library = VirtualLibrary::open(bench.path("state/library"), drives).unwrap();
    for (name, generation) in cartridges {
        let generation = (*generation).to_owned();
        let (capacity_bytes, early_warning_bytes) = (64 << 20, 4 << 20);
        let spec = CartridgeSpec { volser: volser(name), capacity_bytes, early_warning_bytes, generation };
        library.create_cartridge(&spec).unwrap();
    }
    bench
}

/// Who was mounted in which drive, in order.
type Mounts = Arc<Mutex<Vec<(String, String)>>>;

/// The site with drives of these models.
fn with_drives(bench: &Bench, models: &[&'static str]) -> (Site, Mounts) {
    let mounts: Mounts = Arc::default();
    let noted = Arc::clone(&mounts);
    let site = bench.site_told(Arc::new(move |event| {
        if let Event::Mounted { volser, drive } = event {
            noted.lock().unwrap().push((volser.to_string(), drive));
        }
    }));
    let inner = VirtualLibrary::open(bench.path("state/library"), models.len() as u32).unwrap();
    (site.with_library(Mixed { inner, models: models.to_vec() }), mounts)
}

fn label(site: &Site, name: &str, pool: Option<&str>) {
    site.label(&volser(name), pool, None, Loss::Refuse, Promise::Keep).unwrap();
}

fn back_up(site: &Site, bench: &Bench) -> Result<(), DirectorError> {
    let request = BackupRequest { connections: 1, ..bench.request(Level::Full) };
    site.backup(&request, &BackupWatch::default()).map(drop)
}

/// What was mounted since the last look.
fn taken(mounts: &Mounts) -> Vec<(String, String)> {
    std::mem::take(&mut *mounts.lock().unwrap())
}

fn in_drive(name: &str, drive: u32) -> Vec<(String, String)> {
    vec![(name.to_owned(), format!("virtual-{drive}"))]
}

#[test]
fn a_new_generation_takes_a_pool_over() {
    let cartridges = [("SEVEN1", "LTO-7"), ("EIGHT1", "LTO-8"), ("EIGHT2", "LTO-8"), ("NINE01", "LTO-9")];
    let bench = bench(1, None, &cartridges);
    bench.fill("a", 10, 100_000);
    let (site, mounts) = with_drives(&bench, &["LTO-8"]);
    label(&site, "SEVEN1", Some("default"));
    back_up(&site, &bench).unwrap();
    label(&site, "EIGHT1", None);
    label(&site, "EIGHT2", None);
    let known = site.catalog().volume(&volser("SEVEN1")).unwrap().unwrap();
    assert_eq!(known.generation.as_deref(), Some("LTO-7"), "as its drive said");
    drop(site);

    // The drives are new: what they do not write is left alone, and not mounted to find that out.
    let (site, mounts_of_new) = with_drives(&bench, &["LTO-9"]);
    label(&site, "NINE01", None);
    taken(&mounts_of_new);
    back_up(&site, &bench).unwrap();
    assert_eq!(taken(&mounts_of_new), in_drive("NINE01", 0), "its own generation comes first");
    std::fs::remove_file(bench.cartridge("NINE01")).unwrap();
    back_up(&site, &bench).unwrap();
    assert_eq!(taken(&mounts_of_new), in_drive("EIGHT1", 0), "what it writes, too, where there is nothing else");
    // What is on the old one is read where a drive reads it, and named where none does.
    let seven = site.verify_volume(&volser("SEVEN1"), &Default::default()).unwrap_err();
    let text = capstan_tape::with_causes(&seven);
    assert!(text.contains("cannot use a cartridge of LTO-7: take a drive of LTO-7 or LTO-8"), "{text}");
    assert!(taken(&mounts_of_new).is_empty(), "nothing was moved for that");
    drop(site);
    taken(&mounts);

    let (site, mounts) = with_drives(&bench, &["LTO-9", "LTO-8"]);
    assert!(site.verify_volume(&volser("SEVEN1"), &Default::default()).unwrap().is_whole());
    assert_eq!(taken(&mounts), in_drive("SEVEN1", 1));
}

#[test]
fn a_pool_that_no_drive_writes_says_so() {
    let bench = bench(1, None, &[("SIX001", "LTO-6")]);
    bench.fill("a", 1, 100);
    let (site, _) = with_drives(&bench, &["LTO-7"]);
    label(&site, "SIX001", None);
    drop(site);
    let (site, mounts) = with_drives(&bench, &["LTO-8"]);
    let text = back_up(&site, &bench).unwrap_err().to_string();
    assert!(
        text.contains("1 that no drive there writes") && text.contains("of a generation that the drives write"),
        "{text}"
    );
    assert!(taken(&mounts).is_empty());
    let unfit = || {
        let volumes = site.catalog().volumes().unwrap();
        site.volumes_that_no_drive_writes(&volumes).unwrap().len()
    };
    assert_eq!(unfit(), 0, "nobody has asked the library");
    assert!(site.find_drives().unwrap().is_empty());
    assert_eq!(unfit(), 1);
    let text =
        capstan_tape::with_causes(&site.label(&volser("SIX001"), None, None, Loss::Refuse, Promise::Keep).unwrap_err());
    assert!(text.contains("SIX001 was not moved") && text.contains("take a drive of LTO-6 or LTO-7"), "{text}");
}

#[test]
fn what_is_encrypted_goes_to_drives_that_encrypt_and_stays_with_them() {
    let bench = bench(2, Some(Algorithm::Aes256Gcm), &[("FOUR01", "LTO-4")]);
    bench.fill("a", 3, 100_000);
    let (site, mounts) = with_drives(&bench, &["LTO-4", "LTO-4"]);
    let (plain, mounts_of_plain) = with_drives(&bench, &[PLAIN, "LTO-4"]);
    drop((site, mounts));
    label(&plain, "FOUR01", Some("default"));
    back_up(&plain, &bench).unwrap();
    assert!(plain.verify_volume(&volser("FOUR01"), &Default::default()).unwrap().is_whole());
    let expected: Vec<_> = std::iter::repeat_n(in_drive("FOUR01", 1), 3).flatten().collect();
    assert_eq!(taken(&mounts_of_plain), expected, "the first drive is free, and does not encrypt");
    drop(plain);

    // Where no drive does, that is what is said, and not that there is no volume; nobody waits for one either.
    let (site, mounts) = with_drives(&bench, &[PLAIN]);
    let wait = BackupRequest { connections: 1, shortfall: Shortfall::Wait, ..bench.request(Level::Full) };
    let error = site.backup(&wait, &BackupWatch::default()).map(drop).unwrap_err();
    let text = capstan_tape::with_causes(&error);
    assert!(text.contains("does not encrypt") && text.contains("take a drive that encrypts"), "{text}");
    assert!(taken(&mounts).is_empty());
    // To write over it, no key is needed.
    site.erase(&volser("FOUR01"), Loss::Accept, Promise::Drop).unwrap();
    assert_eq!(taken(&mounts), in_drive("FOUR01", 0));
}

#[test]
fn a_cartridge_that_was_made_before_drives_encrypted_is_none_for_an_encrypted_pool() {
    let bench = bench(2, Some(Algorithm::Aes256Gcm), &[("A00003L3", "LTO-3"), ("A00004L4", "LTO-4")]);
    bench.fill("a", 3, 100_000);
    let (site, mounts) = with_drives(&bench, &["LTO-3", "LTO-4"]);
    label(&site, "A00003L3", None);
    label(&site, "A00004L4", None);
    taken(&mounts);
    back_up(&site, &bench).unwrap();
    assert_eq!(taken(&mounts), in_drive("A00004L4", 1));
    let refused = site.label(&volser("A00003L3"), Some("default"), None, Loss::Refuse, Promise::Keep).unwrap_err();
    let text = capstan_tape::with_causes(&refused);
    assert!(text.contains("a cartridge of LTO-4 or later"), "{text}");
}

/// Two copies have a drive each, though their volumes are fit for the same one.
#[test]
fn copies_take_volumes_for_the_drives_that_there_are() {
    let cartridges = [("A00001L9", "LTO-9"), ("A00002L9", "LTO-9"), ("A00003L8", "LTO-8")];
    let bench = bench(2, None, &cartridges);
    bench.fill("a", 10, 100_000);
    let (site, mounts) = with_drives(&bench, &["LTO-9", "LTO-8"]);
    for (name, _) in &cartridges[..2] {
        label(&site, name, None);
    }
    let twice = BackupRequest { copies: 2, connections: 1, ..bench.request(Level::Full) };
    let report = site.backup(&twice, &BackupWatch::default()).unwrap();
    let text: Vec<_> = report.failed_copies.iter().map(|failed| format!("{failed:?}")).collect();
    assert!(text.len() == 1 && text[0].contains("L9"), "one of them cannot be mounted: {text:?}");
    label(&site, "A00003L8", None);
    taken(&mounts);
    let report = site.backup(&twice, &BackupWatch::default()).unwrap();
    assert!(report.failed_copies.is_empty(), "{report:?}");
    let mut taken = taken(&mounts);
    taken.sort();
    assert!(taken.contains(&("A00003L8".to_owned(), "virtual-1".to_owned())), "{taken:?}");
    // Of a unit that has one such drive, two copies are too many.
    let refused = site.in_unit(Some("new")).unwrap().backup(&twice, &BackupWatch::default()).map(drop).unwrap_err();
    assert!(matches!(refused, DirectorError::TooFewDrives { copies: 2, drives: 1, .. }), "{refused:?}");
}

/// A backup to several drives has as many as are fit for the volumes that there are; the others would end it.
#[test]
fn a_backup_takes_drives_that_its_volumes_fit() {
    let cartridges: Vec<(String, &str)> = (1..=3).map(|number| (format!("A0000{number}L9"), "LTO-9")).collect();
    let mut cartridges: Vec<(&str, &str)> =
        cartridges.iter().map(|(name, generation)| (&**name, *generation)).collect();
    cartridges.push(("A00004L8", "LTO-8"));
    let bench = bench(3, None, &cartridges);
    bench.fill("a", 30, 100_000);
    let (site, mounts) = with_drives(&bench, &["LTO-9", "LTO-8", "LTO-8"]);
    let with_three = BackupRequest { drives: 3, ..bench.request(Level::Full) };
    for (name, _) in &cartridges[..3] {
        label(&site, name, None);
    }
    let back_up = || {
        taken(&mounts);
        let report = site.backup(&with_three, &BackupWatch::default()).unwrap();
        assert!(report.failed_copies.is_empty(), "{report:?}");
        let mut drives: Vec<String> = taken(&mounts).into_iter().map(|(_, drive)| drive).collect();
        drives.sort();
        drives
    };
    assert_eq!(back_up(), ["virtual-0"], "one drive writes what is labelled");
    label(&site, "A00004L8", None);
    assert_eq!(back_up(), ["virtual-0", "virtual-1"]);
}

/// What a person left in a drive is brought back where another drive is to have it.
#[test]
fn a_volume_in_a_drive_that_is_not_fit_is_brought_to_one_that_is() {
    let bench = bench(2, None, &[("EIGHT1", "LTO-8")]);
    bench.fill("a", 3, 100_000);
    let (site, mounts) = with_drives(&bench, &["LTO-8", "LTO-9"]);
    label(&site, "EIGHT1", Some("default"));
    taken(&mounts);
    VirtualLibrary::open(bench.path("state/library"), 2).unwrap().load(&volser("EIGHT1"), 0).unwrap();
    back_up(&site.clone().in_unit(Some("new")).unwrap(), &bench).unwrap();
    assert_eq!(taken(&mounts), in_drive("EIGHT1", 1));
}

/// Volumes of before generations were noted: that a drive does not take one is no fault of it.
#[test]
fn a_cartridge_that_turns_out_to_be_of_another_generation_is_passed_over_and_left_as_it_is() {
    let bench = bench(1, None, &[("SIX001", "LTO-6"), ("SIX002", "LTO-6"), ("NINE01", "LTO-9")]);
    bench.fill("a", 3, 100_000);
    let (site, _) = with_drives(&bench, &["LTO-6"]);
    label(&site, "SIX001", Some("default"));
    back_up(&site, &bench).unwrap();
    label(&site, "SIX002", Some("default"));
    drop(site);
    let (site, mounts) = with_drives(&bench, &["LTO-9"]);
    let states = || ["SIX001", "SIX002"].map(|name| site.catalog().volume(&volser(name)).unwrap().unwrap().state);
    let before = states();
    for name in ["SIX001", "SIX002"] {
        site.catalog().update_volume(&volser(name), |volume| volume.generation = None).unwrap();
    }
    let text = back_up(&site, &bench).unwrap_err().to_string();
    assert!(text.contains("pool default"), "{text}");
    label(&site, "NINE01", None);
    taken(&mounts);
    back_up(&site, &bench).unwrap();
    assert_eq!(taken(&mounts), in_drive("NINE01", 0));
    assert_eq!(states(), before);
}

/// A barcode may be on another cartridge than it says, and the catalog may know the one before.
#[test]
fn what_is_known_of_a_cartridge_may_be_wrong_and_is_passed_by_on_purpose() {
    let bench = bench(1, None, &[("A00001L5", "LTO-7")]);
    let (site, _) = with_drives(&bench, &["LTO-7"]);
    let refused = site.label(&volser("A00001L5"), None, None, Loss::Refuse, Promise::Keep).unwrap_err();
    assert!(capstan_tape::with_causes(&refused).contains("only reads cartridges of LTO-5"), "{refused:?}");
    site.label(&volser("A00001L5"), None, None, Loss::Accept, Promise::Keep).unwrap();
    let known = site.catalog().volume(&volser("A00001L5")).unwrap().unwrap();
    assert_eq!(known.generation.as_deref(), Some("LTO-7"));
    site.label(&volser("A00001L5"), None, None, Loss::Refuse, Promise::Keep).unwrap();
}

#[test]
fn a_storage_unit_of_some_models_has_those_drives_alone() {
    let bench = bench(3, None, &[("EIGHT1", "LTO-8"), ("EIGHT2", "LTO-8")]);
    bench.fill("a", 3, 100_000);
    let (site, mounts) = with_drives(&bench, &["LTO-8", "LTO-9", "LTO-8"]);
    label(&site, "EIGHT1", Some("default"));
    taken(&mounts);
    let of = |unit: &str| site.clone().in_unit(Some(unit)).unwrap();
    back_up(&of("new"), &bench).unwrap();
    assert_eq!(taken(&mounts), in_drive("EIGHT1", 1));
    back_up(&of("old"), &bench).unwrap();
    assert_eq!(taken(&mounts), in_drive("EIGHT1", 0));
    back_up(&site, &bench).unwrap();
    assert_eq!(taken(&mounts), in_drive("EIGHT1", 0), "without a unit, a drive of the cartridge's own generation");
    // What a unit may have at the same time is known once somebody has asked the library.
    assert_eq!(site.unit(Some("old")).unwrap().drives, None);
    assert!(site.find_drives().unwrap().is_empty());
    assert_eq!(site.unit(Some("old")).unwrap().drives, Some(2));
    assert_eq!(site.unit(Some("new")).unwrap().drives, Some(1));
    assert_eq!(site.unit(None).unwrap().drives, None);
    // A cartridge that the unit's drives do not write is none of its own.
    drop(site);
    let (site, _) = with_drives(&bench, &["LTO-8", "LTO-8", "LTO-8"]);
    let text = back_up(&site.in_unit(Some("new")).unwrap(), &bench).unwrap_err().to_string();
    assert!(text.contains("that no drive there writes"), "{text}");
}
