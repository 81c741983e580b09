//! Enrolment over sockets: with the right passphrase, with wrong ones, twice, and with somebody in between.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex};

use capstan_keys::api::PeerId;
use capstan_keys::cluster::{ClusterClient, ClusterError, EnrolmentError, EnrolmentPassphrase, enrol, provider};
use capstan_service::identity::{PresentedCertificate, enrolment_tls};
use capstan_service::listener::ListenerLimits;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::node::{Node, Site};
use crate::slow::connect_to;

fn drive() -> PeerId {
    "agent/DRIVE1".parse().unwrap()
}

fn problem(result: Result<capstan_keys::cluster::Identity, ClusterError>) -> String {
    match result {
        Err(ClusterError::Refused(problem)) => problem.detail,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("an enrolment went through"),
    }
}

#[test]
fn an_agent_enrols_once_and_is_served() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let passphrase = site.open_enrolment("agent/DRIVE1");
    let identity = enrol(&node.strangers.to_string(), drive(), &passphrase).unwrap();
    assert_eq!(identity.certificate().peer, drive());
    let client = ClusterClient::open(&identity, &[node.address.to_string()], "").unwrap();
    assert_eq!(client.get::<PeerId>("/v1/whoami").unwrap(), drive());
    let used = problem(enrol(&node.strangers.to_string(), drive(), &passphrase));
    assert!(used.contains("was used"), "{used}");
}

#[test]
fn a_passphrase_is_not_locked_by_those_who_do_not_know_it() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let right = site.open_enrolment("agent/DRIVE1");
    for _ in 0..8 {
        let wrong = EnrolmentPassphrase::random().unwrap();
        let tried = enrol(&node.strangers.to_string(), drive(), &wrong);
        assert!(matches!(tried, Err(ClusterError::Enrolment(EnrolmentError::NotProved))));
    }
    let tries = site.tries.lock().unwrap().clone();
    assert_eq!(tries.len(), 8, "each is on record");
    assert!(tries.iter().all(|(peer, from)| *peer == drive() && from.starts_with("127.0.0.1:")), "{tries:?}");
    enrol(&node.strangers.to_string(), drive(), &right).unwrap();
    // Another one, for another name, is of no use here either.
    let other = site.open_enrolment("agent/DRIVE2");
    assert!(enrol(&node.strangers.to_string(), "agent/DRIVE3".parse().unwrap(), &other).is_err());
}

#[test]
fn an_enrolment_expires() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let passphrase = site.open_enrolment("agent/DRIVE1");
    site.clock.advance(crate::node::DAY_NS);
    let expired = problem(enrol(&node.strangers.to_string(), drive(), &passphrase));
    assert!(expired.contains("expired"), "{expired}");
}

/// A stranger held every permit of the port with requests whose bodies never came, and nobody else could enrol.
#[test]
fn half_sent_requests_keep_nobody_from_enrolling() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let passphrase = site.open_enrolment("agent/DRIVE1");
    let config = trusting();
    let half_sent = |number: u16| {
        let mut stream = connect_to(node.strangers, &config);
        let length = if number.is_multiple_of(2) { "Content-Length: 100" } else { "Transfer-Encoding: chunked" };
        let head =
            format!("POST /v1/enrolments HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut strangers: Vec<_> = (0..256).map(half_sent).collect();
    enrol(&node.strangers.to_string(), drive(), &passphrase).unwrap();
    // One address has 64 connections, and the latest ones: the first have gone without an answer.
    for (number, stranger) in strangers.iter_mut().take(128).enumerate() {
        let is_gone = match stranger.read(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => ![ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()),
        };
        assert!(is_gone, "connection {number}");
    }
}

/// He has an authority of his own and does not know the passphrase: he has opened an enrolment of the same name with
/// another.
#[test]
fn an_impostor_is_found_out() {
    let (ours, his) = (Site::new(), Site::new());
    let passphrase = ours.open_enrolment("agent/DRIVE1");
    his.open_enrolment("agent/DRIVE1");
    let impostor = Node::start(&his, "KMA1", ListenerLimits::default());
    let tried = enrol(&impostor.strangers.to_string(), drive(), &passphrase);
    assert!(matches!(tried, Err(ClusterError::Enrolment(EnrolmentError::NotProved))));
}

/// He ends TLS with a certificate of his own authority, reads everything and passes it on. The proofs are bound to
/// other connections: nobody is let in, and he learns nothing that he could use. Without him the enrolment is as good
/// as before.
#[test]
fn a_man_in_the_middle_is_found_out_and_sees_nothing_of_use() {
    let site = Site::new();
    let node = Node::start(&site, "KMA1", ListenerLimits::default());
    let passphrase = site.open_enrolment("agent/DRIVE1");
    let shown = passphrase.expose();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    runtime.spawn(relay(listener, node.strangers, seen.clone()));
    let tried = enrol(&address.to_string(), drive(), &passphrase);
    assert!(matches!(tried, Err(ClusterError::Enrolment(EnrolmentError::NotProved))));
    {
        let seen = seen.lock().unwrap();
        let contains = |what: &[u8]| seen.windows(what.len()).any(|window| window == what);
        assert!(contains(b"/v1/enrolments") && contains(b"passphrase-not-proved"), "nothing went through him");
        let undivided = shown.replace('-', "");
        for secret in [shown.as_bytes(), undivided.as_bytes(), b"certificate\":"] {
            assert!(!contains(secret));
        }
    }
    let identity = enrol(&node.strangers.to_string(), drive(), &passphrase).unwrap();
    assert_eq!(identity.authority_der(), site.authority.certificate());
}

/// Takes whoever is there for the node.
fn trusting() -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    Arc::new(config)
}

async fn relay(listener: TcpListener, node: std::net::SocketAddr, seen: Arc<Mutex<Vec<u8>>>) {
    let his = Site::new();
    let presented = PresentedCertificate::new(&his.identity("kma/KMA1")).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(enrolment_tls(presented).unwrap());
    let connector = tokio_rustls::TlsConnector::from(trusting());
    while let Ok((victim, _)) = listener.accept().await {
        let (acceptor, connector, seen) = (acceptor.clone(), connector.clone(), seen.clone());
        tokio::spawn(async move {
            let victim = acceptor.accept(victim).await.unwrap();
            let node = TcpStream::connect(node).await.unwrap();
            let node = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), node).await.unwrap();
            let ((mut from_victim, mut to_victim), (mut from_node, mut to_node)) =
                (tokio::io::split(victim), tokio::io::split(node));
            let (up, down) = (seen.clone(), seen);
            tokio::join!(copy(&mut from_victim, &mut to_node, up), copy(&mut from_node, &mut to_victim, down));
        });
    }
}

async fn copy(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    seen: Arc<Mutex<Vec<u8>>>,
) {
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        seen.lock().unwrap().extend_from_slice(&buffer[..len]);
        if to.write_all(&buffer[..len]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
