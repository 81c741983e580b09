//! Pools on write-once cartridges: what was written stays, whatever an operator orders and wherever a session is ended.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use capstan_catalog::{GoneSource, MediumKind, Object, Promise, Volume, VolumeState};
use capstan_director::{
    BackupRequest, BackupWatch, DirectorError, Event, ExpiryRequest, Level, Loss, Place, Site, WriteOnceBar,
};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;
use capstan_vtl::{CommandClass, DeviceFault, FaultOrder, FaultyUnit, LAYOUT_FILE, ServedLibrary};

use crate::local::{Ground, noise, now_ns, protected};

const VOLSERS: [&str; 3] = ["A00001L9", "A00002L9", "A00003L9"];

/// A site whose library has write-once cartridges, all of the default pool; none has a label yet.
struct Bench {
    ground: Ground,
    said: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new() -> Self {
        let cartridge = |volser| format!("[[cartridge]]\nbarcode = \"{volser}\"\ncapacity_mib = 32\nworm = true\n");
        let layout = format!("[[drive]]\nmodel = \"LTO-9\"\n{}", VOLSERS.map(cartridge).concat());
        let ground = Ground::new(&layout, |config| {
            config.library.volume_mib = 32;
            config.data.checkpoint_mib = 1;
        });
        Self { ground, said: Arc::default() }
    }

    fn site(&self) -> Site {
        let said = Arc::clone(&self.said);
        let events = Arc::new(move |event: Event| {
            if let Event::Notice { message } = event {
                said.lock().unwrap().push(message);
            }
        });
        Site::open(&self.ground.path("state"), Some(&self.ground.unlock), now_ns, events)
            .unwrap()
            .with_library(self.ground.robot())
    }

    fn label(&self, number: usize) -> Result<(), DirectorError> {
        self.site().label(&volser(number), Some("default"), None, Loss::Refuse, Promise::Keep).map(drop)
    }

    fn write(&self, name: &str, seed: u64, len: usize) {
        fs::write(self.ground.path("source").join(name), noise(seed, len)).unwrap();
    }

    fn backup(&self, level: Level) -> Result<(), DirectorError> {
        let request = BackupRequest { level, ..BackupRequest::of(vec![self.ground.source()]) };
        self.site().backup(&request, &BackupWatch::default()).map(drop)
    }

    fn assert_restores(&self, object: &Object) {
        let site = self.site();
        let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
        let target = self.ground.path("target");
        let report = site.restore(&plan, &target, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
        assert!(report.is_whole());
        let (source, restored) =
            (self.ground.path("source"), target.join(self.ground.path("source").strip_prefix("/").unwrap()));
        for entry in fs::read_dir(&source).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(fs::read(source.join(&name)).unwrap() == fs::read(restored.join(&name)).unwrap(), "{name:?}");
        }
        fs::remove_dir_all(target).unwrap();
    }

    fn volume(&self, number: usize) -> Volume {
        self.site().catalog().volume(&volser(number)).unwrap().unwrap()
    }

    fn was_said(&self, text: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| said.contains(text))
    }

    /// The drive fails at a command, behind so many of its class: what the session had written stands there as if it
    /// had been killed.
    fn fail(&self, at: CommandClass, passing: u32) {
        let fault = DeviceFault::Sense { key: 0x4, asc: 0x44, ascq: 0x00, deferred: false, carried_out: false };
        self.ground.library.inject(&FaultOrder { unit: FaultyUnit::Drive(0), at, passing, fault }).unwrap();
    }

    fn copy_of(&self, number: usize, name: &str) -> PathBuf {
        let path = self.ground.path(name);
        fs::copy(self.ground.path("cartridges").join(format!("{}.tape", VOLSERS[number])), &path).unwrap();
        path
    }
}

fn volser(number: usize) -> Volser {
    Volser::new(VOLSERS[number]).unwrap()
}

/// Everything behind the memory, in the older of two states of a cartridge, stands in the newer one.
fn assert_kept(older: &Path, newer: &Path) {
    let (older, newer) = (fs::read(older).unwrap(), fs::read(newer).unwrap());
    assert!(older.len() > 4096 && newer.len() >= older.len());
    assert!(newer[4096..older.len()] == older[4096..], "something that was written once was written again");
}

#[test]
fn a_worm_volume_is_appended_to_and_gives_back_what_it_holds() {
    let bench = Bench::new();
    bench.label(0).unwrap();
    let blank = bench.copy_of(0, "labelled");
    bench.write("a", 1, 3_000_000);
    bench.backup(Level::Full).unwrap();
    assert_kept(&blank, &bench.copy_of(0, "full"));
    bench.write("b", 2, 2_000_000);
    bench.backup(Level::Incremental).unwrap();
    assert_kept(&bench.ground.path("full"), &bench.copy_of(0, "incremental"));
    let volume = bench.volume(0);
    assert_eq!((volume.state, volume.medium), (VolumeState::Filling, MediumKind::WriteOnce));
    let protected = protected(&bench.site());
    assert_eq!(protected.len(), 2);
    assert_eq!(bench.site().catalog().objects_on(&volser(0)).unwrap().len(), 2, "both stand on one volume");
    bench.assert_restores(&protected[1]);
    assert_eq!(*bench.said.lock().unwrap(), [""; 0]);
}

#[test]
fn a_session_that_was_ended_half_way_makes_its_volume_count_as_full() {
    let bench = Bench::new();
    bench.label(0).unwrap();
    bench.label(1).unwrap();
    bench.write("a", 1, 3_000_000);
    bench.backup(Level::Full).unwrap();
    let before = bench.copy_of(0, "before");
    bench.write("b", 2, 3_000_000);
    bench.fail(CommandClass::Write, 30);
    bench.backup(Level::Full).unwrap_err();
    assert_kept(&before, &bench.copy_of(0, "behind"));
    assert!(protected(&bench.site()).len() == 1);

    bench.backup(Level::Full).unwrap();
    assert!(bench.was_said("blocks behind its last checkpoint"), "{:?}", bench.said);
    assert_eq!((bench.volume(0).state, bench.volume(1).state), (VolumeState::Full, VolumeState::Filling));
    assert_eq!(fs::read(bench.copy_of(0, "after")).unwrap(), fs::read(bench.ground.path("behind")).unwrap());
    // The object went on where its last checkpoint had left it, or began anew: it is whole in either case.
    let protected = protected(&bench.site());
    bench.assert_restores(protected.last().unwrap());
    bench.ground.library.forgive();
    bench.backup(Level::Full).unwrap();
    assert_eq!(bench.volume(0).state, VolumeState::Full, "once is enough");
}

#[test]
fn a_labelling_that_was_ended_half_way_uses_the_cartridge_up() {
    for at in [CommandClass::Filemark, CommandClass::Write] {
        let bench = Bench::new();
        bench.fail(at, u32::from(at == CommandClass::Write));
        bench.label(0).unwrap_err();
        let begun = bench.copy_of(0, "begun");
        assert!(fs::metadata(&begun).unwrap().len() > 4096, "nothing was written, and nothing is to be seen here");
        let again = bench.label(0).unwrap_err();
        let bar =
            |error: &DirectorError| matches!(error, DirectorError::WriteOnce { because: WriteOnceBar::HoldsData, .. });
        assert!(bar(&again), "{again}");

        bench.label(1).unwrap();
        bench.write("a", 1, 2_000_000);
        bench.backup(Level::Full).unwrap();
        assert!(bench.was_said("volume A00001L9 is WORM: its label is incomplete"), "{at:?}: {:?}", bench.said);
        assert_eq!((bench.volume(0).state, bench.volume(1).state), (VolumeState::Retired, VolumeState::Filling));
        bench.assert_restores(&protected(&bench.site())[0]);
        assert_eq!(fs::read(bench.copy_of(0, "after")).unwrap(), fs::read(begun).unwrap());
    }
}

#[test]
fn nothing_that_an_operator_orders_takes_what_is_on_it() {
    let bench = Bench::new();
    let scratch = bench.site().label(&volser(0), None, None, Loss::Refuse, Promise::Keep).unwrap_err();
    assert!(matches!(scratch, DirectorError::WriteOnce { because: WriteOnceBar::Scratch, .. }), "{scratch}");
    bench.label(0).unwrap();
    bench.write("a", 1, 2_000_000);
    bench.backup(Level::Full).unwrap();
    let (before, catalog) = (bench.copy_of(0, "before"), bench.volume(0));
    for loss in [Loss::Refuse, Loss::Accept] {
        let site = bench.site();
        for refused in [
            site.label(&volser(0), Some("default"), None, loss, Promise::Keep),
            site.label(&volser(0), None, None, loss, Promise::Keep),
            site.erase(&volser(0), loss, Promise::Keep),
        ] {
            let refused = refused.unwrap_err();
            let bar = WriteOnceBar::HoldsData;
            assert!(matches!(&refused, DirectorError::WriteOnce { because, .. } if *because == bar), "{refused}");
            assert!(refused.to_string().contains("use another volume"), "{refused}");
        }
    }
    assert_eq!(fs::read(bench.ground.path("cartridges/A00001L9.tape")).unwrap(), fs::read(&before).unwrap());
    assert_eq!(bench.volume(0), catalog);

    let object = protected(&bench.site()).remove(0);
    let gone = vec![GoneSource { source: object.source.clone(), client: object.client.clone() }];
    let request = ExpiryRequest { named: vec![object.id], gone, ..ExpiryRequest::default() };
    let plan = bench.site().plan_expiry(&request).unwrap();
    assert_eq!(bench.site().expire(&plan, &request).unwrap().frees, [], "nothing is free by it");
    assert!(bench.was_said("it is WORM and cannot be reused"), "{:?}", bench.said);
    assert_eq!(bench.volume(0), catalog, "neither scratch nor without its pool");
    bench.write("b", 2, 2_000_000);
    bench.backup(Level::Full).unwrap();
    assert_kept(&before, &bench.copy_of(0, "after"));
    bench.assert_restores(&protected(&bench.site())[0]);
}

/// The catalog may be an older one, or have lost what it knew: the drive says what it has.
#[test]
fn what_the_catalog_does_not_know_of_a_volume_its_drive_says() {
    let bench = Bench::new();
    bench.label(0).unwrap();
    bench.write("a", 1, 2_000_000);
    bench.backup(Level::Full).unwrap();
    let before = bench.copy_of(0, "before");
    let forget_kind = || {
        bench.site().catalog().update_volume(&volser(0), |volume| volume.medium = MediumKind::Rewritable).unwrap();
    };
    forget_kind();
    let erased = bench.site().erase(&volser(0), Loss::Accept, Promise::Keep).unwrap_err();
    assert!(matches!(erased, DirectorError::WriteOnce { .. }), "{erased}");
    assert_eq!(bench.volume(0).medium, MediumKind::WriteOnce, "now it is known");
    forget_kind();
    let labelled = bench.site().label(&volser(0), Some("default"), None, Loss::Accept, Promise::Keep).unwrap_err();
    assert!(matches!(labelled, DirectorError::WriteOnce { .. }), "{labelled}");
    // Taken for scratch, as an older catalog has it that expired what was on it.
    forget_kind();
    let scratch = |volume: &mut Volume| (volume.state, volume.pool) = (VolumeState::Scratch, None);
    bench.site().catalog().update_volume(&volser(0), scratch).unwrap();
    bench.label(1).unwrap();
    bench.backup(Level::Full).unwrap();
    assert_eq!(protected(&bench.site()).len(), 2, "nothing is forgotten for a label that cannot be written");
    assert_eq!(fs::read(bench.ground.path("cartridges/A00001L9.tape")).unwrap(), fs::read(&before).unwrap());
}

/// What an operator sees of one in a library of cartridges that are files, and what is left of it in a catalog that was
/// made anew.
#[test]
fn the_command_shows_what_is_worm_and_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let capstan = |args: &[&str], code: i32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.arg("--state").arg(folder.path().join("state")).args(args);
        let output = command.env("CAPSTAN_PASSPHRASE", "three plain words").output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        text
    };
    capstan(&["init", "--volume-size", "32M"], 0);
    capstan(&["label", "A00002", "--pool", "default"], 0);
    let slots = folder.path().join("state/library/slots");
    // Cartridges are the same files in both kinds of library.
    let vtl = folder.path().join("vtl");
    fs::create_dir(&vtl).unwrap();
    let cartridge = "[[cartridge]]\nbarcode = \"A00001\"\ncapacity_mib = 1024\nworm = true\n";
    fs::write(vtl.join(LAYOUT_FILE), format!("[[drive]]\nmodel = \"LTO-9\"\n{cartridge}")).unwrap();
    drop(ServedLibrary::open(&vtl, None).unwrap());
    fs::rename(vtl.join("cartridges/A00001.tape"), slots.join("A00001.tape")).unwrap();
    let scratch = capstan(&["label", "A00001"], 1);
    assert!(scratch.contains("name its pool with --pool"), "{scratch}");
    capstan(&["label", "A00001", "--pool", "default"], 0);
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), "to be kept").unwrap();
    capstan(&["backup", source.to_str().unwrap(), "--full"], 0);
    let before = fs::read(slots.join("A00001.tape")).unwrap();
    for args in [
        &["label", "A00001", "--pool", "default", "--force"][..],
        &["label", "A00001", "--pool", "default"],
        &["erase", "A00001", "--force", "--yes"],
    ] {
        let refused = capstan(args, 1);
        assert!(refused.contains("volume A00001 is WORM: it can be neither erased nor labelled again"), "{refused}");
    }
    for _ in 0..2 {
        let volumes = capstan(&["volumes"], 0);
        assert!(volumes.contains("filling (WORM)") && volumes.matches("WORM").count() == 1, "{volumes}");
        let rows = capstan(&["volumes", "--json"], 0);
        let worm: Vec<_> = rows.lines().map(|row| row.contains("\"worm\":true")).collect();
        assert_eq!(worm, [true, false], "{rows}");
        capstan(&["rebuild"], 0);
    }
    assert_eq!(fs::read(slots.join("A00001.tape")).unwrap()[4096..], before[4096..]);

    // A process that is killed as soon as blocks of its session stand on the volume, and before a checkpoint does.
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.arg("--state").arg(folder.path().join("state")).args(["backup", "--stdin", "endless"]);
    command
        .env("CAPSTAN_PASSPHRASE", "three plain words")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut killed = command.spawn().unwrap();
    let mut input = killed.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        let megabyte = noise(1, 1 << 20);
        // More than all buffers on the way, and less than what lies between two checkpoints.
        let _ = (0..400).try_for_each(|_| input.write_all(&megabyte));
        input
    });
    let written = || fs::metadata(slots.join("A00001.tape")).unwrap().len();
    let began = Instant::now();
    while written() < before.len() as u64 + (1 << 20) {
        assert!(began.elapsed() < Duration::from_secs(60), "{} bytes are written", written());
        std::thread::sleep(Duration::from_millis(10));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    drop(feeder.join().unwrap());
    let left = fs::read(slots.join("A00001.tape")).unwrap();
    let told = capstan(&["backup", source.to_str().unwrap(), "--full"], 0);
    assert!(told.contains("blocks behind its last checkpoint"), "{told}");
    assert!(capstan(&["volumes"], 0).contains("full (WORM)"));
    // What a crash tore behind the last whole block may be cut off, and nothing in front of it.
    let after = fs::read(slots.join("A00001.tape")).unwrap();
    assert!(after.len() >= before.len() + 4096 && left[4096..].starts_with(&after[4096..]));
    capstan(&["verify", "A00001"], 0);
}
