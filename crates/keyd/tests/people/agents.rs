//! What an agent says of cartridges and keys, and what people see of it.

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser};
use capstan_keys::api::CartridgeSeenAs;
use capstan_keys::cluster::{ClusterPlace, KeyCluster};
use capstan_keys::{Cartridge, KeyProvider};
use serde_json::Value;

use super::etcd;
use super::node::Cluster;

const USERS: [(&str, &str); 5] = [
    ("sofia", "security-officer"),
    ("carl", "compliance-officer"),
    ("olga", "operator,backup-operator"),
    ("arno", "auditor"),
    ("quinn", "quorum-member"),
];

#[test]
fn agents_tell_what_they_see() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let etcd = runtime.block_on(etcd::Etcd::start(1));
    let cluster = Cluster::found(&etcd.endpoints()[0], &USERS);
    let out = cluster.secret("backups", "").with_file_name("first");
    cluster.asks("olga", &format!("backup --out {}", out.display())).unwrap();
    cartridges_are_told_apart(&cluster);
}

fn agent(cluster: &Cluster, name: &str) -> KeyCluster {
    let opened = cluster.json("olga", &format!("agents add {name}"));
    let identity = cluster.enrols("agent", name, opened["passphrase"].as_str().unwrap());
    let place = ClusterPlace { identity, nodes: vec![cluster.address.clone()], site: String::new() };
    let clock = || i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
    KeyCluster::new(place, clock, Box::new(|_| {}))
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
