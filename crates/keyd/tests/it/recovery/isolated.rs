//! A policy's isolation limit: for how long a node that is cut off gives its keys to drives, through starts of the
//! node.

use std::fs::{self, File};
use std::time::SystemTime;

use capstan_keys::cluster::ClusterClient;

use super::members::so;
use super::node::{Place, Workshop, begin, runtime};
use super::{read, wait_for};
use crate::etcd::Etcd;

/// The limit was counted from the time of the replica's file: a copy, a restore, or a transaction that was rolled back
/// at a start began it anew, and the node gave keys out cut off for as long again. That drives are refused at all was
/// shown nowhere.
#[test]
fn a_node_that_is_cut_off_for_too_long_gives_nothing_out_after_a_start_either() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let (node, passphrases) = workshop.found(&place, "state");
    for user in ["ada", "bo", "cy"] {
        workshop.enrol(&place, "user", user, &passphrases[user]);
    }
    let [limited, free] = ["drive1", "drive2"].map(|drive| {
        let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state", &format!("agent/{drive}")));
        workshop.enrol(&place, "agent", drive, &passphrase);
        workshop.identity(drive)
    });
    workshop.keyd_as(&place, "cy", &["policies", "add", "strict", "--isolated-for", "30s"]);
    workshop.keyd_as(&place, "cy", &["groups", "add", "strict", "--policy", "strict"]);
    workshop.keyd_as(&place, "cy", &["agents", "groups", "drive1", "--group", "strict"]);
    workshop.keyd_as(&place, "bo", &["backup", "--out", "first"]);
    let client = |drive| ClusterClient::open(drive, &[place.address()], "").unwrap();
    let key = wait_for(|| begin(&client(&limited), &limited, "A00001"));
    let of_no_limit = wait_for(|| begin(&client(&free), &free, "B00001"));
    let refused = |volume: &str| {
        let begun = begin(&client(&limited), &limited, volume).err().unwrap().to_string();
        let read = read(&client(&limited), &limited, "A00001", &key).err().unwrap().to_string();
        (begun, read)
    };
    let serves_without_limit = || {
        wait_for(|| read(&client(&free), &free, "B00001", &of_no_limit).map(|key| key.tag() == of_no_limit.tag()));
    };

    etcd.kill(0);
    wait_for(|| {
        let standing = workshop.status(&place)["standing"].clone();
        so(standing["cut_off_since_ns"].is_i64(), &format!("it is cut off: {standing}"))
    });
    let cut_off = begin(&client(&limited), &limited, "A00002").unwrap();
    assert_eq!(read(&client(&limited), &limited, "A00002", &cut_off).unwrap().expose(), cut_off.expose());
    let said = wait_for(|| match read(&client(&limited), &limited, "A00001", &key) {
        Ok(_) => Err("it goes on"),
        Err(refused) => Ok(refused.to_string()),
    });
    let since_ns = workshop.status(&place)["standing"]["cut_off_since_ns"].as_i64().unwrap();
    let since = jiff::Timestamp::from_nanosecond(since_ns.into()).unwrap();
    let words =
        [&format!("cut off from the cluster since {since:.0}"), "policy strict", "30 s", "a compliance officer"];
    let says_all = |said: &str| words.iter().all(|part| said.contains(part));
    let (begun, read_again) = refused("A00003");
    assert!([&said, &begun, &read_again].into_iter().all(|said| says_all(said)), "{said}\n{begun}\n{read_again}");
    serves_without_limit();

    // What a copy or a rollback does to the file.
    drop(node);
    File::options()
        .write(true)
        .open(workshop.path("state/replica.db"))
        .unwrap()
        .set_modified(SystemTime::now())
        .unwrap();
    let node = workshop.run(&place, "state");
    serves_without_limit();
    let (begun, read_again) = refused("A00003");
    assert!(says_all(&begun) && says_all(&read_again), "{begun}\n{read_again}");

    // Without its record it does not know, and takes it to be too long.
    drop(node);
    fs::remove_file(workshop.path("state/last-heard")).unwrap();
    let _node = workshop.run(&place, "state");
    serves_without_limit();
    let (begun, read_again) = refused("A00003");
    for said in [begun, read_again] {
        assert!(said.contains("policy strict") && said.contains("no record of when that began"), "{said}");
    }

    etcd.restart(0);
    assert_eq!(wait_for(|| read(&client(&limited), &limited, "A00001", &key)).expose(), key.expose());
    wait_for(|| begin(&client(&limited), &limited, "A00003"));
    wait_for(|| so(workshop.has("state/last-heard"), "it notes that it is in touch"));
}
