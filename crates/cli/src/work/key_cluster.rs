//! `keys status` and `keys enrol`, and what is done elsewhere where a cluster keeps the keys.

use std::process::ExitCode;

use capstan_director::{key_cluster, key_store_path};
use capstan_keys::Revocation;
use capstan_keys::api::{KmaState, PeerId, PeerKind};
use capstan_keys::cluster::{ClusterStatus, EnrolmentPassphrase, NodeStatus};

use super::{key_cluster_lists, key_people, key_revocation};
use crate::args::{Enrol, KeyAction, Keys};
use crate::failure::{DONE_WITH_PROBLEMS, Failure, WITHOUT_KEY};
use crate::globals::Globals;
use crate::json::{self, KeysStatusRow, NodeRow};
use crate::progress::Display;
use crate::secrets::{cluster_at, enrolment_passphrase, now_ns, state_dir};
use crate::table::Table;
use crate::units;

/// What a command for keys comes to where a cluster keeps them; nothing where this machine does. What a mover may know
/// it asks itself; all else is asked by a person with a role.
pub(super) fn asked_of_cluster(cli: &Globals, args: &Keys) -> Result<Option<ExitCode>, Failure> {
    let action = &args.action;
    if matches!(action, KeyAction::Status | KeyAction::Enrol(_)) {
        return Ok(None);
    }
    let Some(place) = cluster_at(&state_dir(cli)?)? else { return Ok(None) };
    let instead = match action {
        KeyAction::List => return key_cluster_lists::list(cli, place).map(Some),
        KeyAction::Volumes { volumes } => return key_cluster_lists::volumes(cli, place, volumes).map(Some),
        KeyAction::Retire { what, yes } => {
            return key_revocation::revoke(cli, place, what, Revocation::Retired, *yes).map(Some);
        }
        KeyAction::Compromise { what, yes } => {
            return key_revocation::revoke(cli, place, what, Revocation::Compromised, *yes).map(Some);
        }
        KeyAction::Export { volume, .. } if volume.len() > 1 => {
            "its people approve one volume's keys at a time, or all: name one volume, or none".to_owned()
        }
        KeyAction::Destroy { what, yes } => {
            return key_people::destroy(cli, &place, args.identity.as_deref(), what, *yes).map(Some);
        }
        KeyAction::Slots | KeyAction::Passphrase | KeyAction::Add { .. } | KeyAction::Remove { .. } => {
            "nothing here is opened by a passphrase; `capstan keys status` shows the certificate that this machine proves itself by"
                .to_owned()
        }
        other => {
            let words = key_people::words(other).unwrap_or_default();
            return key_people::ask(cli, &place, args.identity.as_deref(), words).map(Some);
        }
    };
    let nodes = place.nodes.join(", ");
    Err(Failure::Usage(format!("the keys of this site are kept by a key cluster ({nodes}), not here: {instead}")))
}

/// Becomes an agent of a cluster.
pub(super) fn enrol(cli: &Globals, args: &Enrol) -> Result<ExitCode, Failure> {
    let file = &args.key_identity;
    if file.exists() {
        let reason = "it exists, and may be who this machine is for a cluster: choose another name, or move it away";
        return Err(Failure::Other(format!("{} is not written: {reason}", file.display())));
    }
    // An enrolment is used up by the node's answer: what could not be kept then would be lost.
    capstan_keys::cluster::check_place(file).map_err(|error| Failure::because(&error))?;
    let passphrase: EnrolmentPassphrase =
        enrolment_passphrase()?.parse().map_err(|error| Failure::Passphrase(format!("{error}")))?;
    let peer = PeerId { kind: PeerKind::Agent, name: args.name.clone() };
    let enrolled =
        capstan_keys::cluster::enrol(&args.node, peer, &passphrase).map_err(|error| Failure::because(&error))?;
    enrolled.save(file).map_err(|error| Failure::because(&error))?;
    if !cli.quiet {
        let until = units::time(enrolled.certificate().not_after_ns);
        println!("{}: this machine is {} of the key cluster until {until}", file.display(), args.name);
        println!("The certificate is renewed by itself when keys are used. Keep the file from everybody else.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Who keeps the keys, and how they fare.
pub(super) fn status(cli: &Globals) -> Result<ExitCode, Failure> {
    let dir = state_dir(cli)?;
    let Some(place) = cluster_at(&dir)? else {
        let store = key_store_path(&dir);
        if !store.exists() {
            let error = capstan_director::DirectorError::NotInitialised { path: dir };
            return Err(error.into());
        }
        if cli.json {
            let path = Some(store.display().to_string());
            json::print(&KeysStatusRow { path, ..KeysStatusRow::of("key store") })?;
        } else {
            println!("keys: in the key store {} of this machine", store.display());
            println!("`capstan keys slots` lists what opens it.");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let identity = place.identity.clone();
    let cluster = key_cluster(place, now_ns, &Display::new(cli).events());
    let status = cluster.status().map_err(|error| Failure::because(&error))?;
    if cli.json {
        json::print(&as_row(&status))?;
    } else {
        show(&status, &identity).map_err(Failure::output)?;
    }
    let serves = |node: &&NodeStatus| node.answer.is_ok() && node.state == KmaState::Serving;
    Ok(match status.nodes.iter().filter(serves).count() {
        0 => ExitCode::from(WITHOUT_KEY),
        all if all == status.nodes.len() => ExitCode::SUCCESS,
        _ => ExitCode::from(DONE_WITH_PROBLEMS),
    })
}

fn show(status: &ClusterStatus, identity: &std::path::Path) -> std::io::Result<()> {
    let certificate = &status.certificate;
    let renewed = match certificate.not_after_ns <= now_ns() {
        true => "enrol this machine again: `capstan keys enrol`".to_owned(),
        false => format!("renewed by itself from {} on", units::time(certificate.renewal_due_ns())),
    };
    println!("keys: kept by the key cluster {}", certificate.cluster);
    println!(
        "this machine: {} ({}), until {}, {renewed}",
        certificate.peer,
        identity.display(),
        units::time(certificate.not_after_ns)
    );
    println!();
    let mut table = Table::new(&["node", "site", "address", "state", "answers"]);
    for node in &status.nodes {
        let answers = node.answer.as_ref().map_or_else(ToString::to_string, |()| "yes".to_owned());
        table.row(vec![
            node.name.clone().unwrap_or_default(),
            node.site.clone(),
            node.address.clone(),
            state(node.state).to_owned(),
            answers,
        ]);
    }
    table.print(&mut std::io::stdout().lock())
}

fn as_row(status: &ClusterStatus) -> KeysStatusRow {
    let certificate = &status.certificate;
    let node = |node: &NodeStatus| NodeRow {
        name: node.name.clone(),
        site: node.site.clone(),
        address: node.address.clone(),
        state: state(node.state),
        answers: node.answer.is_ok(),
        why_not: node.answer.as_ref().err().map(ToString::to_string),
    };
    KeysStatusRow {
        cluster: Some(certificate.cluster.to_string()),
        agent: Some(certificate.peer.to_string()),
        certificate_until_ns: Some(certificate.not_after_ns),
        renewal_due_ns: Some(certificate.renewal_due_ns()),
        nodes: Some(status.nodes.iter().map(node).collect()),
        ..KeysStatusRow::of("key cluster")
    }
}

fn state(state: KmaState) -> &'static str {
    match state {
        KmaState::Serving => "serving",
        KmaState::Locked => "locked",
        KmaState::Unknown => "not known",
    }
}
