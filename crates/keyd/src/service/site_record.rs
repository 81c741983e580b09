//! What is on record of a site.

use serde::{Deserialize, Serialize};

use crate::path::Path;

/// A site that somebody added: `site/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SiteRecord {
    pub(super) description: String,
    /// In nanoseconds since 1970.
    pub(super) added_ns: i64,
}

impl SiteRecord {
    pub(super) fn path(site: &str) -> Path {
        Path::Other(format!("site/{site}"))
    }
}
