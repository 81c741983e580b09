//! A node is lost for good: it is removed by quorum, what it gave out cut off is taken in from another's copy of its
//! journal, and it serves nobody where it comes back.

use std::fs;
use std::process::Command;

use capstan_keyd::root::{Opens, SealedRoot};
use serde_json::Value;

use super::node::{Place, Workshop, begin_at, client, read_at, runtime};
use super::wait_for;
use crate::etcd::Etcd;

/// Longer than a journal that holds nothing.
pub(crate) const ENTRY_LEN: u64 = 200;

pub(crate) fn so(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(format!("it did not come to pass that {what}")) }
}

#[test]
fn a_lost_node_is_removed_and_what_it_gave_out_is_taken_in() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let [a, b] = ["a", "b"].map(|name| Place::new(name, &etcd.endpoints()[0]));
    let (_node, passphrases) = workshop.found(&a, "state-a");
    for user in ["ada", "q1", "q2"] {
        workshop.enrol(&a, "user", user, &passphrases[user]);
    }
    let said = workshop.refused_as(&a, "ada", &["kmas", "remove", "a"]);
    assert!(said.contains("only node"), "{said}");

    let address = b.address();
    for site in ["south", "north"] {
        workshop.keyd_as(&a, "ada", &["sites", "add", site]);
    }
    let asked = workshop.json_as(&a, "ada", &["kmas", "add", "b", "--address", &address, "--site", "south"]);
    workshop.approved(&a, &asked);
    workshop.join(&b, "state-b", &a, asked["passphrase"].as_str().unwrap()).unwrap();
    // It was not said to `join`, and it stands where the quorum has it.
    assert!(workshop.text("state-b/keyd.toml").contains("site = \"south\""));
    let lost = workshop.run(&b, "state-b");
    let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state-a", "agent/drive1"));
    workshop.enrol(&a, "agent", "drive1", &passphrase);
    let drive = workshop.identity("drive1");
    // Only b's disk makes a's keys ready: where both have one, they know each other.
    wait_for(|| begin_at(&a, &drive, "A00001"));
    wait_for(|| begin_at(&b, &drive, "A00002"));

    it_moves(&workshop, &a);
    one_that_was_approved_is_called_off(&workshop, &a, &etcd);
    let said = workshop.refused_as(&a, "ada", &["kmas", "remove", "nobody"]);
    assert!(said.contains("There is no node"), "{said}");
    // The program would ask the other one.
    let error = client(&b, &workshop.identity("ada")).post::<Value>("/v1/kmas/b/remove", &Value::Null).unwrap_err();
    assert!(error.to_string().contains("does not remove itself"), "{error}");
    let said = workshop.refused_as(&a, "ada", &["kmas", "destroyed", "b"]);
    assert!(said.contains("remove it first"), "{said}");

    // No majority; each reaches the other.
    etcd.kill(0);
    let given = wait_for(|| begin_at(&b, &drive, "A00003"));
    let copy = workshop.path("state-a/journal/copies/b");
    let mut volume = 100;
    wait_for(|| {
        // A peer that is too slow once is left alone for a while; what it misses goes along with the next.
        volume += 1;
        begin_at(&b, &drive, &format!("A00{volume}")).map_err(|error| error.to_string())?;
        so(fs::metadata(&copy).is_ok_and(|copy| copy.len() > ENTRY_LEN), "a has a copy of b's journal")
    });
    drop(lost);
    let kept = Command::new("cp").arg("-a").args([workshop.path("state-b"), workshop.path("unaware")]).status();
    assert!(kept.unwrap().success());
    etcd.restart(0);
    // For a moment a node whose majority has gone takes itself for in touch: only what was done tells that it is there
    // again.
    let asked = wait_for(|| workshop.try_as(&a, "ada", &["kmas", "remove", "b", "--json"]));
    let asked: Value = serde_json::from_str(&asked).unwrap();
    let warned = asked["warnings"].as_array().unwrap();
    assert!(warned.iter().any(|warning| warning.as_str().unwrap().contains("a alone will be left")), "{asked}");
    workshop.approved(&a, &asked);
    wait_for(|| {
        let removed = workshop.json_as(&a, "ada", &["kmas", "removed"]);
        let said = &removed[0];
        let taken = said["journals"][0]["taken"].as_u64().unwrap_or(0);
        so(said["name"] == "b" && said["pool"] == 0 && taken > 0, &format!("what b left is taken in: {removed}"))
    });
    assert_eq!(wait_for(|| read_at(&a, &drive, "A00003", given)), given);
    let listed = workshop.json_as(&a, "ada", &["kmas", "list"]);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    for (arguments, why) in [
        (&["kmas", "remove", "b"][..], "was removed on"),
        (&["kmas", "move", "b", "--site", "east"], "was removed on"),
        (&["kmas", "remove", "a"], "only node"),
        (&["kmas", "add", "b", "--address", "127.0.0.1:9"], "for good"),
    ] {
        let said = workshop.refused_as(&a, "ada", arguments);
        assert!(said.contains(why), "{said}");
    }
    workshop.keyd_as(&a, "ada", &["kmas", "destroyed", "b"]);

    // It was not destroyed after all, and comes back where the ledger tells it.
    let doubts = |node: &Place| workshop.status(node)["doubts"].to_string();
    assert!(!doubts(&a).contains("said to be destroyed"), "{}", doubts(&a));
    let back = workshop.run(&b, "state-b");
    serves_nobody(&workshop, &b, "as ada had asked");
    wait_for(|| {
        let removed = workshop.json_as(&a, "ada", &["kmas", "removed"]);
        let is_met = removed[0]["met"].is_string() && removed[0].get("destroyed").is_none();
        so(is_met && doubts(&a).contains("node b was removed, its disks were said"), &format!("it was met: {removed}"))
    });
    let error = begin_at(&b, &drive, "A00004").err().unwrap().to_string();
    assert!(error.contains("removed"), "{error}");
    drop(back);
    workshop.keyd_as(&a, "ada", &["kmas", "destroyed", "b"]);
    wait_for(|| so(!doubts(&a).contains("said to be destroyed"), "what is destroyed at last is believed"));

    // And a copy of its disk where nothing but another node can tell it.
    etcd.kill(0);
    let unaware = workshop.run(&b, "unaware");
    serves_nobody(&workshop, &b, "another node");
    let error = begin_at(&b, &drive, "A00004").err().unwrap().to_string();
    assert!(error.contains("removed"), "{error}");
    drop(unaware);
    assert!(doubts(&a).contains("node b was removed, its disks were said"), "{}", doubts(&a));
    etcd.restart(0);
    wait_for(|| {
        let removed = workshop.json_as(&a, "ada", &["kmas", "removed"]);
        so(removed[0]["met"].is_string(), &format!("the ledger has it once there is a majority: {removed}"))
    });
    assert!(workshop.path("unaware/refused").exists(), "it knows that after its next start as well");
}

/// A holder is lost: the others split the root key anew, the quorum lets that in, and from the next start on the new
/// holders unlock.
#[test]
fn the_root_key_goes_to_other_holders() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let (node, passphrases) = workshop.found(&place, "state");
    for user in ["ada", "q1", "q2"] {
        workshop.enrol(&place, "user", user, &passphrases[user]);
    }
    let old = ["root", "split", "--state", "state", "--given", "h1", "--passphrase-file", "h1=h1.secret"];
    let second = ["--given", "h2", "--passphrase-file", "h2=h2.secret"];
    let other = ["--given", "h2", "--passphrase-file", "h2=h1.secret"];
    let new = ["--holder", "h1", "--holder", "c1", "--new-passphrase-file", "h1=h1.secret"];
    let new = [&new[..], &["--new-passphrase-file", "c1=c1.secret"]].concat();
    let all = [&old[..], &second, &new].concat();
    for (who, arguments, why) in [
        ("ada", [&old[..], &new].concat(), "share"),
        ("ada", [&old[..], &other, &new].concat(), "passphrase"),
        ("ada", [&all[..], &["--needed", "3"]].concat(), "at most all"),
        ("q1", all.clone(), "may not"),
    ] {
        let said = workshop.refused_as(&place, who, &arguments);
        assert!(said.contains(why), "{said}");
    }

    let opens = || SealedRoot::read(&workshop.path("state/root.sealed")).unwrap().opens();
    let before = opens();
    let asked = workshop.json_as(&place, "ada", &all);
    let id = asked["id"].as_str().unwrap();
    let words = workshop.json_as(&place, "q1", &["pending", "show", id])["words"].as_str().unwrap().to_owned();
    assert!(words.contains("c1, h1") || words.contains("h1, c1"), "who approves reads who holds it: {words}");
    assert_eq!(opens(), before, "nobody has approved it");
    workshop.approved(&place, &asked);
    let holders = ["h1", "c1"].map(|holder| holder.parse().unwrap());
    let after = Opens::Quorum { threshold: 2, holders: holders.to_vec() };
    wait_for(|| so(opens() == after, "the node's disk has the new split"));
    drop(node);

    let _node = workshop.start(&place, "state");
    wait_for(|| workshop.give_share("state", "h1"));
    let said = workshop.give_share("state", "h2").unwrap_err();
    assert!(said.contains("h1, c1"), "who lost their share is told who has one: {said}");
    let said = workshop.give_share("state", "c1").unwrap();
    assert!(said.contains("is unlocked"), "{said}");
}

/// A passphrase that was approved, and is in the wrong hands: it could not be taken back before the node was there.
fn one_that_was_approved_is_called_off(workshop: &Workshop, a: &Place, etcd: &Etcd) {
    let c = Place::new("c", &etcd.endpoints()[0]);
    let asked = workshop.json_as(a, "ada", &["kmas", "add", "c", "--address", &c.address(), "--site", "south"]);
    workshop.approved(a, &asked);
    for (arguments, why) in [
        (&["kmas", "cancel-join", "b"][..], "has joined"),
        (&["kmas", "cancel-join", "nobody"], "There is no approved node nobody"),
    ] {
        let said = workshop.refused_as(a, "ada", arguments);
        assert!(said.contains(why), "{said}");
    }
    workshop.keyd_as(a, "ada", &["kmas", "cancel-join", "c"]);
    let said = workshop.join(&c, "state-c", a, asked["passphrase"].as_str().unwrap()).unwrap_err();
    assert!(said.contains("no such enrolment"), "{said}");
    let said = workshop.refused_as(a, "ada", &["kmas", "cancel-join", "c"]);
    assert!(said.contains("There is no approved node c"), "{said}");
}

fn it_moves(workshop: &Workshop, a: &Place) {
    for (arguments, why) in [
        (&["kmas", "move", "a", "--address", "nowhere"][..], "no address"),
        (&["kmas", "move", "a", "--address", &a.address()], "there already"),
        (&["kmas", "move", "nobody", "--site", "north"], "There is no node"),
    ] {
        let said = workshop.refused_as(a, "ada", arguments);
        assert!(said.contains(why), "{said}");
    }
    // Where it is already, by another name.
    let address = a.address().replace("127.0.0.1", "localhost");
    assert!(!shown_at(&a.address()).contains("localhost"));
    let asked = workshop.json_as(a, "ada", &["kmas", "move", "a", "--site", "north", "--address", &address]);
    workshop.approved(a, &asked);
    wait_for(|| {
        // Whichever node answers.
        let listed = workshop.json_as(a, "ada", &["kmas", "list"]);
        let stands = |kma: &&Value| kma["name"] == "a" && kma["site"] == "north" && kma["address"] == *address;
        so(listed.as_array().unwrap().iter().any(|kma| stands(&kma)), &format!("it has moved: {listed}"))
    });
    wait_for(|| {
        let status = workshop.status(a);
        so(status["moved"].as_str().is_some_and(|moved| moved.contains("keyd.toml")), "its own settings say otherwise")
    });
    // Libraries and arrays look for the host that they were told in the certificate: it must not wait for its renewal.
    wait_for(|| so(shown_at(&a.address()).contains("DNS:localhost"), "its certificate names the new host"));
}

/// Which names the certificate has that a node shows, by a peer that checks them.
fn shown_at(address: &str) -> String {
    let script = "openssl s_client -connect \"$1\" </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName";
    let output = Command::new("timeout").args(["10", "sh", "-c", script, "sh", address]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn serves_nobody(workshop: &Workshop, place: &Place, why: &str) {
    wait_for(|| {
        let status = workshop.status(place);
        so(status["removed"].as_str().is_some_and(|removed| removed.contains(why)), &format!("it knows: {status}"))
    });
    let error = client(place, &workshop.identity("ada")).get::<Value>("/v1/users").unwrap_err().to_string();
    assert!(error.contains("was removed"), "{error}");
}
