//! A replica whose ledger is written by somebody else than the cluster.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use capstan_keys::api::ClusterId;
use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::ledger::{Ledger, SimulatedLedger, Transaction};
use crate::replica::{Freshness, Replica, follow};
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

/// What came while the node was locked and cannot be opened gives way to what the cluster has sealed, whatever it
/// claims of itself.
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

/// Follows until the ledger is not believed, or the replica is up to date.
async fn ended(home: &Home, ledger: &SimulatedLedger, last: i64) -> Option<String> {
    let (freshness, mut fresh) = watch::channel(Freshness::default());
    let mut seen = freshness.subscribe();
    let refused = seen.wait_for(|fresh| fresh.trouble.as_ref().is_some_and(|why| why.contains("older state")));
    let following = follow(ledger, home.open().0, 1, &freshness, |_| ());
    let current = fresh.wait_for(|fresh| fresh.current_at.is_some() && fresh.applied.is_some_and(|at| at >= last));
    tokio::select! {
        error = following => panic!("{error}"),
        refused = refused => refused.unwrap().trouble.as_ref().map(ToString::to_string),
        current = tokio::time::timeout(Duration::from_secs(30), current) => {
            current.unwrap().unwrap();
            None
        }
    }
}

/// An etcd that was put back to an older state and written to since is at a later commit than the replica: its changes
/// from there on do not show what it has lost.
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
    ended(&home, &other, 22).await.expect("the other ledger was followed");
    // What was there is there still.
    assert_eq!(home.open().1.len(), 2);
}

/// A ledger with these, one commit each from 2 on.
async fn ledger_of<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> SimulatedLedger {
    let ledger = SimulatedLedger::new();
    for entry in entries {
        commit(&ledger, entry.clone()).await;
    }
    ledger
}

impl Home {
    /// What a node says all day of itself.
    fn said_all_day(&self, times: u64) -> Vec<Entry> {
        (1..=times).map(|change| self.entry("held/a", change, 0)).collect()
    }
}

/// What other tests leave open: a ledger that is refused, and why it must be.
async fn is_refused(home: &Home, ledger: &SimulatedLedger, why: &str) {
    assert!(ended(home, ledger, 2).await.is_some(), "it was followed: {why}");
}

/// The newest records of most ledgers are marks that nodes rewrite all day. That one of those had changed since was
/// enough to take an etcd for the one that was followed, although it was put back and had lost a revocation.
#[tokio::test]
async fn a_mark_that_is_rewritten_all_day_makes_no_ledger_known() {
    let home = home();
    let [anna, revoked] = ["user/anna", "revoked/0a"].map(|path| home.entry(path, 1, 0));
    let marks = home.said_all_day(9);
    let ledger = ledger_of([&anna, &revoked].into_iter().chain(&marks[..3])).await;
    assert!(ended(&home, &ledger, 6).await.is_none());
    let put_back = ledger_of([&anna].into_iter().chain(&marks)).await;
    is_refused(&home, &put_back, "a revocation is lost").await;
    assert!(ended(&home, &ledger, 6).await.is_none(), "its own ledger is followed again");
}

/// One hit was enough as well: the newest record lay there as it was, and another had an older version in the place of
/// its own.
#[tokio::test]
async fn one_record_in_another_version_is_another_history() {
    let home = home();
    let [one, two] = [1, 2].map(|change| home.entry("user/anna", change, 0));
    let [revoked, other] = ["revoked/0a", "user/bo"].map(|path| home.entry(path, 1, 0));
    assert!(ended(&home, &ledger_of([&one, &two, &revoked]).await, 4).await.is_none());
    let mut other_history = vec![&one, &other, &revoked];
    let marks = home.said_all_day(5);
    other_history.extend(&marks);
    is_refused(&home, &ledger_of(other_history).await, "anna's second version is lost").await;
}

/// That a record was deleted is seen in the history, and is a doubt of that record; where the history is forgotten
/// nobody can tell that of the newest from a ledger which never had it.
#[tokio::test]
async fn a_deletion_that_the_history_shows_is_a_matter_of_its_record() {
    let home = home();
    let entries = ["user/anna", "revoked/0a", "revoked/0b"].map(|path| home.entry(path, 1, 0));
    let ledger = ledger_of(&entries).await;
    assert!(ended(&home, &ledger, 4).await.is_none());
    let remove = |path: &str| Transaction { remove: vec![path.to_owned()], ..Transaction::default() };
    ledger.commit(remove("revoked/0a")).await.unwrap();
    assert!(ended(&home, &ledger, 5).await.is_none());
    let kept: Vec<_> = home.open().1.iter().map(|entry| (entry.path.clone(), entry.revision)).collect();
    assert_eq!(kept, [("revoked/0a".to_owned(), 0), ("revoked/0b".to_owned(), 4), ("user/anna".to_owned(), 2)]);
    // It is no tip any more; the next is.
    assert!(ended(&home, &ledger, 5).await.is_none());
    ledger.commit(remove("revoked/0b")).await.unwrap();
    ledger.compact(6);
    is_refused(&home, &ledger, "it may never have been there").await;
}

/// Somebody deleted one record, and etcd forgot that before a node came back that had been away: it took the ledger for
/// another, for good. But a state that was put back has everything before its newest record.
#[tokio::test]
async fn what_is_missing_below_a_record_that_is_known_is_a_matter_of_its_record() {
    let home = home();
    let entries = ["user/anna", "revoked/0a", "user/bo", "user/cy", "user/di"].map(|path| home.entry(path, 1, 0));
    let ledger = ledger_of(&entries).await;
    assert!(ended(&home, &ledger, 6).await.is_none());
    let removed = ["user/anna", "revoked/0a"].map(ToOwned::to_owned).into();
    ledger.commit(Transaction { remove: removed, ..Transaction::default() }).await.unwrap();
    // Doubtful, and more of these than are known again: somebody has written what was there anyway.
    commit(&ledger, entries[2].clone()).await;
    commit(&ledger, entries[3].clone()).await;
    ledger.compact(9);
    assert!(ended(&home, &ledger, 9).await.is_none());
    let kept: Vec<_> = home.open().1.iter().map(|entry| (entry.path.clone(), entry.revision)).collect();
    let expected = [("revoked/0a", 0), ("user/anna", 0), ("user/bo", 8), ("user/cy", 9), ("user/di", 6)];
    assert_eq!(kept, expected.map(|(path, revision)| (path.to_owned(), revision)), "what is gone stays here, in doubt");
}

/// A ledger that was put back, and in which the cluster has written anew what was lost with the newer state: nothing is
/// missing, and nothing lies below the commit that is known.
#[tokio::test]
async fn records_that_were_written_anew_are_no_changes() {
    let home = home();
    let people = ["user/anna", "user/bo", "user/cy"];
    let first: Vec<_> = people.map(|path| home.entry(path, 1, 0)).into();
    let [second, anew] = [(), ()].map(|()| people.map(|path| home.entry(path, 2, 0)));
    assert!(ended(&home, &ledger_of(first.iter().chain(&second)).await, 7).await.is_none());
    let marks = home.said_all_day(5);
    is_refused(&home, &ledger_of(first.iter().chain(&marks).chain(&anew)).await, "they were written anew").await;
    // One such among more that are known is what somebody has put back: a doubt of that record.
    let ledger = ledger_of(first.iter().chain(&second)).await;
    commit(&ledger, first[0].clone()).await;
    assert!(ended(&home, &ledger, 8).await.is_none());
    assert_eq!(home.open().1[0].revision, -8);
    // It went on three times over, and nothing of what is here is the newest: that is what a node finds which was away.
    let ledger = ledger_of(first.iter().chain(&second)).await;
    for change in 3..6 {
        for path in people {
            commit(&ledger, home.entry(path, change, 0)).await;
        }
    }
    assert!(ended(&home, &ledger, 16).await.is_none());
}

/// What is not believed says nothing of the ledger: forgeries enough would have pushed out every record by which it is
/// known.
#[test]
fn forgeries_do_not_push_the_tips_out() {
    let home = home();
    let (mut replica, _) = home.open();
    let paths: Vec<_> = (0..40).map(|n| format!("revoked/{n:02}")).collect();
    let mut entries: Vec<_> = paths.iter().map(|path| home.entry(path, 1, 2)).collect();
    entries.push(home.entry("user/anna", 1, 3));
    replica.reset(&Snapshot { revision: 3, entries }).unwrap();
    for (revision, path) in (4..).zip(&paths) {
        assert_eq!(replica.apply(&put(&home.entry(path, 1, revision))).unwrap().len(), 1);
    }
    let tips = |replica: &Replica| replica.tips().unwrap().unwrap().1;
    assert!(tips(&replica).iter().any(|tip| tip.path == "user/anna"));
    drop(replica);
    assert_eq!(tips(&home.open().0).len(), 1, "the same after a restart");
}
