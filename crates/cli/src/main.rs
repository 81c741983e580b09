//! The `capstan` command: doors only. What it does is in the director.

mod args;
mod drives;
mod failure;
mod job_units;
mod json;
mod lab;
mod library;
mod list;
mod man;
mod place;
mod pointer;
mod progress;
mod secrets;
mod table;
mod units;
mod vtl;
mod work;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    restore_sigpipe();
    let cli = Cli::try_parse().unwrap_or_else(|error| not_understood(&error)).with_environment();
    run(&cli).unwrap_or_else(|failure| failure.tell(cli.json))
}

/// Ends as clap does, which prints help and faults of the command line itself; a fault is a line of JSON, too, where that was asked for.
fn not_understood(error: &clap::Error) -> ! {
    if let Some(failure) = pointer::of(error) {
        let _ = failure.tell(std::env::args_os().any(|argument| argument == "--json"));
        std::process::exit(failure.exit_code().into());
    }
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        let message = error.to_string().trim_end().to_owned();
        let _ = json::print(&json::Event::Error { message, exit_code: 2 });
    }
    error.exit()
}

/// `capstan ls ... | head` ends quietly, as other programs do.
fn restore_sigpipe() {
    // Rust programs ignore SIGPIPE, so that every write to a closed pipe would be an error to report.
    rustix_sigpipe::default();
}

mod rustix_sigpipe {
    //! The one signal whose default is wanted back.

    #[allow(unsafe_code, reason = "setting a signal's disposition has no safe wrapper")]
    pub(crate) fn default() {
        // SAFETY: called before any thread is started, with a constant disposition.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "capstan", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(args) => man::man(args),
        Command::Init(init) => work::init(cli, init),
        Command::Backup(backup) => work::backup(cli, backup),
        Command::Jobs(jobs) => list::jobs(cli, jobs),
        Command::Restore(restore) => work::restore(cli, restore),
        Command::Cat(cat) => work::cat(cli, cat),
        Command::Verify(verify) => work::verify(cli, verify),
        Command::Copy(copy) => work::copy(cli, copy),
        Command::Repair(repair) => work::repair(cli, repair),
        Command::Rebuild(rebuild) => work::rebuild(cli, rebuild),
        Command::Expire(expire) => work::expire(cli, expire),
        Command::Erase(erase) => work::erase(cli, erase),
        Command::Forget(forget) => work::forget(cli, forget),
        Command::Label(label) => work::label(cli, label),
        Command::Keys(keys) => work::keys(cli, keys),
        Command::Objects(objects) => list::objects(cli, objects),
        Command::Ls(ls) => list::ls(cli, ls),
        Command::Find(find) => list::find(cli, find),
        Command::Versions(versions) => list::versions(cli, versions),
        Command::Show(show) => list::show(cli, show),
        Command::Volumes(volumes) => list::volumes(cli, volumes),
        Command::Drives(args) => drives::drives(cli, args),
        Command::Library(action) => library::library(cli, action),
        Command::Pools(pools) => list::pools(cli, pools),
        Command::Simulate(args) => lab::simulation(cli, args),
        Command::Lab(args) => lab::lab(cli, args),
        Command::Vtl(args) => vtl::vtl(cli, args),
        Command::Models => lab::models(cli),
        Command::Status(status) => list::status(cli, status),
        Command::History(history) => list::history(cli, history),
        Command::Clock(clock) => list::clock(cli, clock),
    }
}
