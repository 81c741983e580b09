//! What opens the root key: a holder's share, or the PIN of a token.

use capstan_keys::Name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// One holder's share, as it is given.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct GivenShare {
    /// Whose.
    pub holder: Name,
    /// What opens it.
    #[schemars(with = "String")]
    pub passphrase: Zeroizing<String>,
}

/// The PIN of the node's token, as it is given.
#[derive(Serialize, Deserialize)]
pub struct TokenPin {
    /// What logs into it.
    pub pin: Zeroizing<String>,
}
