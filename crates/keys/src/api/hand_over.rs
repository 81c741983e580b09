//! A key on its way to an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Base64;

/// What a node answers with: nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandOver {
    /// The node's public key for this answer alone (X25519, 32 bytes).
    pub node: Base64,
    /// The key, wrapped (40 bytes).
    pub wrapped: Base64,
}
