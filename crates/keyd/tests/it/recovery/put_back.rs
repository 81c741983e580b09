//! An etcd that was put back to an older state: the node goes on as if cut off.

use std::time::Duration;

use super::members::so;
use super::node::{Place, Workshop, begin_at, runtime};
use super::wait_for;
use crate::etcd::Etcd;

/// A node that met such a ledger ended: whoever passes on that the majority was heard took the end of the following for
/// the end of the node, and nothing said why. With many keys it never was unlocked, since it had ended before the keys
/// were read.
#[test]
fn a_node_whose_ledger_was_put_back_is_unlocked_and_goes_on_cut_off() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let place = Place::new("a", &etcd.endpoints()[0]);
    let (node, passphrases) = workshop.found(&place, "state");
    workshop.enrol(&place, "user", "ada", &passphrases["ada"]);
    let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state", "agent/drive1"));
    workshop.enrol(&place, "agent", "drive1", &passphrase);
    etcd.kill(0);
    etcd.save(0);
    etcd.restart(0);
    workshop.enrol(&place, "user", "q1", &passphrases["q1"]);
    // A node that had not heard of what was committed has lost nothing, and would see nothing.
    let newest = runtime.block_on(workshop.newest(&etcd, "state"));
    wait_for(|| {
        let applied = workshop.status(&place)["applied"].as_i64().unwrap();
        so(applied >= newest, &format!("its own copy has what was committed at {newest}: {applied}"))
    });
    etcd.kill(0);
    etcd.put_back(0);
    etcd.restart(0);

    // It runs and hears of it, and is started again, locked.
    doubts_its_ledger(&workshop, &place);
    drop(node);
    let _node = workshop.start(&place, "state");
    // Long enough for it to ask its ledger before it is unlocked.
    std::thread::sleep(Duration::from_secs(3));
    workshop.unlock("state");
    doubts_its_ledger(&workshop, &place);
    // It answers, as a node that is cut off does; that it has no key stored twice is another matter.
    let said = begin_at(&place, &workshop.identity("drive1"), "A00001").err().unwrap().to_string();
    assert!(said.contains("no key to give"), "{said}");
    std::thread::sleep(Duration::from_secs(2));
    doubts_its_ledger(&workshop, &place);

    // Somebody starts the right etcd again: the node knows it, by itself. It took a restart, and the holders.
    etcd.kill(0);
    etcd.put_forward(0);
    etcd.restart(0);
    wait_for(|| {
        let status = workshop.status(&place);
        so(
            status["standing"] == "current" && status["doubts"] == serde_json::json!([]),
            &format!("it comes back: {status}"),
        )
    });
}

fn doubts_its_ledger(workshop: &Workshop, place: &Place) {
    wait_for(|| {
        let arguments = ["status", "--json"];
        let status: serde_json::Value =
            serde_json::from_str(&workshop.try_as(place, "ada", &arguments)?).map_err(|error| error.to_string())?;
        let doubts = status["doubts"].to_string();
        let is_so = doubts.contains("put back to an older state") && status["standing"] != "current";
        so(is_so, &format!("it doubts its ledger: {status}"))
    });
}
