//! What `client` and `mover` have in common: at the server, who may be a member of the cell; at a machine, to join one.

use std::process::ExitCode;
use std::time::Duration;

use capstan_client::{ClientError, MemberNotice, MemberState, is_host_and_port, join};
use capstan_keys::Name;
use capstan_keys::api::{PeerId, PeerKind};
use capstan_keys::cluster::{EnrolmentPassphrase, Identity, InvalidPassphrase};
use capstan_server::cell::{CellPeerState, cell_members, enrol_member, enrolment_address, revoke_member};

use super::serve::of_cell;
use crate::args::{MemberEnrol, MemberJoin};
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, MemberChangeRow, MemberEnrolmentRow, MemberEvent, MemberName, MemberRow};
use crate::output::{print, print_rows};
use crate::progress::tell;
use crate::secrets::{enrolment_passphrase_from, now_ns, site, state_dir};
use crate::table::Table;
use crate::units;

pub(super) fn enrol(cli: &Globals, kind: PeerKind, args: &MemberEnrol) -> Result<ExitCode, Failure> {
    let valid_ns = units::parse_age(&args.valid).map_err(Failure::Usage)?;
    let valid = Duration::from_nanos(valid_ns.cast_unsigned());
    let (site, name) = (site(cli)?, &args.name);
    let opened = enrol_member(&site, &PeerId { kind, name: name.clone() }, valid).map_err(of_cell)?;
    let address = enrolment_address(&site).map_err(of_cell)?;
    let command = format!("capstan {kind} join {} --name {name}", address.as_deref().unwrap_or("SERVER:5702"));
    let passphrase = opened.passphrase.expose();
    if cli.json {
        json::print(&MemberEnrolmentRow {
            member: MemberName::new(kind, name.to_string()),
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

/// What a kind of member says once it has joined: its state, who it is, and where its server is.
type Joined = fn(&Globals, &MemberState, &Identity, Vec<String>) -> Result<(), Failure>;

pub(super) fn join_cell(cli: &Globals, kind: PeerKind, args: &MemberJoin, joined: Joined) -> Result<ExitCode, Failure> {
    let MemberJoin { address, name, passphrase_file, replace } = args;
    if !is_host_and_port(address) {
        let text = format!(
            "{address:?} is no host and port: write it as `capstan {kind} enrol` printed it, as in server:5702"
        );
        return Err(Failure::Usage(text));
    }
    let state = MemberState::new(&state_dir(cli)?, kind);
    state.prepare(*replace).map_err(of_member)?;
    let passphrase: EnrolmentPassphrase = enrolment_passphrase_from(passphrase_file.as_deref())?
        .parse()
        .map_err(|error: InvalidPassphrase| Failure::Passphrase(error.to_string()))?;
    let identity = join(&state, address, name, &passphrase, now_ns()).map_err(of_member)?;
    let servers = state.addresses().map_err(of_member)?;
    if !cli.json && !cli.quiet {
        println!("this machine is {kind} {name} of the cell whose server is at {}", servers.join(", "));
    }
    if cli.json || !cli.quiet {
        joined(cli, &state, &identity, servers)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn list(cli: &Globals, kind: PeerKind) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let members = cell_members(&site, kind).map_err(of_cell)?;
    if cli.json {
        return print_rows(members.into_iter().map(|member| {
            let state = state_word(member.state);
            let (seen_ns, address, until_ns) = (member.seen_ns, member.address, member.until_ns);
            Ok(MemberRow { member: MemberName::new(kind, member.name), state, seen_ns, address, until_ns })
        }));
    }
    if members.is_empty() {
        eprintln!("there is no {kind}: `capstan {kind} enrol NAME` lets a machine join (docs/CELL.md)");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[kind.as_str(), "state", "last seen", "from", "until"]);
    for member in members {
        table.row(vec![
            member.name,
            state_word(member.state).to_owned(),
            member.seen_ns.map_or_else(|| "never".to_owned(), units::time),
            member.address.unwrap_or_default(),
            member.until_ns.map_or_else(String::new, units::time),
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

pub(super) fn revoke(cli: &Globals, kind: PeerKind, name: &Name) -> Result<ExitCode, Failure> {
    revoke_member(&site(cli)?, &PeerId { kind, name: name.clone() }).map_err(of_cell)?;
    if cli.json {
        json::print(&MemberChangeRow { member: MemberName::new(kind, name.to_string()), change: "revoked" })?;
    } else if !cli.quiet {
        println!("{kind} {name} is revoked: a server that runs refuses it within seconds");
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what a client or mover does.
pub(super) fn show(cli: &Globals, kind: PeerKind, event: MemberEvent) {
    if cli.json {
        // A reader that is gone is no reason to stop.
        let _ = json::print(&event);
        return;
    }
    match event {
        MemberEvent::Lost { reason } => {
            tell(&format!("capstan: the server does not answer: {reason}; the {kind} tries again"));
        }
        MemberEvent::Trouble { reason } => tell(&format!("capstan: {reason}")),
        MemberEvent::Connected { address } => tell(&format!("connected to the server at {address}")),
        _ if cli.quiet => {}
        MemberEvent::JobBegun { job } => tell(&format!("job {job} begins")),
        MemberEvent::JobServed { job } => tell(&format!("job {job} is done here")),
        MemberEvent::JobStopped { job } => tell(&format!("job {job} was stopped")),
        MemberEvent::Started { member } => {
            let does = if kind == PeerKind::Mover { "serves its cell" } else { "waits for orders" };
            tell(&format!("{member} {does}; Ctrl-C stops"));
        }
        MemberEvent::Renewed { until_ns } => {
            tell(&format!("the certificate was renewed, until {}", units::time(until_ns)));
        }
        MemberEvent::Stopped => tell(&format!("the {kind} has stopped")),
    }
}

pub(super) fn event_of(notice: MemberNotice) -> MemberEvent {
    match notice {
        MemberNotice::Connected { address, .. } => MemberEvent::Connected { address },
        MemberNotice::Lost { reason } => MemberEvent::Lost { reason },
        MemberNotice::Renewed { until_ns } => MemberEvent::Renewed { until_ns },
        MemberNotice::Trouble { reason } => MemberEvent::Trouble { reason },
    }
}

/// What stands in the way of a client or mover.
#[expect(clippy::needless_pass_by_value, reason = "map_err gives its error away")]
pub(super) fn of_member(error: ClientError) -> Failure {
    match &error {
        ClientError::WrongPassphrase { .. } => Failure::Passphrase(error.to_string()),
        _ => Failure::because(&error),
    }
}
