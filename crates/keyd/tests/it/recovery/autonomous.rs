//! A node that unlocks itself: because the quorum lets it, as long as it does, and because of nothing that lies on a
//! disk alone.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::node::{Place, Workshop, runtime};
use super::wait_for;
use crate::etcd::Etcd;

fn so(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(format!("it did not come to pass that {what}")) }
}

fn copied(workshop: &Workshop, from: &str, to: &str) {
    let copied = Command::new("cp").arg("-aT").args([workshop.path(from), workshop.path(to)]).status();
    assert!(copied.unwrap().success());
}

fn has_files(workshop: &Workshop, state: &str) -> bool {
    ["autonomous.sealed", "autonomous.key"].iter().all(|file| workshop.has(&format!("{state}/{file}")))
}

fn has_none(workshop: &Workshop, state: &str) -> bool {
    ["autonomous.sealed", "autonomous.key"].iter().all(|file| !workshop.has(&format!("{state}/{file}")))
}

fn lock(workshop: &Workshop, place: &Place) -> Value {
    workshop.status(place)["lock"]["state"].clone()
}

fn unlocks_itself(workshop: &Workshop, place: &Place) {
    wait_for(|| so(lock(workshop, place) == "unlocked", "it unlocks itself"));
}

/// It stays locked though it is in touch: it has noted in its log of the system why, and its files are gone.
fn stays_locked(workshop: &Workshop, place: &Place, state: &str) {
    wait_for(|| so(has_none(workshop, state), "what it could unlock itself with is destroyed"));
    assert_eq!(lock(workshop, place), "locked");
}

#[test]
fn a_node_unlocks_itself_as_long_as_the_quorum_lets_it() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let (node, passphrases) = workshop.found(&place, "state");
    for user in ["ada", "q1", "q2"] {
        workshop.enrol(&place, "user", user, &passphrases[user]);
    }
    let ask = |choice: &'static str| ["kmas", "autonomous-unlock", "a", choice];
    assert!(workshop.refused_as(&place, "q1", &ask("on")).contains("may not"), "a quorum member asks for nothing");
    assert!(workshop.refused_as(&place, "ada", &ask("off")).contains("already"));
    let asked = workshop.json_as(&place, "ada", &ask("on"));
    assert!(has_none(&workshop, "state"), "nobody has approved it");
    workshop.approved(&place, &asked);
    wait_for(|| so(has_files(&workshop, "state"), "the node makes what it unlocks itself with"));
    assert_eq!(workshop.status(&place)["unlocks_itself"], "quorum");
    let listed = workshop.json_as(&place, "ada", &["kmas", "list"]);
    assert_eq!(listed[0]["autonomous_unlock"]["on"], true, "{listed}");
    assert_eq!(fs::read_to_string(workshop.path("state/keyd.toml")).unwrap().matches("autonomous").count(), 0);
    drop(node);

    let node = workshop.start(&place, "state");
    unlocks_itself(&workshop, &place);
    let log = workshop.json_as(&place, "ada", &["audit", "show", "--last", "100"]);
    let of = |act: &str| log.as_array().unwrap().iter().filter(|entry| entry["act"] == act).count();
    assert_eq!((of("autonomous-unlock-made"), of("unlock-by-itself")), (1, 1), "{log}");
    drop(node);

    // Started cut off, it knows nothing of what was said meanwhile: it waits, and goes on once the majority is there.
    etcd.kill(0);
    let node = workshop.start(&place, "state");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(lock(&workshop, &place), "locked");
    etcd.restart(0);
    unlocks_itself(&workshop, &place);

    // Locked by a person it waits for its holders, over each start; they end that.
    workshop.keyd_as(&place, "ada", &["lock"]);
    drop(node);
    let node = workshop.start(&place, "state");
    wait_for(|| so(workshop.status(&place)["locked_by"].as_str().is_some_and(|by| by.contains("ada")), "it says who"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(lock(&workshop, &place), "locked");
    workshop.unlock("state");
    drop(node);
    let node = workshop.start(&place, "state");
    unlocks_itself(&workshop, &place);

    // Taken back: its files go at once, and copies of them open nothing from then on.
    copied(&workshop, "state", "allowed");
    workshop.keyd_as(&place, "ada", &ask("off"));
    wait_for(|| so(has_none(&workshop, "state"), "the node destroys what it unlocked itself with"));
    assert_eq!(workshop.status(&place)["unlocks_itself"], Value::Null);
    drop(node);
    let node = workshop.start(&place, "state");
    for file in ["autonomous.sealed", "autonomous.key"] {
        assert!(!workshop.has(&format!("state/{file}")));
    }
    assert_eq!(lock(&workshop, &place), "locked");
    drop(node);
    for file in ["autonomous.sealed", "autonomous.key"] {
        fs::copy(workshop.path(&format!("allowed/{file}")), workshop.path(&format!("state/{file}"))).unwrap();
    }
    copied(&workshop, "state", "again");
    let node = workshop.start(&place, "state");
    stays_locked(&workshop, &place, "state");
    drop(node);

    // Let again, by another approval: what was left of the first opens nothing still.
    let node = workshop.run(&place, "state");
    let log = workshop.json_as(&place, "ada", &["audit", "show", "--last", "100"]);
    let refused = |entry: &&Value| entry["act"] == "unlock-by-itself" && entry["result"] == "refused";
    assert!(log.as_array().unwrap().iter().any(|entry| refused(&entry)), "{log}");
    let asked = workshop.json_as(&place, "ada", &ask("on"));
    workshop.approved(&place, &asked);
    wait_for(|| so(has_files(&workshop, "state"), "the node makes them anew"));
    drop(node);
    for file in ["autonomous.sealed", "autonomous.key"] {
        fs::copy(workshop.path(&format!("again/{file}")), workshop.path(&format!("state/{file}"))).unwrap();
    }
    let _node = workshop.start(&place, "state");
    stays_locked(&workshop, &place, "state");
}

/// The disk of a node that was removed comes back: it may have unlocked itself once, and does so no more.
#[test]
fn a_removed_node_does_not_unlock_itself() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let [a, b] = ["a", "b"].map(|name| Place::new(name, &etcd.endpoints()[0]));
    let (_node, passphrases) = workshop.found(&a, "state-a");
    for user in ["ada", "q1", "q2"] {
        workshop.enrol(&a, "user", user, &passphrases[user]);
    }
    let asked = workshop.json_as(&a, "ada", &["kmas", "add", "b", "--address", &b.address()]);
    workshop.approved(&a, &asked);
    workshop.join(&b, "state-b", &a, asked["passphrase"].as_str().unwrap()).unwrap();
    let lost = workshop.run(&b, "state-b");
    let asked = workshop.json_as(&a, "ada", &["kmas", "autonomous-unlock", "b", "on"]);
    workshop.approved(&a, &asked);
    wait_for(|| so(has_files(&workshop, "state-b"), "the other node makes what it unlocks itself with"));
    assert!(has_none(&workshop, "state-a"), "it is for one node");
    drop(lost);
    let lost = workshop.start(&b, "state-b");
    unlocks_itself(&workshop, &b);
    drop(lost);

    let asked = workshop.json_as(&a, "ada", &["kmas", "remove", "b"]);
    workshop.approved(&a, &asked);
    let _back = workshop.start(&b, "state-b");
    stays_locked(&workshop, &b, "state-b");
}
