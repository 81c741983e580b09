//! Every route of a node, and the document that says so.

use std::sync::OnceLock;

use axum::Json;
use capstan_keys::api::{AskEnrolment, EnrolmentAnswer, IssuedCertificate, RenewCertificate};
use capstan_service::openapi::{ApiInfo, ApiMethod, document};
use capstan_service::problem::{Input, Refusal};
use serde_json::Value;

use super::access::{NodeRoutes, RouteAccess};
use super::{agents, backups, handed, members, peers, people, proof};

const INFO: ApiInfo = ApiInfo {
    title: "Capstan key cluster",
    version: "1",
    description: "Keys for tape drives, and what people do about them. All of it over mutual TLS 1.3: the certificate says who asks \
        (a drive, a person, a node), and the table of roles what they may. What takes a quorum is answered with a request that waits for \
        approvals. Errors are problems (RFC 9457); their kinds, listed in docs/KEYS.md, never change. Times are RFC 3339, identifiers and tags \
        hexadecimal, other bytes base64. A field that is not known is to be passed over.",
    server: "localhost:7443",
    server_description: "Any node of the cluster",
    tags: &[
        ("agents", "For drives"),
        ("people", "For people, by their roles"),
        ("nodes", "For nodes among themselves"),
        ("members", "For whoever has a certificate of the cluster"),
        ("strangers", "For whoever has a one-time passphrase: on a port of its own"),
    ],
    certificate: "A certificate that the cluster's own authority made out at enrolment (`keyd enrol`)",
};

/// All that this service answers to members.
pub(super) fn routes() -> NodeRoutes {
    agents::routes()
        .merge(members::routes())
        .merge(peers::routes())
        .merge(handed::routes())
        .merge(people::routes())
        .merge(backups::routes())
        .merge(proof::routes())
        .get("/v1/openapi.json", (RouteAccess::Member, "read this document"), async || Json(openapi()))
}

/// The document: every route of a node, what it takes and gives, and who may ask.
pub fn openapi() -> Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    let made = || document(&INFO, &with_listeners(routes()));
    DOCUMENT.get_or_init(made).clone()
}

type Renew = fn(Input<RenewCertificate>) -> std::future::Ready<Result<Json<IssuedCertificate>, Refusal>>;
type Enrol = fn(Input<AskEnrolment>) -> std::future::Ready<Result<Json<EnrolmentAnswer>, Refusal>>;
type Health = fn() -> std::future::Ready<Result<Json<Value>, Refusal>>;

/// What the listeners answer by themselves: [`capstan_service::enrolment::renewal_routes`],
/// [`capstan_service::health::health_routes`], [`capstan_service::enrolment::enrolment_routes`].
fn with_listeners(routes: NodeRoutes) -> NodeRoutes {
    let health: Health = || unreachable!("it is asked for its type alone");
    let renew: Renew = |_| unreachable!("it is asked for its type alone");
    let enrol: Enrol = |_| unreachable!("it is asked for its type alone");
    routes
        .documented(ApiMethod::Get, "/healthz", (RouteAccess::Member, "ask whether the node lives"), health)
        .documented(ApiMethod::Get, "/readyz", (RouteAccess::Member, "ask whether the node can serve agents"), health)
        .documented(
            ApiMethod::Post,
            "/v1/certificates/renew",
            (RouteAccess::Member, "renew one's own certificate"),
            renew,
        )
        .documented(
            ApiMethod::Post,
            "/v1/enrolments",
            (RouteAccess::Stranger, "enrol, over the connection that the proof is bound to"),
            enrol,
        )
}
