//! What the server answers to the peers of its cell, and the document that says so.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use capstan_client::files::{FileVersions, FilesAnswer, FindFiles, ListFiles};
use capstan_client::orders::{HelloAnswer, ListenersAnswer, ORDERS_WAIT_SECONDS, OrdersAnswer, OrdersQuery, PeerHello};
use capstan_client::restores::{
    AskRestore, ObjectsAnswer, RestorePlanned, RestoreQuery, RestoreSeen, RestoreStopping, StopRestore,
};
use capstan_keys::api::{AskEnrolment, EnrolmentAnswer, IssuedCertificate, Problem, RenewCertificate};
use capstan_service::enrolment::enrolment_routes;
use capstan_service::identity::{Peer, REVOKED, TurnedAway};
use capstan_service::listener::RemoteAddress;
use capstan_service::openapi::{ApiInfo, ApiMethod, document};
use capstan_service::problem::{Input, Refusal};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::access::{CellAccess, CellRoutes, CellService};
use super::blocking::{IsAwaited, blocking, blocking_awaited};
use super::files::Asking;
use super::registrar::CellRegistrar;
use super::restores;
use super::user_routes::user_routes;
use crate::restore_run::{Asker, RestoreRun};

/// What a machine may say of itself.
const HELLO_BYTES_MAX: usize = 64 << 10;
/// How long a question for orders stays open.
const ORDERS_WAIT: Duration = Duration::from_secs(ORDERS_WAIT_SECONDS);

const INFO: ApiInfo = ApiInfo {
    title: "Capstan cell",
    version: "1",
    description: "What the server of a cell, its clients and movers, and its users say to each other, over mutual TLS 1.3. Machines dial out, \
        say what they are, and ask for orders; a question for orders stays open until there is one or its time is up. Users look and act, each as \
        far as their roles go; what changes something stands in the audit log. Errors are problems (RFC 9457). Fields \
        that are not known are to be passed over.",
    server: "localhost:5701",
    server_description: "The server of the cell; strangers use its port for enrolments",
    tags: &[
        ("machines", "For clients and movers, which have a certificate of the cell"),
        ("clients", "For clients: what was backed up of them"),
        ("users", "For people, by their roles"),
        ("members", "For all of these"),
        ("strangers", "For whoever has a one-time passphrase: at a port of its own"),
    ],
    certificate: "A certificate that the cell's own authority made out at enrolment (`capstan client join`, `capstan mover join`, \
        `capstan user join`)",
};

/// What members are served, but for renewal.
pub(super) fn member_routes() -> CellRoutes {
    CellRoutes::new()
        .post("/v1/hello", (CellAccess::Machine, "say what one is and may be asked to do"), hello)
        .get("/v1/orders", (CellAccess::Machine, "wait for orders"), orders)
        .get("/v1/own/objects", (CellAccess::Client, "list what was backed up of oneself"), own_objects)
        .post("/v1/own/restores", (CellAccess::Client, "restore something of oneself, to oneself"), begin_restore)
        .get(
            "/v1/own/restores",
            (CellAccess::Client, "wait for the turn of a restore of one's own, and for its end"),
            restore_seen,
        )
        .post("/v1/own/restores/stop", (CellAccess::Client, "stop a restore of one's own"), stop_restore)
        .post("/v1/own/files/find", (CellAccess::Client, "find files in what was backed up of oneself"), find_own)
        .post("/v1/own/files/list", (CellAccess::Client, "list a directory of an object of oneself"), list_own)
        .post("/v1/own/files/versions", (CellAccess::Client, "list the versions of a file of oneself"), own_versions)
        .get("/v1/openapi.json", (CellAccess::Member, "read this document"), async || Json(openapi()))
        .merge(user_routes())
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
    // It is kept in memory.
    if serde_json::to_vec(&hello).map_or(usize::MAX, |bytes| bytes.len()) > HELLO_BYTES_MAX {
        return Err(Refusal::malformed("What this machine says of itself is too long: name fewer paths and scripts."));
    }
    service.known.saw(peer.serial, service.site.now_ns(), from);
    service.known.has_version(peer.serial, &hello.version);
    service.hub.hear(&peer.id, from, hello);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let (epoch, data_port) = (service.hub.epoch(), service.data_port);
    Ok(Json(HelloAnswer { version, epoch, peer: peer.id.to_string(), data_port }))
}

async fn own_objects(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
) -> Result<Json<ObjectsAnswer>, Refusal> {
    blocking(move || restores::objects(&service.site, peer.id.name.as_str())).await.map(Json)
}

async fn find_own(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
    Input(asked): Input<FindFiles>,
) -> Result<Json<FilesAnswer>, Refusal> {
    let asking = Asking::Client(peer.id.name.to_string());
    asking.answered((&service.files, &service.site), asked).await.map(Json)
}

async fn list_own(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
    Input(asked): Input<ListFiles>,
) -> Result<Json<FilesAnswer>, Refusal> {
    let asking = Asking::Client(peer.id.name.to_string());
    asking.answered((&service.files, &service.site), asked).await.map(Json)
}

async fn own_versions(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
    Input(asked): Input<FileVersions>,
) -> Result<Json<FilesAnswer>, Refusal> {
    let asking = Asking::Client(peer.id.name.to_string());
    asking.answered((&service.files, &service.site), asked).await.map(Json)
}

async fn begin_restore(
    State(service): State<Arc<CellService>>,
    (Extension(peer), Extension(RemoteAddress(from))): (Extension<Peer>, Extension<RemoteAddress>),
    Input(asked): Input<AskRestore>,
) -> Result<Json<RestorePlanned>, Refusal> {
    let turn = service.plans.turn(&format!("client/{}", peer.id.name)).await?;
    let begin = move |is_awaited: &IsAwaited<'_>| {
        // It ends with the work, however long the answer is waited for.
        let _turn = turn;
        let client = peer.id.name.to_string();
        let (asker, of) = (Asker::Client(client.clone()), client.clone());
        let run = RestoreRun {
            of,
            asker,
            from,
            ask: asked,
            into: None,
            places: Vec::new(),
            volumes: Vec::new(),
            estimate_ns: 0,
        };
        service.restores.begin(&service.site, &client, run, is_awaited)
    };
    blocking_awaited(begin).await.map(Json)
}

async fn stop_restore(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
    Input(StopRestore { run }): Input<StopRestore>,
) -> Result<Json<RestoreStopping>, Refusal> {
    let stop = move || service.restores.stop_one(&service.site, &Asker::Client(peer.id.name.to_string()), run);
    blocking(stop).await.map(|()| Json(RestoreStopping { run }))
}

async fn restore_seen(
    State(service): State<Arc<CellService>>,
    Extension(peer): Extension<Peer>,
    Query(query): Query<RestoreQuery>,
) -> Result<Json<RestoreSeen>, Refusal> {
    let until = Instant::now() + ORDERS_WAIT;
    let asker = Asker::Client(peer.id.name.to_string());
    service.restores.wait(&service.site, &asker, &query, until).await.map(Json)
}

async fn orders(
    State(service): State<Arc<CellService>>,
    (Extension(peer), Extension(RemoteAddress(from))): (Extension<Peer>, Extension<RemoteAddress>),
    Query(query): Query<OrdersQuery>,
) -> Result<Json<OrdersAnswer>, Refusal> {
    service.known.saw(peer.serial, service.site.now_ns(), from);
    let question = service.hub.ask(&peer.id, from, &query);
    if question.is_of_another_server() {
        return Ok(Json(question.answer()));
    }
    let until = Instant::now() + ORDERS_WAIT;
    let mut shutdown = service.shutdown.clone();
    loop {
        // Before it is looked: what comes in between is not missed.
        let change = question.change();
        service.gate.admits(&peer, from).map_err(turned_away)?;
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
