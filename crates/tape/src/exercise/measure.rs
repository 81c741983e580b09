//! How long things take, on the tape that is in the drive: for a report, not for a test.

use std::time::Instant;

use crate::{Drive, DriveError, Flush, ReadOutcome, WriteOutcome};

/// Lengths of blocks that rates are measured with.
const BLOCK_LENS: [usize; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];

/// Bytes that blocks are cut from: no drive's compression sees as far.
const NOISE_LEN: usize = 8 << 20;

/// Times each of the short things are done.
const TIMES: u32 = 5;

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DriveMeasurements {
    /// Steps that take their time.
    pub timings: Vec<Timing>,
    /// Writing, by length of block; the flush is in it.
    pub written: Vec<Rate>,
    /// Reading the same.
    pub read: Vec<Rate>,
    /// What went wrong.
    pub problems: Vec<String>,
}

/// How long something took.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// What.
    pub what: String,
    /// Seconds; a mean where it was done several times.
    pub seconds: f64,
}

/// How fast blocks of one length went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Length of a block.
    pub block_len: usize,
    /// Bytes moved.
    pub bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Blocks of one length on the tape.
struct Stretch {
    block_len: usize,
    first_lbn: u64,
    blocks: u64,
}

impl DriveMeasurements {
    pub(super) fn not_made(why: &str) -> Self {
        Self { problems: vec![format!("nothing was measured: {why}")], ..Self::default() }
    }
}

/// Measures on a drive that was unloaded: it is loaded by that, and stays so. What fails ends it, and is a problem.
pub(super) fn all(drive: &mut dyn Drive, bytes: u64, on_step: &mut dyn FnMut(&str)) -> DriveMeasurements {
    let mut measurements = DriveMeasurements::default();
    if let Err(problem) = measure(drive, bytes, &mut measurements, on_step) {
        measurements.problems.push(problem);
    }
    measurements
}

fn measure(
    drive: &mut dyn Drive,
    bytes: u64,
    found: &mut DriveMeasurements,
    on_step: &mut dyn FnMut(&str),
) -> Result<(), String> {
    on_step("measuring how long loading takes");
    timed(found, "load, until ready", || drive.load())?;
    let noise = noise();
    let max = drive.block_limits().max as usize;
    let lens: Vec<usize> = BLOCK_LENS.into_iter().filter(|len| *len <= max).collect();
    let each = bytes / lens.len().max(1) as u64;
    let mut stretches = Vec::new();
    for block_len in lens {
        on_step(&format!("writing blocks of {} KiB", block_len >> 10));
        let (stretch, rate, room) = write(drive, &noise, block_len, each)?;
        found.written.push(rate);
        stretches.push(stretch);
        if room == WriteOutcome::EarlyWarning {
            found.problems.push("early warning: the tape is too short for so many bytes (--bytes)".to_owned());
            break;
        }
    }
    filemarks(drive, &noise, found, on_step)?;
    on_step("measuring how long going elsewhere takes");
    let end = drive.position().map_err(told("ask for the position"))?.lbn;
    timed(found, "locate the beginning from the end", || drive.locate(0))?;
    timed(found, "locate the end from the beginning", || drive.locate(end))?;
    timed(found, "locate the middle from the end", || drive.locate(end / 2))?;
    timed(found, "space to the end of data from the middle", || drive.space_to_end_of_data())?;
    timed(found, "space over 3 filemarks backwards", || drive.space_filemarks(-3))?;
    timed(found, "locate the beginning", || drive.locate(0))?;
    timed(found, "space over 1 filemark", || drive.space_filemarks(1))?;
    let began = Instant::now();
    let places = (1..=u64::from(TIMES)).map(|number| end * (number * 7 % 11) / 11);
    for lbn in places {
        drive.locate(lbn).map_err(told("locate"))?;
    }
    found.timings.push(Timing {
        what: "locate, anywhere, mean".to_owned(),
        seconds: began.elapsed().as_secs_f64() / f64::from(TIMES),
    });
    for stretch in &stretches {
        on_step(&format!("reading blocks of {} KiB", stretch.block_len >> 10));
        found.read.push(read(drive, &noise, stretch)?);
    }
    timed(found, "unload", || drive.unload())?;
    timed(found, "load again", || drive.load()).map(drop)
}

fn filemarks(
    drive: &mut dyn Drive,
    noise: &[u8],
    found: &mut DriveMeasurements,
    on_step: &mut dyn FnMut(&str),
) -> Result<(), String> {
    on_step("measuring how long filemarks take");
    for (what, flush) in [("filemark, buffered", Flush::Buffered), ("filemark, synchronous", Flush::Synchronous)] {
        let mut seconds = 0.0;
        for _ in 0..TIMES {
            drive.write_block(&noise[..64 << 10]).map_err(told("write"))?;
            let began = Instant::now();
            drive.write_filemarks(1, flush).map_err(told("write a filemark"))?;
            seconds += began.elapsed().as_secs_f64();
        }
        let what = format!("{what}, behind a block, mean");
        found.timings.push(Timing { what, seconds: seconds / f64::from(TIMES) });
    }
    timed(found, "flush with nothing to be flushed", || drive.write_filemarks(0, Flush::Synchronous)).map(drop)
}

fn timed<T>(
    found: &mut DriveMeasurements,
    what: &str,
    step: impl FnOnce() -> Result<T, DriveError>,
) -> Result<T, String> {
    let began = Instant::now();
    let result = step().map_err(told(what))?;
    found.timings.push(Timing { what: what.to_owned(), seconds: began.elapsed().as_secs_f64() });
    Ok(result)
}

fn told(what: &str) -> impl FnOnce(DriveError) -> String {
    let what = what.to_owned();
    move |error| format!("{what}: {error}")
}

/// The block of this number: another part of the noise each time.
fn block(noise: &[u8], block_len: usize, number: u64) -> &[u8] {
    let start = (number as usize).wrapping_mul(4099) % (noise.len() - block_len + 1);
    &noise[start..start + block_len]
}

fn write(
    drive: &mut dyn Drive,
    noise: &[u8],
    block_len: usize,
    bytes: u64,
) -> Result<(Stretch, Rate, WriteOutcome), String> {
    let first_lbn = drive.position().map_err(told("ask for the position"))?.lbn;
    let wanted = (bytes / block_len as u64).max(1);
    let began = Instant::now();
    let (mut blocks, mut room) = (0, WriteOutcome::Written);
    while blocks < wanted && room == WriteOutcome::Written {
        room = drive.write_block(block(noise, block_len, blocks)).map_err(told("write"))?;
        blocks += 1;
    }
    drive.write_filemarks(1, Flush::Synchronous).map_err(told("write a filemark"))?;
    let seconds = began.elapsed().as_secs_f64();
    let rate = Rate { block_len, bytes: blocks * block_len as u64, seconds };
    Ok((Stretch { block_len, first_lbn, blocks }, rate, room))
}

fn read(drive: &mut dyn Drive, noise: &[u8], stretch: &Stretch) -> Result<Rate, String> {
    let Stretch { block_len, first_lbn, blocks } = *stretch;
    drive.locate(first_lbn).map_err(told("locate"))?;
    let mut buffer = vec![0; block_len];
    let began = Instant::now();
    for number in 0..blocks {
        match drive.read_block(&mut buffer).map_err(told("read"))? {
            ReadOutcome::Block(len) if buffer.get(..len) == Some(block(noise, block_len, number)) => {}
            other => {
                let lbn = first_lbn + number;
                return Err(format!("block {lbn} of {block_len} bytes is not as it was written ({other:?})"));
            }
        }
    }
    Ok(Rate { block_len, bytes: blocks * block_len as u64, seconds: began.elapsed().as_secs_f64() })
}

/// Bytes that no drive makes shorter; the same each time.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(NOISE_LEN);
    while bytes.len() < NOISE_LEN {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::{CartridgeDrive, CartridgeSpec, Fault, FaultyDrive, KeySlotKind};

    fn drive(folder: &std::path::Path) -> CartridgeDrive {
        let path = folder.join("A00001.tape");
        let spec = CartridgeSpec {
            volser: "A00001".parse().unwrap(),
            capacity_bytes: 64 << 20,
            early_warning_bytes: 1 << 20,
            generation: "virtual".to_owned(),
        };
        spec.create(&path).unwrap();
        CartridgeDrive::new("virtual-0", path, KeySlotKind::Missing)
    }

    #[test]
    fn everything_is_measured_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let found = all(&mut drive(folder.path()), 24 << 20, &mut |_| {});
        assert_eq!(found.problems, Vec::<String>::new());
        assert_eq!((found.written.len(), found.read.len()), (6, 6));
        assert!(found.written.iter().zip(&found.read).all(|(one, other)| one.bytes == other.bytes && one.bytes > 0));
        assert!(found.timings.len() > 10);
    }

    #[test]
    fn what_goes_wrong_is_a_problem_and_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let mut faulty = FaultyDrive::new(drive(folder.path()), vec![Fault::ReadFails { lbn: 20 }]);
        let found = all(&mut faulty, 24 << 20, &mut |_| {});
        assert_eq!(found.problems.len(), 1, "{found:?}");
        assert!(found.problems[0].contains("block 20"), "{found:?}");
        assert_eq!(found.written.len(), 6);
    }

    #[test]
    fn a_tape_that_is_too_short_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let found = all(&mut drive(folder.path()), 200 << 20, &mut |_| {});
        assert!(found.problems.iter().any(|problem| problem.contains("too short")), "{found:?}");
    }
}
