//! What the nodes of an epoch leave behind when the cluster is restored from one of them.

use std::fs;

use serde_json::Value;

use super::members::{ENTRY_LEN, so};
use super::node::{Place, Workshop, begin_at, read_at, runtime};
use super::wait_for;
use crate::etcd::Etcd;

/// A restore from a node's disk dropped its copies of other nodes' journals: a key that one of these had given out cut
/// off, before it burnt, was not known any more, although this disk had it. And no word was left of the old disks: a
/// key was certified as destroyed while they had it.
#[test]
fn what_lost_nodes_gave_out_is_taken_in_and_their_disks_are_on_record() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let [a, b] = ["a", "b"].map(|name| Place::new(name, &etcd.endpoints()[0]));
    let (node, passphrases) = workshop.found(&a, "state-a");
    for user in ["ada", "q1", "q2"] {
        workshop.enrol(&a, "user", user, &passphrases[user]);
    }
    let address = b.address();
    workshop.keyd_as(&a, "ada", &["sites", "add", "south"]);
    let asked = workshop.json_as(&a, "ada", &["kmas", "add", "b", "--address", &address, "--site", "south"]);
    workshop.approved(&a, &asked);
    workshop.join(&b, "state-b", &a, asked["passphrase"].as_str().unwrap()).unwrap();
    let lost = workshop.run(&b, "state-b");
    let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state-a", "agent/drive1"));
    workshop.enrol(&a, "agent", "drive1", &passphrase);
    let drive = workshop.identity("drive1");
    workshop.back_up_core(&a);
    let early = wait_for(|| begin_at(&a, &drive, "A00001"));
    wait_for(|| begin_at(&b, &drive, "A00002"));

    // The majority is lost for good, and b with it: what it gave out since is known to a's copy of its journal alone.
    etcd.kill(0);
    let given = wait_for(|| begin_at(&b, &drive, "A00003"));
    let copy = workshop.path("state-a/journal/copies/b");
    let mut volume = 100;
    wait_for(|| {
        volume += 1;
        begin_at(&b, &drive, &format!("A00{volume}")).map_err(|error| error.to_string())?;
        so(fs::metadata(&copy).is_ok_and(|copy| copy.len() > ENTRY_LEN), "a has a copy of b's journal")
    });
    drop((lost, node, etcd));
    workshop.lose("state-b");

    let etcd = runtime.block_on(Etcd::start(1));
    let a = Place::new("a", &etcd.endpoints()[0]);
    let said = workshop.restore(&a, "again", ["--replica", "state-a"], &[]).unwrap();
    assert!(said.contains("(a-epoch1, b)"), "whose disks are out there is said: {said}");
    // A disk that has gone bad in between: once it is mended the copy is read all the same.
    let copy = workshop.path("again/journal/copies/b");
    let whole = fs::read(&copy).unwrap();
    fs::write(&copy, [&whole[..20], &[0xff; 4], &whole[24..]].concat()).unwrap();
    let _node = workshop.run(&a, "again");
    wait_for(|| {
        let doubts = workshop.status(&a)["doubts"].to_string();
        so(doubts.contains("the journal of b"), &format!("the copy is not believed: {doubts}"))
    });
    fs::write(&copy, &whole).unwrap();
    let removed = wait_for(|| {
        let removed = workshop.json_as(&a, "ada", &["kmas", "removed"]);
        let of_b = removed.as_array().unwrap().iter().find(|left| left["name"] == "b").cloned();
        let taken = of_b.and_then(|left| left["journals"][0]["taken"].as_u64()).unwrap_or(0);
        so(taken > 0, &format!("what b left is taken in: {removed}")).map(|()| removed)
    });
    assert_eq!(wait_for(|| read_at(&a, &drive, "A00003", given)), given);
    assert_eq!(read_at(&a, &drive, "A00001", early).unwrap(), early);
    let names: Vec<&Value> = removed.as_array().unwrap().iter().map(|left| &left["name"]).collect();
    assert_eq!(names, ["a-epoch1", "b"], "what is accounted for before a destruction is certified");
    assert!(workshop.status(&a).get("removed").is_none(), "the node itself is one of the cluster");
    for name in ["a-epoch1", "b"] {
        workshop.keyd_as(&a, "ada", &["kmas", "destroyed", name]);
    }
}
