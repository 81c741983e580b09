//! HTTP over our own TLS: the connector that `ureq` opens connections with.
//!
//! `ureq` has TLS of its own, and no place in it for a verifier that knows nodes by their kind and not by a host's
//! name; its chain of connectors is made to be extended, though its interface is not promised to stay. Rejected: an
//! async client with a runtime in a blocking library, and HTTP parsed by hand.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, TcpConnector, Transport, TransportAdapter,
};

/// Longest answer that is read.
pub(super) const ANSWER_LEN_MAX: u64 = 8 << 20;

/// An HTTP client that speaks TLS by `tls` alone: no plain connections, no redirects, no proxies.
pub(super) fn agent(tls: ClientConfig) -> Agent {
    let connector = ().chain(TcpConnector::default()).chain(TlsConnector { tls: Arc::new(tls) });
    Agent::with_parts(config(), connector, DefaultResolver::default())
}

/// A connection that is open before anything is asked, so that what is asked can be bound to it.
pub(super) struct OpenConnection(StreamOwned<ClientConnection, TcpStream>);

/// Connects, and speaks TLS by `tls`. Each wait ends after `patience`.
pub(super) fn connect(address: &str, tls: ClientConfig, patience: Duration) -> Result<OpenConnection, ureq::Error> {
    let parts = address.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let (host, _) =
        parts.ok_or_else(|| ureq::Error::BadUri("give host and port, as kma1:7444 or [::1]:7444".into()))?;
    let name = server_name(host)?;
    let mut socket = Err(ureq::Error::HostNotFound);
    for place in address.to_socket_addrs().map_err(|_| ureq::Error::HostNotFound)? {
        socket = TcpStream::connect_timeout(&place, patience).map_err(ureq::Error::Io);
        if socket.is_ok() {
            break;
        }
    }
    let mut socket = socket?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    let mut connection = ClientConnection::new(Arc::new(tls), name).map_err(std::io::Error::other)?;
    connection.complete_io(&mut socket).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ureq::Error::Timeout(ureq::Timeout::Global),
        _ => ureq::Error::Io(error),
    })?;
    Ok(OpenConnection(StreamOwned::new(connection, socket)))
}

impl OpenConnection {
    pub(super) fn tls(&self) -> &ClientConnection {
        &self.0.conn
    }

    /// An HTTP client that asks over this connection, and opens no other.
    pub(super) fn into_agent(self) -> Agent {
        Agent::with_parts(config(), OnlyConnection(Mutex::new(Some(self))), DefaultResolver::default())
    }
}

/// Gives its connection once.
struct OnlyConnection(Mutex<Option<OpenConnection>>);

impl fmt::Debug for OnlyConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnlyConnection")
    }
}

impl Connector<()> for OnlyConnection {
    type Out = TlsTransport<TcpStream>;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Self::Out>, ureq::Error> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let OpenConnection(stream) = connection.ok_or(ureq::Error::ConnectionFailed)?;
        Ok(Some(TlsTransport { buffers: buffers(details), stream }))
    }
}

fn config() -> Config {
    Config::builder()
        .http_status_as_error(false)
        .https_only(true)
        .max_redirects(0)
        .proxy(None)
        .max_idle_connections_per_host(4)
        .max_idle_age(Duration::from_secs(60))
        .max_response_header_size(16 << 10)
        .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// The verifier looks at no name; sessions to be resumed are found by it.
fn server_name(host: &str) -> Result<ServerName<'static>, ureq::Error> {
    let host = host.trim_matches(['[', ']']).to_owned();
    ServerName::try_from(host).map_err(|_| ureq::Error::HostNotFound)
}

fn buffers(details: &ConnectionDetails<'_>) -> LazyBuffers {
    LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size())
}

#[derive(Debug)]
struct TlsConnector {
    tls: Arc<ClientConfig>,
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = TlsTransport<TransportAdapter>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        let name = server_name(details.uri.host().unwrap_or_default())?;
        let mut connection = ClientConnection::new(self.tls.clone(), name).map_err(std::io::Error::other)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        Ok(Some(TlsTransport { buffers: buffers(details), stream: StreamOwned::new(connection, socket) }))
    }
}

struct TlsTransport<S: Socket> {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, S>,
}

/// What TLS goes over.
trait Socket: Read + Write + Send + Sync + 'static {
    fn wait_until(&mut self, timeout: NextTimeout) -> Result<(), ureq::Error>;

    fn is_open(&mut self) -> bool;
}

impl Socket for TransportAdapter {
    fn wait_until(&mut self, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.set_timeout(timeout);
        Ok(())
    }

    fn is_open(&mut self) -> bool {
        self.get_mut().is_open()
    }
}

impl Socket for TcpStream {
    fn wait_until(&mut self, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let timeout = timeout.not_zero().map(|timeout| *timeout);
        self.set_read_timeout(timeout)?;
        Ok(self.set_write_timeout(timeout)?)
    }

    /// It is asked over once, and never kept for later.
    fn is_open(&mut self) -> bool {
        false
    }
}

/// A socket whose time is over says that it would block.
fn timed_out(timeout: NextTimeout) -> impl Fn(std::io::Error) -> ureq::Error {
    move |error| match error.kind() {
        ErrorKind::WouldBlock => ureq::Error::Timeout(timeout.reason),
        _ => ureq::Error::Io(error),
    }
}

impl<S: Socket> fmt::Debug for TlsTransport<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl<S: Socket> Transport for TlsTransport<S> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.get_mut().wait_until(timeout)?;
        self.stream.write_all(&self.buffers.output()[..amount]).map_err(timed_out(timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.get_mut().wait_until(timeout)?;
        let amount = self.stream.read(self.buffers.input_append_buf()).map_err(timed_out(timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
