//! Core security backups: the quorum's leave, for custodians that it knows by name, and a file that they open.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use capstan_keyd::backup::CoreBackup;
use capstan_keys::Name;
use capstan_keys::cluster::{Identity, NodeClient};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::node::Cluster;
use crate::etcd::Etcd;

const USERS: [(&str, &str); 6] = [
    ("sofia", "security-officer,quorum-member"),
    ("sven", "security-officer"),
    ("carl", "compliance-officer"),
    ("arno", "auditor"),
    ("quinn", "quorum-member"),
    ("quentin", "quorum-member"),
];
const CUSTODIANS: [&str; 3] = ["dan", "eve", "flo"];
const ASK: &str = "core-backup --custodian dan --custodian eve --custodian flo";

struct Ground {
    cluster: Cluster,
    folder: PathBuf,
}

/// One security officer made a core security backup on their own word, for custodians of their choice and be it 1 of 1:
/// with the disk of any node they had every key, and no quorum was asked.
#[test]
fn no_officer_backs_up_core_security_alone() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start(1));
    let cluster = Cluster::found(&etcd.endpoints()[0], &USERS);
    let folder = cluster.secret("dan", "the passphrase of dan").parent().unwrap().to_owned();
    for custodian in &CUSTODIANS[1..] {
        cluster.secret(custodian, &format!("the passphrase of {custodian}"));
    }
    let ground = Ground { cluster, folder };

    ground.too_weak_is_refused();
    let id = ground.waits_for_the_quorum();
    ground.is_carried_out_by_nobody_else(&id);
    ground.is_carried_out_once(&id);
    ground.is_weighed_again_when_it_is_carried_out();
}

impl Ground {
    fn too_weak_is_refused(&self) {
        for (asked, so) in [
            ("core-backup --custodian sofia --needed 1", "2 of its holders to open the root key"),
            ("core-backup --custodian dan --custodian eve --custodian flo --needed 1", "Let 2 of them be needed"),
            ("core-backup --custodian dan --custodian eve --needed 3", "at most all"),
            ("core-backup --custodian dan --custodian dan --needed 2", "the same name"),
            // What belongs to carrying it out was passed over, and whoever asked as before took a file to be there.
            ("core-backup --custodian dan --custodian eve --needed 2 --out core", "cannot be used with"),
            ("keys export --all --out keys", "cannot be used with"),
        ] {
            let said = self.cluster.asks("sofia", asked).unwrap_err();
            assert!(said.contains(so), "{asked}: {said}");
        }
        assert!(self.cluster.asks("carl", &format!("{ASK} --needed 2")).unwrap_err().contains("may not"));
        assert_eq!(self.cluster.json("arno", "pending list"), json!([]), "nobody is asked for these");
    }

    /// Asks, looks what approvers read, and has it approved.
    fn waits_for_the_quorum(&self) -> String {
        let asked = self.asked();
        let id = asked["id"].as_str().unwrap();
        let words = self.cluster.json("quinn", &format!("pending show {id}"))["words"].as_str().unwrap().to_owned();
        for line in ["custodians = dan, eve, flo", "needed = 2", "opens = every key of the cluster"] {
            assert!(words.contains(line), "{words}");
        }
        let said = self.carried_out("sofia", id, "early").unwrap_err();
        assert!(said.contains("0 of 2 approvals"), "{said}");
        let own = format!("pending approve {id} --digest {}", asked["digest"].as_str().unwrap());
        assert!(self.cluster.asks("sofia", &own).unwrap_err().contains("cannot approve"));
        self.approved(&asked);
        id.to_owned()
    }

    fn is_carried_out_by_nobody_else(&self, id: &str) {
        let said = self.carried_out("sven", id, "stolen").unwrap_err();
        assert!(said.contains("is sofia's"), "{said}");
        assert!(self.carried_out("quinn", id, "stolen").unwrap_err().contains("may not"));
        assert!(!self.folder.join("stolen").exists() && !self.folder.join("early").exists());
        // For nobody but those who were approved.
        let sofia = Identity::load(&self.cluster.identity("sofia")).unwrap();
        let sofia = NodeClient::new(&sofia, &self.cluster.address, Duration::from_secs(20)).unwrap();
        for others in [&["sofia"][..], &["dan", "eve"], &["dan", "eve", "sofia"]] {
            let custodian = |name: &&str| json!({"name": name, "passphrase": "mine"});
            let question = json!({"custodians": others.iter().map(custodian).collect::<Vec<_>>()});
            let refused = sofia.post::<Value>(&format!("/v1/core-backups/{id}"), &question).unwrap_err().to_string();
            assert!(refused.contains("for dan, eve, flo"), "{others:?}: {refused}");
        }
    }

    /// Also by two that are typed at one moment.
    fn is_carried_out_once(&self, id: &str) {
        let outs = ["core", "core-again"];
        let said = std::thread::scope(|scope| {
            let both = outs.map(|out| scope.spawn(move || self.carried_out("sofia", id, out)));
            both.map(|one| one.join().unwrap())
        });
        assert_eq!(said.iter().filter(|said| said.is_ok()).count(), 1, "{said:?}");
        let made: Vec<_> = outs.iter().filter(|out| self.folder.join(out).exists()).collect();
        assert_eq!(made.len(), 1, "{made:?}");
        let said = self.carried_out("sofia", id, "third").unwrap_err();
        assert!(said.contains("carried out already"), "{said}");

        let core = CoreBackup::read(&self.folder.join(made[0])).unwrap();
        assert_eq!(
            (core.threshold(), core.custodians().map(Name::as_str).collect::<Vec<_>>()),
            (2, CUSTODIANS.to_vec())
        );
        let share = |name: &str| {
            let passphrase = Zeroizing::new(format!("the passphrase of {name}"));
            core.open_share(&name.parse().unwrap(), &passphrase).unwrap()
        };
        assert!(core.open([&share("dan")]).is_err());
        assert!(core.open([&share("flo"), &share("dan")]).is_ok());
        let log = self.cluster.json("arno", "audit show --last 1000");
        let done = |entry: &&Value| entry["act"] == "back-up-core-security" && entry["result"] == "done";
        let done: Vec<_> = log.as_array().unwrap().iter().filter(done).map(ToString::to_string).collect();
        assert!(done.iter().any(|entry| entry.contains("dan, eve, flo")), "{done:?}");
    }

    /// What was enough when it was asked for is not any more once the root key has been split anew.
    fn is_weighed_again_when_it_is_carried_out(&self) {
        let asked = self.asked();
        self.approved(&asked);
        let (state, holder) = (self.folder.join("state"), self.folder.join("holder"));
        let of = |names: [&str; 3], flag: &str| {
            names.iter().map(|name| format!(" {flag} {name}={}", holder.display())).collect::<String>()
        };
        let split = format!(
            "root split --state {} --given h1 --given h2{} --holder h1 --holder h2 --holder h3 --needed 3{}",
            state.display(),
            of(["h1", "h2", "h3"], "--passphrase-file"),
            of(["h1", "h2", "h3"], "--new-passphrase-file"),
        );
        self.approved(&self.cluster.json("sofia", &split));
        let begun = Instant::now();
        let refused = loop {
            match self.cluster.asks("sofia", &format!("{ASK} --needed 2")) {
                Err(said) => break said,
                Ok(said) => assert!(begun.elapsed() < Duration::from_secs(20), "{said}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        assert!(refused.contains("3 of its holders"), "{refused}");
        let said = self.carried_out("sofia", asked["id"].as_str().unwrap(), "late").unwrap_err();
        assert!(said.contains("3 of its holders") && !self.folder.join("late").exists(), "{said}");
    }

    fn asked(&self) -> Value {
        self.cluster.json("sofia", &format!("{ASK} --needed 2"))
    }

    fn approved(&self, asked: &Value) {
        let (id, digest) = (asked["id"].as_str().unwrap(), asked["digest"].as_str().unwrap());
        for member in ["quinn", "quentin"] {
            self.cluster.asks(member, &format!("pending approve {id} --digest {digest}")).unwrap();
        }
    }

    fn carried_out(&self, who: &str, id: &str, out: &str) -> Result<String, String> {
        let file = |name: &&str| format!(" --passphrase-file {name}={}", self.folder.join(name).display());
        let files: String = CUSTODIANS.iter().map(file).collect();
        let out = self.folder.join(out);
        let said = self.cluster.asks(who, &format!("core-backup --request {id} --out {}{files}", out.display()));
        if said.is_ok() {
            assert!(fs::metadata(out).unwrap().len() > 100);
        }
        said
    }
}
