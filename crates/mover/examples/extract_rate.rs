//! How fast files are restored, against GNU tar on the same stream and the same disk.
//!
//! `cargo run --release -p capstan-mover --example extract_rate -- [files] [directory]`: writes that many files of 4 to
//! 16 KB (seeded; 200,000 by default) as two streams into memory, then restores them in turn with `tar x`, with one and
//! with two of our threads, three rounds, each into an empty directory, and prints medians.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use capstan_format::EntryKind;
use capstan_format::pax::{BLOCK_LEN, Member, encode, padding};
use capstan_mover::extract::{ExtractOptions, MemberChoice, RestoreTarget};

type Failure = Box<dyn std::error::Error>;
type Way<'a> = (&'a str, &'a dyn Fn(&Path) -> Result<(), Failure>);

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let files: u64 = arguments.next().as_deref().unwrap_or("200000").parse()?;
    let base = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let streams = [stream(files, 0), stream(files, 1)];
    let bytes: usize = streams.iter().map(Vec::len).sum();
    println!("{files} files of 4 to 16 KB, {} MB of stream, below {}", bytes >> 20, base.display());

    let ways: [Way<'_>; 3] = [
        ("tar x", &|to| tar(&streams, to)),
        ("capstan, 1 thread", &|to| capstan(&[&streams.concat()], to)),
        ("capstan, 2 threads", &|to| capstan(&[&streams[0], &streams[1]], to)),
    ];
    let mut times: Vec<Vec<(Duration, Duration)>> = vec![Vec::new(); ways.len()];
    for round in 0..3 {
        for (way, (_, extract)) in ways.iter().enumerate() {
            let to = base.join(format!("extract-rate-{}-{round}-{way}", std::process::id()));
            std::fs::create_dir(&to)?;
            // What the one before left to be written is not this one's work.
            rustix::fs::sync();
            let (begin, processor) = (Instant::now(), processor_time()?);
            extract(&to)?;
            times[way].push((begin.elapsed(), processor_time()? - processor));
            std::fs::remove_dir_all(&to)?;
        }
    }
    let median = |times: &mut Vec<(Duration, Duration)>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let medians: Vec<_> = times.iter_mut().map(median).collect();
    for ((name, _), (wall, processor)) in ways.iter().zip(&medians) {
        let seconds = wall.as_secs_f64();
        let (rate, megabytes) = (files as f64 / seconds, bytes as f64 / seconds / 1e6);
        let (each, ratio) = (processor.as_secs_f64() * 1e6 / files as f64, medians[0].0.as_secs_f64() / seconds);
        println!(
            "{name:<18} {rate:>9.0} files/s {megabytes:>6.0} MB/s {ratio:>6.2} x tar {each:>6.1} us of processor a file"
        );
    }
    Ok(())
}

/// Processor time of this process and of the children that ended, in ticks of ten milliseconds.
fn processor_time() -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().ok_or("no fields")?.split_whitespace();
    // Fields 14 to 17 of the line (proc(5)): utime, stime, cutime, cstime.
    let ticks: u64 = fields.skip(11).take(4).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Ok(Duration::from_millis(ticks * 10))
}

fn tar(streams: &[Vec<u8>], to: &Path) -> Result<(), Failure> {
    let mut child = Command::new("tar").args(["-x", "-f", "-", "-C"]).arg(to).stdin(Stdio::piped()).spawn()?;
    {
        let mut input = child.stdin.take().ok_or("tar has no input")?;
        for stream in streams {
            input.write_all(stream)?;
        }
        input.write_all(&[0; 2 * BLOCK_LEN])?;
    }
    if child.wait()?.success() { Ok(()) } else { Err("tar failed".into()) }
}

fn capstan(streams: &[&[u8]], to: &Path) -> Result<(), Failure> {
    let target = RestoreTarget::new(to, ExtractOptions::default())?;
    std::thread::scope(|scope| {
        let extract = |stream: &[u8]| {
            let mut stream = stream;
            target.extractor().extract(&mut stream, &mut |_| MemberChoice::Take, &mut |_| ())
        };
        let threads: Vec<_> = streams.iter().map(|&stream| scope.spawn(move || extract(stream))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?.map_err(Failure::from))
    })?;
    let report = target.finish()?;
    report.problems.first().map_or(Ok(()), |problem| Err(problem.to_string().into()))
}

/// Every second file, a hundred to a directory, as a walk would give them.
fn stream(files: u64, half: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ half;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let member = |path: &str, kind, size, mtime_ns, out: &mut Vec<u8>| {
        let (mode, uid, gid) = (if kind == EntryKind::Directory { 0o755 } else { 0o644 }, 0, 0);
        let path = path.as_bytes();
        let (user, group, link, records, device, extents) = (b"", b"", b"", b"", (0, 0), None);
        encode(
            &Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents },
            out,
        );
    };
    for number in (0..files).filter(|number| number / 100 % 2 == half) {
        let directory = format!("d{:02}/d{:04}", number / 10_000, number / 100);
        let mtime_ns = 1_700_000_000_123_456_789 + i128::from(number);
        if number % 100 == 0 {
            member(&directory, EntryKind::Directory, 0, mtime_ns, &mut out);
        }
        let size = 4096 + random() % 12_288;
        member(&format!("{directory}/file-{number:07}"), EntryKind::File, size, mtime_ns, &mut out);
        let end = out.len() + size as usize;
        while out.len() < end {
            out.extend_from_slice(&random().to_le_bytes());
        }
        out.truncate(end);
        out.resize(end + padding(size), 0);
    }
    out
}
