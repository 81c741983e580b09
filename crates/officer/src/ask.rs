//! Asking a cluster, and saying what it answers: in tables and sentences for people, in JSON for programs.

use capstan_keys::api::{EnrolmentOpened, Page, PeerId, RequestId, RequestOutcome, Requested};
use capstan_keys::cluster::{Identity, Repeat};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::asking::Asking;
use crate::program::command;
use crate::table;

/// Whom to ask, and how to answer.
#[derive(Debug, clap::Args)]
pub struct Ask {
    /// Whom to ask, and as whom.
    #[command(flatten)]
    pub asking: Asking,
    /// Answer in JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

impl Ask {
    /// Who asks, as keys are handed over to them.
    pub(crate) fn own_id(&self) -> anyhow::Result<PeerId> {
        Ok(Identity::load(&self.asking.identity)?.certificate().peer.clone())
    }

    /// What is at a path.
    pub(crate) fn get<A: DeserializeOwned>(&self, path: &str) -> anyhow::Result<A> {
        Ok(self.asking.cluster()?.get(path)?)
    }

    /// All parts of a list.
    pub(crate) fn pages(&self, path: &str, question: &[(&str, Option<String>)]) -> anyhow::Result<Vec<Value>> {
        let cluster = self.asking.cluster()?;
        let mut question: Vec<String> =
            question.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?))).collect();
        let mut items = Vec::new();
        loop {
            let page: Page<Value> = cluster.get(&format!("{path}?{}", question.join("&")))?;
            items.extend(page.items);
            let Some(next) = page.next else { return Ok(items) };
            question.retain(|part| !part.starts_with("after="));
            question.push(format!("after={next}"));
        }
    }

    /// Asks for something to be done. It is not asked for again by itself: an enrolment or a request would be there
    /// twice.
    ///
    /// # Errors
    /// No node answers, or the one that does refuses.
    pub fn post<A: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> anyhow::Result<A> {
        Ok(self.asking.cluster()?.post(path, question, &RequestId::random()?, Repeat::Never)?)
    }

    /// Says a list: as a table of these columns, or as it is.
    pub(crate) fn list(&self, items: &[Value], columns: &[&str]) {
        if self.json {
            println!("{:#}", Value::from(items));
        } else {
            print!("{}", table::table(items, columns));
        }
    }

    /// Says what was done: in words, or as it is.
    ///
    /// # Errors
    /// The answer has no form in JSON.
    pub fn done(&self, answer: &impl Serialize, words: &str) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(answer)?);
        } else {
            println!("{words}");
        }
        Ok(())
    }

    /// Says an enrolment, with its passphrase.
    pub(crate) fn enrolment(&self, opened: &EnrolmentOpened) -> anyhow::Result<()> {
        let passphrase = opened.passphrase.0.expose();
        let words = format!(
            "{} enrols once, until {}, with this passphrase, which is shown only here:\n  {}",
            opened.peer,
            opened.expires,
            passphrase.as_str()
        );
        self.done(opened, &words)
    }

    /// Says that something waits for the quorum.
    ///
    /// # Errors
    /// The answer has no form in JSON.
    pub fn waits(&self, requested: &Requested) -> anyhow::Result<()> {
        let Requested { id, needed, expires, passphrase, warnings, .. } = requested;
        let mut words = format!(
            "request {id} waits until {expires} for {needed} approvals of others ({})",
            command("pending list")
        );
        for warning in warnings {
            words = format!("{words}\nnote: {warning}");
        }
        if let Some(passphrase) = passphrase {
            let shown = passphrase.0.expose();
            words = format!(
                "{words}\nOnce it is approved, this passphrase is valid for one enrolment, within a week. It is shown \
                 only here:\n  {}",
                shown.as_str()
            );
        }
        self.done(requested, &words)
    }

    /// Says what is to be done once a request is approved.
    pub fn then(&self, command: &str) {
        if !self.json {
            println!("Once it is approved: {command}");
        }
    }

    pub(crate) fn outcome(&self, outcome: &RequestOutcome) -> anyhow::Result<()> {
        match outcome {
            RequestOutcome::Waits(requested) if !self.json => self.waits(requested),
            _ => self.done(outcome, "done"),
        }
    }
}
