//! A key that was given out cut off, and is destroyed: journals held it, and are free of it by themselves.

use std::fs::{self, File};
use std::io::{Read, Seek};

use serde_json::Value;

use crate::etcd::Etcd;
use crate::recovery::node::{Place, Workshop, begin_at, runtime, wait_for};

/// Longer than a journal that holds nothing.
const ENTRY_LEN: u64 = 200;

/// Certificates left journals out: a key that was given out cut off lay on, wrapped, in the journal of the node that
/// gave it and in the copy that the other one keeps, until a megabyte of entries had come together, and was certified
/// as gone.
#[test]
fn what_was_given_out_cut_off_is_not_certified_before_journals_are_wiped() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let [a, b] = ["a", "b"].map(|name| Place::new(name, &etcd.endpoints()[0]));
    let (_node, passphrases) = workshop.found(&a, "state-a");
    for user in ["ada", "bo", "cy", "q1", "q2"] {
        workshop.enrol(&a, "user", user, &passphrases[user]);
    }
    let asked = workshop.json_as(&a, "ada", &["kmas", "add", "b", "--address", &b.address()]);
    workshop.approved(&a, &asked);
    wait_for(|| workshop.join(&b, "state-b", &a, asked["passphrase"].as_str().unwrap()));
    let other = workshop.run(&b, "state-b");
    let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state-a", "agent/drive1"));
    workshop.enrol(&a, "agent", "drive1", &passphrase);
    let drive = workshop.identity("drive1");
    wait_for(|| begin_at(&a, &drive, "A00001"));
    wait_for(|| begin_at(&b, &drive, "A00002"));

    // No majority; each reaches the other.
    etcd.kill(0);
    let tag = wait_for(|| begin_at(&b, &drive, "A00003"));
    let [own, copy] = ["state-b/journal/own", "state-a/journal/copies/b"].map(|file| workshop.path(file));
    let mut volume = 100;
    wait_for(|| {
        // A peer that is too slow once is left alone for a while; what it misses goes along with the next.
        volume += 1;
        begin_at(&b, &drive, &format!("A00{volume}")).map_err(|error| error.to_string())?;
        so(fs::metadata(&copy).is_ok_and(|copy| copy.len() > ENTRY_LEN), "a has a copy of b's journal")
    });
    // A file that is replaced goes on as long as somebody has it open.
    let mut journal = File::open(&own).unwrap();
    let mut other_copy = File::open(&copy).unwrap();
    assert!(written(&mut journal) > 0 && written(&mut other_copy) > 0);
    etcd.restart(0);
    wait_for(|| so(workshop.status(&b)["journal_pending"] == 0, "b has said what it gave out"));
    wait_for(|| so(workshop.status(&a)["standing"] == "current", "a is in touch again"));
    wait_for(|| so(written(&mut journal) == 0, "b has overwritten its journal"));
    assert!(fs::metadata(&own).unwrap().len() < ENTRY_LEN);

    // While b is away nobody can know what its journal holds.
    drop(other);
    let requested = wait_for(|| {
        let said = workshop.try_as(&a, "cy", &["keys", "destroy", &tag.to_string(), "--json"])?;
        serde_json::from_str::<Value>(&said).map_err(|error| error.to_string())
    });
    workshop.approved(&a, &requested);
    let said = workshop.refused_as(&a, "cy", &["certify", &tag.to_string()]);
    assert!(said.contains("Node b has not said that nothing of it is left in its journal"), "{said}");
    // Whether a has looked at its own copies meanwhile is a matter of how busy the machine is.
    assert!(said.contains("Node b may have it in its copies of the journals of a"), "{said}");

    let _other = workshop.run(&b, "state-b");
    let said = wait_for(|| workshop.try_as(&a, "cy", &["certify", &tag.to_string()]));
    let certificate: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(certificate["kmas"], serde_json::json!(["a", "b"]), "{certificate}");
    assert_eq!(written(&mut other_copy), 0, "a has overwritten its copy");
    assert!(fs::metadata(&copy).unwrap().len() < ENTRY_LEN);
}

fn so(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(format!("it did not come to pass that {what}")) }
}

/// Bytes of a file that are not zero.
fn written(file: &mut File) -> usize {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes.iter().filter(|byte| **byte != 0).count()
}
