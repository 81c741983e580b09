//! `user`: who may do what in the cell; and, at a person's own machine, to join as one. `audit`: what was done.

use std::process::ExitCode;

use capstan_client::MemberState;
use capstan_keys::api::PeerKind;
use capstan_keys::cluster::Identity;
use capstan_server::cell::users::words::{AuditChecked, ChangeUser, EnrolUser, RevokeUser, WhoAnswer};
use serde_json::Value;

use super::member::{join_cell, tell_enrolment, valid_seconds};
use crate::args::{Audit, AuditAction, User, UserRoles};
use crate::door::{as_user, door};
use crate::failure::{Failure, of_member};
use crate::globals::Globals;
use crate::json;
use crate::output::{print, print_json, print_rows};
use crate::table::{Table, path_text};
use crate::units;

/// What somebody is in the cell.
const KIND: PeerKind = PeerKind::User;

pub(crate) fn user(cli: &Globals, action: &User) -> Result<ExitCode, Failure> {
    match action {
        User::Enrol { enrol, rights } => {
            let UserRoles { roles, clients } = rights.clone();
            let (name, valid_seconds) = (enrol.name.clone(), valid_seconds(enrol)?);
            let opened = door(cli)?.enrol_user(&EnrolUser { name, roles, clients, valid_seconds })?;
            tell_not_joined(cli, &opened.not_joined);
            tell_enrolment(cli, KIND, &opened)
        }
        User::Join(args) => join_cell(cli, KIND, args, joined),
        User::Who => who(cli),
        User::List => list(cli),
        User::Change { name, rights } => {
            let UserRoles { roles, clients } = rights.clone();
            let changed = door(cli)?.change_user(&ChangeUser { name: name.clone(), roles, clients })?;
            tell_not_joined(cli, &changed.not_joined);
            if cli.json {
                json::print(&changed)?;
            } else if !cli.quiet {
                println!("user {name} has other roles from now on: `capstan user list` shows them");
            }
            Ok(ExitCode::SUCCESS)
        }
        User::Revoke { name } => {
            let changed = door(cli)?.revoke_user(&RevokeUser { name: name.clone() })?;
            if cli.json {
                json::print(&changed)?;
            } else if !cli.quiet {
                println!("user {name} is revoked: a server that runs refuses the user within seconds");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn tell_not_joined(cli: &Globals, clients: &[String]) {
    for client in clients.iter().filter(|_| !cli.json) {
        eprintln!("capstan: no client {client} has joined this cell: `capstan client list` shows those that have");
    }
}

/// Says what the user may do from now on, as far as the server answers already.
fn joined(cli: &Globals, _: &MemberState, identity: &Identity, servers: Vec<String>) -> Result<(), Failure> {
    let certificate = identity.certificate();
    let who = as_user(cli).and_then(|server| server.get::<WhoAnswer>("/v1/user").map_err(of_member));
    if cli.json {
        let (user, cell) = (certificate.peer.name.to_string(), certificate.cluster.to_string());
        let (roles, clients) = who.map(|who| (who.roles, who.clients)).unwrap_or_default();
        let until_ns = certificate.not_after_ns;
        return json::print(&json::UserJoinedRow { user, cell, servers, until_ns, roles, clients });
    }
    match who {
        Ok(who) => println!("{}", in_words(&who)),
        Err(failure) => eprintln!("capstan: what this user may do cannot be asked for now: {failure}"),
    }
    println!("commands such as `capstan queue` ask that server from now on; `capstan user who` says what is allowed");
    Ok(())
}

fn in_words(who: &WhoAnswer) -> String {
    let of_clients = if who.clients.is_empty() { String::new() } else { format!(" of {}", who.clients.join(", ")) };
    let roles: Vec<_> = who
        .roles
        .iter()
        .map(|role| if role == "restorer" { format!("restorer{of_clients}") } else { role.clone() })
        .collect();
    format!("user {}: {}", who.user, roles.join(", "))
}

fn who(cli: &Globals) -> Result<ExitCode, Failure> {
    let who = door(cli)?.who()?;
    if cli.json {
        return print_json(&who);
    }
    println!("{}", in_words(&who));
    for act in &who.acts {
        println!("  {act}");
    }
    Ok(ExitCode::SUCCESS)
}

fn list(cli: &Globals) -> Result<ExitCode, Failure> {
    let users = door(cli)?.users()?.users;
    if cli.json {
        return print_rows(users.into_iter().map(Ok));
    }
    if users.is_empty() {
        eprintln!("there is no user: `capstan user enrol NAME --role administrator` lets somebody join (docs/CELL.md)");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["user", "roles", "clients", "state", "last seen", "from", "until"]);
    for user in users {
        table.row(vec![
            user.user,
            user.roles.join(", "),
            user.clients.join(", "),
            user.state.into_owned(),
            user.seen_ns.map_or_else(|| "never".to_owned(), units::time),
            user.address.unwrap_or_default(),
            user.until_ns.map_or_else(String::new, units::time),
        ]);
    }
    print(&table)
}

pub(crate) fn audit(cli: &Globals, args: &Audit) -> Result<ExitCode, Failure> {
    match &args.action {
        None => show(cli, args.last),
        Some(AuditAction::Verify) => verify(cli),
    }
}

fn show(cli: &Globals, last: u32) -> Result<ExitCode, Failure> {
    let records = door(cli)?.audit(last)?.records;
    if cli.json {
        return print_rows(records.into_iter().map(Ok));
    }
    let mut table = Table::new(&[">record", "time", "who", "from", "act", "of", "result", "more"]);
    for record in &records {
        // Whatever a record holds, it is one line of the table.
        let text = |name: &str| path_text(record.get(name).and_then(Value::as_str).unwrap_or_default().as_bytes());
        let facts = record.get("facts").and_then(Value::as_object).into_iter().flatten();
        let facts =
            facts.map(|(name, fact)| format!("{name}={}", path_text(fact.as_str().unwrap_or_default().as_bytes())));
        let more = Some(text("why")).filter(|why| !why.is_empty()).into_iter().chain(facts);
        table.row(vec![
            record.get("sequence").map(Value::to_string).unwrap_or_default(),
            text("time"),
            text("who"),
            text("from"),
            text("act"),
            text("object"),
            text("result"),
            more.collect::<Vec<_>>().join(", "),
        ]);
    }
    print(&table)
}

fn verify(cli: &Globals) -> Result<ExitCode, Failure> {
    let checked = door(cli)?.check_audit()?;
    if let Some(finding) = &checked.finding {
        return Err(Failure::Other(format!(
            "the audit log of the cell is not as it was written: {finding}. Keep the files of `cell/audit` in the \
             server's state directory for whoever looks into it"
        )));
    }
    if cli.json {
        return print_json(&checked);
    }
    if !cli.quiet {
        println!("{} whole; the catalog vouches up to record {}", whole(&checked), checked.anchored_to);
        if checked.first > 1 {
            eprintln!(
                "capstan: records 1 to {} are not in `cell/audit`: they were put away, or somebody removed them",
                checked.first - 1
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn whole(checked: &AuditChecked) -> String {
    let count = if checked.first == 0 { 0 } else { checked.last - checked.first + 1 };
    if count == 1 { "1 record is".to_owned() } else { format!("{} records are", units::count(count)) }
}
