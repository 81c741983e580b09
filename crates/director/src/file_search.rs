//! Files in the catalog: a search through all objects, what stands in a directory, the versions of a path. Each gives
//! what is behind a place where an earlier question stopped, so that whoever asks over a network gets it in parts.

use std::collections::HashSet;
use std::ops::ControlFlow;

use capstan_catalog::{CatalogError, Object, ObjectFilter, ObjectStatus, PathPredicate, StateEntry};
use capstan_format::{EntryFlags, FileEntry, ObjectId};

use crate::DirectorError;
use crate::damage::LostParts;
use crate::elsewhere::Elsewhere;
use crate::path_choice::unknown;
use crate::site::Site;

/// What is searched.
#[derive(Debug, Clone)]
pub enum Searched {
    /// What each object holds itself.
    Versions,
    /// The latest state of each source.
    Latest,
    /// The state that one object describes.
    Object(ObjectId),
}

/// A place in a search: it goes on behind this path of this object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPlace {
    /// The object.
    pub object: ObjectId,
    /// The path, as indexes keep it.
    pub path: Vec<u8>,
}

/// A search through the files of objects.
pub struct FileSearch<'a> {
    /// Which paths.
    pub wanted: &'a PathPredicate<'a>,
    /// Where.
    pub searched: Searched,
    /// In objects of which clients.
    pub is_of: &'a dyn Fn(&str) -> bool,
    /// Where an earlier one stopped.
    pub after: Option<SearchPlace>,
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

impl Site {
    /// Calls `found` with each path that is wanted, the latest object first, until it says to break. Gives the objects
    /// whose lists of files are damaged or gone, and were not looked into from there on.
    ///
    /// # Errors
    /// [`DirectorError::UnknownObject`] if the object is not there, or the place where an earlier search stopped is not
    /// any more; otherwise the catalog cannot be read.
    pub fn search_files(
        &self,
        search: &FileSearch<'_>,
        found: &mut dyn FnMut(&Object, FoundFile) -> ControlFlow<()>,
    ) -> Result<Vec<ObjectId>, DirectorError> {
        let lost = self.lost_parts()?;
        let mut damaged = Vec::new();
        let mut objects = self.searched_objects(search)?;
        if let Some(after) = &search.after {
            let at = objects.iter().position(|object| object.id == after.object);
            objects.drain(..at.ok_or_else(|| gone(after.object))?);
        }
        for object in objects {
            let behind = search.after.as_ref().filter(|after| after.object == object.id).map(|after| &*after.path);
            let looked = match search.searched {
                Searched::Versions => self.search_object(search, &object, behind, &lost, found),
                Searched::Latest | Searched::Object(_) => self.search_state(search, &object, behind, &lost, found),
            };
            match looked {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) => damaged.push(error.damaged_index().ok_or(error)?),
            }
        }
        Ok(damaged)
    }

    fn searched_objects(&self, search: &FileSearch<'_>) -> Result<Vec<Object>, DirectorError> {
        let mut objects = self.catalog().objects(&ObjectFilter::default())?;
        objects.retain(|object| (search.is_of)(&object.client));
        Ok(match &search.searched {
            Searched::Versions => objects,
            Searched::Latest => latest(objects),
            Searched::Object(id) => {
                vec![objects.into_iter().find(|object| object.id == *id).ok_or_else(|| gone(*id))?]
            }
        })
    }

    fn search_object(
        &self,
        search: &FileSearch<'_>,
        object: &Object,
        behind: Option<&[u8]>,
        lost: &LostParts,
        found: &mut dyn FnMut(&Object, FoundFile) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, CatalogError> {
        let index = self.catalog().index(object.id)?;
        let entries = index.find(search.wanted);
        let entries = if let Some(path) = behind { entries.behind(path) } else { entries };
        for entry in entries {
            let entry = entry?;
            let is_lost = lost.holds(object.id, &entry);
            if found(object, FoundFile { entry, is_lost }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn search_state(
        &self,
        search: &FileSearch<'_>,
        object: &Object,
        behind: Option<&[u8]>,
        lost: &LostParts,
        found: &mut dyn FnMut(&Object, FoundFile) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, CatalogError> {
        let state = self.catalog().state(object.id)?;
        let entries = state.find(search.wanted);
        let entries = if let Some(path) = behind { entries.behind(path) } else { entries };
        for entry in entries {
            if found(object, FoundFile::of_state(lost, entry?)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
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
        let state = self.catalog().state(object.id)?;
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

    /// Calls `found` with what each object of some clients holds of a path, the latest first. Gives the objects whose
    /// lists of files are damaged or gone. The path is as indexes keep it.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn file_versions(
        &self,
        path: &[u8],
        is_of: &dyn Fn(&str) -> bool,
        found: &mut dyn FnMut(&Object, FoundFile),
    ) -> Result<Vec<ObjectId>, DirectorError> {
        let lost = self.lost_parts()?;
        let mut damaged = Vec::new();
        let mut objects = self.catalog().objects(&ObjectFilter::default())?;
        objects.retain(|object| is_of(&object.client));
        for object in objects {
            let entry = self.catalog().index(object.id);
            match entry.and_then(|index| index.get(path)) {
                Ok(Some(entry)) => {
                    let is_lost = lost.holds(object.id, &entry);
                    found(&object, FoundFile { entry, is_lost });
                }
                Ok(None) => {}
                Err(error) => damaged.push(error.damaged_index().ok_or(error)?),
            }
        }
        Ok(damaged)
    }
}

fn gone(object: ObjectId) -> DirectorError {
    DirectorError::UnknownObject { wanted: object.to_string(), like: None }
}

/// The latest object of each source that has a state: the last complete one, or the first while that runs.
fn latest(objects: Vec<Object>) -> Vec<Object> {
    let (complete, open): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object.status == ObjectStatus::Complete);
    let mut seen = HashSet::new();
    let of_source = |object: &Object| seen.insert((object.client.clone(), object.source.clone()));
    complete.into_iter().chain(open).filter(of_source).collect()
}
