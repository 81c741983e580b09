//! What is left out of a source: whether it is what the base of an incremental left out, and how many paths it costs.
//!
//! A path that is left out now and was not before counts as deleted. So the rules of each backup are kept beside its
//! object, and compared before anything is recorded.

use std::collections::BTreeSet;

use capstan_catalog::MergedState;
use capstan_format::ObjectId;
use capstan_mover::{PathPatterns, TreeOptions};

use crate::path_filter::patterns;
use crate::paths::index_path;
use crate::shared::{apart, first_of};
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// Rules that are named where many changed.
const NAMED_MAX: usize = 5;

/// Paths that an incremental may record as deleted for the sake of an exclude before it is said how to prevent it. So
/// it is, too, where it is more than half of all.
const DELETED_MANY: u64 = 1_000;

/// Which rules are new, and which are there no more.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    added: Vec<String>,
    dropped: Vec<String>,
}

impl Change {
    fn between(before: &BTreeSet<String>, now: &BTreeSet<String>) -> Self {
        Self { added: now.difference(before).cloned().collect(), dropped: before.difference(now).cloned().collect() }
    }
}

fn named(rules: &[String]) -> String {
    first_of(rules, NAMED_MAX, |rule| format!("`{rule}`"))
}

/// The object that a backup is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Compared {
    /// It stands on it.
    Base(ObjectId),
    /// An earlier run began it, and was interrupted.
    Resumed(ObjectId),
    /// It is the last one of the source before a full backup, which stands on nothing.
    Before(ObjectId),
}

impl Compared {
    fn object(self) -> ObjectId {
        match self {
            Self::Base(object) | Self::Resumed(object) | Self::Before(object) => object,
        }
    }

    fn how(self) -> &'static str {
        match self {
            Self::Base(_) => "is based on",
            Self::Resumed(_) => "continues",
            Self::Before(_) => "comes after",
        }
    }
}

/// What to say of a change; `deleted` and `all` count the paths of the object that is compared with.
fn message(source: &str, with: Compared, change: Option<&Change>, deleted: u64, all: u64) -> Option<String> {
    let (base, how) = (with.object(), with.how());
    let mut parts = Vec::new();
    if let Some(Change { added, dropped }) = change {
        if !added.is_empty() {
            parts.push(format!("leaves out {} as well", named(added)));
        }
        if !dropped.is_empty() {
            parts.push(format!("no longer leaves out {}", named(dropped)));
        }
    }
    let paths = match deleted {
        0 => String::new(),
        1 => format!("1 of the {all} paths there is left out now, and is recorded as deleted"),
        _ => format!("{deleted} of the {all} paths there are left out now, and are recorded as deleted"),
    };
    let stop = match deleted > DELETED_MANY || deleted > all / 2 {
        true => ". If you did not intend that, stop this run (Ctrl-C) and use the same excludes as before",
        false => "",
    };
    match (parts.is_empty(), deleted) {
        (true, 0) => None,
        (true, _) => Some(format!("{source}: it {how} object {base}; {paths}{stop}")),
        (false, 0) => {
            Some(format!("{source}: unlike object {base}, which it {how}, this backup {}", parts.join(", and ")))
        }
        (false, _) => {
            let parts = parts.join(", and ");
            Some(format!("{source}: unlike object {base}, which it {how}, this backup {parts}; {paths}{stop}"))
        }
    }
}

/// How many paths of a state are left out, and how many there are.
fn count(state: &MergedState, source: &[u8], excludes: &PathPatterns) -> Result<(u64, u64), DirectorError> {
    let source = index_path(source);
    let (mut left_out, mut all) = (0, 0);
    // Entries of one directory stand together.
    let mut directory: Option<(Vec<u8>, bool)> = None;
    for entry in state.iter() {
        let path = entry?.entry.path;
        all += 1;
        if path == source || path == b"." {
            continue;
        }
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        if directory.as_ref().is_none_or(|(known, _)| *known != path[..end]) {
            let above = &path[..end];
            let is_out = !above.is_empty() && above != source && excludes.matches_with_above(&source, above);
            directory = Some((above.to_vec(), is_out));
        }
        let above_is_out = directory.as_ref().is_some_and(|(_, is_out)| *is_out);
        left_out += u64::from(above_is_out || excludes.matches(&source, &path));
    }
    Ok((left_out, all))
}

impl Site {
    /// What the backup of an object was told to leave out; `None` where nobody noted it.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn left_out(&self, object: ObjectId) -> Result<Option<BTreeSet<String>>, DirectorError> {
        Ok(locked(&self.catalog).left_out(object)?)
    }

    /// Says before an incremental what it leaves out and the other object did not, or the other way round, and how many
    /// paths it will record as deleted for that.
    pub(crate) fn compare_left_out(
        &self,
        source: &[u8],
        with: Compared,
        tree: &TreeOptions,
    ) -> Result<(), DirectorError> {
        let base = with.object();
        let before = locked(&self.catalog).left_out(base)?;
        let change = before.map(|before| Change::between(&before, &tree.rules()));
        // What the base left out itself, it does not have. A full backup records nothing as deleted.
        let stands = !matches!(with, Compared::Before(_));
        let may_delete =
            stands && change.as_ref().is_none_or(|change| !change.added.is_empty()) && !tree.excludes.is_empty();
        let (deleted, all) = match may_delete {
            true => {
                let state = apart(&self.catalog, |catalog| catalog.state(base))?;
                count(&state, source, &patterns(&tree.excludes)?)?
            }
            false => (0, 0),
        };
        if let Some(message) = message(&String::from_utf8_lossy(source), with, change.as_ref(), deleted, all) {
            (self.events)(Event::Notice { message });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_said_with_what_it_costs() {
        let rules = |rules: &[&str]| rules.iter().map(|&rule| rule.to_owned()).collect::<BTreeSet<_>>();
        let change = Change::between(&rules(&["*.o", "a/b"]), &rules(&["*.o", "tmp"]));
        let with = Compared::Base(ObjectId([7; 16]));
        let said = |change, deleted, all| message("/srv", with, change, deleted, all);
        let few = said(Some(&change), 3, 10).expect("it changed");
        assert!(few.contains("leaves out `tmp` as well, and no longer leaves out `a/b`; 3 of the 10 paths"), "{few}");
        assert!(!few.contains("Ctrl-C"), "{few}");
        assert!(said(Some(&change), 6, 10).expect("it changed").contains("Ctrl-C"), "more than half");
        assert!(said(Some(&change), 1_001, 1_000_000).expect("it changed").contains("Ctrl-C"));
        let same = Change::between(&rules(&["*.o"]), &rules(&["*.o"]));
        assert_eq!(said(Some(&same), 0, 0), None);
        assert_eq!(said(None, 0, 10), None, "of an older object nobody knows it");
        assert!(said(None, 1, 10).expect("a path goes").contains("1 of the 10 paths there is left out"));
    }
}
