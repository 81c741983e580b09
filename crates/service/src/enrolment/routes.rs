//! Routes of enrolment, for strangers, and of renewal, for members.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Extension, Json, Router};
use capstan_keys::api::{
    AskEnrolment, ENROLMENT_NOT_PROVED, EnrolmentAnswer, IssuedCertificate, Problem, RenewCertificate,
};
use capstan_keys::cluster::ChannelBinding;
use tracing::{info, warn};

use super::Registrar;
use crate::audit::AuditOrigin;
use crate::identity::Peer;
use crate::listener::RemoteAddress;
use crate::problem::{Input, Refusal};

/// `POST /v1/enrolments`, for the enrolment listener.
pub fn enrolment_routes(registrar: Arc<dyn Registrar>) -> Router {
    Router::new().route("/v1/enrolments", post(enrol)).with_state(registrar)
}

/// `POST /v1/certificates/renew`, for the members' listener.
pub fn renewal_routes<S: Clone + Send + Sync + 'static>(registrar: Arc<dyn Registrar>) -> Router<S> {
    Router::new().route("/v1/certificates/renew", post(renew)).with_state(registrar)
}

async fn enrol(
    State(registrar): State<Arc<dyn Registrar>>,
    (Extension(binding), Extension(RemoteAddress(from))): (Extension<ChannelBinding>, Extension<RemoteAddress>),
    Input(question): Input<AskEnrolment>,
) -> Result<Json<EnrolmentAnswer>, Refusal> {
    let from = AuditOrigin::Address(from);
    let peer = &question.peer;
    let enrolment = registrar.take_try(peer, from).await?;
    if let Err(error) = enrolment.check_proof(&binding, &question) {
        warn!(%peer, %from, %error, "an enrolment was not proved");
        // On record before anybody hears of it.
        registrar.not_proved(peer, from).await?;
        return Err(not_proved());
    }
    let issued = registrar.admit(peer, enrolment.id(), &question.request.0, from).await?;
    info!(%peer, "enrolled");
    Ok(Json(enrolment.answer(&binding, &question, issued).map_err(|_| Refusal::failed())?))
}

fn not_proved() -> Refusal {
    let detail = "The passphrase is not that of the enrolment, or somebody stands between. Compare kind, name and passphrase; the newest enrolment counts. Each try is on record.";
    Problem::new(403, ENROLMENT_NOT_PROVED, "The enrolment came to nothing", detail).into()
}

async fn renew(
    State(registrar): State<Arc<dyn Registrar>>,
    (Extension(peer), Extension(RemoteAddress(from))): (Extension<Peer>, Extension<RemoteAddress>),
    Input(question): Input<RenewCertificate>,
) -> Result<Json<IssuedCertificate>, Refusal> {
    Ok(Json(registrar.renew(&peer, &question.request.0, AuditOrigin::Address(from)).await?))
}
