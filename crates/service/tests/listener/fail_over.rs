//! Nodes that are gone, in each of the ways in which they go.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use capstan_keys::api::{PeerId, RequestId};
use capstan_keys::cluster::{ClusterClient, ClusterError, Repeat};
use capstan_service::listener::ListenerLimits;

use crate::node::{Node, Site};

const SECOND: Duration = Duration::from_secs(1);

/// An address that refuses connections.
fn closed_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn timed<T>(what: &str, ask: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let answer = ask();
    println!("{what}: {:?}", begun.elapsed());
    (answer, begun.elapsed())
}

#[test]
fn a_silent_and_a_closed_address_cost_less_than_a_second() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    // The kernel takes connections for it and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [silent.local_addr().unwrap().to_string(), closed_port(), node.address.to_string()];
    for attempt in 0..4 {
        let identity = site.identity("agent/DRIVE1");
        let (client, took) = timed("open", || ClusterClient::open(&identity, &addresses, "").unwrap());
        assert!(took < SECOND, "attempt {attempt}: {took:?}");
        let (answer, took) = timed("the next", || client.get::<PeerId>("/v1/whoami").unwrap());
        assert_eq!(answer.to_string(), "agent/DRIVE1");
        assert!(took < SECOND, "{took:?}");
    }
}

/// A node that stops in the middle of everything, and comes back.
#[test]
fn a_stopped_node_is_left_and_found_again() {
    let site = Site::new();
    let (one, two) =
        (Node::start(&site, "KMA1", ListenerLimits::default()), Node::start(&site, "KMA2", ListenerLimits::default()));
    *site.members.lock().unwrap() = vec![one.member("KMA1", "here"), two.member("KMA2", "there")];
    let client = ClusterClient::open(&site.identity("agent/DRIVE1"), &[two.address.to_string()], "here").unwrap();
    client.get::<PeerId>("/v1/whoami").unwrap();
    one.freeze();
    let (answer, took) = timed("the first request after the stop", || client.get::<PeerId>("/v1/whoami"));
    answer.unwrap();
    assert!(took < SECOND, "{took:?}");
    let (answer, took) = timed("the second", || client.get::<PeerId>("/v1/whoami"));
    answer.unwrap();
    assert!(took < Duration::from_millis(250), "who is known to be silent was asked first: {took:?}");
    // Now the other one goes: only the one that came back can answer, and it is looked at without anybody's waiting for
    // it.
    one.thaw();
    let until = Instant::now() + 10 * SECOND;
    drop(two);
    let mut answered = client.get::<PeerId>("/v1/whoami");
    while answered.is_err() && Instant::now() < until {
        answered = client.get::<PeerId>("/v1/whoami");
    }
    answered.unwrap();
}

#[test]
fn a_request_sent_again_keeps_its_id_and_one_that_must_not_be_is_not() {
    let site = Site::new();
    let (one, two) =
        (Node::start(&site, "KMA1", ListenerLimits::default()), Node::start(&site, "KMA2", ListenerLimits::default()));
    *site.members.lock().unwrap() = vec![one.member("KMA1", "here"), two.member("KMA2", "there")];
    let client = ClusterClient::open(&site.identity("agent/DRIVE1"), &[one.address.to_string()], "here").unwrap();
    let (never, again) = (RequestId::random().unwrap(), RequestId::random().unwrap());
    one.freeze();
    let unanswered = client.post::<RequestId>("/v1/once", &(), &never, Repeat::Never).unwrap_err();
    assert!(matches!(unanswered, ClusterError::Unanswered(_)), "{unanswered}");
    one.thaw();
    // Let what was sent before arrive, and the client see that the node is back.
    std::thread::sleep(Duration::from_millis(1500));
    client.get::<PeerId>("/v1/whoami").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    one.freeze();
    assert_eq!(client.post::<RequestId>("/v1/once", &(), &again, Repeat::SameRequest).unwrap(), again);
    one.thaw();
    std::thread::sleep(Duration::from_millis(500));
    let arrived = site.requests.lock().unwrap();
    let count = |id: &RequestId| arrived.iter().filter(|arrived| *arrived == id).count();
    assert!(count(&never) <= 1, "it was asked twice");
    assert!((1..=2).contains(&count(&again)) && arrived.iter().all(|id| [never, again].contains(id)));
}

#[test]
fn when_all_are_gone_each_is_named() {
    let site = Site::new();
    let (one, two) =
        (Node::start(&site, "KMA1", ListenerLimits::default()), Node::start(&site, "KMA2", ListenerLimits::default()));
    *site.members.lock().unwrap() = vec![one.member("KMA1", ""), two.member("KMA2", "")];
    let client = ClusterClient::open(&site.identity("agent/DRIVE1"), &[one.address.to_string()], "").unwrap();
    drop((one, two));
    let gone = client.get::<PeerId>("/v1/whoami").unwrap_err();
    let said = gone.to_string();
    assert!(said.contains("KMA1 (127.0.0.1:") && said.contains("KMA2 (127.0.0.1:"), "{said}");
}
