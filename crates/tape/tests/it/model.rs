//! Random commands against a virtual drive and against a tape in memory: both must answer alike.
//!
//! A failing case is printed with its seed; `CAPSTAN_SEED=n cargo test -p capstan-tape --test it model::` runs that
//! case alone, and `CAPSTAN_SEEDS=n` as many seeds as given instead of 60.

use std::fs;
use std::path::{Path, PathBuf};

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::{
    CartridgeDrive, CartridgeSpec, Drive, DriveError, DriveKey, EncryptionState, Flush, KeySlotKind, ReadOutcome,
    WriteOutcome,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};

const CAPACITY_BYTES: u64 = 60_000;
const EARLY_WARNING_BYTES: u64 = 10_000;
const RECORDS_AT: u64 = 4096;
const HEADER_LEN: u64 = 36;
const ENVELOPE_LEN: u64 = 36;

#[derive(Debug, Clone)]
enum Command {
    Write {
        len: usize,
        fill: u8,
    },
    Filemarks {
        count: u32,
        flush: bool,
    },
    /// Number in 1/256 of the blocks there are; above 250 lies beyond the end of data.
    Locate {
        part: u8,
    },
    EndOfData,
    SpaceFilemarks {
        count: i64,
    },
    Read {
        buffer: usize,
    },
    SetKey(Option<u8>),
    Erase,
    Reload,
    /// The process dies, and the last record may be torn: its last bytes are missing.
    Kill {
        torn: Option<u8>,
    },
    LoseIndex,
}

fn command() -> impl Strategy<Value = Command> {
    let len = prop_oneof![1..40usize, 1..3000usize];
    prop_oneof![
        20 => (len, any::<u8>()).prop_map(|(len, fill)| Command::Write { len, fill }),
        6 => (0..4u32, any::<bool>()).prop_map(|(count, flush)| Command::Filemarks { count, flush }),
        8 => any::<u8>().prop_map(|part| Command::Locate { part }),
        3 => Just(Command::EndOfData),
        6 => (-4..5i64).prop_map(|count| Command::SpaceFilemarks { count }),
        16 => prop_oneof![Just(4000usize), 0..100usize].prop_map(|buffer| Command::Read { buffer }),
        3 => proptest::option::of(0..4u8).prop_map(Command::SetKey),
        1 => Just(Command::Erase),
        2 => Just(Command::Reload),
        2 => proptest::option::of(any::<u8>()).prop_map(|torn| Command::Kill { torn }),
        1 => Just(Command::LoseIndex),
    ]
}

#[derive(Debug, Clone, PartialEq)]
enum Record {
    Block { bytes: Vec<u8>, key: Option<u8> },
    Filemark,
}

/// A tape as SSC describes it, in memory.
#[derive(Debug, Default)]
struct Model {
    records: Vec<Record>,
    at: usize,
    key: Option<u8>,
    /// None while blank, else the key the volume began with.
    written: Option<Option<u8>>,
}

/// What a command came to, without what only one side knows.
#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    EarlyWarning,
    Block(Vec<u8>),
    Filemark,
    EndOfData,
    Refused(&'static str),
}

impl Model {
    fn algorithm(key: u8) -> Algorithm {
        if key == 2 { Algorithm::Aes256Ccm } else { Algorithm::Aes256Gcm }
    }

    fn record_len(&self, record: &Record) -> u64 {
        let envelope = if self.written.flatten().is_some() { ENVELOPE_LEN } else { 0 };
        HEADER_LEN
            + match record {
                Record::Block { bytes, .. } => bytes.len() as u64 + envelope,
                Record::Filemark => 0,
            }
    }

    fn used(&self, records: usize) -> u64 {
        self.records[..records].iter().map(|record| self.record_len(record)).sum()
    }

    fn write(&mut self, records: Vec<Record>) -> Answer {
        // Appended to with further keys, if they are for the same cipher.
        let cipher = |key: Option<u8>| key.map(Self::algorithm);
        if self.at > 0 && self.written.map(cipher) != Some(cipher(self.key)) {
            return Answer::Refused("mixed");
        }
        let before = (self.written, self.at);
        if self.at == 0 {
            self.written = Some(self.key);
        }
        let left = CAPACITY_BYTES
            .checked_sub(self.used(self.at) + records.iter().map(|record| self.record_len(record)).sum::<u64>());
        let Some(left) = left else {
            (self.written, self.at) = before;
            return Answer::Refused("end of medium");
        };
        self.records.truncate(self.at);
        self.records.extend(records);
        self.at = self.records.len();
        if left < EARLY_WARNING_BYTES { Answer::EarlyWarning } else { Answer::Done }
    }

    fn read(&mut self, buffer: usize) -> Answer {
        let Some(record) = self.records.get(self.at) else { return Answer::EndOfData };
        let Record::Block { bytes, key } = record.clone() else {
            self.at += 1;
            return Answer::Filemark;
        };
        match (key, self.key) {
            (Some(_), None) => return Answer::Refused("no key"),
            (Some(needed), Some(loaded)) if needed != loaded => return Answer::Refused("wrong key"),
            _ => {}
        }
        self.at += 1;
        if bytes.len() > buffer { Answer::Refused("too long") } else { Answer::Block(bytes) }
    }

    fn space_filemarks(&mut self, count: i64) -> Answer {
        for _ in 0..count.unsigned_abs() {
            let found = if count > 0 {
                self.records[self.at..].iter().position(|record| *record == Record::Filemark).map(|by| self.at + by + 1)
            } else {
                self.records[..self.at].iter().rposition(|record| *record == Record::Filemark)
            };
            match found {
                Some(at) => self.at = at,
                None if count > 0 => {
                    self.at = self.records.len();
                    return Answer::Refused("blank check");
                }
                None => {
                    self.at = 0;
                    return Answer::Refused("beginning of medium");
                }
            }
        }
        Answer::Done
    }

    fn unloaded(&mut self) {
        self.at = 0;
        self.key = None;
    }
}

/// The real drive, and the commands given to it.
struct Real {
    drive: CartridgeDrive,
    path: PathBuf,
}

impl Real {
    fn new(path: &Path) -> Self {
        let spec = CartridgeSpec {
            volser: "A00001".parse().unwrap(),
            capacity_bytes: CAPACITY_BYTES,
            early_warning_bytes: EARLY_WARNING_BYTES,
            generation: "virtual".to_owned(),
        };
        spec.create(path).unwrap();
        Self::load(path)
    }

    fn load(path: &Path) -> Self {
        let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
        drive.load().unwrap();
        Self { drive, path: path.to_owned() }
    }

    /// Goes on with a copy of what the files hold behind a flush, as if the process had died; the data file is cut to a
    /// length.
    fn kill(&mut self, life: u32, cut_to: Option<u64>) {
        self.drive.write_filemarks(0, Flush::Synchronous).unwrap();
        let path = self.path.with_file_name(format!("life{life}.tape"));
        fs::copy(&self.path, &path).unwrap();
        fs::copy(self.path.with_extension("index"), path.with_extension("index")).unwrap();
        if let Some(len) = cut_to {
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
        }
        *self = Self::load(&path);
    }
}

fn answer<T>(result: Result<T, DriveError>, done: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        Ok(value) => done(value),
        Err(DriveError::NoKey { .. }) => Answer::Refused("no key"),
        Err(DriveError::WrongKey { .. }) => Answer::Refused("wrong key"),
        Err(DriveError::MixedEncryption { .. }) => Answer::Refused("mixed"),
        Err(DriveError::EndOfMedium { .. }) => Answer::Refused("end of medium"),
        Err(DriveError::BlankCheck { .. }) => Answer::Refused("blank check"),
        Err(DriveError::BeginningOfMedium) => Answer::Refused("beginning of medium"),
        Err(DriveError::BlockTooLong { .. }) => Answer::Refused("too long"),
        Err(other) => panic!("no command may end in {other:?}"),
    }
}

fn written(outcome: WriteOutcome) -> Answer {
    match outcome {
        WriteOutcome::Written => Answer::Done,
        WriteOutcome::EarlyWarning => Answer::EarlyWarning,
    }
}

/// Gives a command to both; their answers.
fn step(real: &mut Real, model: &mut Model, life: u32, command: &Command) -> (Answer, Answer) {
    match command.clone() {
        Command::Write { len, fill } => {
            let block: Vec<u8> = (0..len).map(|at| fill ^ (at as u8).wrapping_mul(7)).collect();
            (
                answer(real.drive.write_block(&block), written),
                model.write(vec![Record::Block { bytes: block, key: model.key }]),
            )
        }
        Command::Filemarks { count, flush } => {
            let flush = if flush { Flush::Synchronous } else { Flush::Buffered };
            let found = answer(real.drive.write_filemarks(count, flush), written);
            let expected = match count {
                0 if CAPACITY_BYTES - model.used(model.at) < EARLY_WARNING_BYTES => Answer::EarlyWarning,
                0 => Answer::Done,
                count => model.write(vec![Record::Filemark; count as usize]),
            };
            (found, expected)
        }
        Command::Locate { part } => {
            let lbn = usize::from(part) * model.records.len() / 250;
            let expected = if lbn > model.records.len() {
                Answer::Refused("blank check")
            } else {
                model.at = lbn;
                Answer::Done
            };
            (answer(real.drive.locate(lbn as u64), |()| Answer::Done), expected)
        }
        Command::EndOfData => {
            model.at = model.records.len();
            (answer(real.drive.space_to_end_of_data(), |()| Answer::Done), Answer::Done)
        }
        Command::SpaceFilemarks { count } => {
            (answer(real.drive.space_filemarks(count), |()| Answer::Done), model.space_filemarks(count))
        }
        Command::Read { buffer } => {
            let mut bytes = vec![0; buffer];
            let result = real.drive.read_block(&mut bytes);
            let found = answer(result, |outcome| match outcome {
                ReadOutcome::Block(len) => Answer::Block(bytes[..len].to_vec()),
                ReadOutcome::Filemark => Answer::Filemark,
                ReadOutcome::EndOfData => Answer::EndOfData,
            });
            (found, model.read(buffer))
        }
        Command::SetKey(number) => {
            model.key = number;
            let key = number.map(|number| DriveKey {
                tag: KeyTag([number; 16]),
                algorithm: Model::algorithm(number),
                key: [number + 1; 32],
            });
            (answer(real.drive.set_key(key), |()| Answer::Done), Answer::Done)
        }
        Command::Erase => {
            *model = Model { key: model.key, ..Model::default() };
            (answer(real.drive.erase(), |()| Answer::Done), Answer::Done)
        }
        Command::Reload => {
            model.unloaded();
            real.drive.unload().unwrap();
            (answer(real.drive.load(), |_| Answer::Done), Answer::Done)
        }
        Command::Kill { torn } => {
            let mut cut_to = None;
            if let (Some(torn), Some(last)) = (torn, model.records.last()) {
                let cut = 1 + u64::from(torn) * (model.record_len(last) - 1) / 255;
                cut_to = Some(RECORDS_AT + model.used(model.records.len()) - cut);
                model.records.pop();
            }
            model.unloaded();
            real.kill(life, cut_to);
            (Answer::Done, Answer::Done)
        }
        Command::LoseIndex => {
            model.unloaded();
            real.drive.unload().unwrap();
            fs::remove_file(real.path.with_extension("index")).unwrap();
            (answer(real.drive.load(), |_| Answer::Done), Answer::Done)
        }
    }
}

/// A file system in memory where there is one: thousands of flushes need no disk here.
fn memory_directory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

fn check(commands: &[Command]) {
    let directory = tempfile::tempdir_in(memory_directory()).unwrap();
    let mut real = Real::new(&directory.path().join("life.tape"));
    let mut model = Model::default();
    for (life, command) in (0..).zip(commands) {
        let (found, expected) = step(&mut real, &mut model, life, command);
        assert_eq!(found, expected, "command {life}, {command:?}");
        let position = real.drive.position().unwrap();
        assert_eq!(position.lbn, model.at as u64, "position after command {life}, {command:?}");
        let warned = CAPACITY_BYTES - model.used(model.at) < EARLY_WARNING_BYTES;
        assert_eq!(position.early_warning, warned, "early warning after command {life}, {command:?}");
        let medium = real.drive.medium().unwrap();
        assert_eq!(medium.remaining_bytes, CAPACITY_BYTES - model.used(model.records.len()));
        let encryption = match model.written {
            None => EncryptionState::Blank,
            Some(None) => EncryptionState::Plain,
            Some(Some(key)) => EncryptionState::Encrypted { algorithm: Model::algorithm(key), tag: KeyTag([key; 16]) },
        };
        assert_eq!(medium.encryption, encryption, "after command {life}, {command:?}");
    }
}

#[test]
fn a_virtual_drive_is_a_tape() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let seeds = match number("CAPSTAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => now..now + number("CAPSTAN_SEEDS").unwrap_or(60),
    };
    println!("seeds {seeds:?}");
    for seed in seeds {
        let config = Config {
            cases: 4,
            rng_seed: RngSeed::Fixed(seed),
            rng_algorithm: RngAlgorithm::ChaCha,
            failure_persistence: None,
            max_shrink_iters: 2000,
            ..Config::default()
        };
        let outcome = TestRunner::new(config).run(&proptest::collection::vec(command(), 1..120), |commands| {
            check(&commands);
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{error}\nreplay with CAPSTAN_SEED={seed}");
        }
    }
}
