//! What every ledger promises, as code: [`run`] passes on etcd with one member and with three, and on the simulated
//! ledger.
//!
//! It panics at the first promise that is not kept. It needs a ledger without records, and leaves some behind.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::time::Instant;

use super::{
    Change, Entry, Expected, Ledger, LedgerError, Outcome, PATH_LEN_MAX, RECORD_LEN_MAX, TRANSACTION_BYTES_MAX,
    TRANSACTION_RECORDS_MAX, Transaction, Watched,
};

/// Longest that anything may take, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that a ledger promises while it has its majority.
pub async fn run(ledger: &dyn Ledger) {
    changes_take_place_as_a_whole_or_not_at_all(ledger).await;
    a_change_of_nothing_is_no_commit(ledger).await;
    what_makes_no_sense_is_refused(ledger).await;
    snapshots_hold_a_prefix_in_order(ledger).await;
    the_longest_transaction_goes_through(ledger).await;
    many_long_records_are_read_in_pages(ledger).await;
    of_many_at_once_one_wins(ledger).await;
    a_watch_brings_every_commit_once_and_whole(ledger).await;
    a_watch_says_how_fresh_it_is(ledger).await;
    a_watch_from_after_the_end_is_told_so(ledger).await;
}

/// A watch from a commit that is no longer kept is refused, one from the last that is kept is not. `compact` makes the
/// ledger forget what was before a commit.
pub async fn run_compacted(ledger: &dyn Ledger, compact: impl AsyncFnOnce(i64)) {
    let first = put(ledger, "compacted/a", b"1").await;
    let second = put(ledger, "compacted/a", b"2").await;
    let third = put(ledger, "compacted/a", b"3").await;
    compact(second).await;
    let mut watch = ledger.watch(first - 1);
    let error = match tokio::time::timeout(PATIENCE, watch.next()).await.expect("a watch begins").expect("or says why")
    {
        Ok(watched) => panic!("history that is no longer kept was brought: {watched:?}"),
        Err(error) => error,
    };
    assert!(matches!(error, LedgerError::Compacted { .. }), "{error:?}");
    assert!(watch.next().await.is_none(), "a watch that failed is over");
    let mut watch = ledger.watch(second);
    assert_eq!(collect(&mut watch, third).await, [entry("compacted/a", b"3", third)].map(Change::Put));
}

async fn commit(ledger: &dyn Ledger, transaction: Transaction) -> Outcome {
    tokio::time::timeout(PATIENCE, ledger.commit(transaction)).await.expect("a commit ends").expect("with an outcome")
}

async fn committed(ledger: &dyn Ledger, transaction: Transaction) -> i64 {
    match commit(ledger, transaction).await {
        Outcome::Committed { revision } => revision,
        Outcome::Conflict => panic!("a conflict with nobody"),
    }
}

async fn put(ledger: &dyn Ledger, path: &str, sealed: &[u8]) -> i64 {
    committed(ledger, Transaction { put: vec![(path.to_owned(), sealed.to_vec())], ..Transaction::default() }).await
}

async fn read(ledger: &dyn Ledger, prefix: &str) -> (i64, Vec<Entry>) {
    let snapshot = tokio::time::timeout(PATIENCE, ledger.read(prefix)).await.expect("a reading ends").expect("well");
    (snapshot.revision, snapshot.entries)
}

/// The changes of a watch up to a commit.
async fn collect(watch: &mut BoxStream<'_, Result<Watched, LedgerError>>, until: i64) -> Vec<Change> {
    let mut changes = Vec::new();
    loop {
        let next = tokio::time::timeout(PATIENCE, watch.next()).await.expect("a watch says something");
        match next.expect("and does not end").expect("nor fail") {
            Watched::Changes(more) => {
                assert!(!more.changes.is_empty(), "changes without a change");
                changes.extend(more.changes);
                assert!(more.revision <= until, "{} came when {until} was to be the last", more.revision);
                if more.revision == until {
                    return changes;
                }
            }
            Watched::Current { revision, .. } => assert!(revision < until, "{until} is there and was not brought"),
        }
    }
}

fn entry(path: &str, sealed: &[u8], revision: i64) -> Entry {
    Entry { path: path.to_owned(), sealed: sealed.to_vec(), revision }
}

fn expecting(path: &str, expected: Expected, sealed: &[u8]) -> Transaction {
    Transaction {
        expect: vec![(path.to_owned(), expected)],
        put: vec![(path.to_owned(), sealed.to_vec())],
        remove: Vec::new(),
    }
}

async fn changes_take_place_as_a_whole_or_not_at_all(ledger: &dyn Ledger) {
    let first = committed(ledger, expecting("whole/a", Expected::Absent, b"1")).await;
    assert_eq!(commit(ledger, expecting("whole/a", Expected::Absent, b"2")).await, Outcome::Conflict);
    assert_eq!(commit(ledger, expecting("whole/b", Expected::At { revision: first }, b"2")).await, Outcome::Conflict);
    let second = committed(ledger, expecting("whole/a", Expected::At { revision: first }, b"2")).await;
    assert!(second > first, "revisions rise: {second} after {first}");
    assert_eq!(commit(ledger, expecting("whole/a", Expected::At { revision: first }, b"3")).await, Outcome::Conflict);

    // One of several expectations is not met: nothing happens at all.
    let mut transaction = expecting("whole/a", Expected::At { revision: second }, b"4");
    transaction.expect.push(("whole/b".to_owned(), Expected::At { revision: second }));
    transaction.put.push(("whole/c".to_owned(), b"4".to_vec()));
    assert_eq!(commit(ledger, transaction.clone()).await, Outcome::Conflict);
    assert_eq!(read(ledger, "whole/").await.1, [entry("whole/a", b"2", second)]);

    // All are met: everything happens, in one commit.
    transaction.expect[1].1 = Expected::Absent;
    transaction.remove.push("whole/never".to_owned());
    let third = committed(ledger, transaction).await;
    let all = [entry("whole/a", b"4", third), entry("whole/c", b"4", third)];
    assert_eq!(read(ledger, "whole/").await, (third, all.to_vec()));

    // What was removed and put again is not what it was.
    committed(ledger, Transaction { remove: vec!["whole/c".to_owned()], ..Transaction::default() }).await;
    let again = put(ledger, "whole/c", b"4").await;
    assert_eq!(commit(ledger, expecting("whole/c", Expected::At { revision: third }, b"5")).await, Outcome::Conflict);
    assert_eq!(read(ledger, "whole/c").await, (again, vec![entry("whole/c", b"4", again)]));
}

async fn a_change_of_nothing_is_no_commit(ledger: &dyn Ledger) {
    let before = put(ledger, "nothing/a", b"").await;
    let absent = Transaction { remove: vec!["nothing/b".to_owned()], ..Transaction::default() };
    assert_eq!(committed(ledger, absent).await, before);
    let look = ("nothing/a".to_owned(), Expected::At { revision: before });
    let only_look = Transaction { expect: vec![look], ..Transaction::default() };
    assert_eq!(committed(ledger, only_look).await, before);
    assert_eq!(read(ledger, "nothing/").await, (before, vec![entry("nothing/a", b"", before)]));
}

async fn what_makes_no_sense_is_refused(ledger: &dyn Ledger) {
    let put = |path: &str, len: usize| (path.to_owned(), vec![7; len]);
    let with = |put: Vec<(String, Vec<u8>)>| Transaction { put, ..Transaction::default() };
    let many = (0..=TRANSACTION_RECORDS_MAX).map(|n| put(&format!("refused/{n}"), 1));
    let long = (0..=TRANSACTION_BYTES_MAX / RECORD_LEN_MAX).map(|n| put(&format!("refused/{n}"), RECORD_LEN_MAX));
    for too_large in [with(vec![put("refused/a", RECORD_LEN_MAX + 1)]), with(many.collect()), with(long.collect())] {
        let error = ledger.commit(too_large).await.expect_err("it is too large");
        assert!(matches!(error, LedgerError::TooLarge { .. }), "{error:?}");
    }
    let mut both = with(vec![put("refused/a", 1)]);
    both.remove.push("refused/a".to_owned());
    let twice = with(vec![put("refused/a", 1), put("refused/a", 2)]);
    let nameless = with(vec![put("", 1)]);
    let long_name = with(vec![put(&"r".repeat(PATH_LEN_MAX + 1), 1)]);
    for malformed in [both, twice, nameless, long_name, with(vec![put("refused/\n", 1)])] {
        let error = ledger.commit(malformed).await.expect_err("it makes no sense");
        assert!(matches!(error, LedgerError::Malformed { .. }), "{error:?}");
    }
    assert_eq!(read(ledger, "refused/").await.1, []);
}

async fn snapshots_hold_a_prefix_in_order(ledger: &dyn Ledger) {
    let mut revision = 0;
    for path in ["order/b", "order/a/2", "order/a/10", "order/a", "order0", "orde"] {
        revision = put(ledger, path, path.as_bytes()).await;
    }
    let paths = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.path).collect::<Vec<_>>();
    let (at, entries) = read(ledger, "order/").await;
    assert!(entries.iter().all(|entry| entry.path.as_bytes() == entry.sealed && entry.revision <= revision));
    assert_eq!(
        (at, paths(entries)),
        (revision, ["order/a", "order/a/10", "order/a/2", "order/b"].map(Into::into).into())
    );
    assert_eq!(paths(read(ledger, "order/a/").await.1), ["order/a/10", "order/a/2"]);
    assert_eq!(read(ledger, "order/c").await, (revision, Vec::new()));
    let all = paths(read(ledger, "").await.1);
    assert!(all.is_sorted() && all.len() > 6, "{all:?}");
}

async fn the_longest_transaction_goes_through(ledger: &dyn Ledger) {
    let path = |n: usize| format!("long/{n:0width$}", width = PATH_LEN_MAX - "long/".len());
    let all: Vec<_> = (0..TRANSACTION_RECORDS_MAX).map(path).collect();
    let paths: usize = all.iter().map(String::len).sum();
    let each = (TRANSACTION_BYTES_MAX - 2 * paths) / all.len();
    let transaction = Transaction {
        expect: all.iter().map(|path| (path.clone(), Expected::Absent)).collect(),
        put: all.iter().map(|path| (path.clone(), vec![1; each])).collect(),
        remove: Vec::new(),
    };
    committed(ledger, transaction).await;
    assert_eq!(read(ledger, "long/").await.1.len(), TRANSACTION_RECORDS_MAX);
    committed(ledger, Transaction { remove: all, ..Transaction::default() }).await;
    assert_eq!(read(ledger, "long/").await.1, []);
    let longest = vec![255; RECORD_LEN_MAX];
    let revision = put(ledger, "long/record", &longest).await;
    assert_eq!(read(ledger, "long/").await.1, [entry("long/record", &longest, revision)]);
}

async fn many_long_records_are_read_in_pages(ledger: &dyn Ledger) {
    // Many short ones let the reader take long pages; then come long ones.
    let short: Vec<_> = (0..3000).map(|n| (format!("pages/a{n:04}"), vec![1; 20])).collect();
    let long: Vec<_> = (0..150).map(|n| (format!("pages/b{n:04}"), vec![n; RECORD_LEN_MAX])).collect();
    for records in short.chunks(TRANSACTION_RECORDS_MAX).chain(long.chunks(15)) {
        committed(ledger, Transaction { put: records.to_vec(), ..Transaction::default() }).await;
    }
    let (_, entries) = read(ledger, "pages/").await;
    let found = entries.into_iter().map(|entry| (entry.path, entry.sealed));
    assert!(found.eq(short.iter().chain(&long).cloned()), "each record once, as it was put");
    let paths: Vec<_> = short.into_iter().chain(long).map(|(path, _)| path).collect();
    for paths in paths.chunks(TRANSACTION_RECORDS_MAX) {
        committed(ledger, Transaction { remove: paths.to_vec(), ..Transaction::default() }).await;
    }
}

async fn of_many_at_once_one_wins(ledger: &dyn Ledger) {
    let attempts = (0..8u8).map(|n| commit(ledger, expecting("race/a", Expected::Absent, &[n])));
    let outcomes = futures_util::future::join_all(attempts).await;
    let won: Vec<_> = (0..8u8).filter(|n| matches!(outcomes[usize::from(*n)], Outcome::Committed { .. })).collect();
    assert_eq!(won.len(), 1, "{outcomes:?}");
    assert_eq!(read(ledger, "race/a").await.1[0].sealed, won);
}

async fn a_watch_brings_every_commit_once_and_whole(ledger: &dyn Ledger) {
    let before = put(ledger, "watch/before", b"").await;
    let mut expected = Vec::new();
    let mut revision = before;
    // Some happen before the watch begins, some while it is there; a large one is divided on the way.
    let mut late = Some(ledger.watch(before));
    for n in 0..40u8 {
        if n == 20 {
            let mut early = late.take().expect("it was begun");
            assert_eq!(collect(&mut early, revision).await, expected, "what happened meanwhile");
            late = Some(early);
            expected.clear();
        }
        let large = if n % 10 == 9 { 14 } else { 1 };
        let put: Vec<_> = (0..large).map(|m| (format!("watch/{m}"), vec![n; 60_000])).collect();
        let remove = if n % 3 == 2 { vec!["watch/gone".to_owned()] } else { Vec::new() };
        let gone = (n % 3 == 1).then(|| ("watch/gone".to_owned(), vec![n]));
        let put: Vec<_> = put.into_iter().chain(gone).collect();
        revision =
            committed(ledger, Transaction { put: put.clone(), remove: remove.clone(), ..Transaction::default() }).await;
        let put = put.iter().map(|(path, sealed)| Change::Put(entry(path, sealed, revision)));
        expected.extend(put.chain(remove.into_iter().map(|path| Change::Removed { path, revision })));
    }
    assert_eq!(collect(late.as_mut().expect("it goes on"), revision).await, expected, "as it happens");
}

async fn a_watch_says_how_fresh_it_is(ledger: &dyn Ledger) {
    let began = Instant::now();
    let revision = put(ledger, "fresh/a", b"1").await;
    let mut watch = ledger.watch(revision);
    let mut asked_before = began;
    for _ in 0..3 {
        let next =
            tokio::time::timeout(PATIENCE, watch.next()).await.expect("it says so").expect("again").expect("and again");
        let Watched::Current { revision: current, asked } = next else { panic!("{next:?} is not from here") };
        assert_eq!(current, revision);
        assert!(asked >= asked_before && asked <= Instant::now());
        asked_before = asked;
    }
}

async fn a_watch_from_after_the_end_is_told_so(ledger: &dyn Ledger) {
    let revision = put(ledger, "end/a", b"1").await;
    let mut watch = ledger.watch(revision + 1000);
    let next = tokio::time::timeout(PATIENCE, watch.next()).await.expect("it says so").expect("at once");
    let Err(LedgerError::WentBack { known, found }) = next else { panic!("{next:?} of what never was") };
    assert_eq!((known, found), (revision + 1000, revision));
}
