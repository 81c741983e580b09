//! What the cluster knows of a KMIP client beside its certificate: the record `kmip-client/NAME`, JSON. Where there is none the client sees
//! objects of its own, and the group `default` says how long it is answered by a node that is cut off.

use capstan_keys::Name;
use serde::{Deserialize, Serialize};

use crate::path::Path;
use crate::state::View;

/// Whose objects a client sees, and by which policy it is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// Clients of one domain see each other's objects: two controllers of one library have to.
    pub domain: Name,
    /// The key group whose policy limits for how long a node that is cut off answers it. Objects of KMIP have no group of their own.
    #[serde(default)]
    pub group: Name,
}

impl ClientRecord {
    /// Where it lies.
    pub fn path(client: &Name) -> Path {
        Path::Other(format!("kmip-client/{client}"))
    }

    /// What is on record of a client, or what holds where nothing is.
    pub fn of(view: View<'_>, client: &Name) -> Result<Self, serde_json::Error> {
        match view.ledger().other(&Self::path(client).to_string()) {
            Some(bytes) => serde_json::from_slice(bytes),
            None => Ok(Self { domain: client.clone(), group: Name::default() }),
        }
    }
}
