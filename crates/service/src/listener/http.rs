//! HTTP over a listener.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, Request, Response, header};
use axum::response::IntoResponse;
use capstan_keys::api::{Problem, REQUEST_ID_HEADER, RequestId};
use capstan_keys::cluster::ChannelBinding;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tower::ServiceExt;
use tracing::{Instrument, debug, info, info_span};

use super::accept::{EstablishedConnection, accept, known_peer};
use super::request_timer::{RequestTimer, TimedStream};
use super::{ConnectionCounts, ConnectionState, ListenerLimits, Permit};
use crate::identity::{Gate, Peer, REVOKED, TurnedAway};
use crate::problem::Refusal;
use crate::rate_limit::place;
use crate::shutdown::Shutdown;

/// Requests in the log, by target: a program may want fewer of them than of the rest.
pub const ACCESS_LOG: &str = "capstan_service::access";

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Longest body that is waited for before anything is looked at.
const AWAITED_BYTES: u64 = 64 << 10;

/// Where a request comes from: among its extensions, for the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress(pub SocketAddr);

/// Serves `routes` to members of the cluster until the end begins. Each request has a [`Peer`], a [`RemoteAddress`] and
/// a [`RequestId`] among its extensions, and each was let in by `gate`.
pub async fn serve_members(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    gate: Gate,
    routes: Router,
    limits: ListenerLimits,
    counts: ConnectionCounts,
    shutdown: Shutdown,
) {
    let routes = finished(routes, limits);
    let serve = move |established: EstablishedConnection, shutdown| {
        let (routes, gate) = (routes.clone(), gate.clone());
        async move {
            let Some(peer) = known_peer(&established.stream, &gate, established.from) else { return };
            if !established.permit.assign_to(&peer.id.to_string(), limits.peer_connections_max) {
                return;
            }
            serve_connection(established, Client::Member(peer, gate), routes, limits, shutdown).await;
        }
    };
    accept(listener, tls, limits, counts, shutdown, serve).await;
}

/// Serves `routes` to anybody, without a certificate: enrolment and nothing else. Among the extensions there is no
/// [`Peer`]; there is the [`ChannelBinding`] of the connection, by which whoever asks proves who they are.
pub async fn serve_enrolment(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    routes: Router,
    limits: ListenerLimits,
    counts: ConnectionCounts,
    shutdown: Shutdown,
) {
    let routes = finished(routes, limits);
    let serve = move |established: EstablishedConnection, shutdown| {
        let routes = routes.clone();
        async move {
            let Ok(binding) = ChannelBinding::of(established.stream.get_ref().1) else { return };
            let place = place(established.from.ip()).to_string();
            if !established.permit.assign_to(&place, limits.peer_connections_max) {
                debug!(from = %established.from, "dropped: this address has its share, all of it busy");
                return;
            }
            serve_connection(established, Client::Stranger(binding), routes, limits, shutdown).await;
        }
    };
    accept(listener, tls, limits, counts, shutdown, serve).await;
}

/// Routes with what every listener adds: the limit of bodies, and problems for what is not there.
fn finished(routes: Router, limits: ListenerLimits) -> Router {
    let nothing_here = async || Refusal::not_found("There is nothing at this path.");
    let other_method =
        async || -> Refusal { Problem::new(405, "method", "Not this method", "The path takes another method.").into() };
    routes
        .fallback(nothing_here)
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(limits.body_bytes_max))
}

async fn serve_connection(
    established: EstablishedConnection,
    client: Client,
    routes: Router,
    limits: ListenerLimits,
    mut shutdown: Shutdown,
) {
    let EstablishedConnection { from, stream, permit } = established;
    let timer = RequestTimer::new(limits);
    let stream = TokioIo::new(TimedStream::new(stream, timer.clone()));
    let requester = Requester { client, from, routes, limits };
    let service = service_fn(async |request: Request<Incoming>| {
        timer.request_begun();
        // One that asks for something is not the one that has been quiet longest.
        permit.set_state(ConnectionState::Idle);
        let answer = requester.answer(request, &permit).await;
        permit.set_state(ConnectionState::Idle);
        timer.request_ended();
        Ok::<_, Infallible>(answer)
    });
    let connection =
        http1::Builder::new().max_headers(HEADERS_MAX).max_buf_size(HEAD_BYTES_MAX).serve_connection(stream, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = permit.evicted() => {
            debug!(%from, "evicted: others wait");
            return;
        }
        () = shutdown.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%from, %error, "connection ended");
    }
}

/// Who is at the other end of a connection.
enum Client {
    /// A peer whose certificate is one of the cluster.
    Member(Peer, Gate),
    /// Somebody who has none yet.
    Stranger(ChannelBinding),
}

/// Whom a connection's requests come from, and what they may ask for.
struct Requester {
    client: Client,
    from: SocketAddr,
    routes: Router,
    limits: ListenerLimits,
}

impl Requester {
    async fn answer(&self, request: Request<Incoming>, permit: &Permit) -> Response<Body> {
        let begun = Instant::now();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (id, answer) = match request_id(&request) {
            Ok(id) => {
                // Whatever is logged on its behalf says which request it was.
                let span = info_span!("request", id = %id);
                (Some(id), self.served(id, request, permit).instrument(span).await)
            }
            Err(refusal) => (None, closed(refusal)),
        };
        let (status, ms) = (answer.status().as_u16(), begun.elapsed().as_secs_f64() * 1e3);
        let peer = match &self.client {
            Client::Member(peer, _) => Some(peer.id.to_string()),
            Client::Stranger(_) => None,
        };
        let request = id.map(|id| id.to_string());
        // Queries, headers and bodies are not logged: they may name what is not for everybody who reads logs.
        info!(
            target: ACCESS_LOG, from = %self.from, peer = peer.as_deref().unwrap_or("-"), %method, path, status, ms,
            request = request.as_deref().unwrap_or("-")
        );
        answer
    }

    async fn served(&self, id: RequestId, mut request: Request<Incoming>, permit: &Permit) -> Response<Body> {
        match &self.client {
            Client::Member(peer, gate) => {
                if let Err(turned_away) = gate.admits(peer, self.from) {
                    let kind = match turned_away {
                        TurnedAway::Revoked => REVOKED,
                        TurnedAway::Expired => "turned-away",
                    };
                    let problem = Problem::new(403, kind, "This peer is not let in", turned_away.to_string());
                    return closed(problem.into());
                }
                request.extensions_mut().insert(peer.clone());
            }
            Client::Stranger(binding) => {
                request.extensions_mut().insert(*binding);
            }
        }
        let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
        if announced.is_some_and(|len: u64| len > self.limits.body_bytes_max as u64) {
            let detail = format!("A request may have {} bytes.", self.limits.body_bytes_max);
            return closed(Problem::new(413, "too-large", "The request is too large", detail).into());
        }
        request.extensions_mut().insert(RemoteAddress(self.from));
        request.extensions_mut().insert(id);
        let routed = async {
            let request = self.arrived(request, announced).await?;
            // Not before: whoever announces a body and sends none held a permit that nobody could take.
            permit.set_state(ConnectionState::Busy);
            match self.routes.clone().oneshot(request).await {
                Ok(answer) => Ok(answer),
                Err(never) => match never {},
            }
        };
        let mut answer = match timeout(self.limits.request, routed).await {
            Ok(Ok(answer)) => match announced {
                // Its rest may be on its way.
                Some(len) if len > AWAITED_BYTES && !answer.status().is_success() => closing(answer),
                _ => answer,
            },
            Ok(Err(refusal)) => closed(refusal),
            Err(_) => {
                let detail = "The request did not arrive or was not done in time. It may have been done: ask again with the same id.";
                closed(Problem::new(503, "too-slow", "It took too long", detail).into())
            }
        };
        if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
            answer.headers_mut().insert(REQUEST_ID_HEADER, id);
        }
        answer
    }

    /// A request whose body is here, unless it is long. One that is refused before its body has come ends the
    /// connection without a word of that in the answer: the peer would keep it, and ask the next thing in vain.
    async fn arrived(&self, request: Request<Incoming>, announced: Option<u64>) -> Result<Request<Body>, Refusal> {
        let (parts, body) = request.into_parts();
        let bytes_max = self.limits.body_bytes_max;
        // Where no body may be long, one without a length is waited for as well.
        if announced.unwrap_or(bytes_max as u64) > AWAITED_BYTES {
            return Ok(Request::from_parts(parts, Body::new(body)));
        }
        let cut = |_| {
            Refusal::malformed(format!(
                "The request did not come as a whole, or its body has more than {bytes_max} bytes."
            ))
        };
        let bytes = to_bytes(Body::new(body), bytes_max).await.map_err(cut)?;
        Ok(Request::from_parts(parts, Body::from(bytes)))
    }
}

/// The id that the peer gave the request, or one of ours.
fn request_id(request: &Request<Incoming>) -> Result<RequestId, Refusal> {
    match request.headers().get(REQUEST_ID_HEADER) {
        None => RequestId::random().map_err(|_| Refusal::failed()),
        Some(id) => id.to_str().ok().and_then(|id| id.parse().ok()).ok_or_else(|| {
            Refusal::malformed(format!("{REQUEST_ID_HEADER} is no id of a request: give 32 hexadecimal digits"))
        }),
    }
}

/// A refusal after which the connection is closed: whoever sent this has no more to say.
fn closed(refusal: Refusal) -> Response<Body> {
    closing(refusal.into_response())
}

fn closing(mut answer: Response<Body>) -> Response<Body> {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}
