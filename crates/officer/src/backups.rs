//! `keyd backups`, as far as a node is asked for it.

use capstan_keys::api::{BackupRecord, BackupState};
use clap::Subcommand;

use crate::ask::Ask;

/// The database backups that a cluster knows.
#[derive(Debug, Subcommand)]
pub enum BackupsKnown {
    /// List them
    List(Ask),
    /// Confirm that all copies of backups were destroyed
    #[command(alias = "destroyed")]
    ConfirmDestroyed {
        /// The backups, as `keyd backups list` names them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// Whom to ask, and as whom.
        #[command(flatten)]
        ask: Ask,
    },
}

impl BackupsKnown {
    /// Asks, and says the answer.
    ///
    /// # Errors
    /// No node answers, or the one that does refuses.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List(ask) => {
                let mut known: Vec<BackupRecord> = ask.asking.client()?.get("/v1/backups")?;
                known.sort_by_key(|backup| (backup.epoch, backup.revision));
                if known.is_empty() && !ask.json {
                    println!("there is no backup: make one with `keyd backup` before anything is written to tape");
                }
                say(&ask, &known)
            }
            Self::ConfirmDestroyed { ids, ask } => {
                let client = ask.asking.client()?;
                let noted = |id: &String| client.post(&format!("/v1/backups/{id}/destroyed"), &());
                say(&ask, &ids.iter().map(noted).collect::<Result<Vec<BackupRecord>, _>>()?)
            }
        }
    }
}

fn say(ask: &Ask, backups: &[BackupRecord]) -> anyhow::Result<()> {
    if ask.json {
        println!("{}", serde_json::to_string_pretty(backups)?);
        return Ok(());
    }
    for BackupRecord { id, epoch, revision, made, by, keys, place, state, .. } in backups {
        let state = match state {
            BackupState::Kept => "kept".to_owned(),
            BackupState::Destroyed { at, by } => format!("destroyed, says {by} at {at}"),
        };
        println!("{id}  {made:.0}  epoch {epoch}, revision {revision}  {keys} keys  by {by}  {place}  {state}");
    }
    Ok(())
}
