//! The data listener: connections of peers, each in a thread of its own, handed to whoever they are for.
//!
//! A connection shows its certificate before a byte of it is looked at. Then a client names a job by its token
//! ([`NetworkJobs::accept`]), and a mover waits until somebody needs it. Strangers get so few connections at a time
//! that they cannot use up threads.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use capstan_client::data::{DataStream, keep_alive};
use capstan_client::{CellOrder, JobId, OrderToken};
use capstan_keys::api::{PeerId, PeerKind};
use capstan_mover::{NetworkJob, NetworkJobs, protocol_fault};
use capstan_service::identity::{Gate, Peer, Revocations};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::CellError;
use super::known::KnownPeers;
use super::movers::MoverConnections;

/// How long a client that waits for orders may take to come for a job.
const CLIENT_COMES_WITHIN: Duration = Duration::from_secs(45);
/// How long a handshake may take, however its bytes trickle in.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that have not shown who they are, at a time: in all, and from one address.
const ARRIVING_MAX: usize = 1_024;
const ARRIVING_FROM_ONE_MAX: usize = 64;
/// Connections of one peer at a time that are served here.
const OF_PEER_MAX: usize = 512;
/// Connections at a time, in all.
const CONNECTIONS_MAX: usize = 8_192;
/// How long nobody is accepted after the system could not.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens for data until it is dropped. What is under way then ends with its job.
pub struct DataListener {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepts: Option<JoinHandle<()>>,
}

/// A connection of data, as the listener has it.
pub type PeerStream = DataStream<ServerConnection>;

/// Whoever takes connections of data.
pub trait DataDoor: Send + Sync {
    /// Takes a connection in, and serves it in this thread if it is to be served at once.
    ///
    /// # Errors
    /// The peer has no business here, or the connection breaks.
    fn accept(&self, peer: &Peer, stream: PeerStream) -> io::Result<()>;
}

/// What stands in front of it.
struct Door {
    tls: Arc<ServerConfig>,
    gate: Gate,
    behind: Arc<dyn DataDoor>,
    arriving: Counts<IpAddr>,
    of_peers: Counts<PeerId>,
    open: AtomicUsize,
}

/// How many there are of each, and in all.
struct Counts<K>(Mutex<HashMap<K, usize>>);

/// One of them, until it is dropped.
struct OneMore<'a, K: Hash + Eq>(&'a Counts<K>, K);

impl<K: Hash + Eq + Clone> Counts<K> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, unless there are so many of its kind.
    fn one_more(&self, of: K, max: usize) -> Option<OneMore<'_, K>> {
        let mut all = self.all();
        let count = all.entry(of.clone()).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(OneMore(self, of))
    }
}

impl<K: Hash + Eq> Drop for OneMore<'_, K> {
    fn drop(&mut self) {
        let mut all = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

impl DataListener {
    /// Opens the port.
    ///
    /// # Errors
    /// [`CellError::Listen`] if it is taken; otherwise no thread can be begun.
    pub fn start(
        address: SocketAddr,
        tls: Arc<ServerConfig>,
        gate: Gate,
        behind: Arc<dyn DataDoor>,
    ) -> Result<Self, CellError> {
        let setting = "data";
        let listener = TcpListener::bind(address).map_err(|source| CellError::Listen { setting, address, source })?;
        let host = |what| move |source| CellError::Host { what, source };
        let address = listener.local_addr().map_err(host("tell the address of a listener"))?;
        let is_over: Arc<AtomicBool> = Arc::default();
        let (arriving, of_peers) = (Counts::new(), Counts::new());
        let door = Door { tls, gate, behind, arriving, of_peers, open: AtomicUsize::new(0) };
        raise_descriptor_limit();
        let ends = Arc::clone(&is_over);
        let accept = move || accept(&listener, &Arc::new(door), &ends);
        let accepts = thread::Builder::new().name("data".to_owned()).spawn(accept);
        Ok(Self { address, is_over, accepts: Some(accepts.map_err(host("start threads for the cell"))?) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DataListener {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It waits for a connection: here is one.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
        }
        let woken = TcpStream::connect_timeout(&own, Duration::from_secs(1));
        if let (Some(accepts), Ok(_)) = (self.accepts.take(), woken) {
            let _ = accepts.join();
        }
    }
}

/// Lets the process open as many files as it may: each connection is one.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer, connections are refused sooner.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn accept(listener: &TcpListener, door: &Arc<Door>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok((socket, from)) = listener.accept() else {
            // Out of descriptors, or of memory for sockets: it gets no better by trying at once.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let arriving: usize = door.arriving.all().values().sum();
        if arriving >= ARRIVING_MAX || door.open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        door.open.fetch_add(1, Ordering::Relaxed);
        let served = Arc::clone(door);
        let serve = move || {
            let door = ClosesAtLast(served);
            // Whoever is turned away is told by the end of the connection, or by the protocol.
            let _ = door.0.serve(socket, from);
        };
        if thread::Builder::new().name("data".to_owned()).spawn(serve).is_err() {
            door.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// An open connection, until it is dropped.
struct ClosesAtLast(Arc<Door>);

impl Drop for ClosesAtLast {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Door {
    fn serve(&self, mut socket: TcpStream, from: SocketAddr) -> io::Result<()> {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let arrives = self.arriving.one_more(from.ip(), ARRIVING_FROM_ONE_MAX).ok_or_else(denied)?;
        keep_alive(&socket)?;
        let mut tls = ServerConnection::new(Arc::clone(&self.tls)).map_err(io::Error::other)?;
        let until = Instant::now() + HANDSHAKE;
        while tls.is_handshaking() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left))?;
            socket.set_write_timeout(Some(left))?;
            if tls.wants_write() {
                tls.write_tls(&mut socket)?;
            } else if tls.read_tls(&mut socket)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            } else if let Err(error) = tls.process_new_packets() {
                // What is wrong is said to the other end.
                tls.write_tls(&mut socket)?;
                return Err(io::Error::other(error));
            }
        }
        let certificate = tls.peer_certificates().and_then(|chain| chain.first()).ok_or_else(denied)?;
        let peer = self.gate.peer(certificate).map_err(io::Error::other)?.ok_or_else(denied)?;
        self.gate.admits(&peer, from).map_err(io::Error::other)?;
        drop(arrives);
        let _of_peer = self.of_peers.one_more(peer.id.clone(), OF_PEER_MAX).ok_or_else(denied)?;
        self.behind.accept(&peer, DataStream(StreamOwned::new(tls, socket)))
    }
}

/// The door of a server: clients come for their jobs, and movers wait to be needed.
pub(super) struct ServerDoor {
    pub(super) jobs: NetworkJobs,
    pub(super) movers: MoverConnections,
    pub(super) known: Arc<KnownPeers>,
    /// Told what clients do against the protocol.
    pub(super) say: Arc<dyn Fn(String) + Send + Sync>,
}

/// What whoever keeps a mover's messages is told of a connection of a client, if it is anything: that it ended or broke
/// is not.
pub(super) fn objection(client: &PeerId, served: &io::Result<()>) -> Option<String> {
    let fault = protocol_fault(served.as_ref().err()?)?;
    Some(format!(
        "{client} has sent what its mover objects to, and what it reads fails: {fault}. See that both are of the \
         newest version, and report it if they are"
    ))
}

impl DataDoor for ServerDoor {
    fn accept(&self, Peer { id, serial, .. }: &Peer, stream: PeerStream) -> io::Result<()> {
        match id.kind {
            PeerKind::Client => {
                let served = self.jobs.accept(id.name.as_str(), Box::new(stream));
                objection(id, &served).into_iter().for_each(|reason| (self.say)(reason));
                served
            }
            PeerKind::Mover => {
                self.movers.keep(id.name.as_str(), *serial, stream)?;
                // It may have been revoked since it was let in, and whoever ended its connections did not see this one.
                if self.known.is_revoked(serial) {
                    self.movers.shut_out(serial);
                }
                Ok(())
            }
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

/// Opens a job of a client; with the order that tells it to come with so many links.
pub(super) fn open_job(
    jobs: &NetworkJobs,
    data_port: u16,
    client: &str,
    links: u16,
) -> Result<(NetworkJob, CellOrder), CellError> {
    let no_random = |source| CellError::Host { what: "draw a random number", source };
    let job = jobs.open(client, CLIENT_COMES_WITHIN).map_err(no_random)?;
    let order = CellOrder::Serve {
        job: JobId(*uuid::Uuid::new_v4().as_bytes()),
        token: OrderToken::new(job.token().0),
        data: format!(":{data_port}"),
        links,
        restore: None,
    };
    Ok((job, order))
}
