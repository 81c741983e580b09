//! The listener of KMIP clients: messages over mutual TLS, answered one after the other.
//!
//! ```text
//!  bytes --message_len--> request --view: decide--> changes? --compare-and-set--> audit log --> response --> notes
//!                                        ^                          |
//!                                        '---- decided anew <-------' conflict, or the answer was lost
//! ```
//! What was decided is committed before it is noted, and noted before it is answered. A node that is cut off answers
//! what changes nothing. Every message must be whole so many seconds after its first byte
//! ([`ListenerLimits::request`]), and its answer be taken in so many more.

mod audit;
mod desk;
mod quota;

use std::io;
use std::sync::Arc;

use capstan_kmip::{HEADER_LEN, message_len};
use capstan_service::identity::Gate;
use capstan_service::listener::{ConnectionState, ListenerLimits, PeerConnection, serve_streams};
use capstan_service::shutdown::Shutdown;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::Service;

pub(super) use quota::Quotas;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 1024;
/// Those of them that one client may have.
const PEER_CONNECTIONS_MAX: usize = 128;
/// Longest message that needs no room of its own: libraries send and get some thousand bytes.
const SMALL: usize = 64 << 10;
/// Room for all longer ones together, requests up to 1 MiB and answers up to 4 MiB: without it the connections could
/// hold five gigabytes, since whoever sends or takes slowly holds what there is of a message for seconds.
const LARGE_BYTES: usize = 256 << 20;
/// What the room is counted in.
const UNIT: usize = 64 << 10;

/// Serves KMIP clients until the end begins.
pub(super) async fn serve(
    service: Arc<Service>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    gate: Gate,
    shutdown: Shutdown,
) {
    let limits = ListenerLimits {
        connections_max: CONNECTIONS_MAX,
        peer_connections_max: PEER_CONNECTIONS_MAX,
        ..ListenerLimits::default()
    };
    let counts = service.metrics.connections.of("kmip");
    let room = Arc::new(Semaphore::new(LARGE_BYTES / UNIT));
    let handle = {
        let gate = gate.clone();
        move |connection: PeerConnection, shutdown: Shutdown| {
            let (service, gate, room) = (service.clone(), gate.clone(), room.clone());
            async move {
                let from = connection.from;
                if let Err(error) = converse(&service, &gate, limits, &room, connection, shutdown).await {
                    tracing::debug!(%from, %error, "a KMIP connection ended");
                }
            }
        }
    };
    serve_streams(listener, tls, gate, limits, counts, shutdown, handle).await;
}

/// What comes after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The next request.
    GoOn,
    /// The end: the client is not let in any more, or nobody knows where its next message begins.
    HangUp,
}

async fn converse(
    service: &Arc<Service>,
    gate: &Gate,
    limits: ListenerLimits,
    room: &Semaphore,
    connection: PeerConnection,
    mut shutdown: Shutdown,
) -> io::Result<()> {
    let PeerConnection { peer, from, mut stream, permit } = connection;
    loop {
        let mut header = [0; HEADER_LEN];
        let first = tokio::select! {
            biased;
            () = permit.evicted() => return Ok(()),
            () = shutdown.begun() => return Ok(()),
            read = timeout(limits.idle, stream.read(&mut header)) => read??,
        };
        if first == 0 {
            return Ok(());
        }
        permit.set_state(ConnectionState::Busy);
        let request = timeout(limits.request, receive(&mut stream, room, header, first)).await??;
        let (request, whole) = match &request {
            Received::Message { message: request, .. } => (request.as_slice(), Then::GoOn),
            Received::Noise(header) => (header.as_slice(), Then::HangUp),
        };
        let said = service.answer_kmip(gate, &peer, from, request).await;
        // It is not waited for with the answer in hand; who is not answered asks again.
        let _room = room
            .try_acquire_many(units(said.response.len()))
            .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, "too many long answers are being taken"))?;
        let write = async {
            stream.write_all(&said.response).await?;
            stream.flush().await
        };
        timeout(limits.write, write).await??;
        if (whole, said.then) != (Then::GoOn, Then::GoOn) {
            timeout(limits.write, stream.shutdown()).await??;
            return Ok(());
        }
        service.commit_notes(&peer.id.name, said.notes).await;
        permit.set_state(ConnectionState::Idle);
    }
}

/// What a client sent.
enum Received<'a> {
    /// A message, by its length, and its room; what it says is for others to find out.
    Message { message: Zeroizing<Vec<u8>>, _room: SemaphorePermit<'a> },
    /// The beginning of something else, or of something too long.
    Noise([u8; HEADER_LEN]),
}

/// Receives a message of whose header `begun` bytes are there.
async fn receive<'a, S: AsyncRead + Unpin>(
    stream: &mut S,
    room: &'a Semaphore,
    mut header: [u8; HEADER_LEN],
    begun: usize,
) -> io::Result<Received<'a>> {
    stream.read_exact(&mut header[begun..]).await?;
    let Ok(len) = message_len(&header, &capstan_kmip::Limits::default()) else { return Ok(Received::Noise(header)) };
    let room = room.acquire_many(units(len)).await.map_err(io::Error::other)?;
    let mut message = Zeroizing::new(vec![0; len]);
    message[..HEADER_LEN].copy_from_slice(&header);
    stream.read_exact(&mut message[HEADER_LEN..]).await?;
    Ok(Received::Message { message, _room: room })
}

/// The room that a message of this length takes.
fn units(len: usize) -> u32 {
    if len <= SMALL { 0 } else { u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX) }
}
