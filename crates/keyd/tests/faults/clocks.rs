//! Each node's own clock, which jumps by years while the node runs, or before it starts.
//!
//! A node asks the C library for the time, and a library that is preloaded answers (`tests/clock.c`). Members of etcd
//! are programs in Go, which ask the kernel: their clocks stay right. They judge nothing by them: elections and leases
//! count time that only goes forward.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::network::PLACES;

const YEAR_SECONDS: i64 = 365 * 24 * 3600;

pub(crate) struct Clocks {
    library: PathBuf,
    /// How many seconds each place is ahead, as eight bytes, little-endian.
    files: [PathBuf; PLACES],
    jumped: AtomicBool,
}

impl Clocks {
    /// Clocks that are right; none where there is no C compiler.
    pub(crate) fn new(folder: &Path) -> Option<Self> {
        let library = folder.join("clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clock.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
        match compiler.output() {
            Err(_) => return None,
            Ok(said) => assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr)),
        }
        let files = std::array::from_fn(|place| folder.join(format!("clock{place}")));
        files.iter().for_each(|file| fs::write(file, [0; 8]).unwrap());
        Self { library, files, jumped: AtomicBool::new(false) }.that_work()
    }

    /// A jump that nobody notices would test nothing.
    fn that_work(self) -> Option<Self> {
        let year = || {
            let mut date = Command::new("date");
            self.give(&mut date, 0);
            let said = date.args(["-u", "+%Y"]).output().unwrap();
            String::from_utf8(said.stdout).unwrap().trim().parse::<i64>().unwrap()
        };
        let right = year();
        self.set(0, 400);
        let wrong = year();
        self.set(0, 0);
        assert!((399..=400).contains(&(wrong - right)), "clocks do not jump: {right}, {wrong}");
        self.jumped.store(false, Ordering::SeqCst);
        Some(self)
    }

    /// Has a program go by the clock of a place.
    pub(crate) fn give(&self, command: &mut Command, place: usize) {
        command.env("LD_PRELOAD", &self.library).env("TEST_CLOCK", &self.files[place]);
    }

    /// The clock of a place is years ahead from now on, or behind; or right.
    pub(crate) fn set(&self, place: usize, years: i64) {
        let file = fs::File::options().write(true).open(&self.files[place]).unwrap();
        file.write_all_at(&(years * YEAR_SECONDS).to_le_bytes(), 0).unwrap();
        self.jumped.fetch_or(years != 0, Ordering::SeqCst);
    }

    /// Whether any was ever wrong.
    pub(crate) fn have_jumped(&self) -> bool {
        self.jumped.load(Ordering::SeqCst)
    }
}

/// Whether a doubt is of clocks: such a one is right where a clock was wrong, also for a while afterwards, since what
/// other nodes said of the time meanwhile is still in the ledger.
pub(crate) fn is_of_clocks(doubt: &str) -> bool {
    doubt.contains("this node's clock and that of node ")
}
