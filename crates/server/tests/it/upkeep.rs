//! Backups expire at their times, however often a server begins, and most of them never by themselves.

use std::sync::atomic::Ordering;

use capstan_catalog::ObjectFilter;
use capstan_director::{BackupRequest, BackupWatch, ExpiryRequest, Level, PolicyChoice, Retention};
use capstan_server::expire;

use crate::place::{Bench, Hand};

/// Nobody runs it.
const POLICY: &str = "[policies.one]\nsources = [\"DIR/one\"]\n";
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Backs up a source, for a day.
fn back_up(bench: &Bench, now: &str) {
    bench.set_clock(now);
    let sources = vec![bench.path("one")];
    let request = BackupRequest { level: Level::Full, retention: Retention::For(DAY_NS), ..BackupRequest::of(sources) };
    bench.site().backup(&request, &BackupWatch::default()).unwrap();
}

fn objects(bench: &Bench) -> usize {
    bench.site().catalog().objects(&ObjectFilter::default()).unwrap().len()
}

/// A server that looks once whether it is time; how often it had backups expire.
fn serve(bench: &Bench, hand: &Hand, now: &str) -> i64 {
    bench.set_clock(now);
    let before = hand.expired.load(Ordering::SeqCst);
    bench.serve(hand, || {});
    hand.expired.load(Ordering::SeqCst) - before
}

#[test]
fn it_is_time_once_however_often_a_server_begins() {
    let bench = Bench::new("2026-11-20T08:00:00Z", POLICY);
    let hand = Hand::default();
    let served = |now| serve(&bench, &hand, now);
    // The first server that has this begins with the next noon, wherever that is.
    assert_eq!((served("2026-11-20T08:00:00Z"), served("2026-11-20T08:05:00Z")), (0, 0));
    assert_eq!((served("2026-11-21T08:10:00Z"), served("2026-11-21T08:15:00Z")), (1, 0));
    // None ran for days.
    assert_eq!((served("2026-11-27T09:00:00Z"), served("2026-11-27T09:00:30Z")), (1, 0));
    // A clock that was ahead for a while is not waited for.
    assert_eq!(served("2027-11-27T09:00:00Z"), 1);
    assert_eq!((served("2026-11-27T10:00:00Z"), served("2026-11-28T10:30:00Z")), (0, 1));
}

#[test]
fn what_fails_is_tried_again() {
    let bench = Bench::new("2026-11-20T08:00:00Z", POLICY);
    let hand = Hand::default();
    assert_eq!(serve(&bench, &hand, "2026-11-20T08:00:00Z"), 0);
    hand.expiry_fails.store(true, Ordering::SeqCst);
    assert_eq!(serve(&bench, &hand, "2026-11-21T08:30:00Z"), 1);
    hand.expiry_fails.store(false, Ordering::SeqCst);
    assert_eq!(serve(&bench, &hand, "2026-11-21T08:31:00Z"), 1, "the next server tries it at once");
    assert_eq!(serve(&bench, &hand, "2026-11-21T08:32:00Z"), 0);
}

#[test]
fn most_of_all_objects_never_go_by_themselves() {
    let bench = Bench::new("2026-11-20T08:00:00Z", POLICY);
    for day in ["2026-11-20T08:00:00Z", "2026-11-20T20:00:00Z", "2026-11-22T09:00:00Z"] {
        back_up(&bench, day);
    }
    // Two of three.
    assert_eq!((expire(&bench.site()).unwrap(), objects(&bench)), (None, 3));
    back_up(&bench, "2026-11-22T10:00:00Z");
    // Two of four.
    let expired = expire(&bench.site()).unwrap().unwrap();
    assert_eq!((expired.objects, objects(&bench)), (2, 2));
    assert_eq!(expire(&bench.site()).unwrap(), None);
    let history = bench.site().history(1).unwrap();
    assert_eq!(
        (&*history[0].job.kind, &*history[0].job.end.as_ref().unwrap().message),
        ("expire", "2 objects forgotten")
    );
    // A clock that is wrong ends no retention.
    bench.set_clock("2031-11-22T10:00:00Z");
    let refused = expire(&bench.site()).unwrap_err();
    assert!(refused.contains("clock"), "{refused}");
    assert_eq!(objects(&bench), 2);
}

/// The policies `one`, which keeps so many, and `two`, which keeps two.
fn keeping(last: u8) -> String {
    let policy = |name, last| format!("[policies.{name}]\nsources = [\"DIR/{name}\"]\nkeep = {{ last = {last} }}\n");
    policy("one", last) + &policy("two", 2)
}

fn back_up_by(bench: &Bench, policy: &str, times: usize) {
    let (level, retention) = (Level::Full, Retention::ByRule);
    let request = BackupRequest::of(vec![bench.path(policy)]);
    let request = BackupRequest { level, retention, policy: policy.to_owned(), ..request };
    for _ in 0..times {
        bench.site().backup(&request, &BackupWatch::default()).unwrap();
    }
}

/// A wrong number in the `keep` of one policy took nearly all of its backups, because they were few among all.
#[test]
fn a_policy_that_keeps_less_than_before_loses_most_only_when_somebody_says_so() {
    let bench = Bench::new("2026-11-20T08:00:00Z", &keeping(4));
    back_up_by(&bench, "one", 4);
    // No expiry has seen its first rule yet.
    bench.apply(&keeping(1));
    assert_eq!((expire(&bench.site()).unwrap(), objects(&bench)), (None, 4));
    // Another policy loses what it does not keep, though it is most of it each time.
    back_up_by(&bench, "two", 5);
    let expired = expire(&bench.site()).unwrap().unwrap();
    assert_eq!((expired.objects, objects(&bench)), (3, 6));
    let [held] = &expired.notices[..] else { panic!("{:?}", expired.notices) };
    assert!(held.starts_with("policy one keeps less than before: of 4 backups that it kept, 3 can go"), "{held}");
    assert!(held.contains("`capstan expire --policy one`"), "{held}");
    // Whoever keeps more for once, to be careful, has not said so.
    let (site, careful) = (bench.site(), ExpiryRequest { keep_last: 4, ..ExpiryRequest::default() });
    site.expire(&site.plan_expiry(&careful).unwrap(), &careful).unwrap();
    assert_eq!((site.plan_unasked_expiry().unwrap().held.len(), objects(&bench)), (1, 6));
    // Somebody says so: from then on that is its rule.
    let only = PolicyChoice::Only(vec!["one".to_owned()]);
    let (site, asked) = (bench.site(), ExpiryRequest { policies: only, ..ExpiryRequest::default() });
    site.expire(&site.plan_expiry(&asked).unwrap(), &asked).unwrap();
    assert_eq!(objects(&bench), 3);
    assert!(site.plan_unasked_expiry().unwrap().held.is_empty());
    back_up_by(&bench, "one", 2);
    assert_eq!(expire(&bench.site()).unwrap().unwrap().objects, 2, "two of its three");

    // An expiry that finds nothing has seen the rule, too.
    bench.apply(&keeping(4));
    back_up_by(&bench, "one", 3);
    assert_eq!((expire(&bench.site()).unwrap(), objects(&bench)), (None, 6));
    bench.apply(&keeping(1));
    assert_eq!((expire(&bench.site()).unwrap(), objects(&bench)), (None, 6));
    // A catalog that is made anew knows it.
    bench.rebuild().unwrap();
    assert_eq!(bench.site().plan_unasked_expiry().unwrap().held.len(), 1);
}
