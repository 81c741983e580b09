//! Connections: accepted, counted, and their peers known.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info, warn};

use super::connection_limiter::ConnectionLimiter;
use super::{ConnectionCounts, ConnectionState, ListenerLimits, Permit};
use crate::identity::{Gate, Peer};
use crate::shutdown::Shutdown;

/// Out of file descriptors, or of memory for sockets: it gets no better by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that the kernel keeps until they are accepted: with fewer, a burst of others costs whoever comes a
/// second, until his first packet is sent again. The kernel's own limit (`net.core.somaxconn`) is 4096.
const BACKLOG: u32 = 4096;

/// Opens a port.
///
/// # Errors
/// What the system says: the address is not ours, or in use.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // So that a process that was stopped can start again at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A connection whose peer is known.
pub struct PeerConnection {
    /// Who it is. Handlers of streams ask [`Gate::admits`] on each request.
    pub peer: Peer,
    /// Where it comes from.
    pub from: SocketAddr,
    /// What it says and is told.
    pub stream: TlsStream<TcpStream>,
    /// Its permit: handlers say on each request that it is [`ConnectionState::Busy`] and afterwards that it is idle,
    /// and return when it is evicted.
    pub permit: Permit,
}

/// Serves streams of bytes over mutual TLS until the end begins: `handle` is run for each connection and sees to limits
/// of its own. Returns when all connections are closed, or `limits.grace` later.
pub async fn serve_streams<H, F>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    gate: Gate,
    limits: ListenerLimits,
    counts: ConnectionCounts,
    shutdown: Shutdown,
    handle: H,
) where
    H: Fn(PeerConnection, Shutdown) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let serve = move |established: EstablishedConnection, shutdown: Shutdown| {
        let (handle, gate) = (handle.clone(), gate.clone());
        async move {
            let EstablishedConnection { from, stream, permit } = established;
            if let Some(peer) = known_peer(&stream, &gate, from) {
                if !permit.assign_to(&peer.id.to_string(), limits.peer_connections_max) {
                    warn!(%from, %peer.id, "dropped: this peer has its share of connections, and all of them are busy");
                    return;
                }
                handle(PeerConnection { peer, from, stream, permit }, shutdown).await;
            }
        }
    };
    accept(listener, tls, limits, counts, shutdown, serve).await;
}

/// A connection whose TLS is established.
pub(super) struct EstablishedConnection {
    pub(super) from: SocketAddr,
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) permit: Permit,
}

/// The peer of a connection, if its certificate is one of the cluster.
pub(super) fn known_peer(stream: &TlsStream<TcpStream>, gate: &Gate, from: SocketAddr) -> Option<Peer> {
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first())?;
    match gate.peer(certificate) {
        Ok(Some(peer)) => Some(peer),
        Ok(None) => {
            warn!(%from, "turned away: a certificate of another cluster");
            None
        }
        Err(error) => {
            warn!(%from, %error, "turned away");
            None
        }
    }
}

pub(super) async fn accept<H, F>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    limits: ListenerLimits,
    counts: ConnectionCounts,
    mut shutdown: Shutdown,
    serve: H,
) where
    H: Fn(EstablishedConnection, Shutdown) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let limiter = ConnectionLimiter::new(limits.connections_max, counts);
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.begun() => break,
            // So that what has ended is let go of.
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if let Err(error) = ended {
                    warn!(%error, "a connection's task failed");
                }
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "no connection could be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(permit) = limiter.acquire() else {
            warn!(%from, "dropped: every permit is held by a request");
            continue;
        };
        let (acceptor, serve, shutdown) = (acceptor.clone(), serve.clone(), shutdown.clone());
        connections.spawn(async move {
            let established = tokio::select! {
                () = permit.evicted() => None,
                established = timeout(limits.handshake, establish(&acceptor, stream)) => established.ok(),
            };
            match established {
                Some(Ok(stream)) => {
                    permit.set_state(ConnectionState::Idle);
                    // On the heap, as is TLS: a connection without TLS takes no room for what only members need.
                    Box::pin(serve(EstablishedConnection { from, stream, permit }, shutdown)).await;
                }
                Some(Err(error)) => info!(%from, %error, "no TLS"),
                None => debug!(%from, "dropped before TLS was established"),
            }
        });
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.grace, all_ended).await.is_err() {
        warn!("connections were cut off at the end");
    }
    connections.abort_all();
}

async fn establish(acceptor: &TlsAcceptor, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    // Answers are small and waited for.
    stream.set_nodelay(true)?;
    // Nothing is laid out for TLS before there is something to read.
    stream.readable().await?;
    Box::pin(acceptor.accept(stream)).await
}
