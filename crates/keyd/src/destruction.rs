//! When a key is destroyed everywhere, and what is still missing until then.
//!
//! A key is destroyed in the ledger by one commit, which leaves its record without the key. Copies from before that
//! commit are elsewhere:
//! ```text
//!  a node's replica     overwrites the record when it applies the commit, with SQLite's secure_delete
//!  etcd's history       keeps it until the ledger is compacted past the commit; its files until each member is defragmented
//!  a node's journal     has what the node gave out cut off until the ledger has it; then it is overwritten and begins anew, and the node says so
//!  copies of journals   other nodes keep them; they are wiped after the journal, and each node says so (`wiped-copies/`)
//!  a backup under way   lies in a node's state directory until it is fetched, an hour at most once a key was destroyed after it; then it is overwritten
//!  a removed node       has what it had when it was removed, until its disks are destroyed, which people do, and say
//!  a backup, an export  keeps it until it is destroyed, which people do, and say
//!  recovered/, pool/    a second record of the same key, after a restore
//! ```
//! [`certify`] looks at what is known of each and answers with a [`Certificate`] or with all that is [`Missing`]. It is
//! pure: nothing is asked, nothing is changed. Where it cannot know it assumes that there is a copy: a backup is taken
//! to hold the key unless it was made before the key was drawn or after the key was destroyed, each by more than clocks
//! may differ.
//!
//! **What it says:** none of these holds the key any more. Audit logs have never held one, nor has the log of the
//! system: they name tags. The replica's rollback journal is overwritten with each commit (there is no write-ahead
//! log), and nothing sorts or spills to temporary files.
//!
//! **What it does not say:** anything of the write-ahead logs that etcd has not yet replaced, and of its files until
//! they are defragmented; of what a disk keeps below its file system (blocks of an SSD that were written elsewhere,
//! snapshots, copy on write); of copies that somebody made of a disk, a state directory, or a backup's or export's
//! file, without saying so; of disks of an epoch before the last restore; of a node that lost its journal and, cut off,
//! took it back from a peer's copy just before that was wiped; of agents, which had the key in their memory. All of it
//! but the last is ciphertext under the cluster key, and an export under its passphrase.

use std::collections::BTreeMap;

use capstan_format::KeyTag;
use capstan_keys::Name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Clocks of nodes may differ by this much.
pub(crate) const CLOCK_SKEW_NS: i64 = 5 * 60 * 1_000_000_000;

/// A key that the ledger says is destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destroyed {
    /// Which.
    pub tag: KeyTag,
    /// When it was drawn, in nanoseconds since 1970.
    pub created_ns: i64,
    /// When it was destroyed.
    pub destroyed_ns: i64,
    /// The commit that did it.
    pub commit: i64,
    /// The epoch in which that was.
    pub epoch: u32,
}

/// How far the disk of a node is known to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The node.
    pub kma: Name,
    /// The last commit that it says it holds.
    pub commit: i64,
}

/// A node's own journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalWiped {
    /// The node.
    pub kma: Name,
    /// The last commit at which it says that nothing was in it; 0 if it never has.
    pub at: i64,
}

/// A copy of a node's journal that another one keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiesWiped {
    /// Who keeps it.
    pub kept_by: Name,
    /// Whose journal it is.
    pub of: Name,
    /// The last commit at which nothing was in it; 0 if that was never said.
    pub at: i64,
    /// Only from this commit on nothing older comes into it: its owner had wiped its own, or was removed.
    pub from: i64,
}

/// A node that was removed, and whose disks nobody has said to be destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftDisk {
    /// The node.
    pub kma: Name,
    /// The epoch it was removed in.
    pub epoch: u32,
    /// The last commit that it had said it holds.
    pub commit: i64,
    /// When it was removed, in nanoseconds since 1970.
    pub removed_ns: i64,
}

/// A backup that is known and not said to be destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBackup {
    /// Its id.
    pub id: String,
    /// The epoch it was made in.
    pub epoch: u32,
    /// The commit that it holds.
    pub commit: i64,
    /// When it was made, in nanoseconds since 1970.
    pub made_ns: i64,
}

/// An export that had the key's unit, group or all keys in it, and that nobody has said to be destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptExport {
    /// Its request.
    pub id: String,
    /// When it was made, in nanoseconds since 1970.
    pub made_ns: i64,
    /// When the last of its keys was issued, by a clock that may have been ahead.
    pub until_ns: i64,
}

/// All that is known of where copies may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyLocations {
    /// The nodes of the cluster.
    pub kmas: Vec<Reached>,
    /// Their journals.
    pub journals: Vec<JournalWiped>,
    /// The copies that they keep of journals, of removed nodes as well.
    pub journal_copies: Vec<CopiesWiped>,
    /// Nodes that were removed.
    pub removed: Vec<LeftDisk>,
    /// Its backups.
    pub backups: Vec<KeptBackup>,
    /// What has left it.
    pub exports: Vec<KeptExport>,
    /// Further records of the same key.
    pub copies: Vec<String>,
    /// The commit up to which the ledger has forgotten its history.
    pub forgotten: i64,
    /// Copies that would hold the key, had nobody said that they are destroyed.
    pub declared: Vec<Declared>,
}

/// Why a key is not destroyed everywhere yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Missing {
    /// A node has not said that its disk has the commit.
    Node {
        /// The node.
        kma: Name,
        /// How far it is.
        at: i64,
        /// How far it must be.
        needed: i64,
    },
    /// A node has not said that nothing is left in its journal.
    Journal {
        /// The node.
        kma: Name,
        /// At which commit it last was so.
        at: i64,
        /// At which it must.
        needed: i64,
    },
    /// A node has not said that nothing is left in its copies of other nodes' journals.
    JournalCopies {
        /// The node.
        kma: Name,
        /// Whose journals.
        of: Vec<Name>,
    },
    /// The disks of a node that was removed may hold it.
    RemovedNode {
        /// The node.
        kma: Name,
    },
    /// A backup may hold it.
    Backup {
        /// The backup.
        id: String,
    },
    /// An export may hold it.
    Export {
        /// Its request.
        id: String,
    },
    /// Another record of the ledger holds it.
    Record {
        /// Its path.
        path: String,
    },
    /// The ledger still knows its history from before.
    History {
        /// Up to which commit it has forgotten it.
        forgotten: i64,
        /// Up to which it must.
        needed: i64,
    },
}

/// That a key is destroyed everywhere, as far as the cluster can know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// The key, in hexadecimal.
    pub tag: String,
    /// When it was destroyed, in nanoseconds since 1970.
    pub destroyed_ns: i64,
    /// The commit that did it.
    pub commit: i64,
    /// The nodes whose disks have that commit, and in whose journals and copies of journals nothing from before it is
    /// left.
    pub kmas: Vec<Name>,
    /// When this was certified, first.
    pub certified_ns: i64,
    /// What people have said, and nobody else knows: copies that would hold the key, were they not destroyed.
    #[serde(default)]
    pub declared: Vec<Declared>,
}

/// A copy that somebody said to be destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Declared {
    /// What: `backup ID`, `export ID`, `disks of NODE`.
    pub copy: String,
    /// When it was said, in nanoseconds since 1970.
    pub said_ns: i64,
    /// By whom, where that is on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Name>,
    /// When it was met since, in nanoseconds since 1970: it is not destroyed. Of lists; what was certified does not
    /// change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_ns: Option<i64>,
}

/// Certifies that a key is destroyed everywhere, or says what is missing.
pub fn certify(key: &Destroyed, known: &CopyLocations, now_ns: i64) -> Result<Certificate, Vec<Missing>> {
    let needed = key.commit;
    let behind = known.kmas.iter().filter(|node| node.commit < needed);
    let nodes = behind.map(|node| Missing::Node { kma: node.kma.clone(), at: node.commit, needed });
    let unwiped = known.journals.iter().filter(|journal| journal.at < needed);
    let journals = unwiped.map(|journal| Missing::Journal { kma: journal.kma.clone(), at: journal.at, needed });
    let mut copies: BTreeMap<&Name, Vec<Name>> = BTreeMap::new();
    for copy in known.journal_copies.iter().filter(|copy| copy.at < needed.max(copy.from)) {
        copies.entry(&copy.kept_by).or_default().push(copy.of.clone());
    }
    let copies = copies.into_iter().map(|(kma, of)| Missing::JournalCopies { kma: kma.clone(), of });
    let left = known.removed.iter().filter(|disk| disk.may_hold(key));
    let removed = left.map(|disk| Missing::RemovedNode { kma: disk.kma.clone() });
    let may_hold = known.backups.iter().filter(|backup| backup.may_hold(key));
    let backups = may_hold.map(|backup| Missing::Backup { id: backup.id.clone() });
    let exported = known.exports.iter().filter(|export| key.was_there_between(export.made_ns, export.until_ns));
    let exports = exported.map(|export| Missing::Export { id: export.id.clone() });
    let records = known.copies.iter().map(|path| Missing::Record { path: path.clone() });
    let forgotten = known.forgotten;
    let history = (forgotten < needed).then_some(Missing::History { forgotten, needed });
    let nodes = nodes.chain(journals).chain(copies).chain(removed);
    let missing: Vec<_> = nodes.chain(backups).chain(exports).chain(records).chain(history).collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    let kmas = known.kmas.iter().map(|node| node.kma.clone()).collect();
    let (tag, destroyed_ns, commit) = (key.tag.to_string(), key.destroyed_ns, key.commit);
    Ok(Certificate { tag, destroyed_ns, commit, kmas, certified_ns: now_ns, declared: known.declared.clone() })
}

impl Destroyed {
    /// Whether there may have been such a key at some time between these two, whoever's clocks they were by.
    pub(crate) fn was_there_between(&self, from_ns: i64, until_ns: i64) -> bool {
        self.created_ns.saturating_sub(CLOCK_SKEW_NS) <= until_ns
            && from_ns <= self.destroyed_ns.saturating_add(CLOCK_SKEW_NS)
    }
}

impl LeftDisk {
    /// Whether they may hold a key: it was drawn before the node was removed, and the node had not said that it holds
    /// the destruction.
    pub(crate) fn may_hold(&self, key: &Destroyed) -> bool {
        let before_it_was = self.removed_ns.saturating_add(CLOCK_SKEW_NS) < key.created_ns;
        let after_it_was = self.epoch == key.epoch && self.commit >= key.commit;
        !before_it_was && !after_it_was
    }
}

impl KeptBackup {
    /// Whether it may hold a key. Commits are compared within an epoch, times between epochs.
    pub(crate) fn may_hold(&self, key: &Destroyed) -> bool {
        let before_it_was = self.made_ns.saturating_add(CLOCK_SKEW_NS) < key.created_ns;
        let after_it_was = match self.epoch == key.epoch {
            true => self.commit >= key.commit,
            false => self.epoch > key.epoch || self.made_ns > key.destroyed_ns.saturating_add(CLOCK_SKEW_NS),
        };
        !before_it_was && !after_it_was
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const HOUR_NS: i64 = 3600 * 1_000_000_000;

    fn key() -> Destroyed {
        let (created_ns, destroyed_ns) = (100 * HOUR_NS, 200 * HOUR_NS);
        Destroyed { tag: KeyTag([7; 16]), created_ns, destroyed_ns, commit: 500, epoch: 2 }
    }

    fn backup(id: &str, epoch: u32, commit: i64, made: i64) -> KeptBackup {
        KeptBackup { id: id.to_owned(), epoch, commit, made_ns: made * HOUR_NS }
    }

    fn disk(kma: &str, epoch: u32, commit: i64, removed: i64) -> LeftDisk {
        LeftDisk { kma: kma.parse().unwrap(), epoch, commit, removed_ns: removed * HOUR_NS }
    }

    fn export(id: &str, made: i64) -> KeptExport {
        KeptExport { id: id.to_owned(), made_ns: made * HOUR_NS, until_ns: made * HOUR_NS }
    }

    fn journal(kma: &str, at: i64) -> JournalWiped {
        JournalWiped { kma: kma.parse().unwrap(), at }
    }

    fn copy(kept_by: &str, of: &str, at: i64, from: i64) -> CopiesWiped {
        CopiesWiped { kept_by: kept_by.parse().unwrap(), of: of.parse().unwrap(), at, from }
    }

    fn nodes(commits: &[(&str, i64)]) -> Vec<Reached> {
        commits.iter().map(|&(kma, commit)| Reached { kma: kma.parse().unwrap(), commit }).collect()
    }

    #[test]
    fn a_key_is_certified_when_every_copy_is_accounted_for() {
        let known = CopyLocations {
            kmas: nodes(&[("a", 500), ("b", 700)]),
            journals: vec![journal("a", 500), journal("b", 700)],
            journal_copies: vec![copy("a", "b", 702, 701), copy("b", "a", 501, 501), copy("b", "gone", 500, 0)],
            // Before it was drawn, and after it was destroyed: by commit in its epoch, by time in another.
            removed: vec![disk("early", 2, 20, 50), disk("late", 2, 500, 150)],
            backups: vec![backup("early", 2, 20, 50), backup("late", 2, 500, 150), backup("old", 1, 9000, 300)],
            exports: vec![export("early", 50), export("late", 300)],
            copies: Vec::new(),
            forgotten: 500,
            declared: vec![Declared { copy: "backup gone".to_owned(), said_ns: 3, by: None, met_ns: None }],
        };
        let certificate = certify(&key(), &known, 7).unwrap();
        assert_eq!(certificate.declared, known.declared, "it names what it rests on");
        assert_eq!((certificate.commit, certificate.certified_ns, certificate.kmas.len()), (500, 7, 2));
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        let known = CopyLocations {
            kmas: nodes(&[("a", 500), ("b", 499)]),
            journals: vec![journal("a", 500), journal("b", 499)],
            // One that was empty before its journal was may have been filled again since.
            journal_copies: vec![copy("a", "b", 499, 0), copy("a", "c", 600, 500), copy("b", "a", 501, 502)],
            removed: vec![disk("c", 2, 499, 201), disk("d", 1, 9000, 150)],
            backups: vec![
                backup("holds", 2, 499, 150),
                backup("other-epoch", 1, 9000, 150),
                backup("free", 2, 501, 201),
            ],
            exports: vec![export("holds", 150)],
            copies: vec!["recovered/07".to_owned()],
            forgotten: 499,
            declared: Vec::new(),
        };
        let missing = certify(&key(), &known, 7).unwrap_err();
        let kma: Name = "b".parse().unwrap();
        assert_eq!(
            missing,
            [
                Missing::Node { kma: kma.clone(), at: 499, needed: 500 },
                Missing::Journal { kma: kma.clone(), at: 499, needed: 500 },
                Missing::JournalCopies { kma: "a".parse().unwrap(), of: vec![kma.clone()] },
                Missing::JournalCopies { kma, of: vec!["a".parse().unwrap()] },
                Missing::RemovedNode { kma: "c".parse().unwrap() },
                Missing::RemovedNode { kma: "d".parse().unwrap() },
                Missing::Backup { id: "holds".to_owned() },
                Missing::Backup { id: "other-epoch".to_owned() },
                Missing::Export { id: "holds".to_owned() },
                Missing::Record { path: "recovered/07".to_owned() },
                Missing::History { forgotten: 499, needed: 500 },
            ]
        );
    }

    /// Where clocks may differ, a copy is assumed.
    #[test]
    fn doubt_counts_as_a_copy() {
        let known = |made_ns| CopyLocations {
            backups: vec![KeptBackup { made_ns, ..backup("x", 1, 1, 0) }],
            forgotten: 500,
            ..CopyLocations::default()
        };
        for made_ns in [100 * HOUR_NS - CLOCK_SKEW_NS, 200 * HOUR_NS + CLOCK_SKEW_NS] {
            assert!(certify(&key(), &known(made_ns), 0).is_err());
        }
        for made_ns in [100 * HOUR_NS - CLOCK_SKEW_NS - 1, 200 * HOUR_NS + CLOCK_SKEW_NS + 1] {
            assert!(certify(&key(), &known(made_ns), 0).is_ok());
        }
    }
}
