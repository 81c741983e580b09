//! Keys that come to a cluster from a sealed store, are read through it, and leave it again: by quorum, and as policies
//! say.

use std::fs;
use std::path::PathBuf;

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::cluster::{ClusterPlace, KeyCluster};
use capstan_keys::{
    Agent, Argon2Cost, ExportKey, ExportSelection, ExportedKey, ImportOutcome, KeyExport, KeyProvider, KeyRecord,
    KeyState, Name, SealedStore, Unlock, seal_export, wrap_for_export,
};
use zeroize::Zeroizing;

use super::node::Cluster;
use crate::etcd::Etcd;

const USERS: [(&str, &str); 6] = [
    ("sofia", "security-officer"),
    ("carl", "compliance-officer"),
    ("cora", "compliance-officer"),
    ("olga", "operator"),
    ("quinn", "quorum-member"),
    ("quentin", "quorum-member"),
];
const CHEAP: Argon2Cost = Argon2Cost { memory_kib: 64, iterations: 1, lanes: 1 };
const NOW_NS: i64 = 1_790_000_000_000_000_000;

#[test]
fn keys_come_and_go() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start(1));
    let ground = Ground { cluster: Cluster::found(&etcd.endpoints()[0], &USERS), store: tempfile::tempdir().unwrap() };
    let (file, tags) = ground.exported_by_a_store();
    ground.makes_groups();
    ground.policy_forbids_the_import(&file);
    ground.comes_in(&file, &tags);
    ground.a_drive_reads(&tags);
    ground.comes_in_again_as_known(&file);
    ground.contradiction_is_refused(&file);
    ground.policy_forbids_the_export();
    ground.plans_have_the_state_of_the_moment();
    ground.leaves(&tags);
}

struct Ground {
    cluster: Cluster,
    store: tempfile::TempDir,
}

impl Ground {
    fn store(&self, name: &str) -> SealedStore {
        let unlock = Unlock::passphrase(text("the store's"));
        SealedStore::create(&self.store.path().join(name), &unlock, CHEAP).unwrap()
    }

    /// A store with two volumes, one of which was begun twice, and its export.
    fn exported_by_a_store(&self) -> (PathBuf, Vec<(Volser, KeyTag)>) {
        let mut store = self.store("old.sealed");
        let drive = Agent::anything("CPT0000001".parse().unwrap());
        let tags = ["A00001", "A00001", "A00002"].map(|name| {
            let volser = volser(name);
            let key =
                store.key_for_new_volume(&volser, &drive, &Name::default(), Algorithm::Aes256Gcm, NOW_NS).unwrap();
            store.activate(&volser, &key.tag(), NOW_NS).unwrap();
            (volser, key.tag())
        });
        let export = store.export(&ExportSelection::All, &text("off-site"), CHEAP).unwrap();
        let file = self.store.path().join("keys.export");
        fs::write(&file, export).unwrap();
        (file, tags.to_vec())
    }

    fn makes_groups(&self) {
        for command in [
            "policies add shut --no-import --no-export",
            "policies add inward --no-export",
            "policies add brief --encrypt-for 1s --decrypt-for 10y --no-export",
            "groups add moved",
            "groups add closed --policy shut",
            "groups add kept --policy inward",
            "groups add brief --policy brief",
        ] {
            self.cluster.asks("carl", command).unwrap();
        }
    }

    /// Asks for something, and has it approved; gives the request.
    fn approved(&self, who: &str, command: &str) -> String {
        let asked = self.cluster.json(who, command);
        let (id, digest) = (asked["id"].as_str().unwrap(), asked["digest"].as_str().unwrap());
        for member in ["quinn", "quentin"] {
            self.cluster.asks(member, &format!("pending approve {id} --digest {digest}")).unwrap();
        }
        assert_eq!(self.cluster.json("quinn", &format!("pending show {id}"))["stage"], "approved");
        id.to_owned()
    }

    fn carried_out(&self, who: &str, what: &str, request: &str, passphrase: &str) -> Result<String, String> {
        let secret = self.cluster.secret("export", passphrase);
        self.cluster.asks(who, &format!("keys {what} --request {request} --passphrase-file {}", secret.display()))
    }

    fn policy_forbids_the_import(&self, file: &std::path::Path) {
        let said = self.cluster.asks("carl", &format!("keys import {} --group closed", file.display())).unwrap_err();
        assert!(said.contains("closed") && said.contains("policy shut"), "{said}");
        let said = self.cluster.asks("olga", &format!("keys import {} --group moved", file.display())).unwrap_err();
        assert!(said.contains("may not import keys"), "{said}");
    }

    fn comes_in(&self, file: &std::path::Path, tags: &[(Volser, KeyTag)]) {
        let import = format!("import {}", file.display());
        let asked = self.cluster.json("carl", &format!("keys {import} --group moved"));
        let id = asked["id"].as_str().unwrap();
        let said = self.carried_out("carl", &import, id, "off-site").unwrap_err();
        assert!(said.contains("approvals"), "nobody has approved it: {said}");

        let id = self.approved("carl", &format!("keys {import} --group moved"));
        let words = self.cluster.json("quinn", &format!("pending show {id}"))["words"].to_string();
        assert!(words.contains("keys = 3") && words.contains("group = moved"), "{words}");
        assert!(self.carried_out("cora", &import, &id, "off-site").unwrap_err().contains("carl's"));
        assert!(self.carried_out("carl", &import, &id, "on-site").unwrap_err().contains("passphrase"));
        let other = self.store.path().join("other.export");
        fs::write(&other, self.store("other.sealed").export(&ExportSelection::All, &text("off-site"), CHEAP).unwrap())
            .unwrap();
        let other = format!("import {}", other.display());
        assert!(self.carried_out("carl", &other, &id, "off-site").unwrap_err().contains("another file"));

        // One key at a time, as a million go some thousands at a time: all of them are checked before the first is
        // taken.
        let said = self.carried_out("carl", &format!("{import} --keys-at-once 1"), &id, "off-site").unwrap();
        assert_eq!(said.matches("added").count(), 3, "{said}");
        let said = self.carried_out("carl", &import, &id, "off-site").unwrap_err();
        assert!(said.contains("carl"), "it is carried out once: {said}");
        let keys = self.cluster.json("olga", "units show A00001");
        let states: Vec<_> = keys.as_array().unwrap().iter().map(|key| key["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["process-only", "protect-and-process"]);
        assert!(keys.as_array().unwrap().iter().all(|key| key["group"] == "moved"));
        assert_eq!(self.cluster.json("olga", "keys list").as_array().unwrap().len(), tags.len());
    }

    /// What was written under the store is read, and gone on with, by a drive of the cluster.
    fn a_drive_reads(&self, tags: &[(Volser, KeyTag)]) {
        let opened = self.cluster.json("olga", "agents add DRIVE1");
        let identity = self.cluster.enrols("agent", "DRIVE1", opened["passphrase"].as_str().unwrap());
        let place = ClusterPlace { identity, nodes: vec![self.cluster.address.clone()], site: String::new() };
        let clock = || i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap();
        let keys = KeyCluster::new(place, clock, Box::new(|_| {}));
        let (volser, tag) = &tags[0];
        let said = keys.key_for_reading(volser.into(), tag, None, NOW_NS).err().unwrap().to_string();
        assert!(said.contains("moved"), "the group is not this drive's yet: {said}");
        self.cluster.asks("carl", "agents groups DRIVE1 --group moved").unwrap();
        for (volser, tag) in tags {
            assert_eq!(keys.key_for_reading(volser.into(), tag, None, NOW_NS).unwrap().tag(), *tag);
        }
        let (volser, tag) = &tags[2];
        assert_eq!(keys.key_for_append(volser.into(), tag, None, NOW_NS).unwrap().tag(), *tag);
    }

    fn comes_in_again_as_known(&self, file: &std::path::Path) {
        let import = format!("import {}", file.display());
        let id = self.approved("cora", &format!("keys {import} --group kept"));
        let said = self.carried_out("cora", &import, &id, "off-site").unwrap();
        assert_eq!(said.matches("known").count(), 3, "{said}");
        let keys = self.cluster.json("olga", "keys list");
        assert!(keys.as_array().unwrap().iter().all(|key| key["group"] == "moved"), "a key keeps its group");
    }

    /// One of the keys, said to be another volume's, together with one that is new.
    fn contradiction_is_refused(&self, file: &std::path::Path) {
        let bytes = fs::read(file).unwrap();
        let export = KeyExport::read(&bytes).unwrap();
        let export_key = export.export_key(&text("off-site")).unwrap();
        let mut keys = export.open(&export_key).unwrap();
        keys.truncate(1);
        keys[0].record.volser = volser("B00001");
        keys.insert(0, fresh("A00009"));
        keys.insert(0, fresh("A00008"));
        let export_key = ExportKey::random().unwrap();
        let wrapped = wrap_for_export(&keys, &export_key).unwrap();
        let file = self.store.path().join("forged.export");
        fs::write(&file, seal_export(&wrapped, &export_key, &text("off-site"), CHEAP).unwrap()).unwrap();
        let import = format!("import {}", file.display());
        let id = self.approved("carl", &format!("keys {import} --group moved"));
        for import in [&import, &format!("{import} --keys-at-once 1")] {
            let said = self.carried_out("carl", import, &id, "off-site").unwrap_err();
            assert!(said.contains("A00001") && said.contains("B00001"), "{said}");
            assert!(self.cluster.asks("olga", "units show A00009").is_err(), "all of it or nothing");
        }
    }

    fn policy_forbids_the_export(&self) {
        let file = self.store.path().join("kept.export");
        let export_key = ExportKey::random().unwrap();
        let wrapped = wrap_for_export(&[fresh("K00001")], &export_key).unwrap();
        fs::write(&file, seal_export(&wrapped, &export_key, &text("off-site"), CHEAP).unwrap()).unwrap();
        self.imported(&file, "kept");
        for what in ["--group kept", "--unit K00001"] {
            let said = self.cluster.asks("carl", &format!("keys export {what}")).unwrap_err();
            assert!(said.contains("policy inward"), "{what}: {said}");
        }
        assert!(self.cluster.asks("sofia", "keys export --all").unwrap_err().contains("may not export keys"));
    }

    /// Both commands showed the state on record, which a period that is over does not change.
    fn plans_have_the_state_of_the_moment(&self) {
        let file = self.store.path().join("brief.export");
        let export_key = ExportKey::random().unwrap();
        let mut key = fresh("T00001");
        (key.record.state, key.record.retired_ns) = (KeyState::ProtectAndProcess, None);
        let tag = key.record.tag;
        let wrapped = wrap_for_export(&[key], &export_key).unwrap();
        fs::write(&file, seal_export(&wrapped, &export_key, &text("off-site"), CHEAP).unwrap()).unwrap();
        self.imported(&file, "brief");
        self.cluster.says_in_time("olga", "units show T00001", "process-only");
        for (command, listed) in [("rekey-plan", "steps"), ("exposure", "units")] {
            let told = self.cluster.json("carl", &format!("{command} --key {tag}"));
            assert_eq!(told[listed][0]["keys"][0]["state"], "process-only", "{command}: {told}");
        }
        let plan = self.cluster.asks("carl", &format!("rekey-plan --key {tag}")).unwrap();
        assert!(plan.contains(&format!("key {tag} (process-only)")), "{plan}");
    }

    fn imported(&self, file: &std::path::Path, group: &str) {
        let import = format!("import {}", file.display());
        let id = self.approved("carl", &format!("keys {import} --group {group}"));
        self.carried_out("carl", &import, &id, "off-site").unwrap();
    }

    /// The export is a suspect, and a key names it; one that stayed does not.
    fn is_counted(&self, id: &str, tag: &KeyTag) {
        let exposed = self.cluster.json("carl", &format!("exposure --export {id}"));
        let exposed: Vec<_> =
            exposed["units"].as_array().unwrap().iter().map(|unit| unit["barcode"].as_str().unwrap()).collect();
        assert_eq!(exposed, ["A00001", "A00002"], "K00001 stayed, and A00001 still holds what was written last");
        let plan = self.cluster.json("carl", &format!("rekey-plan --key {tag}"));
        assert_eq!((&plan["exports"][0]["id"], &plan["exports"][0]["by"]), (&id.into(), &"carl".into()), "{plan}");
        let stayed = self.cluster.json("olga", "units show K00001");
        let plan = self.cluster.json("carl", &format!("rekey-plan --key {}", stayed[0]["key"].as_str().unwrap()));
        assert_eq!(plan["exports"], serde_json::json!([]), "{plan}");
        let said = self.cluster.asks("carl", &format!("exposure --export {}", "0".repeat(32))).unwrap_err();
        assert!(said.contains("There never was an export"), "{said}");
    }

    /// All that may leave does, and a store of one machine reads with it.
    fn leaves(&self, tags: &[(Volser, KeyTag)]) {
        let out = self.store.path().join("leaving.export");
        let export = format!("export --out {}", out.display());
        let id = self.approved("carl", "keys export --all");
        assert!(self.carried_out("cora", &export, &id, "mine").unwrap_err().contains("carl's"));
        assert!(!out.exists(), "what is not whole is no file");
        fs::write(&out, "older keys").unwrap();
        assert!(self.carried_out("carl", &export, &id, "mine").unwrap_err().contains("exists already"));
        fs::remove_file(&out).unwrap();
        // One key at a time, as a million go some thousands at a time: the keys of a volume are in several parts as
        // well.
        let said = self.carried_out("carl", &format!("{export} --keys-at-once 1"), &id, "mine").unwrap();
        assert!(said.contains("3 keys"), "K00001 stays: {said}");
        let again = self.store.path().join("again.export");
        let said = self.carried_out("carl", &format!("export --out {}", again.display()), &id, "mine").unwrap_err();
        assert!(said.contains("carl"), "it is carried out once: {said}");

        self.is_counted(&id, &tags[0].1);

        let old = SealedStore::open(&self.store.path().join("old.sealed"), &Unlock::passphrase(text("the store's")));
        let (old, mut new) = (old.unwrap(), self.store("new.sealed"));
        let imported = new.import(&fs::read(&out).unwrap(), &text("mine"), &Name::default(), NOW_NS).unwrap();
        assert!(imported.iter().all(|key| matches!(key.outcome, ImportOutcome::Added(_))), "{imported:?}");
        let drive = Agent::anything("CPT0000001".parse().unwrap());
        for (volser, tag) in tags {
            let (one, other) = (
                old.key_for_reading(volser, tag, &drive, NOW_NS).unwrap(),
                new.key_for_reading(volser, tag, &drive, NOW_NS).unwrap(),
            );
            assert_eq!(one.expose(), other.expose());
        }
    }
}

fn fresh(name: &str) -> ExportedKey {
    let key = capstan_keys::VolumeKey::new(capstan_keys::Secret::random().unwrap(), Algorithm::Aes256Gcm);
    let record = KeyRecord {
        tag: key.tag(),
        volser: volser(name),
        algorithm: key.algorithm(),
        state: KeyState::ProcessOnly,
        created_ns: NOW_NS,
        activated_ns: Some(NOW_NS),
        retired_ns: Some(NOW_NS),
        destroyed_ns: None,
        imported_ns: None,
    };
    ExportedKey { record, key }
}

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

fn text(secret: &str) -> Zeroizing<String> {
    Zeroizing::new(secret.to_owned())
}
