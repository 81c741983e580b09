//! The plan of a restore: what is read from which volume, made and shown before anything is mounted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use capstan_catalog::{
    Catalog, CatalogError, CopyState, Extent, ObjectStatus, StateEntry, Volume, VolumeState, WantedCopy,
};
use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectId, ObjectKind, Volser};
use capstan_keys::KeyError;
use capstan_mover::extract::{ExistingFiles, Selection};
use capstan_mover::{ReadPlan, Wanted, WantedStream, plan_reads_at, split_at_gaps};
use capstan_tape::ElementAddress;

use crate::DirectorError;
use crate::chains::Chains;
use crate::chosen::put_together;
use crate::keys::unreadable_volumes;
use crate::path_filter::PathFilter;
use crate::ranges::{missing_ranges, stream_lengths};
use crate::select::{Located, Place, WhichCopy};
use crate::site::{Site, locked};

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
    pub(crate) wanted: Wanted,
    pub(crate) reads: ReadPlan,
    pub(crate) entries: Vec<StateEntry>,
    /// Under which names of theirs files come back, and what only leads to what was asked for.
    pub(crate) selection: Selection,
    /// What was standard input: each is one file, whatever number of members it has in the stream.
    pub(crate) streams: Vec<StateEntry>,
    /// Volumes in mount order.
    pub passes: Vec<PassRow>,
    /// Objects that are read, in the order they were asked for, each with the ones it stands on.
    pub objects: Vec<ObjectId>,
    /// Volumes that are not in the library and hold something of it that no volume there holds.
    pub absent: Vec<Volser>,
    /// The vaults of those of them that were sent to one.
    pub vaults: BTreeMap<Volser, String>,
    /// Those of them that may well be there: their library does not answer, and another one does.
    pub out_of_reach: Vec<Volser>,
    /// Volumes that hold something of it and are not in the library, where others that are there hold the same.
    pub stood_in_for: Vec<Volser>,
    /// Paths that will be written.
    pub members: u64,
    /// Bytes of files that will be written.
    pub bytes: u64,
    /// Bytes of blocks to read, before compression.
    pub read_bytes: u64,
    /// Files that are there already, size and time the same: they are neither read nor counted above.
    pub(crate) there: Vec<StateEntry>,
    /// Paths of which nothing is stored, because they could not be read when they were backed up.
    pub lost: Vec<Vec<u8>>,
    /// Paths of which nothing is stored, because they vanished while they were backed up: nothing is missing in what
    /// comes back.
    pub vanished: Vec<Vec<u8>>,
    /// Paths that come back in part: directories that could not be listed (to their end) and files that could not be
    /// read to theirs, or became shorter meanwhile, where zeros stand for the rest.
    pub incomplete: Vec<Vec<u8>>,
    /// Paths that could not be read when they were last backed up: an older version is restored.
    pub older: Vec<OlderVersion>,
    /// Volumes of the plan whose key was destroyed, and what that means: what no other copy holds of them is gone.
    pub without_key: Vec<(Volser, DirectorError)>,
    /// Objects, asked for as a whole, of which so many bytes are on no volume that the catalog knows, with all that is
    /// known of them: nobody can say which paths are missing.
    pub unknown: Vec<(ObjectId, u64)>,
    /// Objects of which a base cannot be used, and what that means: what stands in it alone does not come back.
    pub broken: Vec<(ObjectId, String)>,
    /// Whether an object is open: an interrupted backup gives what it has.
    pub interrupted: bool,
    /// Whether what can be read of a damaged file is kept, under its name with `.damaged` added.
    pub keep_damaged: bool,
    /// Why no library could be asked. All volumes are taken to be in one then, and nothing is read until one answers.
    pub not_asked: Option<DirectorError>,
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
    /// When that was begun, nanoseconds since 1970. An object that was made of others may hold a still older version.
    pub backed_up_ns: i64,
}

impl Site {
    /// Plans a restore of these places.
    ///
    /// # Errors
    /// [`DirectorError::NothingChosen`] if the filter takes nothing of what is there; [`DirectorError::UnknownPath`];
    /// or the catalog cannot be read. What no copy has is in the plan.
    pub fn plan_restore(&self, places: &[Place]) -> Result<RestorePlan, DirectorError> {
        self.plan_restore_of(places, &PathFilter::default())
    }

    /// Plans a restore of what passes a filter in these places.
    ///
    /// # Errors
    /// As [`Site::plan_restore`].
    pub fn plan_restore_of(&self, places: &[Place], filter: &PathFilter) -> Result<RestorePlan, DirectorError> {
        self.plan_places(places, filter, None)
    }

    /// Plans a restore that goes on: of files that are there already nothing is read.
    ///
    /// # Errors
    /// As [`Site::plan_restore`].
    pub fn plan_restore_on(
        &self,
        places: &[Place],
        filter: &PathFilter,
        existing: &mut ExistingFiles,
    ) -> Result<RestorePlan, DirectorError> {
        self.plan_places(places, filter, Some(existing))
    }

    fn plan_places(
        &self,
        places: &[Place],
        filter: &PathFilter,
        existing: Option<&mut ExistingFiles>,
    ) -> Result<RestorePlan, DirectorError> {
        let mut chosen = Vec::new();
        let mut objects = Vec::new();
        let mut interrupted = false;
        let mut broken = Vec::new();
        {
            let catalog = locked(&self.catalog);
            for place in places {
                chosen.push(self.entries_of(&catalog, place, filter)?);
                let (chain, fault) = catalog.chain_as_far(place.object)?;
                broken.extend(fault.map(|fault| (place.object, broken_in_words(&fault))));
                for object in chain {
                    interrupted |= catalog.object(object)?.is_some_and(|object| object.status == ObjectStatus::Open);
                    if !objects.contains(&object) {
                        objects.push(object);
                    }
                }
            }
        }
        let (mut entries, selection) = put_together(chosen);
        let mut streams = Vec::new();
        for object in &objects {
            let kind = locked(&self.catalog).object(*object)?.map(|object| object.kind);
            if kind == Some(ObjectKind::Stream) {
                streams.extend(entries.extract_if(.., |entry| entry.object == *object));
            }
        }
        let there = match existing {
            Some(existing) => {
                let mut is_there = are_there(&entries, &selection, &mut |files| {
                    Ok(files.iter().map(|file| existing.has(file)).collect())
                })?
                .into_iter();
                entries.extract_if(.., |_| is_there.next() == Some(true)).collect()
            }
            None => Vec::new(),
        };
        // What is read, and from where, can be said while a mover is away, too.
        let asked = self.present();
        let silent = |name: &String| self.mounts.silent.is_silent(name);
        let silent: Vec<_> = self.library_names().into_iter().filter(silent).collect();
        let (present, not_asked) = match asked {
            Ok(present) => (present, None),
            Err(error) => {
                let known = locked(&self.catalog).volumes()?;
                (known.into_iter().map(|volume| volume.volser).collect(), Some(error))
            }
        };
        let mut plan = self.plan_among(entries, objects, interrupted, WhichCopy::Any, &present)?;
        (plan.there, plan.not_asked, plan.broken) = (there, not_asked, broken);
        plan.selection = selection;
        plan.bytes = total(streams.iter().map(|stream| stream.entry.size)).saturating_add(plan.bytes);
        plan.members += streams.len() as u64;
        // What was standard input is read by itself, each after the rest.
        for stream in &streams {
            let own = self.plan_among(vec![stream.clone()], Vec::new(), false, WhichCopy::Any, &present)?;
            plan.passes.extend(own.passes);
            plan.read_bytes = plan.read_bytes.saturating_add(own.read_bytes);
            plan.estimate_ns = plan.estimate_ns.saturating_add(own.estimate_ns);
            plan.without_key.extend(own.without_key);
            for (volumes, more) in [(&mut plan.absent, own.absent), (&mut plan.stood_in_for, own.stood_in_for)] {
                let new: Vec<_> = more.into_iter().filter(|volser| !volumes.contains(volser)).collect();
                volumes.extend(new);
            }
        }
        plan.streams = streams;
        for volser in &plan.absent {
            if !silent.is_empty() && silent.contains(&self.library_of(&volser.to_string())?) {
                plan.out_of_reach.push(volser.clone());
            }
        }
        if !plan.absent.is_empty() || !plan.stood_in_for.is_empty() {
            plan.vaults = self.vaults_of_sent()?;
        }
        // A file that was found by its path is known to the end.
        let is_open_ended = |place: &Place| place.paths.is_empty();
        let named: HashSet<&[u8]> = places.iter().flat_map(|place| &place.paths).map(Vec::as_slice).collect();
        let is_directory = |of: &StateEntry| of.entry.kind == EntryKind::Directory && named.contains(&*of.entry.path);
        if places.iter().any(is_open_ended) || !filter.is_empty() || plan.entries.iter().any(is_directory) {
            for object in &plan.objects {
                let bytes = unknown_bytes(&locked(&self.catalog), *object)?;
                plan.unknown.extend(Some((*object, bytes)).filter(|_| bytes > 0));
            }
        }
        Ok(plan)
    }

    /// A plan without the files that are there already; none where none are.
    pub(crate) fn plan_without(
        &self,
        plan: &RestorePlan,
        looks: &mut LooksForFiles<'_>,
    ) -> Result<Option<RestorePlan>, DirectorError> {
        let is_there = are_there(&plan.entries, &plan.selection, looks)?;
        if !is_there.contains(&true) {
            return Ok(None);
        }
        let (mut there, mut left) = (Vec::new(), Vec::new());
        for (entry, is_there) in plan.entries.iter().zip(is_there) {
            if is_there { there.push(entry.clone()) } else { left.push(entry.clone()) }
        }
        let mut without = self.plan(left, plan.objects.clone(), plan.interrupted, WhichCopy::Any)?;
        (without.there, without.streams) = (there, plan.streams.clone());
        (without.unknown, without.broken) = (plan.unknown.clone(), plan.broken.clone());
        (without.keep_damaged, without.selection) = (plan.keep_damaged, plan.selection.clone());
        Ok(Some(without))
    }

    pub(crate) fn plan(
        &self,
        entries: Vec<StateEntry>,
        objects: Vec<ObjectId>,
        interrupted: bool,
        copy: WhichCopy<'_>,
    ) -> Result<RestorePlan, DirectorError> {
        self.plan_among(entries, objects, interrupted, copy, &self.present()?)
    }

    /// What it costs to have volumes in drives, where one of several copies may be read: nothing for one that is in a
    /// drive and that nobody has, more for one that another job has, most for one whose key is gone.
    pub(crate) fn costs_to_mount(&self, wanted: &Wanted) -> Result<Vec<u8>, DirectorError> {
        let is_choice =
            |stream: &WantedStream| stream.extents.iter().any(|extent| extent.copy != stream.extents[0].copy);
        if !wanted.streams.iter().any(is_choice) {
            return Ok(Vec::new());
        }
        let in_use: HashMap<String, bool> =
            self.volumes_in_use()?.into_iter().map(|held| (held.volser, held.holder.is_none())).collect();
        let mut in_drives = HashSet::new();
        for library in self.libraries.all() {
            // One that does not answer tells nothing of its drives.
            let elements = self.ask(library).map(|found| found.elements).unwrap_or_default();
            let drives = elements.into_iter().filter(|element| matches!(element.address, ElementAddress::Drive(_)));
            in_drives.extend(drives.filter_map(|element| element.volser));
        }
        let catalog = locked(&self.catalog);
        let without_key = unreadable_volumes(&catalog)?;
        let mut costs = Vec::new();
        for place in &wanted.volumes {
            let is_filling = || {
                Ok::<_, DirectorError>(
                    catalog.volume(&place.volser)?.is_some_and(|volume| volume.state == VolumeState::Filling),
                )
            };
            costs.push(match in_use.get(place.volser.as_str()) {
                _ if without_key.contains(&place.volser) => 4,
                None if in_drives.contains(&place.volser) => 0,
                None => 1,
                // Whoever has it may go on writing.
                Some(_) if is_filling()? => 3,
                // Restores of one server read a volume together.
                Some(true) => 1,
                Some(false) => 2,
            });
        }
        Ok(costs)
    }

    /// The same of these volumes alone.
    pub(crate) fn plan_among(
        &self,
        entries: Vec<StateEntry>,
        objects: Vec<ObjectId>,
        interrupted: bool,
        copy: WhichCopy<'_>,
        present: &[Volser],
    ) -> Result<RestorePlan, DirectorError> {
        let older = older_versions(&locked(&self.catalog), &entries)?;
        let located = {
            let catalog = locked(&self.catalog);
            let stored = entries.iter().map(|entry| (entry.object, &entry.entry));
            self.locate_entries(&catalog, stored, present, copy)?
        };
        let Located { wanted, absent, stood_in_for } = located;
        // Where only some of an object is wanted, each drive may say in which order.
        let wanted = self.routes()?.split(split_at_gaps(wanted));
        let reads = plan_reads_at(&wanted, &self.costs_to_mount(&wanted)?);
        let passes = rows_of(&wanted, &reads);
        let without_key = self.destroyed_keys(&passes)?;
        // Catalog parts come from volumes, and a hostile one may claim anything.
        let read_bytes = total(reads.passes.iter().flat_map(|pass| &pass.runs).map(|run| run.plain_len));
        let paths_that = |flag, stored: bool| {
            let with = entries
                .iter()
                .filter(|entry| entry.entry.flags.contains(flag) && (entry.entry.member_len > 0) == stored);
            with.map(|entry| entry.entry.path.clone()).collect()
        };
        let mut incomplete: Vec<_> = paths_that(EntryFlags::UNREADABLE, true);
        incomplete.retain(|path| older.iter().all(|older| older.path != *path));
        incomplete.extend(paths_that(EntryFlags::SHRANK, true));
        incomplete.sort();
        incomplete.dedup();
        let is_file = |entry: &&StateEntry| entry.entry.kind == EntryKind::File && entry.entry.member_len > 0;
        let estimate_ns = self.estimate_ns(&wanted, &reads)?;
        Ok(RestorePlan {
            members: entries.iter().filter(|entry| entry.entry.member_len > 0).count() as u64,
            bytes: total(entries.iter().filter(is_file).map(|entry| entry.entry.size)),
            lost: paths_that(EntryFlags::UNREADABLE, false),
            vanished: paths_that(EntryFlags::VANISHED, false),
            incomplete,
            older,
            without_key,
            wanted,
            reads,
            entries,
            selection: Selection::default(),
            streams: Vec::new(),
            there: Vec::new(),
            unknown: Vec::new(),
            broken: Vec::new(),
            passes,
            objects,
            absent,
            vaults: BTreeMap::new(),
            out_of_reach: Vec::new(),
            stood_in_for,
            read_bytes,
            interrupted,
            keep_damaged: false,
            not_asked: None,
            estimate_ns,
        })
    }
}

impl RestorePlan {
    /// Looks that a library answers, if none did when this was planned.
    pub(crate) fn check_asked(&self, site: &Site) -> Result<(), DirectorError> {
        if self.not_asked.is_some() { site.present().map(drop) } else { Ok(()) }
    }

    /// What is said where an object was interrupted.
    pub const INTERRUPTED: &str = "an object was interrupted and never finished: what it has is restored";

    /// Objects of which something does not come back that nobody can name, and why: a base cannot be used, or a part is
    /// on no volume that is known.
    pub fn in_part(&self) -> impl Iterator<Item = (ObjectId, String)> {
        let unknown = self.unknown.iter().map(|&(object, bytes)| {
            let reason = format!(
                "{bytes} bytes of object {object} are on no volume that the catalog knows, and what they held may be \
                 missing: bring the other volumes of the object in, and run `capstan rebuild`"
            );
            (object, reason)
        });
        self.broken.iter().cloned().chain(unknown)
    }

    /// Whether all that was asked for is known, and can be read now.
    pub fn is_all_there(&self) -> bool {
        let can_be_read = self.absent.is_empty() && self.without_key.is_empty() && self.not_asked.is_none();
        can_be_read && self.unknown.is_empty() && self.broken.is_empty() && !self.interrupted
    }

    /// Where a volume is that is not in the library, in words.
    pub fn whereabouts_of(&self, volser: &Volser) -> String {
        match self.vaults.get(volser) {
            Some(vault) => format!("volume {volser} is at vault {vault}"),
            None => format!("volume {volser} is not in the library"),
        }
    }

    /// Files that are there already, size and time the same: of them nothing is read.
    pub fn files_there(&self) -> u64 {
        self.there.len() as u64
    }

    /// Blocks of a volume that are read, in the order of the tape.
    pub(crate) fn blocks_on(&self, volser: &Volser) -> Vec<Range<u64>> {
        let passes = self.reads.passes.iter().filter(|pass| self.wanted.volumes[pass.volume].volser == *volser);
        let runs = passes.flat_map(|pass| &pass.runs);
        let mut blocks: Vec<_> = runs.map(|run| run.lbn..run.lbn + u64::from(run.blocks)).collect();
        blocks.sort_unstable_by_key(|range| range.start);
        blocks
    }
}

/// What it means that a chain of objects is broken.
fn broken_in_words(fault: &CatalogError) -> String {
    format!(
        "{fault}: what stands in that object alone is not restored. If its volumes are elsewhere, bring them in, and \
             run `capstan rebuild`"
    )
}

/// How much of an object's streams no copy has and no path that is known: the volume that holds both is unknown.
fn unknown_bytes(catalog: &Catalog, object: ObjectId) -> Result<u64, DirectorError> {
    let is_whole = |copy: &WantedCopy| copy.state == CopyState::Whole;
    if catalog.wanted_copies(object)?.iter().any(is_whole) {
        return Ok(0);
    }
    let Some(record) = catalog.object(object)? else { return Ok(0) };
    // What counts is whether any copy has it: all are taken as one.
    let extents = catalog.extents(object, None)?.into_iter().map(|extent| Extent { copy: 1, ..extent });
    let lengths = stream_lengths(catalog, object)?;
    let missing = missing_ranges(1, &lengths, &extents.collect::<Vec<_>>(), record.chunk_len);
    if missing.is_empty() {
        return Ok(0);
    }
    let mut unknown = total(missing.iter().map(|missing| missing.range.end - missing.range.start));
    let chains = Chains::of(catalog, object)?;
    for entry in catalog.index(object)?.iter() {
        for (connection, own) in chains.ranges(&entry?) {
            let missing = missing.iter().filter(|missing| missing.connection == connection);
            let overlap = |range: &Range<u64>| range.end.min(own.end).saturating_sub(range.start.max(own.start));
            unknown = unknown.saturating_sub(total(missing.map(|missing| overlap(&missing.range))));
        }
    }
    Ok(unknown)
}

/// Says which of some files are there already, size and time the same.
type LooksForFiles<'a> = dyn FnMut(&[&FileEntry]) -> Result<Vec<bool>, DirectorError> + 'a;

/// Of which entries nothing need be read, because they are there already. A hard link needs the file that it names, and
/// what comes back in part or in an older version is said of each path.
fn are_there(
    entries: &[StateEntry],
    selection: &Selection,
    looks: &mut LooksForFiles<'_>,
) -> Result<Vec<bool>, DirectorError> {
    let mut needed: HashSet<Vec<u8>> = HashSet::new();
    let links = entries.iter().filter(|of| of.entry.kind == EntryKind::HardLink);
    let file_of = |link: &StateEntry| {
        let path = &link.entry.link;
        selection.name_of(link.object, path).map_or_else(|| path.clone(), <[u8]>::to_vec)
    };
    needed.extend(links.map(file_of));
    // One path of two objects: the last of them decides.
    let doubled = entries.windows(2).filter(|pair| pair[0].entry.path == pair[1].entry.path);
    needed.extend(doubled.map(|pair| pair[0].entry.path.clone()));
    let may_be_left = |StateEntry { entry, unread, .. }: &StateEntry| {
        let is_whole = unread.is_none() && entry.member_len > 0 && !entry.flags.contains(EntryFlags::UNREADABLE);
        entry.kind == EntryKind::File && is_whole && !needed.contains(&entry.path)
    };
    let looked_for: Vec<_> = entries.iter().filter(|entry| may_be_left(entry)).map(|entry| &entry.entry).collect();
    let mut found = looks(&looked_for)?.into_iter();
    Ok(entries.iter().map(|entry| may_be_left(entry) && found.next() == Some(true)).collect())
}

/// The mounts: a volume that is read in several passes one behind the other stays in its drive.
fn rows_of(wanted: &Wanted, reads: &ReadPlan) -> Vec<PassRow> {
    let mut rows: Vec<PassRow> = Vec::new();
    for pass in &reads.passes {
        let volser = &wanted.volumes[pass.volume].volser;
        let (blocks, skipped) = (pass.blocks(), pass.blocks_skipped());
        match rows.last_mut().filter(|last| last.volser == *volser) {
            Some(last) => {
                last.blocks += blocks;
                last.skipped += skipped;
            }
            None => rows.push(PassRow { volser: volser.clone(), blocks, skipped }),
        }
    }
    rows
}

/// A sum for people to read.
fn total(lens: impl Iterator<Item = u64>) -> u64 {
    lens.fold(0, u64::saturating_add)
}

/// Entries that stand for a later one that could not be read.
pub(crate) fn older_versions(catalog: &Catalog, entries: &[StateEntry]) -> Result<Vec<OlderVersion>, DirectorError> {
    let mut begun: HashMap<ObjectId, i64> = HashMap::new();
    let mut older = Vec::new();
    let is_older = |found: &&StateEntry| found.unread.is_some() || found.entry.flags.contains(EntryFlags::OLDER);
    for StateEntry { object, entry, .. } in entries.iter().filter(is_older) {
        let backed_up_ns = match begun.get(object) {
            Some(known) => *known,
            None => catalog.object(*object)?.map_or(0, |object| object.started_ns),
        };
        begun.insert(*object, backed_up_ns);
        older.push(OlderVersion { path: entry.path.clone(), object: *object, backed_up_ns });
    }
    Ok(older)
}

impl Site {
    /// Volumes of a plan of which a key was destroyed, in the words of those who keep keys. The catalog knows that one
    /// was, and the first; which one it was they say, if they can be asked.
    fn destroyed_keys(&self, passes: &[PassRow]) -> Result<Vec<(Volser, DirectorError)>, DirectorError> {
        let mut without_key: Vec<(Volser, DirectorError)> = Vec::new();
        for PassRow { volser, .. } in passes {
            let known = locked(&self.catalog).volume(volser)?;
            let Some(Volume { key: Some(key), key_destroyed_ns: Some(destroyed_ns), .. }) = known else { continue };
            if without_key.iter().any(|(known, _)| known == volser) {
                continue;
            }
            let keys = self.keys.as_deref().and_then(|keys| keys.keys_of(volser).ok()).unwrap_or_default();
            let gone = keys.iter().find(|key| key.destroyed_ns == Some(destroyed_ns));
            let tag = gone.map_or(key.tag, |gone| gone.tag);
            let error = KeyError::KeyDestroyed { tag, volser: volser.clone(), destroyed_ns };
            without_key.push((volser.clone(), error.into()));
        }
        Ok(without_key)
    }
}
