//! The work of a client: it dials the mover of a job, and reads what the machine's own settings allow.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_mover::extract::{ExtractOptions, ExtractReport, Overwrite, Owners, open_or_make_directory};
use capstan_mover::{ClientEnd, ClientRules, JobToken, NetworkJobs, OwedScripts, RestoreInto, ServedMover, serve_job};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::data::DataDialer;
use crate::orders::{OrderedRestore, Replaces};
use crate::{CellOrder, ClientError, ClientSettings, JobId, MemberState, may_restore_to};

/// Carries out the orders of the server.
pub struct ClientWork<'a> {
    state: &'a MemberState,
    settings: ClientSettings,
    /// What stops each job that is at work.
    jobs: Mutex<HashMap<JobId, Arc<AtomicBool>>>,
    is_stopped: AtomicBool,
    /// The mover of this process, if there is one.
    mover: Option<NetworkJobs>,
    /// Scripts that have to be run still.
    owed: OwedScripts,
}

/// How an order was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderEnd {
    /// The mover ended the job.
    Served {
        /// Whether that was the mover of this process, so that no data crossed the network.
        lan_free: bool,
    },
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
        let owed = OwedScripts::noted_in(&state.owed_folder());
        Ok(Self { state, settings, jobs: Mutex::default(), is_stopped: AtomicBool::new(false), mover: None, owed })
    }

    /// The same work in the process of a mover: what goes to its drives crosses no network.
    #[must_use]
    pub fn beside(self, mover: &ServedMover) -> Self {
        Self { mover: Some(mover.jobs().clone()), ..self }
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, Arc<AtomicBool>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the scripts that an earlier process of this client owed when it was killed, one after the other: it is to
    /// be called before orders are asked for. `say` is told of each.
    pub fn run_owed(&self, say: &dyn Fn(String)) {
        self.owed.run_left(&self.rules(), say);
    }

    fn rules(&self) -> Rules<'_> {
        Rules { settings: &self.settings, owed: &self.owed }
    }

    /// Stops all that is at work, and what still comes.
    pub fn stop(&self) {
        let jobs = self.jobs();
        self.is_stopped.store(true, Ordering::Relaxed);
        jobs.values().for_each(|stop| stop.store(true, Ordering::Relaxed));
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
        let (job, token, address, links, ordered) = match order {
            CellOrder::Serve { job, token, data, links, restore } => (job, token, data, links, restore),
            CellOrder::Stop { job } => {
                if let Some(stop) = self.jobs().get(&job) {
                    stop.store(true, Ordering::Relaxed);
                }
                return Ok(OrderEnd::Stopped);
            }
        };
        // If it is not allowed, the job is served all the same: so whoever asked for it hears of that.
        let target = ordered.filter(|_| restores.is_none()).map(|ordered| self.target(&ordered)).transpose();
        let (target, refused) = target.map_or_else(|error| (None, Some(error)), |target| (target, None));
        let nobody = |_: &ExtractReport| {};
        let restores = restores.or_else(|| {
            let OrderedTarget { directory, options, .. } = target.as_ref()?;
            Some(RestoreInto { directory, options: options.clone(), told: &nobody })
        });
        let dialer = DataDialer::new(&self.state.identity()?, address.clone())?.beside(self.mover.clone());
        // Under the lock of whoever stops them all: one that begins meanwhile is stopped, too.
        let mut jobs = self.jobs();
        let stop = Arc::new(AtomicBool::new(self.is_stopped.load(Ordering::Relaxed)));
        jobs.insert(job, Arc::clone(&stop));
        drop(jobs);
        let end = ClientEnd {
            dial: &dialer,
            token: JobToken(*token.expose()),
            links,
            rules: &self.rules(),
            restores,
            stop: Arc::clone(&stop),
        };
        let served = serve_job(&end);
        self.jobs().remove(&job);
        match (served, refused) {
            (_, Some(refused)) => Err(refused),
            (Ok(()), None) => Ok(OrderEnd::Served { lan_free: dialer.is_lan_free(links) }),
            (Err(_), None) if stop.load(Ordering::Relaxed) => Ok(OrderEnd::Stopped),
            (Err(error), None) => Err(ClientError::Data { address, reason: in_words(&error) }),
        }
    }
}

/// Where a restore that the server ordered is written: a directory below an allowed folder, open.
struct OrderedTarget {
    directory: PathBuf,
    options: ExtractOptions,
    /// Kept: `directory` names it.
    _open: OwnedFd,
}

impl ClientWork<'_> {
    /// Opens where a restore that the server ordered is written, if the settings allow it. No link on the way there is
    /// followed, now or later: whoever may write to a directory above could put one in the folder's place.
    fn target(&self, ordered: &OrderedRestore) -> Result<OrderedTarget, ClientError> {
        let directory = Path::new(&ordered.directory);
        let refused = || ClientError::RestoreNotAllowed { directory: directory.to_owned() };
        let folder = self.settings.restore_to.iter().find(|folder| may_restore_to(&[folder], directory));
        let (folder, below) =
            folder.and_then(|folder| Some((folder, directory.strip_prefix(folder).ok()?))).ok_or_else(refused)?;
        let mut at = PathBuf::from("/");
        let mut open = openat(CWD, &at, OPENED, Mode::empty()).map_err(|errno| not_opened(directory, &at, errno))?;
        let above = folder.components().zip(std::iter::repeat(Mode::RWXU | Mode::RWXG | Mode::RWXO));
        for (part, mode) in above.chain(below.components().zip(std::iter::repeat(Mode::RWXU))) {
            if let Component::Normal(name) = part {
                at.push(name);
                open = open_or_make_directory(open.as_fd(), name, mode)
                    .map_err(|errno| not_opened(directory, &at, errno))?;
            }
        }
        let overwrite = match ordered.replaces {
            Replaces::Never => Overwrite::Never,
            Replaces::Changed => Overwrite::Changed,
            Replaces::Always => Overwrite::Always,
        };
        let mut options = ExtractOptions { overwrite, strip: usize::from(ordered.strip), ..ExtractOptions::default() };
        if options.owners == Owners::Restore {
            // What is ordered may come of a stolen identity, or be the archive of another machine.
            options.owners = Owners::WithoutPrivileges;
        }
        // By what is open, and not by a path in which a link may take the place of a directory meanwhile.
        let directory = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        Ok(OrderedTarget { directory, options, _open: open })
    }
}

/// The root, as a place to go on from.
const OPENED: OFlags = OFlags::DIRECTORY.union(OFlags::PATH).union(OFlags::CLOEXEC);

fn not_opened(directory: &Path, at: &Path, errno: Errno) -> ClientError {
    match errno {
        Errno::LOOP | Errno::NOTDIR => {
            ClientError::RestoreThroughLink { directory: directory.to_owned(), link: at.to_owned() }
        }
        errno => ClientError::io("open", at)(errno.into()),
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
struct Rules<'a> {
    settings: &'a ClientSettings,
    owed: &'a OwedScripts,
}

impl ClientRules for Rules<'_> {
    fn allows(&self, path: &Path) -> bool {
        // A link on the way may lead elsewhere. What is not there is allowed, and said to be missing.
        self.settings.permits(path) && std::fs::canonicalize(path).map_or(true, |real| self.settings.permits(&real))
    }

    fn script(&self, name: &str) -> Option<Vec<OsString>> {
        let words = self.settings.scripts.get(name)?;
        Some(words.iter().map(OsString::from).collect())
    }

    fn owed(&self) -> Option<&OwedScripts> {
        Some(self.owed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_restore_is_written_below_the_folders_that_are_allowed_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        let (inside, outside) = (real.join("inside"), real.join("outside"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let state = MemberState::new(&real.join("state"), capstan_keys::api::PeerKind::Client);
        std::fs::create_dir(state.dir()).unwrap();
        let settings = |text: String| std::fs::write(state.dir().join("client.toml"), text).unwrap();
        let written_in = |directory: &Path| -> Result<PathBuf, ClientError> {
            let directory = directory.to_str().unwrap().to_owned();
            let ordered = OrderedRestore { directory, replaces: Replaces::Changed, strip: 1 };
            let target = ClientWork::new(&state)?.target(&ordered)?;
            assert_eq!((target.options.overwrite, target.options.strip), (Overwrite::Changed, 1));
            assert_ne!(target.options.owners, Owners::Restore, "no set-user-ID program of root comes of an order");
            Ok(std::fs::canonicalize(&target.directory).unwrap())
        };
        settings(String::new());
        assert!(matches!(written_in(&inside), Err(ClientError::RestoreNotAllowed { .. })), "nobody allowed it");
        settings(format!("restore_to = [{inside:?}, {:?}]", real.join("new")));
        for directory in [inside.clone(), inside.join("a/b"), real.join("new/a")] {
            assert_eq!(written_in(&directory).unwrap(), directory);
        }
        for directory in
            [outside.clone(), inside.join("../outside"), inside.join("link"), inside.join("link/a"), "a".into()]
        {
            assert!(written_in(&directory).is_err(), "{directory:?}");
        }
        // Whoever owns the directory above put a link to /etc in the folder's place, and root wrote there.
        let moved = real.join("home/ada");
        std::fs::create_dir_all(&moved).unwrap();
        std::os::unix::fs::symlink(&outside, moved.join("restored")).unwrap();
        settings(format!("restore_to = [{:?}]", moved.join("restored")));
        for directory in [moved.join("restored"), moved.join("restored/a")] {
            let said = written_in(&directory).unwrap_err().to_string();
            assert!(said.contains("ada/restored is a symbolic link"), "{said}");
        }
        assert!(std::fs::read_dir(&outside).unwrap().next().is_none(), "nothing was made there");
    }

    #[test]
    fn a_link_out_of_the_folders_that_are_allowed_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        let (inside, outside) = (real.join("inside"), real.join("outside"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(outside.join("secret")).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let settings = ClientSettings { paths: vec![inside.clone()], ..ClientSettings::default() };
        let owed = OwedScripts::noted_in(&real);
        let rules = Rules { settings: &settings, owed: &owed };
        assert!(rules.allows(&inside) && rules.allows(&inside.join("missing")));
        assert!(!rules.allows(&outside) && !rules.allows(&inside.join("link/secret")));
        let unbounded = Rules { settings: &ClientSettings::default(), owed: &owed };
        assert!(unbounded.allows(&inside.join("link/secret")));
    }
}
