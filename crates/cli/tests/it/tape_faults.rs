//! The main job while everything goes wrong that can go wrong in drives and robot: nothing that was reported as
//! protected is lost, nothing wrong is given back, and who has to help is told where.
//!
//! Director and units are real, and speak SCSI to each other; only kernel and wire are left out, so that a round takes
//! a tenth of a second. `CAPSTAN_SEED=17` replays a round, `CAPSTAN_ROUNDS=20000` makes more of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use capstan_catalog::{Object, Promise, VolumeState};
use capstan_director::{BackupRequest, BackupWatch, DirectorError, Event, Loss, Place, Site};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;
use capstan_tape::ElementAddress;
use capstan_vtl::{CommandClass, DeviceFault, FaultOrder, FaultyUnit, drawn_faults};

use crate::local::{Ground, noise, now_ns, protected};

const ROUNDS: u64 = 100;
/// Those of a night.
const ROUNDS_FULL: u64 = 500;
const VOLSERS: [&str; 5] = ["A00001L9", "A00002L9", "A00003L9", "A00004L9", "A00005L9"];

type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// A site, its library, and what it has protected so far.
struct Bench {
    ground: Ground,
    said: Arc<Mutex<Vec<String>>>,
    /// What the source held when each backup began.
    states: Vec<Tree>,
    clock: fn() -> i64,
}

/// A clock by which a minute goes by whenever somebody looks at it.
fn hurried_ns() -> i64 {
    static LOOKS: AtomicI64 = AtomicI64::new(0);
    now_ns() + LOOKS.fetch_add(1, Ordering::Relaxed) * 61_000_000_000
}

impl Bench {
    fn new() -> Self {
        let cartridge = |volser| format!("[[cartridge]]\nbarcode = \"{volser}\"\ncapacity_mib = 16\n");
        let drives = "[[drive]]\nmodel = \"LTO-9\"\n".repeat(2);
        let ground = Ground::new(&format!("{drives}{}", VOLSERS.map(cartridge).concat()), |config| {
            config.library.volume_mib = 16;
            config.data.checkpoint_mib = 1;
            config.data.extent_worthwhile_mib = 1;
            config.data.extent_longest_mib = 1;
        });
        let bench = Self { ground, said: Arc::default(), states: Vec::new(), clock: now_ns };
        for volser in VOLSERS {
            bench.site().label(&Volser::new(volser).unwrap(), None, None, Loss::Refuse, Promise::Keep).unwrap();
        }
        bench
    }

    fn site(&self) -> Site {
        let said = Arc::clone(&self.said);
        let events = Arc::new(move |event: Event| {
            if let Event::Notice { message } | Event::Waiting { message } = &event {
                said.lock().unwrap().push(message.clone());
            }
            if let Event::CopyFailed { reason, .. } = &event {
                said.lock().unwrap().push(reason.clone());
            }
        });
        let site = Site::open(&self.ground.path("state"), Some(&self.ground.unlock), self.clock, events).unwrap();
        site.with_library(self.ground.robot())
    }

    /// Changes some files, and remembers what there is.
    fn change(&mut self, seed: u64) {
        for number in 0..6 {
            let path = self.ground.source().join(format!("file-{number}"));
            if number % 2 == 0 || !path.exists() {
                fs::write(path, noise(seed * 31 + number + 1, 300_000 + 100_000 * number as usize)).unwrap();
            }
        }
        self.states.push(tree(&self.ground.source()));
    }

    fn backup(&self, copies: u8) -> Result<(), DirectorError> {
        let request = BackupRequest { connections: 2, copies, ..BackupRequest::of(vec![self.ground.source()]) };
        self.site().backup(&request, &BackupWatch::default()).map(drop)
    }

    /// Restores an object; what was given back, and whether that is said to be all.
    fn restore(&self, object: &Object, to: &str) -> Result<(Tree, bool), DirectorError> {
        let site = self.site();
        let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }])?;
        let target = self.ground.path(to);
        let report = site.restore(&plan, &target, &ExtractOptions::default(), &RestoreWatch::default())?;
        let restored = target.join(self.ground.source().strip_prefix("/").unwrap());
        let mut given = if restored.exists() { tree(&restored) } else { Tree::new() };
        for failed in &report.failed {
            let name = String::from_utf8_lossy(&failed.path).into_owned();
            self.said.lock().unwrap().push(format!("restore of {name}: {}", failed.reason));
        }
        // What is said to have failed is not taken for given back.
        for failed in &report.failed {
            let name = String::from_utf8_lossy(&failed.path).into_owned();
            given.retain(|path, _| !name.ends_with(&*path.to_string_lossy()));
        }
        fs::remove_dir_all(&target).unwrap();
        Ok((given, report.is_whole()))
    }
}

fn tree(root: &Path) -> Tree {
    let files = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
}

/// One round: a backup that nothing disturbs, one in the middle of faults, a restore in the middle of faults; then the
/// faults end, and everything that was reported as protected must come back.
fn round(seed: u64) -> u64 {
    let mut bench = Bench::new();
    bench.change(seed);
    bench.backup(1).unwrap();
    let first = protected(&bench.site()).remove(0);
    bench.change(seed + 1_000_000);

    let volsers: Vec<Volser> = VOLSERS.iter().map(|volser| Volser::new(volser).unwrap()).collect();
    let at = (seed % volsers.len() as u64) as usize;
    let orders: Vec<FaultOrder> = drawn_faults(seed, 2, &volsers[at..]);
    for order in &orders {
        bench.ground.library.inject(order).unwrap();
    }
    let told = |what: &str| format!("seed {seed}: {what}\n{orders:#?}\nsaid: {:#?}", bench.said.lock().unwrap());
    let backed_up = bench.backup(1 + (seed % 2) as u8);
    if let Err(error) = &backed_up {
        bench.said.lock().unwrap().push(explained(error));
        assert!(helps(&explained(error)), "{}", told("the message names neither drive, robot nor volume"));
    }
    match bench.restore(&first, "amid") {
        Ok((given, whole)) => {
            for (path, bytes) in &given {
                assert!(bench.states[0].get(path) == Some(bytes), "{}", told(&format!("{path:?} came back wrong")));
            }
            assert!(!whole || given == bench.states[0], "{}", told("said to be whole, and is not"));
        }
        Err(error) => {
            assert!(helps(&explained(&error)), "{}", told(&format!("no help in: {}", explained(&error))));
        }
    }
    let happened = bench.ground.library.forgive();
    // Another host that took a drive keeps it until somebody there lets it go.
    bench.ground.library.end_reservations();

    let protected = protected(&bench.site());
    assert!(protected.iter().any(|object| object.id == first.id), "{}", told("the first backup is gone"));
    assert!(backed_up.is_err() || protected.len() == 2, "{}", told("the backup was said to have worked"));
    for (object, state) in protected.iter().zip(&bench.states) {
        let (given, whole) =
            bench.restore(object, "after").unwrap_or_else(|error| panic!("{}", told(&explained(&error))));
        assert!(whole && given == *state, "{}", told(&format!("object {} does not come back", object.id)));
    }
    let unverified: u64 = bench.ground.library.drives().iter().map(|drive| drive.unverified_writes).sum();
    assert_eq!(unverified, 0, "{}", told("a write went to a position that was not verified"));
    // And the next backup works again, if there is a volume for it.
    match bench.backup(1) {
        Ok(()) | Err(DirectorError::NoVolume { .. }) => {}
        Err(error) => panic!("{}", told(&format!("afterwards: {}", explained(&error)))),
    }
    happened
}

fn explained(error: &DirectorError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Whether a message says where to look.
fn helps(message: &str) -> bool {
    message.contains("drive-") || message.contains("robot") || message.contains("A0000") || message.contains("volume")
}

#[test]
fn nothing_that_is_protected_is_lost_whatever_drives_and_robot_do() {
    if let Ok(seed) = std::env::var("CAPSTAN_SEED") {
        round(seed.parse().unwrap());
        return;
    }
    let usual = if std::env::var_os("CAPSTAN_FULL").is_some() { ROUNDS_FULL } else { ROUNDS };
    let rounds = std::env::var("CAPSTAN_ROUNDS").map_or(usual, |rounds| rounds.parse().unwrap());
    let happened: u64 = (0..rounds).map(round).sum();
    println!("{rounds} rounds, {happened} faults happened");
    assert!(
        happened > rounds / 2,
        "{happened} faults in {rounds} rounds: they are drawn for commands that nobody sends"
    );
}

impl Bench {
    /// Lets a fault happen in the drive that is used first.
    fn inject(&self, at: CommandClass, passing: u32, fault: DeviceFault) {
        self.ground.library.inject(&FaultOrder { unit: FaultyUnit::Drive(0), at, passing, fault }).unwrap();
    }

    /// Volumes that were set aside.
    fn aside(&self) -> Vec<Volser> {
        let volumes = self.site().catalog().volumes().unwrap();
        volumes.into_iter().filter(|volume| volume.state == VolumeState::Suspect).map(|volume| volume.volser).collect()
    }

    fn was_said(&self, text: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| said.contains(text))
    }

    /// What `capstan drives report` prints, and whether it asks for a person.
    fn report(&self, options: &[&str]) -> (String, Option<i32>) {
        self.printed(&[&["drives", "report"], options].concat())
    }

    fn printed(&self, words: &[&str]) -> (String, Option<i32>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.arg("--state").arg(self.ground.path("state")).args(words);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (String::from_utf8(text).unwrap(), output.status.code())
    }
}

#[test]
fn what_drives_say_in_the_middle_of_a_session_is_told_kept_and_shown() {
    let mut bench = Bench::new();
    // The labels of five volumes; nothing was asked at checkpoints, as there were none.
    let (empty, code) = bench.report(&["--volume", "A00009L9"]);
    assert!(empty.contains("drives have reported nothing yet of volume A00009L9") && code == Some(0), "{empty}");
    let checkpoints = |bench: &Bench| {
        let reports = bench.site().catalog().drive_reports(1000).unwrap();
        reports.into_iter().filter(|report| format!("{:?}", report.moment) == "Checkpoint").collect::<Vec<_>>()
    };
    bench.change(1);
    bench.backup(1).unwrap();
    assert_eq!(checkpoints(&bench), [], "not a minute has gone by");
    let (quiet, code) = bench.report(&[]);
    assert!(code == Some(0) && !quiet.contains("look:"), "{quiet}");

    bench.clock = hurried_ns;
    bench.change(2);
    bench.inject(CommandClass::Write, 20, DeviceFault::Alert { flag: 20 });
    bench.inject(CommandClass::Write, 30, DeviceFault::SoftErrors { count: 40 });
    bench.backup(1).unwrap();
    assert!(bench.was_said("TapeAlert 20: the drive must be cleaned now"));
    assert!(checkpoints(&bench).iter().any(|report| report.alerts == [20]), "{:?}", checkpoints(&bench));
    let history = bench.site().drive_history(Some("drive-0"), None).unwrap();
    let stay = &history.stays[0];
    assert_eq!((stay.corrected, stay.uncorrected, stay.alerts.len()), (Some(40), Some(0), 1), "{stay:?}");
    assert!(stay.written_mb.is_some_and(|mb| (2..8).contains(&mb)), "{stay:?}");
    assert_eq!(bench.aside(), [], "a drive that wants to be cleaned is no fault of the volume");
    let (page, code) = bench.printed(&["status"]);
    assert!(page.contains("TapeAlert 20: the drive must be cleaned now") && code == Some(3), "{page}");
    let (text, code) = bench.report(&["--last", "1"]);
    assert!(
        text.contains("look: drive drive-0 with volume A00001L9: TapeAlert 20: the drive must be cleaned now"),
        "{text}"
    );
    assert!(text.contains("earlier ones are not listed"), "{text}");
    assert_eq!(code, Some(3));
    let (text, _) = bench.report(&["drive-0", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["stays"][0]["alerts"][0]["flag"], 20, "{text}");
    assert_eq!(told["stays"][0]["corrected"], 40, "{text}");
}

#[test]
fn a_volume_that_its_drive_calls_worn_is_written_to_the_end_of_the_session_and_no_more() {
    let mut bench = Bench::new();
    bench.clock = hurried_ns;
    let volser = |number: usize| Volser::new(VOLSERS[number]).unwrap();
    bench.change(1);
    bench.inject(CommandClass::Write, 30, DeviceFault::Alert { flag: 7 });
    bench.backup(1).unwrap();
    assert_eq!(bench.aside(), [volser(0)]);
    assert!(bench.was_said("volume A00001L9 is set aside, and nothing more is written on it: drive drive-0 says that the medium has reached"));
    // What is said at the mount keeps a volume from being written at all.
    bench.change(2);
    bench.inject(CommandClass::Move, 0, DeviceFault::Alert { flag: 4 });
    bench.backup(1).unwrap();
    assert_eq!(bench.aside(), [volser(0), volser(1)]);
    let second = bench.site().catalog().volume(&volser(1)).unwrap().unwrap();
    assert_eq!(second.written, 0, "{second:?}");
    // Nothing is lost with it.
    for (object, state) in protected(&bench.site()).iter().zip(&bench.states) {
        assert_eq!(bench.restore(object, "back").unwrap(), (state.clone(), true));
    }
    // What is good all through is written again, but for what its drive says meanwhile.
    bench.inject(CommandClass::Move, 0, DeviceFault::Alert { flag: 7 });
    bench.site().verify_volume(&volser(0), &RestoreWatch::default()).unwrap();
    assert!(bench.was_said("volume A00001L9 stays set aside"), "{:?}", bench.said.lock().unwrap());
    assert_eq!(bench.aside(), [volser(0), volser(1)]);
    bench.site().verify_volume(&volser(0), &RestoreWatch::default()).unwrap();
    assert_eq!(bench.aside(), [volser(1)]);
}

/// Flags that the cartridge before had left were put down to the next one, which was set aside for them.
#[test]
fn what_the_cartridge_before_has_left_is_not_put_down_to_the_next() {
    let mut bench = Bench::new();
    bench.change(1);
    bench.backup(1).unwrap();
    // Raised when the drive lets go of it, behind the last question.
    bench.inject(CommandClass::Load, 0, DeviceFault::Alert { flag: 4 });
    bench.change(2);
    bench.backup(1).unwrap();
    assert!(!bench.was_said("TapeAlert 4"), "{:?}", bench.said.lock().unwrap());
    bench.change(3);
    bench.backup(1).unwrap();
    assert!(bench.was_said("drive drive-0: TapeAlert 4, left by the cartridge before"));
    assert_eq!(bench.aside(), []);
}

/// A cartridge that cleans, and one that no drive of the library takes, are left where they are; a rebuild passes over
/// the first.
#[test]
fn cartridges_that_are_no_volumes_here_are_not_moved() {
    let cartridge = |volser: &str| format!("[[cartridge]]\nbarcode = \"{volser}\"\ncapacity_mib = 16\n");
    let cartridges = ["A00001L8", "A00001L6", "CLN001L8"].map(cartridge).concat();
    let ground = Ground::new(&format!("[[drive]]\nmodel = \"LTO-8\"\n{cartridges}"), |_| {});
    let (mounted, seen) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let site = || {
        let (mounted, seen) = (Arc::clone(&mounted), Arc::clone(&seen));
        let events = Arc::new(move |event: Event| match event {
            Event::Mounted { volser, .. } => mounted.lock().unwrap().push(volser.to_string()),
            Event::Notice { message } => seen.lock().unwrap().push(message),
            _ => {}
        });
        let site = Site::open(&ground.path("state"), Some(&ground.unlock), now_ns, events).unwrap();
        site.with_library(ground.robot())
    };
    let label = |volser: &str| {
        let volser = Volser::new(volser).unwrap();
        site().label(&volser, Some("default"), None, Loss::Refuse, Promise::Keep).map(drop)
    };
    let foreign = label("A00001L6").unwrap_err();
    let told = "volume A00001L6 was not moved: drive drive-0, a drive of LTO-8, cannot use a cartridge of LTO-6: \
                take a drive of LTO-6 or LTO-7";
    assert_eq!(explained(&foreign).split(": take").next(), told.split(": take").next(), "{foreign}");
    let cleaning = label("CLN001L8").unwrap_err();
    assert!(cleaning.to_string().contains("`capstan library load CLN001L8 DRIVE` cleans"), "{cleaning}");
    label("A00001L8").unwrap();
    assert_eq!(*mounted.lock().unwrap(), ["A00001L8"]);
    // The command that cleans.
    site().load_drive(&Volser::new("CLN001L8").unwrap(), 0).unwrap();
    let there = site().inventory().unwrap();
    let in_drive = there.places.iter().find(|place| place.element.address == ElementAddress::Drive(0)).unwrap();
    assert_eq!(in_drive.element.volser.as_ref().map(Volser::as_str), Some("CLN001L8"));
}
