//! The work of a client: it dials the mover of a job, and reads what the machine's own settings allow.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_mover::{ClientEnd, ClientRules, JobToken, RestoreInto, serve_job};

use crate::data::DataDialer;
use crate::{CellOrder, ClientError, ClientSettings, JobId, MemberState};

/// Carries out the orders of the server.
pub struct ClientWork<'a> {
    state: &'a MemberState,
    settings: ClientSettings,
    /// What stops each job that is at work.
    jobs: Mutex<HashMap<JobId, Arc<AtomicBool>>>,
    is_stopped: AtomicBool,
}

/// How an order was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderEnd {
    /// The mover ended the job.
    Served,
    /// This job, or all of them, was told to stop.
    Stopped,
}

impl<'a> ClientWork<'a> {
    /// Work of the machine of this state directory, within its settings.
    ///
    /// # Errors
    /// The settings cannot be read.
    pub fn new(state: &'a MemberState) -> Result<Self, ClientError> {
        let settings = ClientSettings::read(state.dir())?;
        Ok(Self { state, settings, jobs: Mutex::default(), is_stopped: AtomicBool::new(false) })
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, Arc<AtomicBool>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops all that is at work, and what still comes.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.jobs().values().for_each(|stop| stop.store(true, Ordering::Relaxed));
    }

    /// Restores what the server was asked for: writes below a directory what the mover of the order reads, in this
    /// thread.
    ///
    /// # Errors
    /// As [`ClientWork::carry_out`].
    pub fn restore(&self, order: CellOrder, into: RestoreInto<'_>) -> Result<OrderEnd, ClientError> {
        self.serve(order, Some(into))
    }

    /// Carries out an order, in this thread.
    ///
    /// # Errors
    /// The mover cannot be reached, or the connection broke: the server sees that, too, and says what becomes of the
    /// job.
    pub fn carry_out(&self, order: CellOrder) -> Result<OrderEnd, ClientError> {
        self.serve(order, None)
    }

    fn serve(&self, order: CellOrder, restores: Option<RestoreInto<'_>>) -> Result<OrderEnd, ClientError> {
        let (job, token, address, links) = match order {
            CellOrder::Serve { job, token, data, links } => (job, token, data, links),
            CellOrder::Stop { job } => {
                if let Some(stop) = self.jobs().get(&job) {
                    stop.store(true, Ordering::Relaxed);
                }
                return Ok(OrderEnd::Stopped);
            }
        };
        let dialer = DataDialer::new(&self.state.identity()?, address.clone())?;
        let stop = Arc::new(AtomicBool::new(self.is_stopped.load(Ordering::Relaxed)));
        self.jobs().insert(job, Arc::clone(&stop));
        let end = ClientEnd {
            dial: &dialer,
            token: JobToken(*token.expose()),
            links,
            rules: &Rules(&self.settings),
            restores,
            stop: Arc::clone(&stop),
        };
        let served = serve_job(&end);
        self.jobs().remove(&job);
        match served {
            Ok(()) => Ok(OrderEnd::Served),
            Err(_) if stop.load(Ordering::Relaxed) => Ok(OrderEnd::Stopped),
            Err(error) => Err(ClientError::Data { address, reason: in_words(&error) }),
        }
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "it ended the connection: the server was stopped, or its job was".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The machine's settings, as what a job is held to.
struct Rules<'a>(&'a ClientSettings);

impl ClientRules for Rules<'_> {
    fn allows(&self, path: &Path) -> bool {
        // A link on the way may lead elsewhere. What is not there is allowed, and said to be missing.
        self.0.permits(path) && std::fs::canonicalize(path).map_or(true, |real| self.0.permits(&real))
    }

    fn script(&self, name: &str) -> Option<Vec<OsString>> {
        let words = self.0.scripts.get(name)?;
        Some(words.iter().map(OsString::from).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_link_out_of_the_folders_that_are_allowed_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        let (inside, outside) = (real.join("inside"), real.join("outside"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(outside.join("secret")).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let settings = ClientSettings { paths: vec![inside.clone()], ..ClientSettings::default() };
        let rules = Rules(&settings);
        assert!(rules.allows(&inside) && rules.allows(&inside.join("missing")));
        assert!(!rules.allows(&outside) && !rules.allows(&inside.join("link/secret")));
        assert!(Rules(&ClientSettings::default()).allows(&inside.join("link/secret")));
    }
}
