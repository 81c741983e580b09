//! Who may ask for what a route does, as the document and the check in front of the handlers have it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use capstan_keys::api::{PeerKind, Problem, RequestId};
use capstan_service::audit::{AuditAction, AuditFact, AuditOutcome};
use capstan_service::identity::Peer;
use capstan_service::listener::RemoteAddress;
use capstan_service::openapi::{AccessDoc, AccessRule, ApiRoutes, OperationDoc, RequestPart};
use capstan_service::problem::Refusal;
use capstan_service::roles::TableAct;

use super::agent::Asking;
use super::person::{Person, identified};
use super::registrar::certificate_path;
use super::{Service, entry};
use crate::authority::{Act, may};

/// Routes of a node.
pub(super) type NodeRoutes = ApiRoutes<Arc<Service>, RouteAccess>;

/// Who may ask for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteAccess {
    /// Whoever has a certificate of the cluster.
    Member,
    /// Agents.
    Agent,
    /// Nodes.
    Kma,
    /// Any person.
    User,
    /// People, by the table of roles.
    Person(Act),
    /// The same, by either of two acts: which of them it is shows in what is asked.
    PersonOr(Act, Act),
    /// Drives, which look for nodes, and nodes; people by the table of roles.
    AgentKmaOr(Act),
    /// Nodes; people by the table of roles.
    KmaOr(Act),
    /// Whoever reaches the port for enrolments, without a certificate.
    Stranger,
}

// Who asks stands in their certificate.
impl RequestPart for Person {}

impl From<Act> for OperationDoc<RouteAccess> {
    fn from(act: Act) -> Self {
        (RouteAccess::Person(act), act.words()).into()
    }
}

impl AccessRule<Arc<Service>> for RouteAccess {
    fn doc(self) -> AccessDoc {
        let mut doc = AccessDoc { tag: self.tag(), description: self.description(), ..AccessDoc::default() };
        match self {
            Self::Person(act) | Self::AgentKmaOr(act) | Self::KmaOr(act) => {
                doc.extensions.insert("x-act".to_owned(), act.name().into());
                doc.extensions.insert("x-roles".to_owned(), act.roles_in_json().into());
            }
            Self::PersonOr(act, other) => {
                doc.extensions.insert("x-act".to_owned(), act.name().into());
                doc.extensions.insert("x-or-act".to_owned(), other.name().into());
                let mut both = other.roles_in_json();
                both.append(&mut act.roles_in_json());
                doc.extensions.insert("x-roles".to_owned(), both.into());
            }
            Self::Stranger => doc.is_public = true,
            Self::Member | Self::Agent | Self::Kma | Self::User => {}
        }
        doc
    }

    /// A node that is locked knows nobody: what it answers then, it answers whoever is of the kind.
    async fn authorize(self, parts: &mut Parts, service: &Arc<Service>) -> Result<(), Refusal> {
        match self {
            Self::Person(act) => {
                Person::from_request_parts(parts, service).await?.permitted(act).await?;
            }
            Self::PersonOr(act, other) => {
                let person = Person::from_request_parts(parts, service).await?;
                let either = if may(&person.user, act).is_ok() { act } else { other };
                person.permitted(either).await?;
            }
            Self::AgentKmaOr(act) | Self::KmaOr(act) => {
                let known = &parts.extensions;
                let (Some(peer), Some(&from)) = (known.get::<Peer>(), known.get::<RemoteAddress>()) else {
                    return Err(Refusal::failed());
                };
                match (peer.id.kind, self) {
                    (PeerKind::Kma, _) | (PeerKind::Agent, Self::AgentKmaOr(_)) => return Ok(()),
                    (PeerKind::User, _) => {}
                    _ => return Err(Refusal::forbidden(format!("{} does not need that: it is not told.", peer.id))),
                }
                let Some(node) = service.open_node() else { return Ok(()) };
                let user = identified(service, &node, peer, from).await?;
                if let Err(denied) = may(&user, act) {
                    let refused = AuditOutcome::Refused { why: AuditFact::from(&denied) };
                    service.note(entry(peer, from, AuditAction::from(act)).came_to(refused)).await?;
                    return Err(denied.into());
                }
            }
            Self::Agent => {
                let known = &parts.extensions;
                let (Some(peer), Some(&from), Some(&request)) =
                    (known.get::<Peer>().cloned(), known.get::<RemoteAddress>(), known.get::<RequestId>())
                else {
                    return Err(Refusal::failed());
                };
                if peer.id.kind != PeerKind::Agent {
                    return Err(Refusal::forbidden(format!(
                        "{} is no agent: keys are given to drives alone.",
                        peer.id
                    )));
                }
                let node = service.node()?;
                // Its certificate was committed before it had it. A node that knows nothing of that does not know what
                // the agent may use either.
                let certificate = certificate_path(&peer.serial).to_string();
                if node.view(|view| view.ledger().other(&certificate).is_none()) {
                    let detail = format!("This node has not heard of the enrolment of {} yet: ask another.", peer.id);
                    let title = "The cluster's majority cannot be reached";
                    return Err(Problem::new(503, "needs-majority", title, detail).into());
                }
                parts.extensions.insert(Asking { service: Arc::clone(service), node, peer, from, request });
            }
            // Their handlers know them by their certificates.
            Self::Member | Self::Kma | Self::User | Self::Stranger => {}
        }
        Ok(())
    }
}

impl RouteAccess {
    fn tag(self) -> &'static str {
        match self {
            Self::Member | Self::AgentKmaOr(_) | Self::KmaOr(_) => "members",
            Self::Agent => "agents",
            Self::Kma => "nodes",
            Self::User | Self::Person(_) | Self::PersonOr(..) => "people",
            Self::Stranger => "strangers",
        }
    }

    fn description(self) -> String {
        match self {
            Self::Member => "For every member of the cluster.".to_owned(),
            Self::Agent => "For agents, within the key groups that they may use.".to_owned(),
            Self::Kma => "For nodes.".to_owned(),
            Self::User => "For people of every role.".to_owned(),
            Self::Stranger => "For whoever was given a one-time passphrase; no certificate is asked for.".to_owned(),
            Self::Person(act) => format!("For people with one of these roles: {}.", act.roles_in_words()),
            Self::PersonOr(act, other) => {
                format!(
                    "For people with one of these roles: {}; to {}: {}.",
                    act.roles_in_words(),
                    other.words(),
                    other.roles_in_words()
                )
            }
            Self::AgentKmaOr(act) => {
                format!("For agents and nodes; people need one of these roles: {}.", act.roles_in_words())
            }
            Self::KmaOr(act) => format!("For nodes; people need one of these roles: {}.", act.roles_in_words()),
        }
    }
}
