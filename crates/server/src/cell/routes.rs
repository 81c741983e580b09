//! What the server answers to the peers of its cell, and the document that says so.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::routing::get;
use axum::{Extension, Json, Router};
use capstan_client::orders::{HelloAnswer, ListenersAnswer, ORDERS_WAIT_SECONDS, OrdersAnswer, OrdersQuery, PeerHello};
use capstan_client::restores::{AskRestore, ObjectsAnswer, RestorePlanned, RestoreQuery, RestoreSeen};
use capstan_director::Site;
use capstan_keys::api::{AskEnrolment, EnrolmentAnswer, IssuedCertificate, PeerKind, Problem, RenewCertificate};
use capstan_mover::NetworkJobs;
use capstan_service::enrolment::enrolment_routes;
use capstan_service::identity::{Gate, Peer, REVOKED, TurnedAway};
use capstan_service::listener::RemoteAddress;
use capstan_service::openapi::{AccessDoc, AccessRule, ApiInfo, ApiMethod, ApiRoutes, document};
use capstan_service::problem::{Input, Refusal};
use capstan_service::shutdown::Shutdown;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::Hub;
use super::data::open_job;
use super::known::KnownPeers;
use super::registrar::CellRegistrar;
use super::restores::{self, Restores};

/// How long a question for orders stays open.
const ORDERS_WAIT: Duration = Duration::from_secs(ORDERS_WAIT_SECONDS);

/// What handlers have.
pub(super) struct CellService {
    pub(super) hub: Hub,
    pub(super) site: Site,
    pub(super) known: Arc<KnownPeers>,
    pub(super) gate: Gate,
    pub(super) shutdown: Shutdown,
    pub(super) jobs: NetworkJobs,
    /// The port for data.
    pub(super) data_port: u16,
    pub(super) restores: Restores,
}

/// Who may ask for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellAccess {
    /// Clients and movers.
    Member,
    /// Clients, of what is their own.
    Client,
    /// Whoever reaches the port for enrolments, without a certificate.
    Stranger,
}

impl AccessRule<Arc<CellService>> for CellAccess {
    fn doc(self) -> AccessDoc {
        let (tag, description) = match self {
            Self::Member => ("members", "For clients and movers of the cell."),
            Self::Client => ("clients", "For clients of the cell, of what is their own."),
            Self::Stranger => ("strangers", "For whoever joins the cell; no certificate is asked for."),
        };
        let is_public = self == Self::Stranger;
        AccessDoc { tag, description: description.to_owned(), is_public, ..AccessDoc::default() }
    }

    async fn authorize(self, parts: &mut Parts, _: &Arc<CellService>) -> Result<(), Refusal> {
        if self == Self::Stranger {
            return Ok(());
        }
        let peer = parts.extensions.get::<Peer>().ok_or_else(Refusal::failed)?;
        match (peer.id.kind, self) {
            (PeerKind::Client, _) | (PeerKind::Mover, Self::Member) => Ok(()),
            (PeerKind::Mover, _) => Err(Refusal::forbidden("This is for clients of the cell.")),
            _ => Err(Refusal::forbidden(format!("{} is neither a client nor a mover of this cell.", peer.id))),
        }
    }
}

type CellRoutes = ApiRoutes<Arc<CellService>, CellAccess>;

const INFO: ApiInfo = ApiInfo {
    title: "Capstan cell",
    version: "1",
    description: "What the server of a cell and its clients and movers say to each other, over mutual TLS 1.3. Peers dial out, say what they are, \
        and ask for orders; a question for orders stays open until there is one or its time is up. Errors are problems (RFC 9457). Fields \
        that are not known are to be passed over.",
    server: "localhost:5701",
    server_description: "The server of the cell; strangers use its port for enrolments",
    tags: &[
        ("members", "For clients and movers, which have a certificate of the cell"),
        ("clients", "For clients: what was backed up of them"),
        ("strangers", "For whoever has a one-time passphrase: at a port of its own"),
    ],
    certificate: "A certificate that the cell's own authority made out at enrolment (`capstan client join`, `capstan mover join`)",
};

/// What members are served, but for renewal.
pub(super) fn member_routes() -> CellRoutes {
    CellRoutes::new()
        .post("/v1/hello", (CellAccess::Member, "say what one is and may be asked to do"), hello)
        .get("/v1/orders", (CellAccess::Member, "wait for orders"), orders)
        .get("/v1/objects", (CellAccess::Client, "list what was backed up of oneself"), own_objects)
        .post("/v1/restores", (CellAccess::Client, "restore something of oneself, to oneself"), begin_restore)
        .get("/v1/restores", (CellAccess::Client, "wait for a restore to end"), restore_ended)
        .get("/v1/openapi.json", (CellAccess::Member, "read this document"), async || Json(openapi()))
}

/// What is served at the port for enrolments.
pub(super) fn stranger_routes(registrar: CellRegistrar, members_port: u16) -> Router {
    let listeners = async move || Json(ListenersAnswer { members_port });
    enrolment_routes(Arc::new(registrar)).merge(Router::new().route("/v1/listeners", get(listeners)))
}

/// The document: every route of a cell's server, what it takes and gives, and who may ask.
pub fn openapi() -> Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| document(&INFO, &with_others(member_routes()))).clone()
}

type Renew = fn(Input<RenewCertificate>) -> std::future::Ready<Result<Json<IssuedCertificate>, Refusal>>;
type Enrol = fn(Input<AskEnrolment>) -> std::future::Ready<Result<Json<EnrolmentAnswer>, Refusal>>;
type Listeners = fn() -> std::future::Ready<Result<Json<ListenersAnswer>, Refusal>>;

/// With the routes of [`capstan_service::enrolment`], and those for strangers.
fn with_others(routes: CellRoutes) -> CellRoutes {
    let renew: Renew = |_| unreachable!("it is asked for its type alone");
    let enrol: Enrol = |_| unreachable!("it is asked for its type alone");
    let listeners: Listeners = || unreachable!("it is asked for its type alone");
    let (member, stranger) = (CellAccess::Member, CellAccess::Stranger);
    routes
        .documented(ApiMethod::Post, "/v1/certificates/renew", (member, "renew one's own certificate"), renew)
        .documented(
            ApiMethod::Post,
            "/v1/enrolments",
            (stranger, "enrol, over the connection that the proof is bound to"),
            enrol,
        )
        .documented(ApiMethod::Get, "/v1/listeners", (stranger, "ask where the server listens for members"), listeners)
}

async fn hello(
    State(service): State<Arc<CellService>>,
    (Extension(peer), Extension(RemoteAddress(from))): (Extension<Peer>, Extension<RemoteAddress>),
    Input(hello): Input<PeerHello>,
) -> Result<Json<HelloAnswer>, Refusal> {
    service.known.saw(peer.serial, service.site.now_ns(), from);
    service.hub.hear(&peer.id, from, hello);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let (epoch, data_port) = (service.hub.epoch(), service.data_port);
    Ok(Json(HelloAnswer { version, epoch, peer: peer.id.to_string(), data_port }))
}

/// Asks what may block, on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::failed())?
}

async fn own_objects(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
) -> Result<Json<ObjectsAnswer>, Refusal> {
    blocking(move || restores::objects(&service.site, peer.id.name.as_str())).await.map(Json)
}

async fn begin_restore(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
    Input(asked): Input<AskRestore>,
) -> Result<Json<RestorePlanned>, Refusal> {
    let begin = move || {
        let open =
            |client: &str| open_job(&service.jobs, service.data_port, client, 1).map_err(|error| error.to_string());
        service.restores.begin(&service.site, peer.id.name.as_str(), &asked, &open)
    };
    blocking(begin).await.map(Json)
}

async fn restore_ended(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
    Query(query): Query<RestoreQuery>,
) -> Result<Json<RestoreSeen>, Refusal> {
    let until = Instant::now() + ORDERS_WAIT;
    service.restores.wait(peer.id.name.as_str(), query.job, until).await.map(Json)
}

async fn orders(
    State(service): State<Arc<CellService>>,
    (Extension(peer), Extension(RemoteAddress(from))): (Extension<Peer>, Extension<RemoteAddress>),
    Query(query): Query<OrdersQuery>,
) -> Result<Json<OrdersAnswer>, Refusal> {
    service.known.saw(peer.serial, service.site.now_ns(), from);
    let question = service.hub.ask(&peer.id, from, &query);
    let until = Instant::now() + ORDERS_WAIT;
    let mut shutdown = service.shutdown.clone();
    loop {
        // Before it is looked: what comes in between is not missed.
        let change = question.change();
        service.gate.admits(&peer).map_err(turned_away)?;
        let answer = question.answer();
        let is_over = !answer.orders.is_empty()
            || tokio::select! {
                () = change => false,
                () = sleep_until(until) => true,
                () = shutdown.begun() => true,
            };
        if is_over {
            question.answered();
            return Ok(Json(answer));
        }
    }
}

/// As the listener says it to a peer that is turned away before its request is looked at.
fn turned_away(why: TurnedAway) -> Refusal {
    let kind = match why {
        TurnedAway::Revoked => REVOKED,
        TurnedAway::Expired => "turned-away",
    };
    Problem::new(403, kind, "This peer is not let in", why.to_string()).into()
}
