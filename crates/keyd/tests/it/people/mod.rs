//! People at work: the real program, one etcd, several users; who may what, by whose word, and what acts at once.

mod agents;
mod custodians;
mod moves;
mod node;
mod table;

use capstan_keys::cluster::{ClusterClient, Identity, NodeClient};
use serde_json::Value;

use crate::etcd::Etcd;

use node::Cluster;

/// Who is there from the beginning, and as what.
const USERS: [(&str, &str); 6] = [
    ("sofia", "security-officer"),
    ("carl", "compliance-officer"),
    ("olga", "operator"),
    ("arno", "auditor"),
    ("quinn", "quorum-member"),
    ("quentin", "quorum-member"),
];

#[test]
fn people_govern_the_cluster() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start(1));
    let cluster = Cluster::found(&etcd.endpoints()[0], &USERS);

    roles_are_held_to(&cluster);
    policies_and_groups_are_made(&cluster);
    revocation_acts_on_an_open_connection(&cluster);
    tries_to_enrol_are_on_record(&cluster);
    nobody_burns_an_enrolment(&cluster);
    holders_let_somebody_in_again(&cluster);
    the_quorum_adds_a_user(&cluster);
    sites_are_kept(&cluster);
    the_quorum_says_no(&cluster);
    nobody_is_left_to_govern_is_refused(&cluster);
    the_quorum_changes_itself(&cluster);
    the_log_proves_itself(&cluster);
}

fn roles_are_held_to(cluster: &Cluster) {
    for (who, command, may) in [
        ("sofia", "policies list", "no"),
        ("carl", "policies list", "yes"),
        ("olga", "policies list", "yes"),
        ("quinn", "agents list", "no"),
        ("arno", "agents list", "yes"),
        ("carl", "agents add DRIVE9", "no"),
        ("arno", "agents revoke DRIVE9", "no"),
        ("olga", "users list", "no"),
        ("quinn", "users list", "yes"),
        ("olga", "audit show", "no"),
        ("arno", "audit show", "yes"),
        ("quinn", "pending list", "yes"),
        ("olga", "pending list", "no"),
        ("olga", "kmas list", "yes"),
        ("quinn", "kmas add k2 --address 127.0.0.1:1", "no"),
        ("olga", "kmas remove k1", "no"),
        ("carl", "kmas move k1 --site cellar", "no"),
        ("olga", "kmas confirm-destroyed k1", "no"),
        ("sofia", "keys list", "no"),
        ("olga", "keys list", "yes"),
    ] {
        match (cluster.asks(who, command), may) {
            (Ok(_), "yes") => {}
            (Err(said), "no") => assert!(said.contains("may not"), "{who}: {command}: {said}"),
            (other, _) => panic!("{who}: {command}: {other:?}"),
        }
    }
    let log = cluster.json("arno", "audit show --last 1000");
    let refused = log.as_array().unwrap().iter().filter(|record| record["result"] == "refused");
    assert!(refused.count() >= 8, "each refusal is noted");
}

fn policies_and_groups_are_made(cluster: &Cluster) {
    cluster
        .asks("carl", "policies add strict --encrypt-for 30d --decrypt-for 10y --isolated-for 12h --no-export")
        .unwrap();
    let policies = cluster.json("olga", "policies list");
    let strict = policies.as_array().unwrap().iter().find(|policy| policy["name"] == "strict").unwrap();
    assert_eq!((&strict["isolation_seconds"], &strict["export"]), (&Value::from(43_200), &Value::from("forbidden")));
    // A second one of the name took its place without a word, and what it did not say was gone.
    let said = cluster.asks("carl", "policies add strict --agents-revoke").unwrap_err();
    assert!(said.contains("exists already") && said.contains("--replace"), "{said}");
    assert_eq!(cluster.json("olga", "policies list"), policies);
    cluster.asks("carl", "policies add strict --replace --isolated-for 6h --no-export").unwrap();
    let strict = cluster.json("olga", "policies list")[1].clone();
    assert_eq!((&strict["name"], &strict["isolation_seconds"]), (&Value::from("strict"), &Value::from(21_600)));
    cluster.asks("carl", "groups add payroll --policy strict").unwrap();
    let said = cluster.asks("carl", "groups add lost --policy nowhere").unwrap_err();
    assert!(said.contains("nowhere"), "{said}");
    // An operator enrols a drive; which keys it may have is for a compliance officer to say.
    assert!(cluster.asks("olga", "agents add DRIVE1 --group payroll").is_err());
}

fn revocation_acts_on_an_open_connection(cluster: &Cluster) {
    let opened = cluster.json("olga", "agents add DRIVE1");
    let identity = cluster.enrols("agent", "DRIVE1", opened["passphrase"].as_str().unwrap());
    cluster.asks("carl", "agents groups DRIVE1 --group payroll").unwrap();
    let agents = cluster.json("olga", "agents list");
    assert_eq!(agents[0]["groups"]["groups"], Value::from(vec!["payroll"]));
    assert_eq!((&agents[0]["certificates"], &agents[0]["enrolment"]), (&Value::from(1), &Value::from("used")));

    let identity = Identity::load(&identity).unwrap();
    let drive = ClusterClient::open(&identity, std::slice::from_ref(&cluster.address), "").unwrap();
    drive.get::<Value>("/v1/units/A00001/keys").unwrap();
    let listed = cluster.asks("olga", "agents list").unwrap();
    assert!(listed.starts_with("NAME    CERTIFICATES  ENROLMENT  UNASKED  MAY USE\n"), "{listed}");
    // A drive looks for nodes; how one is, is for people.
    drive.get::<Value>("/v1/kmas").unwrap();
    assert!(drive.get::<Value>("/v1/status").unwrap_err().to_string().contains("does not need that"));
    let library = cluster.json("olga", "kmip-clients add LIBRARY1")["passphrase"].as_str().unwrap().to_owned();
    let library = Identity::load(&cluster.enrols("kmip", "LIBRARY1", &library)).unwrap();
    let library = NodeClient::new(&library, &cluster.address, std::time::Duration::from_secs(10)).unwrap();
    for path in ["/v1/status", "/v1/kmas"] {
        let said = library.get::<Value>(path).unwrap_err().to_string();
        assert!(said.contains("does not need that"), "{path}: {said}");
    }
    cluster.asks("sofia", "agents revoke DRIVE1").unwrap();
    let error = drive.get::<Value>("/v1/units/A00001/keys").unwrap_err();
    assert!(error.to_string().contains("revoked"), "{error}");
    assert!(cluster.asks("sofia", "agents revoke DRIVE1").unwrap_err().contains("no certificate"));
}

/// They were noted without an address, those that were refused as if they had been done, and guesses not at all.
fn tries_to_enrol_are_on_record(cluster: &Cluster) {
    let opened = |drive: &str| cluster.json("olga", &format!("agents add {drive}"))["passphrase"].clone();
    let (right, wrong) = (opened("GUESSED"), opened("OTHER"));
    cluster.try_enrol("agent", "GUESSED", wrong.as_str().unwrap()).unwrap_err();
    let identity = cluster.enrols("agent", "GUESSED", right.as_str().unwrap());
    std::fs::remove_file(identity).unwrap();
    cluster.try_enrol("agent", "GUESSED", right.as_str().unwrap()).unwrap_err();
    let log = cluster.json("arno", "audit show --last 1000");
    let noted = log.as_array().unwrap().iter().filter(|record| record["object"] == "agent/GUESSED");
    let tries: Vec<_> = noted.filter(|record| record["act"] != "add-agent").collect();
    let said = |record: &Value| (record["act"].clone(), record["result"].clone());
    let (tried, refused) = (("enrolment-tried", "begun"), ("enrolment-refused", "refused"));
    let expected = [tried, refused, tried, refused];
    let expected = expected.map(|(act, result)| (Value::from(act), Value::from(result)));
    assert_eq!(tries.iter().map(|record| said(record)).collect::<Vec<_>>(), expected);
    let why = tries.iter().filter_map(|record| record["why"].as_str()).collect::<Vec<_>>();
    assert_eq!(why, ["the passphrase was not proved", "it was used, or is over"]);
    assert!(tries.iter().all(|record| record["from"].as_str().unwrap().starts_with("127.0.0.1:")), "{tries:?}");
}

/// Five tries of a stranger locked an enrolment for good, and a file that could not be written used one up.
fn nobody_burns_an_enrolment(cluster: &Cluster) {
    let opened = |drive: &str| cluster.json("olga", &format!("agents add {drive}"))["passphrase"].clone();
    let (right, wrong) = (opened("WANTED"), opened("UNWANTED"));
    let (right, wrong) = (right.as_str().unwrap(), wrong.as_str().unwrap());
    for _ in 0..7 {
        cluster.try_enrol("agent", "WANTED", wrong).unwrap_err();
    }
    for (form, place) in [("--identity", "nowhere/wanted.pem"), ("--split", "nowhere/wanted")] {
        let said = cluster.try_enrol_into("agent", "WANTED", right, form, place).unwrap_err();
        assert!(said.contains("there is no folder") && said.contains("Nothing was enrolled"), "{said}");
    }
    cluster.enrols("agent", "WANTED", right);
}

/// With all founders' passphrases used up, lost or past their week nobody could let anybody in.
fn holders_let_somebody_in_again(cluster: &Cluster) {
    let said = cluster.at_the_machine("reenrol --user quinn --holder h1", "holder").unwrap_err();
    assert!(said.contains("It takes 2 holders"), "{said}");
    let guess = cluster.secret("guess", "no holder's passphrase");
    let said = cluster.at_the_machine("reenrol --user quinn --holder h1 --holder h2", "guess").unwrap_err();
    assert!(said.contains("passphrase"), "{said}");
    let said = cluster.at_the_machine("reenrol --user nobody --holder h1 --holder h2", "holder").unwrap_err();
    assert!(said.contains("There is no user nobody"), "{said}");
    let said = cluster.at_the_machine("reenrol --user quinn --holder h1 --holder h2", "holder").unwrap();
    let passphrase = said.lines().last().unwrap().trim();
    std::fs::rename(cluster.identity("quinn"), cluster.identity("quinn.lost")).unwrap();
    cluster.enrols("user", "quinn", passphrase);
    cluster.asks("quinn", "pending list").unwrap();
    let log = cluster.json("arno", "audit show --last 1000");
    let opened = |record: &&Value| record["act"] == "enrolment-opened-by-holders" && record["object"] == "user/quinn";
    assert!(log.as_array().unwrap().iter().any(|record| opened(&record)), "it is not noted");

    // Who tries their passphrase on a node that is open learns whether it is right: it said "unlocked" to any.
    cluster.at_the_machine("unlock --holder h1", "holder").unwrap();
    cluster.at_the_machine("unlock --holder h1", "guess").unwrap_err();
    std::fs::remove_file(guess).unwrap();
}

fn the_quorum_adds_a_user(cluster: &Cluster) {
    let asked = cluster.json("sofia", "users add olaf --role operator");
    let (id, passphrase) = (asked["id"].as_str().unwrap(), asked["passphrase"].as_str().unwrap());
    assert!(cluster.try_enrol("user", "olaf", passphrase).is_err(), "nobody has approved it");

    let shown = cluster.json("quinn", &format!("pending show {id}"));
    let digest = shown["digest"].as_str().unwrap();
    assert!(shown["words"].as_str().unwrap().contains("olaf"));
    let approve = format!("pending approve {id} --digest {digest}");
    assert!(cluster.asks("sofia", &approve).is_err(), "who asks does not approve");
    // The 32 digits need not be typed.
    assert_eq!(cluster.json("quinn", "pending show --last")["id"], *id);
    assert!(cluster.asks("quinn", &format!("pending show {id} --last")).is_err(), "one of the two is meant");
    let other = format!("pending approve {id} --digest {}", "0".repeat(64));
    assert!(cluster.asks("quinn", &other).is_err(), "an approval is of what was read");
    assert_eq!(cluster.json("quinn", &approve)["stage"], "waiting");
    assert!(cluster.asks("quinn", &approve).is_err(), "each counts once");
    assert!(cluster.try_enrol("user", "olaf", passphrase).is_err(), "one approval is too few");
    assert_eq!(cluster.json("quentin", &approve)["stage"], "executed");
    assert!(cluster.asks("quentin", &approve).is_err(), "it is not done again");

    cluster.enrols("user", "olaf", passphrase);
    cluster.asks("olaf", "agents list").unwrap();
    // Power is taken away at once, from an open door as well.
    cluster.asks("sofia", "users disable olaf").unwrap();
    assert!(cluster.asks("olaf", "agents list").unwrap_err().contains("disabled"));
}

/// A misspelt site once counted as another place: keys would have been taken to be safe that were in one.
fn sites_are_kept(cluster: &Cluster) {
    let sites = cluster.json("olga", "sites list");
    let attic = &sites[0];
    assert_eq!((&attic["name"], &attic["kmas"]), (&Value::from("attic"), &Value::from(vec!["k1"])), "{sites}");
    assert!(attic["added"].is_string(), "founding makes that of the first node: {sites}");
    assert!(cluster.asks("olga", "sites add cellar").unwrap_err().contains("may not"));
    for command in ["kmas add k2 --address 127.0.0.1:5799 --site cellar", "kmas move k1 --site cellar"] {
        let said = cluster.asks("sofia", command).unwrap_err();
        assert!(said.contains("no site \"cellar\"") && said.contains("there are: attic"), "{said}");
    }
    cluster.asks("sofia", "sites add cellar --description below").unwrap();
    assert!(cluster.asks("sofia", "sites add cellar").unwrap_err().contains("already"));
    cluster.asks("sofia", "sites describe cellar --description damp").unwrap();
    assert_eq!(cluster.json("quinn", "sites list")[1]["description"], "damp");
    let said = cluster.asks("sofia", "sites remove attic").unwrap_err();
    assert!(said.contains("k1") && said.contains("move or remove them first"), "{said}");

    // It is gone between the question and the last approval.
    let asked = cluster.json("sofia", "kmas move k1 --site cellar");
    cluster.asks("sofia", "sites remove cellar").unwrap();
    let approve =
        format!("pending approve {} --digest {}", asked["id"].as_str().unwrap(), asked["digest"].as_str().unwrap());
    cluster.asks("quinn", &approve).unwrap();
    assert!(cluster.asks("quentin", &approve).unwrap_err().contains("no site"));
    assert!(cluster.asks("sofia", "sites remove cellar").unwrap_err().contains("no site"));
    cluster.asks("sofia", "sites add cellar").unwrap();
    assert_eq!(cluster.json("quentin", &approve)["stage"], "executed");
    let said = cluster.asks("sofia", "sites remove cellar").unwrap_err();
    assert!(said.contains("k1"), "{said}");
    let sites = cluster.json("arno", "sites list");
    assert_eq!(
        (&sites[0]["kmas"], &sites[1]["kmas"]),
        (&Value::Array(Vec::new()), &Value::from(vec!["k1"])),
        "{sites}"
    );
    cluster.asks("sofia", "sites remove attic").unwrap();
}

fn the_quorum_says_no(cluster: &Cluster) {
    let asked = cluster.json("sofia", "kmas add k2 --address 127.0.0.1:5799 --site cellar");
    let (id, digest) = (asked["id"].as_str().unwrap(), asked["digest"].as_str().unwrap());
    assert_eq!(cluster.json("quinn", &format!("pending reject {id} --digest {digest}"))["stage"], "rejected");
    assert!(cluster.asks("quentin", &format!("pending approve {id} --digest {digest}")).is_err());

    let asked = cluster.json("sofia", "users enrol arno");
    let id = asked["id"].as_str().unwrap();
    assert_eq!(cluster.json("quinn", "pending show --last")["id"], *id, "the newest one that waits");
    assert_eq!(cluster.json("sofia", "pending withdraw --last")["stage"], "withdrawn");
    assert!(cluster.asks("quinn", "pending show --last").unwrap_err().contains("no request is waiting"));
}

fn nobody_is_left_to_govern_is_refused(cluster: &Cluster) {
    let said = cluster.asks("sofia", "users disable quinn").unwrap_err();
    assert!(said.contains("quorum members"), "{said}");
    let said = cluster.asks("sofia", "users roles sofia --role operator").unwrap_err();
    assert!(said.contains("no security officer"), "{said}");
}

fn the_quorum_changes_itself(cluster: &Cluster) {
    let shown = cluster.json("quinn", "quorum show");
    assert_eq!((&shown["needed"], &shown["members"]), (&Value::from(2), &Value::from(2)));
    for (who, command, why) in [
        ("quinn", "quorum change 1", "may not"),
        ("sofia", "quorum change 3", "2 quorum members beside the security officer"),
        ("sofia", "quorum change 0", "cannot be"),
        ("sofia", "quorum change 17", "cannot be"),
        ("sofia", "quorum change 2", "so already"),
    ] {
        let said = cluster.asks(who, command).unwrap_err();
        assert!(said.contains(why), "{who}: {command}: {said}");
    }
    let asked = cluster.json("sofia", "quorum change 1 --waits 1d");
    let approve = |id: &Value, digest: &Value| {
        format!("pending approve {} --digest {}", id.as_str().unwrap(), digest.as_str().unwrap())
    };
    let approve_change = approve(&asked["id"], &asked["digest"]);
    assert_eq!(cluster.json("quinn", &approve_change)["stage"], "waiting", "the quorum that there is decides");
    assert_eq!(cluster.json("quentin", &approve_change)["stage"], "executed");
    let shown = cluster.json("arno", "quorum show");
    assert_eq!((&shown["needed"], &shown["waits_seconds"]), (&Value::from(1), &Value::from(86_400)));
    let asked = cluster.json("sofia", "quorum change 2");
    assert_eq!(
        cluster.json("quinn", &approve(&asked["id"], &asked["digest"]))["stage"],
        "executed",
        "one suffices now"
    );
}

fn the_log_proves_itself(cluster: &Cluster) {
    let anchors = cluster.anchors("arno");
    let report = cluster.verified(&anchors);
    assert_eq!(report["finding"], Value::Null);
    assert!(report["anchored_to"].as_u64().unwrap() > 0, "the change of users was anchored: {report}");
    cluster.alter_log();
    let report = cluster.verified(&anchors);
    assert!(report["finding"].as_str().unwrap().contains("altered"), "{report}");
}
