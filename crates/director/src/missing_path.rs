//! What is known of a path that an object does not have: a backup that has it, or paths of that name elsewhere in the
//! object.

use capstan_catalog::{MergedState, Object, ObjectFilter};
use capstan_format::EntryKind;

use crate::DirectorError;
use crate::elsewhere::Elsewhere;
use crate::paths::index_path;
use crate::site::{Site, locked};

/// Paths of the same name that are named one by one.
const NAMED_MAX: usize = 3;

impl Site {
    /// What is known of a path that was typed, and that `state`, the state at `object`, does not have as any of
    /// `tried`.
    pub(crate) fn elsewhere(
        &self,
        object: &Object,
        state: &MergedState,
        typed: &[u8],
        tried: &[Vec<u8>],
    ) -> Result<Elsewhere, DirectorError> {
        let catalog = locked(&self.catalog);
        let (source, client) = (Some(object.source.clone()), Some(object.client.clone()));
        let of_source = ObjectFilter { source, client, ..ObjectFilter::default() };
        let objects = catalog.objects(&of_source)?;
        let objects: Vec<_> = objects.into_iter().map(|object| object.id).collect();
        let own = objects.iter().position(|other| *other == object.id);
        for path in tried {
            // An index that is damaged may have it; whoever looks for it with `find` is told.
            let versions = catalog.versions(&of_source, path, &mut Vec::new())?;
            let there = versions.iter().filter(|version| version.entry.kind != EntryKind::Deleted);
            // The latest come first, in the versions as well.
            let (later, earlier): (Vec<_>, Vec<_>) =
                there.partition(|version| objects.iter().position(|other| *other == version.object.id) < own);
            if let Some(version) = earlier.first().or(later.last()) {
                return Ok(Elsewhere::InBackup {
                    object: version.object.id,
                    begun_ns: version.object.started_ns,
                    path: path.clone(),
                    deleted_since: !earlier.is_empty(),
                });
            }
        }
        // What follows may take long, and needs nothing more of the catalog.
        drop(catalog);
        let below = [b"/", &index_path(typed)[..]].concat();
        let (mut paths, mut more) = (Vec::new(), 0);
        for entry in state.find(&|path: &[u8]| path.ends_with(&below)) {
            let path = entry?.entry.path;
            match paths.len() {
                NAMED_MAX.. => more += 1,
                _ => paths.push(path),
            }
        }
        Ok(if paths.is_empty() {
            Elsewhere::Nowhere
        } else {
            Elsewhere::Below { paths, more, typed: index_path(typed) }
        })
    }
}
