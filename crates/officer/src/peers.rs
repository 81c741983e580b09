//! `keyd agents`, `keyd kmip-clients`, `keyd kmas`, `keyd sites`.

use capstan_keys::Name;
use capstan_keys::api::{
    AddKma, AddPeer, AddSite, AgentGroups, AssignKmipClient, DescribeSite, EnrolmentOpened, KmaState,
    KmipClientAssigned, MoveKma, Requested, Revoked, SiteListed,
};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::ask::Ask;

/// Drives.
#[derive(Debug, Subcommand)]
pub enum Agents {
    /// Open an enrolment: its one-time passphrase is shown once
    Add {
        /// The drive: its serial number
        name: Name,
        #[command(flatten)]
        groups: GroupsOf,
        #[command(flatten)]
        ask: Ask,
    },
    /// List them
    List(Ask),
    /// Revoke all certificates of one, at once
    Revoke(NamedPeer),
    /// Say which key groups one may use
    Groups {
        /// Which
        name: Name,
        #[command(flatten)]
        groups: GroupsOf,
        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Debug, Args)]
pub struct GroupsOf {
    /// A key group that it may use; it may use only the groups named here [default: those it has, or `default`]
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<Name>,
    /// Its default group, used if no group has the name of the pool [default: the first]
    #[arg(long, value_name = "GROUP", requires = "groups")]
    default_group: Option<Name>,
}

#[derive(Debug, Args)]
pub struct NamedPeer {
    /// Which
    name: Name,
    #[command(flatten)]
    ask: Ask,
}

impl GroupsOf {
    fn said(self) -> Option<AgentGroups> {
        let default_group = self.default_group.or_else(|| self.groups.first().cloned())?;
        Some(AgentGroups { groups: self.groups.into_iter().collect(), default_group })
    }
}

pub(crate) fn agents(asked: Agents) -> anyhow::Result<()> {
    match asked {
        Agents::Add { name, groups, ask } => add(&ask, "/v1/agents", &AddPeer { name, groups: groups.said() }),
        Agents::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/agents")?;
            ask.list(
                &items,
                &["name", "certificates", "enrolment", "groups.default_group=UNASKED", "groups.groups=MAY USE"],
            );
            Ok(())
        }
        Agents::Revoke(named) => revoke(&named, "/v1/agents"),
        Agents::Groups { name, groups, ask } => {
            let said = groups.said().ok_or_else(|| anyhow::anyhow!("name a group: --group"))?;
            let set: AgentGroups = ask.post(&format!("/v1/agents/{name}/groups"), &said)?;
            ask.done(&set, &format!("agent {name} uses {} unasked", set.default_group))
        }
    }
}

fn add(ask: &Ask, path: &str, question: &AddPeer) -> anyhow::Result<()> {
    let opened: EnrolmentOpened = ask.post(path, question)?;
    ask.enrolment(&opened)
}

fn revoke(NamedPeer { name, ask }: &NamedPeer, path: &str) -> anyhow::Result<()> {
    let revoked: Revoked = ask.post(&format!("{path}/{name}/revoke"), &json!({}))?;
    ask.done(&revoked, &format!("{} certificates of {name} are revoked", revoked.certificates))
}

/// Clients that speak KMIP.
#[derive(Debug, Subcommand)]
pub enum KmipClients {
    /// Open an enrolment: its one-time passphrase is shown once
    Add(NamedPeer),
    /// List them
    List(Ask),
    /// Set a client's domain, and the key group whose policy applies to it; an option that is not given stays unchanged
    Assign {
        /// Which
        name: Name,
        /// Its domain: clients of one domain see each other's objects. It no longer sees objects that it made in
        /// another domain [default: its name]
        #[arg(long, required_unless_present = "group")]
        domain: Option<Name>,
        /// The key group whose policy sets how long a node that is cut off answers the client [default: default]
        #[arg(long)]
        group: Option<Name>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Revoke all certificates of one, at once
    Revoke(NamedPeer),
}

pub(crate) fn kmip_clients(asked: KmipClients) -> anyhow::Result<()> {
    match asked {
        KmipClients::Add(NamedPeer { name, ask }) => add(&ask, "/v1/kmip-clients", &AddPeer { name, groups: None }),
        KmipClients::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/kmip-clients")?;
            ask.list(
                &items,
                &[
                    "name",
                    "certificates",
                    "enrolment",
                    "assigned.domain",
                    "assigned.group",
                    "usage.objects",
                    "usage.bytes",
                    "usage.bytes_max",
                ],
            );
            Ok(())
        }
        KmipClients::Assign { name, domain, group, ask } => {
            let question = AssignKmipClient { domain, group };
            let set: KmipClientAssigned = ask.post(&format!("/v1/kmip-clients/{name}/assign"), &question)?;
            ask.done(&set, &format!("{name} sees the objects of domain {}, by the policy of {}", set.domain, set.group))
        }
        KmipClients::Revoke(named) => revoke(&named, "/v1/kmip-clients"),
    }
}

/// Nodes.
#[derive(Debug, Subcommand)]
pub enum Kmas {
    /// Ask the quorum for another node: its one-time passphrase is shown once
    Add {
        /// Its name
        name: Name,
        /// Where agents and nodes will reach it: host and port
        #[arg(long, value_name = "HOST:PORT")]
        address: String,
        /// The site it will stand at
        #[arg(long, default_value = "")]
        site: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// List them
    List(Ask),
    /// Withdraw the approval of a node that has not joined, at once: to add it later, ask the quorum again
    #[command(alias = "call-off")]
    CancelJoin(NamedPeer),
    /// Ask the quorum to remove a node for good: its certificates are revoked, nothing counts it any more, and its name
    /// is never given again
    Remove(NamedPeer),
    /// Ask the quorum to change a node's address or site
    Move {
        /// Which
        name: Name,
        /// Where agents and nodes will reach it: host and port [default: as before]
        #[arg(long, value_name = "HOST:PORT", required_unless_present = "site")]
        address: Option<String>,
        /// The site it will stand at [default: as before]
        #[arg(long)]
        site: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Ask the quorum to let a node unlock itself after each start, without holders (on); or end that at once (off)
    AutonomousUnlock {
        /// Which
        name: Name,
        /// Whether the node unlocks itself
        choice: UnlockChoice,
        #[command(flatten)]
        ask: Ask,
    },
    /// List removed nodes, and what has become of their pools and disks
    Removed(Ask),
    /// Confirm that the disks of a removed node are destroyed
    #[command(alias = "destroyed")]
    ConfirmDestroyed(NamedPeer),
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnlockChoice {
    /// It unlocks itself
    On,
    /// Its holders unlock it
    Off,
}

pub(crate) fn kmas(asked: Kmas) -> anyhow::Result<()> {
    match asked {
        Kmas::Add { name, address, site, ask } => {
            let requested: Requested = ask.post("/v1/kmas/add", &AddKma { name, address, site })?;
            ask.waits(&requested)
        }
        Kmas::List(ask) => {
            let mut items: Vec<Value> = ask.get("/v1/kmas")?;
            let addresses = items.iter().filter_map(|item| Some(item["address"].as_str()?.to_owned())).collect();
            // How a node is, it says itself: the one that was asked knows of no other.
            let states = KmaState::of_each(&ask.asking.identity()?, addresses);
            for item in &mut items {
                let said = states.iter().find(|(address, _)| item["address"] == **address).map(|(_, said)| said);
                match said {
                    Some(Ok(state)) => item["state"] = serde_json::to_value(state)?,
                    Some(Err(error)) => {
                        item["state"] = serde_json::to_value(KmaState::Unknown)?;
                        item["why"] = error.to_string().into();
                    }
                    None => {}
                }
            }
            ask.list(&items, &["name", "site", "address", "state", "autonomous_unlock.on=UNLOCKS ITSELF", "why"]);
            Ok(())
        }
        Kmas::CancelJoin(NamedPeer { name, ask }) => {
            let said: Value = ask.post(&format!("/v1/kmas/{name}/call-off"), &json!({}))?;
            ask.done(&said, &format!("{name} may not join any more"))
        }
        Kmas::Remove(NamedPeer { name, ask }) => {
            let requested: Requested = ask.post(&format!("/v1/kmas/{name}/remove"), &json!({}))?;
            ask.waits(&requested)
        }
        Kmas::Move { name, address, site, ask } => {
            let requested: Requested = ask.post(&format!("/v1/kmas/{name}/move"), &MoveKma { address, site })?;
            ask.waits(&requested)
        }
        Kmas::AutonomousUnlock { name, choice, ask } => {
            let path = format!("/v1/kmas/{name}/autonomous-unlock");
            match choice {
                UnlockChoice::On => ask.waits(&ask.post::<Requested>(&path, &json!({}))?),
                UnlockChoice::Off => {
                    let said: Value = ask.post(&format!("{path}/end"), &json!({}))?;
                    ask.done(&said, &format!("{name} is unlocked by its holders from now on"))
                }
            }
        }
        Kmas::Removed(ask) => {
            let items: Vec<Value> = ask.get("/v1/kmas/removed")?;
            ask.list(&items, &["name", "site", "removed", "by", "pool", "destroyed", "met=MET SINCE"]);
            Ok(())
        }
        Kmas::ConfirmDestroyed(NamedPeer { name, ask }) => {
            let said: Value = ask.post(&format!("/v1/kmas/{name}/destroyed"), &json!({}))?;
            ask.done(&said, &format!("the disks of {name} count as destroyed"))
        }
    }
}

/// Where nodes stand.
#[derive(Debug, Subcommand)]
pub enum Sites {
    /// List them, with the nodes that stand there
    List(Ask),
    /// Add a site: from then on, nodes may stand there
    Add(Described),
    /// Change the description of a site
    Describe(Described),
    /// Remove one at which no node stands
    Remove(NamedPeer),
}

#[derive(Debug, Args)]
pub struct Described {
    /// Which
    name: Name,
    /// What to say of it, in one line
    #[arg(long, default_value = "", value_name = "TEXT")]
    description: String,
    #[command(flatten)]
    ask: Ask,
}

pub(crate) fn sites(asked: Sites) -> anyhow::Result<()> {
    match asked {
        Sites::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/sites")?;
            ask.list(&items, &["name", "kmas", "added", "description"]);
            Ok(())
        }
        Sites::Add(Described { name, description, ask }) => {
            let site: SiteListed = ask.post("/v1/sites", &AddSite { name, description })?;
            ask.done(&site, &format!("nodes may stand at site {}", site.name))
        }
        Sites::Describe(Described { name, description, ask }) => {
            let site: SiteListed = ask.post(&format!("/v1/sites/{name}/describe"), &DescribeSite { description })?;
            ask.done(&site, &format!("site {} is described", site.name))
        }
        Sites::Remove(NamedPeer { name, ask }) => {
            let site: SiteListed = ask.post(&format!("/v1/sites/{name}/remove"), &json!({}))?;
            ask.done(&site, &format!("there is no site {} any more", site.name))
        }
    }
}
