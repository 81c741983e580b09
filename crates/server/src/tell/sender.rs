//! Brings a message to its receivers by one way, with a few tries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use capstan_director::{MailConfig, TellRule};

use super::error::TellError;
use super::message::TellMessage;
use super::way::TellWay;
use super::{mail, program, webhook};

/// How often it is looked whether the server stops.
const STOP_LOOKED_FOR_EVERY: Duration = Duration::from_millis(100);

/// How long receivers may take.
#[derive(Debug, Clone)]
pub struct TellPatience {
    /// For each answer of a mail server, and for a webhook as a whole.
    pub network: Duration,
    /// For a command; then it is killed.
    pub command: Duration,
    /// The pauses between tries: there is one try more than pauses.
    pub pauses: Vec<Duration>,
}

impl Default for TellPatience {
    fn default() -> Self {
        Self {
            network: Duration::from_secs(30),
            command: Duration::from_secs(60),
            pauses: vec![Duration::from_secs(1), Duration::from_secs(5)],
        }
    }
}

impl TellPatience {
    /// One try.
    #[must_use]
    pub fn once() -> Self {
        Self { pauses: Vec::new(), ..Self::default() }
    }
}

/// Sends messages of one machine.
#[derive(Debug, Clone)]
pub struct TellSender {
    /// The machine, as messages name it.
    pub host: String,
    /// How mail is sent; `None` if the settings do not say.
    pub mail: Option<MailConfig>,
    /// How long receivers may take.
    pub patience: TellPatience,
    /// What commands must not learn: names of variables of the environment.
    pub secrets: Vec<String>,
}

impl TellSender {
    /// Sends a message by its way: returns when it has arrived, or after the last try, or when it is to stop.
    ///
    /// # Errors
    /// [`TellError`] has what the last try failed by.
    pub fn send(&self, rule: &TellRule, message: &TellMessage, stop: &AtomicBool) -> Result<(), TellError> {
        let mut pauses = self.patience.pauses.iter();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(TellError::Stopped);
            }
            match (self.try_once(rule, message, stop), pauses.next()) {
                (Err(TellError::Stopped), _) => return Err(TellError::Stopped),
                (Err(_), Some(pause)) => wait(*pause, stop),
                (done, _) => return done,
            }
        }
    }

    fn try_once(&self, rule: &TellRule, message: &TellMessage, stop: &AtomicBool) -> Result<(), TellError> {
        let (host, network) = (&self.host, self.patience.network);
        match (message.way, &self.mail) {
            (TellWay::Mail, Some(config)) => mail::send(config, &rule.mail, host, message, network),
            (TellWay::Mail, None) => {
                let reason = "there is no [mail] in capstan.toml that says how mail is sent".to_owned();
                Err(TellError::Mail { server: "nobody".to_owned(), reason })
            }
            (TellWay::Webhook, _) => webhook::post(&rule.webhook, &message.json(host), network),
            (TellWay::Command, _) => {
                let limits = (self.patience.command, stop);
                program::run(&rule.command, host, message, &self.secrets, limits)
            }
        }
    }
}

fn wait(pause: Duration, stop: &AtomicBool) {
    let until = Instant::now() + pause;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        thread::sleep(until.saturating_duration_since(Instant::now()).min(STOP_LOOKED_FOR_EVERY));
    }
}

#[cfg(test)]
mod tests;
