//! Routes of enrolment, for strangers, and of renewal, for members.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::State;
use axum::routing::post;
use axum::{Extension, Json, Router};
use capstan_keys::api::{
    BeginEnrolment, ClusterId, ConversationId, EnrolmentBegun, EnrolmentFinished, FinishEnrolment, IssuedCertificate,
    PeerId, Problem, RenewCertificate,
};
use capstan_keys::cluster::PakeError;
use tracing::{info, warn};

use super::{Conversation, Conversations, Registrar};
use crate::audit::AuditOrigin;
use crate::identity::Peer;
use crate::listener::RemoteAddress;
use crate::problem::{Input, Refusal};

struct EnrolmentService {
    registrar: Arc<dyn Registrar>,
    cluster: ClusterId,
    conversations: Mutex<Conversations>,
}

/// `POST /v1/enrolments/begin` and `/finish`, for the enrolment listener.
pub fn enrolment_routes(registrar: Arc<dyn Registrar>, cluster: ClusterId) -> Router {
    let service = EnrolmentService { registrar, cluster, conversations: Mutex::default() };
    Router::new()
        .route("/v1/enrolments/begin", post(begin))
        .route("/v1/enrolments/finish", post(finish))
        .with_state(Arc::new(service))
}

/// `POST /v1/certificates/renew`, for the members' listener.
pub fn renewal_routes<S: Clone + Send + Sync + 'static>(registrar: Arc<dyn Registrar>) -> Router<S> {
    Router::new().route("/v1/certificates/renew", post(renew)).with_state(registrar)
}

async fn begin(
    State(service): State<Arc<EnrolmentService>>,
    Extension(RemoteAddress(from)): Extension<RemoteAddress>,
    Input(question): Input<BeginEnrolment>,
) -> Result<Json<EnrolmentBegun>, Refusal> {
    let from = AuditOrigin::Address(from);
    let enrolment = service.registrar.take_try(&question.peer, from).await?;
    let mut id = ConversationId([0; 16]);
    capstan_keys::random(&mut id.0).map_err(|_| Refusal::failed())?;
    let (conversation, begun) = match Conversation::begin(&enrolment, service.cluster, id, &question) {
        Ok(begun) => begun,
        Err(error) => return Err(service.not_proved(&question.peer, from, &error).await),
    };
    let mut conversations = service.conversations.lock().unwrap_or_else(PoisonError::into_inner);
    conversations.keep(id, conversation, Instant::now());
    Ok(Json(begun))
}

async fn finish(
    State(service): State<Arc<EnrolmentService>>,
    Extension(RemoteAddress(from)): Extension<RemoteAddress>,
    Input(question): Input<FinishEnrolment>,
) -> Result<Json<EnrolmentFinished>, Refusal> {
    let conversation = {
        let mut conversations = service.conversations.lock().unwrap_or_else(PoisonError::into_inner);
        conversations.take(&question.conversation, Instant::now())
    };
    let (conversation, from) = (conversation.ok_or_else(not_proved)?, AuditOrigin::Address(from));
    let peer = conversation.peer().clone();
    let proved = match conversation.finish(&question) {
        Ok(proved) => proved,
        Err(error) => return Err(service.not_proved(&peer, from, &error).await),
    };
    let issued = service.registrar.admit(&proved.peer, proved.enrolment, &proved.request, from).await?;
    info!(peer = %proved.peer, "enrolled");
    Ok(Json(proved.answer(&issued).map_err(|_| Refusal::failed())?))
}

impl EnrolmentService {
    /// A try that came to nothing, on record before anybody hears of it.
    async fn not_proved(&self, peer: &PeerId, from: AuditOrigin, error: &PakeError) -> Refusal {
        warn!(%peer, %from, %error, "an enrolment was not proved");
        match self.registrar.not_proved(peer, from).await {
            Ok(()) => not_proved(),
            Err(problem) => problem.into(),
        }
    }
}

/// One answer for all that fails, so that it tells nothing to who guesses.
fn not_proved() -> Refusal {
    let detail = "The passphrase was not proved, the conversation was used or took too long. Begin again; each beginning costs a try.";
    Problem::new(403, "not-proved", "The enrolment came to nothing", detail).into()
}

async fn renew(
    State(registrar): State<Arc<dyn Registrar>>,
    (Extension(peer), Extension(RemoteAddress(from))): (Extension<Peer>, Extension<RemoteAddress>),
    Input(question): Input<RenewCertificate>,
) -> Result<Json<IssuedCertificate>, Refusal> {
    Ok(Json(registrar.renew(&peer, &question.request.0, AuditOrigin::Address(from)).await?))
}
