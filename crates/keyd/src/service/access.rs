//! Who may ask for what a route does, as the document and the check in front of the handlers have it.

use std::sync::Arc;

use axum::http::request::Parts;
use capstan_keys::Name;
use capstan_service::openapi::{AccessDoc, AccessRule, ApiRoutes, OperationDoc, RequestPart};
use capstan_service::problem::Refusal;
use serde_json::json;

use super::Service;
use super::person::{Person, authorize};
use crate::authority::{Act, Permission, Role, User, may};

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
                let roles = roles(act).map(|(role, how)| (role.name().to_owned(), json!(how)));
                doc.extensions.insert("x-roles".to_owned(), roles.collect());
            }
            Self::PersonOr(act, other) => {
                doc.extensions.insert("x-act".to_owned(), act.name().into());
                doc.extensions.insert("x-or-act".to_owned(), other.name().into());
                let both = roles(other).chain(roles(act));
                let both = both.map(|(role, how)| (role.name().to_owned(), json!(how)));
                doc.extensions.insert("x-roles".to_owned(), both.collect());
            }
            Self::Stranger => doc.is_public = true,
            Self::Member | Self::Agent | Self::Kma | Self::User => {}
        }
        doc
    }

    async fn authorize(self, parts: &mut Parts, service: &Arc<Service>) -> Result<(), Refusal> {
        authorize(parts, service, self).await
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
            Self::Person(act) => format!("For people with one of these roles: {}.", named(act)),
            Self::PersonOr(act, other) => {
                format!("For people with one of these roles: {}; to {}: {}.", named(act), other.words(), named(other))
            }
            Self::AgentKmaOr(act) => format!("For agents and nodes; people need one of these roles: {}.", named(act)),
            Self::KmaOr(act) => format!("For nodes; people need one of these roles: {}.", named(act)),
        }
    }
}

/// The roles of the row, in words.
fn named(act: Act) -> String {
    let named = |(role, how): (Role, &str)| match how {
        "by-quorum" => format!("{} (waits for a quorum)", role.name()),
        _ => role.name().to_owned(),
    };
    roles(act).map(named).collect::<Vec<_>>().join(", ")
}

/// The row of the table: the roles that may, and how.
fn roles(act: Act) -> impl Iterator<Item = (Role, &'static str)> {
    Role::ALL.into_iter().filter_map(move |role| {
        let user = User::new(Name::default(), [role].into_iter().collect());
        let how = match may(&user, act).ok()? {
            Permission::AtOnce => "at-once",
            Permission::ByQuorum => "by-quorum",
        };
        Some((role, how))
    })
}
