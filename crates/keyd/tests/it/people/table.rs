//! The table of roles, held to by a node: each of its routes is asked over TLS by somebody of each role, by somebody
//! who was disabled, and by what is no person.
//!
//! Nothing is sent with what is asked: whether it makes sense is looked at behind the table. So what a role may ask for
//! is mostly answered with what is wrong with it, and what it may not with who may.

use std::time::Duration;

use capstan_keyd::authority::{Act, Role};
use capstan_keyd::service::openapi;
use capstan_keys::api::Problem;
use capstan_keys::cluster::{ClusterError, Gone, Identity, NodeClient, Silence};
use serde_json::{Value, json};

use super::node::Cluster;
use crate::etcd::Etcd;

const USERS: [(&str, &str); 8] = [
    ("sofia", "security-officer"),
    ("carl", "compliance-officer"),
    ("olga", "operator"),
    ("boris", "backup-operator"),
    ("arno", "auditor"),
    ("quinn", "quorum-member"),
    ("quentin", "quorum-member"),
    ("dora", "security-officer"),
];
/// It ends what is tested, and is asked last.
const LOCK: &str = "/v1/lock";

struct Route {
    method: String,
    path: String,
    act: Option<Act>,
    roles: Vec<String>,
    tag: String,
}

fn routes() -> Vec<Route> {
    let document = openapi();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let roles = operation["x-roles"].as_object().map(|roles| roles.keys().cloned().collect());
            routes.push(Route {
                method: method.clone(),
                path: path.clone(),
                act: operation["x-act"].as_str().map(|act| Act::named(act).unwrap()),
                roles: roles.unwrap_or_default(),
                tag: operation["tags"][0].as_str().unwrap().to_owned(),
            });
        }
    }
    routes
}

/// A path with names in it that are nobody's.
fn filled(path: &str) -> String {
    let part = |(at, part): (usize, &str)| match (at % 2, part) {
        (0, fixed) => fixed.to_owned(),
        (_, "tag" | "id" | "job") => "0".repeat(32),
        (_, "volume") => "A00001".to_owned(),
        (_, "from" | "after") => "0".to_owned(),
        _ => "nobody".to_owned(),
    };
    path.split(['{', '}']).enumerate().map(part).collect()
}

fn asked(client: &NodeClient, route: &Route) -> Result<Value, Box<Problem>> {
    let path = filled(&route.path);
    let answer = match &*route.method {
        "get" => client.get(&path),
        _ => client.post(&path, &json!({})),
    };
    match answer {
        Ok(answer) => Ok(answer),
        Err(ClusterError::Refused(problem)) => Err(problem),
        Err(ClusterError::AllGone(gone)) => Err(unserved(&gone[0])),
        Err(ClusterError::Unanswered(gone)) => Err(unserved(&gone)),
        // What is no JSON was answered.
        Err(ClusterError::Unreadable { .. }) => Ok(Value::Null),
        Err(error) => panic!("{} {path}: {error}", route.method),
    }
}

/// What a node says that cannot do it now.
fn unserved(gone: &Gone) -> Box<Problem> {
    match &gone.silence {
        Silence::Unready(problem) | Silence::Failed(problem) => problem.clone(),
        silence => panic!("{silence:?}"),
    }
}

fn client(cluster: &Cluster, identity: &std::path::Path) -> NodeClient {
    NodeClient::new(&Identity::load(identity).unwrap(), &cluster.address, Duration::from_secs(20)).unwrap()
}

#[test]
fn every_cell_of_the_table_is_held_to() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start(1));
    let cluster = Cluster::found(&etcd.endpoints()[0], &USERS);
    let routes = routes();
    assert!(routes.len() > 60 && routes.iter().any(|route| route.path == LOCK));
    let is_asked = |route: &&Route| route.act.is_some() && route.path != LOCK;
    let mut wrong = Vec::new();

    let (mut yes, mut no) = (0, 0);
    for role in Role::ALL {
        let (user, _) = USERS.iter().find(|(_, held)| *held == role.name()).unwrap();
        let person = client(&cluster, &cluster.identity(user));
        for route in routes.iter().filter(is_asked) {
            let (answer, may) = (asked(&person, route), route.roles.iter().any(|held| held == role.name()));
            let denied = answer.as_ref().is_err_and(|problem| problem.is("denied"));
            *(if may { &mut yes } else { &mut no }) += 1;
            if denied == may {
                wrong.push(format!("{role}: {} {}: {answer:?}", route.method, route.path));
            }
            if let (true, Err(problem)) = (denied, answer) {
                assert!(problem.status == 403 && problem.detail.contains("may not"), "{problem}");
            }
        }
        if role != Role::SecurityOfficer {
            let lock = routes.iter().find(|route| route.path == LOCK).unwrap();
            assert!(asked(&person, lock).unwrap_err().is("denied"), "{role}");
        }
    }
    assert!(yes > 80 && no > 150, "{yes} cells that say yes and {no} that say no were asked for");

    // Somebody who may everything that their role may, until they are disabled.
    let dora = client(&cluster, &cluster.identity("dora"));
    cluster.asks("sofia", "users disable dora").unwrap();
    let passphrase = cluster.json("olga", "agents add DRIVE1")["passphrase"].as_str().unwrap().to_owned();
    let drive = client(&cluster, &cluster.enrols("agent", "DRIVE1", &passphrase));
    for route in &routes {
        let (of_dora, of_drive) = (asked_of(&dora, route), asked_of(&drive, route));
        let disabled = of_dora.as_ref().is_some_and(|problem| problem.detail.contains("disabled"));
        if disabled != route.act.is_some() && !is_every_members(route) {
            wrong.push(format!("disabled: {} {}: {of_dora:?}", route.method, route.path));
        }
        let forbidden = |problem: &Option<Box<Problem>>| problem.as_ref().is_some_and(|problem| problem.status == 403);
        match &*route.tag {
            "people" if route.act.is_some() && !forbidden(&of_drive) => {
                wrong.push(format!("a drive: {} {}: {of_drive:?}", route.method, route.path));
            }
            "agents" if !forbidden(&of_dora) => {
                wrong.push(format!("no drive: {} {}: {of_dora:?}", route.method, route.path));
            }
            "nodes" if !forbidden(&of_dora) && !is_of_a_body(&of_dora) => {
                wrong.push(format!("a person: {} {}: {of_dora:?}", route.method, route.path));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // By another method than the route has: that was answered as if the node had failed.
    match client(&cluster, &cluster.identity("sofia")).get::<Value>(LOCK) {
        Err(ClusterError::Refused(problem)) => assert_eq!(problem.status, 405, "{problem}"),
        other => panic!("{other:?}"),
    }

    cluster.asks("sofia", "lock").unwrap();
    // From the answer on, and over its beginning anew, it gives nothing out.
    assert!(cluster.asks("sofia", "agents list").is_err());
    cluster.says_in_time("arno", "status", "by sofia on");
    cluster.unlocks();
    cluster.says_in_time("sofia", "agents list", "DRIVE1");
    let log = cluster.json("arno", "audit show --last 1000").to_string();
    assert!(log.contains("lock-kma"), "it is noted");
    assert!(!cluster.asks("arno", "status").unwrap().contains("LOCKED"));
}

/// Routes that say how a node is, or that bring it a share.
fn is_every_members(route: &Route) -> bool {
    route.act.is_none()
}

/// Nodes are known behind what they send.
fn is_of_a_body(problem: &Option<Box<Problem>>) -> bool {
    problem.as_ref().is_some_and(|problem| [400, 422].contains(&problem.status))
}

fn asked_of(client: &NodeClient, route: &Route) -> Option<Box<Problem>> {
    // On another port, without a certificate.
    if route.tag == "strangers" { None } else { asked(client, route).err() }
}
