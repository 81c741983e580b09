//! The nodes of the cluster, as an agent sees them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// One node: `GET /v1/kmas` answers with a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KmaMember {
    /// Its name, as in its certificate.
    pub name: String,
    /// Where it stands; empty where the cluster has no sites.
    #[serde(default)]
    pub site: String,
    /// Where agents reach it: host and port.
    pub address: String,
    /// How the node that answered sees it.
    #[serde(default)]
    pub state: KmaState,
}

/// A node as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KmaListed {
    /// What drives see of it.
    #[serde(flatten)]
    pub member: KmaMember,
    /// Whether the quorum lets it unlock itself; a node that is locked does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autonomous_unlock: Option<AutonomousUnlock>,
}

/// Whether a node is to unlock itself after a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AutonomousUnlock {
    /// Whether it is.
    pub on: bool,
}

/// `POST /v1/lock`: the node that was locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeLocked {
    /// Which.
    pub kma: Name,
}

/// How a node is seen by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KmaState {
    /// It serves agents.
    Serving,
    /// It runs and waits to be unlocked.
    Locked,
    /// It was not heard of lately, or is of a newer version's state.
    #[default]
    #[serde(other)]
    Unknown,
}
