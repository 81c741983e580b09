//! Restores and verifications: the plan, shown first, then the work.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::Instant;

use capstan_catalog::{Catalog, Extent, Object, ObjectStatus, StateEntry, Volume};
use capstan_format::{EntryKind, FileEntry, ObjectId, ObjectKind, Volser, crc32c_append};
use capstan_keys::KeyError;
use capstan_mover::extract::{CopyError, ExtractOptions, ExtractReport, MemberReader, Target as Directory};
use capstan_mover::{
    Damage, FailedMember, ReadPlan, RestoreWatch, StreamsReport, Wanted, WantedMember, plan_reads, read_streams,
    restore_streams, verify_streams,
};

use crate::DirectorError;
use crate::desk::{Desk, ReadDesk};
use crate::select::{Layout, Located, Place, is_lost, locate_streams};
use crate::site::{Site, locked};

/// Bytes a second that virtual volumes are taken to give, for the estimate.
const READ_RATE: u64 = 400 << 20;
/// What a LOCATE on a virtual volume is taken to cost, for the estimate.
const LOCATE_NS: u64 = 100_000;
/// What a mount of a virtual volume is taken to cost, for the estimate.
const MOUNT_NS: u64 = 20_000_000;
/// Most damaged files that are listed by name.
const NAMES_MAX: usize = 10_000;

/// One mount of a plan.
#[derive(Debug, Clone)]
pub struct PassRow {
    /// The volume.
    pub volser: Volser,
    /// Blocks to read from it.
    pub blocks: u64,
    /// Blocks that are passed over between the first and the last.
    pub skipped: u64,
}

/// What a restore will do.
pub struct RestorePlan {
    wanted: Wanted,
    reads: ReadPlan,
    entries: Vec<StateEntry>,
    /// What was standard input: each is one file, whatever number of members it has in the stream.
    streams: Vec<StateEntry>,
    /// Volumes in mount order.
    pub passes: Vec<PassRow>,
    /// Objects that are read, in the order they were asked for, each with the ones it stands on.
    pub objects: Vec<ObjectId>,
    /// Volumes that hold something of it and are not in the library.
    pub absent: Vec<Volser>,
    /// Paths that will be written.
    pub members: u64,
    /// Bytes of files that will be written.
    pub bytes: u64,
    /// Bytes of blocks to read, before compression.
    pub read_bytes: u64,
    /// Paths of which nothing is stored: they vanished or could not be read when they were backed up.
    pub lost: Vec<Vec<u8>>,
    /// Paths that could not be read when they were last backed up: an older version is restored.
    pub older: Vec<OlderVersion>,
    /// Volumes of the plan whose key was destroyed, and what that means: what no other copy holds of them is gone.
    pub without_key: Vec<(Volser, DirectorError)>,
    /// Whether an object is open: an interrupted backup gives what it has.
    pub interrupted: bool,
    /// How long it is thought to take.
    pub estimate_ns: u64,
}

/// A path that is given back as it was before the time that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderVersion {
    /// The path.
    pub path: Vec<u8>,
    /// The object that holds the last version that was read.
    pub object: ObjectId,
    /// When that was begun, nanoseconds since 1970.
    pub backed_up_ns: i64,
}

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
    /// Volumes that no key opens, and why. Another copy may have stood in for them.
    pub without_key: Vec<(Volser, DirectorError)>,
    /// Members that this copy lacks and another holds: it is a twin that ended before the other.
    pub behind: u64,
    /// How long it took.
    pub elapsed_ns: u64,
}

impl RestoreReport {
    /// Whether everything that was asked for was given back.
    pub fn is_whole(&self) -> bool {
        self.failed.is_empty() && self.lost.is_empty()
    }
}

/// A sum for people to read.
fn total(lens: impl Iterator<Item = u64>) -> u64 {
    lens.fold(0, u64::saturating_add)
}

impl Site {
    /// Plans a restore of these places.
    pub fn plan_restore(&self, places: &[Place]) -> Result<RestorePlan, DirectorError> {
        let mut entries: Vec<StateEntry> = Vec::new();
        let mut objects = Vec::new();
        let mut interrupted = false;
        {
            let catalog = locked(&self.catalog);
            for place in places {
                entries.extend(self.entries_of(&catalog, place)?);
                for object in catalog.chain(place.object)? {
                    interrupted |= catalog.object(object)?.is_some_and(|object| object.status == ObjectStatus::Open);
                    if !objects.contains(&object) {
                        objects.push(object);
                    }
                }
            }
        }
        entries.sort_by(|a, b| (&a.entry.path, a.object).cmp(&(&b.entry.path, b.object)));
        entries.dedup_by(|a, b| a.object == b.object && a.entry == b.entry);
        let mut streams = Vec::new();
        for object in &objects {
            let kind = locked(&self.catalog).object(*object)?.map(|object| object.kind);
            if kind == Some(ObjectKind::Stream) {
                streams.extend(entries.extract_if(.., |entry| entry.object == *object));
            }
        }
        let mut plan = self.plan(entries, objects, interrupted, None)?;
        plan.bytes = total(streams.iter().map(|stream| stream.entry.size)).saturating_add(plan.bytes);
        plan.members += streams.len() as u64;
        plan.streams = streams;
        Ok(plan)
    }

    fn plan(
        &self,
        entries: Vec<StateEntry>,
        objects: Vec<ObjectId>,
        interrupted: bool,
        copy: Option<u8>,
    ) -> Result<RestorePlan, DirectorError> {
        let present = self.present()?;
        let older = older_versions(&locked(&self.catalog), &entries)?;
        let located = {
            let catalog = locked(&self.catalog);
            let stored = entries.iter().map(|entry| (entry.object, &entry.entry));
            self.locate_entries(&catalog, stored, &present, copy)?
        };
        let Located { wanted, absent } = located;
        let reads = plan_reads(&wanted);
        let rows = reads.passes.iter().map(|pass| PassRow {
            volser: wanted.volumes[pass.volume].volser.clone(),
            blocks: pass.blocks(),
            skipped: pass.blocks_skipped(),
        });
        let passes: Vec<_> = rows.collect();
        let without_key = destroyed_keys(&locked(&self.catalog), &passes)?;
        // Catalog parts come from volumes, and a hostile one may claim anything.
        let read_bytes = total(reads.passes.iter().flat_map(|pass| &pass.runs).map(|run| run.plain_len));
        let is_file = |entry: &&StateEntry| entry.entry.kind == EntryKind::File;
        let estimate_ns = passes.len() as u64 * MOUNT_NS
            + reads.locates() * LOCATE_NS
            + (u128::from(read_bytes) * 1_000_000_000 / u128::from(READ_RATE)) as u64;
        Ok(RestorePlan {
            members: entries.iter().filter(|entry| entry.entry.member_len > 0).count() as u64,
            bytes: total(entries.iter().filter(is_file).map(|entry| entry.entry.size)),
            lost: entries.iter().filter(|entry| is_lost(&entry.entry)).map(|entry| entry.entry.path.clone()).collect(),
            older,
            without_key,
            wanted,
            reads,
            entries,
            streams: Vec::new(),
            passes,
            objects,
            absent,
            read_bytes,
            interrupted,
            estimate_ns,
        })
    }

    /// Carries out a plan: writes below `directory`.
    pub fn restore(
        &self,
        plan: &RestorePlan,
        directory: &Path,
        options: &ExtractOptions,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        let began = Instant::now();
        let target = Directory::new(directory, options.clone()).map_err(DirectorError::Extract)?;
        let mut host = ReadDesk::new(Desk::new(self));
        let streams = restore_streams(&plan.wanted, &plan.reads, &mut host, &target, watch);
        let mut report = self.report(plan, streams, host, watch)?;
        if watch.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(DirectorError::RestoreInterrupted);
        }
        report.extract = Some(target.finish().map_err(DirectorError::Extract)?);
        for stream in &plan.streams {
            self.restore_stream(stream, directory, &mut report)?;
        }
        report.elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(report)
    }

    fn restore_stream(
        &self,
        stream: &StateEntry,
        directory: &Path,
        report: &mut RestoreReport,
    ) -> Result<(), DirectorError> {
        let name = Path::new(OsStr::from_bytes(&stream.entry.path));
        if !name.components().all(|part| matches!(part, Component::Normal(_))) {
            let reason = "its name leads out of the target".to_owned();
            report.failed.push(FailedFile { path: stream.entry.path.clone(), reason });
            return Ok(());
        }
        let path = directory.join(name);
        let above = path.parent().unwrap_or(directory);
        std::fs::create_dir_all(above).map_err(DirectorError::host("make", above))?;
        // Never over a file that is there: a stream has no time of its own to compare.
        let mut file = File::create_new(&path).map_err(DirectorError::host("make", &path))?;
        let written = self.cat_file(stream.object, &stream.entry.path, &mut file);
        if let Err(error) = written {
            std::fs::remove_file(&path).map_err(DirectorError::host("remove", &path))?;
            report.failed.push(FailedFile { path: stream.entry.path.clone(), reason: error.to_string() });
            return Ok(());
        }
        report.members += 1;
        report.bytes += stream.entry.size;
        Ok(())
    }

    /// Reads back a copy of an object, every block and every file's checksum. All copies, one after the other, without `copy`.
    pub fn verify_object(
        &self,
        object: &Object,
        watch: &RestoreWatch,
    ) -> Result<Vec<(u8, RestoreReport)>, DirectorError> {
        let (entries, copies, extents) = {
            let catalog = locked(&self.catalog);
            let index = catalog.index(object.id)?;
            let entries: Result<Vec<_>, _> = index
                .iter()
                .map(|entry| entry.map(|entry| StateEntry { object: object.id, entry, unread: None }))
                .collect();
            (entries?, catalog.copies(object.id)?, catalog.extents(object.id, None)?)
        };
        let mut reports = Vec::new();
        for copy in &copies {
            let began = Instant::now();
            let open = object.status == ObjectStatus::Open;
            let load = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
            let (members, bytes) = (load(&watch.members), load(&watch.bytes));
            // What another copy holds and this one does not is no damage; what none holds is looked for here, and missed.
            let held = |entry: &StateEntry, copy: u8| is_held(&extents, &entry.entry, copy);
            let elsewhere = |entry: &&StateEntry| {
                object.kind != ObjectKind::Device
                    && !held(entry, copy.copy)
                    && copies.iter().any(|other| held(entry, other.copy))
            };
            let own: Vec<_> = entries.iter().filter(|entry| !elsewhere(entry)).cloned().collect();
            let behind = (entries.len() - own.len()) as u64;
            let mut report = self.verify_entries(own, object.id, open, Some(copy.copy), watch)?;
            report.behind = behind;
            report.elapsed_ns = began.elapsed().as_nanos() as u64;
            report.members -= members;
            report.bytes -= bytes;
            if watch.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(DirectorError::RestoreInterrupted);
            }
            reports.push((copy.copy, report));
        }
        Ok(reports)
    }

    pub(crate) fn verify_entries(
        &self,
        entries: Vec<StateEntry>,
        object: ObjectId,
        open: bool,
        copy: Option<u8>,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        let plan = self.plan(entries, vec![object], open, copy)?;
        let mut host = ReadDesk::new(Desk::new(self));
        let streams = verify_streams(&plan.wanted, &plan.reads, &mut host, watch);
        self.report(&plan, streams, host, watch)
    }

    /// Gives failures their files' names.
    fn report(
        &self,
        plan: &RestorePlan,
        streams: StreamsReport,
        host: ReadDesk,
        watch: &RestoreWatch,
    ) -> Result<RestoreReport, DirectorError> {
        if let Some(fatal) = streams.fatal {
            return Err(DirectorError::Extract(fatal));
        }
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
        Ok(RestoreReport {
            extract: None,
            members: load(&watch.members),
            bytes: load(&watch.bytes),
            blocks: streams.read.blocks,
            failed: named(plan, &streams.failed),
            lost: streams.read.lost,
            recovered: streams.read.recovered,
            without_key: host.without_key,
            behind: 0,
            elapsed_ns: 0,
        })
    }

    /// Writes an object's own pax stream: every connection up to its valid length, then the end of the archive.
    pub fn cat_object(&self, object: ObjectId, out: &mut (dyn Write + Send)) -> Result<(), DirectorError> {
        let present = self.present()?;
        let parts = locked(&self.catalog).parts(object)?;
        for part in parts.iter().filter(|part| part.valid_len > 0) {
            let member = WantedMember { offset: 0, len: part.valid_len, crc: 0 };
            let streams = BTreeMap::from([((object, part.connection), vec![member])]);
            let located = locate_streams(&locked(&self.catalog), streams, &present, None, Layout::Apart)?;
            self.copy_range(&located.wanted, &mut |bytes| {
                std::io::copy(bytes, out).map(drop).map_err(|error| error.to_string())
            })?;
        }
        let end = out.write_all(&[0; 1024]).and_then(|()| out.flush());
        end.map_err(|error| DirectorError::Output { reason: error.to_string() })
    }

    /// Writes the content of one file of the state at an object. Says if that is an older version, because the file could not
    /// be read at that time.
    pub fn cat_file(
        &self,
        object: ObjectId,
        path: &[u8],
        out: &mut (dyn Write + Send),
    ) -> Result<Option<OlderVersion>, DirectorError> {
        let unknown = || DirectorError::UnknownPath {
            object: object.to_string(),
            source_name: String::new(),
            path: String::from_utf8_lossy(path).into_owned(),
        };
        let mut entry = locked(&self.catalog).state(object)?.get(path)?.ok_or_else(unknown)?;
        if entry.entry.kind == EntryKind::HardLink {
            let target = entry.entry.link.clone();
            entry = locked(&self.catalog).state(object)?.get(&target)?.ok_or_else(unknown)?;
        }
        if entry.entry.kind != EntryKind::File || entry.entry.member_len == 0 {
            let path = String::from_utf8_lossy(path).into_owned();
            return Err(DirectorError::NotAFile { path });
        }
        let FileEntry { connection, offset, member_len, crc, .. } = entry.entry;
        let member = WantedMember { offset, len: member_len, crc };
        let streams = BTreeMap::from([((entry.object, connection), vec![member])]);
        let present = self.present()?;
        let located = locate_streams(&locked(&self.catalog), streams, &present, None, Layout::Joined)?;
        let mut out = Checked { out, crc: 0 };
        self.copy_range(&located.wanted, &mut |bytes| {
            let mut reader = MemberReader::new(bytes);
            // A stream that was standard input is one file in several members.
            let mut any = false;
            loop {
                match reader.next() {
                    Ok(Some((_, mut content))) => content.copy_to(&mut out).map(drop).map_err(|error| match error {
                        CopyError::Output(error) => error.to_string(),
                        CopyError::Stream(error) => crate::backup::explain(&error),
                    })?,
                    Ok(None) if any => return Ok(()),
                    Ok(None) => return Err("the stream holds no member where the catalog says one is".to_owned()),
                    Err(error) => return Err(crate::backup::explain(&error)),
                }
                any = true;
            }
        })?;
        if out.crc != crc {
            let reason = format!("its content has checksum {:08x}, the catalog says {crc:08x}", out.crc);
            return Err(DirectorError::Output { reason });
        }
        Ok(older_versions(&locked(&self.catalog), &[entry])?.pop())
    }

    /// Reads the one range of the one stream that is wanted and gives it to `copy`.
    fn copy_range(
        &self,
        wanted: &Wanted,
        copy: &mut (dyn FnMut(&mut dyn std::io::BufRead) -> Result<(), String> + Send),
    ) -> Result<(), DirectorError> {
        let reads = plan_reads(wanted);
        let mut host = ReadDesk::new(Desk::new(self));
        let outcome = std::sync::Mutex::new(Ok(()));
        let copy = std::sync::Mutex::new(copy);
        let stop = std::sync::atomic::AtomicBool::new(false);
        read_streams(wanted, &reads, &mut host, &stop, &|_, reader| {
            for member in reader.members() {
                let copied = locked(&copy)(&mut reader.range(member.offset..member.offset + member.len));
                if copied.is_err() {
                    *locked(&outcome) = copied;
                    stop.store(true, std::sync::atomic::Ordering::Relaxed);
                    return;
                }
            }
        });
        let outcome = outcome.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        outcome.map_err(|reason| host.why_not(reason))
    }
}

/// Entries that stand for a later one that could not be read.
fn older_versions(catalog: &Catalog, entries: &[StateEntry]) -> Result<Vec<OlderVersion>, DirectorError> {
    let mut begun: HashMap<ObjectId, i64> = HashMap::new();
    let mut older = Vec::new();
    for StateEntry { object, entry, .. } in entries.iter().filter(|entry| entry.unread.is_some()) {
        let backed_up_ns = match begun.get(object) {
            Some(known) => *known,
            None => catalog.object(*object)?.map_or(0, |object| object.started_ns),
        };
        begun.insert(*object, backed_up_ns);
        older.push(OlderVersion { path: entry.path.clone(), object: *object, backed_up_ns });
    }
    Ok(older)
}

/// Volumes of a plan whose key was destroyed, in the words of the key store.
fn destroyed_keys(catalog: &Catalog, passes: &[PassRow]) -> Result<Vec<(Volser, DirectorError)>, DirectorError> {
    let mut without_key: Vec<(Volser, DirectorError)> = Vec::new();
    for PassRow { volser, .. } in passes {
        let Some(Volume { key: Some(key), key_destroyed_ns: Some(destroyed_ns), .. }) = catalog.volume(volser)? else {
            continue;
        };
        if without_key.iter().all(|(known, _)| known != volser) {
            let error = KeyError::KeyDestroyed { tag: key.tag, volser: volser.clone(), destroyed_ns };
            without_key.push((volser.clone(), error.into()));
        }
    }
    Ok(without_key)
}

/// Whether a copy's extents hold the whole of a member.
pub(crate) fn is_held(extents: &[Extent], entry: &FileEntry, copy: u8) -> bool {
    let end = entry.offset + entry.member_len;
    let mut at = entry.offset;
    // Extents come by copy, connection and offset.
    let first = extents.partition_point(|extent| {
        let record = &extent.record;
        (extent.copy, record.connection, record.offset + record.plain_len) <= (copy, entry.connection, at)
    });
    for extent in &extents[first..] {
        let record = &extent.record;
        if at >= end || (extent.copy, record.connection) != (copy, entry.connection) || record.offset > at {
            break;
        }
        at = record.offset + record.plain_len;
    }
    at >= end
}

/// An output that computes the checksum of what passes.
struct Checked<'o> {
    out: &'o mut (dyn Write + Send),
    crc: u32,
}

impl Write for Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = self.out.write(bytes)?;
        self.crc = crc32c_append(self.crc, &bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Paths of the members that failed.
fn named(plan: &RestorePlan, failed: &[FailedMember]) -> Vec<FailedFile> {
    if failed.is_empty() {
        return Vec::new();
    }
    let key = |member: &FailedMember| {
        let stream = &plan.wanted.streams[member.stream];
        (stream.object, stream.connection, member.offset)
    };
    let reasons: HashMap<_, _> = failed.iter().map(|member| (key(member), &member.reason)).collect();
    let hit = plan.entries.iter().filter_map(|entry| {
        let reason = reasons.get(&(entry.object, entry.entry.connection, entry.entry.offset))?;
        (entry.entry.member_len > 0).then(|| FailedFile { path: entry.entry.path.clone(), reason: (*reason).clone() })
    });
    hit.take(NAMES_MAX).collect()
}
