//! Looking through all objects at once.

use capstan_format::{FileEntry, ObjectId};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::object::{Object, ObjectFilter};

/// One version of a path: an object that says something of it, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathVersion {
    /// The object.
    pub object: Object,
    /// What it holds of the path; [`capstan_format::EntryKind::Deleted`] where it says that the path was gone.
    pub entry: FileEntry,
}

impl Catalog {
    /// Every version of a path in the objects of a filter that are not expired, the latest object first. Objects whose
    /// index is damaged or gone are passed over and named in `damaged`.
    ///
    /// # Errors
    /// The database cannot be read, or an index file is there and the system does not let it be read.
    pub fn versions(
        &self,
        filter: &ObjectFilter,
        path: &[u8],
        damaged: &mut Vec<ObjectId>,
    ) -> Result<Vec<PathVersion>, CatalogError> {
        let mut versions = Vec::new();
        for object in self.objects(filter)? {
            let entry = self.index(object.id).and_then(|index| index.get(path));
            if let Some(entry) = pass_over(entry, damaged)?.flatten() {
                versions.push(PathVersion { object, entry });
            }
        }
        Ok(versions)
    }
}

/// Notes an index that is damaged or gone, and goes on without it.
fn pass_over<T>(found: Result<T, CatalogError>, damaged: &mut Vec<ObjectId>) -> Result<Option<T>, CatalogError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.damaged_index() {
            Some(object) => {
                damaged.push(object);
                Ok(None)
            }
            None => Err(error),
        },
    }
}
