//! The `capstan` command: doors only. What it does is in the director.

mod args;
mod audited;
mod cell;
mod command_line;
mod door;
mod drives;
mod failure;
mod globals;
mod job_units;
mod json;
mod lab;
mod library;
mod list;
mod man;
mod output;
mod place;
mod pointer;
mod progress;
mod prompt;
mod secrets;
mod table;
mod tasks;
mod units;
mod vault;
mod vtl;
mod wording;
mod work;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use command_line::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    restore_sigpipe();
    let cli = Cli::try_parse().unwrap_or_else(|error| not_understood(&error)).with_environment();
    run(&cli).unwrap_or_else(|failure| tell(&failure, cli.globals.json))
}

/// Ends as clap does, which prints help and faults of the command line itself; a fault is a line of JSON, too, where
/// that was asked for.
fn not_understood(error: &clap::Error) -> ! {
    if let Some(failure) = pointer::of(error) {
        let _ = tell(&failure, std::env::args_os().any(|argument| argument == "--json"));
        std::process::exit(failure.exit_code().into());
    }
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        let message = error.to_string().trim_end().to_owned();
        let _ = json::print(&json::Event::Error { message, exit_code: 2 });
    }
    error.exit()
}

/// Says what failed, to people and, as the last line of its output, to whoever reads JSON.
fn tell(failure: &Failure, json: bool) -> ExitCode {
    let exit_code = failure.exit_code();
    if json {
        // A reader that is gone needs no line.
        let _ = json::print(&json::Event::Error { message: failure.to_string(), exit_code });
    }
    eprintln!("capstan: {failure}");
    ExitCode::from(exit_code)
}

/// `capstan ls ... | head` ends quietly, as other programs do.
fn restore_sigpipe() {
    // Rust programs ignore SIGPIPE, so that every write to a closed pipe would be an error to report.
    rustix_sigpipe::default();
}

mod rustix_sigpipe {
    //! The one signal whose default is wanted back.

    use std::sync::atomic::{AtomicBool, Ordering};

    static ENDS_QUIETLY: AtomicBool = AtomicBool::new(false);

    /// Whether the command ends once nobody reads its output. One that serves others goes on.
    pub(crate) fn ends_quietly() -> bool {
        ENDS_QUIETLY.load(Ordering::Relaxed)
    }

    /// For commands that speak with another machine: that it hangs up is an error to tell, and no end of the command.
    /// If the reader of standard output is gone, the command ends as quietly as before.
    pub(crate) fn ignore_of_network() {
        if ENDS_QUIETLY.swap(true, Ordering::Relaxed) {
            return;
        }
        ignore();
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // What `println` does where it cannot write.
            let text = panic.payload().downcast_ref::<String>();
            if text.is_some_and(|text| text.starts_with("failed printing to stdout")) {
                std::process::exit(crate::failure::PIPE_CLOSED.into());
            }
            tell(panic);
        }));
    }

    #[allow(unsafe_code, reason = "setting a signal's disposition has no safe wrapper")]
    pub(crate) fn ignore() {
        // SAFETY: a constant disposition; no handler runs.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
    }

    #[allow(unsafe_code, reason = "setting a signal's disposition has no safe wrapper")]
    pub(crate) fn default() {
        // SAFETY: called before any thread is started, with a constant disposition.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
    }
}

/// Whether a command works as a user of a cell, or needs no state directory.
fn asks_a_cell(command: &Command) -> bool {
    matches!(
        command,
        Command::Audit(_)
            | Command::Client(_)
            | Command::Find(_)
            | Command::Ls(_)
            | Command::Versions(_)
            | Command::Volumes(_)
            | Command::Pools(_)
            | Command::Library(_)
            | Command::Vault(_)
            | Command::Label(_)
            | Command::Mover(_)
            | Command::Objects(_)
            | Command::Policies(_)
            | Command::Queue(_)
            | Command::Restore(_)
            | Command::Schedule(_)
            | Command::Status(_)
            | Command::User(_)
            | Command::Drives(_)
            | Command::Completions { .. }
            | Command::Man(_)
            | Command::Models
            | Command::Simulate(_)
            | Command::Lab(_)
            | Command::Vtl(_)
            | Command::Keys(_)
    )
}

fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    let globals = &cli.globals;
    if !asks_a_cell(&cli.command) {
        secrets::check_not_users(globals)?;
    }
    match &cli.command {
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "capstan", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(args) => man::man(args),
        Command::Init(init) => work::init(globals, init),
        Command::Backup(backup) => work::backup(globals, backup),
        Command::Jobs(jobs) => list::jobs(globals, jobs),
        Command::Policies(args) => cell::policies(globals, args),
        Command::Schedule(args) => cell::schedule(globals, args),
        Command::Queue(args) => cell::queue(globals, args),
        Command::Server(action) => cell::server(globals, action),
        Command::Client(action) => cell::client(globals, action),
        Command::Mover(action) => cell::mover(globals, action),
        Command::User(action) => cell::user(globals, action),
        Command::Audit(args) => cell::audit(globals, args),
        Command::Restore(restore) => work::restore(globals, restore),
        Command::Cat(cat) => work::cat(globals, cat),
        Command::Put(put) => work::put(globals, put),
        Command::Get(get) => work::get(globals, get),
        Command::Verify(verify) => work::verify(globals, verify),
        Command::Copy(copy) => work::copy(globals, copy),
        Command::Consolidate(args) => work::consolidate(globals, args),
        Command::Scrub(args) => work::scrub(globals, args),
        Command::Reclaim(args) => work::reclaim(globals, args),
        Command::Repair(repair) => work::repair(globals, repair),
        Command::Rebuild(rebuild) => work::rebuild(globals, rebuild),
        Command::Expire(expire) => work::expire(globals, expire),
        Command::Erase(erase) => work::erase(globals, erase),
        Command::Forget(forget) => work::forget(globals, forget),
        Command::Label(label) => work::label(globals, label),
        Command::Keys(keys) => work::keys(globals, keys),
        Command::Objects(objects) => list::objects(globals, objects),
        Command::Ls(ls) => list::ls(globals, ls),
        Command::Find(find) => list::find(globals, find),
        Command::Versions(versions) => list::versions(globals, versions),
        Command::Show(show) => list::show(globals, show),
        Command::Object(of) => list::object(globals, of),
        Command::Volumes(volumes) => list::volumes(globals, volumes),
        Command::Drives(args) => drives::drives(globals, args),
        Command::Library(action) => library::library(globals, action),
        Command::Vault(args) => vault::vault(globals, args),
        Command::Pools(pools) => list::pools(globals, pools),
        Command::Simulate(args) => lab::simulation(globals, args),
        Command::Lab(args) => lab::lab(globals, args),
        Command::Vtl(args) => vtl::vtl(globals, args),
        Command::Models => lab::models(globals),
        Command::Status(status) => list::status(globals, status),
        Command::History(history) => list::history(globals, history),
        Command::Clock(clock) => list::clock(globals, clock),
        Command::Catalog(of) => work::catalog(globals, of),
    }
}
