//! What people ask of a cluster, in tables for them and in JSON for programs.

mod custodians;
mod keys;
mod peers;
mod proof;
mod root;
mod table;
mod transfer;
mod users;

use crate::service::StateDirectory;
use capstan_keys::Argon2Cost;
use capstan_keys::api::PeerId;
use capstan_keys::api::{EnrolmentOpened, Outcome, RequestId, Requested};
use capstan_keys::cluster::Identity;
use capstan_keys::cluster::{ClusterClient, Repeat};
use clap::Subcommand;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(super) use custodians::{CoreBackup, core_backup};
pub(super) use keys::{Groups, Keys, Policies, Units};
pub(super) use peers::{Agents, Kmas, KmipClients, Sites};
pub(super) use proof::{Audit, Suspected};
pub(super) use root::Root;
pub(super) use transfer::Exports;
pub(super) use users::{Pending, Quorum, Users};

use super::Ended;
use super::arguments::Asking;

/// What people ask.
#[derive(Debug, Subcommand)]
pub(crate) enum People {
    /// Drives: enrol, list, revoke, say which key groups they may use
    #[command(subcommand)]
    Agents(Agents),
    /// Clients that speak KMIP: enrol, list, revoke
    #[command(subcommand)]
    KmipClients(KmipClients),
    /// Nodes: add, move and remove by quorum, list
    #[command(subcommand)]
    Kmas(Kmas),
    /// Sites, at which nodes stand
    #[command(subcommand)]
    Sites(Sites),
    /// Key policies
    #[command(subcommand)]
    Policies(Policies),
    /// Key groups
    #[command(subcommand)]
    Groups(Groups),
    /// Data units: cartridges with their keys
    #[command(subcommand)]
    Units(Units),
    /// Keys, without what is secret of them
    #[command(subcommand)]
    Keys(Keys),
    /// Exports of keys: list them, say that they are destroyed
    #[command(subcommand)]
    Exports(Exports),
    /// Users and their roles
    #[command(subcommand)]
    Users(Users),
    /// How many approvals an act takes
    #[command(subcommand)]
    Quorum(Quorum),
    /// The root key: split anew for other holders
    #[command(subcommand)]
    Root(Root),
    /// What waits for a quorum
    #[command(subcommand)]
    Pending(Pending),
    /// The audit log
    #[command(subcommand)]
    Audit(Audit),
    /// Say which data units a compromise exposes
    Exposure(Suspected),
    /// Plan how exposed data units get other keys
    RekeyPlan(Suspected),
    /// List the keys that were certified as destroyed everywhere (`keyd certify`)
    Certificates(Ask),
}

/// Whom to ask, and how to answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Ask {
    #[command(flatten)]
    asking: Asking,
    /// Answer in JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(asked: People, cost: Argon2Cost) -> anyhow::Result<Ended> {
    match asked {
        People::Keys(asked) => return keys::keys(asked, cost),
        People::Agents(agents) => peers::agents(agents),
        People::KmipClients(clients) => peers::kmip_clients(clients),
        People::Kmas(kmas) => peers::kmas(kmas),
        People::Policies(policies) => keys::policies(policies),
        People::Groups(groups) => keys::groups(groups),
        People::Units(units) => keys::units(units),
        People::Exports(asked) => transfer::exports(&asked),
        People::Users(asked) => users::users(asked),
        People::Quorum(asked) => users::quorum(asked),
        People::Root(asked) => root::root(asked, cost),
        People::Pending(pending) => users::pending(pending),
        People::Audit(audit) => proof::audit(audit),
        People::Exposure(suspected) => proof::exposed(&suspected, "/v1/exposure"),
        People::Sites(sites) => peers::sites(sites),
        People::Certificates(ask) => proof::certificates(&ask),
        People::RekeyPlan(suspected) => proof::exposed(&suspected, "/v1/rekey-plan"),
    }
    .map(|()| Ended::Whole)
}

impl Ask {
    fn client(&self) -> anyhow::Result<ClusterClient> {
        let identity = super::clients::identity(&self.asking)?;
        Ok(ClusterClient::open_at(&identity, &self.asking.node)?)
    }

    /// What is at a path.
    fn get<A: DeserializeOwned>(&self, path: &str) -> anyhow::Result<A> {
        Ok(self.client()?.get(path)?)
    }

    /// All parts of a list.
    fn pages(&self, path: &str, question: &[(&str, Option<String>)]) -> anyhow::Result<Vec<Value>> {
        let client = self.client()?;
        let mut question: Vec<String> =
            question.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?))).collect();
        let mut items = Vec::new();
        loop {
            let page: capstan_keys::api::Page<Value> = client.get(&format!("{path}?{}", question.join("&")))?;
            items.extend(page.items);
            let Some(next) = page.next else { return Ok(items) };
            question.retain(|part| !part.starts_with("after="));
            question.push(format!("after={next}"));
        }
    }

    /// Asks for something to be done. It is not asked for again by itself: an enrolment or a request would be there
    /// twice.
    fn post<A: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> anyhow::Result<A> {
        Ok(self.client()?.post(path, question, &RequestId::random()?, Repeat::Never)?)
    }

    /// Says a list: as a table of these columns, or as it is.
    fn list(&self, items: &[Value], columns: &[&str]) {
        if self.json {
            println!("{:#}", Value::from(items));
        } else {
            print!("{}", table::table(items, columns));
        }
    }

    /// Says what was done: in words, or as it is.
    fn done(&self, answer: &impl Serialize, words: &str) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(answer)?);
        } else {
            println!("{words}");
        }
        Ok(())
    }

    /// Says an enrolment, with its passphrase.
    fn enrolment(&self, opened: &EnrolmentOpened) -> anyhow::Result<()> {
        let passphrase = opened.passphrase.0.expose();
        let words = format!(
            "{} enrols once, until {}, with this passphrase, which is shown only here:\n  {}",
            opened.peer,
            opened.expires,
            passphrase.as_str()
        );
        self.done(opened, &words)
    }

    /// Says that something waits for the quorum.
    fn waits(&self, requested: &Requested) -> anyhow::Result<()> {
        let Requested { id, needed, expires, passphrase, warnings, .. } = requested;
        let mut words = format!("request {id} waits until {expires} for {needed} approvals of others (`keyd pending`)");
        for warning in warnings {
            words = format!("{words}\nnote: {warning}");
        }
        if let Some(passphrase) = passphrase {
            let shown = passphrase.0.expose();
            words = format!(
                "{words}\nOnce it is approved, this passphrase enrols, once and within a week. It is shown only here:\n  {}",
                shown.as_str()
            );
        }
        self.done(requested, &words)
    }

    /// Says what is to be done once a request is approved.
    fn then(&self, command: &str) {
        if !self.json {
            println!("Once it is approved: {command}");
        }
    }

    fn outcome(&self, outcome: &Outcome) -> anyhow::Result<()> {
        match outcome {
            Outcome::Waits(requested) if !self.json => self.waits(requested),
            _ => self.done(outcome, "done"),
        }
    }
}

/// The state directory's own name and log, for a check without a node.
fn log_of(state: &std::path::Path) -> anyhow::Result<(capstan_keys::Name, Vec<std::path::PathBuf>)> {
    let (directory, settings) = StateDirectory::open(state)?;
    Ok((settings.name, capstan_service::audit::log_files(&directory.audit())?))
}

/// Who asks, as keys are handed over to them.
fn me(ask: &Ask) -> anyhow::Result<PeerId> {
    Ok(Identity::load(&ask.asking.identity)?.certificate().peer.clone())
}
