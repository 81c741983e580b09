//! What a selection makes of members, beside what their streams say of them.
//!
//! The content of a file with several names stands in a stream once, under one of them. Where others are wanted and
//! that one is not, it must not appear: the first wanted name gets the content, and links are made to that. A directory
//! that only leads to what is wanted is nobody's wish: where there is one, it stays as it is.

use std::collections::{HashMap, HashSet};

use capstan_format::ObjectId;

use super::options::MemberChoice;
use super::path::stripped;

/// Members that are not written as their streams have them; empty for what is restored as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    names: HashMap<ObjectId, HashMap<Vec<u8>, Vec<u8>>>,
    ways: HashSet<Vec<u8>>,
}

impl Selection {
    /// What an object has at `path` is written as `name`, and its links to `path` are made to that.
    pub fn give_name(&mut self, object: ObjectId, path: &[u8], name: &[u8]) {
        self.names.entry(object).or_default().insert(path.to_vec(), name.to_vec());
    }

    /// The directory at `path` only leads to what is wanted.
    pub fn pass_through(&mut self, path: &[u8]) {
        self.ways.insert(path.to_vec());
    }

    /// As what it is written that an object has at `path`, if not as that.
    pub fn name_of(&self, object: ObjectId, path: &[u8]) -> Option<&[u8]> {
        self.names.get(&object)?.get(path).map(Vec::as_slice)
    }

    /// All names that were given: object, path and name.
    pub(crate) fn names(&self) -> impl Iterator<Item = (ObjectId, &[u8], &[u8])> {
        self.names.iter().flat_map(|(object, names)| names.iter().map(|(path, name)| (*object, &path[..], &name[..])))
    }

    /// All directories that only lead to something.
    pub(crate) fn ways(&self) -> impl Iterator<Item = &[u8]> {
        self.ways.iter().map(Vec::as_slice)
    }

    /// What becomes of what an object has at `path`, once so many leading components are taken away.
    pub(crate) fn choice(&self, object: ObjectId, path: &[u8], strip: usize) -> MemberChoice {
        let given = self.name_of(object, path);
        let is_way = self.ways.contains(path);
        if strip == 0 && given.is_none() && !is_way {
            return MemberChoice::Take;
        }
        match stripped(given.unwrap_or(path), strip) {
            Some(path) if is_way => MemberChoice::Enter(path),
            Some(path) => MemberChoice::TakeAs(path),
            None => MemberChoice::Skip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ways_are_stripped_like_all_others() {
        let (object, other) = (ObjectId([1; 16]), ObjectId([2; 16]));
        let mut selection = Selection::default();
        assert_eq!(selection.choice(object, b"d/a", 0), MemberChoice::Take);
        selection.give_name(object, b"d/a", b"d/e/b");
        selection.pass_through(b"d/e");
        assert_eq!(selection.choice(object, b"d/a", 0), MemberChoice::TakeAs(b"d/e/b".to_vec()));
        assert_eq!(selection.choice(object, b"d/a", 2), MemberChoice::TakeAs(b"b".to_vec()));
        assert_eq!(selection.choice(other, b"d/a", 1), MemberChoice::TakeAs(b"a".to_vec()), "of another object");
        assert_eq!(selection.choice(other, b"d/e", 0), MemberChoice::Enter(b"d/e".to_vec()));
        assert_eq!(selection.choice(other, b"d/e", 1), MemberChoice::Enter(b"e".to_vec()));
        assert_eq!(selection.choice(other, b"d/e", 2), MemberChoice::Skip);
    }
}
