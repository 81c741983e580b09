//! Two nodes at work: what only a cluster can prove and certify. The real program and a real etcd; people type, and a
//! drive asks.

mod exposed;
mod journals;
mod lost;

use std::time::Duration;

use capstan_keys::cluster::ClusterClient;
use serde_json::Value;

use crate::etcd::Etcd;
use crate::recovery::node::{Place, Running, Workshop, begin, runtime, wait_for};

/// Started again it proves its copy at once.
fn started_again(workshop: &Workshop, place: &Place, node: Running, state: &str) -> Running {
    drop(node);
    workshop.run(place, state)
}

#[test]
fn what_two_nodes_have_is_proved_and_what_they_have_lost_is_certified() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let a = Place::new("a", &etcd.endpoints()[0]);
    let (_node, passphrases) = workshop.found(&a, "state");
    for (user, passphrase) in &passphrases {
        workshop.enrol(&a, "user", user, passphrase);
    }

    // The second node: asked for, approved, joined.
    let b = Place::new("b", &etcd.endpoints()[0]);
    let requested = workshop.json_as(&a, "ada", &["kmas", "add", "b", "--address", &b.address()]);
    workshop.approved(&a, &requested);
    wait_for(|| workshop.join(&b, "state-b", &a, requested["passphrase"].as_str().unwrap()));
    let other = workshop.run(&b, "state-b");

    // A key is given out once the other node has it, without any backup.
    let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state", "agent/drive1"));
    workshop.enrol(&a, "agent", "drive1", &passphrase);
    let drive = workshop.identity("drive1");
    let client = ClusterClient::open(&drive, &[a.address()], "").unwrap();
    let tag = wait_for(|| begin(&client, &drive, "A00001")).tag().to_string();

    let said = workshop.refused_as(&a, "bo", &["prove"]);
    assert!(said.contains("not everything can be proved"), "without a backup: {said}");
    workshop.keyd_as(&a, "bo", &["backup", "--out", "first"]);
    let other = started_again(&workshop, &b, other, "state-b");
    let said = wait_for(|| workshop.try_as(&a, "bo", &["prove"]));
    assert!(said.contains("1 data units: 1 keys and 0 KMIP objects proved here"), "{said}");
    // It was told as if the file had been read for it, of one that was moved away as well.
    assert!(said.contains("backup that is on record") && said.contains("not now"), "{said}");
    // The node that was asked knows of no other how it is: each says it itself.
    let states = |kmas: Value| kmas.as_array().unwrap().iter().map(|kma| kma["state"].clone()).collect::<Vec<_>>();
    assert_eq!(states(workshop.json_as(&a, "ada", &["kmas", "list"])), ["serving", "serving"]);
    let proof = workshop.json_as(&a, "cy", &["prove"]);
    assert_eq!((&proof["proved"], &proof["unproved"], &proof["kma"]), (&1.into(), &Value::Array(vec![]), &"a".into()));

    // A key that still reads takes the quorum; it is not certified while a backup may bring it back.
    let requested = workshop.json_as(&a, "cy", &["keys", "destroy", &tag]);
    let said = workshop.refused_as(&a, "cy", &["keys", "destroy", &tag]);
    assert!(said.contains(requested["id"].as_str().unwrap()) && said.contains("cy asked for"), "{said}");
    workshop.approved(&a, &requested);
    let said = workshop.refused_as(&a, "cy", &["certify", &tag]);
    let backup = proof["backup"].as_str().unwrap();
    assert!(said.contains(&format!("Backup {backup} may hold it")), "{said}");
    assert!(said.contains("Node b says its disk is at commit"), "{said}");
    workshop.keyd_as(&a, "bo", &["backups", "destroyed", backup]);
    let _other = started_again(&workshop, &b, other, "state-b");
    let said = wait_for(|| workshop.try_as(&a, "cy", &["certify", &tag]));
    let certificate: Value = serde_json::from_str(&said).unwrap();
    let copies: Vec<_> = certificate["declared"].as_array().unwrap().iter().map(|said| &said["copy"]).collect();
    assert_eq!(copies, [&Value::from(format!("backup {backup}"))], "it names what people have said: {certificate}");
    let again: Value = serde_json::from_str(&workshop.keyd_as(&a, "cy", &["certify", &tag])).unwrap();
    assert_eq!(again, certificate, "certified again, it keeps its date");
    assert_eq!((&certificate["tag"], &certificate["kmas"]), (&tag.into(), &serde_json::json!(["a", "b"])));
    // What is gone needs no proof.
    let said = workshop.keyd_as(&a, "cy", &["prove"]);
    assert!(said.contains("0 data units: 0 keys"), "{said}");
}

/// Whoever breaks off a backup, at whatever moment, has no file that looks like one, and the cluster counts on none.
#[test]
fn a_backup_that_is_broken_off_is_none() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let (_node, passphrases) = workshop.found(&place, "state");
    workshop.enrol(&place, "user", "bo", &passphrases["bo"]);
    let listed = || workshop.json_as(&place, "bo", &["backups", "list"]).as_array().unwrap().len();

    let mut whole = 0;
    for (n, delay_ms) in [0, 20, 40, 60, 80, 120, 160].into_iter().enumerate() {
        let out = format!("broken{n}");
        workshop.broken_off(&place, "bo", &["backup", "--out", &out], Duration::from_millis(delay_ms));
        whole += usize::from(workshop.has(&out));
        assert!(listed() <= whole, "after {delay_ms} ms a backup counts that nobody has");
    }
    let before = listed();
    let said = workshop.keyd_as(&place, "bo", &["backup", "--out", "whole"]);
    assert!(said.contains("each key unwrapped") && !workshop.has("whole.part"), "{said}");
    assert_eq!(listed(), before + 1);
    let said = workshop.refused_as(&place, "bo", &["backup", "--out", "whole"]);
    assert!(said.contains("exists already and is left as it is"), "{said}");
}
