//! The nodes of the cluster, as an agent sees them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
