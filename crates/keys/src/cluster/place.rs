//! Where a cluster is.

use std::path::PathBuf;

/// Where a cluster is, and who this machine is for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPlace {
    /// The identity file, made by enrolment.
    pub identity: PathBuf,
    /// Addresses of nodes, host and port; one that answers tells of the others, and those are kept beside the identity
    /// for the next start.
    pub nodes: Vec<String>,
    /// The site whose nodes are asked first; empty for none.
    pub site: String,
}
