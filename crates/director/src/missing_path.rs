//! What is known of a path that an object does not have: a backup that has it, or paths of that name elsewhere in the object.

use std::fmt;

use capstan_catalog::{Object, ObjectFilter, State};
use capstan_format::{EntryKind, ObjectId};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::DirectorError;
use crate::select::index_path;
use crate::site::{Site, locked};

/// Paths of the same name that are named one by one.
const NAMED_MAX: usize = 3;

/// Where a path may be found that an object does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Elsewhere {
    /// Nothing is known of it.
    #[default]
    Nowhere,
    /// Another backup of the same source has it.
    InBackup {
        /// The backup: the last before the one that was asked, or else the first behind it.
        object: ObjectId,
        /// When it began, in nanoseconds of the Unix time.
        begun_ns: i64,
        /// The path in it, without the slash in front.
        path: Vec<u8>,
        /// Whether the path was deleted between the two.
        deleted_since: bool,
    },
    /// The object has it further below.
    Below {
        /// The first of these paths, without the slash in front.
        paths: Vec<Vec<u8>>,
        /// How many more there are.
        more: usize,
        /// What was typed.
        typed: Vec<u8>,
    },
}

impl Site {
    /// What is known of a path that was typed, and that `state`, the state at `object`, does not have as any of `tried`.
    pub(crate) fn elsewhere(
        &self,
        object: &Object,
        state: &State,
        typed: &[u8],
        tried: &[Vec<u8>],
    ) -> Result<Elsewhere, DirectorError> {
        let catalog = locked(&self.catalog);
        let objects = catalog.objects(&ObjectFilter::default())?;
        let objects: Vec<_> = objects.into_iter().map(|object| object.id).collect();
        let own = objects.iter().position(|other| *other == object.id);
        for path in tried {
            // An index that is damaged may have it; whoever looks for it with `find` is told.
            let versions = catalog.versions(path, &mut Vec::new())?;
            let of_source = versions.iter().filter(|version| {
                let other = &version.object;
                other.source == object.source
                    && other.client == object.client
                    && version.entry.kind != EntryKind::Deleted
            });
            // The latest come first, in the versions as well.
            let (later, earlier): (Vec<_>, Vec<_>) =
                of_source.partition(|version| objects.iter().position(|other| *other == version.object.id) < own);
            if let Some(version) = earlier.first().or(later.last()) {
                return Ok(Elsewhere::InBackup {
                    object: version.object.id,
                    begun_ns: version.object.started_ns,
                    path: path.clone(),
                    deleted_since: !earlier.is_empty(),
                });
            }
        }
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

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        match self {
            Self::Nowhere => {
                f.write_str(": `capstan ls` lists what it has, and `capstan find` looks for a name in all backups")
            }
            Self::InBackup { object, begun_ns, path, deleted_since } => {
                let (why, which) = match deleted_since {
                    true => (". It was deleted since", "last"),
                    false => (" yet", "first"),
                };
                let path = text(path);
                let begun = Timestamp::from_nanosecond(i128::from(*begun_ns)).unwrap_or_default();
                let begun = begun.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S");
                write!(
                    f,
                    "{why}. The {which} version of it is in the backup that began {begun}: `capstan restore '{object}:/{path}' --to DIR`, \
                     and `capstan versions '/{path}'` lists all"
                )
            }
            Self::Below { paths, more, typed } => {
                let named: Vec<_> = paths.iter().map(|path| format!("/{}", text(path))).collect();
                let more = if *more > 0 { format!(" and {more} more") } else { String::new() };
                let each =
                    if paths.len() > 1 { format!(", or '**/{}' for all of them", text(typed)) } else { String::new() };
                write!(f, ", but has {}{more}: write the path below the source{each}", named.join(", "))
            }
        }
    }
}
