//! What a restore in the queue is: asked for once, and carried out by whichever server has its turn.

use std::net::SocketAddr;

use capstan_catalog::QueuedRun;
use capstan_client::orders::OrderedRestore;
use capstan_client::restores::AskRestore;
use serde::{Deserialize, Serialize};

/// A restore that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoreRun {
    /// Whose data.
    pub(crate) of: String,
    /// Who asked.
    pub(crate) asker: Asker,
    /// From where.
    pub(crate) from: SocketAddr,
    /// What; the time is that of the asking where none was named, so that a turn that comes late changes nothing.
    pub(crate) ask: AskRestore,
    /// Where and how the client writes it; none where the client asked, and knows that itself.
    pub(crate) into: Option<OrderedRestore>,
    /// Volumes that are read, in their order, as it was planned.
    pub(crate) volumes: Vec<String>,
}

/// Who asked for a restore, and hears of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Asker {
    /// The client of this name, at which it was typed.
    Client(String),
    /// The user of this name.
    User(String),
}

impl RestoreRun {
    /// As the queue has it.
    ///
    /// # Errors
    /// It cannot be read; why, in words.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let cannot = |error| format!("what it restores cannot be read ({error}): cancel the run, and ask again");
        serde_json::from_str(text).map_err(cannot)
    }

    /// For the queue.
    pub(crate) fn to_text(&self) -> String {
        // Nothing in it cannot be written so.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The volume that is read first.
    pub(crate) fn first_volume(&self) -> Option<&str> {
        self.volumes.first().map(String::as_str)
    }

    /// What is restored, from which client and to which.
    pub(crate) fn in_words(&self, to: &str) -> String {
        let places = self.ask.places.join(" ");
        let into = self.into.as_ref().map(|into| format!(", {}", into.directory)).unwrap_or_default();
        if self.of == to { format!("{places} to {to}{into}") } else { format!("{places} of {} to {to}{into}", self.of) }
    }
}

/// What a run of the queue restores, in words, if it is a restore.
pub(crate) fn restored_in_words(run: &QueuedRun) -> Option<String> {
    let what = RestoreRun::of(run.restore.as_deref()?);
    Some(what.map_or_else(|fault| fault, |what| what.in_words(&run.client)))
}
