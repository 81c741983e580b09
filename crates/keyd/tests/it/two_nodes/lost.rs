//! A node that gave keys out cut off, and was lost with its disk: its keys are found, held back, confirmed, and in
//! every list.

use capstan_format::KeyTag;
use capstan_keys::api::{AppendVolume, KeyGiven};
use capstan_keys::cluster::{ClusterError, Identity, KeyRequest};
use serde_json::Value;

use crate::etcd::Etcd;
use crate::recovery::node::{Place, Workshop, begin_at, client, read_at, runtime, wait_for};

/// The keys were "kept to read with" as keys of `default`: one of another group went to whoever may use `default`, its
/// own drive was refused, an append was told that there is no such key, and no list, export, proof, destruction or
/// exposure knew of them.
#[test]
fn what_a_lost_node_gave_out_is_confirmed_and_managed_as_any_key() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let [a, b] = ["a", "b"].map(|name| Place::new(name, &etcd.endpoints()[0]));
    let (node, passphrases) = workshop.found(&a, "state-a");
    for (user, passphrase) in &passphrases {
        workshop.enrol(&a, "user", user, passphrase);
    }
    let asked = workshop.json_as(&a, "ada", &["kmas", "add", "b", "--address", &b.address()]);
    workshop.approved(&a, &asked);
    wait_for(|| workshop.join(&b, "state-b", &a, asked["passphrase"].as_str().unwrap()));
    let lost = workshop.run(&b, "state-b");
    let [plain, vaulter] = ["plain", "vaulter"].map(|name| {
        let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state-a", &format!("agent/{name}")));
        workshop.enrol(&a, "agent", name, &passphrase);
        workshop.identity(name)
    });
    let officer = |words: &[&str]| workshop.keyd_as(&a, "cy", words);
    officer(&["groups", "add", "vault"]);
    officer(&["agents", "groups", "plain", "--group", "default"]);
    officer(&["agents", "groups", "vaulter", "--group", "vault"]);
    wait_for(|| begin_at(&a, &plain, "A00001"));
    wait_for(|| begin_at(&b, &vaulter, "A00002"));

    // Cut off from the majority and from the other node; then its disk is lost.
    drop(node);
    etcd.kill(0);
    let of_vault = wait_for(|| begin_at(&b, &vaulter, "A00003"));
    let of_default = wait_for(|| begin_at(&b, &plain, "A00004"));
    drop(lost);
    workshop.lose("state-b");
    etcd.restart(0);
    let _node = workshop.run(&a, "state-a");
    let asked = wait_for(|| {
        let said = workshop.try_as(&a, "ada", &["kmas", "remove", "b", "--json"])?;
        serde_json::from_str::<Value>(&said).map_err(|error| error.to_string())
    });
    workshop.approved(&a, &asked);
    let kept = || workshop.json_as(&a, "cy", &["keys", "recovered"]).as_array().unwrap().clone();
    let names = |tag: &KeyTag| kept().iter().any(|key| key["key"] == tag.to_string());
    wait_for(|| if names(&of_vault) && names(&of_default) { Ok(()) } else { Err("the pool of b is kept") });

    // The first use puts it on record, and nobody gets it: neither who may use `default`, nor who wrote the volume.
    let refused = read_at(&a, &plain, "A00003", of_vault).unwrap_err().to_string();
    assert!(refused.contains(&format!("keyd keys confirm {of_vault} --volume A00003")), "{refused}");
    assert!(read_at(&a, &vaulter, "A00003", of_vault).unwrap_err().to_string().contains("must be confirmed first"));
    let refused = append_at(&a, &vaulter, "A00003", of_vault).unwrap_err().to_string();
    assert!(refused.contains("must be confirmed first"), "not that there is no such key: {refused}");
    let listed = workshop.json_as(&a, "cy", &["keys", "list", "--group", "unconfirmed-keys"]);
    assert_eq!((&listed[0]["key"], &listed[0]["volume"]), (&of_vault.to_string().into(), &"A00003".into()), "{listed}");
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let status = workshop.status(&a);
    assert_eq!((&status["unconfirmed_keys"], &status["recovered_keys"]), (&1.into(), &kept().len().into()), "{status}");
    let exposed = workshop.json_as(&a, "cy", &["exposure", "--key", &of_vault.to_string()]);
    assert_eq!(exposed["units"][0]["barcode"], "A00003", "{exposed}");
    // What no volume has named yet is not taken for nothing.
    assert!(workshop.refused_as(&a, "cy", &["exposure", "--key", &of_default.to_string()]).contains("not everything"));
    let said = workshop.refused_as(&a, "ada", &["exposure", "--kma", "b"]);
    assert!(said.contains("were named by no volume yet"), "{said}");
    for words in [["keys", "compromise"], ["keys", "destroy"]] {
        let said = workshop.refused_as(&a, "cy", &[&words[..], &[&of_default.to_string()]].concat());
        assert!(said.contains(&format!("keyd keys confirm {of_default} --volume VOLUME")), "{said}");
    }
    let (code, said, _) = workshop.ended_as(&a, "bo", &["prove", "--json"]);
    let proof: Value = serde_json::from_str(&said).unwrap();
    let claims = |key: &KeyTag, unit: &str| {
        let unproved = proof["unproved"].as_array().unwrap();
        unproved.iter().any(|claim| claim["key"] == key.to_string() && claim["unit"] == unit)
    };
    assert!(code == 1 && claims(&of_vault, "A00003") && claims(&of_default, "recovered"), "{proof}");

    // An export names what it leaves out, and does not end as if it were whole.
    workshop.secret("export", "the passphrase of the export");
    let exported = |out: &str| {
        let asked = workshop.json_as(&a, "cy", &["keys", "export", "--all"]);
        let id = asked["id"].as_str().unwrap();
        for member in ["q1", "q2"] {
            let digest = asked["digest"].as_str().unwrap();
            wait_for(|| workshop.try_as(&a, member, &["pending", "approve", id, "--digest", digest]));
        }
        let words = ["keys", "export", "--request", id, "--out", out, "--passphrase-file", "export.secret"];
        workshop.ended_as(&a, "cy", &words)
    };
    let (code, said, left_out) = exported("first");
    assert!(code == 3 && said.contains("holds 2 keys"), "{code}: {said}{left_out}");
    assert!(left_out.contains(&format!("key {of_vault} of volume A00003")), "{left_out}");
    assert!(left_out.contains(&format!("{} keys of lost nodes", kept().len())), "{left_out}");
    let said = workshop.refused_as(&a, "cy", &["keys", "export", "--unit", "A00003"]);
    assert!(said.contains("must be confirmed first"), "{said}");

    // Confirmed it is a key as any other: to those that may use its group, and to no others.
    assert!(
        workshop
            .refused_as(&a, "ada", &["keys", "confirm", &of_vault.to_string(), "--group", "vault"])
            .contains("may not")
    );
    officer(&["keys", "confirm", &of_vault.to_string(), "--group", "vault"]);
    officer(&["keys", "confirm", &of_vault.to_string(), "--group", "vault"]);
    let said = workshop.refused_as(&a, "cy", &["keys", "confirm", &of_vault.to_string(), "--group", "default"]);
    assert!(said.contains("and group vault"), "{said}");
    assert_eq!(read_at(&a, &vaulter, "A00003", of_vault).unwrap(), of_vault);
    assert!(
        read_at(&a, &plain, "A00003", of_vault).unwrap_err().to_string().contains("may not use keys of group vault")
    );
    // A node that is alone gives out what a backup has.
    workshop.keyd_as(&a, "bo", &["backup", "--out", "alone"]);
    let next = wait_for(|| append_at(&a, &vaulter, "A00003", of_vault));
    assert_ne!(next, of_vault, "what may have been given out before writes nothing more");
    let of_unit = workshop.json_as(&a, "cy", &["units", "show", "A00003"]);
    let groups: Vec<_> = of_unit.as_array().unwrap().iter().map(|key| &key["group"]).collect();
    assert_eq!(groups, ["vault", "vault"], "{of_unit}");
    // An officer may know better than the drive, and before any drive.
    officer(&["keys", "confirm", &of_default.to_string(), "--volume", "A00004", "--group", "default"]);
    assert_eq!(read_at(&a, &plain, "A00004", of_default).unwrap(), of_default);
    let (_, said, left_out) = exported("second");
    assert!(said.contains("holds 5 keys") && !left_out.contains("of volume"), "{said}{left_out}");

    let asked = workshop.json_as(&a, "cy", &["keys", "destroy", &of_vault.to_string()]);
    // Who approves reads what it is of, and what goes with it: a tag alone was shown.
    let words = workshop.json_as(&a, "q1", &["pending", "show", asked["id"].as_str().unwrap()])["words"].to_string();
    for part in
        ["volume = A00003", "group = vault", "state = process-only", "asked-for-by = ", "under it", "1 other keys"]
    {
        assert!(words.contains(part), "{part}: {words}");
    }
    workshop.approved(&a, &asked);
    assert!(read_at(&a, &vaulter, "A00003", of_vault).unwrap_err().to_string().contains("was destroyed"));
}

fn append_at(place: &Place, drive: &Identity, volume: &str, first: KeyTag) -> Result<KeyTag, ClusterError> {
    let name = drive.certificate().peer.name.clone();
    let (volume, public) = (volume.parse().unwrap(), KeyRequest::new().unwrap().public());
    let asked = AppendVolume { volume, serial: None, drive: name, first, public };
    Ok(client(place, drive).post::<KeyGiven>("/v1/keys/append", &asked)?.key)
}
