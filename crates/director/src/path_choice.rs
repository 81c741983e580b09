//! Which paths of an object a person means: as they are typed, by patterns, and under which names they come back.
//!
//! A path may be given from the root of the file system, from the source, or beginning with the source's own name. Of
//! several that exist the first of these counts. Names may hold `*` or `[`, so what is typed is a path first, and a
//! pattern only if there is none.

use std::collections::{HashMap, HashSet};

use capstan_catalog::{MergedState, Object, StateEntry};
use capstan_format::EntryKind;
use capstan_mover::extract::stripped;

use crate::DirectorError;
use crate::elsewhere::Elsewhere;
use crate::path_filter::patterns;
use crate::paths::{ends_above, index_path};
use crate::plan::RestorePlan;
use crate::site::{Site, locked};

/// What a typed path may stand for, the first that exists counting.
fn candidates(source: &[u8], typed: &[u8]) -> Vec<Vec<u8>> {
    let path = index_path(typed);
    let mut found = vec![path.clone()];
    if typed.starts_with(b"/") {
        return found;
    }
    let join = |above: &[u8]| if above.is_empty() { path.clone() } else { [above, b"/", &path].concat() };
    let source = index_path(source);
    let above = source.iter().rposition(|&byte| byte == b'/').map_or(&b""[..], |slash| &source[..slash]);
    let named = join(above);
    let own_name = source.strip_prefix(above).map(|name| name.strip_prefix(b"/").unwrap_or(name)).unwrap_or_default();
    found.push(join(&source));
    if path == own_name || path.strip_prefix(own_name).is_some_and(|below| below.starts_with(b"/")) {
        found.push(named);
    }
    let mut seen = HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found
}

fn is_there(state: &MergedState, path: &[u8]) -> Result<bool, DirectorError> {
    Ok(state.subtree(path).next().transpose()?.is_some())
}

/// The path in an object that is meant by what was typed, if it is no pattern.
fn literal(object: &Object, state: &MergedState, typed: &[u8]) -> Result<Option<Vec<u8>>, DirectorError> {
    for path in candidates(&object.source, typed) {
        if is_there(state, &path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

pub(crate) fn unknown(object: &Object, typed: &[u8], tried: &[Vec<u8>], elsewhere: Elsewhere) -> DirectorError {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    DirectorError::UnknownPath {
        object: object.id.to_string(),
        source_name: text(&object.source),
        path: text(typed),
        tried: tried.iter().map(|path| format!("/{}", text(path))).collect(),
        elsewhere: Box::new(elsewhere),
    }
}

impl Site {
    /// The path in an object that is meant by what was typed.
    ///
    /// # Errors
    /// [`DirectorError::UnknownPath`] says what was tried and where there is something of that name.
    pub fn path_in(&self, object: &Object, typed: &[u8]) -> Result<Vec<u8>, DirectorError> {
        let (state, broken) = locked(&self.catalog).state_as_far(object.id)?;
        match (literal(object, &state, typed)?, broken) {
            (Some(path), _) => Ok(path),
            // It may stand in what cannot be used.
            (None, Some(broken)) => Err(broken.into()),
            (None, None) => Err(self.unknown_in(object, &state, typed)),
        }
    }

    /// What is known of a path that an object does not have.
    fn unknown_in(&self, object: &Object, state: &MergedState, typed: &[u8]) -> DirectorError {
        let tried = candidates(&object.source, typed);
        match self.elsewhere(object, state, typed, &tried) {
            Ok(elsewhere) => unknown(object, typed, &tried, elsewhere),
            Err(error) => error,
        }
    }

    /// The paths in an object that are meant by what was typed: one, or those that match it as a pattern, without what
    /// lies below another of them.
    ///
    /// # Errors
    /// [`DirectorError::UnknownPath`] if neither path nor pattern finds any; [`DirectorError::Glob`] if the pattern is
    /// not one.
    pub fn paths_in(&self, object: &Object, typed: &[u8]) -> Result<Vec<Vec<u8>>, DirectorError> {
        let (state, broken) = locked(&self.catalog).state_as_far(object.id)?;
        let unknown_here =
            |state: &MergedState| broken.map_or_else(|| self.unknown_in(object, state, typed), DirectorError::from);
        if let Some(path) = literal(object, &state, typed)? {
            return Ok(vec![path]);
        }
        let pattern = match str::from_utf8(typed) {
            Ok(text) if text.contains(['*', '?', '[', '{']) => text,
            _ => return Err(unknown_here(&state)),
        };
        // Without a slash in front it is one from the source, not a name at any depth.
        let rooted = pattern.starts_with('/') || pattern.starts_with("./");
        let pattern = patterns(&[if rooted { pattern.to_owned() } else { format!("./{pattern}") }])?;
        let source = index_path(&object.source);
        let mut found: HashSet<Vec<u8>> = HashSet::new();
        for entry in state.find(&|path: &[u8]| pattern.matches(&source, path)) {
            let path = entry?.entry.path;
            // A directory stands before what is below it.
            if !ends_above(&path).any(|end| found.contains(&path[..end])) {
                found.insert(path);
            }
        }
        if found.is_empty() {
            return Err(unknown_here(&state));
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort();
        Ok(found)
    }
}

impl RestorePlan {
    /// All that is to be written, or is there already.
    fn written(&self) -> impl Iterator<Item = &StateEntry> {
        let stored = self.entries.iter().chain(&self.there).filter(|entry| entry.entry.member_len > 0);
        stored.chain(&self.streams)
    }

    /// Whether no path is wanted in two versions: which of them would come back is chance.
    fn check_versions(&self) -> Result<(), DirectorError> {
        let mut written: Vec<_> = self.written().collect();
        written.sort_by(|a, b| a.entry.path.cmp(&b.entry.path));
        match written.windows(2).find(|pair| pair[0].entry.path == pair[1].entry.path) {
            None => Ok(()),
            Some(pair) => Err(DirectorError::TwoVersions {
                path: String::from_utf8_lossy(&pair[0].entry.path).into_owned(),
                objects: [pair[0].object.to_string(), pair[1].object.to_string()],
            }),
        }
    }

    /// Whether all that is to be written has a name of its own once so many leading components are taken away.
    ///
    /// # Errors
    /// [`DirectorError::TwoVersions`], [`DirectorError::StripsAll`] or [`DirectorError::StripsAlike`] names the paths.
    pub fn check_strip(&self, strip: usize) -> Result<(), DirectorError> {
        self.check_versions()?;
        if strip == 0 {
            return Ok(());
        }
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let mut named: HashMap<Vec<u8>, &StateEntry> = HashMap::new();
        for entry in self.written() {
            let path = &entry.entry.path;
            let is_directory = |entry: &StateEntry| entry.entry.kind == EntryKind::Directory;
            match stripped(path, strip) {
                None if is_directory(entry) => {}
                None => {
                    let most = ends_above(path).count();
                    return Err(DirectorError::StripsAll { path: text(path), strip, most });
                }
                Some(name) => {
                    if let Some(other) = named.get(&name).filter(|other| !(is_directory(other) && is_directory(entry)))
                    {
                        let (path, other) = (text(path), text(&other.entry.path));
                        return Err(DirectorError::StripsAlike { path, other, name: text(&name), strip });
                    }
                    named.insert(name, entry);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(source: &[u8], typed: &[u8]) -> Vec<String> {
        candidates(source, typed).iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    #[test]
    fn a_path_is_tried_from_the_root_from_the_source_and_from_its_name() {
        assert_eq!(tried(b"/srv/ex", b"docs/a"), ["docs/a", "srv/ex/docs/a"]);
        assert_eq!(tried(b"/srv/ex", b"ex/docs"), ["ex/docs", "srv/ex/ex/docs", "srv/ex/docs"]);
        assert_eq!(tried(b"/srv/ex", b"/docs/a"), ["docs/a"], "a slash in front means the root");
        assert_eq!(tried(b"/srv/ex", b"./docs/"), ["docs", "srv/ex/docs"]);
        assert_eq!(tried(b"/", b"etc/fstab"), ["etc/fstab"]);
        assert_eq!(tried(b"/ex", b"ex"), ["ex", "ex/ex"]);
        assert_eq!(tried(b"dump.sql", b"dump.sql"), ["dump.sql", "dump.sql/dump.sql"]);
    }
}
