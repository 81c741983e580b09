//! Looking through all objects at once.

use std::ops::ControlFlow;

use capstan_format::FileEntry;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::index::Wanted;
use crate::object::{Object, ObjectFilter};

/// One version of a path: an object that says something of it, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The object.
    pub object: Object,
    /// What it holds of the path; [`capstan_format::EntryKind::Deleted`] where it says that the path was gone.
    pub entry: FileEntry,
}

impl Catalog {
    /// Every version of a path in all objects that are not expired, the latest object first.
    pub fn versions(&self, path: &[u8]) -> Result<Vec<Version>, CatalogError> {
        let mut versions = Vec::new();
        for object in self.objects(&ObjectFilter::default())? {
            if let Some(entry) = self.index(object.id)?.get(path)? {
                versions.push(Version { object, entry });
            }
        }
        Ok(versions)
    }

    /// Calls `found` with each entry whose path is wanted in the objects of a filter, the latest object first, until it
    /// says to break.
    pub fn find(
        &self,
        filter: &ObjectFilter,
        wanted: &Wanted<'_>,
        found: &mut dyn FnMut(&Object, FileEntry) -> ControlFlow<()>,
    ) -> Result<(), CatalogError> {
        for object in self.objects(filter)? {
            for entry in self.index(object.id)?.find(wanted) {
                if found(&object, entry?).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
