//! `server run`: serves this state directory, and does the work of its runs as `backup` does it.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use capstan_catalog::{ActiveRun, QueuedRun};
use capstan_director::{BackupWatch, DirectorError, NetworkRuns, NetworkShare, ServerConfig, Site};
use capstan_keys::api::PeerId;
use capstan_mover::{NetworkJob, RateLimit, RestoreWatch};
use capstan_server::cell::users::run_outcome_word;
use capstan_server::cell::users::words::{MemberName, StatusAnswer, StatusQuery};
use capstan_server::cell::{CellAddresses, CellHost, CellNotice, MoverConnections, ServedCell};
use capstan_server::tell::{TROUBLES_MAX, TellFindings};
use capstan_server::{
    Expired, Notice, RunCounts, ServedMetrics, TakesEntry, WorkEnd, Worked, Worker, expire, make_room,
    network_of_client, note_nobody_listens, serve, serve_metrics,
};

use super::service::is_ready;
use super::tell::tell_people;
use crate::args::Server;
use crate::failure::{BUSY, DONE_WITH_PROBLEMS, Failure, STOPPED, of_cell};
use crate::globals::Globals;
use crate::json::{self, ServerEvent};
use crate::list::{findings, metrics_of, status_of};
use crate::progress::{Display, Standing, stop_all_on_interrupt, tell};
use crate::secrets::{Need, PASSPHRASES, open};
use crate::units;
use crate::wording::forgotten_text;
use crate::work::{Served, care_served, copy_served, run_served};

/// Why nothing can be asked of clients.
const NO_CELL: &str = "this server does not listen for clients: start it with --listen, or set listen under [server] in \
                       capstan.toml";
/// Sources of a client that are read at the same time.
const CLIENT_LINKS_MAX: usize = 8;

pub(crate) fn server(cli: &Globals, action: &Server) -> Result<ExitCode, Failure> {
    let (listen, enrolment, data) = match action {
        Server::Run { listen, enrolment, data } => (listen, enrolment, data),
        Server::Tell { test } => return tell_people(cli, test.as_deref()),
    };
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, display.events())?;
    if let Some(problem) = site.library_problem() {
        if site.library_names().len() == 1 {
            return Err(Failure::Other(format!("{problem}. Then start the server again")));
        }
        // Others may be there, and the cell goes on with those.
        show(cli, site.dir(), ServerEvent::Trouble { reason: problem });
    }
    let term = site.begin_term()?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    // Nor is a reader of its messages that is gone a reason to stop.
    crate::rustix_sigpipe::ignore();
    // What several runs print at the same time nobody could read: the history has it.
    let of_runs = Globals { json: false, quiet: true, ..cli.clone() };
    let settings = ServerConfig {
        listen: listen.clone().unwrap_or_else(|| site.config().server.listen.clone()),
        enrolment: enrolment.clone().unwrap_or_else(|| site.config().server.enrolment.clone()),
        data: data.clone().unwrap_or_else(|| site.config().server.data.clone()),
        ..site.config().server.clone()
    };
    let mut of_movers = site.config().all_libraries().filter(|(_, library)| !library.mover.is_empty());
    if let (Some((_, library)), true) = (of_movers.next(), settings.listen.is_empty()) {
        return Err(Failure::Usage(listens_for_no_mover(&library.mover)));
    }
    drop(of_movers);
    let movers = MoverConnections::default();
    let site = site.with_movers(&|mover| movers.way_to(mover))?;
    let troubles = Troubles::default();
    let cell = serve_cell(cli, &site, &settings, movers, &troubles)?;
    let watched = watched(cli, &site, &settings, &troubles)?;
    let worker = InProcess {
        cli,
        of_runs,
        site: &site,
        cell: cell.as_ref(),
        troubles,
        networks: Mutex::default(),
        working: Mutex::default(),
    };
    worker.show(ServerEvent::Serving { term: term.number(), policies: site.policies()?.len() });
    if let Some(cell) = &cell {
        worker.show(ServerEvent::Listening {
            members: cell.members_address().to_string(),
            enrolment: cell.enrolment_address().to_string(),
            data: cell.data_address().to_string(),
        });
    }
    if let Some(watched) = &watched {
        worker.show(ServerEvent::Watched { metrics: watched.address().to_string() });
    }
    is_ready();
    serve(&site, &term, &worker, &stop)?;
    drop((cell, watched));
    show(cli, site.dir(), ServerEvent::Stopped);
    Ok(ExitCode::SUCCESS)
}

/// Opens the listeners of the cell, if any are named.
fn serve_cell(
    cli: &Globals,
    site: &Site,
    settings: &ServerConfig,
    movers: MoverConnections,
    troubles: &Troubles,
) -> Result<Option<ServedCell>, Failure> {
    let Some(addresses) = CellAddresses::of(settings).map_err(of_cell)? else {
        note_nobody_listens(site)?;
        return Ok(None);
    };
    let host = ServerHost { cli: cli.clone(), site: site.clone(), troubles: troubles.clone() };
    ServedCell::start(site, &addresses, movers, Arc::new(host)).map(Some).map_err(of_cell)
}

/// Opens the listener for metrics, if one is named.
fn watched(
    cli: &Globals,
    site: &Site,
    settings: &ServerConfig,
    troubles: &Troubles,
) -> Result<Option<ServedMetrics>, Failure> {
    // What is none is refused when the settings are read.
    let Ok(address) = settings.metrics_listen.parse() else { return Ok(None) };
    let (cli, site, troubles, said) = (cli.clone(), site.clone(), troubles.clone(), Mutex::new(String::new()));
    let metrics = move || {
        let made = metrics_of(&site).map_err(|failure| format!("there are no metrics now: {failure}"));
        let reason = made.as_ref().err().cloned().unwrap_or_default();
        let before = std::mem::replace(&mut *said.lock().unwrap_or_else(PoisonError::into_inner), reason.clone());
        if !reason.is_empty() && reason != before {
            troubles.add(&reason);
            show(&cli, site.dir(), ServerEvent::Trouble { reason });
        }
        made
    };
    serve_metrics(address, Box::new(metrics)).map(Some).map_err(of_cell)
}

/// This process, as the control plane of its cell knows it.
struct ServerHost {
    cli: Globals,
    site: Site,
    troubles: Troubles,
}

/// What troubles the listeners, until the server asks for it to tell people.
#[derive(Clone, Default)]
struct Troubles(Arc<Mutex<Vec<String>>>);

impl Troubles {
    fn add(&self, reason: &str) {
        let mut reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A server whose settings name nobody to tell asks for none.
        if reasons.len() < TROUBLES_MAX && !reasons.iter().any(|known| known == reason) {
            reasons.push(reason.to_owned());
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CellHost for ServerHost {
    fn say(&self, notice: CellNotice) {
        let event = match notice {
            CellNotice::Enrolled { peer, from } => ServerEvent::Joined { member: named(&peer), from: from.to_string() },
            CellNotice::NotProved { peer, from } => {
                ServerEvent::JoinRefused { member: named(&peer), from: from.to_string() }
            }
            // People are told of what `status` shows.
            CellNotice::Attention { reason } => ServerEvent::Trouble { reason },
            CellNotice::Trouble { reason } => {
                self.troubles.add(&reason);
                ServerEvent::Trouble { reason }
            }
        };
        show(&self.cli, self.site.dir(), event);
    }

    fn status(&self, asked: &StatusQuery) -> Result<StatusAnswer, String> {
        status_of(&self.site, asked).map_err(|failure| failure.to_string())
    }
}

fn named(peer: &PeerId) -> MemberName {
    MemberName::new(peer.kind, peer.name.to_string())
}

fn listens_for_no_mover(mover: &str) -> String {
    format!(
        "the drives are those of mover {mover} (a library in capstan.toml), and this server does not listen for it: \
         start it with --listen, or set listen under [server]"
    )
}

/// Says what the server does.
fn show(cli: &Globals, dir: &Path, event: ServerEvent) {
    if cli.json {
        // A reader that is gone is no reason to leave runs undone.
        let _ = json::print(&event);
        return;
    }
    match event {
        ServerEvent::Trouble { reason } => tell(&format!("capstan: {reason}")),
        ServerEvent::Missed { policy, reason } => tell(&format!("capstan: {policy}: {reason}")),
        ServerEvent::RunRetried { run, policy, message, not_before_ns } => {
            let at = units::time(not_before_ns);
            tell(&format!("capstan: {policy}: run {run} is tried again at {at}: {message}"));
        }
        ServerEvent::RunEnded { run, policy, outcome, message } if matches!(outcome, "failed" | "problems") => {
            tell(&format!("capstan: {policy}: run {run} ended ({outcome}): {message}"));
        }
        ServerEvent::JoinRefused { member, from } => {
            tell(&format!("capstan: somebody at {from} tried to join as {member} with a wrong passphrase"));
        }
        _ if cli.quiet => {}
        ServerEvent::Serving { policies, .. } => {
            let policies = units::counted(policies as u64, "policy");
            tell(&format!("serving {}, with {policies}; Ctrl-C stops", dir.display()));
        }
        ServerEvent::Listening { members, enrolment, .. } => {
            tell(&format!(
                "clients and movers are listened for at {members}, machines that join the cell at {enrolment}"
            ));
        }
        ServerEvent::Watched { metrics } => tell(&format!("metrics are at http://{metrics}/metrics")),
        ServerEvent::Joined { member, from } => tell(&format!("{member} has joined, from {from}")),
        ServerEvent::Returned { runs } => {
            tell(&format!("{} of an earlier server went back into the queue", units::counted(runs as u64, "run")));
        }
        ServerEvent::Due { run, policy } => tell(&format!("{policy}: run {run} is due")),
        ServerEvent::Entered { run, policy, reason } => tell(&format!("{policy}: run {run} waits: {reason}")),
        ServerEvent::RunBegun { run, policy, attempt: 1 } => tell(&format!("{policy}: run {run} begins")),
        ServerEvent::RunBegun { run, policy, attempt } => {
            tell(&format!("{policy}: run {run} begins, attempt {attempt}"));
        }
        ServerEvent::RunEnded { run, policy, outcome, message } => {
            tell(&format!("{policy}: run {run} ended ({outcome}): {message}"));
        }
        ServerEvent::Expired { objects, copies, volumes, notices } => {
            if objects + copies > 0 {
                let (what, volumes) = (forgotten_text(objects, copies), scratch_again(&volumes));
                tell(&format!("expiry: {what} forgotten{volumes}"));
            }
            notices.iter().for_each(|notice| tell(notice));
        }
        ServerEvent::Stopped => tell("the server has stopped"),
    }
}

fn scratch_again(volumes: &[String]) -> String {
    match volumes {
        [] => String::new(),
        several => format!("; scratch again: {}", several.join(", ")),
    }
}

/// Does the work of runs in this process: the server is mover and client too.
struct InProcess<'a> {
    cli: &'a Globals,
    of_runs: Globals,
    site: &'a Site,
    /// Where clients on other machines are, if this server has any.
    cell: Option<&'a ServedCell>,
    troubles: Troubles,
    /// Networks whose bandwidth runs share.
    networks: Mutex<HashMap<String, Arc<NetworkRuns>>>,
    /// How far the runs are that are worked on, by their numbers.
    working: Mutex<HashMap<i64, Seen>>,
}

/// Where it is seen how far a run is.
enum Seen {
    Backup(Arc<BackupWatch>),
    Restore(Arc<RestoreWatch>),
}

/// A run that is seen, until this is dropped.
struct SeenRun<'a>(&'a Mutex<HashMap<i64, Seen>>, i64);

impl Drop for SeenRun<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

impl InProcess<'_> {
    /// A run's share of what the network of its client takes, if that is bounded.
    fn share_of_network(&self, client: &str) -> Option<Arc<NetworkShare>> {
        let peers = self.site.catalog().peers_named("client", client).ok()?;
        let (name, network) = network_of_client(self.site, &peers, client)?;
        let bandwidth = network.bandwidth()?;
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        // After a change of the settings, runs that begin share anew.
        let there = networks.get(name).filter(|runs| *runs.bandwidth() == bandwidth).cloned();
        let runs = there.unwrap_or_else(|| NetworkRuns::new(bandwidth));
        networks.insert(name.to_owned(), Arc::clone(&runs));
        Some(Arc::new(runs.join()))
    }

    fn seen(&self, run: i64, seen: Seen) -> SeenRun<'_> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner).insert(run, seen);
        SeenRun(&self.working, run)
    }

    fn show(&self, event: ServerEvent) {
        show(self.cli, self.site.dir(), event);
    }

    /// The site for a run of a policy, which writes in a library with the drives that its storage unit has.
    fn site_of(&self, policy: &str, library: &str) -> Result<Site, DirectorError> {
        let site = self.site.clone().in_library(library)?;
        let policy = site.policy(policy)?;
        // One that is gone, or names no unit that there is, fails by itself.
        let job = policy.map(|policy| site.policy_in(&policy.config, library));
        let unit = job.and_then(|job| site.unit_of(&job).ok());
        Ok(match unit {
            Some(unit) => site.with_drives_of(&unit),
            None => site,
        })
    }

    /// The client of a run, once it has been told to come; `None` where that is this machine.
    fn client(&self, run: &QueuedRun) -> Result<Option<Arc<NetworkJob>>, Worked> {
        if run.client == self.site.client() {
            return Ok(None);
        }
        let busy = |message: String| Worked { end: WorkEnd::Busy, message };
        let cell = self.cell.ok_or_else(|| busy(NO_CELL.to_owned()))?;
        let policy = self.site.policy(&run.policy).ok().flatten();
        let sources = policy.map_or(1, |policy| policy.config.sources.len());
        let links = sources.clamp(1, CLIENT_LINKS_MAX) as u16;
        cell.open_job(&run.client, links).map(|job| Some(Arc::new(job))).map_err(|error| busy(error.to_string()))
    }
}

impl Worker for InProcess<'_> {
    fn work(&self, run: &ActiveRun, stop: &Arc<AtomicBool>, entered: &TakesEntry<'_>) -> Worked {
        if run.run.restore.is_some() {
            return match self.cell {
                Some(cell) => {
                    let share = self.share_of_network(&run.run.client);
                    let rate = share.map_or_else(RateLimit::default, |share| self.site.rate(None, Some(share)));
                    let watch = Arc::new(RestoreWatch { rate, ..RestoreWatch::default() });
                    let _seen = self.seen(run.run.run, Seen::Restore(Arc::clone(&watch)));
                    cell.restore(run, stop, entered, &watch)
                }
                None => Worked { end: WorkEnd::Busy, message: NO_CELL.to_owned() },
            };
        }
        let name = &run.run.policy;
        let display = Display::of_run(&self.of_runs, name);
        let site = match self.site_of(name, &run.place.library) {
            Ok(site) => site,
            Err(error) => return Worked { end: WorkEnd::Failed, message: error.to_string() },
        };
        let (session, drives) = (run.place.session, run.place.drives);
        let policy = self.site.policy(name).ok().flatten();
        let ran = if policy.as_ref().is_some_and(|policy| !policy.config.makes_backups()) {
            let watch = Arc::new(RestoreWatch { stop: Arc::clone(stop), ..RestoreWatch::default() });
            let _seen = self.seen(run.run.run, Seen::Restore(Arc::clone(&watch)));
            let served = Served { site: &site, entered, client: None, session, drives, network: None };
            match policy.is_some_and(|policy| policy.config.is_of_care()) {
                true => care_served(&served, &run.run, &display, &watch),
                false => copy_served(&served, &run.run, &display, &watch),
            }
        } else {
            let watch = Arc::new(BackupWatch { stop: Arc::clone(stop), ..BackupWatch::default() });
            let _seen = self.seen(run.run.run, Seen::Backup(Arc::clone(&watch)));
            let client = match self.client(&run.run) {
                Ok(client) => client,
                Err(worked) => return worked,
            };
            let network = client.as_ref().and_then(|_| self.share_of_network(&run.run.client));
            let served = Served { site: &site, entered, client, session, drives, network };
            run_served(&self.of_runs, &served, &run.run, &display, &watch)
        };
        let (end, message) = match ran {
            Ok((0, message)) => (WorkEnd::Succeeded, message),
            Ok((DONE_WITH_PROBLEMS, message)) => (WorkEnd::Warned, message),
            Ok((_, message)) => (WorkEnd::Failed, message),
            Err(failure) => {
                let end = match (&failure, failure.exit_code()) {
                    (_, STOPPED) => WorkEnd::Stopped,
                    // Settings that are just being written, or wrong, are no fault of the run.
                    (_, BUSY)
                    | (Failure::Director(DirectorError::Config { .. } | DirectorError::PolicyFault { .. }), _) => {
                        WorkEnd::Busy
                    }
                    _ => WorkEnd::Failed,
                };
                (end, failure.to_string())
            }
        };
        // Whatever it failed by, it was on its way to its end.
        let end = if end == WorkEnd::Failed && stop.load(Ordering::Relaxed) { WorkEnd::Stopped } else { end };
        Worked { end, message }
    }

    fn counts(&self) -> Vec<RunCounts> {
        let working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = |(run, seen): (&i64, &Seen)| {
            let Standing { done, planned, moved, items, .. } = match seen {
                Seen::Backup(watch) => Standing::of_backup(watch),
                Seen::Restore(watch) => Standing::of_reading(watch),
            };
            RunCounts { run: *run, files: items, bytes: done, bytes_planned: planned, moved }
        };
        working.iter().map(of_one).collect()
    }

    fn is_connected(&self, client: &str) -> Option<bool> {
        let cell = self.cell.filter(|_| client != self.site.client())?;
        Some(cell.hub().is_connected(client))
    }

    fn may_begin(&self, run: &QueuedRun) -> bool {
        self.cell.is_none_or(|cell| cell.may_begin(run))
    }

    fn expire(&self) -> Result<Option<Expired>, String> {
        expire(self.site)
    }

    fn make_room(&self) -> Result<Option<Vec<Expired>>, String> {
        make_room(self.site)
    }

    fn findings(&self) -> Result<TellFindings, String> {
        findings(self.site).map_err(|failure| failure.to_string())
    }

    fn troubles(&self) -> Vec<String> {
        self.troubles.take()
    }

    fn secrets(&self) -> Vec<String> {
        PASSPHRASES.map(str::to_owned).into()
    }

    fn say(&self, notice: Notice) {
        self.show(match notice {
            Notice::Returned { runs } => ServerEvent::Returned { runs },
            Notice::Due { run, policy } => ServerEvent::Due { run, policy },
            Notice::Entered { run, policy, reason } => ServerEvent::Entered { run, policy, reason },
            Notice::Missed { policy, reason } => ServerEvent::Missed { policy, reason },
            Notice::Begun { run, policy, attempt } => ServerEvent::RunBegun { run, policy, attempt },
            Notice::Ended { run, policy, outcome, message } => {
                ServerEvent::RunEnded { run, policy, outcome: run_outcome_word(outcome), message }
            }
            Notice::Retried { run, policy, message, not_before_ns } => {
                ServerEvent::RunRetried { run, policy, message, not_before_ns }
            }
            Notice::Expired(Expired { objects, copies, volumes, notices }) => {
                ServerEvent::Expired { objects, copies, volumes, notices }
            }
            Notice::Trouble { reason } => ServerEvent::Trouble { reason },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_of_listeners_are_handed_over_once_and_have_a_bound() {
        let said_to = Troubles::default();
        let listener = said_to.clone();
        listener.add("no file");
        listener.add("no file");
        assert_eq!(said_to.take(), ["no file"]);
        assert!(said_to.take().is_empty());
        (0..=TROUBLES_MAX).for_each(|number| listener.add(&number.to_string()));
        assert_eq!(said_to.take().len(), TROUBLES_MAX);
    }
}
