//! Whom a person asks, and as whom.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use capstan_keys::cluster::{ClusterClient, Identity, NodeClient};
use clap::Args;

/// How long one node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Whom to ask, and as whom.
#[derive(Debug, Args)]
pub struct Asking {
    /// Who asks: the file that `keyd enrol` made
    #[arg(long, value_name = "FILE", env = "KEYD_IDENTITY")]
    pub identity: PathBuf,
    /// The node to ask, or several separated by commas. If they do not answer, another node of the cluster is asked,
    /// where any node may answer
    #[arg(long, value_name = "HOST:PORT", env = "KEYD_NODE", value_delimiter = ',', required = true)]
    pub node: Vec<String>,
}

impl Asking {
    /// The one node that is named, first if there are several: another's answer would be about another node.
    ///
    /// # Errors
    /// The identity cannot be read, or no node is named.
    pub fn client(&self) -> anyhow::Result<NodeClient> {
        let first = self.node.first().context("name the node: --node")?;
        Ok(NodeClient::new(&self.identity()?, first, ANSWER_WITHIN)?)
    }

    /// Whichever node answers.
    pub(crate) fn cluster(&self) -> anyhow::Result<ClusterClient> {
        Ok(ClusterClient::open_at(&self.identity()?, &self.node)?)
    }

    /// Who asks. A certificate of which two thirds are over is renewed first, and kept in its file: whoever asks
    /// something once a month never has to enrol again.
    ///
    /// # Errors
    /// The identity cannot be read, or a renewed one cannot be written.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        let identity = Identity::load(&self.identity)?;
        let (now_ns, certificate) = (now_ns(), identity.certificate());
        if !(certificate.renewal_due_ns()..certificate.not_after_ns).contains(&now_ns) {
            return Ok(identity);
        }
        let file = self.identity.display();
        let cluster = ClusterClient::open_at(&identity, &self.node);
        match cluster.and_then(|cluster| cluster.renew_if_due(now_ns)) {
            Ok(None) => Ok(identity),
            Ok(Some(renewed)) => {
                let lost = || {
                    format!(
                        "the certificate was renewed, and {file} was not written: the old one holds for a while, and the next command tries again"
                    )
                };
                renewed.save(&self.identity).with_context(lost)?;
                eprintln!("the certificate in {file} was renewed");
                Ok(renewed)
            }
            Err(error) => {
                // It holds for a while, and what is asked now may be just what brings the node back.
                eprintln!("the certificate in {file} is near its end and was not renewed: {error}");
                Ok(identity)
            }
        }
    }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
