//! Files in the catalog: a search through all objects, the versions of a path, what stands in a directory. A search can
//! be stopped and goes on later behind a cursor, so that whoever asks over a network gets it in parts.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_catalog::{
    CatalogError, Object, ObjectFilter, ObjectStatus, PathParts, PathPredicate, StateEntry, StopSearch,
};
use capstan_format::{EntryFlags, FileEntry, ObjectId};

use crate::damage::LostParts;
use crate::elsewhere::Elsewhere;
use crate::in_order::{InOrder, in_order};
use crate::path_choice::unknown;
use crate::site::Site;
use crate::{DirectorError, Event};

/// Where is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Searched {
    /// In what each object holds itself, the latest object first.
    Versions,
    /// In the latest state of each source, by client and source.
    Latest,
    /// In the state that one object describes.
    Object(ObjectId),
}

/// What is searched for.
#[derive(Clone, Copy)]
pub enum SearchedFor<'a> {
    /// Paths that are wanted, each of which has these parts.
    Matching(&'a PathPredicate<'a>, &'a PathParts),
    /// One path, as indexes keep it.
    Path(&'a [u8]),
}

/// Where a search stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchCursor {
    /// The object.
    pub object: ObjectId,
    /// Its client.
    pub client: String,
    /// Its source.
    pub source: Vec<u8>,
    /// The last path in it that was given; none if it was not begun.
    pub path: Option<Vec<u8>>,
}

/// A search through the files of objects.
pub struct FileSearch<'a> {
    /// What for.
    pub wanted: SearchedFor<'a>,
    /// Where.
    pub searched: Searched,
    /// Only in objects of this client.
    pub client: Option<&'a str>,
    /// In objects of which clients.
    pub is_of: &'a dyn Fn(&str) -> bool,
    /// Whether backups that have not ended are searched, too. Their lists of files are not in order yet: that takes as
    /// long as they are.
    pub with_open: bool,
    /// Where an earlier one stopped.
    pub after: Option<SearchCursor>,
    /// Whether it is to stop. It is asked before each object, and now and then within one: what stands next is found
    /// then, whatever it is.
    pub is_over: &'a StopSearch<'a>,
    /// Most threads that search at the same time.
    pub threads: usize,
}

/// How a search ended.
#[derive(Debug, Default)]
pub struct SearchEnd {
    /// Where it goes on; none if it has come to its end.
    pub next: Option<SearchCursor>,
    /// The objects whose lists of files are damaged or gone, or whose bases are, and were not looked into from there
    /// on.
    pub damaged: Vec<ObjectId>,
}

/// A file that was found.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// What is known of it.
    pub entry: FileEntry,
    /// Whether no copy has all of it any more.
    pub is_lost: bool,
}

impl FoundFile {
    /// One of a state. One that is older than the state, because the path could not be read since, says so by its flag.
    fn of_state(lost: &LostParts, entry: StateEntry) -> Self {
        let StateEntry { mut entry, unread, object } = entry;
        let is_lost = lost.holds(object, &entry);
        if unread.is_some() {
            entry.flags = entry.flags.with(EntryFlags::UNREADABLE);
        }
        Self { entry, is_lost }
    }
}

/// What is called for each file, and says whether the search goes on.
type Found<'f> = dyn FnMut(&Object, FoundFile) -> ControlFlow<()> + 'f;

/// The same within one object.
type Tell<'f> = dyn FnMut(FoundFile) -> ControlFlow<()> + 'f;

impl Site {
    /// Calls `found` with each file that is wanted, until it says to break.
    ///
    /// # Errors
    /// [`DirectorError::UnknownObject`] if the one object that is searched is not there; otherwise the catalog cannot
    /// be read.
    pub fn search_files(&self, search: &FileSearch<'_>, found: &mut Found<'_>) -> Result<SearchEnd, DirectorError> {
        let lost = self.lost_parts()?;
        let objects = self.searched_objects(search)?;
        let (wanted, searched, after) = (search.wanted, search.searched, search.after.as_ref());
        // Once the caller takes no more, threads end with the next path, whatever it is.
        let is_left = AtomicBool::new(false);
        let is_over = || is_left.load(Ordering::Relaxed) || (search.is_over)();
        let until_left = |path: &[u8]| match wanted {
            SearchedFor::Matching(wanted, _) => is_left.load(Ordering::Relaxed) || wanted(path),
            SearchedFor::Path(_) => true,
        };
        let wanted = match wanted {
            SearchedFor::Matching(_, parts) => SearchedFor::Matching(&until_left, parts),
            SearchedFor::Path(path) => SearchedFor::Path(path),
        };
        // What one thread finds in an object, the caller gets in the order of objects.
        let look = |number: usize, tell: &mut Tell<'_>| {
            let object: &Object = &objects[number];
            let behind = after.filter(|after| is_of_cursor(searched, after, object));
            let behind = behind.and_then(|after| after.path.as_deref());
            self.search_one((wanted, searched, &is_over), object, behind, &lost, tell)
        };
        in_order((objects.len(), search.threads), &look, |several| {
            let end = take_found(search, &objects, several, found);
            is_left.store(true, Ordering::Relaxed);
            end
        })
    }

    /// The objects that are searched, from where an earlier search stopped. What came or went meanwhile changes nothing
    /// in the order of the others.
    fn searched_objects(&self, search: &FileSearch<'_>) -> Result<Vec<Object>, DirectorError> {
        if let Searched::Object(id) = search.searched {
            let object = self.catalog().object(id)?.filter(|object| (search.is_of)(&object.client));
            let unknown = || DirectorError::UnknownObject { wanted: id.to_string(), like: None };
            return Ok(vec![object.ok_or_else(unknown)?]);
        }
        let filter = ObjectFilter { client: search.client.map(str::to_owned), ..ObjectFilter::default() };
        let mut objects = self.catalog().objects(&filter)?;
        let is_searched = |object: &Object| search.with_open || object.status == ObjectStatus::Complete;
        objects.retain(|object| (search.is_of)(&object.client) && is_searched(object));
        if search.searched == Searched::Latest {
            objects = latest(objects);
            objects.sort_by(|a, b| (&a.client, &a.source).cmp(&(&b.client, &b.source)));
        }
        let Some(after) = &search.after else { return Ok(objects) };
        let at = match search.searched {
            Searched::Latest => {
                let is_left = |object: &Object| (&object.client, &object.source) >= (&after.client, &after.source);
                objects.iter().position(is_left)
            }
            Searched::Versions | Searched::Object(_) => {
                let there = objects.iter().position(|object| object.id == after.object);
                // It is gone: on with what was recorded before it.
                there.or_else(|| objects.iter().position(|object| object.id < after.object))
            }
        };
        objects.drain(..at.unwrap_or(objects.len()));
        Ok(objects)
    }

    fn search_one(
        &self,
        (wanted, searched, is_over): (SearchedFor<'_>, Searched, &StopSearch<'_>),
        object: &Object,
        behind: Option<&[u8]>,
        lost: &LostParts,
        tell: &mut Tell<'_>,
    ) -> Result<(), CatalogError> {
        if searched == Searched::Versions {
            let index = self.catalog().index(object.id)?;
            let entries = match wanted {
                SearchedFor::Matching(wanted, parts) => index.find_with(wanted, parts, is_over),
                SearchedFor::Path(path) => index.path(path),
            };
            let entries = if let Some(path) = behind { entries.behind(path) } else { entries };
            for entry in entries {
                let entry = entry?;
                let is_lost = lost.holds(object.id, &entry);
                if tell(FoundFile { entry, is_lost }).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let (state, broken) = self.catalog().state_as_far(object.id)?;
        let entries = match wanted {
            SearchedFor::Matching(wanted, parts) => state.find_with(wanted, parts, is_over),
            SearchedFor::Path(path) => state.path(path),
        };
        let entries = if let Some(path) = behind { entries.behind(path) } else { entries };
        for entry in entries {
            if tell(FoundFile::of_state(lost, entry?)).is_break() {
                return Ok(());
            }
        }
        broken.map_or(Ok(()), Err)
    }

    /// What stands in a directory of the state that an object describes, or in all below it, behind a path if one is
    /// given; a path that is no directory stands for itself. The path is as indexes keep it.
    ///
    /// # Errors
    /// [`DirectorError::UnknownPath`]; otherwise the catalog cannot be read.
    pub fn list_files(
        &self,
        object: &Object,
        path: &[u8],
        is_recursive: bool,
        behind: Option<&[u8]>,
    ) -> Result<impl Iterator<Item = Result<FoundFile, DirectorError>> + use<>, DirectorError> {
        let (state, broken) = self.catalog().state_as_far(object.id)?;
        if let Some(broken) = broken {
            let message = format!("{broken}: what stands in that object alone is not listed");
            (self.events)(Event::Notice { message });
        }
        let entries = if is_recursive { state.subtree(path) } else { state.children(path) };
        let entries = if let Some(behind) = behind { entries.behind(behind) } else { entries };
        let mut entries = entries.peekable();
        let itself = match (entries.peek(), behind) {
            (None, None) => Some(Ok(state.get(path)?.ok_or_else(|| unknown(object, path, &[], Elsewhere::Nowhere))?)),
            _ => None,
        };
        let lost = self.lost_parts()?;
        Ok(entries.chain(itself).map(move |entry| Ok(FoundFile::of_state(&lost, entry?))))
    }
}

/// Gives the caller what was found in each object, until it says to break.
fn take_found(
    search: &FileSearch<'_>,
    objects: &[Object],
    several: &mut InOrder<'_, FoundFile, Result<(), CatalogError>>,
    found: &mut Found<'_>,
) -> Result<SearchEnd, DirectorError> {
    let mut end = SearchEnd::default();
    for (number, object) in objects.iter().enumerate() {
        let cursor = |path| SearchCursor {
            object: object.id,
            client: object.client.clone(),
            source: object.source.clone(),
            path,
        };
        // One object is searched at least, or it never ends.
        if number > 0 && (search.is_over)() {
            end.next = Some(cursor(None));
            break;
        }
        let mut last = None;
        let searched = several.each(number, &mut |file: FoundFile| {
            let path = file.entry.path.clone();
            let flow = found(object, file);
            if flow.is_break() {
                last = Some(path);
            }
            flow
        });
        match searched {
            None | Some(Ok(())) => {}
            // It was forgotten meanwhile.
            Some(Err(CatalogError::Expired(_) | CatalogError::UnknownObject(_))) => {}
            Some(Err(CatalogError::ChainBroken { object, .. })) => end.damaged.push(object),
            Some(Err(error)) => end.damaged.push(error.damaged_index().ok_or(error)?),
        }
        if last.is_some() {
            end.next = Some(cursor(last));
            break;
        }
    }
    Ok(end)
}

/// Whether a search that stopped there goes on within an object. The latest state of a source may be that of a later
/// object than before.
fn is_of_cursor(searched: Searched, cursor: &SearchCursor, object: &Object) -> bool {
    match searched {
        Searched::Latest => cursor.client == object.client && cursor.source == object.source,
        Searched::Versions | Searched::Object(_) => cursor.object == object.id,
    }
}

/// The latest object of each source that has a state: the last complete one, or the first while that runs.
fn latest(objects: Vec<Object>) -> Vec<Object> {
    let (complete, open): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object.status == ObjectStatus::Complete);
    let mut seen = HashSet::new();
    let of_source = |object: &Object| seen.insert((object.client.clone(), object.source.clone()));
    complete.into_iter().chain(open).filter(of_source).collect()
}
