//! Clients that are slow on purpose, leave half way, or come in crowds: others are answered meanwhile, and memory stays
//! bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_keys::cluster::provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::node::Node;

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Discover Versions, as 1.4 writes it.
const ASKED: [u8; 104] = *b"\x42\x00\x78\x01\0\0\0\x60\
    \x42\x00\x77\x01\0\0\0\x38\
    \x42\x00\x69\x01\0\0\0\x20\x42\x00\x6a\x02\0\0\0\x04\0\0\0\x01\0\0\0\0\x42\x00\x6b\x02\0\0\0\x04\0\0\0\x04\0\0\0\0\
    \x42\x00\x0d\x02\0\0\0\x04\0\0\0\x01\0\0\0\0\
    \x42\x00\x0f\x01\0\0\0\x18\x42\x00\x5c\x05\0\0\0\x04\0\0\0\x1e\0\0\0\0\x42\x00\x79\x01\0\0\0\0";
/// The longest request that is taken.
const LONGEST: u32 = 1 << 20;
const SOON: Duration = Duration::from_secs(10);

pub(crate) fn config(client: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(client.join("ca.pem")).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_file(client.join("cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(client.join("key.pem")).unwrap();
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap())
}

pub(crate) fn connect(node: &Node, config: &Arc<ClientConfig>) -> Tls {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut connection = ClientConnection::new(config.clone(), name).unwrap();
    let mut socket = TcpStream::connect(&node.kmip).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).unwrap();
    }
    StreamOwned::new(connection, socket)
}

/// Asks, and looks that it is answered [`SOON`]. Gives how long that took.
fn is_answered(stream: &mut Tls) -> Duration {
    let took = is_answered_at_last(stream);
    assert!(took < SOON, "{took:?}");
    took
}

/// The same for who asks behind a crowd: how fast a machine is done with that is no matter, within its socket's 40 s.
fn is_answered_at_last(stream: &mut Tls) -> Duration {
    let began = Instant::now();
    stream.write_all(&ASKED).unwrap();
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[..4], *b"\x42\x00\x7b\x01", "a response message");
    let mut rest = vec![0; u32::from_be_bytes(header[4..].try_into().unwrap()) as usize];
    stream.read_exact(&mut rest).unwrap();
    began.elapsed()
}

/// Who asked meanwhile was answered at once, as a rule; nobody waited for longer than [`SOON`].
fn mostly_at_once(mut answers: Vec<Duration>) {
    answers.sort();
    let (middle, slowest) = (answers[answers.len() / 2], answers[answers.len() - 1]);
    println!("{} answers meanwhile, in {middle:?}, the slowest in {slowest:?}", answers.len());
    assert!(middle < Duration::from_secs(1), "{answers:?}");
}

/// How long the node keeps a connection on which nothing comes any more.
fn until_closed(stream: &mut Tls) -> Duration {
    let (began, mut buffer) = (Instant::now(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return began.elapsed(),
            Ok(_) => {}
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                panic!("the node keeps the connection")
            }
            Err(_) => return began.elapsed(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_slow_or_leaves_half_way_holds_nobody_up() {
    let node = Node::start().await;
    let config = config(&node.enrol("rough").await);

    // Half a message, and no more: the socket is half closed, and what is there of it is let go at once.
    let mut half = connect(&node, &config);
    half.write_all(&ASKED[..60]).unwrap();
    half.conn.send_close_notify();
    half.flush().unwrap();
    half.sock.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(until_closed(&mut half) < SOON);

    // A header that says more than may be.
    let mut long = connect(&node, &config);
    long.write_all(b"\x42\x00\x78\x01\x7f\xff\xff\xf8").unwrap();
    assert!(until_closed(&mut long) < SOON);

    // A byte now and then, and somebody who asks in between: the one is dropped in its time, the other is answered.
    let (mut slow, mut other) = (connect(&node, &config), connect(&node, &config));
    let (began, mut answers) = (Instant::now(), Vec::new());
    for byte in &ASKED {
        if slow.write_all(std::slice::from_ref(byte)).and_then(|()| slow.flush()).is_err() {
            break;
        }
        answers.push(is_answered(&mut other));
        std::thread::sleep(Duration::from_millis(400));
    }
    until_closed(&mut slow);
    let took = began.elapsed();
    mostly_at_once(answers);
    assert!(took < Duration::from_secs(30), "who sends a byte now and then is dropped in {took:?}");
    is_answered(&mut other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_half_said_long_messages_takes_bounded_memory() {
    let node = Node::start().await;
    let mut other = connect(&node, &config(&node.enrol("other").await));
    is_answered(&mut other);
    // Eight clients, since one of them has no more than its share.
    let mut clients = Vec::new();
    for number in 0..8 {
        clients.push(config(&node.enrol(&format!("crowd-{number}")).await));
    }
    let before = node.memory_kib();

    // 900 that begin with what is as long as may be and send most of it: half of them find no room.
    let header = [&b"\x42\x00\x78\x01"[..], &(LONGEST - 64).to_be_bytes()].concat();
    let most = vec![0; 900 << 10];
    let mut crowd = Vec::new();
    for number in 0..900 {
        let mut one = connect(&node, &clients[number % clients.len()]);
        one.sock.set_nonblocking(true).unwrap();
        let _ = one.write_all(&header).and_then(|()| one.flush());
        crowd.push((one, 0));
    }
    // What they say trickles in as far as there is room.
    let (began, mut most_kib, mut answers) = (Instant::now(), 0, Vec::new());
    while began.elapsed() < Duration::from_secs(8) {
        for (one, sent) in &mut crowd {
            if let Ok(more) = one.write(&most[*sent..]) {
                *sent += more;
            }
            let _ = one.flush();
        }
        answers.push(is_answered(&mut other));
        most_kib = most_kib.max(node.memory_kib());
    }
    let more_mib = most_kib.saturating_sub(before) >> 10;
    println!("{more_mib} MiB more for {} clients", crowd.len());
    mostly_at_once(answers);
    assert!(more_mib < 512, "{more_mib} MiB more");
    assert!(more_mib > 64, "{more_mib} MiB more: the crowd is not there, and shows nothing");
    drop(crowd);
    is_answered_at_last(&mut other);
}

/// 1,200 connections of one certificate, each with half a message, took every place: another client failed 123 of 196
/// times.
#[tokio::test(flavor = "multi_thread")]
async fn one_client_has_its_share_of_the_connections_and_others_find_a_place() {
    let node = Node::start().await;
    let (greedy, other) = (config(&node.enrol("greedy").await), config(&node.enrol("other").await));
    let mut crowd = Vec::new();
    for number in 0..1200 {
        let mut one = connect(&node, &greedy);
        // Those beyond its share are closed.
        let _ = one.write_all(&ASKED[..60]).and_then(|()| one.flush());
        crowd.push(one);
        if number % 100 == 99 {
            is_answered(&mut connect(&node, &other));
        }
    }
    for _ in 0..20 {
        is_answered(&mut connect(&node, &other));
    }
    drop(crowd);
}
