//! Drives without a robot: a person is asked for volumes, makes mistakes, and is asked again.
//!
//! The person is a thread that reads what is asked for and moves cartridges of a virtual library, in which nothing
//! moves by itself.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use capstan_catalog::{Promise, VolumeState};
use capstan_director::{BackupWatch, DirectorError, Event, Level, Loss, Place, Site};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;
use capstan_mover::devices::BY_HAND;
use capstan_mover::extract::ExtractOptions;
use capstan_tape::{
    BlockLimits, CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveCare, DriveDescription, DriveError,
    DriveIdentity, DriveKey, Element, ElementAddress, Flush, Library, Medium, Position, ReadOutcome, VirtualLibrary,
    WriteOutcome,
};

use crate::place::{Bench, small};

/// Whether cartridges have their barcode in their memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Named,
    Nameless,
}

/// Drives of a virtual library, which nobody but the person puts cartridges into.
struct Drives(VirtualLibrary, Memory);

impl Changer for Drives {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        Ok(vec![Element { address: ElementAddress::Drive(0), volser: None }])
    }

    fn load(&mut self, _volser: &Volser, _drive: u32) -> Result<(), ChangerError> {
        Ok(())
    }

    fn unload(&mut self, _drive: u32) -> Result<(), ChangerError> {
        Ok(())
    }

    fn carry_out_request(&mut self, _errand: &ChangerRequest) -> Result<(), ChangerError> {
        Ok(())
    }
}

impl Library for Drives {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        Ok(1)
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        self.0.describe_drives()
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        Ok(Box::new(Forgetful(self.0.take_drive(drive)?, self.1)))
    }

    fn create_cartridge(&mut self, _spec: &CartridgeSpec) -> Result<(), ChangerError> {
        Ok(())
    }
}

/// A drive whose cartridges may have no memory.
struct Forgetful(Box<dyn Drive>, Memory);

impl Forgetful {
    fn seen(&self, medium: Medium) -> Medium {
        if self.1 == Memory::Nameless { Medium { volser: None, ..medium } } else { medium }
    }
}

impl Drive for Forgetful {
    fn identity(&self) -> DriveIdentity {
        self.0.identity()
    }

    fn load(&mut self) -> Result<Medium, DriveError> {
        self.0.load().map(|medium| self.seen(medium))
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        self.0.unload()
    }

    fn medium(&mut self) -> Result<Medium, DriveError> {
        self.0.medium().map(|medium| self.seen(medium))
    }

    fn block_limits(&self) -> BlockLimits {
        self.0.block_limits()
    }

    fn position(&mut self) -> Result<Position, DriveError> {
        self.0.position()
    }

    fn locate(&mut self, lbn: u64) -> Result<(), DriveError> {
        self.0.locate(lbn)
    }

    fn space_to_end_of_data(&mut self) -> Result<(), DriveError> {
        self.0.space_to_end_of_data()
    }

    fn space_filemarks(&mut self, count: i64) -> Result<(), DriveError> {
        self.0.space_filemarks(count)
    }

    fn read_block(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, DriveError> {
        self.0.read_block(buffer)
    }

    fn write_block(&mut self, block: &[u8]) -> Result<WriteOutcome, DriveError> {
        self.0.write_block(block)
    }

    fn write_filemarks(&mut self, count: u32, flush: Flush) -> Result<WriteOutcome, DriveError> {
        self.0.write_filemarks(count, flush)
    }

    fn erase(&mut self) -> Result<(), DriveError> {
        self.0.erase()
    }

    fn set_key(&mut self, key: Option<DriveKey>) -> Result<(), DriveError> {
        self.0.set_key(key)
    }

    fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Result<Option<Vec<usize>>, DriveError> {
        self.0.recommended_order(stretches)
    }

    fn care(&mut self) -> Option<&mut dyn DriveCare> {
        self.0.care()
    }
}

/// A site by hand, and what its person is asked.
struct Attended {
    bench: Bench,
    memory: Memory,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Attended {
    /// `mistakes`: what the person brings instead, for as long as there is something in it.
    fn new(memory: Memory, mistakes: Vec<Volser>) -> Self {
        let mut config = small();
        config.library.changer = PathBuf::from(BY_HAND);
        config.library.devices = vec![PathBuf::from("/dev/nst0")];
        let bench = Bench::new(config);
        let (tell, told): (Sender<String>, Receiver<String>) = channel();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&asked);
        bench.set_hook(Some(Box::new(move |event| {
            if let Event::Waiting { message } = event {
                seen.lock().unwrap().push(message.clone());
                // Nobody listens any more when the test is over.
                let _ = tell.send(message.clone());
            }
        })));
        let shelf = bench.path("shelf");
        let hands = VirtualLibrary::open(&shelf, 1).unwrap();
        thread::spawn(move || attend(hands, &told, mistakes));
        Self { bench, memory, asked }
    }

    fn site(&self) -> Site {
        let drives = VirtualLibrary::open(self.bench.path("shelf"), 1).unwrap();
        self.bench.site().with_library(Drives(drives, self.memory))
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// Brings what is asked for, or, as long as there are mistakes left, something else.
fn attend(mut hands: VirtualLibrary, told: &Receiver<String>, mut mistakes: Vec<Volser>) {
    for message in told {
        let (_, behind) = message.split_once("put volume ").unwrap();
        let wanted: Volser = behind.split_whitespace().next().unwrap().parse().unwrap();
        let brought = if mistakes.is_empty() { wanted } else { mistakes.remove(0) };
        let elements = hands.inventory().unwrap();
        if elements.iter().all(|element| element.volser.as_ref() != Some(&brought)) {
            let spec = CartridgeSpec {
                volser: brought.clone(),
                capacity_bytes: 64 << 20,
                early_warning_bytes: 4 << 20,
                generation: "virtual".to_owned(),
            };
            hands.create_cartridge(&spec).unwrap();
        }
        // The drive may be looking at what is in it.
        while let Err(ChangerError::DriveFull { .. }) = hands.load(&brought, 0) {
            match hands.unload(0) {
                Ok(()) | Err(ChangerError::InUse { .. } | ChangerError::DriveEmpty { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn volser(name: &str) -> Volser {
    name.parse().unwrap()
}

fn label(attended: &Attended, name: &str, pool: Option<&str>) {
    attended.site().label(&volser(name), pool, None, Loss::Refuse, Promise::Keep).unwrap();
}

#[test]
fn a_person_brings_what_is_asked_for() {
    for memory in [Memory::Named, Memory::Nameless] {
        let attended = Attended::new(memory, Vec::new());
        attended.bench.fill("a", 5, 300_000);
        label(&attended, "B00001", Some("default"));
        let asked = attended.asked();
        assert!(asked.len() == 1 && asked[0].starts_with("put volume B00001 into drive 0"), "{asked:?}");
        attended.site().backup(&attended.bench.request(Level::Full), &BackupWatch::default()).unwrap();
        let notices = attended.bench.notices.lock().unwrap().clone();
        assert!(notices.iter().any(|notice| notice == "take volume B00001 out of drive 0"), "{notices:?}");
        let nameless = notices.iter().filter(|notice| notice.contains("has no name")).count();
        assert_eq!(nameless, usize::from(memory == Memory::Nameless), "{notices:?}");
        restores(&attended);
    }
}

/// What is there comes back as it was.
fn restores(attended: &Attended) {
    let site = attended.site();
    let object = attended.bench.objects().remove(0);
    let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
    let to = attended.bench.path("back");
    let report = site.restore(&plan, &to, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
    assert!(report.is_whole());
    let restored = to.join(attended.bench.source().strip_prefix("/").unwrap());
    assert_eq!(crate::place::tree(&restored), crate::place::tree(&attended.bench.source()));
}

#[test]
fn a_wrong_cartridge_is_named_and_the_right_one_asked_for_again() {
    for memory in [Memory::Named, Memory::Nameless] {
        // Two are labelled as they are asked for; then the second is brought for the first, and a blank one.
        let mistakes = ["B00001", "B00002", "B00002", "C00003"].map(volser).to_vec();
        let attended = Attended::new(memory, mistakes);
        attended.bench.fill("a", 5, 300_000);
        label(&attended, "B00001", Some("default"));
        label(&attended, "B00002", None);
        attended.asked();
        attended.site().backup(&attended.bench.request(Level::Full), &BackupWatch::default()).unwrap();
        let asked = attended.asked();
        let wrong: Vec<_> = asked.iter().filter(|message| message.contains("take it out")).collect();
        let (first, second) = match memory {
            Memory::Named => ("holds volume B00002: take it out, and put volume B00001 in", "holds volume C00003"),
            Memory::Nameless => ("its label says B00002", "holds a cartridge without a label of ours"),
        };
        assert!(wrong.len() == 2 && wrong[0].contains(first) && wrong[1].contains(second), "{asked:?}");
        let volumes = attended.site().catalog().volumes().unwrap();
        let of = |name: &str| volumes.iter().find(|volume| volume.volser.as_str() == name).unwrap().clone();
        assert!(of("B00001").written > 1_000_000, "it went to the volume that was wanted");
        assert_eq!(of("B00002").state, VolumeState::Scratch);
        restores(&attended);
    }
}

#[test]
fn waiting_for_a_person_ends_when_it_is_stopped() {
    let attended = Attended::new(Memory::Named, Vec::new());
    attended.bench.fill("a", 1, 1000);
    label(&attended, "B00001", Some("default"));
    let watch = BackupWatch::default();
    let stop = Arc::clone(&watch.stop);
    // The person has left.
    attended.bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Waiting { .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    })));
    let ended = attended.site().backup(&attended.bench.request(Level::Full), &watch);
    assert!(matches!(ended, Err(DirectorError::Interrupted)), "{ended:?}");
}

#[test]
fn a_lost_volume_is_forgotten_without_being_looked_for() {
    let attended = Attended::new(Memory::Named, Vec::new());
    label(&attended, "B00001", None);
    attended.site().forget(&volser("B00001"), Loss::Refuse, Promise::Keep).unwrap();
    assert!(attended.site().catalog().volumes().unwrap().is_empty());
}
