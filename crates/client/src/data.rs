//! Connections of data: TCP, TLS with the cell's certificates, and nothing of HTTP.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use capstan_keys::cluster::{Identity, member_config};
use capstan_mover::{Connection, Dial, JobToken, NetworkJobs, NetworkStream, StreamHere};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ConnectionCommon, SideData, StreamOwned};

use crate::ClientError;

/// How long a connection and its handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// After so long without a word the system asks whether the other end is there.
const ASKS_AFTER: Duration = Duration::from_secs(30);
/// How often it asks in vain before the connection is over, that long apart.
const ASKS: u32 = 3;
const ASKS_EVERY: Duration = Duration::from_secs(10);

/// A connection of data under TLS; `C` is the side of it that is here.
pub struct DataStream<C>(pub StreamOwned<C, TcpStream>);

impl<C, S> Read for DataStream<C>
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl<C, S> Write for DataStream<C>
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<C, S> NetworkStream for DataStream<C>
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>> + Send,
    S: SideData,
{
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.0.sock.set_read_timeout(limit)?;
        self.0.sock.set_write_timeout(limit)
    }
}

/// Has the system find out when the other end is gone, also while nothing is sent for hours.
///
/// # Errors
/// What the system says.
pub fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    // What is sent is waited for.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ASKS_AFTER)?;
    sockopt::set_tcp_keepcnt(stream, ASKS)?;
    Ok(sockopt::set_tcp_keepintvl(stream, ASKS_EVERY)?)
}

/// Opens connections of data to the server or mover at an address.
pub(crate) struct DataDialer {
    address: String,
    tls: Arc<ClientConfig>,
    /// Who dials.
    client: String,
    /// The mover of this process, if there is one.
    mover: Option<NetworkJobs>,
    /// Whether one of its jobs was met, and one of another mover.
    was_here: AtomicBool,
    was_elsewhere: AtomicBool,
    /// Connections that were opened to this address.
    opened: AtomicU64,
}

impl DataDialer {
    pub(crate) fn new(identity: &Identity, address: String) -> Result<Self, ClientError> {
        let tls = member_config(identity).map_err(|error| ClientError::DataTls(Box::new(error)))?;
        let client = identity.certificate().peer.name.to_string();
        let (was_here, was_elsewhere, opened) = Default::default();
        Ok(Self { address, tls: Arc::new(tls), client, mover: None, was_here, was_elsewhere, opened })
    }

    pub(crate) fn beside(self, mover: Option<NetworkJobs>) -> Self {
        Self { mover, ..self }
    }

    /// Whether data went to the mover of this process, and none over the network, where so many connections carry
    /// orders.
    pub(crate) fn is_lan_free(&self, links: u16) -> bool {
        let said = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let more = self.opened.load(Ordering::Relaxed) > u64::from(links);
        said(&self.was_here) && !said(&self.was_elsewhere) && !more
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut failed = None;
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = Some(io::Error::new(error.kind(), format!("{address}: {error}"))),
            }
        }
        Err(failed.unwrap_or_else(|| io::Error::other(format!("{} is no address", self.address))))
    }
}

impl Dial for DataDialer {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let mut socket = self.connect()?;
        keep_alive(&socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        // The verifier looks at kind and cell, and not at a host's name.
        let name = ServerName::try_from("capstan").map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Box::new(DataStream(StreamOwned::new(tls, socket))))
    }

    fn at(&self, address: &str, job: &JobToken) -> io::Result<Box<dyn Dial + '_>> {
        if let Some(here) = self.mover.as_ref().and_then(|mover| mover.dial_here(&self.client, job)) {
            self.was_here.store(true, Ordering::Relaxed);
            return Ok(Box::new(here));
        }
        self.was_elsewhere.store(true, Ordering::Relaxed);
        let (address, tls, client) = (address.to_owned(), Arc::clone(&self.tls), self.client.clone());
        let (was_here, was_elsewhere, opened) = Default::default();
        Ok(Box::new(Self { address, tls, client, mover: self.mover.clone(), was_here, was_elsewhere, opened }))
    }

    fn connection_here(&self, stream: &StreamHere<'_>) -> io::Result<Option<Connection>> {
        let Some(mover) = &self.mover else { return Ok(None) };
        let here = mover.connection_here(&self.client, stream)?;
        self.was_here.fetch_or(here.is_some(), Ordering::Relaxed);
        Ok(here)
    }
}
