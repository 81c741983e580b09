//! `mover`: at a host with drives, to serve a cell.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capstan_client::{ClientError, ClientWork, KeptConnections, MemberNotice, MemberState, MoverSettings, run_mover};
use capstan_keys::api::PeerKind;
use capstan_keys::cluster::Identity;
use capstan_mover::devices::KeySource;
use capstan_mover::{OwnersKeys, ServedMover};
use capstan_server::cell::MoverListener;
use capstan_server::cell::users::words::MemberName;

use super::client::serve_orders;
use super::member::{enrol, event_of, join_cell, label, list, revoke, show};
use super::service::is_ready;
use crate::args::Mover;
use crate::failure::{Failure, of_cell, of_member};
use crate::globals::Globals;
use crate::json::{self, MemberEvent, MoverJoinedRow};
use crate::progress::{stop_all_on_interrupt, tell};
use crate::secrets::{now_ns, state_dir};

/// What the machine is in the cell.
const KIND: PeerKind = PeerKind::Mover;
/// After how long a client that has ended is started again: as its service is where it runs alone.
const CLIENT_AGAIN: Duration = Duration::from_secs(30);
/// How often it is looked whether to stop meanwhile.
const LOOKS: Duration = Duration::from_millis(200);

pub(crate) fn mover(cli: &Globals, action: &Mover) -> Result<ExitCode, Failure> {
    match action {
        Mover::Enrol(args) => enrol(cli, KIND, args),
        Mover::Join(args) => join_cell(cli, KIND, args, joined),
        Mover::Run => serve(cli),
        Mover::Label(args) => label(cli, KIND, args),
        Mover::List => list(cli, KIND),
        Mover::Revoke { name } => revoke(cli, KIND, name),
    }
}

/// Says what the machine is now, and where clients will bring their data.
fn joined(cli: &Globals, state: &MemberState, identity: &Identity, servers: Vec<String>) -> Result<(), Failure> {
    let settings = MoverSettings::read(state.dir()).map_err(of_member)?;
    let (listen, announce) = (settings.listen.to_string(), settings.announce);
    if cli.json {
        let certificate = identity.certificate();
        let (mover, cell) = (certificate.peer.name.to_string(), certificate.cluster.to_string());
        let until_ns = certificate.not_after_ns;
        return json::print(&MoverJoinedRow { mover, cell, servers, until_ns, listen, announce });
    }
    let settings_file = state.dir().join("mover.toml");
    println!("clients bring their data to {listen}: so says {}", settings_file.display());
    println!("`capstan mover run` serves the cell, and renews the certificate in time");
    Ok(())
}

fn serve(cli: &Globals) -> Result<ExitCode, Failure> {
    let state = MemberState::new(&state_dir(cli)?, KIND);
    let identity = state.identity().map_err(of_member)?;
    let mover = identity.certificate().peer.name.to_string();
    let locked = state.lock().map_err(of_member)?;
    let settings = MoverSettings::read(state.dir()).map_err(of_member)?;
    let served = served(&state, &settings)?;
    // What is wrong with the client is said before anything listens.
    let client =
        (!settings.client.as_os_str().is_empty()).then(|| MemberState::new(&settings.client, PeerKind::Client));
    client.iter().try_for_each(|client| check_client(client, &identity))?;
    let beside = served.clone();
    let said_by = cli.clone();
    let objects = Arc::new(move |reason| show(&said_by, KIND, MemberEvent::Trouble { reason }));
    let listener = MoverListener::start(&identity, settings.listen, now_ns, &served, objects).map_err(of_cell)?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    // Nor is a reader of its messages that is gone a reason to stop.
    crate::rustix_sigpipe::ignore();
    show(cli, KIND, MemberEvent::Started { member: MemberName::new(KIND, mover) });
    is_ready();
    let (data, kept) = (settings.data(listener.address().port()), KeptConnections::new(&state, served));
    let trouble = |reason| show(cli, KIND, MemberEvent::Trouble { reason });
    let say = |notice| {
        match &notice {
            MemberNotice::Connected { data: Some(server), .. } => kept.at(server),
            MemberNotice::Renewed { .. } => {
                let renewed = state.identity().map_err(of_member);
                let shown = renewed.and_then(|identity| listener.present(&identity).map_err(of_cell));
                shown.err().into_iter().for_each(|failure| trouble(failure.to_string()));
            }
            _ => {}
        }
        show(cli, KIND, event_of(notice));
    };
    let ended = std::thread::scope(|scope| {
        if let Some(client) = &client {
            // The drives serve others, whatever becomes of it.
            scope.spawn(|| serve_client(cli, client, &beside, &stop));
        }
        scope.spawn(|| kept.keep(&trouble));
        let ended = run_mover(&locked, data, now_ns, &say, &stop);
        kept.stop();
        // A mover that is let in no more has no client beside it.
        stop.store(true, Ordering::Relaxed);
        ended
    });
    ended.map_err(of_member)?;
    show(cli, KIND, MemberEvent::Stopped);
    Ok(ExitCode::SUCCESS)
}

/// Refuses a client that cannot run in this process.
fn check_client(client: &MemberState, mover: &Identity) -> Result<(), Failure> {
    let identity = client.identity().map_err(of_member)?;
    let cell = |identity: &Identity| identity.certificate().cluster.to_string();
    if cell(&identity) != cell(mover) {
        return Err(Failure::Other(format!(
            "mover.toml: client: {} is the state directory of a client of another cell ({}) than this mover's ({})",
            client.dir().display(),
            cell(&identity),
            cell(mover)
        )));
    }
    ClientWork::new(client).map(drop).map_err(of_member)
}

/// Serves as the client, too. One that ends by itself is started again after a while.
fn serve_client(cli: &Globals, client: &MemberState, mover: &ServedMover, stop: &AtomicBool) {
    // Work that was stopped once does no more.
    let serve = || serve_orders(cli, client, &ClientWork::new(client)?.beside(mover), stop);
    while let Err(error) = serve() {
        let again = match &error {
            ClientError::Revoked { .. } => "; it joins again with --replace, and needs a restart of the mover then",
            _ => "; it is started again in half a minute",
        };
        show(cli, KIND, MemberEvent::Trouble { reason: format!("the client here has ended: {error}{again}") });
        if matches!(error, ClientError::Revoked { .. }) {
            return;
        }
        let until = Instant::now() + CLIENT_AGAIN;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOKS);
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// The drives of this machine, for whoever decides.
fn served(state: &MemberState, settings: &MoverSettings) -> Result<ServedMover, Failure> {
    let on_wait = Arc::new(|message: String| tell(&message));
    let library = settings.library.open(state.dir(), on_wait).map_err(|error| Failure::because(&error))?;
    let (keys, drives) = (Arc::<OwnersKeys>::default(), Arc::default());
    let devices = settings.library.devices(&library, Arc::clone(&keys) as Arc<dyn KeySource>, &drives);
    Ok(ServedMover::new(Arc::new(devices), drives, keys))
}
