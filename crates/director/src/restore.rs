//! Restores: a plan is carried out, and what came of it is told.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use capstan_catalog::StateEntry;
use capstan_format::Volser;
use capstan_mover::extract::{
    ExtractOptions, ExtractReport, Overwrite, RestoreTarget as Directory, damaged_name, open_or_make_directory,
    stripped,
};
use capstan_mover::{
    BadBlocks, Damage, FailedMember, NetworkJob, ReadOrder, ReadPlan, RestorePart, RestoreShare, RestoreWatch,
    SourceError, StreamsReport, VolumeAccess, restore_streams,
};
use capstan_tape::with_causes;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::cat::Lacks;
use crate::libraries::VolumeRoutes;
use crate::mounter::{Mounter, ReadMounter};
use crate::plan::RestorePlan;
use crate::read_at_once::{read_at_once, share_out};
use crate::select::WhichCopy;
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// How the name of a file begins that is not finished.
const UNFINISHED_PREFIX: &str = ".capstan-restore-";

/// A file that could not be given back, and why.
#[derive(Debug, Clone)]
pub struct FailedFile {
    /// Its path.
    pub path: Vec<u8>,
    /// What is wrong, with volume and block where one is damaged.
    pub reason: String,
}

/// How a restore or a verification ended.
#[derive(Debug, Default)]
pub struct RestoreReport {
    /// What was written; `None` for a verification.
    pub extract: Option<ExtractReport>,
    /// Members that were read.
    pub members: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Files that could not be given back.
    pub failed: Vec<FailedFile>,
    /// Blocks that no copy gave.
    pub lost: Vec<Damage>,
    /// Blocks that were damaged in one copy and came from another.
    pub recovered: Vec<Damage>,
    /// Blocks that the medium is at fault for, whether or not another copy gave them.
    pub bad: Vec<BadBlocks>,
    /// Volumes that hold part of it and are not in the library. Another copy may have stood in for them.
    pub absent: Vec<Volser>,
    /// Volumes that no key opens, and why. Another copy may have stood in for them.
    pub without_key: Vec<(Volser, DirectorError)>,
    /// In which order volumes were read of which there was more than one stretch to read.
    pub orders: Vec<ReadOrder>,
    /// Members that this copy lacks and another holds: it is a twin that ended before the other.
    pub behind: u64,
    /// How long it took.
    pub elapsed_ns: u64,
    /// Volumes that could not be mounted, or whose mover was gone.
    pub(crate) out_of_reach: Vec<Volser>,
    /// Files that failed and were written all the same: their content is not what it was.
    pub(crate) written: HashSet<Vec<u8>>,
}

/// Why what a program printed was not written.
enum NotWritten {
    /// It could not be read.
    Unread(String),
    /// It was not to be, or could not be, written.
    Refused(String),
}

/// How what failed is restored again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// Whole, or not at all.
    Whole,
    /// What can be read of it.
    Damaged,
}

impl Again {
    /// In this order.
    fn of(plan: &RestorePlan) -> &'static [Self] {
        if plan.keep_damaged { &[Self::Whole, Self::Damaged] } else { &[Self::Whole] }
    }
}

impl RestoreReport {
    /// Whether everything that was asked for was given back.
    pub fn is_whole(&self) -> bool {
        self.failed.is_empty() && self.lost.is_empty()
    }

    /// Takes in what another part of the same work met.
    pub(crate) fn add(&mut self, part: Self) {
        self.blocks += part.blocks;
        self.failed.extend(part.failed);
        self.lost.extend(part.lost);
        self.recovered.extend(part.recovered);
        self.bad.extend(part.bad);
        for volser in part.absent {
            if !self.absent.contains(&volser) {
                self.absent.push(volser);
            }
        }
        self.without_key.extend(part.without_key);
        self.orders.extend(part.orders);
    }

    /// Whether something that was read is at fault, and not merely out of reach: no key, no volume, no drive.
    pub fn is_damaged(&self) -> bool {
        !self.is_whole()
            && (self.lost.is_empty() && self.absent.is_empty() || self.lost.iter().any(|lost| lost.of_medium))
    }

    /// Whether all that was asked for was looked at: nothing was out of reach.
    pub(crate) fn is_complete(&self) -> bool {
        self.without_key.is_empty() && self.absent.is_empty() && self.lost.iter().all(|lost| lost.of_medium)
    }
}

impl Site {
    /// Carries out a plan: writes below `directory`.
    ///
    /// # Errors
    /// [`DirectorError::RestoreInterrupted`] if `watch` stopped it; [`DirectorError::Extract`] if nothing can be
    /// written below the directory; no library can be asked. Files that could not be restored are in the report.
    pub fn restore(
        &self,
        plan: &RestorePlan,
        directory: &Path,
        options: &ExtractOptions,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        plan.check_asked(self)?;
        let began = Instant::now();
        let _kept = self.keep_what_is_read(&plan.objects);
        let members = plan.wanted.streams.iter().flat_map(|stream| &stream.members).map(|member| member.len);
        let streams = plan.streams.iter().map(|stream| stream.entry.size);
        watch.planned.fetch_add(members.chain(streams).fold(0, u64::saturating_add), Relaxed);
        let target = Directory::new(directory, options.clone()).map_err(DirectorError::Extract)?;
        target.select(plan.selection.clone());
        let restored = self.restore_below(plan, &target, watch);
        // However it ends, what was written gets what is set at last: links, and what directories had.
        let finished = target.finish().map_err(DirectorError::Extract);
        let (mut report, mut extract) = (restored?, finished?);
        extract.unchanged += plan.files_there();
        report.extract = Some(extract);
        for stream in &plan.streams {
            self.restore_stream(stream, (directory, options, plan.keep_damaged), &mut report, watch)?;
        }
        self.tell_unknown(plan, &mut report)?;
        report.elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(report)
    }

    /// Writes what a plan reads below a directory; what failed is tried once more.
    fn restore_below(
        &self,
        plan: &RestorePlan,
        target: &Directory,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(&watch.stop)).sharing_volumes();
        let routes = self.routes()?;
        let restore = |reads: &ReadPlan, host: &mut ReadMounter| {
            let access = VolumeAccess { host, drives: routes.drives(), between: None };
            restore_streams(&plan.wanted, reads, access, target, watch)
        };
        let shares = share_out(&plan.wanted, routes.plans(&plan.wanted, &plan.reads), &host);
        let streams = read_at_once(&shares, &mut host, &restore);
        let mut report = self.report(plan, streams, &mut host, watch)?;
        host.note_bad(&report.bad, "restore");
        drop(host);
        if watch.stop.load(Relaxed) {
            return Err(DirectorError::RestoreInterrupted);
        }
        for &what in Again::of(plan) {
            let mounter = Mounter::new(self).stopped_by(&watch.stop);
            if what == Again::Damaged {
                target.keep_damaged();
            }
            self.restore_again(plan, &mut report, (mounter, what, watch), &|again, host, routes| {
                let access = VolumeAccess { host, drives: routes.drives(), between: None };
                Ok(restore_streams(&again.wanted, &again.reads, access, target, watch))
            })?;
        }
        Ok(report)
    }

    /// Plans what failed once more, among the volumes that were not out of reach: a read goes to the other copies of
    /// its own library alone. None where there is nothing to read.
    fn planned_again(
        &self,
        plan: &RestorePlan,
        report: &RestoreReport,
        what: Again,
    ) -> Result<Option<(RestorePlan, VolumeRoutes)>, DirectorError> {
        // What was written is not written again, though its content is not what it was.
        let failed = report.failed.iter().map(|file| &*file.path).filter(|path| !report.written.contains(*path));
        let failed: HashSet<&[u8]> = failed.collect();
        if failed.is_empty() {
            return Ok(None);
        }
        let entries = plan.entries.iter().filter(|entry| failed.contains(&*entry.entry.path)).cloned().collect();
        // What was found damaged is on record. What could not be mounted, or has no key, is passed by.
        let mut out_of_reach: HashSet<&Volser> = report.without_key.iter().map(|(volser, _)| volser).collect();
        out_of_reach.extend(report.lost.iter().filter(|lost| !lost.of_medium).map(|lost| &lost.volser));
        out_of_reach.extend(&report.out_of_reach);
        let mut present = self.present()?;
        present.retain(|volser| !out_of_reach.contains(volser));
        let mut again = self.plan_among(entries, plan.objects.clone(), plan.interrupted, WhichCopy::Any, &present)?;
        again.selection = plan.selection.clone();
        // What no other volume has was just read, and its drive has tried for long.
        let is_damaged = |volser: &Volser| report.lost.iter().any(|lost| lost.of_medium && lost.volser == *volser);
        let is_vain = what == Again::Whole
            && !self.libraries.are_several()
            && again.passes.iter().all(|pass| is_damaged(&pass.volser));
        Ok(if is_vain { None } else { Some((again, self.routes()?)) })
    }

    /// Restores what failed once more: from a copy in another library, or over another connection; or what can be read
    /// of it.
    fn restore_again(
        &self,
        plan: &RestorePlan,
        report: &mut RestoreReport,
        (mounter, what, watch): (Mounter, Again, &RestoreWatch),
        restore: &dyn Fn(&RestorePlan, &mut ReadMounter, &VolumeRoutes) -> Result<StreamsReport, DirectorError>,
    ) -> Result<(), DirectorError> {
        let (again, routes) = match self.planned_again(plan, report, what) {
            Ok(Some(again)) => again,
            Ok(None) => return Ok(()),
            // What was restored is finished all the same.
            Err(error) => {
                let message = format!("what failed could not be tried once more: {}", with_causes(&error));
                (self.events)(Event::Notice { message });
                return Ok(());
            }
        };
        let mut host = ReadMounter::new(mounter).sharing_volumes();
        let streams = restore(&again, &mut host, &routes)?;
        let second = self.report(&again, streams, &mut host, watch)?;
        host.note_bad(&second.bad, "restore");
        drop(host);
        if watch.stop.load(Relaxed) {
            return Err(DirectorError::RestoreInterrupted);
        }
        (report.members, report.bytes) = (second.members, second.bytes);
        report.blocks += second.blocks;
        let first = std::mem::take(&mut report.failed);
        let (written, first): (Vec<_>, Vec<_>) =
            first.into_iter().partition(|file| report.written.contains(&file.path));
        let reasons: HashMap<&[u8], &str> = first.iter().map(|file| (&*file.path, &*file.reason)).collect();
        report.failed = written;
        report.failed.extend(second.failed.into_iter().map(|mut file| {
            if let Some(first) = reasons.get(&*file.path).filter(|first| **first != file.reason) {
                file.reason = match what {
                    Again::Whole => format!("{first}; and when it was tried once more: {}", file.reason),
                    Again::Damaged => format!("{first}; {}", file.reason),
                };
            }
            file
        }));
        report.written.extend(second.written);
        report.recovered.extend(second.recovered);
        report.bad.extend(second.bad);
        report.orders.extend(second.orders);
        report.without_key.extend(second.without_key);
        // What was read in vain once more is the same block.
        let lost = second.lost.into_iter().filter(|lost| !report.lost.contains(lost)).collect::<Vec<_>>();
        report.lost.extend(lost);
        if report.failed.is_empty() {
            report.recovered.append(&mut report.lost);
            report.without_key.clear();
        }
        Ok(())
    }

    /// Carries out a plan: a client writes what is read, where its user said.
    ///
    /// # Errors
    /// [`DirectorError::RestoreInterrupted`] if `watch` stopped it; [`DirectorError::Extract`] if the client cannot
    /// write; [`DirectorError::SourceHost`] if it is gone; no library can be asked. Files that could not be restored
    /// are in the report.
    pub fn restore_to_client(
        &self,
        plan: &RestorePlan,
        client: &NetworkJob,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        plan.check_asked(self)?;
        let began = Instant::now();
        let without = self.plan_without(plan, &mut |files| Ok(client.files_there(files, &watch.stop)?))?;
        let plan = without.as_ref().unwrap_or(plan);
        let message = match plan.files_there() {
            0 => None,
            1 => Some("1 file is at the client already, and is not read again".to_owned()),
            files => Some(format!("{files} files are at the client already, and are not read again")),
        };
        message.into_iter().for_each(|message| (self.events)(Event::Notice { message }));
        let members = plan.wanted.streams.iter().flat_map(|stream| &stream.members).map(|member| member.len);
        watch.planned.fetch_add(members.fold(0, u64::saturating_add), Relaxed);
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(&watch.stop).of_queue()).sharing_volumes();
        let routes = self.routes()?;
        let streams = read_to_client(plan, client, (&mut host, &routes), (Again::Whole, watch))?;
        let is_mover_gone = !streams.read.out_of_reach.is_empty();
        let mut report = self.report(plan, streams, &mut host, watch)?;
        host.note_bad(&report.bad, "restore");
        if watch.stop.load(Relaxed) {
            return Err(DirectorError::RestoreInterrupted);
        }
        // A connection may have broken, or another library may have it.
        for &what in Again::of(plan) {
            let mounter = Mounter::new(self).stopped_by(&watch.stop).of_queue();
            self.restore_again(plan, &mut report, (mounter, what, watch), &|again, host, routes| {
                read_to_client(again, client, (host, routes), (what, watch))
            })?;
        }
        drop(host);
        if let (true, 0, Some(failed)) = (is_mover_gone, report.blocks, report.failed.first()) {
            return Err(SourceError::Mover { reason: failed.reason.clone() }.into());
        }
        // With nothing more to come, the client finishes what it has written.
        let (last, extract) = client.restore((&plan.wanted, &plan.selection), Vec::new(), watch, RestorePart::Last)?;
        if let Some(fatal) = last.fatal {
            return Err(DirectorError::Extract(fatal));
        }
        if watch.stop.load(Relaxed) {
            return Err(DirectorError::RestoreInterrupted);
        }
        report.extract = extract.map(|mut extract| {
            extract.unchanged = extract.unchanged.saturating_add(plan.files_there());
            extract
        });
        for stream in &plan.streams {
            let reason = "it is what a program printed, and such an object is restored at the server: `capstan cat`";
            report.failed.push(FailedFile { path: stream.entry.path.clone(), reason: reason.to_owned() });
        }
        self.tell_unknown(plan, &mut report)?;
        report.elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(report)
    }

    /// Says of objects that a part is missing of which nobody knows what was in it.
    fn tell_unknown(&self, plan: &RestorePlan, report: &mut RestoreReport) -> Result<(), DirectorError> {
        for (object, reason) in plan.in_part() {
            let source = locked(&self.catalog).object(object)?.map(|object| object.source).unwrap_or_default();
            report.failed.push(FailedFile { path: source, reason });
        }
        Ok(())
    }

    /// Writes what a program printed. Where a part of it is missing, and what can be read is kept, it has another name.
    fn restore_stream(
        &self,
        stream: &StateEntry,
        (directory, options, keep_damaged): (&Path, &ExtractOptions, bool),
        report: &mut RestoreReport,
        watch: &RestoreWatch,
    ) -> Result<(), DirectorError> {
        let target = (directory, options);
        let mut written = self.write_stream(stream, target, Lacks::Nothing, report, watch)?;
        if let (Err(NotWritten::Unread(reason)), true) = (&written, keep_damaged) {
            let kept = self.write_stream(stream, target, Lacks::Parts, report, watch)?;
            let what = match kept {
                Ok(()) => "what can be read is under its name with .damaged added, with zeros for what is missing",
                Err(NotWritten::Refused(_)) => "a file is there under its name with .damaged added, and stays",
                Err(NotWritten::Unread(_)) => "the rest cannot be read either",
            };
            written = Err(NotWritten::Unread(format!("{reason}; {what}")));
        }
        if let Err(NotWritten::Refused(reason) | NotWritten::Unread(reason)) = written {
            report.failed.push(FailedFile { path: stream.entry.path.clone(), reason });
        }
        Ok(())
    }

    fn write_stream(
        &self,
        stream: &StateEntry,
        (directory, options): (&Path, &ExtractOptions),
        lacks: Lacks,
        report: &mut RestoreReport,
        watch: &RestoreWatch,
    ) -> Result<Result<(), NotWritten>, DirectorError> {
        let refused = |reason: String| Ok(Err(NotWritten::Refused(reason)));
        let mut name = stripped(&stream.entry.path, options.strip).unwrap_or_default();
        if lacks == Lacks::Parts {
            name = damaged_name(&name);
        }
        let name = Path::new(OsStr::from_bytes(&name));
        if !name.components().all(|part| matches!(part, Component::Normal(_))) {
            return refused("its name leads out of the target".to_owned());
        }
        let path = directory.join(name);
        // A stream has no time of its own to compare.
        if options.overwrite != Overwrite::Always && path.symlink_metadata().is_ok() {
            let reason = "a file of this name is there already: remove it, or restore with --overwrite always";
            return refused(reason.to_owned());
        }
        let (Some(above), Some(own)) = (name.parent(), name.file_name()) else {
            return refused("its name leads out of the target".to_owned());
        };
        // Until it is whole, nobody takes it for what it is to be.
        let mode = Permissions::from_mode(stream.entry.mode & 0o777);
        let staged = open_below(directory, above).and_then(|open| {
            let at = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
            let staged = tempfile::Builder::new().prefix(UNFINISHED_PREFIX).permissions(mode).tempfile_in(&at)?;
            Ok((open, at, staged))
        });
        let (_open, at, mut staged) = match staged {
            Ok(staged) => staged,
            Err(error) => {
                let above = directory.join(above);
                let reason = match Errno::from_io_error(&error) {
                    Some(Errno::LOOP | Errno::NOTDIR) => "a link or a file stands where the path needs a directory",
                    _ => &error.to_string(),
                };
                return refused(format!("cannot make a file in {}: {reason}", above.display()));
            }
        };
        let mut file = Told { file: staged.as_file_mut(), watch };
        match self.copy_file(stream.object, &stream.entry.path, &mut file, lacks, &watch.stop) {
            Ok((_, blocks)) => report.blocks += blocks,
            Err(_) if watch.stop.load(Relaxed) => return Err(DirectorError::RestoreInterrupted),
            Err(error) => return Ok(Err(NotWritten::Unread(error.to_string()))),
        }
        let modified =
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(stream.entry.mtime_ns.max(0).cast_unsigned()));
        let timed = modified.map_or(Ok(()), |modified| staged.as_file().set_modified(modified));
        let synced = timed.and_then(|()| staged.as_file().sync_all());
        let kept = synced.and_then(|()| staged.persist(at.join(own)).map(drop).map_err(|error| error.error));
        if let Err(error) = kept {
            return refused(format!("cannot write {}: {error}", path.display()));
        }
        report.members += 1;
        report.bytes += stream.entry.size;
        Ok(Ok(()))
    }

    /// Gives failures their files' names.
    pub(crate) fn report(
        &self,
        plan: &RestorePlan,
        streams: StreamsReport,
        host: &mut ReadMounter,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        if let Some(fatal) = streams.fatal {
            return Err(DirectorError::Extract(fatal));
        }
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let mut out_of_reach = host.take_not_mounted();
        out_of_reach.extend(streams.read.out_of_reach);
        let written = streams.failed.iter().filter(|member| member.is_written).cloned().collect::<Vec<_>>();
        Ok(RestoreReport {
            extract: None,
            members: load(&watch.members),
            bytes: load(&watch.bytes),
            blocks: streams.read.blocks,
            failed: named(plan, &streams.failed),
            lost: streams.read.lost,
            recovered: streams.read.recovered,
            absent: plan.absent.iter().chain(&plan.stood_in_for).cloned().collect(),
            bad: streams.read.bad,
            without_key: host.take_without_key(),
            orders: host.take_orders(),
            behind: 0,
            elapsed_ns: 0,
            out_of_reach,
            written: named(plan, &written).into_iter().map(|file| file.path).collect(),
        })
    }
}

/// Has a client write what as many drives read as are free; another part of the same restore follows.
fn read_to_client(
    plan: &RestorePlan,
    client: &NetworkJob,
    (host, routes): (&mut ReadMounter, &VolumeRoutes),
    (what, watch): (Again, &RestoreWatch),
) -> Result<StreamsReport, DirectorError> {
    let (reads, torn) = routes.without_torn(&plan.wanted, &plan.reads);
    let share = |(number, plan)| {
        // The queue counts one drive.
        let host = if number == 0 { host.beside() } else { host.beside().outside_queue() };
        RestoreShare { plan, host: Box::new(host), drives: routes.drives() }
    };
    let plans = share_out(&plan.wanted, routes.plans(&plan.wanted, &reads), host);
    let shares = plans.into_iter().enumerate().map(share).collect();
    let part = if what == Again::Damaged { RestorePart::Damaged } else { RestorePart::Whole };
    let (mut streams, _) = client.restore((&plan.wanted, &plan.selection), shares, watch, part)?;
    let reason = "it begins in one library and ends in another: make a copy of the backup first (capstan copy)";
    streams.fail(&plan.wanted, torn, reason);
    Ok(streams)
}

/// A file that tells how much of it is written.
struct Told<'w> {
    file: &'w mut File,
    watch: &'w RestoreWatch,
}

impl Write for Told<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.watch.stop.load(Relaxed) {
            return Err(io::Error::other("the restore is stopped"));
        }
        let len = self.file.write(bytes)?;
        self.watch.taken.fetch_add(len as u64, Relaxed);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a directory below another one, or makes it; no link on the way is followed.
fn open_below(directory: &Path, below: &Path) -> io::Result<OwnedFd> {
    std::fs::create_dir_all(directory)?;
    let mut open = openat(CWD, directory, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for part in below.components() {
        open = open_or_make_directory(open.as_fd(), part.as_os_str(), Mode::from_raw_mode(0o777))?;
    }
    Ok(open)
}

/// Paths of the members that failed.
fn named(plan: &RestorePlan, failed: &[FailedMember]) -> Vec<FailedFile> {
    if failed.is_empty() {
        return Vec::new();
    }
    let key = |member: &FailedMember| {
        // A client may name streams that there are not.
        let stream = plan.wanted.streams.get(member.stream)?;
        Some((stream.object, stream.connection, member.offset))
    };
    let reasons: HashMap<_, _> = failed.iter().filter_map(|member| Some((key(member)?, &member.reason))).collect();
    let hit = plan.entries.iter().filter_map(|entry| {
        let reason = reasons.get(&(entry.object, entry.entry.connection, entry.entry.offset))?;
        (entry.entry.member_len > 0).then(|| FailedFile { path: entry.entry.path.clone(), reason: (*reason).clone() })
    });
    hit.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::path::PathBuf;
    use std::sync::Arc;

    use capstan_catalog::ObjectFilter;
    use capstan_keys::create_key_file;
    use capstan_mover::devices::LibraryConfig;

    use super::*;
    use crate::{BackupRequest, BackupWatch, Config, InitOptions, Place};

    /// A site below a directory, with a backup of nine files.
    fn backed_up(dir: &Path, mut config: Config) -> (Site, PathBuf) {
        let unlock = create_key_file(&dir.join("key")).unwrap();
        let (state, source) = (dir.join("state"), dir.join("source"));
        config.library.drives = 1;
        std::fs::create_dir(&source).unwrap();
        (0..9).for_each(|file| std::fs::write(source.join(file.to_string()), [file; 9_000]).unwrap());
        let options = InitOptions { config, encryption: None, database: capstan_catalog::Database::Sqlite };
        Site::init(&state, &options, Some(&unlock)).unwrap();
        let site = Site::open(&state, Some(&unlock), || 1_800_000_000_000_000_000, Arc::new(|_| {})).unwrap();
        site.backup(&BackupRequest::of(vec![source.clone()]), &BackupWatch::default()).unwrap();
        (site, source)
    }

    /// Where less came of a stream than was wanted, as behind what looked like its end, the rest was missing without a
    /// word.
    #[test]
    fn a_file_that_is_not_met_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (site, _) = backed_up(dir.path(), Config::default());
        let object = locked(&site.catalog).objects(&ObjectFilter::default()).unwrap()[0].id;
        let mut plan = site.plan_restore(&[Place { object, paths: Vec::new() }]).unwrap();
        let neighbours = |members: &[capstan_mover::WantedMember]| {
            members.windows(2).position(|pair| {
                pair.iter().all(|member| member.len > 9_000) && pair[0].offset + pair[0].len == pair[1].offset
            })
        };
        let streams = &mut plan.wanted.streams;
        let stream = streams.iter_mut().find(|stream| neighbours(&stream.members).is_some()).unwrap();
        let first = neighbours(&stream.members).unwrap();
        let should_begin = stream.members[first + 1].offset;
        stream.members[first].len += 512;
        (stream.members[first + 1].offset, stream.members[first + 1].len) =
            (should_begin + 512, stream.members[first + 1].len - 512);
        let connection = stream.connection;
        let is_it = |of: &&mut StateEntry| (of.entry.connection, of.entry.offset) == (connection, should_begin);
        let entry = &mut plan.entries.iter_mut().find(is_it).unwrap().entry;
        entry.offset += 512;
        let path = entry.path.clone();
        let to = dir.path().join("restored");
        let report = site.restore(&plan, &to, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
        assert_eq!(report.failed.len(), 1, "{:?}", report.failed);
        assert_eq!(report.failed[0].path, path);
        assert!(report.failed[0].reason.contains("no member begins here"), "{:?}", report.failed);
    }

    /// A file whose checksum is not that of the catalog is written, and named: that another library has it, too, does
    /// not make it right.
    #[test]
    fn a_file_with_another_checksum_stays_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.library.drives = 1;
        let west = LibraryConfig { path: PathBuf::from("west"), ..config.library.clone() };
        config.libraries.insert("west".to_owned(), west);
        let (site, source) = backed_up(dir.path(), config);
        site.add_pool("vault", None, None).unwrap();
        let objects = locked(&site.catalog).objects(&ObjectFilter::default()).unwrap();
        let west = site.clone().in_library("west").unwrap();
        west.copy_objects(&objects, "vault", &RestoreWatch::default()).unwrap();
        let mut plan = site.plan_restore(&[Place { object: objects[0].id, paths: Vec::new() }]).unwrap();
        let mut members = plan.wanted.streams.iter_mut().flat_map(|stream| &mut stream.members);
        members.find(|member| member.len > 9_000).unwrap().crc ^= 1;
        let to = dir.path().join("restored");
        let report = site.restore(&plan, &to, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
        assert_eq!(report.failed.len(), 1, "{:?}", report.failed);
        assert!(report.failed[0].reason.contains("checksum"), "{:?}", report.failed);
        assert_eq!(std::fs::read_dir(to.join(source.strip_prefix("/").unwrap())).unwrap().count(), 9, "it is there");
    }
}
