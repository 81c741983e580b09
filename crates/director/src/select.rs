//! What of which object is wanted, and where it stands.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use capstan_catalog::{Catalog, Extent, MergedState, Object, ObjectFilter, ObjectStatus, StateEntry};
use capstan_format::{EntryFlags, EntryKind, ExtentRecord, FileEntry, ObjectId, Volser};
use capstan_mover::{ExtentPlace, VolumePlace, Wanted, WantedMember, WantedStream, held_ranges};

use crate::DirectorError;
use crate::chains::Chains;
use crate::chosen::Chosen;
use crate::damage::BadPlaces;
use crate::path_filter::PathFilter;
use crate::paths::{ends_above, index_path};
use crate::ranges::{MissingRange, missing_ranges, stream_lengths};
use crate::site::Site;

/// Paths of a place that are looked up one by one; more are found in one pass over the state.
const PATHS_LOOKED_UP_MAX: usize = 64;

/// An object and, if not all of it, paths in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The object.
    pub object: ObjectId,
    /// Paths without leading slash; none for everything.
    pub paths: Vec<Vec<u8>>,
}

impl Site {
    /// The object that `wanted` names: a whole id, at least four digits of its beginning or end, or a source's path for
    /// the latest object of it, complete ones first; where several clients have that source, of the one that this site
    /// is for.
    ///
    /// # Errors
    /// [`DirectorError::UnknownObject`]; [`DirectorError::AmbiguousObject`] or [`DirectorError::AmbiguousSource`] if
    /// several are meant.
    pub fn find_object(&self, wanted: &str, at_ns: Option<i64>) -> Result<Object, DirectorError> {
        let catalog = self.catalog();
        let unknown = || DirectorError::UnknownObject { wanted: wanted.to_owned(), like: None };
        let filter = ObjectFilter { source: Some(wanted.as_bytes().to_vec()), ..ObjectFilter::default() };
        let mut objects = catalog.objects(&filter)?;
        // Whenever it was begun: the other machine's source of that name is another one.
        if objects.iter().any(|object| object.client == self.client) {
            objects.retain(|object| object.client == self.client);
        }
        let objects = self.made_by(&catalog, objects, at_ns)?;
        let mut clients: Vec<_> = objects.iter().map(|object| object.client.clone()).collect();
        clients.sort();
        clients.dedup();
        if let [_, _, ..] = clients[..] {
            return Err(DirectorError::AmbiguousSource { wanted: wanted.to_owned(), clients });
        }
        let complete = objects.iter().find(|object| object.status == ObjectStatus::Complete);
        if let Some(object) = complete.or(objects.first()) {
            return Ok(object.clone());
        }
        let digits = wanted.len() >= 4 && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !digits {
            return Err(unknown());
        }
        let wanted_id = wanted.to_ascii_lowercase();
        let matches = |object: &Object| {
            let id = object.id.to_string();
            id.starts_with(&wanted_id) || id.ends_with(&wanted_id)
        };
        let mut found: Vec<_> = catalog.objects(&ObjectFilter::default())?.into_iter().filter(matches).collect();
        match found.len() {
            0 => Err(unknown()),
            1 => {
                let object = found.remove(0);
                let found = self.made_by(&catalog, vec![object.clone()], at_ns)?;
                if !found.is_empty() {
                    return Ok(object);
                }
                // The same source as it was then.
                let (source, status) = (Some(object.source), Some(ObjectStatus::Complete));
                let filter = ObjectFilter { source, status, client: Some(object.client), policy: None };
                let then = self.made_by(&catalog, catalog.objects(&filter)?, at_ns)?;
                then.into_iter().next().ok_or_else(unknown)
            }
            count => Err(DirectorError::AmbiguousObject { wanted: wanted.to_owned(), count }),
        }
    }

    /// Those of some objects that were begun by a time; one whose clock was in doubt counts once that is certain.
    fn made_by(
        &self,
        catalog: &Catalog,
        objects: Vec<Object>,
        at_ns: Option<i64>,
    ) -> Result<Vec<Object>, DirectorError> {
        let Some(at_ns) = at_ns.filter(|_| !objects.is_empty()) else { return Ok(objects) };
        let timeline = catalog.timeline(self.now_ns())?;
        let begun_by = |object: &Object| timeline.begun(object.id).is_some_and(|begun| begun.by_ns <= at_ns);
        Ok(objects.into_iter().filter(begun_by).collect())
    }

    /// The entries of a place in the state at its object that pass a filter, with the directories above whatever comes
    /// back, and the files of which further names alone do.
    pub(crate) fn entries_of(
        &self,
        catalog: &Catalog,
        place: &Place,
        filter: &PathFilter,
    ) -> Result<Chosen, DirectorError> {
        let (state, _) = catalog.state_as_far(place.object)?;
        if place.paths.is_empty() && filter.is_empty() {
            return Ok(Chosen::all(state.iter().collect::<Result<_, _>>()?));
        }
        let source = catalog.object(place.object)?.map(|object| object.source).unwrap_or_default();
        let mut found = entries_at(&state, place, &source)?;
        if !filter.is_empty() {
            let source = index_path(&source);
            found.retain(|path, _| filter.takes(&source, path));
            if found.is_empty() {
                return Err(DirectorError::NothingChosen { object: place.object.to_string() });
            }
        }
        // The file behind another name of it is needed, though not by its own name if that was not asked for.
        let links: BTreeSet<_> =
            found.values().filter(|e| e.entry.kind == EntryKind::HardLink).map(|e| e.entry.link.clone()).collect();
        let directories: BTreeSet<Vec<u8>> = match filter.is_empty() {
            true => place.paths.iter().flat_map(|path| directories_above(path)).collect(),
            false => found.keys().flat_map(|path| directories_above(path)).collect(),
        };
        let (mut unnamed, mut ways) = (Vec::new(), HashSet::new());
        for target in links.into_iter().filter(|target| !found.contains_key(target)) {
            unnamed.extend(state.get(&target)?);
        }
        for directory in directories {
            if let (false, Some(above)) = (found.contains_key(&directory), state.get(&directory)?) {
                found.insert(directory.clone(), as_a_way(above));
                ways.insert(directory);
            }
        }
        Ok(Chosen { entries: found.into_values().collect(), unnamed, ways })
    }

    /// Where entries stand: what a read plan is made of.
    pub(crate) fn locate_entries<'e>(
        &self,
        catalog: &Catalog,
        entries: impl Iterator<Item = (ObjectId, &'e FileEntry)>,
        present: &[Volser],
        copy: WhichCopy<'_>,
    ) -> Result<Located, DirectorError> {
        let mut streams: BTreeMap<(ObjectId, u16), Vec<WantedMember>> = BTreeMap::new();
        for (object, entry) in entries.filter(|(_, entry)| entry.member_len > 0) {
            let member = WantedMember { offset: entry.offset, len: entry.member_len, crc: entry.crc };
            streams.entry((object, entry.connection)).or_default().push(member);
        }
        locate_streams(catalog, streams, present, copy, Layout::Joined)
    }
}

/// The entries at and below the paths of a place, all of them if it names none.
fn entries_at(
    state: &MergedState,
    place: &Place,
    source: &[u8],
) -> Result<BTreeMap<Vec<u8>, StateEntry>, DirectorError> {
    let mut found = BTreeMap::new();
    let mut take = |entry: StateEntry| found.insert(entry.entry.path.clone(), entry);
    let mut lacking = None;
    if place.paths.is_empty() || place.paths.len() > PATHS_LOOKED_UP_MAX {
        let wanted: HashSet<&[u8]> = place.paths.iter().map(Vec::as_slice).collect();
        let mut met = HashSet::new();
        for entry in state.iter() {
            let entry = entry?;
            let path = &entry.entry.path;
            let hit = ends_above(path).chain([path.len()]).find_map(|end| wanted.get(&path[..end])).copied();
            met.extend(hit);
            if hit.is_some() || wanted.is_empty() {
                take(entry);
            }
        }
        lacking = wanted.iter().find(|path| !met.contains(*path)).map(|path| path.to_vec());
    } else {
        for path in &place.paths {
            let mut any = false;
            for entry in state.subtree(path) {
                take(entry?);
                any = true;
            }
            if !any {
                lacking.get_or_insert_with(|| path.clone());
            }
        }
    }
    match lacking {
        None => Ok(found),
        Some(path) => Err(DirectorError::UnknownPath {
            object: place.object.to_string(),
            source_name: String::from_utf8_lossy(source).into_owned(),
            path: String::from_utf8_lossy(&path).into_owned(),
            tried: Vec::new(),
            elsewhere: Box::default(),
        }),
    }
}

/// A directory that nobody asked for, but for something in it: that it could not be read or listed is no matter then.
fn as_a_way(above: StateEntry) -> StateEntry {
    let flags = EntryFlags(above.entry.flags.0 & !EntryFlags::UNREADABLE.0);
    StateEntry { entry: FileEntry { flags, ..above.entry }, unread: None, ..above }
}

/// The paths of the directories above a path, from the outermost.
fn directories_above(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    ends_above(path).map(|end| path[..end].to_vec())
}

/// Whether a stream is taken together with those that go on from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// It is, for members.
    Joined,
    /// It is not, for whoever wants each connection by itself.
    Apart,
}

/// Which copies of objects are read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WhichCopy<'a> {
    /// Any.
    Any,
    /// This one.
    Only(u8),
    /// The one that is named for each object.
    Of(&'a HashMap<ObjectId, u8>),
}

impl WhichCopy<'_> {
    fn of(self, object: ObjectId) -> Option<u8> {
        match self {
            Self::Any => None,
            Self::Only(copy) => Some(copy),
            Self::Of(copies) => copies.get(&object).copied(),
        }
    }
}

/// An object's extents and how its streams lie.
struct Laid {
    chunk_len: u32,
    extents: Vec<Extent>,
    chains: Chains,
}

impl Laid {
    fn of(
        catalog: &Catalog,
        object: ObjectId,
        copy: Option<u8>,
        bad: &BadPlaces,
        layout: Layout,
    ) -> Result<Self, DirectorError> {
        let chains = match layout {
            Layout::Joined => Chains::of(catalog, object)?,
            Layout::Apart => Chains::default(),
        };
        let chunk_len = catalog.object(object)?.map_or(0, |record| record.chunk_len);
        let extents = sound_first(catalog.extents(object, copy)?, bad, &stream_lengths(catalog, object)?, chunk_len);
        Ok(Self { chunk_len, extents, chains })
    }

    /// What an extent holds of its stream, which ends where another goes on: its blocks, and how many bytes.
    fn held(&self, record: &ExtentRecord) -> (u32, u64) {
        let Some(end) = self.chains.end(record.connection) else { return (record.blocks, record.plain_len) };
        let held = end.saturating_sub(record.offset).min(record.plain_len);
        let blocks = held.div_ceil(u64::from(self.chunk_len.max(1))).min(u64::from(record.blocks));
        (blocks as u32, held)
    }
}

/// Extents without blocks that are on record as damaged, where the rest has all that they hold. What nothing else has
/// is tried all the same: another drive may read it.
pub(crate) fn sound_first(extents: Vec<Extent>, bad: &BadPlaces, parts: &[(u16, u64)], chunk_len: u32) -> Vec<Extent> {
    let (mut extents, mut damaged) = bad.split(extents, chunk_len);
    if damaged.is_empty() {
        return extents;
    }
    let one: Vec<_> = extents.iter().map(|extent| Extent { copy: 1, ..extent.clone() }).collect();
    let missing = missing_ranges(1, parts, &one, chunk_len);
    damaged.retain(|extent| {
        let record = &extent.record;
        let end = record.offset.saturating_add(record.plain_len);
        let hit = |missing: &MissingRange| {
            missing.connection == record.connection && missing.range.start < end && missing.range.end > record.offset
        };
        missing.iter().any(hit)
    });
    extents.extend(damaged);
    extents
}

/// What is wanted and where, and the volumes that hold some of it and are not there.
pub(crate) struct Located {
    pub(crate) wanted: Wanted,
    /// Those without which it cannot be had.
    pub(crate) absent: Vec<Volser>,
    /// Those that others stand in for, if nothing is wrong with them.
    pub(crate) stood_in_for: Vec<Volser>,
}

/// Which members some extents hold in full. Members and ranges are in the order of their offsets.
struct Cover<'a> {
    members: &'a [WantedMember],
    /// Disjoint, and never touching each other.
    held: Vec<Range<u64>>,
}

impl<'a> Cover<'a> {
    fn of(members: &'a [WantedMember], extents: &[ExtentPlace]) -> Self {
        Self { members, held: held_ranges(extents) }
    }

    fn holds(&self, member: &WantedMember) -> bool {
        let after = self.held.partition_point(|range| range.start <= member.offset);
        after.checked_sub(1).is_some_and(|at| self.held[at].end >= member.offset.saturating_add(member.len))
    }

    /// Whether members lie in a range, and whether some of these are not held.
    fn asks_for(&self, range: &Range<u64>) -> Option<Need> {
        let first = self.members.partition_point(|member| member.offset.saturating_add(member.len) <= range.start);
        let mut inside = self.members[first..].iter().take_while(|member| member.offset < range.end).peekable();
        inside.peek()?;
        Some(if inside.all(|member| self.holds(member)) { Need::StoodInFor } else { Need::Needed })
    }
}

/// What a volume that is not there is to a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// Others hold all that is wanted of it.
    StoodInFor,
    /// It alone holds something.
    Needed,
}

pub(crate) fn locate_streams(
    catalog: &Catalog,
    streams: BTreeMap<(ObjectId, u16), Vec<WantedMember>>,
    present: &[Volser],
    copy: WhichCopy<'_>,
    layout: Layout,
) -> Result<Located, DirectorError> {
    let bad = BadPlaces::of(catalog)?;
    let mut volumes: Vec<VolumePlace> = Vec::new();
    let mut number_of: HashMap<Volser, Option<usize>> = HashMap::new();
    let mut objects: HashMap<ObjectId, Laid> = HashMap::new();
    let mut absent: BTreeMap<Volser, Need> = BTreeMap::new();
    let mut wanted = Wanted::default();
    for ((object, connection), mut members) in streams {
        members.sort_by_key(|member| member.offset);
        let laid = match objects.entry(object) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Laid::of(catalog, object, copy.of(object), &bad, layout)?),
        };
        let (mut extents, mut elsewhere) = (Vec::new(), Vec::new());
        let bases = laid.chains.from(connection);
        let base_of = |extent: &Extent| bases.iter().find(|(other, _)| *other == extent.record.connection);
        for (extent, base) in laid.extents.iter().filter_map(|extent| base_of(extent).map(|found| (extent, found.1))) {
            let (blocks, plain_len) = laid.held(&extent.record);
            // Only an empty extent holds nothing of a stream that nothing continues.
            if plain_len == 0 && extent.record.plain_len > 0 {
                continue;
            }
            let number = match number_of.get(&extent.volser) {
                Some(number) => *number,
                None => {
                    let life = catalog.volume(&extent.volser)?.and_then(|volume| volume.id);
                    let number = life.filter(|_| present.contains(&extent.volser)).map(|volume| {
                        volumes.push(VolumePlace { volser: extent.volser.clone(), volume });
                        volumes.len() - 1
                    });
                    number_of.insert(extent.volser.clone(), number);
                    number
                }
            };
            let Some(volume) = number else {
                let start = base.saturating_add(extent.record.offset);
                elsewhere.push((extent.volser.clone(), start..start.saturating_add(plain_len)));
                continue;
            };
            extents.push(ExtentPlace {
                volume,
                copy: extent.copy,
                connection: extent.record.connection,
                base,
                first_lbn: extent.record.first_lbn,
                blocks,
                offset: base.saturating_add(extent.record.offset),
                plain_len,
            });
        }
        if !elsewhere.is_empty() {
            let cover = Cover::of(&members, &extents);
            for (volser, range) in elsewhere {
                if let Some(need) = cover.asks_for(&range) {
                    let known = absent.entry(volser).or_insert(need);
                    *known = need.max(*known);
                }
            }
        }
        wanted.streams.push(WantedStream { object, connection, chunk_len: laid.chunk_len, members, extents });
    }
    wanted.volumes = volumes;
    let of = |need| absent.iter().filter(move |(_, known)| **known == need).map(|(volser, _)| volser.clone()).collect();
    Ok(Located { wanted, absent: of(Need::Needed), stood_in_for: of(Need::StoodInFor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_needed_for_what_nothing_else_holds() {
        let member = |offset, len| WantedMember { offset, len, crc: 0 };
        let place = |offset, plain_len| ExtentPlace {
            volume: 0,
            copy: 1,
            connection: 0,
            base: 0,
            first_lbn: 0,
            blocks: 1,
            offset,
            plain_len,
        };
        let members = [member(0, 10), member(10, 20), member(50, 10)];
        let cover = Cover::of(&members, &[place(20, 15), place(0, 20)]);
        assert_eq!(cover.asks_for(&(0..30)), Some(Need::StoodInFor), "two extents hold a member together");
        assert_eq!(cover.asks_for(&(40..60)), Some(Need::Needed));
        assert_eq!(cover.asks_for(&(0..100)), Some(Need::Needed));
        assert_eq!(cover.asks_for(&(30..50)), None, "nothing of it is wanted");
        assert_eq!(cover.asks_for(&(60..70)), None);
        assert_eq!(Cover::of(&members, &[]).asks_for(&(9..11)), Some(Need::Needed));
    }
}
