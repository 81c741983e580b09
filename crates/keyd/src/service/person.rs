//! A person who asks something: who they are by their certificate, what their roles allow, and what is noted of it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use capstan_keys::api::{PeerKind, Problem, RequestId};
use capstan_service::audit::{AuditAction, AuditEntry, AuditFact, AuditOutcome};
use capstan_service::identity::Peer;
use capstan_service::listener::RemoteAddress;
use capstan_service::problem::Refusal;
use capstan_service::roles::ActPermission;

use super::{Service, entry};
use crate::authority::{Act, CertificateSerial, Denied, QuorumRule, Refused, Unworkable, User, Users, may};
use crate::desk::Decided;
use crate::node::Node;
use crate::state::View;

const TURNED_AWAY: AuditAction = AuditAction::named("person-turned-away");

/// A person who asks something.
pub(super) struct Person {
    pub(super) service: Arc<Service>,
    pub(super) node: Arc<Node>,
    pub(super) user: User,
    pub(super) peer: Peer,
    pub(super) from: RemoteAddress,
    pub(super) request: RequestId,
}

impl FromRequestParts<Arc<Service>> for Person {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Refusal> {
        let known = &parts.extensions;
        let (Some(peer), Some(&from), Some(&request)) =
            (known.get::<Peer>().cloned(), known.get::<RemoteAddress>(), known.get::<RequestId>())
        else {
            return Err(Refusal::failed());
        };
        if peer.id.kind != PeerKind::User {
            return Err(Refusal::forbidden(format!("{} is no person: this is for people.", peer.id)));
        }
        let node = service.node()?;
        let user = identified(service, &node, &peer, from).await?;
        Ok(Self { service: service.clone(), node, user, peer, from, request })
    }
}

/// The user that a person is. A stranger is noted.
pub(super) async fn identified(
    service: &Service,
    node: &Node,
    peer: &Peer,
    from: RemoteAddress,
) -> Result<User, Refusal> {
    let users = node.view(users_of)?;
    match users.identify(&CertificateSerial::from(peer.serial)).cloned() {
        Ok(user) if user.name == peer.id.name => Ok(user),
        Ok(_) => Err(Refusal::forbidden("The certificate names somebody else than its record.")),
        Err(denied) => {
            let refused = AuditOutcome::Refused { why: AuditFact::from(&denied) };
            service.note(entry(peer, from, TURNED_AWAY).came_to(refused)).await?;
            Err(denied.into())
        }
    }
}

impl Person {
    pub(super) fn entry(&self, act: Act) -> AuditEntry {
        entry(&self.peer, self.from, AuditAction::from(act))
    }

    /// Whether the act is theirs, and how. A no is noted.
    pub(super) async fn permitted(&self, act: Act) -> Result<ActPermission, Refusal> {
        match may(&self.user, act) {
            Ok(permission) => Ok(permission),
            Err(denied) => {
                let refused = AuditOutcome::Refused { why: AuditFact::from(&denied) };
                self.service.note(self.entry(act).came_to(refused)).await?;
                Err(denied.into())
            }
        }
    }

    /// Whether the act is theirs on their own word. A no is noted.
    pub(super) async fn at_once(&self, act: Act) -> Result<(), Refusal> {
        match self.permitted(act).await? {
            ActPermission::AtOnce => Ok(()),
            ActPermission::ByQuorum => {
                Err(Refusal::forbidden(format!("To {} takes a quorum: ask for it there.", act.words())))
            }
        }
    }

    /// Looks at something, which is noted before it is shown.
    pub(super) async fn looks<T>(
        &self,
        act: Act,
        look: impl FnOnce(View<'_>, i64) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.permitted(act).await?;
        let seen = self.node.view(|view| look(view, self.node.now_ns()))?;
        self.service.note(self.entry(act)).await?;
        Ok(seen)
    }

    /// Does something: noted before it begins and when it has ended. Whoever finds a beginning alone has to look what
    /// became of it.
    pub(super) async fn does<T>(
        &self,
        noted: AuditEntry,
        deed: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        self.service.note(noted.clone().came_to(AuditOutcome::Begun)).await?;
        let done = deed.await;
        let outcome = match &done {
            Ok(_) => AuditOutcome::Done,
            Err(Refusal(problem)) => came_to_nothing(problem),
        };
        self.service.note(noted.came_to(outcome)).await?;
        done
    }

    /// Changes records by compare-and-set. The first record that `decide` puts is one that no other decision would: by
    /// it a commit whose answer was lost is known again, and not made twice. What it refuses, it refuses by what the
    /// majority has, where that is heard in time.
    pub(super) async fn change(
        &self,
        mut decide: impl FnMut(View<'_>) -> Result<Decided, Refusal> + Send,
    ) -> Result<(), Refusal> {
        let mut tried: Option<(String, Vec<u8>)> = None;
        self.node
            .change_or_look_again(|view| {
                if let Some((path, bytes)) = &tried
                    && view.ledger().other(path) == Some(bytes)
                {
                    return Ok(Decided::records(Vec::new(), Vec::new()));
                }
                let decided = decide(view)?;
                tried = decided.puts.first().map(|(path, bytes)| (path.to_string(), bytes.clone()));
                Ok(decided)
            })
            .await
    }
}

pub(super) fn came_to_nothing(problem: &Problem) -> AuditOutcome {
    match problem.status {
        400 => AuditOutcome::Refused { why: AuditFact::from("what was asked makes no sense") },
        403 => AuditOutcome::Refused { why: AuditFact::from("the rules forbid it") },
        404 => AuditOutcome::Refused { why: AuditFact::from("there is no such thing") },
        409 | 410 => AuditOutcome::Refused { why: AuditFact::from("it does not go with what is there") },
        503 => AuditOutcome::Failed { why: AuditFact::from("the majority was not reached: it may have been done") },
        _ => AuditOutcome::Failed { why: AuditFact::from("this node failed") },
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        Problem::new(403, "denied", "This is for others", denied.to_string()).into()
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Denied(denied) => denied.into(),
            other => Problem::new(409, "not-taken", "The queue does not take it", other.to_string()).into(),
        }
    }
}

impl From<Unworkable> for Refusal {
    fn from(unworkable: Unworkable) -> Self {
        Problem::new(409, "unworkable", "The cluster could not be governed so", unworkable.to_string()).into()
    }
}

/// All users, by their records.
pub(super) fn users_of(view: View<'_>) -> Result<Users, Refusal> {
    let decoded = view.ledger().others("user/").map(|(_, bytes)| User::decode(bytes));
    decoded.collect::<Result<_, _>>().map_err(|error| broken(&error))
}

pub(super) fn rule_of(view: View<'_>) -> Result<QuorumRule, Refusal> {
    let bytes = view.ledger().other("quorum").ok_or_else(Refusal::failed)?;
    QuorumRule::decode(bytes).map_err(|error| broken(&error))
}

pub(super) fn broken(error: &dyn std::error::Error) -> Refusal {
    tracing::error!(%error, "a record of the cluster cannot be read");
    Refusal::failed()
}
