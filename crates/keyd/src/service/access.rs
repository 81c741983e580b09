//! Who may ask for what a route does.

use crate::authority::Act;

/// Who may ask for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
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
