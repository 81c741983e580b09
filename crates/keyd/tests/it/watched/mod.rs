//! A node that is watched: the real program and a real etcd, scraped over plain HTTP; the text is read by Prometheus's
//! own client library.

mod scrape;

use capstan_keys::cluster::ClusterClient;
use serde_json::Value;

use self::scrape::{Scraped, get};
use crate::etcd::Etcd;
use crate::recovery::node::{Place, Workshop, begin, runtime, wait_for};

/// Scrapes until a number is as it should be.
fn wait_for_number(place: &Place, name: &str, labels: &[(&str, &str)], fits: impl Fn(f64) -> bool) -> Scraped {
    wait_for(|| {
        let scraped = Scraped::from(&place.watched_at());
        match scraped.number(name, labels) {
            Some(number) if fits(number) => Ok(scraped),
            number => Err(format!("{name} {labels:?} is {number:?}")),
        }
    })
}

#[test]
fn numbers_say_how_a_node_is_and_move_with_it() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let passphrases = workshop.found_only(&place, "state");
    let node = workshop.start(&place, "state");

    // Locked, it is alive and not ready, and says so to those who watch as to everybody else.
    let locked = Scraped::from(&place.watched_at());
    assert_eq!(locked.number("keyd_unlocked", &[]), Some(0.0));
    assert_eq!(get(&place.watched_at(), "/healthz").0, 200);
    let (status, body) = get(&place.watched_at(), "/readyz");
    assert!(status == 503 && body.contains("is locked"), "{status} {body}");

    workshop.unlock("state");
    assert_eq!(get(&place.watched_at(), "/readyz").0, 200);
    assert_eq!(get(&place.watched_at(), "/v1/status").0, 404, "this is no door for members");
    wait_for_number(&place, "keyd_in_touch", &[], |number| number == 1.0);
    for user in ["ada", "bo"] {
        workshop.enrol(&place, "user", user, &passphrases[user]);
    }
    let before = wait_for_number(&place, "keyd_pool_keys", &[("state", "waiting")], |keys| keys == 20.0);
    assert_eq!(before.number("keyd_pool_low", &[]), Some(1.0), "alone and without a backup there is no key to give");
    assert_eq!(before.number("keyd_backup_timestamp_seconds", &[]), Some(0.0));
    let names = [("kma", "a"), ("epoch", "1")];
    assert_eq!(before.number("keyd_node_info", &names), Some(1.0));
    let route = [("method", "GET"), ("route", "/v1/status"), ("result", "200")];
    assert_eq!(before.number("keyd_requests_total", &route), None);

    // What was asked is counted by its route and result; what people are refused, too.
    workshop.keyd_as(&place, "ada", &["status"]);
    workshop.keyd_as(&place, "ada", &["status"]);
    assert!(workshop.refused_as(&place, "ada", &["backup", "--out", "no"]).contains("may not"));
    workshop.keyd_as(&place, "bo", &["backup", "--out", "first"]);
    let after = wait_for_number(&place, "keyd_pool_keys", &[("state", "ready")], |keys| keys > 0.0);
    assert_eq!(after.number("keyd_requests_total", &route), Some(2.0));
    let refused = [("method", "POST"), ("route", "/v1/backups"), ("result", "403")];
    assert_eq!(after.number("keyd_requests_total", &refused), Some(1.0));
    let timed = [("method", "GET"), ("route", "/v1/status")];
    assert_eq!(after.number("keyd_request_seconds_count", &timed), Some(2.0));
    assert!(after.number("keyd_request_seconds_sum", &timed).unwrap() > 0.0);
    let parts = [("route", "/v1/backups/{id}/data/{from}"), ("method", "GET"), ("result", "200")];
    assert!(after.number("keyd_requests_total", &parts).unwrap() >= 1.0, "the route, not the path");

    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let after = wait_for_number(&place, "keyd_backups_kept", &[], |backups| backups == 1.0);
    let made = after.number("keyd_backup_timestamp_seconds", &[]).unwrap();
    assert!((now - made).abs() < 120.0, "made {made}, now {now}");
    assert!(after.number("keyd_own_certificate_end_timestamp_seconds", &[]).unwrap() > now + 86_400.0);
    for (kind, holds) in [("kma", true), ("user", true), ("agent", false), ("kmip", false)] {
        let end = after.number("keyd_certificate_end_timestamp_seconds", &[("kind", kind)]).unwrap();
        assert_eq!(end > now + 86_400.0, holds, "{kind}: {end}");
        assert_eq!(after.number("keyd_peers_without_certificate", &[("kind", kind)]), Some(0.0));
    }
    assert!(after.number("keyd_audit_records", &[]) > before.number("keyd_audit_records", &[]));
    assert_eq!(after.number("keyd_doubts", &[]), Some(0.0));
    assert!(after.number("keyd_connections_total", &[("door", "members")]).unwrap() >= 4.0);
    wait_for_number(&place, "keyd_replica_lag_revisions", &[], |lag| lag == 0.0);
    wait_for_number(&place, "keyd_connections_open", &[("door", "members")], |open| open == 0.0);
    // Neither volumes nor users nor paths stand in labels.
    for name in ["ada", "bo", "h1", "first"] {
        assert!(!after.label_values().any(|value| value == name), "{name} is a label");
    }

    // Cut off, it says so without being asked twice.
    drop(etcd);
    wait_for_number(&place, "keyd_in_touch", &[], |number| number == 0.0);
    assert_eq!(get(&place.watched_at(), "/healthz").0, 200);
    drop(node);
}

/// That a pool ran low was a number for whoever scrapes it: the log of the node, which is what is left to look at
/// afterwards, said nothing.
#[test]
fn a_pool_that_runs_low_is_said_in_the_log_once_and_again_when_it_is_filled() {
    const LOW: &str = "the pool of keys runs low";
    const ABOVE: &str = "the pool of keys is above its low-water mark again";
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let passphrases = workshop.found_only(&place, "state");
    let _node = workshop.start_logging(&place, "state", "json", "log");
    workshop.unlock("state");
    for user in ["ada", "bo"] {
        workshop.enrol(&place, "user", user, &passphrases[user]);
    }
    let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state", "agent/drive1"));
    workshop.enrol(&place, "agent", "drive1", &passphrase);
    let said = || [LOW, ABOVE].map(|words| workshop.text("log").matches(words).count());
    let says = |times: [usize; 2]| {
        wait_for(|| match said() {
            found if found == times => Ok(()),
            found => {
                Err(format!("low and above again are said {found:?} times, not {times:?}: {}", workshop.status(&place)))
            }
        });
    };
    // Alone and without a backup it has no key to give.
    wait_for_number(&place, "keyd_pool_keys", &[("state", "waiting")], |keys| keys == 20.0);
    says([1, 0]);
    workshop.keyd_as(&place, "bo", &["backup", "--out", "first"]);
    says([1, 1]);

    // Cut off, it gives out what it has in reserve, and cannot draw anew.
    etcd.kill(0);
    wait_for_number(&place, "keyd_in_touch", &[], |number| number == 0.0);
    let drive = workshop.identity("drive1");
    let client = ClusterClient::open(&drive, &[place.address()], "").unwrap();
    let give = |number: usize| begin(&client, &drive, &format!("A000{number:02}"));
    // 20 keys have their mark at 4: at 2 in each half.
    for number in 0..8 {
        give(number).unwrap();
    }
    wait_for_number(&place, "keyd_pool_keys", &[("state", "reserve")], |keys| keys == 2.0);
    assert_eq!(said(), [1, 1], "the mark is not passed yet");
    give(8).unwrap();
    says([2, 1]);
    give(9).unwrap();
    assert!(give(10).err().unwrap().to_string().contains("no key to give"));
    wait_for_number(&place, "keyd_pool_keys", &[("state", "reserve")], |keys| keys == 0.0);
    assert_eq!(said(), [2, 1], "it is said once");

    etcd.restart(0);
    wait_for_number(&place, "keyd_pool_keys", &[("state", "waiting")], |keys| keys == 10.0);
    workshop.keyd_as(&place, "bo", &["backup", "--out", "second"]);
    says([2, 2]);
}

/// Each line says which node wrote it and for which request, and none has a secret in it, whatever is switched on.
#[test]
fn lines_of_the_log_name_node_and_request_and_no_secret() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let passphrases = workshop.found_only(&place, "state");
    let node = workshop.start_logging(&place, "state", "json", "log");
    workshop.unlock("state");
    workshop.enrol(&place, "user", "bo", &passphrases["bo"]);
    workshop.keyd_as(&place, "bo", &["backup", "--out", "first"]);
    drop(node);
    let log = workshop.text("log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 20 && lines.iter().all(|line| line["kma"] == "a"), "{log}");
    let said =
        |text: &str| lines.iter().find(|line| line["fields"]["message"] == text).unwrap_or_else(|| panic!("{log}"));
    // A job's lines are those of the request that began it.
    let id = said("a backup is made and verified")["span"]["id"].as_str().unwrap();
    let begun = lines.iter().find(|line| line["fields"]["request"] == id).unwrap();
    assert_eq!((&begun["fields"]["path"], &begun["fields"]["method"]), (&"/v1/backups".into(), &"POST".into()));
    for secret in ["the passphrase of h1", "the passphrase of h2", &passphrases["bo"], "PRIVATE KEY"] {
        assert!(!log.contains(secret), "a secret is in the log");
    }

    let node = workshop.start_logging(&place, "state", "text", "log");
    drop(node);
    let log = workshop.text("log");
    let odd = log.lines().find(|line| !line.starts_with("a ") || serde_json::from_str::<Value>(line).is_ok());
    assert_eq!(odd, None);
}
