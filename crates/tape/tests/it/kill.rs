//! A process that is killed at any instant leaves every block that it was told was flushed, and no cartridge half made.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Changer, Drive, DriveError, DriveKey, Flush, KeySlotKind, Library, ReadOutcome,
    VirtualLibrary,
};

const PATH_VARIABLE: &str = "CAPSTAN_TEST_CARTRIDGE";

fn key() -> DriveKey {
    DriveKey { tag: KeyTag([3; 16]), algorithm: Algorithm::Aes256Gcm, key: [4; 32] }
}

fn content(lbn: u64) -> Vec<u8> {
    let len = 1 + (lbn * 7919 % 50_000) as usize;
    (0..len).map(|at| (at as u64 * 31 + lbn) as u8).collect()
}

fn start(work: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", work, "--ignored", "--nocapture"])
        .env(PATH_VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn seed() -> u32 {
    let given = std::env::var("CAPSTAN_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos());
    println!("CAPSTAN_SEED={seed}");
    seed
}

/// Blocks between flushes: some are more than a drive gathers before it writes.
const FLUSH_EVERY: u64 = 200;

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("A00001.tape");
    let spec = CartridgeSpec {
        volser: "A00001".parse().unwrap(),
        capacity_bytes: 1 << 40,
        early_warning_bytes: 1 << 20,
        generation: "virtual".to_owned(),
    };
    spec.create(&path).unwrap();
    let mut expected = 0;
    for round in 0..8u32 {
        let mut child = start("kill::write_until_killed", &path);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let number = |line: String, word: &str| line.strip_prefix(word).map(|lbn| lbn.parse::<u64>().unwrap());
        let first = lines.by_ref().find_map(|line| number(line, "begins ")).unwrap();
        assert_eq!(first, expected, "the next run goes on where data end");
        let flushed = lines.by_ref().find_map(|line| number(line, "flushed ")).unwrap();
        let mut drive = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Fitted);
        match drive.load() {
            Err(DriveError::InUse { holder, .. }) => assert!(holder.contains(&child.id().to_string()), "{holder}"),
            other => panic!("loaded although process {} has it: {other:?}", child.id()),
        }
        std::thread::sleep(Duration::from_micros(u64::from(seed.wrapping_mul(round + 1) % 20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = lines.filter_map(|line| number(line, "flushed ")).last().unwrap_or(flushed);

        drive.load().unwrap();
        drive.set_key(Some(key())).unwrap();
        let mut buffer = vec![0; 50_000];
        for lbn in 0..=acknowledged {
            let read = drive.read_block(&mut buffer).unwrap();
            assert!(matches!(read, ReadOutcome::Block(len) if buffer[..len] == content(lbn)), "block {lbn}: {read:?}");
        }
        drive.space_to_end_of_data().unwrap();
        expected = drive.position().unwrap().lbn;
        assert!(
            expected <= acknowledged + 1 + 2 * FLUSH_EVERY,
            "no more was written than one flush and what came behind it"
        );
    }
}

#[test]
#[ignore = "run, and killed, by what_was_acknowledged_survives_a_kill"]
fn write_until_killed() {
    let path = std::env::var_os(PATH_VARIABLE).unwrap();
    let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
    drive.load().unwrap();
    drive.set_key(Some(key())).unwrap();
    drive.space_to_end_of_data().unwrap();
    let first = drive.position().unwrap().lbn;
    println!("\nbegins {first}");
    for lbn in first.. {
        drive.write_block(&content(lbn)).unwrap();
        if (lbn - first) % FLUSH_EVERY == FLUSH_EVERY - 1 {
            drive.write_filemarks(0, Flush::Synchronous).unwrap();
            println!("flushed {lbn}");
        }
    }
}

/// Once an empty file stayed under the name of the cartridge that was being made, and every rebuild after that
/// complained of it. A disk that others keep busy takes its time to make a file, and it was then that the process was
/// killed.
#[test]
fn a_cartridge_is_made_whole_or_not_at_all() {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let slots = directory.path().join("slots");
    let mut whole = Vec::new();
    for round in 0..20u32 {
        let mut child = start("kill::make_until_killed", directory.path());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "made one"), "it begins, whatever the one before it left");
        let until = Instant::now() + Duration::from_micros(u64::from(seed.wrapping_mul(round + 1) % 20_000));
        // Whatever stands under a cartridge's name at any moment may be what a kill leaves.
        while Instant::now() < until {
            let next = slots.join(format!("A{:05}.tape", whole.len()));
            whole.extend(fs::metadata(next).map(|found| found.len()).ok());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(!whole.is_empty(), "none was seen");
    assert!(whole.iter().all(|&len| len > 0), "{whole:?}");
    let mut library = VirtualLibrary::open(directory.path(), 1).unwrap();
    let cartridges: Vec<_> = library.inventory().unwrap().into_iter().filter_map(|element| element.volser).collect();
    assert!(cartridges.len() >= 20, "{cartridges:?}");
    let mut drive = library.drive(0, KeySlotKind::Missing).unwrap();
    for volser in cartridges {
        library.load(&volser, 0).unwrap();
        assert_eq!(drive.load().unwrap().capacity_bytes, 1 << 20, "{volser}");
        drive.unload().unwrap();
        library.unload(0).unwrap();
    }
}

#[test]
#[ignore = "run, and killed, by a_cartridge_is_made_whole_or_not_at_all"]
fn make_until_killed() {
    let mut library = VirtualLibrary::open(std::env::var_os(PATH_VARIABLE).unwrap(), 1).unwrap();
    let begun = library.inventory().unwrap().iter().filter(|element| element.volser.is_some()).count();
    println!();
    for number in begun.. {
        let volser = format!("A{number:05}").parse().unwrap();
        let generation = "virtual".to_owned();
        let spec = CartridgeSpec { volser, capacity_bytes: 1 << 20, early_warning_bytes: 1 << 18, generation };
        library.create_cartridge(&spec).unwrap();
        println!("made one");
    }
}
