//! `client`: at a machine, to wait for orders, and to get back what was backed up of it.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_client::restores::{AskRestore, OwnObject, RestoreEnded};
use capstan_client::{CellOrder, ClientError, ClientSettings, ClientWork, MemberState, OrderEnd, ServerQuestions, run};
use capstan_keys::api::PeerKind;
use capstan_keys::cluster::Identity;
use capstan_mover::RestoreInto;
use capstan_mover::extract::{DeviceNodes, ExtractOptions, ExtractReport};
use capstan_server::cell::users::words::MemberName;

use super::member::{enrol, event_of, join_cell, label, list, revoke, show};
use super::service::is_ready;
use crate::args::Client;
use crate::failure::{Failure, of_member};
use crate::globals::Globals;
use crate::json::{self, ClientJoinedRow, ClientObjectRow, MemberEvent};
use crate::list::{FilesOf, find_there, ls_there, versions_there};
use crate::output::{print, print_rows};
use crate::progress::stop_all_on_interrupt;
use crate::secrets::{now_ns, state_dir};
use crate::table::{Table, path_text};
use crate::units;
use crate::work::{ended_as_planned, show_planned, show_queued, show_restored, until_ended};

/// What the machine is in the cell.
const KIND: PeerKind = PeerKind::Client;
/// How often it is looked whether the client is to stop.
const LOOKS: Duration = Duration::from_millis(100);

pub(crate) fn client(cli: &Globals, action: &Client) -> Result<ExitCode, Failure> {
    match action {
        Client::Enrol(args) => enrol(cli, KIND, args),
        Client::Join(args) => join_cell(cli, KIND, args, joined),
        Client::Run => wait_for_orders(cli),
        Client::Objects => objects(cli),
        Client::Find(args) => find_there(cli, &FilesOf::own(cli)?, args),
        Client::Ls(args) => ls_there(cli, &FilesOf::own(cli)?, args),
        Client::Versions(args) => versions_there(cli, &FilesOf::own(cli)?, args),
        Client::Restore { .. } => restore(cli, action),
        Client::Label(args) => label(cli, KIND, args),
        Client::List => list(cli, KIND),
        Client::Revoke { name } => revoke(cli, KIND, name),
    }
}

/// Says what the machine is now, and what the server may ask of it.
fn joined(cli: &Globals, state: &MemberState, identity: &Identity, servers: Vec<String>) -> Result<(), Failure> {
    let settings = ClientSettings::read(state.dir()).map_err(of_member)?;
    let paths: Vec<_> = settings.paths.iter().map(|path| path.display().to_string()).collect();
    let scripts: Vec<_> = settings.scripts.into_keys().collect();
    if cli.json {
        let certificate = identity.certificate();
        let (client, cell) = (certificate.peer.name.to_string(), certificate.cluster.to_string());
        let until_ns = certificate.not_after_ns;
        return json::print(&ClientJoinedRow { client, cell, servers, until_ns, paths, scripts });
    }
    let settings_file = state.dir().join("client.toml");
    match paths.is_empty() {
        true => println!("the server may back up every path here: {} can bound that", settings_file.display()),
        false => println!("the server may back up {}: so says {}", paths.join(", "), settings_file.display()),
    }
    match scripts.is_empty() {
        true => println!("it may have no program run here"),
        false => println!("it may have these programs run here: {}", scripts.join(", ")),
    }
    println!("`capstan client run` waits for its orders, and renews the certificate in time");
    Ok(())
}

fn wait_for_orders(cli: &Globals) -> Result<ExitCode, Failure> {
    let state = MemberState::new(&state_dir(cli)?, KIND);
    let work = ClientWork::new(&state).map_err(of_member)?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    // Nor is a reader of its messages that is gone a reason to stop.
    crate::rustix_sigpipe::ignore();
    serve_orders(cli, &state, &work, &stop).map_err(of_member)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for orders and carries them out, until it is told to stop.
pub(super) fn serve_orders(
    cli: &Globals,
    state: &MemberState,
    work: &ClientWork<'_>,
    stop: &AtomicBool,
) -> Result<(), ClientError> {
    let client = state.identity()?.certificate().peer.name.to_string();
    // Before scripts are run that an earlier process owed.
    let locked = state.lock()?;
    show(cli, KIND, MemberEvent::Started { member: MemberName::new(KIND, client) });
    is_ready();
    work.run_owed(&|reason| show(cli, KIND, MemberEvent::Trouble { reason }));
    let handler = |order: CellOrder| {
        let job = order.job().to_string();
        show(cli, KIND, MemberEvent::JobBegun { job: job.clone() });
        match work.carry_out(order) {
            Ok(OrderEnd::Served { lan_free }) => show(cli, KIND, MemberEvent::JobServed { job, lan_free }),
            Ok(OrderEnd::Stopped) => show(cli, KIND, MemberEvent::JobStopped { job }),
            Err(error) => show(cli, KIND, MemberEvent::Trouble { reason: error.to_string() }),
        }
    };
    let say = |notice| show(cli, KIND, event_of(notice));
    let is_over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let is_over = &is_over;
        // What is at work is told as soon as the client is.
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) && !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOKS);
            }
            work.stop();
        });
        let ended = run(&locked, now_ns, &handler, &say, stop);
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    ended?;
    show(cli, KIND, MemberEvent::Stopped);
    Ok(())
}

fn objects(cli: &Globals) -> Result<ExitCode, Failure> {
    let state = MemberState::new(&state_dir(cli)?, KIND);
    crate::rustix_sigpipe::ignore_of_network();
    let answer = ServerQuestions::of_client(&state, now_ns()).and_then(|server| server.objects()).map_err(of_member)?;
    let row = |own: OwnObject| ClientObjectRow {
        object: own.object,
        source: own.source,
        policy: own.policy,
        is_full: own.is_full,
        is_complete: own.is_complete,
        tags: own.tags,
        started_ns: own.started_ns,
        files: own.files,
        bytes: own.bytes,
    };
    let rows: Vec<_> = answer.objects.into_iter().map(row).collect();
    if cli.json {
        return print_rows(rows.into_iter().map(Ok));
    }
    if rows.is_empty() {
        eprintln!("nothing was backed up of this machine yet");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["object", "begun", "level", "status", ">files", ">size", "policy", "source"]);
    for row in rows {
        table.row(vec![
            row.object[row.object.len().saturating_sub(8)..].to_owned(),
            units::time(row.started_ns),
            if row.is_full { "full" } else { "incremental" }.to_owned(),
            if row.is_complete { "complete" } else { "open" }.to_owned(),
            row.files.map_or_else(|| "-".to_owned(), units::count),
            row.bytes.map_or_else(|| "-".to_owned(), units::bytes),
            row.policy,
            row.source,
        ]);
    }
    print(&table)
}

fn restore(cli: &Globals, action: &Client) -> Result<ExitCode, Failure> {
    let Client::Restore { places, to, at, include, exclude, strip, dry_run, overwrite, keep_damaged, partial, devices } =
        action
    else {
        return Ok(ExitCode::SUCCESS);
    };
    let state = MemberState::new(&state_dir(cli)?, KIND);
    let at_ns = at.as_deref().map(|text| units::parse_time(text, now_ns())).transpose().map_err(Failure::Usage)?;
    crate::rustix_sigpipe::ignore_of_network();
    let server = ServerQuestions::of_client(&state, now_ns()).map_err(of_member)?;
    let work = ClientWork::new(&state).map_err(of_member)?;
    let asked = AskRestore {
        places: places.clone(),
        at_ns,
        include: include.clone(),
        exclude: exclude.clone(),
        strip: *strip,
        plan_only: *dry_run,
        keep_damaged: *keep_damaged,
        partial: *partial,
    };
    // Whoever stops the command from here on cancels what it asked for.
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    let planned = server.begin_restore(&asked).map_err(of_member)?;
    show_planned(cli, &planned.outlook)?;
    let (Some(directory), Some(run)) = (to, planned.run) else { return Ok(ended_as_planned(&planned.outlook)) };
    show_queued(cli, run, planned.waits_for.as_deref())?;
    let options = ExtractOptions {
        overwrite: overwrite.into(),
        devices: if *devices { DeviceNodes::Create } else { DeviceNodes::Refuse },
        strip: usize::from(*strip),
        ..ExtractOptions::default()
    };
    let written: Mutex<Option<ExtractReport>> = Mutex::default();
    let told = |report: &ExtractReport| {
        *written.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
    };
    let is_over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let (is_over, work, server, stop) = (&is_over, &work, &server, &stop);
        scope.spawn(move || {
            let mut told = false;
            while !is_over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    work.stop();
                    if !std::mem::replace(&mut told, true)
                        && let Err(error) = server.stop_restore(run)
                    {
                        eprintln!("capstan: run {run} may go on: {error}");
                    }
                }
                std::thread::sleep(LOOKS);
            }
        });
        // The server knows why it broke off.
        let write = |order| drop(work.restore(order, RestoreInto { directory, options: options.clone(), told: &told }));
        let ask = |had| match server.restore_seen(run, had) {
            Err(ClientError::Away { reason, .. }) => Ok(Err(reason)),
            seen => seen.map(Ok).map_err(of_member),
        };
        let ended = until_ended(cli, (run, planned.waits_for), &ask, &write, stop);
        is_over.store(true, Ordering::Relaxed);
        ended
    })?;
    // What was written, this process knows best.
    let written = written.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ended = match written {
        Some(written) => RestoreEnded {
            // The server counts those, too, that were there and were not read again.
            kept: written.kept.saturating_add(written.unchanged).max(ended.kept),
            problems: written
                .problems
                .iter()
                .map(|problem| format!("{}: {}", path_text(&problem.path), problem.reason))
                .collect(),
            problems_count: written.problems_count,
            ..ended
        },
        None => ended,
    };
    match show_restored(cli, &directory.display().to_string(), ended) {
        Err(_) if stop.load(Ordering::Relaxed) => Err(Failure::Stopped(
            "the restore was stopped; what was written stays. Restore again with --overwrite changed to go on"
                .to_owned(),
        )),
        shown => shown,
    }
}
