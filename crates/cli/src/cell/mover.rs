//! `mover`: at a host with drives, to serve a cell.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_client::{MemberState, MoverSettings, run_mover};
use capstan_keys::api::PeerKind;
use capstan_keys::cluster::Identity;

use super::member::{enrol, event_of, join_cell, list, of_member, revoke, show};
use crate::args::Mover;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, MemberEvent, MemberName, MoverJoinedRow};
use crate::progress::stop_all_on_interrupt;
use crate::secrets::{now_ns, state_dir};

/// What the machine is in the cell.
const KIND: PeerKind = PeerKind::Mover;

pub(crate) fn mover(cli: &Globals, action: &Mover) -> Result<ExitCode, Failure> {
    match action {
        Mover::Enrol(args) => enrol(cli, KIND, args),
        Mover::Join(args) => join_cell(cli, KIND, args, joined),
        Mover::Run => serve(cli),
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
    let mover = state.identity().map_err(of_member)?.certificate().peer.name.to_string();
    let settings = MoverSettings::read(state.dir()).map_err(of_member)?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    // Nor is a reader of its messages that is gone a reason to stop.
    crate::rustix_sigpipe::ignore();
    show(cli, KIND, MemberEvent::Started { member: MemberName::new(KIND, mover) });
    let data = settings.data(settings.listen.port());
    run_mover(&state, data, now_ns, &|notice| show(cli, KIND, event_of(notice)), &stop).map_err(of_member)?;
    show(cli, KIND, MemberEvent::Stopped);
    Ok(ExitCode::SUCCESS)
}
