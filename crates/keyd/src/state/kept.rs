//! Records that the ledger has no more, or has something else in the place of: what was known of them stays.
//!
//! A [`Mark`] says of such a record which commit has what lies there now (0: nothing does) and the change that is
//! believed. So a transaction that changes it expects the ledger as it is, and what it puts counts on from the version
//! that was believed.

use capstan_keys::{Agent, RealmRecord};

use super::decoded::decode;
use super::{LedgerState, Mark, StateError};
use crate::path::Path;

/// The group of agents whose record cannot be read: there is none of that name.
const NO_GROUP: &str = "unreadable-record";

impl LedgerState {
    /// The cluster says that a record is no more.
    pub fn bury(&mut self, path: &str, mark: Mark) -> Result<(), StateError> {
        let parsed = Path::parse(path);
        let known = self.mark(&parsed);
        if mark.revision <= known.revision {
            return Ok(());
        }
        if mark.change <= known.change {
            return Err(StateError::WentBack { path: path.to_owned(), known: known.change, found: mark.change });
        }
        self.remove(path);
        self.kept.remove(path);
        self.buried.insert(path.to_owned(), mark);
        Ok(())
    }

    /// Whether a record is as it was known here, and not as the ledger has it.
    pub fn is_kept(&self, path: &Path) -> bool {
        !self.kept.is_empty() && self.kept.contains(&path.to_string())
    }

    /// Such records, in no order.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(String::as_str)
    }

    /// A record of which the ledger has another version, or none, is as it was known; `mark` says what the ledger has
    /// there.
    pub fn keep(&mut self, path: &str, mark: Mark, plaintext: Option<&[u8]>) -> Result<(), StateError> {
        let parsed = Path::parse(path);
        self.kept.insert(path.to_owned());
        if self.mark(&parsed).change >= mark.change {
            self.ledger_has(path, mark.revision);
            return Ok(());
        }
        match plaintext {
            Some(plaintext) => {
                let said = decode(&parsed, plaintext)?;
                self.take_in(parsed, mark, said);
            }
            None => {
                self.remove(path);
                self.buried.insert(path.to_owned(), mark);
            }
        }
        Ok(())
    }

    /// What the ledger has in the place of a record is not believed. Whether there is anything known of it.
    pub fn ledger_has(&mut self, path: &str, revision: i64) -> bool {
        let parsed = Path::parse(path);
        if let Path::Pool { kma, tag } = &parsed
            && !self.buried.contains_key(path)
        {
            return self.pools.get_mut(kma).is_some_and(|pool| pool.ledger_has(tag, revision));
        }
        let is_known = self.mark_mut(&parsed).map(|mark| mark.revision = revision).is_some();
        if is_known {
            self.kept.insert(path.to_owned());
        }
        is_known
    }

    /// A record was never readable here: it counts as what does least.
    pub fn distrust(&mut self, path: &str) {
        if let Path::Agent(name) = Path::parse(path) {
            // No group at all would mean each of them.
            let Ok(none) = NO_GROUP.parse::<capstan_keys::Name>() else { unreachable!("it is a name") };
            self.realm.put(RealmRecord::Agent(Agent { name, groups: [none.clone()].into(), default_group: none }));
        }
        self.unreadable.insert(path.to_owned());
    }

    /// Whether something lies there that was never readable here.
    pub fn is_unreadable(&self, path: &str) -> bool {
        self.unreadable.contains(path)
    }

    fn mark_mut(&mut self, path: &Path) -> Option<&mut Mark> {
        let text = path.to_string();
        if self.buried.contains_key(&text) {
            return self.buried.get_mut(&text);
        }
        match path {
            Path::Key(tag) => self.keys.get_mut(tag).map(|key| &mut key.mark),
            Path::Unit(volser) => self.units.get_mut(volser),
            // It stands by its commit: `DrawnKeys::ledger_has`.
            Path::Pool { .. } => None,
            Path::Kmip(uid) => self.kmip.mark_mut(uid),
            Path::Other(path) => self.others.get_mut(path).map(|other| &mut other.mark),
            Path::Policy(_) | Path::Group(_) | Path::Agent(_) | Path::Kma(_) | Path::Held(_) => {
                self.marks.get_mut(&text)
            }
        }
    }
}
