//! A replica whose ledger is written by somebody else than the cluster.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use capstan_keys::api::ClusterId;
use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::ledger::{Ledger, SimulatedLedger, Transaction};
use crate::replica::{Freshness, Replica, ReplicaError, follow};
use crate::root::ClusterKeys;

/// The keys of a node that is open.
struct Keys(ClusterKeys);

impl Judge for Keys {
    fn is_genuine(&self, entry: &Entry) -> bool {
        self.0.sealer().open(&entry.path, &entry.sealed).is_ok()
    }
}

struct Home {
    path: PathBuf,
    keys: Arc<Keys>,
    _folder: TempDir,
}

fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    let keys = Arc::new(Keys(ClusterKeys::create(ClusterId([7; 16])).unwrap()));
    Home { path: folder.path().join("replica.db"), keys, _folder: folder }
}

impl Home {
    fn open(&self) -> (Replica, Vec<Entry>) {
        let mut entries = Vec::new();
        let replica = Replica::open(&self.path, "alpha", 1, |entry| entries.push(entry)).unwrap();
        (replica.judged_by(self.keys.clone()), entries)
    }

    fn entry(&self, path: &str, change: u64, revision: i64) -> Entry {
        let sealed = self.keys.0.sealer().seal(path, 1, change, b"{}").unwrap();
        Entry { path: path.to_owned(), sealed, revision }
    }
}

fn put(entry: &Entry) -> Changes {
    Changes { revision: entry.revision, changes: vec![Change::Put(entry.clone())] }
}

fn removed(path: &str, revision: i64) -> Changes {
    Changes { revision, changes: vec![Change::Removed { path: path.to_owned(), revision }] }
}

/// A node that was restarted had forgotten what it had refused to forget: its file was what etcd said.
#[test]
fn what_was_taken_away_or_put_back_stays_over_a_restart() {
    let home = home();
    let (mut replica, _) = home.open();
    let pool = format!("pool/a/{}", "5".repeat(32));
    let entries = ["enrolment/agent/one", &pool, "revoked/0a", "user/anna"].map(|path| home.entry(path, 2, 4));
    let old = home.entry("enrolment/agent/one", 1, 7);
    replica.reset(&Snapshot { revision: 4, entries: entries.to_vec() }).unwrap();
    assert_eq!(replica.apply(&removed(&pool, 5)).unwrap(), []);
    let kept = replica.apply(&removed("revoked/0a", 6)).unwrap();
    assert_eq!(kept, [(0, Entry { revision: 0, ..entries[2].clone() })]);
    let kept = replica.apply(&put(&old)).unwrap();
    assert_eq!(kept, [(0, Entry { revision: -7, ..entries[0].clone() })]);
    // One that counts on and was not sealed by the cluster.
    let mut forged = home.entry("user/anna", 3, 8);
    *forged.sealed.last_mut().unwrap() ^= 1;
    assert_eq!(replica.apply(&put(&forged)).unwrap(), [(0, Entry { revision: -8, ..entries[3].clone() })]);
    drop(replica);
    let (mut replica, found) = home.open();
    let revisions: Vec<_> = found.iter().map(|entry| (entry.path.as_str(), entry.revision)).collect();
    assert_eq!(revisions, [("enrolment/agent/one", -7), ("revoked/0a", 0), ("user/anna", -8)]);
    // What the cluster says next counts.
    let newer = home.entry("user/anna", 3, 9);
    assert_eq!(replica.apply(&put(&newer)).unwrap(), []);
    // A whole copy that has nothing of it takes nothing away either.
    let kept = replica.reset(&Snapshot { revision: 10, entries: vec![old] }).unwrap();
    assert_eq!(kept.len(), 3);
    assert_eq!(home_after(replica, &home).len(), 3);
}

fn home_after(replica: Replica, home: &Home) -> Vec<Entry> {
    drop(replica);
    home.open().1
}

/// What came while the node was locked and cannot be opened gives way to what the cluster has sealed, whatever it claims of itself.
#[test]
fn a_forgery_that_got_in_does_not_keep_the_cluster_out() {
    let home = home();
    let (mut replica, _) = home.open();
    let mut forged = home.entry("user/anna", u64::MAX, 2);
    *forged.sealed.last_mut().unwrap() ^= 1;
    replica.reset(&Snapshot { revision: 2, entries: vec![forged] }).unwrap();
    assert_eq!(replica.apply(&put(&home.entry("user/anna", 2, 3))).unwrap(), []);
}

async fn commit(ledger: &SimulatedLedger, entry: Entry) {
    let transaction = Transaction { put: vec![(entry.path, entry.sealed)], ..Transaction::default() };
    ledger.commit(transaction).await.unwrap();
}

/// Follows until the following ends, or the replica is up to date.
async fn ended(home: &Home, ledger: &SimulatedLedger, last: i64) -> Option<ReplicaError> {
    let (freshness, mut fresh) = watch::channel(Freshness::default());
    let following = follow(ledger, home.open().0, 1, &freshness, |_| ());
    let current = fresh.wait_for(|fresh| fresh.current_at.is_some() && fresh.applied.is_some_and(|at| at >= last));
    tokio::select! {
        error = following => Some(error),
        current = tokio::time::timeout(Duration::from_secs(30), current) => {
            current.unwrap().unwrap();
            None
        }
    }
}

/// An etcd that was put back to an older state and written to since is at a later commit than the replica: its changes from there on do not
/// show what it has lost.
#[tokio::test]
async fn a_ledger_that_was_made_anew_and_has_grown_since_is_known() {
    let home = home();
    let ledger = SimulatedLedger::new();
    commit(&ledger, home.entry("user/anna", 1, 0)).await;
    commit(&ledger, home.entry("revoked/0a", 1, 0)).await;
    assert!(ended(&home, &ledger, 3).await.is_none());
    // It went on, and was compacted: that is no loss.
    for change in 2..6 {
        commit(&ledger, home.entry("user/anna", change, 0)).await;
    }
    ledger.compact(6);
    assert!(ended(&home, &ledger, 7).await.is_none());

    let other = SimulatedLedger::new();
    commit(&other, home.entry("user/anna", 1, 0)).await;
    for n in 0..20 {
        commit(&other, home.entry(&format!("pending/{n}"), 1, 0)).await;
    }
    let error = ended(&home, &other, 22).await.expect("the other ledger was followed");
    assert!(matches!(error, ReplicaError::WentBack { .. }), "{error}");
    // What was there is there still.
    assert_eq!(home.open().1.len(), 2);
}
