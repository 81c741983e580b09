//! What is kept for people of all that a node does not believe.
//!
//! A replica of another cluster is a doubt for each record, and whoever writes to etcd can make as many as they like.
//! So each kind has room of its own: the first of it are kept, the last one, and how many came between. None hides
//! another, and a node that was left behind says so however many records were altered before.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Doubts of a kind that are kept before the last one.
const FIRST_MAX: usize = 99;
/// Different doubts of a kind that are counted.
const MET_MAX: usize = 100_000;

/// What a doubt is about; first what asks for most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoubtKind {
    /// The ledger is another, or was put back.
    WentBack,
    /// The cluster has gone on in a later epoch.
    Superseded,
    /// A key was given out for two volumes.
    Conflict,
    /// This node's audit log.
    Audit,
    /// Disks that were said to be destroyed.
    Disks,
    /// What another node has left.
    Journal,
    /// This node's clock, or another's.
    Clock,
    /// A record of the ledger.
    Record,
}

/// A doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) kind: DoubtKind,
    pub(super) words: String,
    /// The record that it is of and that was never known otherwise: once that is gone, so is the doubt.
    about: Option<String>,
}

impl Doubt {
    /// The same, of a record that was never known to be good.
    pub(super) fn about(self, path: String) -> Self {
        Self { about: Some(path), ..self }
    }
}

impl DoubtKind {
    pub(super) fn that(self, words: impl Into<String>) -> Doubt {
        Doubt { kind: self, words: words.into(), about: None }
    }

    fn words(self) -> &'static str {
        match self {
            Self::WentBack => "of the ledger",
            Self::Superseded => "of the epoch",
            Self::Conflict => "of keys that were given out twice",
            Self::Audit => "of the audit log",
            Self::Disks => "of destroyed disks",
            Self::Journal => "of journals",
            Self::Clock => "of clocks",
            Self::Record => "of records",
        }
    }
}

/// All that is doubted.
#[derive(Debug, Default)]
pub(super) struct Doubts(BTreeMap<DoubtKind, OfKind>);

#[derive(Debug, Default)]
struct OfKind {
    first: Vec<String>,
    /// The one met last of those behind the first.
    last: Option<String>,
    /// Hashes of all, so that what is said again and again counts once.
    met: HashSet<u64>,
    /// Those of records that were never known otherwise, by their paths.
    about: HashMap<String, u64>,
}

impl Doubts {
    /// Keeps a doubt, unless it was met before. Gives one that people are to be told of at once.
    pub(super) fn take(&mut self, Doubt { kind, words, about }: Doubt) -> Option<&str> {
        let of_kind = self.0.entry(kind).or_default();
        let is_new = of_kind.meet(hash(&words));
        if let Some(path) = about.filter(|_| of_kind.about.len() < MET_MAX) {
            of_kind.about.insert(path, hash(&words));
        }
        if is_new && of_kind.first.len() < FIRST_MAX {
            of_kind.first.push(words);
            return of_kind.first.last().map(String::as_str);
        }
        if is_new {
            of_kind.last = Some(words);
        }
        None
    }

    /// Takes others in. Gives those that people are to be told of at once.
    pub(super) fn join(&mut self, other: Self) -> Vec<String> {
        let mut told = Vec::new();
        for (kind, OfKind { first, last, met, about }) in other.0 {
            told.extend(first.into_iter().filter_map(|words| self.take(kind.that(words)).map(str::to_owned)));
            let of_kind = self.0.entry(kind).or_default();
            if let Some(last) = last.filter(|last| !of_kind.first.contains(last)) {
                of_kind.last = Some(last);
            }
            for hash in met {
                of_kind.meet(hash);
            }
            of_kind.about.extend(about);
        }
        told
    }

    /// What was doubted of a kind is no more.
    pub(super) fn forget(&mut self, kind: DoubtKind) {
        self.0.remove(&kind);
    }

    /// A record is gone that was never known to be good: there is nothing left of it to look into but the log.
    pub(super) fn forget_about(&mut self, path: &str) {
        for of_kind in self.0.values_mut() {
            let Some(gone) = of_kind.about.remove(path) else { continue };
            of_kind.met.remove(&gone);
            of_kind.first.retain(|words| hash(words) != gone);
            of_kind.last.take_if(|words| hash(words) == gone);
        }
        self.0.retain(|_, of_kind| !of_kind.met.is_empty());
    }

    /// How many different ones there were.
    pub(super) fn count(&self) -> usize {
        self.0.values().map(|of_kind| of_kind.met.len()).sum()
    }

    /// Those that are kept, and of each kind how many were left out.
    pub(super) fn said(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (kind, of_kind) in &self.0 {
            said.extend(of_kind.first.iter().cloned());
            let Some(last) = &of_kind.last else { continue };
            let left_out = of_kind.met.len().saturating_sub(of_kind.first.len() + 1);
            if left_out > 0 {
                let more = if of_kind.met.len() < MET_MAX { "" } else { "at least " };
                said.push(format!("{more}{left_out} more doubts {} are left out here; the last one is:", kind.words()));
            }
            said.push(last.clone());
        }
        said
    }
}

impl OfKind {
    /// Whether it was not met before, as far as that is counted: what comes beyond is taken for new.
    fn meet(&mut self, hash: u64) -> bool {
        if self.met.len() < MET_MAX { self.met.insert(hash) } else { !self.met.contains(&hash) }
    }
}

fn hash(words: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: usize) -> Doubt {
        DoubtKind::Record.that(format!("record {number}"))
    }

    /// After a hundred doubts nothing more was shown: whoever had altered a hundred records could hide that a key was
    /// given out twice.
    #[test]
    fn no_doubt_hides_one_of_another_kind_nor_the_last_of_its_own() {
        let mut doubts = Doubts::default();
        for number in 0..1000 {
            doubts.take(record(number));
        }
        (0..1000).for_each(|number| assert_eq!(doubts.take(record(number)), None, "it is known"));
        for kind in [DoubtKind::Conflict, DoubtKind::Superseded, DoubtKind::WentBack] {
            assert_eq!(doubts.take(kind.that(format!("{kind:?}"))), Some(&*format!("{kind:?}")));
        }
        let said = doubts.said();
        assert_eq!(said[..4], ["WentBack", "Superseded", "Conflict", "record 0"]);
        assert_eq!(said[said.len() - 3], "record 98");
        assert!(said[said.len() - 2].starts_with("900 more doubts of records are left out"), "{said:?}");
        assert_eq!((said[said.len() - 1].as_str(), doubts.count()), ("record 999", 1003));
    }

    /// What somebody had put into etcd was doubted until the node was started again, long after it was deleted there.
    #[test]
    fn a_doubt_goes_with_the_junk_that_it_is_of() {
        let of = |number: usize| record(number).about(format!("junk/{number}"));
        let mut doubts = Doubts::default();
        for number in 0..150 {
            doubts.take(of(number));
        }
        doubts.take(record(777));
        let mut joined = Doubts::default();
        joined.join(doubts);
        joined.forget_about("junk/3");
        joined.forget_about("junk/149");
        joined.forget_about("key/of-nobody");
        assert_eq!(joined.count(), 149);
        let said = joined.said();
        assert!(!said.contains(&"record 3".to_owned()) && said.contains(&"record 777".to_owned()), "{said:?}");
        (0..150).for_each(|number| joined.forget_about(&format!("junk/{number}")));
        assert_eq!(joined.said(), ["record 777"]);
    }

    #[test]
    fn doubts_that_are_joined_count_once() {
        let mut doubts = Doubts::default();
        for number in 0..150 {
            doubts.take(record(number));
        }
        let mut more = Doubts::default();
        for number in 100..300 {
            more.take(record(number));
        }
        assert_eq!(doubts.join(more), Vec::<String>::new());
        let said = doubts.said();
        assert_eq!((doubts.count(), said.len(), said[100].as_str()), (300, 101, "record 299"));
        assert!(said[99].starts_with("200 more"), "{}", said[99]);
        let mut few = Doubts::default();
        few.take(DoubtKind::Clock.that("late"));
        assert_eq!(doubts.join(few), ["late"]);
    }
}
