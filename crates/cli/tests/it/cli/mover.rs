//! Hosts with drives that join a cell, as people and programs see it.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Bench;
use super::client::{Machine, Printing, enrol, serve};
use super::json::{assert_described, events, schemas};

#[test]
fn a_mover_joins_is_connected_and_is_revoked() {
    let bench = Bench::new(&[]);
    let (mut server, address) = serve(&bench);
    let passphrase = enrol(&bench, "mover", "heron", &address);
    let list = bench.done(&["mover", "list"], 0);
    assert!(list.contains("heron") && list.contains("waiting") && list.contains("never"), "{list}");
    let machine = Machine::new();
    let joined = machine.run(&["mover", "join", &address, "--name", "heron", "--json"], &passphrase, 0);
    let joined: Value = serde_json::from_slice(&joined.stdout).unwrap();
    assert_described(&schemas(), "MoverJoinedRow", std::slice::from_ref(&joined));
    assert_eq!((&joined["mover"], &joined["listen"]), (&"heron".into(), &"0.0.0.0:5703".into()));
    assert_eq!(server.event("joined")["mover"], "heron");
    let settings = fs::read_to_string(machine.0.path().join("state/mover.toml")).unwrap();
    assert!(settings.contains("listen = \"0.0.0.0:5703\"") && settings.contains("# "), "{settings}");

    let mut mover = Printing::start(machine.command(&["mover", "run", "--json"], ""));
    assert_eq!(mover.event("started")["mover"], "heron");
    assert_eq!(mover.event("connected")["address"], joined["servers"][0]);
    assert!(events(&bench, &["client", "list"], 0).is_empty(), "it is no client");
    let rows = events(&bench, &["mover", "list"], 0);
    assert_described(&schemas(), "MemberRow", &rows);
    assert_eq!((&rows[0]["mover"], &rows[0]["state"]), (&"heron".into(), &"enrolled".into()));
    // What it said is written with when it was seen.
    let until = Instant::now() + Duration::from_secs(60);
    while events(&bench, &["mover", "list"], 0)[0]["version"] != env!("CARGO_PKG_VERSION") {
        assert!(Instant::now() < until, "its version is not there within a minute");
        std::thread::sleep(Duration::from_millis(200));
    }
    let changed = events(&bench, &["mover", "revoke", "heron"], 0);
    assert_described(&schemas(), "MemberChangeRow", &changed);
    let error = mover.event("error");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("this mover was revoked") && message.contains("`capstan mover enrol heron`"), "{error}");
    assert_eq!(mover.child.wait().unwrap().code(), Some(1));
    assert_eq!(events(&bench, &["mover", "list"], 0)[0]["state"], "revoked");
    server.stop();
}

#[test]
fn mistakes_on_the_way_of_a_mover_are_answered_with_what_to_do() {
    let bench = Bench::new(&[]);
    let said = bench.said(&["mover", "list"], 0);
    assert!(said.contains("`capstan mover enrol NAME`"), "{said}");
    let (server, address) = serve(&bench);
    let passphrase = enrol(&bench, "mover", "heron", &address);
    let (mover, client) = (Machine::new(), Machine::new());
    let join = ["mover", "join", &address, "--name", "heron"];
    let of_client = enrol(&bench, "client", "heron", &address);
    client.run(&["client", "join", &address, "--name", "heron"], &of_client, 0);
    for (machine, args, passphrase, code, answer) in [
        (&mover, &["mover", "run"][..], "", 1, "Run `capstan mover enrol NAME` at the server"),
        (&mover, &join, "0000-0000-0000-0000-0000", 4, "what `capstan mover enrol heron` printed"),
        (&mover, &["mover", "join", &address, "--name", "egret"], &passphrase, 1, "Run `capstan mover enrol egret`"),
        (&client, &["mover", "run"], "", 1, "is the state directory of a client: give the mover another one"),
        (&client, &join, &passphrase, 1, "is the state directory of a client: give the mover another one"),
    ] {
        let said = machine.said(args, passphrase, code);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    let out = String::from_utf8(mover.run(&join, &passphrase, 0).stdout).unwrap();
    assert!(out.contains("this machine is mover heron") && out.contains("bring their data to 0.0.0.0:5703"), "{out}");
    let said = mover.said(&["client", "run"], "", 1);
    assert!(said.contains("is the state directory of a mover: give the client another one with --state"), "{said}");
    let said = bench.said(&["mover", "enrol", "heron"], 1);
    assert!(said.contains("run `capstan mover revoke heron` first"), "{said}");
    let path = mover.0.path().join("state/mover.toml");
    fs::write(&path, "announce = \"heron\"\n").unwrap();
    let said = mover.said(&["mover", "run"], "", 1);
    assert!(said.contains("mover.toml: announce: \"heron\" is no host and port"), "{said}");
    server.stop();
}

/// On the night on which a mover is away, its volumes are what people ask for.
#[test]
fn volumes_are_listed_while_the_only_mover_is_away() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home", "--quiet"], 0);
    let place = |bench: &Bench| bench.rows(&["volumes"])[0]["place"].as_str().unwrap().to_owned();
    let before = place(&bench);
    let settings = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replacen("mover = \"\"", "mover = \"heron\"", 1)).unwrap();
    let away = place(&bench);
    assert!(away != before && !away.is_empty(), "{away:?} beside {before:?}");
    // What a restore will read can be said, too; it is no good news.
    let restore = ["restore", "home", "--to", "back"];
    let said = bench.said(&[&restore[..], &["--dry-run"]].concat(), 3);
    assert!(said.contains("no library answers") && said.contains("mover heron"), "{said}");
    assert!(said.contains("mount 1: volume"), "{said}");
    assert!(bench.said(&restore, 1).contains("mover heron") && !bench.dir.path().join("back").exists());
    assert!(bench.said(&["drives"], 1).contains("mover heron"));
}
