//! The data listener: connections of clients, each in a thread of its own, handed to the mover of this process.
//!
//! A connection shows its certificate before a byte of it is looked at. Then it names a job by its token
//! ([`NetworkJobs::accept`]). Strangers get so few connections at a time that they cannot use up threads.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use capstan_client::data::{DataStream, keep_alive};
use capstan_client::{CellOrder, JobId, OrderToken};
use capstan_keys::api::PeerKind;
use capstan_mover::{NetworkJob, NetworkJobs};
use capstan_service::identity::Gate;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::CellError;

/// How long a client that waits for orders may take to come for a job.
const CLIENT_COMES_WITHIN: Duration = Duration::from_secs(45);
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that have not shown who they are, at a time.
const ARRIVING_MAX: usize = 256;
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

struct Door {
    tls: Arc<ServerConfig>,
    gate: Gate,
    jobs: NetworkJobs,
    arriving: AtomicUsize,
    open: AtomicUsize,
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
        jobs: NetworkJobs,
    ) -> Result<Self, CellError> {
        let setting = "data";
        let listener = TcpListener::bind(address).map_err(|source| CellError::Listen { setting, address, source })?;
        let host = |what| move |source| CellError::Host { what, source };
        let address = listener.local_addr().map_err(host("tell the address of a listener"))?;
        let is_over: Arc<AtomicBool> = Arc::default();
        let door = Door { tls, gate, jobs, arriving: AtomicUsize::new(0), open: AtomicUsize::new(0) };
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

fn accept(listener: &TcpListener, door: &Arc<Door>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok((socket, _)) = listener.accept() else {
            // Out of descriptors, or of memory for sockets: it gets no better by trying at once.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let is_full = door.arriving.load(Ordering::Relaxed) >= ARRIVING_MAX
            || door.open.load(Ordering::Relaxed) >= CONNECTIONS_MAX;
        if is_full {
            continue;
        }
        let (door, arrives) = (Arc::clone(door), Arc::new(Counted::more(door, |door| &door.arriving)));
        let serve = move || {
            let _open = Counted::more(&door, |door| &door.open);
            // Whoever is turned away is told by the end of the connection, or by the protocol.
            let _ = door.serve(socket, arrives);
        };
        let _ = thread::Builder::new().name("data".to_owned()).spawn(serve);
    }
}

/// One more of something, until it is dropped.
struct Counted {
    door: Arc<Door>,
    of: fn(&Door) -> &AtomicUsize,
}

impl Counted {
    fn more(door: &Arc<Door>, of: fn(&Door) -> &AtomicUsize) -> Self {
        of(door).fetch_add(1, Ordering::Relaxed);
        Self { door: Arc::clone(door), of }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.door).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Door {
    fn serve(&self, mut socket: TcpStream, arrives: Arc<Counted>) -> io::Result<()> {
        keep_alive(&socket)?;
        socket.set_read_timeout(Some(HANDSHAKE))?;
        socket.set_write_timeout(Some(HANDSHAKE))?;
        let mut tls = ServerConnection::new(Arc::clone(&self.tls)).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let certificate = tls.peer_certificates().and_then(|chain| chain.first()).ok_or_else(denied)?;
        let peer = self.gate.peer(certificate).map_err(io::Error::other)?.ok_or_else(denied)?;
        self.gate.admits(&peer).map_err(io::Error::other)?;
        if peer.id.kind != PeerKind::Client {
            return Err(denied());
        }
        drop(arrives);
        self.jobs.accept(peer.id.name.as_str(), Box::new(DataStream(StreamOwned::new(tls, socket))))
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
    };
    Ok((job, order))
}
