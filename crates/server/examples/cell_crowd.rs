//! Clients of a cell that have nothing to do, by the thousand: each has a certificate and a connection of its own, and
//! waits for orders as `capstan client run` does. `./x bench crowd` measures what they cost the server.
//!
//! ```text
//! STATE/catalog <- certificates, by the authority of STATE/cell      ADDRESS <- TLS, hello, orders?, orders? ...
//! ```
//! The clients are tasks of one process; the server cannot tell. Their enrolment is left out: it happens once in a
//! client's life.
#![allow(clippy::print_stdout, reason = "it says what it does to whoever measures")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use capstan_catalog::{Catalog, EnrolmentRow, PeerRow};
use capstan_client::orders::{OrdersAnswer, PeerHello};
use capstan_keys::api::{Base64, IssuedCertificate, PeerId, PeerKind};
use capstan_keys::cluster::{CertificateKey, Identity, member_config, read_secret_file};
use capstan_service::identity::{Authority, AuthorityKey, random_serial};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Handshakes at a time: two cores do not do ten thousand within the time that a server gives each.
const ARRIVING_MAX: usize = 64;
/// How long a server may take to know of certificates that are in its catalog.
const KNOWN_WITHIN: Duration = Duration::from_secs(4);
/// How long a client waits that was turned away or cut off.
const PAUSE: Duration = Duration::from_secs(5);

/// What all of them did.
#[derive(Default)]
struct Counts {
    connected: AtomicU64,
    answers: AtomicU64,
    failures: AtomicU64,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [state, address, clients] = &arguments[..] else {
        return Err("usage: cell_crowd STATE ADDRESS CLIENTS".into());
    };
    let identities = enrolled(Path::new(state), clients.parse()?)?;
    println!("enrolled {}", identities.len());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(crowd(identities, address.clone()))
}

/// Certificates of so many clients, on record as if each had joined.
fn enrolled(state: &Path, clients: u32) -> Result<Vec<Identity>, Failure> {
    let cell = state.join("cell");
    let certificate = CertificateDer::from_pem_slice(&read_secret_file(&cell.join("authority.pem"))?)?;
    let key = PrivatePkcs8KeyDer::from_pem_slice(&read_secret_file(&cell.join("authority.key"))?)?;
    let key = AuthorityKey::new(Zeroizing::new(key.secret_pkcs8_der().to_vec()));
    let authority = Authority::open(certificate, &key)?;
    let now_ns = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    let mut catalog = Catalog::open(&state.join("catalog"))?;
    let one = |number: u32| -> Result<Identity, Failure> {
        let peer = PeerId { kind: PeerKind::Client, name: format!("crowd{number:05}").parse()? };
        let key = CertificateKey::generate()?;
        let issued = authority.issue(&peer, &[], key.request(), random_serial()?, now_ns)?;
        let row = PeerRow {
            serial: issued.fields.serial.0,
            kind: peer.kind.as_str().to_owned(),
            name: peer.name.to_string(),
            enrolled_ns: now_ns,
            expires_ns: issued.fields.not_after_ns,
            revoked_ns: None,
            seen_ns: None,
            address: String::new(),
            version: String::new(),
        };
        let enrolment = EnrolmentRow { peer: peer.to_string(), record: Vec::new() };
        catalog.put_enrolment(&enrolment)?;
        if !catalog.change_enrolment(&enrolment, &[0], Some(&row))? {
            return Err("somebody else enrols the same clients".into());
        }
        let authority = Base64(authority.certificate().to_vec());
        Ok(key.certified(&IssuedCertificate { certificate: Base64(issued.certificate), authority })?)
    };
    (0..clients).map(one).collect()
}

async fn crowd(identities: Vec<Identity>, address: String) -> Result<(), Failure> {
    tokio::time::sleep(KNOWN_WITHIN).await;
    let (counts, arriving) = (Arc::new(Counts::default()), Arc::new(Semaphore::new(ARRIVING_MAX)));
    let all = identities.len();
    for identity in identities {
        let connector = TlsConnector::from(Arc::new(member_config(&identity)?));
        let (counts, arriving, address) = (Arc::clone(&counts), Arc::clone(&arriving), address.clone());
        tokio::spawn(async move {
            loop {
                if wait_for_orders(&connector, &address, &arriving, &counts).await.is_err() {
                    counts.failures.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    while counts.connected.load(Ordering::Relaxed) < all as u64 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("connected {all}");
    // Whoever measures asks with each line what was done since. The clients have threads of their own.
    for line in std::io::stdin().lines() {
        line?;
        let [answers, failures] = [&counts.answers, &counts.failures].map(|count| count.swap(0, Ordering::Relaxed));
        println!("answers {answers} failures {failures}");
    }
    Ok(())
}

/// Connects, and asks until something fails.
async fn wait_for_orders(
    connector: &TlsConnector,
    address: &str,
    arriving: &Semaphore,
    counts: &Counts,
) -> Result<(), Failure> {
    let permit = arriving.acquire().await?;
    let socket = TcpStream::connect(address).await?;
    let mut link = connector.connect(ServerName::try_from("server")?, socket).await?;
    let hello = PeerHello { version: env!("CARGO_PKG_VERSION").to_owned(), ..PeerHello::default() };
    let hello = serde_json::to_string(&hello)?;
    let head = format!("content-type: application/json\r\ncontent-length: {}\r\n", hello.len());
    ask(&mut link, &format!("POST /v1/hello HTTP/1.1\r\nhost: cell\r\n{head}\r\n{hello}")).await?;
    counts.connected.fetch_add(1, Ordering::Relaxed);
    drop(permit);
    let (mut epoch, mut after) = (String::new(), 0);
    loop {
        let query = if epoch.is_empty() { String::new() } else { format!("?after={after}&epoch={epoch}") };
        let body = ask(&mut link, &format!("GET /v1/orders{query} HTTP/1.1\r\nhost: cell\r\n\r\n")).await?;
        counts.answers.fetch_add(1, Ordering::Relaxed);
        let answer: OrdersAnswer = serde_json::from_slice(&body)?;
        epoch = answer.epoch;
        after = answer.orders.iter().map(|order| order.number).fold(after, u64::max);
    }
}

/// The body of the answer to a question.
async fn ask(link: &mut TlsStream<TcpStream>, question: &str) -> Result<Vec<u8>, Failure> {
    link.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    let head = loop {
        if let Some(at) = answer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if link.read_buf(&mut answer).await? == 0 {
            return Err("the server closed the connection".into());
        }
    };
    let text = std::str::from_utf8(&answer[..head])?.to_ascii_lowercase();
    if !text.starts_with("http/1.1 200") {
        return Err(text.into());
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.ok_or("an answer without its length")?.trim().parse()?;
    while answer.len() < head + length {
        if link.read_buf(&mut answer).await? == 0 {
            return Err("the server closed the connection".into());
        }
    }
    Ok(answer.split_off(head))
}
