//! `keyd users`, `keyd pending`.

use anyhow::Context;
use capstan_keys::Name;
use capstan_keys::api::{Decide, PendingListed, Requested, UserRoles};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Ask;

/// People.
#[derive(Debug, Subcommand)]
pub(crate) enum Users {
    /// List them
    List(Ask),
    /// Ask the quorum for another user: the one-time passphrase is shown once
    Add(WithRoles),
    /// Ask the quorum to change a user's roles
    Roles(WithRoles),
    /// Ask the quorum to let a user enrol anew
    Enrol(OneUser),
    /// Ask the quorum to let a disabled user back in
    Enable(OneUser),
    /// Disable a user, at once
    Disable(OneUser),
}

#[derive(Debug, Args)]
pub(crate) struct WithRoles {
    /// Who
    name: Name,
    /// All roles: security-officer, compliance-officer, operator, backup-operator, auditor, quorum-member
    #[arg(long = "role", value_name = "ROLE", required = true, value_delimiter = ',')]
    roles: Vec<String>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub(crate) struct OneUser {
    /// Who
    name: Name,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn users(asked: Users) -> anyhow::Result<()> {
    let of_one = |OneUser { name, ask }: OneUser, what: &str| {
        let requested: Requested = ask.post(&format!("/v1/users/{name}/{what}"), &json!({}))?;
        ask.waits(&requested)
    };
    match asked {
        Users::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/users")?;
            ask.list(&items, &["name", "roles", "standing", "certificates"]);
            Ok(())
        }
        Users::Add(WithRoles { name, roles, ask }) => {
            let requested: Requested = ask.post("/v1/users", &UserRoles { name, roles })?;
            ask.waits(&requested)
        }
        Users::Roles(WithRoles { name, roles, ask }) => {
            let path = format!("/v1/users/{name}/roles");
            let requested: Requested = ask.post(&path, &UserRoles { name, roles })?;
            ask.waits(&requested)
        }
        Users::Enrol(one) => of_one(one, "enrol"),
        Users::Enable(one) => of_one(one, "enable"),
        Users::Disable(OneUser { name, ask }) => {
            let user: Value = ask.post(&format!("/v1/users/{name}/disable"), &json!({}))?;
            ask.done(&user, &format!("user {name} is disabled"))
        }
    }
}

/// What waits for a quorum.
#[derive(Debug, Subcommand)]
pub(crate) enum Pending {
    /// List what waits, or waited lately
    List(Ask),
    /// Show all that one asks for
    Show(OneRequest),
    /// Approve exactly that; with the last approval it is done
    Approve(Decided),
    /// Reject it, which ends it
    Reject(Decided),
    /// Take one's own request back
    Withdraw(OneRequest),
}

#[derive(Debug, Args)]
pub(crate) struct OneRequest {
    /// The request, as `keyd pending list` names it
    id: String,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub(crate) struct Decided {
    #[command(flatten)]
    request: OneRequest,
    /// The digest of what was read, as `keyd pending show` said it
    #[arg(long, value_name = "HEX")]
    digest: String,
}

pub(super) fn pending(asked: Pending) -> anyhow::Result<()> {
    match asked {
        Pending::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/pending")?;
            ask.list(&items, &["id", "act", "requested_by", "stage", "approvals", "needed", "expires"]);
            Ok(())
        }
        Pending::Show(OneRequest { id, ask }) => {
            let shown: PendingListed = ask.get(&path(&id, "")?)?;
            ask.done(&shown, &format!("{}\n{}", shown.words, shown.stage))
        }
        Pending::Approve(decided) => decide(&decided, "/approve"),
        Pending::Reject(decided) => decide(&decided, "/reject"),
        Pending::Withdraw(OneRequest { id, ask }) => {
            let shown: PendingListed = ask.post(&path(&id, "/withdraw")?, &json!({}))?;
            stands(&ask, &shown)
        }
    }
}

fn decide(Decided { request: OneRequest { id, ask }, digest }: &Decided, what: &str) -> anyhow::Result<()> {
    let shown: PendingListed = ask.post(&path(id, what)?, &Decide { digest: digest.clone() })?;
    stands(ask, &shown)
}

fn stands(ask: &Ask, shown: &PendingListed) -> anyhow::Result<()> {
    let mut words = format!("request {}: {}, {} of {} approvals", shown.id, shown.stage, shown.approvals, shown.needed);
    if shown.stage == "approved" {
        words = format!("{words}; {} carries it out (`--request {}`)", shown.requested_by, shown.id);
    }
    ask.done(shown, &words)
}

fn path(id: &str, what: &str) -> anyhow::Result<String> {
    let is_id = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id
        .then(|| format!("/v1/pending/{id}{what}"))
        .with_context(|| format!("{id:?} is no request: `keyd pending list` names them"))
}
