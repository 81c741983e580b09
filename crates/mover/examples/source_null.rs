//! Files per second of the tree source to nowhere, against a bare loop of openat, read and close over the same files.
//!
//! `source_null DIRECTORY [--cold] [--rounds N] [--connections N] [--chunk BYTES]`; prints medians. `--cold` drops the
//! caches before each run, which needs root.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot run stops")]

use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use capstan_format::FileEntry;
use capstan_mover::{Progress, Stopped, StreamSink, TreeOptions, TreeSource};
use rustix::fs::{Mode, OFlags, openat};

/// Takes everything and keeps nothing; chunks go round as those of a block pool do.
struct Null {
    chunks: Vec<Vec<u8>>,
    current: usize,
    used: usize,
    position: u64,
    connection: u16,
    members: u64,
}

impl Null {
    fn new(connection: u16, chunk_len: usize) -> Self {
        let chunks = (0..8).map(|_| vec![1; chunk_len]).collect();
        Self { chunks, current: 0, used: 0, position: 0, connection, members: 0 }
    }
}

impl StreamSink for Null {
    fn space(&mut self) -> Result<&mut [u8], Stopped> {
        if self.used == self.chunks[self.current].len() {
            self.used = 0;
            self.current = (self.current + 1) % self.chunks.len();
        }
        Ok(&mut self.chunks[self.current][self.used..])
    }

    fn advance(&mut self, len: usize) {
        self.used += len;
        self.position += len as u64;
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn connection(&self) -> u16 {
        self.connection
    }

    fn member(&mut self, entry: FileEntry) {
        self.members += u64::from(!entry.path.is_empty());
    }
}

/// Directories with the names of the files in them.
type Listing = Vec<(PathBuf, Vec<CString>)>;

fn list(directory: &Path, listing: &mut Listing) {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            list(&entry.path(), listing);
        } else if entry.file_type().unwrap().is_file() {
            names.push(CString::new(entry.file_name().as_bytes()).unwrap());
        }
    }
    names.sort();
    listing.push((directory.to_owned(), names));
}

/// The bare loop: everything known ahead, nothing done with what is read.
fn bare(listing: &Listing, threads: usize) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = vec![1; 65_536];
                while let Some((directory, names)) = listing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let directory = File::open(directory).unwrap();
                    for name in names {
                        let fd = openat(&directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
                        while rustix::io::read(&fd, &mut buffer).unwrap() == buffer.len() {}
                    }
                }
            });
        }
    });
}

fn ours(directory: &Path, connections: u16, chunk_len: usize) {
    let tree = TreeSource::new(&[directory.to_owned()], &TreeOptions::default()).unwrap();
    let mut sinks: Vec<_> = (0..connections).map(|number| Null::new(number, chunk_len)).collect();
    let report = tree.run(&mut sinks, None, &Progress::new()).unwrap();
    assert_eq!(sinks.iter().map(|sink| sink.members).sum::<u64>(), report.files + report.directories);
}

/// Processor time of the process so far. On a machine that is not quiet it says more than the clock.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut directory, mut cold, mut rounds, mut connections, mut chunk_len) = (None, false, 5, 2, 1 << 20);
    let mut only = None;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--cold" => cold = true,
            "--rounds" => rounds = arguments.next().unwrap().parse().unwrap(),
            "--connections" => connections = arguments.next().unwrap().parse().unwrap(),
            "--chunk" => chunk_len = arguments.next().unwrap().parse().unwrap(),
            "--only" => only = arguments.next(),
            _ => directory = Some(PathBuf::from(argument)),
        }
    }
    let directory = directory.unwrap();
    let mut listing = Listing::new();
    list(&directory, &mut listing);
    let files: usize = listing.iter().map(|(_, names)| names.len()).sum();
    let bare_threads = if cold { 32 } else { 2 };
    let ours_n = format!("source, {connections} connections");
    let bare_n = format!("bare loop, {bare_threads} threads");
    let kinds: [(&str, &dyn Fn()); 4] = [
        ("bare loop, 1 thread", &|| bare(&listing, 1)),
        (&bare_n, &|| bare(&listing, bare_threads)),
        ("source, 1 connection", &|| ours(&directory, 1, chunk_len)),
        (&ours_n, &|| ours(&directory, connections, chunk_len)),
    ];
    let mut times = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for ((name, run), times) in kinds.iter().zip(&mut times) {
            if only.as_deref().is_some_and(|only| !name.contains(only)) {
                continue;
            }
            if cold {
                rustix::fs::sync();
                std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
            }
            let (start, processor) = (Instant::now(), processor_seconds());
            run();
            times.push((start.elapsed().as_secs_f64(), processor_seconds() - processor));
        }
    }
    for ((name, _), times) in kinds.iter().zip(&mut times) {
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some((wall, _)) = times.get(times.len() / 2).copied() else { continue };
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        let processor = times[times.len() / 2].1 * 1e6 / files as f64;
        println!("{name:24} {:>9.0} files/s  {processor:.2} us of processor each", files as f64 / wall);
    }
}
