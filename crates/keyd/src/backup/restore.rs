//! Restoring, and checking by restoring.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use capstan_format::KeyTag;
use capstan_keys::{Name, WrappedKey};

use super::database::{mac_key, read};
use super::stream::End;
use super::{BackupError, Held, HoldsKeys, Knowledge, Manifest, OpenCore};
use crate::desk::open_pool_key;
use crate::kmip::opens;
use crate::ledger::{Entry, Snapshot};
use crate::root::{ClusterKeys, GroupKey};
use crate::seal::SealedContent;

/// What checking a backup has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupCheck {
    /// What the backup says of itself.
    pub manifest: Manifest,
    /// The keys that were unwrapped and are those that their tags name.
    pub proved: BTreeSet<KeyTag>,
    /// What was not as it should be: a backup is good when this is empty.
    pub unproved: Vec<UnusableRecord>,
}

/// A record or a key of a backup that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableRecord {
    /// The record.
    pub path: String,
    /// What is wrong with it, in words.
    pub reason: String,
}

/// Checks a database backup with an opened core security backup, as restoring it would: its MAC, every record, and
/// every key against its tag. One pass, in memory that holds one record, the group keys and the tags.
///
/// Errors: it is damaged or altered as a whole, does not belong to this core security backup, or is older than what is
/// known.
pub fn verify(
    core: &OpenCore,
    database: &Path,
    records: &impl HoldsKeys,
    knowledge: Knowledge,
) -> Result<BackupCheck, BackupError> {
    check(&core.keys, database, records, knowledge.with_epoch(core.epoch))
}

/// The same with the cluster's keys: what a node does with a backup that it has just written.
pub fn check(
    keys: &ClusterKeys,
    database: &Path,
    records: &impl HoldsKeys,
    knowledge: Knowledge,
) -> Result<BackupCheck, BackupError> {
    walk(keys, database, records, knowledge, |_, _| Ok(()))
}

/// Restores a database backup: its records, sealed anew for `epoch`, which is above every epoch there was.
///
/// The records keep their counts of changes, so that with the higher epoch each is newer than any that the old cluster
/// has. Errors: as [`verify`], and every key or record that is not proved: all is restored, or nothing.
pub fn restore(
    core: &OpenCore,
    database: &Path,
    records: &impl HoldsKeys,
    knowledge: Knowledge,
    epoch: u32,
) -> Result<Snapshot, BackupError> {
    let mut entries = Vec::new();
    let knowledge = knowledge.with_epoch(core.epoch);
    let report = walk(&core.keys, database, records, knowledge, |entry, opened| {
        let sealer = core.keys.sealer();
        let sealed = match opened.content {
            SealedContent::Record => sealer.seal(&entry.path, epoch, opened.change, &opened.plaintext)?,
            SealedContent::Tombstone => sealer.seal_tombstone(&entry.path, epoch, opened.change)?,
        };
        entries.push(Entry { path: entry.path.clone(), sealed, revision: entry.revision });
        Ok(())
    })?;
    let above = report.manifest.epoch.max(knowledge.epoch()).max(core.epoch);
    if epoch <= above {
        return Err(BackupError::EpochNotNew { epoch, above });
    }
    if let Some(first) = report.unproved.first() {
        let first = format!("{}: {}", first.path, first.reason);
        return Err(BackupError::Unproved { count: report.unproved.len(), first });
    }
    Ok(Snapshot { revision: report.manifest.revision, entries })
}

fn walk(
    keys: &ClusterKeys,
    database: &Path,
    records: &impl HoldsKeys,
    knowledge: Knowledge,
    mut take: impl FnMut(&Entry, &crate::seal::Opened) -> Result<(), BackupError>,
) -> Result<BackupCheck, BackupError> {
    let mut proof = Proof::new(keys);
    let (manifest, end) = read(
        database,
        |manifest| {
            if manifest.cluster != keys.cluster() {
                return Err(BackupError::OtherCluster { database: manifest.cluster, core: keys.cluster() });
            }
            if manifest.cluster_key != keys.tag() {
                return Err(BackupError::OtherKey { database: manifest.cluster_key, core: keys.tag() });
            }
            knowledge.check(manifest)?;
            Ok(Some(mac_key(keys, &manifest.id)?))
        },
        |entry| {
            match keys.sealer().open(&entry.path, &entry.sealed) {
                Ok(opened) => {
                    let held = match opened.content {
                        SealedContent::Record => records.held(&entry.path, &opened.plaintext),
                        SealedContent::Tombstone => Ok(Vec::new()),
                    };
                    match held {
                        Ok(held) => held.into_iter().for_each(|held| proof.add(&entry.path, held)),
                        Err(reason) => proof.refuse(&entry.path, reason),
                    }
                    take(&entry, &opened)?;
                }
                Err(error) => proof.refuse(&entry.path, error.to_string()),
            }
            Ok(())
        },
    )?;
    if end == End::Altered {
        return Err(BackupError::Altered { path: database.to_owned() });
    }
    let Proof { mut proved, mut unproved, refused, .. } = proof.finish();
    for tag in manifest.keys.difference(&proved).filter(|tag| !refused.contains(tag)) {
        let reason = format!("key {tag} is in the manifest and in no record that opens");
        unproved.push(UnusableRecord { path: format!("key/{tag}"), reason });
    }
    for tag in proved.difference(&manifest.keys) {
        unproved
            .push(UnusableRecord { path: format!("key/{tag}"), reason: format!("key {tag} is not in the manifest") });
    }
    proved.retain(|tag| manifest.keys.contains(tag));
    Ok(BackupCheck { manifest, proved, unproved })
}

/// A key whose group's key has not come by yet.
struct Waiting {
    path: String,
    tag: KeyTag,
    algorithm: capstan_format::Algorithm,
    group: Name,
    wrapped: WrappedKey,
}

struct Proof<'a> {
    keys: &'a ClusterKeys,
    groups: BTreeMap<Name, GroupKey>,
    waiting: Vec<Waiting>,
    proved: BTreeSet<KeyTag>,
    unproved: Vec<UnusableRecord>,
    /// Keys among them, which are named by their records.
    refused: BTreeSet<KeyTag>,
}

impl<'a> Proof<'a> {
    fn new(keys: &'a ClusterKeys) -> Self {
        Self {
            keys,
            groups: BTreeMap::new(),
            waiting: Vec::new(),
            proved: BTreeSet::new(),
            unproved: Vec::new(),
            refused: BTreeSet::new(),
        }
    }

    fn refuse(&mut self, path: &str, reason: String) {
        self.unproved.push(UnusableRecord { path: path.to_owned(), reason });
    }

    fn add(&mut self, path: &str, held: Held) {
        match held {
            Held::GroupKey { group, wrapped } => match self.keys.group_key(&group, &wrapped) {
                Ok(key) => drop(self.groups.insert(group, key)),
                Err(error) => self.refuse(path, error.to_string()),
            },
            Held::PoolKey { tag, algorithm, wrapped } => match open_pool_key(self.keys, tag, algorithm, &wrapped) {
                Ok(Some(_)) => drop(self.proved.insert(tag)),
                Ok(None) => {
                    self.refused.insert(tag);
                    self.refuse(path, format!("key {tag} does not open under the pool key"));
                }
                Err(error) => self.refuse(path, error.to_string()),
            },
            Held::Object { uid, wrapped } => match opens(self.keys, &uid, &wrapped) {
                Ok(()) => {}
                Err(error) => self.refuse(path, error.to_string()),
            },
            Held::Key { tag, algorithm, group, wrapped } => {
                let waiting = Waiting { path: path.to_owned(), tag, algorithm, group, wrapped };
                // Groups come before keys in the order of the paths; should that change, the keys wait for the end.
                if self.groups.contains_key(&waiting.group) {
                    self.prove(&waiting);
                } else {
                    self.waiting.push(waiting);
                }
            }
        }
    }

    fn prove(&mut self, key: &Waiting) {
        let Waiting { path, tag, algorithm, group, wrapped } = key;
        let reason = match self.groups.get(group).map(|group| group.unwrap(*tag, *algorithm, wrapped)) {
            Some(Ok(_)) => {
                self.proved.insert(*tag);
                return;
            }
            Some(Err(error)) => error.to_string(),
            None => format!("key {tag} is of group {group}, whose key is not there"),
        };
        self.refused.insert(*tag);
        self.refuse(path, reason);
    }

    fn finish(mut self) -> Self {
        for key in std::mem::take(&mut self.waiting) {
            self.prove(&key);
        }
        self
    }
}
