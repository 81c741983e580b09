//! Bytes a second through a virtual drive, against plain `write` and `read` of the same bytes on the same disk.
//!
//! `cargo run --release -p capstan-tape --example throughput -- [DIRECTORY] [MIB] [BLOCK_KIB] [ROUNDS]`. Every round
//! writes each kind in turn, flushes, then reads it back from the page cache; the medians are printed, and the ratio to
//! the plain file. Rates with and without the flush are given, since a disk may be much slower than what feeds it.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use capstan_format::{Algorithm, KeyTag};
use capstan_tape::{CartridgeDrive, CartridgeSpec, Drive, DriveKey, Flush, KeySlotKind, NullDrive, ReadOutcome};

#[derive(Debug, Clone, Copy)]
enum Kind {
    PlainFile,
    PlainDrive,
    EncryptingDrive(Algorithm),
    NullDrive,
}

/// Seconds of one run.
#[derive(Debug, Clone, Copy)]
struct Run {
    written: f64,
    flushed: f64,
    read: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).map_or(default, |text: &String| text.parse::<usize>().unwrap());
    let directory = PathBuf::from(arguments.first().map_or(".", String::as_str));
    let (mib, block_kib, rounds) = (number(1, 1024), number(2, 256), number(3, 5));
    let blocks = mib * 1024 / block_kib;
    let kinds = [
        Kind::PlainFile,
        Kind::PlainDrive,
        Kind::EncryptingDrive(Algorithm::Aes256Gcm),
        Kind::EncryptingDrive(Algorithm::Aes256Ccm),
        Kind::NullDrive,
    ];
    let block: Vec<u8> = (0..block_kib * 1024).map(|at| ((at * 2_654_435_761) >> 7) as u8).collect();
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for (kind, runs) in kinds.iter().zip(&mut runs) {
            let path = directory.join("throughput.tape");
            runs.push(match kind {
                Kind::PlainFile => plain_file(&path, &block, blocks),
                Kind::NullDrive => drive(&mut NullDrive::new(), &block, blocks),
                Kind::PlainDrive => drive(&mut virtual_drive(&path, None), &block, blocks),
                Kind::EncryptingDrive(algorithm) => drive(&mut virtual_drive(&path, Some(*algorithm)), &block, blocks),
            });
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(path.with_extension("index"));
        }
    }
    let bytes = (blocks * block.len()) as f64;
    println!("{mib} MiB in blocks of {block_kib} KiB, medians of {rounds} rounds, MB/s and ratio to the plain file");
    let median = |runs: &[Run], part: fn(&Run) -> f64| {
        let mut seconds: Vec<f64> = runs.iter().map(part).collect();
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    for (kind, own) in kinds.iter().zip(&runs) {
        let column = |part: fn(&Run) -> f64| {
            format!("{:8.0} {:5.2}", bytes / median(own, part) / 1e6, median(&runs[0], part) / median(own, part))
        };
        let (written, flushed, read) = (column(|run| run.written), column(|run| run.flushed), column(|run| run.read));
        println!("{:30} write {written}  with flush {flushed}  read {read}", format!("{kind:?}"));
    }
}

fn virtual_drive(path: &Path, algorithm: Option<Algorithm>) -> CartridgeDrive {
    CartridgeSpec {
        volser: "A00001".parse().unwrap(),
        capacity_bytes: 1 << 40,
        early_warning_bytes: 1 << 30,
        generation: "virtual".to_owned(),
    }
    .create(path)
    .unwrap();
    let mut drive = CartridgeDrive::new("virtual-0", path, KeySlotKind::Fitted);
    drive.load().unwrap();
    let key = |algorithm| DriveKey { tag: KeyTag([1; 16]), algorithm, key: [2; 32] };
    drive.set_key(algorithm.map(key)).unwrap();
    drive
}

fn drive(drive: &mut dyn Drive, block: &[u8], blocks: usize) -> Run {
    if drive.medium().is_err() {
        drive.load().unwrap();
    }
    let began = Instant::now();
    for _ in 0..blocks {
        drive.write_block(block).unwrap();
    }
    let written = began.elapsed().as_secs_f64();
    drive.write_filemarks(0, Flush::Synchronous).unwrap();
    let flushed = began.elapsed().as_secs_f64();
    let mut buffer = vec![0; block.len()];
    let began = Instant::now();
    drive.locate(0).unwrap();
    // The null drive refuses to read; its rate is that of the refusals.
    while !matches!(drive.read_block(&mut buffer), Ok(ReadOutcome::EndOfData)) {}
    Run { written, flushed, read: began.elapsed().as_secs_f64() }
}

fn plain_file(path: &Path, block: &[u8], blocks: usize) -> Run {
    let mut file = File::create(path).unwrap();
    let began = Instant::now();
    for _ in 0..blocks {
        file.write_all(block).unwrap();
    }
    let written = began.elapsed().as_secs_f64();
    file.sync_data().unwrap();
    let flushed = began.elapsed().as_secs_f64();
    let mut buffer = vec![0; block.len()];
    let mut file = File::open(path).unwrap();
    let began = Instant::now();
    while file.read(&mut buffer).unwrap() > 0 {}
    Run { written, flushed, read: began.elapsed().as_secs_f64() }
}
