//! What the cluster knows of a KMIP client beside its certificate: the record `kmip-client/NAME`, JSON. Where there is
//! none the client sees objects of its own, and the group `default` says how long it is answered by a node that is cut
//! off.

use capstan_keys::Name;
use serde::{Deserialize, Serialize};

use crate::path::Path;

/// Whose objects a client sees, and by which policy it is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// Clients of one domain see each other's objects: two controllers of one library have to.
    pub domain: Name,
    /// The key group whose policy limits for how long a node that is cut off answers it. Objects of KMIP have no group
    /// of their own.
    #[serde(default)]
    pub group: Name,
}

impl ClientRecord {
    /// Where it lies.
    pub fn path(client: &Name) -> Path {
        Path::Other(format!("kmip-client/{client}"))
    }

    /// What a record says of a client, or what holds where there is none.
    ///
    /// # Errors
    /// The record is no JSON of this shape.
    pub fn read(record: Option<&[u8]>, client: &Name) -> Result<Self, serde_json::Error> {
        match record {
            Some(bytes) => serde_json::from_slice(bytes),
            None => Ok(Self { domain: client.clone(), group: Name::default() }),
        }
    }
}
