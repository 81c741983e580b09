//! Peers that are slow on purpose, and peers that leave half way.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_keys::cluster::{Identity, provider};
use capstan_service::listener::ListenerLimits;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::node::{Node, Site};

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A member's connection, as plain as it can be.
pub(crate) fn connect(node: &Node, config: &Arc<ClientConfig>) -> Tls {
    connect_to(node.address, config)
}

pub(crate) fn connect_to(address: SocketAddr, config: &Arc<ClientConfig>) -> Tls {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut connection = ClientConnection::new(config.clone(), name).unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).unwrap();
    }
    StreamOwned::new(connection, socket)
}

pub(crate) fn config(identity: &Identity) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority_der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![identity.certificate_der().clone()], identity.expose_key().clone_key())
        .unwrap();
    Arc::new(config)
}

fn setting() -> (Arc<Site>, Node, Arc<ClientConfig>) {
    let ms = Duration::from_millis;
    let limits = ListenerLimits {
        handshake: ms(400),
        idle: ms(800),
        head: ms(400),
        request: ms(400),
        write: ms(400),
        ..ListenerLimits::default()
    };
    let site = Site::new();
    let node = Node::start(&site, "KMA1", limits);
    let config = config(&site.identity("agent/DRIVE1"));
    (site, node, config)
}

/// Reads until the node closes; gives what came, and how long it took.
fn until_closed(stream: &mut impl Read) -> (Vec<u8>, Duration) {
    let (begun, mut came, mut buffer) = (Instant::now(), Vec::new(), vec![0; 64 << 10]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => came.extend_from_slice(&buffer[..len]),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                panic!("the node keeps the connection")
            }
            Err(_) => break,
        }
    }
    (came, begun.elapsed())
}

const SOON: Duration = Duration::from_secs(5);

#[test]
fn who_says_nothing_is_dropped() {
    let (_site, node, config) = setting();
    let (_, took) = until_closed(&mut TcpStream::connect(node.address).unwrap());
    assert!(took > Duration::from_millis(300) && took < SOON, "before TLS: {took:?}");
    let (_, took) = until_closed(&mut connect(&node, &config));
    assert!(took > Duration::from_millis(600) && took < SOON, "before a request: {took:?}");
}

/// Slowloris: a byte of a head now and then, for ever.
#[test]
fn a_head_that_trickles_in_is_cut_off() {
    let (_site, node, config) = setting();
    let mut stream = connect(&node, &config);
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(50));
        if stream.write_all(b"a: b\r\n").is_err() {
            break;
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn a_body_that_trickles_in_is_refused() {
    let (_site, node, config) = setting();
    let mut stream = connect(&node, &config);
    stream.write_all(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx").unwrap();
    let (came, took) = until_closed(&mut stream);
    let came = String::from_utf8(came).unwrap();
    assert!(came.starts_with("HTTP/1.1 503") && came.contains("problem/too-slow"), "{came}");
    assert!(took < SOON, "{took:?}");
}

/// A node answered 404 or 403 before the body of a request was there, and closed the connection behind that without a
/// word: the next request on it, which busy clients had sent by then, came to nothing.
#[test]
fn a_request_that_is_refused_leaves_its_connection_whole() {
    let (_site, node, config) = setting();
    let mut stream = connect(&node, &config);
    for _ in 0..3 {
        stream.write_all(b"POST /v1/nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(b"{}").unwrap();
        let (mut came, mut buffer) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&came).contains("There is nothing") {
            let len = stream.read(&mut buffer).unwrap();
            assert!(len > 0, "closed after {:?}", String::from_utf8_lossy(&came));
            came.extend_from_slice(&buffer[..len]);
        }
        let came = String::from_utf8(came).unwrap();
        assert!(came.starts_with("HTTP/1.1 404") && !came.contains("connection: close"), "{came}");
    }
    // A long one is not waited for, and is told.
    stream.write_all(b"POST /v1/nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n").unwrap();
    let (came, _) = until_closed(&mut stream);
    let came = String::from_utf8(came).unwrap();
    assert!(came.starts_with("HTTP/1.1 404") && came.contains("connection: close"), "{came}");
}

#[test]
fn who_does_not_read_is_dropped() {
    let (_site, node, config) = setting();
    let mut stream = connect(&node, &config);
    stream.write_all(b"GET /v1/large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let (came, _) = until_closed(&mut stream);
    assert!(came.len() < 32 << 20, "the node waited");
}

#[test]
fn a_connection_that_is_half_closed_is_closed() {
    let (_site, node, config) = setting();
    let mut raw = TcpStream::connect(node.address).unwrap();
    raw.shutdown(Shutdown::Write).unwrap();
    let (_, took) = until_closed(&mut raw);
    assert!(took < Duration::from_millis(350), "before TLS: {took:?}");
    let mut stream = connect(&node, &config);
    stream.sock.shutdown(Shutdown::Write).unwrap();
    let (_, took) = until_closed(&mut stream);
    assert!(took < Duration::from_millis(600), "after it: {took:?}");
}

#[test]
fn what_is_no_tls_and_no_http_is_dropped() {
    let (_site, node, config) = setting();
    let mut raw = TcpStream::connect(node.address).unwrap();
    raw.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(until_closed(&mut raw).1 < SOON);
    let mut stream = connect(&node, &config);
    stream.write_all(&[0xff; 1000]).unwrap();
    assert!(until_closed(&mut stream).1 < SOON);
    // A head without an end.
    let mut stream = connect(&node, &config);
    let sent = (0..200).try_for_each(|_| stream.write_all(&[b'a'; 1000]));
    assert!(sent.is_err() || until_closed(&mut stream).1 < SOON);
}
