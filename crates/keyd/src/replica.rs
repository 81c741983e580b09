//! The node's own copy of the ledger: sealed records by path in one file, and the commit up to which it has them all.
//!
//! Agents are answered from it, also when nobody else can be reached, and after a reboot in that state. So it must
//! never be wrong without saying so, and it may be behind only as far as it says.
//!
//! - **Durable before it is said:** [`Replica::apply`] returns when the file holds the changes and their commit, in one
//!   transaction of SQLite with `synchronous = EXTRA`. What a node says about how far it is (`held/<kma>`) rests on
//!   this.
//! - **Forward only:** changes that are older than what it has, a snapshot that is older, an epoch that is lower: each
//!   is refused. A new epoch is another ledger, whose commits are counted anew; the records of the one before stay
//!   until its snapshot is there.
//! - **Damage is seen:** every record has a checksum, and the header has one over all of them and over itself, so that
//!   neither a bit nor a whole record can be lost. That is against accidents. Against people there are the seals: they
//!   bind a record to its path.
//! - **No old bytes:** what is replaced or removed is zeroed (`secure_delete`), and the journal, which stays in its
//!   blocks (`journal_mode = PERSIST`), is overwritten after each change. A write-ahead log was rejected: it would need
//!   one flush instead of three, and keeps old pages.
//! - **Locking:** one process has the file, as long as it has it open.
//!
//! Nothing in it is irreplaceable: a node that moves it away copies the ledger anew, once it reaches the majority.

mod database;
mod error;
mod follow;
mod keep;
mod packed;
#[cfg(test)]
mod tests;
mod tips;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

pub use error::ReplicaError;
pub use follow::{Delivery, Freshness, follow};
pub use keep::Judge;
pub use packed::PackedRecords;

use self::database::{Header, Sum};
use self::keep::Keep;
use self::tips::Tips;
use crate::ledger::{Change, Changes, Entry, Snapshot};

/// An open replica, read once from beginning to end and found whole.
#[derive(Debug)]
pub struct Replica {
    connection: Connection,
    path: PathBuf,
    header: Header,
    /// By what it keeps records that the ledger has lost; without it, it is what the ledger is.
    keep: Option<Keep>,
    tips: Tips,
}

impl Replica {
    /// Opens the replica of a cluster in an epoch, creates it if there is none, and hands over every record that it
    /// has, in the order of paths. Checks each of them: what was handed over counts only when this returns without an
    /// error.
    pub fn open(path: &Path, cluster: &str, epoch: u64, mut record: impl FnMut(Entry)) -> Result<Self, ReplicaError> {
        if !path.try_exists().map_err(|error| ReplicaError::host("looking for", path, error))? {
            database::create(path, &Header::new(cluster, epoch))?;
        }
        let connection = database::open(path)?;
        let header = database::read_header(&connection, path)?;
        if header.cluster != cluster {
            return Err(ReplicaError::OtherCluster {
                replica: path.to_owned(),
                found: header.cluster,
                wanted: cluster.to_owned(),
            });
        }
        let mut tips = Tips::default();
        let sum = database::read_records(&connection, path, &mut |entry| {
            tips.note(&entry);
            record(entry);
        })?;
        if sum != header.sum {
            return Err(ReplicaError::damaged(path, "records are missing from it"));
        }
        let mut replica = Self { connection, path: path.to_owned(), header, keep: None, tips };
        if epoch != replica.header.epoch {
            replica.enter(epoch)?;
        }
        Ok(replica)
    }

    /// The same, and it keeps what the ledger has lost or put back.
    pub fn judged_by(self, judge: std::sync::Arc<dyn Judge>) -> Self {
        Self { keep: Some(Keep(judge)), ..self }
    }

    /// The last commit that it has, with all before it; without one it needs a snapshot.
    pub fn applied(&self) -> Option<i64> {
        (self.header.applied > 0).then_some(self.header.applied)
    }

    /// Takes changes in. They are on disk when this returns; if it fails, none of them is. Gives what was kept in the
    /// place of changes that are not believed, with their numbers.
    pub fn apply(&mut self, changes: &Changes) -> Result<Vec<(usize, Entry)>, ReplicaError> {
        let mut last = self.header.applied + 1;
        for change in &changes.changes {
            let revision = change.revision();
            if revision < last || revision > changes.revision {
                return Err(self.went_back(revision));
            }
            last = revision;
        }
        if changes.revision <= self.header.applied || self.header.applied == 0 {
            return Err(self.went_back(changes.revision));
        }
        let mut header = Header { applied: changes.revision, ..self.header.clone() };
        let (keep, mut kept) = (self.keep.clone(), Vec::new());
        self.write(|connection, path| {
            let sort = |error| ReplicaError::sort(path, error);
            for (at, change) in changes.changes.iter().enumerate() {
                if let Some(keep) = &keep
                    && let Some(entry) = keep.instead(database::find(connection, change.path()).map_err(sort)?, change)
                {
                    database::put(connection, &entry, &mut header.sum).map_err(sort)?;
                    kept.push((at, entry));
                    continue;
                }
                match change {
                    Change::Put(entry) => database::put(connection, entry, &mut header.sum),
                    Change::Removed { path: record, .. } => database::remove(connection, record, &mut header.sum),
                }
                .map_err(sort)?;
            }
            Ok(header)
        })?;
        self.tips.note_changes(&changes.changes, &kept);
        Ok(kept)
    }

    /// Replaces everything by a snapshot. It is on disk when this returns; if it fails, everything is as it was. Gives
    /// what was kept: it is part of what is here, whatever the snapshot has in its place.
    pub fn reset(&mut self, snapshot: &Snapshot) -> Result<Vec<Entry>, ReplicaError> {
        if snapshot.revision <= 0 || snapshot.revision < self.header.applied {
            return Err(self.went_back(snapshot.revision));
        }
        let mut header = Header { applied: snapshot.revision, sum: Sum::default(), ..self.header.clone() };
        // What is here of an earlier epoch says nothing about this one.
        let keep = self.keep.clone().filter(|_| self.header.applied > 0);
        let mut kept = Vec::new();
        self.write(|connection, path| {
            if let Some(keep) = &keep {
                let entries: HashMap<&str, &Entry> =
                    snapshot.entries.iter().map(|entry| (&*entry.path, entry)).collect();
                database::read_records(connection, path, &mut |before: Entry| {
                    kept.extend(match entries.get(&*before.path) {
                        Some(entry) => keep.unbelieved(before, entry),
                        None => keep.missing(&before.path.clone(), before),
                    });
                })?;
            }
            database::remove_all(connection).map_err(|error| ReplicaError::sort(path, error))?;
            for entry in &snapshot.entries {
                database::insert(connection, entry, &mut header.sum)
                    .map_err(|error| ReplicaError::sort(path, error))?;
            }
            for entry in &kept {
                database::put(connection, entry, &mut header.sum).map_err(|error| ReplicaError::sort(path, error))?;
            }
            Ok(header)
        })?;
        self.tips = Tips::default();
        snapshot.entries.iter().for_each(|entry| self.tips.note(entry));
        kept.iter().for_each(|entry| self.tips.forget(&entry.path));
        Ok(kept)
    }

    /// Its newest records, by which it knows its ledger again, and what judges them; none where it is only what the
    /// ledger is.
    fn tips(&self) -> Result<Option<(Keep, Vec<Entry>)>, ReplicaError> {
        let Some(keep) = self.keep.clone() else { return Ok(None) };
        let found = self.tips.paths().map(|path| database::find(&self.connection, path));
        let found =
            found.collect::<rusqlite::Result<Vec<_>>>().map_err(|error| ReplicaError::sort(&self.path, error))?;
        Ok(Some((keep, found.into_iter().flatten().filter(|entry| entry.revision > 0).collect())))
    }

    /// Goes on in a later epoch: everything that it has is of an earlier one until the next snapshot.
    fn enter(&mut self, epoch: u64) -> Result<(), ReplicaError> {
        let known = self.header.epoch;
        if epoch < known {
            return Err(ReplicaError::EpochPassed { replica: self.path.clone(), known, given: epoch });
        }
        let header = Header { epoch, applied: 0, ..self.header.clone() };
        self.write(|_, _| Ok(header))
    }

    /// One transaction: what it writes, and the header that it gives.
    fn write(
        &mut self,
        change: impl FnOnce(&Connection, &Path) -> Result<Header, ReplicaError>,
    ) -> Result<(), ReplicaError> {
        let path = &self.path;
        let transaction = self.connection.transaction().map_err(|error| ReplicaError::sort(path, error))?;
        let header = change(&transaction, path)?;
        database::write_header(&transaction, &header).map_err(|error| ReplicaError::sort(path, error))?;
        transaction.commit().map_err(|error| ReplicaError::sort(path, error))?;
        self.header = header;
        if let Err(error) = database::wipe_journal(path) {
            // What was asked for is done.
            tracing::warn!(%error, replica = %path.display(), "bytes of records that were replaced stay in the replica's journal");
        }
        Ok(())
    }

    fn went_back(&self, offered: i64) -> ReplicaError {
        ReplicaError::WentBack { replica: self.path.clone(), applied: self.header.applied, offered }
    }
}
