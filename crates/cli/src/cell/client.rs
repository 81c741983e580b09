//! `client`: at the server, who may be a client of the cell; at a machine, to join one and wait for orders.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_client::restores::{AskRestore, OwnObject, RestoreEnded, RestorePlanned};
use capstan_client::{
    CellOrder, ClientError, ClientNotice, ClientSettings, ClientState, ClientWork, OrderEnd, ServerQuestions, join, run,
};
use capstan_keys::Name;
use capstan_keys::cluster::EnrolmentPassphrase;
use capstan_mover::RestoreInto;
use capstan_mover::extract::{DeviceNodes, ExtractOptions, ExtractReport};
use capstan_server::cell::{CellPeerState, cell_clients, enrol_client, enrolment_address, revoke_client};

use super::serve::of_cell;
use crate::args::Client;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::{
    self, ClientChangeRow, ClientEnrolmentRow, ClientEvent, ClientJoinedRow, ClientObjectRow, ClientRestoreEvent,
    ClientRow,
};
use crate::output::{print, print_rows};
use crate::progress::{stop_all_on_interrupt, tell};
use crate::secrets::{enrolment_passphrase_from, now_ns, site, state_dir};
use crate::table::Table;
use crate::units;

/// Files that are listed one by one.
const FILES_SHOWN: usize = 50;
/// How often it is looked whether the client is to stop.
const LOOKS: Duration = Duration::from_millis(100);

pub(crate) fn client(cli: &Globals, action: &Client) -> Result<ExitCode, Failure> {
    match action {
        Client::Enrol { name, valid } => enrol(cli, name, valid),
        Client::Join { address, name, passphrase_file, replace } => {
            join_cell(cli, address, name, passphrase_file.as_deref(), *replace)
        }
        Client::Run => wait_for_orders(cli),
        Client::Objects => objects(cli),
        Client::Restore { .. } => restore(cli, action),
        Client::List => list(cli),
        Client::Revoke { name } => revoke(cli, name),
    }
}

fn enrol(cli: &Globals, name: &Name, valid: &str) -> Result<ExitCode, Failure> {
    let valid_ns = units::parse_age(valid).map_err(Failure::Usage)?;
    let valid = Duration::from_nanos(valid_ns.cast_unsigned());
    let site = site(cli)?;
    let opened = enrol_client(&site, name, valid).map_err(of_cell)?;
    let address = enrolment_address(&site).map_err(of_cell)?;
    let command = format!("capstan client join {} --name {name}", address.as_deref().unwrap_or("SERVER:5702"));
    let passphrase = opened.passphrase.expose();
    if cli.json {
        json::print(&ClientEnrolmentRow {
            client: name.to_string(),
            passphrase: passphrase.to_string(),
            expires_ns: opened.expires_ns,
            address,
            command,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let until = units::time(opened.expires_ns);
    println!("{name} can join once, until {until}, with this passphrase, which is shown only here:");
    println!("  {}", passphrase.as_str());
    println!("Type this at the machine:");
    println!("  {command}");
    if address.is_none() && !cli.quiet {
        eprintln!(
            "capstan: no server listens, and capstan.toml does not say where one would: `capstan server run --listen \
             0.0.0.0:5701` prints where machines join; put that in the place of SERVER:5702"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn join_cell(
    cli: &Globals,
    address: &str,
    name: &Name,
    passphrase_file: Option<&Path>,
    replace: bool,
) -> Result<ExitCode, Failure> {
    let is_address = address.rsplit_once(':').is_some_and(|(host, port)| {
        let is_plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && is_plain && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if !is_address {
        let text = format!(
            "{address:?} is no host and port: write it as `capstan client enrol` printed it, as in server:5702"
        );
        return Err(Failure::Usage(text));
    }
    let state = ClientState::new(&state_dir(cli)?);
    state.prepare(replace).map_err(of_client)?;
    let passphrase: EnrolmentPassphrase = enrolment_passphrase_from(passphrase_file)?
        .parse()
        .map_err(|error: capstan_keys::cluster::InvalidPassphrase| Failure::Passphrase(error.to_string()))?;
    let identity = join(&state, address, name, &passphrase, now_ns()).map_err(of_client)?;
    let certificate = identity.certificate();
    let settings = ClientSettings::read(state.dir()).map_err(of_client)?;
    let servers = state.addresses().map_err(of_client)?;
    let paths: Vec<_> = settings.paths.iter().map(|path| path.display().to_string()).collect();
    let scripts: Vec<_> = settings.scripts.keys().cloned().collect();
    if cli.json {
        json::print(&ClientJoinedRow {
            client: certificate.peer.name.to_string(),
            cell: certificate.cluster.to_string(),
            servers,
            until_ns: certificate.not_after_ns,
            paths,
            scripts,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    if cli.quiet {
        return Ok(ExitCode::SUCCESS);
    }
    println!("this machine is client {} of the cell whose server is at {}", certificate.peer.name, servers.join(", "));
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
    Ok(ExitCode::SUCCESS)
}

fn wait_for_orders(cli: &Globals) -> Result<ExitCode, Failure> {
    let state = ClientState::new(&state_dir(cli)?);
    let client = state.identity().map_err(of_client)?.certificate().peer.name.to_string();
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    // Nor is a reader of its messages that is gone a reason to stop.
    crate::rustix_sigpipe::ignore();
    show(cli, ClientEvent::Started { client });
    let work = ClientWork::new(&state).map_err(of_client)?;
    let handler = |order: CellOrder| {
        let job = order.job().to_string();
        show(cli, ClientEvent::JobBegun { job: job.clone() });
        match work.carry_out(order) {
            Ok(OrderEnd::Served) => show(cli, ClientEvent::JobServed { job }),
            Ok(OrderEnd::Stopped) => show(cli, ClientEvent::JobStopped { job }),
            Err(error) => show(cli, ClientEvent::Trouble { reason: error.to_string() }),
        }
    };
    let say = |notice| {
        show(
            cli,
            match notice {
                ClientNotice::Connected { address } => ClientEvent::Connected { address },
                ClientNotice::Lost { reason } => ClientEvent::Lost { reason },
                ClientNotice::Renewed { until_ns } => ClientEvent::Renewed { until_ns },
                ClientNotice::Trouble { reason } => ClientEvent::Trouble { reason },
            },
        );
    };
    let is_over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let (is_over, work, stop) = (&is_over, &work, &stop);
        // What is at work is told as soon as the client is.
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) && !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOKS);
            }
            work.stop();
        });
        let ended = run(&state, now_ns, &handler, &say, stop);
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    ended.map_err(of_client)?;
    show(cli, ClientEvent::Stopped);
    Ok(ExitCode::SUCCESS)
}

fn show(cli: &Globals, event: ClientEvent) {
    if cli.json {
        // A reader that is gone is no reason to stop.
        let _ = json::print(&event);
        return;
    }
    match event {
        ClientEvent::Lost { reason } => {
            tell(&format!("capstan: the server does not answer: {reason}; the client tries again"));
        }
        ClientEvent::Trouble { reason } => tell(&format!("capstan: {reason}")),
        ClientEvent::Connected { address } => tell(&format!("connected to the server at {address}")),
        _ if cli.quiet => {}
        ClientEvent::JobBegun { job } => tell(&format!("job {job} begins")),
        ClientEvent::JobServed { job } => tell(&format!("job {job} is done here")),
        ClientEvent::JobStopped { job } => tell(&format!("job {job} was stopped")),
        ClientEvent::Started { client } => tell(&format!("client {client} waits for orders; Ctrl-C stops")),
        ClientEvent::Renewed { until_ns } => {
            tell(&format!("the certificate was renewed, until {}", units::time(until_ns)));
        }
        ClientEvent::Stopped => tell("the client has stopped"),
    }
}

fn list(cli: &Globals) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let clients = cell_clients(&site).map_err(of_cell)?;
    if cli.json {
        return print_rows(clients.into_iter().map(|client| {
            let state = state_word(client.state);
            let (seen_ns, address, until_ns) = (client.seen_ns, client.address, client.until_ns);
            Ok(ClientRow { client: client.name, state, seen_ns, address, until_ns })
        }));
    }
    if clients.is_empty() {
        eprintln!("there is no client: `capstan client enrol NAME` lets a machine join (docs/CELL.md)");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["client", "state", "last seen", "from", "until"]);
    for client in clients {
        table.row(vec![
            client.name,
            state_word(client.state).to_owned(),
            client.seen_ns.map_or_else(|| "never".to_owned(), units::time),
            client.address.unwrap_or_default(),
            client.until_ns.map_or_else(String::new, units::time),
        ]);
    }
    print(&table)
}

fn state_word(state: CellPeerState) -> &'static str {
    match state {
        CellPeerState::Enrolled => "enrolled",
        CellPeerState::Waiting => "waiting",
        CellPeerState::Revoked => "revoked",
        CellPeerState::Expired => "expired",
    }
}

fn revoke(cli: &Globals, name: &Name) -> Result<ExitCode, Failure> {
    revoke_client(&site(cli)?, name).map_err(of_cell)?;
    if cli.json {
        json::print(&ClientChangeRow { client: name.to_string(), change: "revoked" })?;
    } else if !cli.quiet {
        println!("client {name} is revoked: a server that runs refuses it within seconds");
    }
    Ok(ExitCode::SUCCESS)
}

fn objects(cli: &Globals) -> Result<ExitCode, Failure> {
    let state = ClientState::new(&state_dir(cli)?);
    let answer = ServerQuestions::new(&state).and_then(|server| server.objects()).map_err(of_client)?;
    let row = |own: OwnObject| ClientObjectRow {
        object: own.object,
        source: own.source,
        policy: own.policy,
        is_full: own.is_full,
        is_complete: own.is_complete,
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
    let Client::Restore { places, to, at, include, exclude, strip, dry_run, overwrite, devices } = action else {
        return Ok(ExitCode::SUCCESS);
    };
    let state = ClientState::new(&state_dir(cli)?);
    let at_ns = at.as_deref().map(|text| units::parse_time(text, now_ns())).transpose().map_err(Failure::Usage)?;
    let server = ServerQuestions::new(&state).map_err(of_client)?;
    let work = ClientWork::new(&state).map_err(of_client)?;
    let asked = AskRestore {
        places: places.clone(),
        at_ns,
        include: include.clone(),
        exclude: exclude.clone(),
        strip: *strip,
        plan_only: *dry_run,
    };
    let planned = server.begin_restore(&asked).map_err(of_client)?;
    show_planned(cli, &planned)?;
    let (Some(directory), Some(order)) = (to, planned.order) else { return Ok(ExitCode::SUCCESS) };
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
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
    let job = order.job();
    let is_over = AtomicBool::new(false);
    let served = std::thread::scope(|scope| {
        let (is_over, work, stop) = (&is_over, &work, &stop);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    work.stop();
                }
                std::thread::sleep(LOOKS);
            }
        });
        let served = work.restore(order, RestoreInto { directory, options, told: &told });
        is_over.store(true, Ordering::Relaxed);
        served
    });
    // The server knows why it broke off.
    let ended = loop {
        match server.restore_ended(job) {
            Ok(Some(ended)) => break ended,
            Ok(None) => {}
            Err(error) => return Err(served.map_or_else(of_client, |_| of_client(error))),
        }
    };
    show_restored(cli, directory, ended, written.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn show_planned(cli: &Globals, planned: &RestorePlanned) -> Result<(), Failure> {
    if cli.json {
        return json::print(&ClientRestoreEvent::Planned {
            members: planned.members,
            bytes: planned.bytes,
            volumes: planned.volumes.clone(),
            estimate_ns: planned.estimate_ns,
            notices: planned.notices.clone(),
        });
    }
    planned.notices.iter().for_each(|notice| eprintln!("capstan: {notice}"));
    if !cli.quiet {
        let (paths, bytes) = (units::counted(planned.members, "path"), units::bytes(planned.bytes));
        let estimate = units::duration(planned.estimate_ns as f64 / 1e9);
        eprintln!("{paths}, {bytes} of files, from volumes {}, about {estimate}", planned.volumes.join(", "));
    }
    Ok(())
}

fn show_restored(
    cli: &Globals,
    directory: &Path,
    ended: RestoreEnded,
    written: Option<ExtractReport>,
) -> Result<ExitCode, Failure> {
    let written = written.unwrap_or_default();
    let problems: Vec<_> = written.problems.iter().map(ToString::to_string).collect();
    let is_whole = ended.failed_count == 0 && written.problems_count == 0;
    if cli.json {
        json::print(&ClientRestoreEvent::Ended {
            failure: ended.failure.clone(),
            members: ended.members,
            bytes: ended.bytes,
            failed: ended.failed.clone(),
            failed_count: ended.failed_count,
            kept: written.kept + written.unchanged,
            problems,
            problems_count: written.problems_count,
        })?;
    } else {
        let said = ended.notices.iter().chain(&ended.failed).chain(&problems);
        said.take(FILES_SHOWN).for_each(|line| eprintln!("capstan: {line}"));
        if ended.failure.is_none() && !cli.quiet {
            let (paths, bytes) = (units::counted(ended.members, "path"), units::bytes(ended.bytes));
            println!("{paths}, {bytes} restored to {}", directory.display());
            let kept = written.kept + written.unchanged;
            if kept > 0 {
                println!(
                    "not replaced, because something is there: {} (see --overwrite)",
                    units::counted(kept, "path")
                );
            }
        }
    }
    match ended.failure {
        Some(reason) => Err(Failure::Other(reason)),
        None if is_whole => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(DONE_WITH_PROBLEMS)),
    }
}

/// What stands in the way of a client.
#[expect(clippy::needless_pass_by_value, reason = "map_err gives its error away")]
fn of_client(error: ClientError) -> Failure {
    match &error {
        ClientError::WrongPassphrase { .. } => Failure::Passphrase(error.to_string()),
        _ => Failure::because(&error),
    }
}
