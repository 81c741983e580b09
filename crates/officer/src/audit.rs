//! `keyd audit`, as far as a node is asked for it.

use clap::Subcommand;
use serde_json::Value;

use crate::ask::Ask;

/// What the nodes' audit logs say.
#[derive(Debug, Subcommand)]
pub enum AuditShown {
    /// Show the last records of a node's log
    Show {
        /// How many, to 1000
        #[arg(long, default_value_t = 100)]
        last: usize,
        /// Whom to ask, and as whom.
        #[command(flatten)]
        ask: Ask,
    },
    /// Print the anchors of all nodes' logs, one on each line: keep them elsewhere, for `keyd audit verify`
    Anchors(Ask),
}

impl AuditShown {
    /// Asks, and says the answer.
    ///
    /// # Errors
    /// No node answers, or the one that does refuses.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Show { last, ask } => {
                let items: Vec<Value> = ask.get(&format!("/v1/audit?last={last}"))?;
                ask.list(&items, &["sequence", "time", "who", "from", "act", "object", "result", "why"]);
            }
            Self::Anchors(ask) => {
                let items: Vec<Value> = ask.get("/v1/audit/anchors")?;
                items.iter().for_each(|anchor| println!("{anchor}"));
            }
        }
        Ok(())
    }
}
