//! What people ask of a cluster, whichever program asks for them.

use clap::Subcommand;

use crate::ask::Ask;
use crate::exposure::{self, Suspected};
use crate::keys::{self, Groups, Keys, Policies, Units};
use crate::outcome::{Completeness, Sealing};
use crate::peers::{self, Agents, Kmas, KmipClients, Sites};
use crate::transfer::{self, Exports};
use crate::users::{self, PendingCommand, QuorumCommand, UsersCommand};

/// What people ask.
#[derive(Debug, Subcommand)]
pub enum People {
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
    /// Keys and their states, without the secret keys themselves
    #[command(subcommand)]
    Keys(Keys),
    /// Exports of keys: list them, confirm that they are destroyed
    #[command(subcommand)]
    Exports(Exports),
    /// Users and their roles
    #[command(subcommand)]
    Users(UsersCommand),
    /// How many approvals an act takes
    #[command(subcommand)]
    Quorum(QuorumCommand),
    /// What waits for a quorum
    #[command(subcommand)]
    Pending(PendingCommand),
    /// Say which data units a compromise exposes
    Exposure(Suspected),
    /// Plan how exposed data units get other keys
    RekeyPlan(Suspected),
    /// List the keys that were certified as destroyed everywhere (`keyd certify`)
    Certificates(Ask),
}

impl People {
    /// Asks, and says the answer.
    ///
    /// # Errors
    /// No node answers, the node refuses, or a file cannot be read or written. The text says what to do.
    pub fn run(self, sealing: Sealing) -> anyhow::Result<Completeness> {
        match self {
            Self::Keys(asked) => return keys::keys(asked, sealing),
            Self::Agents(agents) => peers::agents(agents),
            Self::KmipClients(clients) => peers::kmip_clients(clients),
            Self::Kmas(kmas) => peers::kmas(kmas),
            Self::Policies(policies) => keys::policies(policies),
            Self::Groups(groups) => keys::groups(groups),
            Self::Units(units) => keys::units(units),
            Self::Exports(asked) => transfer::exports(&asked),
            Self::Users(asked) => users::users(asked),
            Self::Quorum(asked) => users::quorum(asked),
            Self::Pending(pending) => users::pending(pending),
            Self::Exposure(suspected) => exposure::exposed(&suspected, "/v1/exposure"),
            Self::Sites(sites) => peers::sites(sites),
            Self::Certificates(ask) => exposure::certificates(&ask),
            Self::RekeyPlan(suspected) => exposure::exposed(&suspected, "/v1/rekey-plan"),
        }
        .map(|()| Completeness::Whole)
    }
}
