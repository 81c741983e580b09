//! A client's backup to a mover at the other end of TLS, uncompressed and to nowhere, beside bare TLS sockets, as many,
//! that carry as much.
//!
//! `wire FOLDER [ROUNDS [CONNECTIONS]]` backs FOLDER up; prints a line of JSON for each round. Both ends are in this
//! process, and what is between them is what a cell has: its blocks, credit, checksums and reports.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot run stops")]

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use capstan_catalog::Database;
use capstan_client::data::{DataStream, keep_alive};
use capstan_director::{BackupRequest, BackupWatch, Config, InitOptions, Site, Target};
use capstan_keys::cluster::provider;
use capstan_keys::create_key_file;
use capstan_mover::{ClientEnd, ClientRules, Dial, JobToken, NetworkJobs, NetworkStream, serve_job};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned, version};

const CLIENT: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(30);
/// What bare sockets write at a time: a block.
const PIECE: usize = 256 << 10;

/// Two ends of TLS on loopback.
#[derive(Clone)]
struct Ends {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Ends {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["capstan".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let client =
            ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13]).unwrap();
        let server =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13]).unwrap();
        Self {
            client: Arc::new(client.with_root_certificates(roots).with_no_client_auth()),
            server: Arc::new(server.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()),
        }
    }

    fn connect(&self, address: SocketAddr) -> io::Result<DataStream<ClientConnection>> {
        let mut socket = TcpStream::connect(address)?;
        keep_alive(&socket)?;
        let name = ServerName::try_from("capstan").map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(Arc::clone(&self.client), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(DataStream(StreamOwned::new(tls, socket)))
    }

    fn take(&self, mut socket: TcpStream) -> io::Result<DataStream<ServerConnection>> {
        keep_alive(&socket)?;
        let mut tls = ServerConnection::new(Arc::clone(&self.server)).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(DataStream(StreamOwned::new(tls, socket)))
    }
}

/// What the client dials.
struct Mover {
    ends: Ends,
    address: SocketAddr,
}

impl Dial for Mover {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        Ok(Box::new(self.ends.connect(self.address)?))
    }

    fn at(&self, _: &str, _: &JobToken) -> io::Result<Box<dyn Dial + '_>> {
        Ok(Box::new(Self { ends: self.ends.clone(), address: self.address }))
    }
}

/// A client that lets its files be read.
struct Anything;

impl ClientRules for Anything {
    fn allows(&self, _: &Path) -> bool {
        true
    }

    fn script(&self, _: &str) -> Option<Vec<OsString>> {
        None
    }
}

fn now_ns() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// How long a backup of a folder takes, and its bytes.
fn backup(site: Site, ends: &Ends, folder: &Path, connections: u16) -> (Duration, u64) {
    let jobs = NetworkJobs::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (door, takes) = (jobs.clone(), ends.clone());
    // It ends with the process.
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (door, takes, socket) = (door.clone(), takes.clone(), socket.unwrap());
            std::thread::spawn(move || door.accept(CLIENT, Box::new(takes.take(socket).unwrap())));
        }
    });
    let began = Instant::now();
    let job = jobs.open(CLIENT, PATIENCE).unwrap();
    let (token, dial) = (job.token().clone(), Mover { ends: ends.clone(), address });
    let report = std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let stop = Arc::default();
            serve_job(&ClientEnd { dial: &dial, token, links: 1, rules: &Anything, restores: None, stop })
        });
        let site = site.for_client(CLIENT).with_sources(Arc::new(job));
        let request = BackupRequest {
            target: Target::Null,
            connections,
            compression: Some(0),
            ..BackupRequest::of(vec![folder.to_owned()])
        };
        let report = site.backup(&request, &BackupWatch::default()).unwrap();
        drop(site);
        let _ = client.join().unwrap();
        report
    });
    (began.elapsed(), report.stored_bytes)
}

/// How long as many bare sockets take for as many bytes.
fn bare(ends: &Ends, connections: u16, bytes: u64) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let each = bytes / u64::from(connections);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let (done, ended): (Sender<u64>, _) = channel();
        scope.spawn(move || {
            std::thread::scope(|scope| {
                for _ in 0..connections {
                    let (socket, done) = (listener.accept().unwrap().0, done.clone());
                    scope.spawn(move || {
                        let (mut stream, mut piece, mut all) = (ends.take(socket).unwrap(), vec![0; PIECE], 0);
                        while all < each {
                            all += stream.read(&mut piece).unwrap() as u64;
                        }
                        // The client waits for it, as for a report.
                        stream.write_all(&[1]).unwrap();
                        stream.flush().unwrap();
                        done.send(all).unwrap();
                    });
                }
            });
        });
        for _ in 0..connections {
            scope.spawn(|| {
                let (mut stream, piece, mut left) = (ends.connect(address).unwrap(), vec![7; PIECE], each);
                while left > 0 {
                    let len = left.min(PIECE as u64);
                    stream.write_all(&piece[..len as usize]).unwrap();
                    left -= len;
                }
                stream.flush().unwrap();
                stream.read_exact(&mut [0]).unwrap();
            });
        }
        assert_eq!(ended.iter().take(connections.into()).sum::<u64>(), each * u64::from(connections));
    });
    began.elapsed()
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(arguments.first().unwrap());
    let rounds: u32 = arguments.get(1).map_or(5, |rounds| rounds.parse().unwrap());
    let connections: u16 = arguments.get(2).map_or(2, |connections| connections.parse().unwrap());
    let state = tempfile::tempdir().unwrap();
    let options = InitOptions { config: Config::default(), encryption: None, database: Database::Sqlite };
    let unlock = create_key_file(&state.path().join("key")).unwrap();
    Site::init(&state.path().join("state"), &options, Some(&unlock)).unwrap();
    let ends = Ends::new();
    for round in 0..=rounds {
        let site = Site::open(&state.path().join("state"), Some(&unlock), now_ns, Arc::new(|_| {})).unwrap();
        let (took, bytes) = backup(site, &ends, &folder, connections);
        let bare = bare(&ends, connections, bytes);
        // The first fills the caches.
        if round > 0 {
            let row = serde_json::json!({
                "bytes": bytes, "backup_ns": took.as_nanos() as u64, "bare_ns": bare.as_nanos() as u64,
            });
            println!("{row}");
        }
    }
}
