//! What `client`, `mover` and `user` have in common: who may be a member of the cell, and to join one.

use std::process::ExitCode;
use std::time::Duration;

use capstan_client::{MemberNotice, MemberState, is_host_and_port, join};
use capstan_keys::Name;
use capstan_keys::api::PeerKind;
use capstan_keys::cluster::{EnrolmentPassphrase, Identity, InvalidPassphrase};
use capstan_server::cell::users::words::{EnrolMember, LabelMember, MachineKind, MemberEnrolmentRow, RevokeMember};

use crate::args::{MemberEnrol, MemberJoin, MemberLabels};
use crate::door::door;
use crate::failure::{Failure, of_member};
use crate::globals::Globals;
use crate::json::{self, MemberEvent};
use crate::output::{print, print_rows};
use crate::progress::tell;
use crate::secrets::{enrolment_passphrase_from, now_ns, state_dir};
use crate::table::Table;
use crate::units;

/// The kind of a machine.
fn machine(kind: PeerKind) -> MachineKind {
    if kind == PeerKind::Mover { MachineKind::Mover } else { MachineKind::Client }
}

/// How long a passphrase is to be valid.
pub(super) fn valid_seconds(args: &MemberEnrol) -> Result<u64, Failure> {
    let valid_ns = units::parse_age(&args.valid).map_err(Failure::Usage)?;
    Ok(Duration::from_nanos(valid_ns.cast_unsigned()).as_secs())
}

pub(super) fn enrol(cli: &Globals, kind: PeerKind, args: &MemberEnrol) -> Result<ExitCode, Failure> {
    let (name, valid_seconds) = (args.name.clone(), valid_seconds(args)?);
    let opened = door(cli)?.enrol_member(&EnrolMember { kind: machine(kind), name, valid_seconds })?;
    tell_enrolment(cli, kind, &opened)
}

/// Says how somebody joins.
pub(super) fn tell_enrolment(cli: &Globals, kind: PeerKind, opened: &MemberEnrolmentRow) -> Result<ExitCode, Failure> {
    if cli.json {
        json::print(opened)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (name, until) = (opened.member.name(), units::time(opened.expires_ns));
    let place = match kind {
        PeerKind::User => "where the user works".to_owned(),
        _ => format!("at the machine (for the service of the package, add --state /var/lib/capstan-{kind})"),
    };
    println!("{name} can join once, until {until}, with this passphrase, which is shown only here:");
    println!("  {}", opened.passphrase);
    println!("Type this {place}:");
    println!("  {}", opened.command);
    if opened.address.is_none() && !cli.quiet {
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
    crate::rustix_sigpipe::ignore_of_network();
    let identity = join(&state, address, name, &passphrase, now_ns()).map_err(of_member)?;
    let servers = state.addresses().map_err(of_member)?;
    if !cli.json && !cli.quiet {
        let who = if kind == PeerKind::User { "you are" } else { "this machine is" };
        println!("{who} {kind} {name} of the cell whose server is at {}", servers.join(", "));
    }
    if cli.json || !cli.quiet {
        joined(cli, &state, &identity, servers)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn list(cli: &Globals, kind: PeerKind) -> Result<ExitCode, Failure> {
    let members = door(cli)?.members(machine(kind))?.members;
    if cli.json {
        return print_rows(members.into_iter().map(Ok));
    }
    if members.is_empty() {
        eprintln!("there is no {kind}: `capstan {kind} enrol NAME` lets a machine join (docs/CELL.md)");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table =
        Table::new(&[kind.as_str(), "state", "connected", "last seen", "from", "version", "until", "labels"]);
    for member in members {
        table.row(vec![
            member.member.name().to_owned(),
            member.state.into_owned(),
            if member.connected { "yes" } else { "no" }.to_owned(),
            member.seen_ns.map_or_else(|| "never".to_owned(), units::time),
            member.address.unwrap_or_default(),
            member.version.unwrap_or_default(),
            member.until_ns.map_or_else(String::new, units::time),
            member.labels.join(", "),
        ]);
    }
    print(&table)
}

pub(super) fn label(cli: &Globals, kind: PeerKind, args: &MemberLabels) -> Result<ExitCode, Failure> {
    let MemberLabels { name, labels, .. } = args;
    let asked = LabelMember { kind: machine(kind), name: name.clone(), labels: labels.clone() };
    let changed = door(cli)?.label_member(&asked)?;
    if cli.json {
        json::print(&changed)?;
    } else if !cli.quiet {
        let labels: Vec<_> = labels.iter().map(Name::as_str).collect();
        println!("{kind} {name} has {}", if labels.is_empty() { "no label".to_owned() } else { labels.join(", ") });
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn revoke(cli: &Globals, kind: PeerKind, name: &Name) -> Result<ExitCode, Failure> {
    let changed = door(cli)?.revoke_member(&RevokeMember { kind: machine(kind), name: name.clone() })?;
    if cli.json {
        json::print(&changed)?;
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
        MemberEvent::JobServed { job, lan_free } => {
            let way = if lan_free { ", and its data crossed no network" } else { "" };
            tell(&format!("job {job} is done here{way}"));
        }
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
