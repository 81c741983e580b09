//! A client's backup to a mover at the other end of TLS, uncompressed and to nowhere, beside bare TLS sockets, as many,
//! that carry as much: once one piece over and over, and once the files, read as they are sent.
//!
//! `wire FOLDER [ROUNDS [CONNECTIONS [WAY_MS]]]` backs FOLDER up; prints a line of JSON for each round. Both ends are
//! in this process, and what is between them is what a cell has: its blocks, credit, checksums and reports. WAY_MS is
//! how long a byte and its answer take, there and back, for both, with 4 MB under way in each connection.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot run stops")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
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
/// What is under way in one connection over a long way: what Linux lets a sender keep by itself.
const UNDER_WAY: usize = 4 << 20;

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

/// An address that leads to another one over so long a way; it ends with the process.
fn way_to(address: SocketAddr, way: Duration) -> SocketAddr {
    if way.is_zero() {
        return address;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let begins = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(address).unwrap());
            [&near, &far].iter().for_each(|end| end.set_nodelay(true).unwrap());
            pass(near.try_clone().unwrap(), far.try_clone().unwrap(), way / 2);
            pass(far, near, way / 2);
        }
    });
    begins
}

/// Passes on what comes, each piece so long after it came.
fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    const STEP: usize = 64 << 10;
    // Half of it is on its way back, as answers.
    let (put, take) = sync_channel::<(Instant, Vec<u8>)>(UNDER_WAY / STEP / 2);
    std::thread::spawn(move || {
        for (due, bytes) in take {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut bytes = vec![0; STEP];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            if put.send((Instant::now() + delay, bytes[..len].to_vec())).is_err() {
                break;
            }
        }
    });
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
fn backup(site: Site, ends: &Ends, folder: &Path, (connections, way): (u16, Duration)) -> (Duration, u64) {
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
    let (token, dial) = (job.token().clone(), Mover { ends: ends.clone(), address: way_to(address, way) });
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

/// Sends a piece.
type Send<'a> = dyn FnMut(&[u8]) + 'a;
/// Gives pieces to whoever sends them.
type Pieces<'a> = dyn Fn(&mut Send<'_>) + Sync + 'a;

/// How long as many bare sockets take for pieces, which each of them asks for.
fn bare(ends: &Ends, (connections, way): (u16, Duration), bytes: u64, pieces: &Pieces<'_>) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = way_to(listener.local_addr().unwrap(), way);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let (done, ended): (Sender<u64>, _) = channel();
        scope.spawn(move || {
            std::thread::scope(|scope| {
                for _ in 0..connections {
                    let (socket, done) = (listener.accept().unwrap().0, done.clone());
                    scope.spawn(move || {
                        let (mut stream, mut piece, mut all) = (ends.take(socket).unwrap(), vec![0; PIECE], 0);
                        while let len @ 1.. = stream.read(&mut piece).unwrap() {
                            all += len as u64;
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
                let mut stream = ends.connect(address).unwrap();
                pieces(&mut |piece| stream.write_all(piece).unwrap());
                stream.0.conn.send_close_notify();
                stream.flush().unwrap();
                stream.read_exact(&mut [0]).unwrap();
            });
        }
        assert_eq!(ended.iter().take(connections.into()).sum::<u64>(), bytes);
    });
    began.elapsed()
}

/// The same piece over and over, from the processor's cache: so many bytes.
fn one_piece(bytes: u64) -> impl Fn(&mut Send<'_>) + Sync {
    let left = AtomicU64::new(bytes);
    move |send| {
        let piece = vec![7; PIECE];
        let take = |left: u64| Some(left.saturating_sub(PIECE as u64)).filter(|_| left > 0);
        while let Ok(left) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            send(&piece[..left.min(PIECE as u64) as usize]);
        }
    }
}

/// What files hold, read as it is sent: what a copy of them costs at least.
fn of_files(files: &[PathBuf]) -> impl Fn(&mut Send<'_>) + Sync {
    let next = AtomicUsize::new(0);
    move |send| {
        let mut piece = vec![0; PIECE];
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut file = File::open(path).unwrap();
            while let len @ 1.. = file.read(&mut piece).unwrap() {
                send(&piece[..len]);
            }
        }
    }
}

/// The files below a folder, and how many bytes they have.
fn files_below(folder: &Path) -> (Vec<PathBuf>, u64) {
    let (mut files, mut bytes, mut folders) = (Vec::new(), 0, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            if about.is_dir() {
                folders.push(entry.path());
            } else if about.is_file() {
                bytes += about.len();
                files.push(entry.path());
            }
        }
    }
    (files, bytes)
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(arguments.first().unwrap());
    let rounds: u32 = arguments.get(1).map_or(5, |rounds| rounds.parse().unwrap());
    let connections: u16 = arguments.get(2).map_or(2, |connections| connections.parse().unwrap());
    let way = Duration::from_millis(arguments.get(3).map_or(0, |way| way.parse().unwrap()));
    let over = (connections, way);
    let state = tempfile::tempdir().unwrap();
    let options = InitOptions { config: Config::default(), encryption: None, database: Database::Sqlite };
    let unlock = create_key_file(&state.path().join("key")).unwrap();
    Site::init(&state.path().join("state"), &options, Some(&unlock)).unwrap();
    let ends = Ends::new();
    for round in 0..=rounds {
        let site = Site::open(&state.path().join("state"), Some(&unlock), now_ns, Arc::new(|_| {})).unwrap();
        let (took, bytes) = backup(site, &ends, &folder, over);
        let one = bare(&ends, over, bytes, &one_piece(bytes));
        let (files, of_all) = files_below(&folder);
        let read = bare(&ends, over, of_all, &of_files(&files));
        // The first fills the caches.
        if round > 0 {
            let row = serde_json::json!({
                "bytes": bytes, "backup_ns": took.as_nanos() as u64, "bare_ns": one.as_nanos() as u64,
                "file_bytes": of_all, "files_ns": read.as_nanos() as u64,
            });
            println!("{row}");
        }
    }
}
