//! `keyd users`, `keyd quorum`, `keyd pending`.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use capstan_keys::Name;
use capstan_keys::api::{Decide, PendingListed, QuorumSaid, Requested, UserRoles};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::program::command;

/// People.
#[derive(Debug, Subcommand)]
pub enum UsersCommand {
    /// List them
    List(Ask),
    /// Ask the quorum for another user: the one-time passphrase is shown once
    Add(WithRoles),
    /// Ask the quorum to change a user's roles
    Roles(WithRoles),
    /// Ask the quorum to let a user enrol again: their existing certificates are revoked, and a disabled user is
    /// enabled
    Enrol(OneUser),
    /// Ask the quorum to let a disabled user back in
    Enable(OneUser),
    /// Disable a user, at once
    Disable(OneUser),
}

#[derive(Debug, Args)]
pub struct WithRoles {
    /// Who
    name: Name,
    /// All roles: security-officer, compliance-officer, operator, backup-operator, auditor, quorum-member
    #[arg(long = "role", value_name = "ROLE", required = true, value_delimiter = ',')]
    roles: Vec<String>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub struct OneUser {
    /// Who
    name: Name,
    #[command(flatten)]
    ask: Ask,
}

pub(crate) fn users(asked: UsersCommand) -> anyhow::Result<()> {
    let of_one = |OneUser { name, ask }: OneUser, what: &str| {
        let requested: Requested = ask.post(&format!("/v1/users/{name}/{what}"), &json!({}))?;
        ask.waits(&requested)
    };
    match asked {
        UsersCommand::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/users")?;
            ask.list(&items, &["name", "roles", "standing", "certificates"]);
            Ok(())
        }
        UsersCommand::Add(WithRoles { name, roles, ask }) => {
            let requested: Requested = ask.post("/v1/users", &UserRoles { name, roles })?;
            ask.waits(&requested)
        }
        UsersCommand::Roles(WithRoles { name, roles, ask }) => {
            let path = format!("/v1/users/{name}/roles");
            let requested: Requested = ask.post(&path, &UserRoles { name, roles })?;
            ask.waits(&requested)
        }
        UsersCommand::Enrol(one) => of_one(one, "enrol"),
        UsersCommand::Enable(one) => of_one(one, "enable"),
        UsersCommand::Disable(OneUser { name, ask }) => {
            let user: Value = ask.post(&format!("/v1/users/{name}/disable"), &json!({}))?;
            ask.done(&user, &format!("user {name} is disabled"))
        }
    }
}

/// How many approve.
#[derive(Debug, Subcommand)]
pub enum QuorumCommand {
    /// Show how many approvals an act by quorum takes, and how many members there are
    Show(Ask),
    /// Ask the quorum to change how many approvals an act takes
    Change {
        /// How many approvals an act shall take: 1 to 16, and at most the number of quorum members who did not ask for
        /// it
        needed: u8,
        /// For how long a request waits for them, as 3d [default: as before]
        #[arg(long, value_name = "TIME", value_parser = crate::span::seconds)]
        waits: Option<u32>,
        #[command(flatten)]
        ask: Ask,
    },
}

pub(crate) fn quorum(asked: QuorumCommand) -> anyhow::Result<()> {
    match asked {
        QuorumCommand::Show(ask) => {
            let said: QuorumSaid = ask.get("/v1/quorum")?;
            let hours = said.waits_seconds.unwrap_or_default() / 3600;
            let words = format!(
                "an act takes {} approvals of {} quorum members, within {hours} hours; nobody approves what they asked for",
                said.needed, said.members
            );
            ask.done(&said, &words)
        }
        QuorumCommand::Change { needed, waits, ask } => {
            let question = QuorumSaid { needed, waits_seconds: waits, members: 0 };
            let requested: Requested = ask.post("/v1/quorum", &question)?;
            ask.waits(&requested)
        }
    }
}

/// What waits for a quorum.
#[derive(Debug, Subcommand)]
pub enum PendingCommand {
    /// List requests that wait for approval, and recent ones
    List(Ask),
    /// Show everything that a request asks for
    Show(OneRequest),
    /// Approve a request exactly as it was shown; the last approval puts it into effect
    Approve(SaidDecision),
    /// Reject a request, which ends it
    Reject(SaidDecision),
    /// Withdraw your own request
    Withdraw(OneRequest),
}

#[derive(Debug, Args)]
pub struct OneRequest {
    /// The request, as `keyd pending list` names it
    #[arg(required_unless_present = "last")]
    id: Option<String>,
    /// The newest one that waits
    #[arg(long, conflicts_with = "id")]
    last: bool,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub struct SaidDecision {
    #[command(flatten)]
    request: OneRequest,
    /// The digest that `pending show` printed [default: the request is shown, and you type a word to confirm]
    #[arg(long, value_name = "HEX")]
    digest: Option<String>,
}

pub(crate) fn pending(asked: PendingCommand) -> anyhow::Result<()> {
    match asked {
        PendingCommand::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/pending")?;
            ask.list(&items, &["id", "act", "requested_by", "stage", "approvals", "needed", "expires"]);
            Ok(())
        }
        PendingCommand::Show(request) => {
            let (id, ask) = (request.id()?, &request.ask);
            let shown: PendingListed = ask.get(&path(&id, "")?)?;
            ask.done(&shown, &format!("{}\n{}", shown.words, shown.stage))
        }
        PendingCommand::Approve(decided) => decide(&decided, "approve"),
        PendingCommand::Reject(decided) => decide(&decided, "reject"),
        PendingCommand::Withdraw(request) => {
            let (id, ask) = (request.id()?, &request.ask);
            let shown: PendingListed = ask.post(&path(&id, "/withdraw")?, &json!({}))?;
            stands(ask, &shown)
        }
    }
}

/// Says a decision on exactly what was read: the digest goes with it, so that nothing else can be meant.
fn decide(SaidDecision { request, digest }: &SaidDecision, decision: &str) -> anyhow::Result<()> {
    // Which it is, is settled before it is read: another that comes meanwhile is not meant.
    let (id, ask) = (&request.id()?, &request.ask);
    let digest = match digest {
        Some(digest) => digest.clone(),
        None => read_and_meant(id, ask, decision)?,
    };
    let shown: PendingListed = ask.post(&path(id, &format!("/{decision}"))?, &Decide { digest })?;
    stands(ask, &shown)
}

/// The digest of what a person reads now, and means.
fn read_and_meant(id: &str, ask: &Ask, decision: &str) -> anyhow::Result<String> {
    let shown: PendingListed = ask.get(&path(id, "")?)?;
    let shows = command("pending show");
    let unheard = format!("there is no terminal to ask at: give --digest, with what {shows} prints as the digest");
    anyhow::ensure!(io::stdin().is_terminal(), unheard.clone());
    println!("{}", shown.words);
    print!("{decision} this? Type {decision}: ");
    io::stdout().flush()?;
    let mut word = String::new();
    io::stdin().read_line(&mut word).context(unheard)?;
    anyhow::ensure!(word.trim() == decision, "nothing was sent: you typed {:?}, not {decision:?}", word.trim());
    Ok(shown.digest)
}

fn stands(ask: &Ask, shown: &PendingListed) -> anyhow::Result<()> {
    let mut words = format!("request {}: {}, {} of {} approvals", shown.id, shown.stage, shown.approvals, shown.needed);
    if shown.stage == "approved" {
        words = format!("{words}; {} carries it out (`--request {}`)", shown.requested_by, shown.id);
    }
    ask.done(shown, &words)
}

impl OneRequest {
    /// The one that is meant.
    fn id(&self) -> anyhow::Result<String> {
        match &self.id {
            Some(id) => Ok(id.clone()),
            None => newest(&self.ask, "waiting"),
        }
    }
}

/// The newest request that stands there: the one that ends last, for all wait for as long.
fn newest(ask: &Ask, stage: &str) -> anyhow::Result<String> {
    newest_of(ask, &format!("no request is {stage}"), |request| request.stage == stage)
}

/// The newest of one's own requests for this act that was approved and not carried out.
pub(crate) fn newest_approved(ask: &Ask, act: &str) -> anyhow::Result<String> {
    let us = ask.own_id()?.name;
    let ours =
        |request: &PendingListed| request.stage == "approved" && request.act == act && request.requested_by == us;
    newest_of(ask, &format!("no request of {us} for this is approved"), ours)
}

fn newest_of(ask: &Ask, none: &str, meant: impl Fn(&PendingListed) -> bool) -> anyhow::Result<String> {
    let listed: Vec<PendingListed> = ask.get("/v1/pending")?;
    let newest = listed.into_iter().filter(meant).max_by_key(|request| request.expires);
    newest.map(|request| request.id).with_context(|| format!("{none}: {} lists all requests", command("pending list")))
}

fn path(id: &str, what: &str) -> anyhow::Result<String> {
    let is_id = id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id
        .then(|| format!("/v1/pending/{id}{what}"))
        .with_context(|| format!("{id:?} is no request: {} lists them", command("pending list")))
}
