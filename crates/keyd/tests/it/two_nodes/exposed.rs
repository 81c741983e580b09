//! What a drive got to know stands in the audit log of each node that it asked.

use serde_json::{Value, json};

use crate::etcd::Etcd;
use crate::recovery::node::{Place, Workshop, begin_at, client, read_at, runtime, wait_for};

/// `keyd exposure --agent` read the log of the node that was asked and no other: what a stolen drive had read through
/// the others was not listed, and nothing said so.
#[test]
fn what_a_drive_read_through_another_node_is_listed_or_said_to_be_missing() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let [a, b] = ["a", "b"].map(|name| Place::new(name, &etcd.endpoints()[0]));
    let (_node, passphrases) = workshop.found(&a, "state-a");
    for user in ["ada", "cy", "q1", "q2"] {
        workshop.enrol(&a, "user", user, &passphrases[user]);
    }
    let asked = workshop.json_as(&a, "ada", &["kmas", "add", "b", "--address", &b.address()]);
    workshop.approved(&a, &asked);
    wait_for(|| workshop.join(&b, "state-b", &a, asked["passphrase"].as_str().unwrap()));
    let other = workshop.run(&b, "state-b");
    let [writer, reader] = ["writer", "reader"].map(|name| {
        let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state-a", &format!("agent/{name}")));
        workshop.enrol(&a, "agent", name, &passphrase);
        workshop.identity(name)
    });
    let tag = wait_for(|| begin_at(&a, &writer, "A00001"));
    wait_for(|| read_at(&b, &reader, "A00001", tag));

    let by_reader = ["exposure", "--agent", "reader"];
    let exposed = workshop.json_as(&a, "ada", &by_reader);
    assert_eq!(barcodes(&exposed), ["A00001"], "{exposed}");
    assert_eq!((&exposed["logs_read"], &exposed["missing"]), (&json!(["a", "b"]), &json!([])), "{exposed}");
    let later = workshop.json_as(&a, "ada", &[&by_reader[..], &["--since", "2100-01-01T00:00:00Z"]].concat());
    assert_eq!((barcodes(&later), &later["whole"]), (vec![], &true.into()), "{later}");
    let plan = workshop.keyd_as(&a, "cy", &["rekey-plan", "--agent", "reader"]);
    assert!(plan.contains("b handed it to reader on"), "{plan}");
    let log = workshop.text("state-b/audit/000000000001.jsonl");
    assert!(
        log.lines().any(|line| line.contains("kma/a") && line.contains("log-searched")),
        "it is noted there: {log}"
    );

    // The log that has it is away: the volume is not listed, and that is said.
    drop(other);
    let said = workshop.refused_as(&a, "ada", &by_reader);
    assert!(said.contains("the audit log of node b was not read") && said.contains("cannot be connected to"), "{said}");
    assert!(said.contains("what reader got there to read or append with is missing"), "{said}");
    assert!(said.contains("not everything that is exposed is listed: what is missing, of b,"), "{said}");
    let person = client(&a, &workshop.identity("cy"));
    for path in ["exposure", "rekey-plan"] {
        let told: Value = person.get(&format!("/v1/{path}?agent=reader")).unwrap();
        assert_eq!((&told["whole"], &told["logs_read"]), (&false.into(), &json!(["a"])), "{told}");
        assert_eq!((&told["missing"][0]["kma"], &told["missing"][0]["lack"]), (&"b".into(), &"away".into()), "{told}");
        assert!(told["words"].as_str().unwrap().starts_with("missing: the audit log of node b"), "{told}");
    }
    // Where no log is needed, none is missing.
    let of_key = workshop.json_as(&a, "ada", &["exposure", "--key", &tag.to_string()]);
    assert_eq!((barcodes(&of_key), &of_key["missing"]), (vec!["A00001"], &json!([])), "{of_key}");
    let of_node = workshop.json_as(&a, "ada", &["exposure", "--kma", "b"]);
    assert_eq!((barcodes(&of_node), &of_node["missing"][0]["lack"]), (vec!["A00001"], &"away".into()), "{of_node}");

    let other = workshop.start(&b, "state-b");
    let said = workshop.refused_as(&a, "ada", &by_reader);
    assert!(said.contains("node b is locked") && said.contains("keyd unlock"), "{said}");
    workshop.unlock("state-b");
    let exposed = wait_for(|| workshop.try_as(&a, "ada", &by_reader));
    assert!(exposed.contains("A00001"), "{exposed}");

    drop(other);
    let asked = workshop.json_as(&a, "ada", &["kmas", "remove", "b"]);
    workshop.approved(&a, &asked);
    let said = workshop.refused_as(&a, "ada", &by_reader);
    assert!(said.contains("node b was removed") && said.contains("grep agent/reader"), "{said}");
}

fn barcodes(exposed: &Value) -> Vec<&str> {
    exposed["units"].as_array().unwrap().iter().map(|unit| unit["barcode"].as_str().unwrap()).collect()
}
