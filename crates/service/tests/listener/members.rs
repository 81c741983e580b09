//! Members on connections that last: revoked, expired, renewed, refused; and the end of a node.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use capstan_keys::api::{PeerId, RequestId};
use capstan_keys::cluster::{ClusterClient, ClusterError, Identity, IdentityError, NodeClient, Repeat};
use capstan_service::listener::ListenerLimits;

use crate::node::{DAY_NS, Node, Site};

fn open(node: &Node, identity: &Identity) -> ClusterClient {
    ClusterClient::open(identity, &[node.address.to_string()], "").unwrap()
}

fn whoami(client: &ClusterClient) -> Result<PeerId, ClusterError> {
    client.get("/v1/whoami")
}

fn kind(error: &ClusterError) -> (&str, u16) {
    match error {
        ClusterError::Refused(problem) => (problem.kind.as_str(), problem.status),
        other => panic!("{other}"),
    }
}

#[test]
fn a_revocation_acts_at_the_next_request() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let (identity, other) = (site.identity("agent/DRIVE1"), site.identity("agent/DRIVE1"));
    let (client, of_other) = (open(&node, &identity), open(&node, &other));
    whoami(&client).unwrap();
    site.revoke(&identity);
    let refused = whoami(&client).unwrap_err();
    assert_eq!(kind(&refused), ("capstan:problem/revoked", 403));
    assert!(refused.to_string().contains("revoked"), "{refused}");
    // The certificate is revoked, not its holder's name.
    whoami(&of_other).unwrap();
    // Nor does a new connection help.
    assert!(ClusterClient::open(&identity, &[node.address.to_string()], "").is_err());
}

#[test]
fn a_certificate_that_expires_ends_with_its_time() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let identity = site.identity("agent/DRIVE1");
    let client = open(&node, &identity);
    site.clock.advance(91 * DAY_NS);
    let refused = whoami(&client).unwrap_err();
    assert!(refused.to_string().contains("expired"), "{refused}");
    match ClusterClient::open(&identity, &[node.address.to_string()], "") {
        Err(ClusterError::AllGone(gone)) => assert!(gone[0].to_string().contains("xpired"), "{}", gone[0]),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("an expired certificate was taken"),
    }
}

#[test]
fn a_certificate_is_renewed_when_two_thirds_are_over() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let identity = site.identity("agent/DRIVE1");
    let client = open(&node, &identity);
    let now_ns = site.clock.now_ns();
    assert!(client.renew_if_due(now_ns + 59 * DAY_NS).unwrap().is_none());
    let renewed = client.renew_if_due(now_ns + 61 * DAY_NS).unwrap().expect("it is due");
    assert_eq!(renewed.certificate().peer, identity.certificate().peer);
    assert_ne!(renewed.certificate().serial, identity.certificate().serial);
    // From now on the client shows the new one.
    site.revoke(&identity);
    whoami(&client).unwrap();
    site.revoke(&renewed);
    assert!(whoami(&client).is_err());
}

/// An agent that was broken into, and puts up a listener of its own, is not taken for a node.
#[test]
fn an_agent_cannot_pose_as_a_node() {
    let site = Site::new();
    let impostor = Node::show(&site, &site.identity("agent/DRIVE2"), ListenerLimits::default());
    match ClusterClient::open(&site.identity("agent/DRIVE1"), &[impostor.address.to_string()], "") {
        Err(ClusterError::AllGone(gone)) => assert!(gone[0].to_string().contains("certificate"), "{}", gone[0]),
        _ => panic!("an agent was taken for a node"),
    }
}

#[test]
fn what_is_not_there_or_too_large_is_a_problem() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits { body_bytes_max: 1000, ..ListenerLimits::default() });
    let client = open(&node, &site.identity("user/alice"));
    let missing = client.get::<PeerId>("/v1/nothing").unwrap_err();
    assert_eq!(kind(&missing), ("capstan:problem/not-found", 404));
    assert_eq!(kind(&client.get::<PeerId>("/v1/echo").unwrap_err()), ("capstan:problem/method", 405));
    let echo = |len: usize| {
        let id = RequestId::random().unwrap();
        client.post::<String>("/v1/echo", &"x".repeat(len), &id, Repeat::Never)
    };
    assert_eq!(echo(900).unwrap().len(), 900);
    assert_eq!(kind(&echo(1000).unwrap_err()), ("capstan:problem/too-large", 413));
}

#[test]
fn a_node_ends_when_its_requests_have() {
    let site = Site::new();
    let mut node = Node::start(&site, "KMA1", ListenerLimits::default());
    let client = open(&node, &site.identity("agent/DRIVE1"));
    whoami(&client).unwrap();
    node.trigger().begin();
    // What comes before the node has looked is still answered.
    let until = Instant::now() + Duration::from_secs(60);
    let gone = loop {
        match whoami(&client) {
            Ok(_) => assert!(Instant::now() < until, "it goes on"),
            Err(error) => break error,
        }
    };
    assert!(matches!(gone, ClusterError::AllGone(_)), "{gone}");
}

#[test]
fn an_identity_file_is_for_its_owner_alone() {
    let site = Site::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("identity.pem");
    let identity = site.identity("agent/DRIVE1");
    identity.save(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Identity::load(&path).unwrap().certificate(), identity.certificate());
    for mode in [0o640, 0o604, 0o620, 0o660] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        assert!(matches!(Identity::load(&path), Err(IdentityError::Unfit { .. })), "{mode:o} was taken");
    }
    // A renewed one takes its place as a whole, and mends the permissions.
    let renewed = site.identity("agent/DRIVE1");
    renewed.save(&path).unwrap();
    assert_eq!(Identity::load(&path).unwrap().certificate(), renewed.certificate());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    // Key and certificate of two people, a file cut short, and none at all.
    let (one, other) = (std::fs::read_to_string(&path).unwrap(), Site::new().identity("user/mallory"));
    other.save(&path).unwrap();
    let other = std::fs::read_to_string(&path).unwrap();
    let key_end = |text: &str| text.find("-----BEGIN CERTIFICATE").unwrap();
    std::fs::write(&path, [&one[..key_end(&one)], &other[key_end(&other)..]].concat()).unwrap();
    assert!(Identity::load(&path).is_err());
    std::fs::write(&path, &one[..one.len() - 40]).unwrap();
    assert!(Identity::load(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    assert!(Identity::load(&path).is_err());
}

/// Peers of a cell meet its server or a mover, and members of a key cluster meet nodes: none takes another kind.
#[test]
fn each_kind_of_peer_meets_the_kinds_that_it_expects() {
    let site = Site::new();
    for (shown, who, is_taken) in [
        ("server/cove", "client/tern", true),
        ("mover/dock", "client/tern", true),
        ("mover/dock", "mover/pier", true),
        ("kma/kma1", "client/tern", false),
        ("server/cove", "agent/DRIVE1", false),
        ("client/plover", "client/tern", false),
        ("kma/kma1", "agent/DRIVE1", true),
    ] {
        let node = Node::show(&site, &site.identity(shown), ListenerLimits::default());
        let address = node.address.to_string();
        let client = NodeClient::new(&site.identity(who), &address, Duration::from_secs(10)).unwrap();
        let answered = client.get::<PeerId>("/v1/whoami");
        assert_eq!(answered.is_ok(), is_taken, "{who} at {shown}: {answered:?}");
    }
}
