//! Backups, and a cluster that is restored from them: the real program, a real etcd, everything else thrown away.

mod autonomous;
mod isolated;
mod left;
mod members;
pub(crate) mod node;
mod put_back;

use std::fs;

use capstan_keys::VolumeKey;
use capstan_keys::api::{KeyGiven, ReadVolume, RequestId};
use capstan_keys::cluster::{ClusterClient, ClusterError, Identity, KeyRequest, Repeat};

use self::node::{Place, Workshop, begin, runtime, wait_for};
use crate::etcd::Etcd;

/// The key to read a volume with.
fn read(client: &ClusterClient, identity: &Identity, volume: &str, of: &VolumeKey) -> Result<VolumeKey, ClusterError> {
    let (key, id) = (KeyRequest::new().unwrap(), RequestId::random().unwrap());
    let peer = identity.certificate().peer.clone();
    let (volume, drive) = (volume.parse().unwrap(), peer.name.clone());
    let asked = ReadVolume { volume, serial: None, drive, key: of.tag(), public: key.public() };
    let given: KeyGiven = client.post("/v1/keys/read", &asked, &id, Repeat::SameRequest)?;
    Ok(key.accept(&given.handed_over, &peer, &id, &given.key, given.algorithm).unwrap())
}

/// No key before a backup; one after it; and when node, state directory and etcd are gone, the same key out of the two
/// files. The drive's certificate holds as before.
#[test]
fn a_cluster_is_restored_from_its_two_backups() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let (node, passphrases) = workshop.found(&place, "state");
    for user in ["ada", "bo", "cy", "q1", "q2"] {
        workshop.enrol(&place, "user", user, &passphrases[user]);
    }
    let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state", "agent/drive1"));
    workshop.enrol(&place, "agent", "drive1", &passphrase);
    let drive = workshop.identity("drive1");
    let client = ClusterClient::open(&drive, &[place.address()], "").unwrap();

    let refused = begin(&client, &drive, "A00001").err().unwrap().to_string();
    assert!(refused.contains("no key to give"), "without a backup: {refused}");
    workshop.back_up_core(&place);
    // Who may back up may not open what is backed up, and the other way round.
    assert!(workshop.refused_as(&place, "ada", &["backup", "--out", "no"]).contains("may not create a backup"));
    let said = workshop.keyd_as(&place, "bo", &["backup", "--out", "first"]);
    assert!(said.contains("each key unwrapped"), "{said}");
    let first = wait_for(|| begin(&client, &drive, "A00001"));
    let said = workshop.keyd_as(&place, "bo", &["backup", "--out", "second", "--place", "safe 2"]);
    assert!(said.contains("each key unwrapped"), "{said}");
    let counted = said.split_once(": ").unwrap().1.split_once(", each key").unwrap().0.to_owned();
    let list = workshop.keyd_as(&place, "bo", &["backups", "list"]);
    assert!(list.contains("safe 2") && list.lines().count() == 2, "{list}");

    // One node is no cluster: that is all that cannot be proved.
    let said = workshop.refused_as(&place, "bo", &["prove"]);
    assert!(said.contains("1 statements"), "{said}");
    let said = workshop.refused_as(&place, "cy", &["certify", &first.tag().to_string()]);
    assert!(said.contains("is not destroyed"), "{said}");

    drop(node);
    drop(etcd);

    // The majority is gone for good, and one node's disk is left.
    let etcd = runtime.block_on(Etcd::start(1));
    let place = Place::new("a", &etcd.endpoints()[0]);
    let said = workshop.restore(&place, "from-replica", ["--replica", "state"], &[]).unwrap();
    assert!(said.contains("epoch 2 has begun") && said.contains("1 keys, each unwrapped"), "{said}");
    assert!(
        !workshop.has("from-replica/replica.backup"),
        "no key that is destroyed later lies in a copy that nobody knows of"
    );
    let node = workshop.run(&place, "from-replica");
    let client = ClusterClient::open(&drive, &[place.address()], "").unwrap();
    assert_eq!(wait_for(|| read(&client, &drive, "A00001", &first)).expose(), first.expose());
    drop(node);
    drop(etcd);

    workshop.lose("state");
    workshop.lose("from-replica");

    // What is left of all are the two files: whether they suffice can be seen before anything is founded.
    let said = workshop.check_backup("second", &["c1", "c2"]).unwrap();
    assert!(said.contains(&counted) && said.contains("were unwrapped"), "{counted}: {said}");
    assert!(workshop.check_backup("second", &["c1"]).unwrap_err().contains("does not open"));
    let whole = fs::read(workshop.path("second")).unwrap();
    let mut altered = whole.clone();
    altered[whole.len() / 2] ^= 1;
    for (name, bytes) in [("cut", &whole[..whole.len() - 40]), ("altered", &altered)] {
        fs::write(workshop.path(name), bytes).unwrap();
        let said = workshop.check_backup(name, &["c1", "c2"]).unwrap_err();
        assert!(said.contains(name), "which file it is: {said}");
    }

    let etcd = runtime.block_on(Etcd::start(1));
    let place = Place::new("b", &etcd.endpoints()[0]);
    let error = workshop.restore(&place, "again", ["--database", "first"], &["--reached", "1:1000000"]).unwrap_err();
    assert!(error.contains("is known to have reached epoch 1"), "an old backup is named, not believed: {error}");
    let said = workshop.restore(&place, "again", ["--database", "second"], &[]).unwrap();
    assert!(said.contains("epoch 2 has begun") && said.contains("1 keys, each unwrapped"), "{said}");
    let error = workshop.restore(&place, "twice", ["--database", "second"], &[]).unwrap_err();
    assert!(error.contains("begins in an empty one"), "{error}");

    let _node = workshop.run(&place, "again");
    let client = ClusterClient::open(&drive, &[place.address()], "").unwrap();
    let again = wait_for(|| read(&client, &drive, "A00001", &first));
    assert_eq!(again.expose(), first.expose(), "the same bytes");
    // Its pool is new: no key of the old one, which may be out there, is given out to write with.
    assert!(begin(&client, &drive, "A00002").err().unwrap().to_string().contains("no key to give"));
    // What is drawn after the backup is not in it.
    wait_for(|| {
        let status = workshop.status(&place);
        let drawn = status["pool"]["waiting"].as_u64().is_some_and(|waiting| waiting > 0);
        members::so(drawn, &format!("its pool is filled: {status}"))
    });
    workshop.keyd_as(&place, "bo", &["backup", "--out", "third"]);
    let second = wait_for(|| begin(&client, &drive, "A00002"));
    assert_ne!(second.tag(), first.tag());
}
