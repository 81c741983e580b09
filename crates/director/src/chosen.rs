//! What was chosen of the places of a restore, put together: by which names it comes back, and what only leads to it.

use std::collections::{HashMap, HashSet};

use capstan_catalog::StateEntry;
use capstan_format::{EntryKind, FileEntry, ObjectId};
use capstan_mover::extract::Selection;

/// What of a place is wanted.
pub(crate) struct Chosen {
    pub(crate) entries: Vec<StateEntry>,
    /// Files that are wanted by further names alone: their own was not asked for.
    pub(crate) unnamed: Vec<StateEntry>,
    /// Directories that nobody asked for, but for something in them.
    pub(crate) ways: HashSet<Vec<u8>>,
}

impl Chosen {
    /// All that there is, each by its own name.
    pub(crate) fn all(entries: Vec<StateEntry>) -> Self {
        Self { entries, unnamed: Vec::new(), ways: HashSet::new() }
    }
}

/// The entries of all places, in the order of their paths, and what is to be done with them that their streams do not
/// say.
pub(crate) fn put_together(mut chosen: Vec<Chosen>) -> (Vec<StateEntry>, Selection) {
    let mut selection = Selection::default();
    name_files(&mut chosen, &mut selection);
    let mut ways: HashSet<Vec<u8>> = chosen.iter().flat_map(|place| &place.ways).cloned().collect();
    // What is a way to one place may be asked for in another.
    let mut asked: HashSet<Vec<u8>> = HashSet::new();
    for place in chosen.iter().filter(|_| !ways.is_empty()) {
        let own = place.entries.iter().map(|entry| &entry.entry.path).filter(|path| !place.ways.contains(*path));
        asked.extend(own.filter(|path| ways.contains(*path)).cloned());
    }
    ways.retain(|way| !asked.contains(way));
    ways.iter().for_each(|way| selection.pass_through(way));
    for place in &mut chosen {
        let is_asked_elsewhere = |path: &Vec<u8>| place.ways.contains(path) && asked.contains(path);
        place.entries.retain(|entry| !is_asked_elsewhere(&entry.entry.path));
    }
    let mut entries: Vec<_> = chosen.into_iter().flat_map(|place| place.entries).collect();
    keep_one_of_each(&mut entries);
    (entries, selection)
}

/// Of members of one path that are alike, the one that was backed up last: it is written once. What is not alike stays:
/// nobody but the operator can say which is meant.
fn keep_one_of_each(entries: &mut Vec<StateEntry>) {
    entries.sort_by(|a, b| (&a.entry.path, a.object).cmp(&(&b.entry.path, b.object)));
    entries.dedup_by(|later, earlier| {
        let is_double = later.entry.path == earlier.entry.path && are_alike(earlier, later);
        if is_double {
            std::mem::swap(earlier, later);
        }
        is_double
    });
}

/// Whether two members of one path are the same, as far as kind, size and time tell; directories always are.
fn are_alike(one: &StateEntry, other: &StateEntry) -> bool {
    let member = |of: &StateEntry| (of.object, of.entry.connection, of.entry.offset, of.entry.member_len);
    if member(one) == member(other) {
        return true;
    }
    let (one, other) = (&one.entry, &other.entry);
    let is_stored = one.member_len > 0 && other.member_len > 0;
    match (one.kind, other.kind) {
        (EntryKind::Directory, EntryKind::Directory) => is_stored,
        (EntryKind::File, EntryKind::File) => is_stored && (one.size, one.mtime_ns) == (other.size, other.mtime_ns),
        (kind, of) => is_stored && kind == of && (one.mtime_ns, &one.link) == (other.mtime_ns, &other.link),
    }
}

/// Gives the content of files whose own names were not asked for to the first of their names that were.
fn name_files(chosen: &mut [Chosen], selection: &mut Selection) {
    let key = |entry: &StateEntry| (entry.object, entry.entry.path.clone());
    let unnamed: HashSet<(ObjectId, Vec<u8>)> = chosen.iter().flat_map(|place| &place.unnamed).map(key).collect();
    if unnamed.is_empty() {
        return;
    }
    // Another place may ask for the file by its own name.
    let entries = chosen.iter().flat_map(|place| &place.entries);
    let mut named: HashSet<_> = entries.map(key).filter(|file| unnamed.contains(file)).collect();
    for place in chosen {
        let files = std::mem::take(&mut place.unnamed);
        let files: HashMap<&[u8], &StateEntry> = files.iter().map(|file| (&file.entry.path[..], file)).collect();
        for link in place.entries.iter_mut().filter(|entry| entry.entry.kind == EntryKind::HardLink) {
            let Some(file) = files.get(&link.entry.link[..]).copied() else { continue };
            if named.insert(key(file)) {
                let path = link.entry.path.clone();
                selection.give_name(file.object, &file.entry.path, &path);
                *link = StateEntry { entry: FileEntry { path, ..file.entry.clone() }, ..file.clone() };
            } else if let Some(name) = selection.name_of(file.object, &file.entry.path).map(<[u8]>::to_vec) {
                // A later backup may have the link.
                selection.give_name(link.object, &file.entry.path, &name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_format::EntryFlags;

    use super::*;

    fn entry(object: u8, path: &str, link: &str) -> StateEntry {
        let kind = if link.is_empty() { EntryKind::File } else { EntryKind::HardLink };
        let entry = FileEntry {
            path: path.as_bytes().to_vec(),
            kind,
            flags: EntryFlags::default(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 5,
            mtime_ns: 7,
            change: 0,
            crc: 0,
            connection: 0,
            offset: 0,
            member_len: 1024,
            link: link.as_bytes().to_vec(),
        };
        StateEntry { object: ObjectId([object; 16]), entry, unread: None }
    }

    fn links(object: u8, paths: &[&str]) -> Chosen {
        let entries = paths.iter().map(|path| entry(object, path, "a")).collect();
        Chosen { unnamed: vec![entry(1, "a", "")], ..Chosen::all(entries) }
    }

    fn kinds(entries: &[StateEntry]) -> Vec<(&str, EntryKind)> {
        entries.iter().map(|of| (str::from_utf8(&of.entry.path).unwrap_or_default(), of.entry.kind)).collect()
    }

    #[test]
    fn the_first_name_that_is_wanted_gets_the_content() {
        use EntryKind::{File, HardLink};
        let name = |selection: &Selection, object| {
            selection.name_of(ObjectId([object; 16]), b"a").map(|name| String::from_utf8_lossy(name).into_owned())
        };
        let (entries, selection) = put_together(vec![links(1, &["b", "c"])]);
        assert_eq!(kinds(&entries), [("b", File), ("c", HardLink)]);
        assert_eq!(name(&selection, 1).as_deref(), Some("b"));

        // The links of a later backup, and those of another place.
        let (entries, selection) = put_together(vec![links(2, &["b", "c"]), links(2, &["d"])]);
        assert_eq!(kinds(&entries), [("b", File), ("c", HardLink), ("d", HardLink)]);
        assert_eq!([1, 2].map(|object| name(&selection, object)), [Some("b".to_owned()), Some("b".to_owned())]);

        let own = Chosen::all(vec![entry(1, "a", "")]);
        let (entries, selection) = put_together(vec![links(1, &["b"]), own]);
        assert_eq!(kinds(&entries), [("a", File), ("b", HardLink)]);
        assert_eq!(selection, Selection::default());
    }

    #[test]
    fn of_members_that_are_alike_the_last_is_taken() {
        let place = |object, size, mtime_ns| {
            let StateEntry { object, entry, unread } = entry(object, "f", "");
            Chosen::all(vec![StateEntry { object, entry: FileEntry { size, mtime_ns, ..entry }, unread }])
        };
        let objects = |places| put_together(places).0.iter().map(|of| of.object.0[0]).collect::<Vec<_>>();
        assert_eq!(objects(vec![place(2, 5, 7), place(1, 5, 7), place(2, 5, 7)]), [2]);
        assert_eq!(objects(vec![place(2, 6, 7), place(1, 5, 7)]), [1, 2]);
        assert_eq!(objects(vec![place(1, 5, 7), place(2, 5, 8)]), [1, 2]);
    }

    #[test]
    fn what_is_asked_for_elsewhere_is_no_way() {
        let place = |path: &str| Chosen { ways: [b"d".to_vec()].into(), ..Chosen::all(vec![entry(1, path, "")]) };
        let mut expected = Selection::default();
        assert_eq!(put_together(vec![place("d"), Chosen::all(vec![entry(2, "d", "")])]).1, expected);
        expected.pass_through(b"d");
        assert_eq!(put_together(vec![place("d"), place("d")]).1, expected);
    }
}
