//! What of which object is wanted, and where it stands.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;

use capstan_catalog::{Catalog, Object, ObjectFilter, ObjectStatus, StateEntry};
use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectId, ObjectKind, Volser};
use capstan_mover::{ExtentPlace, VolumePlace, Wanted, WantedMember, WantedStream};

use crate::DirectorError;
use crate::site::Site;

/// An object and, if not all of it, paths in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The object.
    pub object: ObjectId,
    /// Paths without leading slash; none for everything.
    pub paths: Vec<Vec<u8>>,
}

/// A path as indexes keep it: no leading or trailing slash, no `.` components.
pub fn index_path(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && part != b".");
    parts.collect::<Vec<_>>().join(&b'/')
}

/// Whether a path matches a pattern: on the whole path if the pattern has a slash, else on the last component.
pub fn path_pattern(glob: &str) -> Result<Box<capstan_catalog::Wanted<'static>>, DirectorError> {
    let whole = glob.contains('/');
    let pattern = glob.trim_start_matches('/');
    let built = globset::GlobBuilder::new(pattern).literal_separator(whole).build();
    let matcher = built.map_err(|error| DirectorError::Glob { glob: glob.to_owned(), reason: error.to_string() })?;
    let matcher = matcher.compile_matcher();
    Ok(Box::new(move |path: &[u8]| {
        let name = if whole { path } else { path.rsplit(|&byte| byte == b'/').next().unwrap_or(path) };
        matcher.is_match(std::path::Path::new(std::ffi::OsStr::from_bytes(name)))
    }))
}

impl Site {
    /// The object that `wanted` names: a whole id, at least four digits of its beginning or end, or a source's path for the
    /// latest object of it, complete ones first.
    pub fn find_object(&self, wanted: &str, at_ns: Option<i64>) -> Result<Object, DirectorError> {
        let catalog = self.catalog();
        let unknown = || DirectorError::UnknownObject { wanted: wanted.to_owned() };
        let by_source = |source: Vec<u8>| -> Result<Option<Object>, DirectorError> {
            let filter = ObjectFilter { source: Some(source), started_by_ns: at_ns, ..ObjectFilter::default() };
            let complete = ObjectFilter { status: Some(ObjectStatus::Complete), ..filter.clone() };
            Ok(catalog.latest(&complete)?.or(catalog.latest(&filter)?))
        };
        let source = wanted.as_bytes().to_vec();
        if let Some(object) = by_source(source)? {
            return Ok(object);
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
                let Some(at_ns) = at_ns.filter(|&at_ns| at_ns < object.started_ns) else { return Ok(object) };
                // The same source as it was then.
                let (source, status) = (Some(object.source.clone()), Some(ObjectStatus::Complete));
                let filter = ObjectFilter {
                    source,
                    status,
                    started_by_ns: Some(at_ns),
                    client: Some(object.client),
                    policy: None,
                };
                catalog.latest(&filter)?.ok_or_else(unknown)
            }
            count => Err(DirectorError::AmbiguousObject { wanted: wanted.to_owned(), count }),
        }
    }

    /// The entries of a place in the state at its object, with the directories above whatever comes back.
    pub(crate) fn entries_of(&self, catalog: &Catalog, place: &Place) -> Result<Vec<StateEntry>, DirectorError> {
        let state = catalog.state(place.object)?;
        if place.paths.is_empty() {
            return Ok(state.iter().collect::<Result<_, _>>()?);
        }
        let mut found: BTreeMap<Vec<u8>, StateEntry> = BTreeMap::new();
        for path in &place.paths {
            let mut any = false;
            for entry in state.subtree(path) {
                let entry = entry?;
                any = true;
                found.insert(entry.entry.path.clone(), entry);
            }
            if !any {
                let object = catalog.object(place.object)?;
                return Err(DirectorError::UnknownPath {
                    object: place.object.to_string(),
                    source_name: object.map(|o| String::from_utf8_lossy(&o.source).into_owned()).unwrap_or_default(),
                    path: String::from_utf8_lossy(path).into_owned(),
                });
            }
        }
        // The file behind another name of it is needed, whether or not it was named.
        let links: BTreeSet<_> =
            found.values().filter(|e| e.entry.kind == EntryKind::HardLink).map(|e| e.entry.link.clone()).collect();
        let mut directories: BTreeSet<Vec<u8>> = place.paths.iter().flat_map(|path| directories_above(path)).collect();
        for target in links {
            if let (false, Some(entry)) = (found.contains_key(&target), state.get(&target)?) {
                directories.extend(directories_above(&target));
                found.insert(target, entry);
            }
        }
        for directory in directories {
            if let (false, Some(above)) = (found.contains_key(&directory), state.get(&directory)?) {
                found.insert(directory, as_a_way(above));
            }
        }
        Ok(found.into_values().collect())
    }

    /// Where entries stand: what a read plan is made of. Only `copy`, if one is named.
    pub(crate) fn locate_entries<'e>(
        &self,
        catalog: &Catalog,
        entries: impl Iterator<Item = (ObjectId, &'e FileEntry)>,
        present: &[Volser],
        copy: Option<u8>,
    ) -> Result<Located, DirectorError> {
        let mut streams: BTreeMap<(ObjectId, u16), Vec<WantedMember>> = BTreeMap::new();
        for (object, entry) in entries.filter(|(_, entry)| entry.member_len > 0) {
            let member = WantedMember { offset: entry.offset, len: entry.member_len, crc: entry.crc };
            streams.entry((object, entry.connection)).or_default().push(member);
        }
        locate_streams(catalog, streams, present, copy, Layout::Joined)
    }
}

/// A directory that nobody asked for, but for something in it: that it could not be read or listed is no matter then.
fn as_a_way(above: StateEntry) -> StateEntry {
    let flags = EntryFlags(above.entry.flags.0 & !EntryFlags::UNREADABLE.0);
    StateEntry { entry: FileEntry { flags, ..above.entry }, unread: None, ..above }
}

/// The paths of the directories above a path, from the outermost.
fn directories_above(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| path[..at].to_vec())
}

/// Whether the streams of an object whose one member runs through all of them are taken as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// They are, for members.
    Joined,
    /// They are not, for whoever wants each connection by itself.
    Apart,
}

/// An object's extents and how its streams lie.
struct Laid {
    chunk_len: u32,
    extents: Vec<capstan_catalog::Extent>,
    joined: bool,
    /// Where each connection's stream begins in the joined one.
    bases: Vec<(u16, u64)>,
}

impl Laid {
    fn of(catalog: &Catalog, object: ObjectId, copy: Option<u8>, layout: Layout) -> Result<Self, DirectorError> {
        let record = catalog.object(object)?;
        let joined =
            layout == Layout::Joined && record.as_ref().is_some_and(|record| record.kind == ObjectKind::Device);
        let mut bases = Vec::new();
        if joined {
            let mut at = 0;
            for part in catalog.parts(object)? {
                bases.push((part.connection, at));
                at += part.valid_len;
            }
        }
        let chunk_len = record.map_or(0, |record| record.chunk_len);
        Ok(Self { chunk_len, extents: catalog.extents(object, copy)?, joined, bases })
    }

    fn base(&self, connection: u16) -> u64 {
        self.bases.iter().find(|(other, _)| *other == connection).map_or(0, |(_, base)| *base)
    }
}

/// What is wanted and where, and the volumes that would be needed and are not there.
pub(crate) struct Located {
    pub(crate) wanted: Wanted,
    pub(crate) absent: Vec<Volser>,
}

pub(crate) fn locate_streams(
    catalog: &Catalog,
    streams: BTreeMap<(ObjectId, u16), Vec<WantedMember>>,
    present: &[Volser],
    copy: Option<u8>,
    layout: Layout,
) -> Result<Located, DirectorError> {
    let mut volumes: Vec<VolumePlace> = Vec::new();
    let mut number_of: HashMap<Volser, Option<usize>> = HashMap::new();
    let mut objects: HashMap<ObjectId, Laid> = HashMap::new();
    let mut absent = BTreeSet::new();
    let mut wanted = Wanted::default();
    for ((object, connection), mut members) in streams {
        members.sort_by_key(|member| member.offset);
        let laid = match objects.entry(object) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Laid::of(catalog, object, copy, layout)?),
        };
        let mut extents = Vec::new();
        for extent in laid.extents.iter().filter(|extent| laid.joined || extent.record.connection == connection) {
            let base = laid.base(extent.record.connection);
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
                absent.insert(extent.volser.clone());
                continue;
            };
            extents.push(ExtentPlace {
                volume,
                copy: extent.copy,
                connection: extent.record.connection,
                base,
                first_lbn: extent.record.first_lbn,
                blocks: extent.record.blocks,
                offset: base + extent.record.offset,
                plain_len: extent.record.plain_len,
            });
        }
        wanted.streams.push(WantedStream { object, connection, chunk_len: laid.chunk_len, members, extents });
    }
    wanted.volumes = volumes;
    Ok(Located { wanted, absent: absent.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_paths_have_no_slashes_at_their_ends() {
        assert_eq!(index_path(b"/usr//share/./doc/"), b"usr/share/doc");
        assert_eq!(index_path(b"/"), b"");
        assert_eq!(index_path(b"a"), b"a");
    }
}
