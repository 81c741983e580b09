//! What a restore gives, and what an object copy does, by themselves: as the papers' tables have them.
//!
//! ```text
//!   source --> cartridge          once; as much as is read in a while
//!   cartridge --> files, flushed  a restore, in rounds
//!   cartridge --> cartridge       an object copy, in rounds
//! ```
//! Both go as `restore` and `copy` go, without a catalog: cartridges are encrypted, files are flushed before they
//! count. Everything is made and removed below one folder for cartridges and one for files. Limits: what is written
//! once is read in every round, and files that were not written to their end are not restored.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use capstan_format::{CatalogPart, EntryDecoder, FileEntry, Volser, VolumeId};
use capstan_mover::extract::{Durability, ExtractError, ExtractOptions, RestoreTarget as Directory};
use capstan_mover::{
    CopyHost, DrivesAt, ExtentPlace, HostError, MountId, MountedDrives, ReadHost, ReadMeters, ReadPlan, RestoreWatch,
    Session, StreamSink, VolumeAccess, VolumePlace, Wanted, WantedMember, WantedStream, plan_reads, read_streams,
    restore_streams,
};
use capstan_tape::{CartridgeDrive, Drive, KeySlotKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::data_path::{self, DataPath, DataPathError, DataPathTarget};
use super::{Scratch, Spread, free_mb, processor_s, processors};

/// A disk with fewer MB left is full.
const FULL_MB: u64 = 4;

/// How restores and object copies are measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Restoring {
    /// What is written first: the source, and how; its target is the folder of the cartridges.
    pub backup: DataPath,
    /// Where files are restored to and removed.
    pub to: PathBuf,
    /// Rounds of each.
    pub rounds: u32,
}

/// What one way gave.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct WayRate {
    /// MB/s of content.
    pub mb_per_s: Spread,
    /// Seconds of processors for each MB.
    pub cpu_s_per_mb: f64,
}

/// What restores and object copies gave.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RestoreRates {
    /// The source.
    #[serde(with = "crate::site::path_text")]
    #[schemars(with = "String")]
    pub source: PathBuf,
    /// Where files were restored to.
    #[serde(with = "crate::site::path_text")]
    #[schemars(with = "String")]
    pub to: PathBuf,
    /// Processors that there were.
    pub processors: u32,
    /// MB of content that were restored in a round.
    pub mb: f64,
    /// Files of a round.
    pub files: u64,
    /// The backup that came first, to a cartridge.
    pub backup: WayRate,
    /// From a cartridge to files.
    pub restore: WayRate,
    /// From a cartridge to another.
    pub copy: WayRate,
}

/// Why it could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum RestoringError {
    /// The backup, or a copy.
    #[error(transparent)]
    DataPath(#[from] DataPathError),
    /// The files.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// A folder.
    #[error("cannot make a folder below {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is not enough room for what was backed up, once more.
    #[error(
        "{what} takes {needed} MB, and {} has {free} MB left: let the backup read for less time (--seconds), or name \
         another folder",
        folder.display()
    )]
    NoRoom {
        /// What takes it.
        what: &'static str,
        /// The folder.
        folder: PathBuf,
        /// MB that it takes.
        needed: u64,
        /// MB that are free.
        free: u64,
    },
    /// A disk became full.
    #[error(
        "the disk of {} is full ({reason}): let the backup read for less time (--seconds), or name another folder",
        folder.display()
    )]
    Full {
        /// The folder.
        folder: PathBuf,
        /// What failed.
        reason: String,
    },
    /// Something did not come back as it was written.
    #[error("{reason}. What is restored here was written a moment ago: the disk, or its memory, is at fault")]
    Broken {
        /// What.
        reason: String,
    },
    /// Nothing was written to its end.
    #[error("no file of {} was read to its end: let the backup read for longer (--seconds)", path.display())]
    Nothing {
        /// The source.
        path: PathBuf,
    },
    /// A number that cannot be.
    #[error("{what}")]
    Option {
        /// What is wrong.
        what: &'static str,
    },
}

/// Reads cartridges of the laboratory.
struct Reader<'a> {
    folder: &'a Path,
    drives: Arc<MountedDrives>,
}

impl ReadHost for Reader<'_> {
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError> {
        let path = self.folder.join(format!("{}.tape", place.volser));
        let mut drive = CartridgeDrive::new("lab", path, KeySlotKind::Fitted);
        drive.load()?;
        drive.set_key(Some(data_path::throwaway_key(capstan_format::Algorithm::Aes256Gcm)))?;
        Ok(self.drives.add(Box::new(drive)))
    }

    fn release(&mut self, mount: MountId, _place: &VolumePlace) {
        // It was read only.
        let _ = self.drives.remove(mount).map(|mut drive| drive.unload());
    }
}

/// Where everything stands that was written to its end.
fn wanted(parts: &[(Volser, CatalogPart)], chunk_len: u32) -> Result<(Wanted, u64), RestoringError> {
    let broken = |error: capstan_format::FormatError| RestoringError::Broken { reason: error.to_string() };
    let mut all = Wanted::default();
    let (mut entries, mut bytes): (Vec<FileEntry>, u64) = (Vec::new(), 0);
    for (volser, part) in parts {
        let known = all.volumes.iter().position(|place| place.volser == *volser);
        let volume = known.unwrap_or(all.volumes.len());
        if known.is_none() {
            all.volumes.push(VolumePlace { volser: volser.clone(), volume: VolumeId(1) });
        }
        for extent in &part.extents {
            let place = ExtentPlace {
                volume,
                copy: 1,
                connection: extent.connection,
                base: 0,
                first_lbn: extent.first_lbn,
                blocks: extent.blocks,
                offset: extent.offset,
                plain_len: extent.plain_len,
            };
            let (object, connection) = (extent.object, extent.connection);
            match all.streams.iter_mut().find(|stream| stream.connection == connection) {
                Some(stream) => stream.extents.push(place),
                None => all.streams.push(WantedStream {
                    object,
                    connection,
                    chunk_len,
                    members: Vec::new(),
                    extents: vec![place],
                }),
            }
        }
        for (_, run) in &part.entries {
            for entry in EntryDecoder::new(run) {
                entries.push(entry.map_err(broken)?);
            }
        }
    }
    for stream in &mut all.streams {
        stream.extents.sort_by_key(|extent| extent.offset);
        let end = stream.extents.last().map_or(0, |extent| extent.offset + extent.plain_len);
        let is_member = |entry: &&FileEntry| entry.member_len > 0 && !entry.is_fragment();
        let own = entries.iter().filter(is_member).filter(|entry| entry.connection == stream.connection);
        for entry in own.filter(|entry| entry.offset + entry.member_len <= end) {
            stream.members.push(WantedMember { offset: entry.offset, len: entry.member_len, crc: entry.crc });
            bytes += entry.size;
        }
        stream.members.sort_by_key(|member| member.offset);
    }
    all.streams.retain(|stream| !stream.members.is_empty());
    Ok((all, bytes))
}

/// Rounds of something that gives so many MB each time.
fn rounds(
    count: u32,
    mb: f64,
    stop: &AtomicBool,
    mut once: impl FnMut() -> Result<f64, RestoringError>,
) -> Result<WayRate, RestoringError> {
    let (mut rates, cpu) = (Vec::new(), processor_s());
    for _ in 0..count {
        let done = once();
        // What a stop has cut off is no fault of the disk.
        if stop.load(Ordering::Relaxed) {
            return Err(DataPathError::Stopped.into());
        }
        rates.push(mb / done?.max(1e-9));
    }
    let mb_per_s = Spread::of_rounds(rates).unwrap_or(Spread::exactly(0.0));
    Ok(WayRate { mb_per_s, cpu_s_per_mb: (processor_s() - cpu) / (mb * f64::from(count)).max(1e-9) })
}

/// Whether a folder has room for so many MB.
fn check_room(what: &'static str, folder: &Path, mb: f64) -> Result<(), RestoringError> {
    let (needed, free) = ((mb as u64).saturating_add(64), free_mb(folder).unwrap_or(u64::MAX));
    if needed > free {
        return Err(RestoringError::NoRoom { what, folder: folder.to_owned(), needed, free });
    }
    Ok(())
}

/// That a disk is full has words of its own, with the folder that lies on it.
fn full_or(error: RestoringError, folder: &Path) -> RestoringError {
    if matches!(error, RestoringError::DataPath(DataPathError::Stopped)) {
        return error;
    }
    let mut causes = std::iter::successors(Some(&error as &dyn std::error::Error), |cause| cause.source());
    let of_disk = |cause: &(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<io::Error>();
        error.is_some_and(|error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    };
    if !causes.any(of_disk) && free_mb(folder).map_or(true, |free| free >= FULL_MB) {
        return error;
    }
    let reason = match error {
        // Neither the disk nor memory is at fault.
        RestoringError::Broken { reason } => reason,
        other => other.to_string(),
    };
    RestoringError::Full { folder: folder.to_owned(), reason }
}

/// Measures a restore and an object copy of what a source gives; `tell` hears what is being measured.
///
/// # Errors
/// A number cannot be; there is not enough room; the backup, the copy or the files failed; something did not come back
/// as it was written; or it was stopped.
pub fn measure_restore(
    what: &Restoring,
    stop: &Arc<AtomicBool>,
    tell: &mut dyn FnMut(&str),
) -> Result<RestoreRates, RestoringError> {
    if what.rounds == 0 {
        return Err(RestoringError::Option { what: "there is at least one round" });
    }
    let below = |path: &Path| {
        let path = path.to_owned();
        Scratch::below(&path).map_err(|source| RestoringError::Folder { path, source })
    };
    let DataPathTarget::Virtual { folder, .. } = &what.backup.target else {
        return Err(RestoringError::Option { what: "a restore reads cartridges: name a folder for them" });
    };
    let (cartridges, files) = (below(folder)?, below(&what.to)?);
    tell("backing up to a cartridge");
    check_room("a backup", folder, 0.0)?;
    let (run, parts) = data_path::run_and_keep(&what.backup, cartridges.path(), stop)
        .map_err(|error| full_or(error.into(), folder))?;
    let (wanted, bytes) = wanted(&parts, what.backup.block_len as u32)?;
    if bytes == 0 {
        return Err(RestoringError::Nothing { path: what.backup.source.clone() });
    }
    let (plan, mb) = (plan_reads(&wanted), bytes as f64 / 1e6);
    check_room("a restore", &what.to, mb)?;
    check_room("a copy", folder, run.stored_mb)?;
    let drives = Arc::new(MountedDrives::new());
    let mut host = Reader { folder: cartridges.path(), drives: Arc::clone(&drives) };
    tell("restoring");
    let mut members = 0;
    let number = AtomicU32::new(0);
    let restore = rounds(what.rounds, mb, stop, || {
        let place = files.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        let restored = restore_once((&wanted, &plan), &mut host, &place, stop);
        let (seconds, restored) = restored.map_err(|error| full_or(error, &what.to))?;
        members = restored;
        // Room for the next; removing is no part of a restore.
        let _ = std::fs::remove_dir_all(&place);
        Ok(seconds)
    })?;
    tell("copying to another cartridge");
    let copy = rounds(what.rounds, mb, stop, || {
        let copied = copy_once(what, &wanted, &mut host, cartridges.path(), stop);
        copied.map_err(|error| full_or(error, folder))
    })?;
    let (mb_per_s, cpu_s_per_mb) = (run.steady_mb_per_s, run.cpu_s / run.mb.max(1e-9));
    Ok(RestoreRates {
        source: what.backup.source.clone(),
        to: what.to.clone(),
        processors: processors(),
        mb,
        files: members,
        backup: WayRate { mb_per_s, cpu_s_per_mb },
        restore,
        copy,
    })
}

/// Restores everything to a new folder, and gives the seconds until it is flushed, and how many files and folders that
/// were.
fn restore_once(
    (wanted, plan): (&Wanted, &ReadPlan),
    host: &mut Reader<'_>,
    place: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<(f64, u64), RestoringError> {
    let drives = Arc::clone(&host.drives);
    let watch = RestoreWatch { stop: Arc::clone(stop), ..RestoreWatch::default() };
    let began = Instant::now();
    let target = Directory::new(place, ExtractOptions { durability: Durability::Synced, ..ExtractOptions::default() })?;
    let access = VolumeAccess { host, drives: DrivesAt::from(&*drives), between: None };
    let report = restore_streams(wanted, plan, access, &target, &watch);
    if let Some(fatal) = report.fatal {
        return Err(fatal.into());
    }
    if let Some(lost) = report.read.lost.first() {
        return Err(RestoringError::Broken { reason: lost.to_string() });
    }
    if let Some(failed) = report.failed.into_iter().next() {
        return Err(RestoringError::Broken { reason: failed.reason });
    }
    target.finish()?;
    Ok((began.elapsed().as_secs_f64(), watch.members.load(Ordering::Relaxed)))
}

/// Copies everything to a new cartridge, one connection after the other, and gives the seconds until it is flushed.
fn copy_once(
    what: &Restoring,
    wanted: &Wanted,
    host: &mut Reader<'_>,
    folder: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<f64, RestoringError> {
    const COPY: u32 = 2;
    let began = Instant::now();
    let hosts: Vec<Box<dyn CopyHost>> = vec![data_path::writer(&what.backup, folder, COPY, &host.drives)];
    let options = data_path::session_options(&DataPath { connections: 1, ..what.backup.clone() });
    let session = Session::start(&options, &data_path::session_record(), &host.drives, hosts, Arc::clone(stop))
        .map_err(DataPathError::from)?;
    let object = data_path::object_record(&what.backup);
    let id = object.object;
    session.intake().begin_object(object).map_err(DataPathError::from)?;
    for (number, stream) in (0..).zip(&wanted.streams) {
        let end = stream.members.last().map_or(0, |member| member.offset + member.len);
        let one = Wanted { volumes: wanted.volumes.clone(), streams: vec![stream.clone()] };
        let sink = Mutex::new(session.intake().connection(id, number));
        let failure = Mutex::new(None);
        let drives = Arc::clone(&host.drives);
        let access = VolumeAccess { host: &mut *host, drives: DrivesAt::from(&*drives), between: None };
        let read = read_streams(&one, &plan_reads(&one), access, (stop, &ReadMeters::default()), &|_, reader| {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(reason) = move_bytes(&mut reader.range(0..end), &mut *sink) {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            }
        });
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let lost = read.lost.first().map(ToString::to_string);
        if let Some(reason) = lost.or(failure.into_inner().unwrap_or_else(PoisonError::into_inner)) {
            return Err(RestoringError::Broken { reason });
        }
        let sink = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        sink.finish().map_err(capstan_mover::SourceError::from).map_err(DataPathError::from)?;
    }
    for copy in session.finish().writers {
        copy.map_err(DataPathError::from)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    data_path::remove_copy(folder, COPY);
    Ok(seconds)
}

fn move_bytes(bytes: &mut dyn BufRead, sink: &mut impl StreamSink) -> Result<(), String> {
    loop {
        let available = bytes.fill_buf().map_err(|error| error.to_string())?;
        if available.is_empty() {
            return Ok(());
        }
        let len = available.len();
        sink.write(available).map_err(|error| error.to_string())?;
        bytes.consume(len);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::data_set::{DataSet, DataSetWatch, FileLengths, Shape};
    use crate::measure::data_path::null_run;
    use crate::measure::source::Cache;

    fn restoring(folder: &Path) -> Restoring {
        let (source, library) = (folder.join("set"), folder.join("library"));
        let target = DataPathTarget::Virtual {
            folder: library,
            encryption: Some(capstan_format::Algorithm::Aes256Gcm),
            pace: None,
        };
        let run =
            DataPath { cache: Cache::Warm, seconds: 60.0, connections: 3, compression_level: 1, ..null_run(&source) };
        Restoring { backup: DataPath { target, ..run }, to: folder.join("back"), rounds: 2 }
    }

    #[test]
    fn all_of_a_tree_is_restored_and_copied_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let set = DataSet::plan(&Shape::of_bytes(FileLengths::Small, 8_000_000, 3)).unwrap();
        set.make(&folder.path().join("set"), &DataSetWatch::default()).unwrap();
        let what = restoring(folder.path());
        let mut told = 0;
        let rates = measure_restore(&what, &Arc::default(), &mut |_| told += 1).unwrap();
        assert!((rates.mb - 8.0).abs() < 1e-9 && told == 3, "{rates:?}");
        // Files and folders.
        assert!(rates.files >= set.file_count(), "{rates:?}");
        for way in [rates.backup, rates.restore, rates.copy] {
            assert!(way.mb_per_s.low > 0.0 && way.cpu_s_per_mb > 0.0, "{rates:?}");
        }
        for place in ["library", "back"] {
            assert_eq!(std::fs::read_dir(folder.path().join(place)).unwrap().count(), 0, "{place}");
        }
    }

    #[test]
    fn a_stop_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("set")).unwrap();
        std::fs::write(folder.path().join("set/file"), vec![1; 100_000]).unwrap();
        let stopped = measure_restore(&restoring(folder.path()), &Arc::new(AtomicBool::new(true)), &mut |_| {});
        assert!(matches!(stopped, Err(RestoringError::DataPath(DataPathError::Stopped))), "{stopped:?}");
        assert_eq!(std::fs::read_dir(folder.path().join("library")).unwrap().count(), 0);
    }

    /// Ctrl-C during a restore was told as a fault of the disk, or of its memory.
    #[test]
    fn a_stop_during_a_restore_or_a_copy_is_no_fault_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let set = DataSet::plan(&Shape::of_bytes(FileLengths::Small, 8_000_000, 3)).unwrap();
        set.make(&folder.path().join("set"), &DataSetWatch::default()).unwrap();
        for when in ["restoring", "copying"] {
            let (stop, ended) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
            let back = folder.path().join("back");
            let has_files = || {
                let mut below = walkdir::WalkDir::new(&back).into_iter().filter_map(Result::ok);
                below.any(|entry| entry.file_type().is_file())
            };
            let stopped = std::thread::scope(|scope| {
                let stopped = measure_restore(&restoring(folder.path()), &stop, &mut |doing| {
                    if !doing.starts_with(when) {
                        return;
                    }
                    if when == "copying" {
                        return stop.store(true, Ordering::Relaxed);
                    }
                    // A restore is stopped in its middle.
                    let (stop, ended, has_files) = (&stop, &ended, &has_files);
                    scope.spawn(move || {
                        while !has_files() && !ended.load(Ordering::Relaxed) {
                            std::thread::yield_now();
                        }
                        stop.store(true, Ordering::Relaxed);
                    });
                });
                ended.store(true, Ordering::Relaxed);
                stopped
            });
            let is_stop = matches!(stopped, Err(RestoringError::DataPath(DataPathError::Stopped)));
            assert!(is_stop, "{when}: {stopped:?}");
        }
        for place in ["library", "back"] {
            assert_eq!(std::fs::read_dir(folder.path().join(place)).unwrap().count(), 0, "{place}");
        }
    }

    #[test]
    fn a_disk_that_is_full_has_words_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let source = io::Error::from(io::ErrorKind::StorageFull);
        let full = RestoringError::Folder { path: folder.path().to_owned(), source };
        let told = full_or(full, folder.path()).to_string();
        assert!(told.starts_with("the disk of ") && told.contains("--seconds"), "{told}");
        let other = full_or(RestoringError::Option { what: "other" }, folder.path());
        assert!(matches!(other, RestoringError::Option { .. }), "{other}");
        let refused = check_room("a restore", folder.path(), 1e15).unwrap_err().to_string();
        assert!(refused.starts_with("a restore takes 1000000000000064 MB"), "{refused}");
    }
}
