//! HTTP over our own TLS: the connector that `ureq` opens connections with.
//!
//! `ureq` has TLS of its own, and no place in it for a verifier that knows nodes by their kind and not by a host's
//! name; its chain of connectors is made to be extended, though its interface is not promised to stay. Rejected: an
//! async client with a runtime in a blocking library, and HTTP parsed by hand.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
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
    let config = Config::builder()
        .http_status_as_error(false)
        .https_only(true)
        .max_redirects(0)
        .proxy(None)
        .max_idle_connections_per_host(4)
        .max_idle_age(Duration::from_secs(60))
        .max_response_header_size(16 << 10)
        .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")))
        .build();
    let connector = ().chain(TcpConnector::default()).chain(TlsConnector { tls: Arc::new(tls) });
    Agent::with_parts(config, connector, DefaultResolver::default())
}

#[derive(Debug)]
struct TlsConnector {
    tls: Arc<ClientConfig>,
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = TlsTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<TlsTransport>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        // The verifier looks at no name; sessions to be resumed are found by it.
        let host = details.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| ureq::Error::HostNotFound)?;
        let mut connection = ClientConnection::new(self.tls.clone(), name).map_err(std::io::Error::other)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(TlsTransport { buffers, stream: StreamOwned::new(connection, socket) }))
    }
}

struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
