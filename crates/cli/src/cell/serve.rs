//! `server run`: serves this state directory, and does the work of its runs as `backup` does it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_catalog::ActiveRun;
use capstan_director::{BackupWatch, DirectorError, Site};
use capstan_server::{Notice, WorkEnd, Worked, Worker, serve};

use super::queue::outcome_word;
use crate::args::Server;
use crate::failure::{BUSY, DONE_WITH_PROBLEMS, Failure, STOPPED};
use crate::globals::Globals;
use crate::json::{self, ServerEvent};
use crate::progress::{Display, stop_all_on_interrupt, tell};
use crate::secrets::{Need, open};
use crate::units;
use crate::work::{Served, run_served};

pub(crate) fn server(cli: &Globals, action: &Server) -> Result<ExitCode, Failure> {
    let Server::Run = action;
    let display = Display::new(cli);
    let site = open(cli, Need::Keys, display.events())?;
    if let Some(problem) = site.library_problem() {
        return Err(Failure::Other(format!("{problem}. Then start the server again")));
    }
    let term = site.begin_term()?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    // Nor is a reader of its messages that is gone a reason to stop.
    crate::rustix_sigpipe::ignore();
    // What several runs print at the same time nobody could read: the history has it.
    let of_runs = Globals { json: false, quiet: true, ..cli.clone() };
    let worker = InProcess { cli, of_runs, site: &site };
    worker.show(ServerEvent::Serving { term: term.number(), policies: site.policies()?.len() });
    serve(&site, &term, &worker, &stop)?;
    worker.show(ServerEvent::Stopped);
    Ok(ExitCode::SUCCESS)
}

/// Does the work of runs in this process: the server is mover and client too.
struct InProcess<'a> {
    cli: &'a Globals,
    of_runs: Globals,
    site: &'a Site,
}

impl InProcess<'_> {
    fn show(&self, event: ServerEvent) {
        if self.cli.json {
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
            _ if self.cli.quiet => {}
            ServerEvent::Serving { policies, .. } => {
                let policies = units::counted(policies as u64, "policy");
                tell(&format!("serving {}, with {policies}; Ctrl-C stops", self.site.dir().display()));
            }
            ServerEvent::Returned { runs } => {
                tell(&format!("{} of an earlier server went back into the queue", units::counted(runs as u64, "run")));
            }
            ServerEvent::Due { run, policy } => tell(&format!("{policy}: run {run} is due")),
            ServerEvent::RunBegun { run, policy, attempt: 1 } => tell(&format!("{policy}: run {run} begins")),
            ServerEvent::RunBegun { run, policy, attempt } => {
                tell(&format!("{policy}: run {run} begins, attempt {attempt}"));
            }
            ServerEvent::RunEnded { run, policy, outcome, message } => {
                tell(&format!("{policy}: run {run} ended ({outcome}): {message}"));
            }
            ServerEvent::Stopped => tell("the server has stopped"),
        }
    }
}

impl Worker for InProcess<'_> {
    fn work(&self, run: &ActiveRun, stop: &Arc<AtomicBool>, entered: &dyn Fn(i64)) -> Worked {
        let name = &run.run.policy;
        let display = Display::of_run(&self.of_runs, name);
        let watch = BackupWatch { stop: Arc::clone(stop), ..BackupWatch::default() };
        let served = Served { site: self.site, entered, client: None };
        let (end, message) = match run_served(&self.of_runs, &served, &run.run, &display, &watch) {
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

    fn say(&self, notice: Notice) {
        self.show(match notice {
            Notice::Returned { runs } => ServerEvent::Returned { runs },
            Notice::Due { run, policy } => ServerEvent::Due { run, policy },
            Notice::Missed { policy, reason } => ServerEvent::Missed { policy, reason },
            Notice::Begun { run, policy, attempt } => ServerEvent::RunBegun { run, policy, attempt },
            Notice::Ended { run, policy, outcome, message } => {
                ServerEvent::RunEnded { run, policy, outcome: outcome_word(outcome), message }
            }
            Notice::Retried { run, policy, message, not_before_ns } => {
                ServerEvent::RunRetried { run, policy, message, not_before_ns }
            }
            Notice::Trouble { reason } => ServerEvent::Trouble { reason },
        });
    }
}
