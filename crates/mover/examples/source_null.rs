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
use capstan_mover::{Progress, Stopped, StreamSink, Totals, TreeOptions, TreeSource};
use rustix::fs::{FileType, Mode, OFlags, RawDir, openat};

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

/// Passes names on or finds them itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Known,
    Listed,
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

/// The bare loop: nothing is done with what is read. Names are known ahead, or listed as any reader of a tree must.
fn bare(listing: &Listing, threads: usize, mode: Names) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = vec![1; 65_536];
                let mut entries = vec![std::mem::MaybeUninit::uninit(); 32_768];
                let read = |directory: &File, name: &std::ffi::CStr, buffer: &mut [u8]| {
                    let fd = openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
                    while rustix::io::read(&fd, &mut *buffer).unwrap() == buffer.len() {}
                };
                while let Some((directory, names)) = listing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let directory = File::open(directory).unwrap();
                    match mode {
                        Names::Known => names.iter().for_each(|name| read(&directory, name, &mut buffer)),
                        Names::Listed => {
                            let mut listed = RawDir::new(&directory, &mut entries);
                            while let Some(entry) = listed.next() {
                                let entry = entry.unwrap();
                                if entry.file_type() == FileType::RegularFile {
                                    read(&directory, entry.file_name(), &mut buffer);
                                }
                            }
                        }
                    }
                }
            });
        }
    });
}

fn ours(directory: &Path, connections: u16, chunk_len: usize, counting: bool) {
    let tree = TreeSource::new(&[directory.to_owned()], &TreeOptions::default()).unwrap();
    let mut sinks: Vec<_> = (0..connections).map(|number| Null::new(number, chunk_len)).collect();
    let totals = Totals::new();
    let report = std::thread::scope(|scope| {
        if counting {
            scope.spawn(|| tree.count(&totals));
        }
        tree.run(&mut sinks, None, &Progress::new()).unwrap()
    });
    assert_eq!(sinks.iter().map(|sink| sink.members).sum::<u64>(), report.files + report.directories);
}

/// Processor time of the process so far. On a machine that is not quiet it says more than the clock.
fn processor_seconds() -> f64 {
    // Of the process and of its children: user time, system time, and both of those that ended, in ticks (proc(5)).
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat[stat.rfind(')').unwrap()..].split(' ').skip(12).take(4);
    let ticks: f64 = fields.map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// GNU tar reads nothing if its output is `/dev/null`.
fn gnu_tar(directory: &Path, options: &str) {
    let command = format!("tar --format=posix {options} -cf - '{}' 2>/dev/null | cat > /dev/null", directory.display());
    assert!(std::process::Command::new("sh").args(["-c", &command]).status().unwrap().success());
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
    let names = [
        "bare loop, 1 thread".to_owned(),
        format!("bare loop, {bare_threads} threads"),
        format!("bare loop that lists, {bare_threads} threads"),
        "source, 1 connection".to_owned(),
        format!("source, {connections} connections"),
        format!("source, {connections} connections, counted"),
        "GNU tar | cat".to_owned(),
        "GNU tar --xattrs --acls | cat".to_owned(),
    ];
    let runs: [&dyn Fn(); 8] = [
        &|| bare(&listing, 1, Names::Known),
        &|| bare(&listing, bare_threads, Names::Known),
        &|| bare(&listing, bare_threads, Names::Listed),
        &|| ours(&directory, 1, chunk_len, false),
        &|| ours(&directory, connections, chunk_len, false),
        &|| ours(&directory, connections, chunk_len, true),
        &|| gnu_tar(&directory, ""),
        &|| gnu_tar(&directory, "--xattrs --acls"),
    ];
    let kinds: Vec<_> = names.iter().zip(runs).collect();
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
        println!("{name:34} {:>9.0} files/s  {processor:6.2} us of processor each", files as f64 / wall);
    }
}
