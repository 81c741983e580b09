//! What an agent says of cartridges and keys, and what people see of it.

use std::time::{Duration, Instant};

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser};
use capstan_keys::api::CartridgeSeenAs;
use capstan_keys::cluster::{ClusterPlace, KeyCluster};
use capstan_keys::{Cartridge, KeyError, KeyProvider, KeyState, Revocation};
use serde_json::Value;

use super::node::Cluster;
use crate::etcd::Etcd;

const USERS: [(&str, &str); 6] = [
    ("sofia", "security-officer"),
    ("carl", "compliance-officer"),
    ("olga", "operator,backup-operator"),
    ("arno", "auditor"),
    ("quinn", "quorum-member"),
    ("quentin", "quorum-member"),
];

#[test]
fn agents_tell_what_they_see() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start(1));
    let cluster = Cluster::found(&etcd.endpoints()[0], &USERS);
    cartridges_are_told_apart(&cluster);
    agents_revoke_where_policies_let_them(&cluster);
    what_agents_are_refused_is_noted(&cluster);
}

fn agent(cluster: &Cluster, name: &str) -> KeyCluster {
    let opened = cluster.json("olga", &format!("agents add {name}"));
    let identity = cluster.enrols("agent", name, opened["passphrase"].as_str().unwrap());
    let place = ClusterPlace { identity, nodes: vec![cluster.address.clone()], site: String::new() };
    let clock = || i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
    KeyCluster::new(place, clock, Box::new(|_| {}))
}

/// Waits until the node has a key to give: one that is alone has those that a backup holds, and half of its pool of
/// four is its reserve.
fn key_is_ready(cluster: &Cluster) {
    let begun = Instant::now();
    for number in 0.. {
        let out = cluster
            .secret("beside", "")
            .with_file_name(format!("backup-{}-{number}", jiff::Timestamp::now().as_nanosecond()));
        cluster.asks("olga", &format!("backup --out {}", out.display())).unwrap();
        if cluster.json("olga", "status")["pool"]["ready"].as_u64() > Some(0) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "no key became ready");
    }
}

fn began(keys: &KeyCluster, cartridge: Cartridge<'_>) -> KeyTag {
    let key = keys.key_for_new_volume(cartridge.volser, None, None, Algorithm::Aes256Gcm, 0).unwrap();
    keys.activate(cartridge, &key.tag(), 0).unwrap();
    key.tag()
}

/// A label that was stuck on a second cartridge made two volumes one: nobody was told.
fn cartridges_are_told_apart(cluster: &Cluster) {
    let keys = agent(cluster, "DRIVE1");
    let volser = Volser::new("A00001").unwrap();
    let serials = ["HPE 0001", "HPE 0002"].map(|text| MediumSerial::new(text).unwrap());
    let [one, two] = [0, 1].map(|at| Cartridge { volser: &volser, serial: Some(&serials[at]) });
    let unit = || cluster.json("olga", "units list").as_array().unwrap()[0].clone();

    key_is_ready(cluster);
    let first = began(&keys, one);
    keys.key_for_append(one, &first, None, 0).unwrap();
    keys.key_for_append((&volser).into(), &first, None, 0).unwrap();
    keys.key_for_reading(one, &first, None, 0).unwrap();
    assert_eq!((&unit()["serial"], &unit()["warning"]), (&Value::from("HPE 0001"), &Value::Null));

    // Nothing is refused, and people are told.
    keys.key_for_reading(two, &first, None, 0).unwrap();
    assert_eq!(unit()["serial"], "HPE 0001");
    assert!(unit()["warning"].as_str().unwrap().contains("HPE 0002"), "{}", unit());
    assert!(cluster.asks("olga", "units list").unwrap().contains("another cartridge has this barcode"));
    keys.key_for_append(two, &first, None, 0).unwrap();
    assert_eq!(unit()["cartridges"].as_array().unwrap().len(), 2, "it is noted once: {}", unit());

    // Begun on the other one, that is the volume; what was before is history.
    key_is_ready(cluster);
    began(&keys, two);
    assert_eq!((&unit()["serial"], &unit()["warning"]), (&Value::from("HPE 0002"), &Value::Null));
    let seen = keys.cartridges_of_volume(&volser).unwrap();
    let seen: Vec<_> = seen.iter().map(|seen| (seen.serial.unwrap(), seen.seen_as)).collect();
    let own = CartridgeSeenAs::Own;
    assert_eq!(seen, [(serials[0], own), (serials[1], CartridgeSeenAs::Another), (serials[1], own)]);

    let log = cluster.json("arno", "audit show --last 1000");
    let warned: Vec<_> =
        log.as_array().unwrap().iter().filter(|line| line.to_string().contains("known-cartridge")).collect();
    let deeds: Vec<_> = warned.iter().map(|line| line["act"].as_str().unwrap_or_default()).collect();
    assert_eq!(deeds, ["key-to-read", "key-to-append", "key-activated"], "{warned:?}");
    assert!(warned.iter().all(|line| line.to_string().contains("HPE 0001")), "{warned:?}");
}

/// A policy said that agents may take keys out of use, and there was no way for one to do it.
fn agents_revoke_where_policies_let_them(cluster: &Cluster) {
    cluster.asks("carl", "policies add lenient --agents-revoke").unwrap();
    cluster.asks("carl", "groups add lenient --policy lenient").unwrap();
    let keys = agent(cluster, "DRIVE2");
    cluster.asks("carl", "agents groups DRIVE2 --group default --group lenient").unwrap();
    let begin = |barcode: &str, pool: &str| {
        key_is_ready(cluster);
        let volser = Volser::new(barcode).unwrap();
        let key = keys.key_for_new_volume(&volser, None, Some(pool), Algorithm::Aes256Gcm, 0).unwrap();
        keys.activate((&volser).into(), &key.tag(), 0).unwrap();
        (volser, key.tag())
    };

    let (_, strict) = begin("B00001", "anything");
    for why in [Revocation::Compromised, Revocation::Retired] {
        let error = keys.revoke(&strict, why).unwrap_err();
        let said = error.to_string();
        assert!(
            error.is_refusal()
                && said.contains("policy default")
                && said.contains(&format!("keys compromise {strict}")),
            "{said}"
        );
    }

    let (volser, first) = begin("B00002", "lenient");
    let revoked = keys.revoke(&first, Revocation::Retired).unwrap();
    assert_eq!((&revoked.volume, revoked.state), (&volser, KeyState::ProcessOnly));
    key_is_ready(cluster);
    let second = keys.key_for_append((&volser).into(), &first, None, 0).unwrap().tag();
    assert_ne!(second, first, "it was to encrypt no more");
    assert_eq!(keys.revoke(&second, Revocation::Compromised).unwrap().state, KeyState::Compromised);
    assert_eq!(keys.revoke(&second, Revocation::Retired).unwrap().state, KeyState::Compromised, "there is no way back");
    keys.key_for_reading((&volser).into(), &second, None, 0).unwrap();

    // Another drive may not even use it.
    let other = agent(cluster, "DRIVE3");
    cluster.asks("carl", "agents groups DRIVE3 --group default").unwrap();
    assert!(other.revoke(&first, Revocation::Compromised).unwrap_err().to_string().contains("group lenient"));
    let unknown = keys.revoke(&KeyTag([9; 16]), Revocation::Compromised).unwrap_err();
    assert!(matches!(unknown, KeyError::KeyMissing { .. }), "{unknown:?}");

    let log = cluster.json("arno", "audit show --last 1000");
    let revoked = log.as_array().unwrap().iter().filter(|line| line["act"] == "key-revoked-by-agent");
    let results: Vec<_> =
        revoked.filter_map(|line| line["result"].as_str()).filter(|result| *result != "begun").collect();
    let (done, refused) = ("done", "refused");
    assert_eq!(results, [refused, refused, done, done, done, refused, refused]);
}

/// A drive that was stolen could try which groups and volumes it opens, and the audit log had nothing of it: refusals
/// alone were not noted.
fn what_agents_are_refused_is_noted(cluster: &Cluster) {
    let keys = agent(cluster, "DRIVE4");
    cluster.asks("carl", "agents groups DRIVE4 --group default").unwrap();
    // It was begun in the group of the pool lenient.
    let volser = Volser::new("B00002").unwrap();
    let listed = cluster.json("olga", "units show B00002");
    let tag: KeyTag = listed[0]["key"].as_str().unwrap().parse().unwrap();
    let refused = |noted: &Value, act: &str, object: &str| {
        let is = |field: &str, value: &str| noted[field] == value;
        assert!(is("act", act) && is("object", object) && is("result", "refused"), "{noted}");
        assert!(is("who", "agent/DRIVE4") && noted["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{noted}");
        assert!(is("why", "the rules forbid it"), "{noted}");
    };
    let of_drive = || {
        let log = cluster.json("arno", "audit show --last 1000");
        let all =
            log.as_array().unwrap().iter().filter(|line| line["who"] == "agent/DRIVE4" && line["result"] == "refused");
        all.cloned().collect::<Vec<_>>()
    };

    keys.key_for_reading((&volser).into(), &tag, None, 0).map(drop).unwrap_err();
    keys.key_for_append((&volser).into(), &tag, None, 0).map(drop).unwrap_err();
    keys.activate((&volser).into(), &tag, 0).unwrap_err();
    let other = Volser::new("B00003").unwrap();
    keys.key_for_new_volume(&other, None, Some("lenient"), Algorithm::Aes256Gcm, 0).map(drop).unwrap_err();
    let noted = of_drive();
    let key = format!("key/{tag}");
    let deeds = [
        ("key-to-read", key.as_str()),
        ("key-to-append", "unit/B00002"),
        ("key-activated", key.as_str()),
        ("key-to-begin", "unit/B00003"),
    ];
    assert_eq!(noted.len(), deeds.len(), "{noted:?}");
    noted.iter().zip(deeds).for_each(|(noted, (act, object))| refused(noted, act, object));
    assert_eq!((&noted[0]["facts"]["volume"], &noted[3]["facts"]["group"]), (&"B00002".into(), &"lenient".into()));

    // Nor does it fill the disk with that: thirty a minute are noted, and how many are left out.
    let begun = Instant::now();
    for _ in 0..60 {
        keys.key_for_reading((&volser).into(), &tag, None, 0).map(drop).unwrap_err();
    }
    let minutes = begun.elapsed().as_secs() / 60 + 2;
    let noted = of_drive().len() as u64;
    assert!(noted >= 30 && noted <= (30 * minutes).min(63), "{noted} are noted");
}
