//! `keyd policies`, `keyd groups`, `keyd units`, `keyd keys`.

use anyhow::Context;
use capstan_format::{KeyTag, Volser};
use capstan_keys::Name;
use capstan_keys::api::{ConfirmKey, ExtendUnit, GroupSaid, Leave, NamedKey, PolicySaid, RequestOutcome};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::ask::Ask;
use crate::outcome::{Completeness, Sealing};
use crate::span::seconds;
use crate::transfer::{self, Export, Import};

/// What holds for keys.
#[derive(Debug, Subcommand)]
pub enum Policies {
    /// List them
    List(Ask),
    /// Make a policy; it cannot be changed once a key was issued under it
    Add(AddPolicy),
}

#[derive(Debug, Args)]
pub struct AddPolicy {
    /// Its name
    name: Name,
    /// The cipher of its keys: AES-256-GCM, AES-256-CCM [default: as the pool says]
    #[arg(long)]
    algorithm: Option<String>,
    /// For how long a key encrypts, as 2y, 90d, 12h, 30min [default: no end]
    #[arg(long, alias = "encrypts-for", value_name = "TIME", value_parser = seconds)]
    encrypt_for: Option<u32>,
    /// For how long a key decrypts [default: no end]
    #[arg(long, alias = "decrypts-for", value_name = "TIME", value_parser = seconds)]
    decrypt_for: Option<u32>,
    /// For how long a node that is cut off gives out keys [default: no end]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    isolated_for: Option<u32>,
    /// Do not let keys be exported
    #[arg(long)]
    no_export: bool,
    /// Do not let keys of other stores be imported
    #[arg(long)]
    no_import: bool,
    /// Let agents retire keys, or mark them as compromised
    #[arg(long)]
    agents_revoke: bool,
    /// Replace an existing policy, as long as no key was issued under it. Give all options again: those that are not
    /// given return to their defaults
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    ask: Ask,
}

fn leave(allowed: bool) -> Leave {
    if allowed { Leave::Allowed } else { Leave::Forbidden }
}

pub(crate) fn policies(asked: Policies) -> anyhow::Result<()> {
    match asked {
        Policies::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/policies")?;
            let columns = ["name", "algorithm", "encryption_seconds", "cryptoperiod_seconds", "isolation_seconds"];
            ask.list(&items, &[&columns[..], &["export", "import", "agents_revoke"]].concat());
            Ok(())
        }
        Policies::Add(policy) => {
            let said = PolicySaid {
                name: policy.name,
                algorithm: policy.algorithm,
                encryption_seconds: policy.encrypt_for,
                cryptoperiod_seconds: policy.decrypt_for,
                export: leave(!policy.no_export),
                import: leave(!policy.no_import),
                agents_revoke: leave(policy.agents_revoke),
                isolation_seconds: policy.isolated_for,
                replace: policy.replace,
            };
            policy.ask.outcome(&policy.ask.post::<RequestOutcome>("/v1/policies", &said)?)
        }
    }
}

/// Keys under one policy, for one purpose.
#[derive(Debug, Subcommand)]
pub enum Groups {
    /// List them
    List(Ask),
    /// Make one
    Add {
        /// Its name: that of a pool, for the keys of the pool
        name: Name,
        /// Its policy, which cannot be changed later
        #[arg(long, default_value = "default")]
        policy: Name,
        #[command(flatten)]
        ask: Ask,
    },
}

pub(crate) fn groups(asked: Groups) -> anyhow::Result<()> {
    match asked {
        Groups::List(ask) => {
            let items: Vec<Value> = ask.get("/v1/groups")?;
            ask.list(&items, &["name", "policy"]);
            Ok(())
        }
        Groups::Add { name, policy, ask } => {
            ask.outcome(&ask.post::<RequestOutcome>("/v1/groups", &GroupSaid { name, policy })?)
        }
    }
}

/// Cartridges.
#[derive(Debug, Subcommand)]
pub enum Units {
    /// List them
    List(Ask),
    /// Show every key that one ever had
    Show {
        /// Its barcode
        barcode: Volser,
        #[command(flatten)]
        ask: Ask,
    },
    /// Let a data unit be read although the cryptoperiod of its keys is over
    #[command(alias = "extend")]
    ExtendDecryption {
        /// Its barcode
        barcode: Volser,
        #[command(flatten)]
        end: End,
        #[command(flatten)]
        ask: Ask,
    },
}

/// When something is over that is allowed now.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct End {
    /// For how long from now, as 90d, 12h, 30min
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    time: Option<u32>,
    /// Or until when, as 2031-01-01T00:00:00Z
    #[arg(long, value_name = "DATE")]
    until: Option<Timestamp>,
}

impl End {
    fn until(&self) -> anyhow::Result<Timestamp> {
        match (self.until, self.time) {
            (Some(until), _) => Ok(until),
            (None, time) => {
                let time = SignedDuration::from_secs(time.unwrap_or_default().into());
                Timestamp::now().checked_add(time).context("that is after the end of all calendars")
            }
        }
    }
}

pub(crate) fn units(asked: Units) -> anyhow::Result<()> {
    match asked {
        Units::List(ask) => {
            let items = ask.pages("/v1/units", &[])?;
            ask.list(&items, &["volume", "serial", "keys", "first_seen", "last_seen", "read_until", "warning"]);
            Ok(())
        }
        Units::Show { barcode, ask } => {
            let items: Vec<Value> = ask.get(&format!("/v1/units/{barcode}"))?;
            ask.list(&items, &["key", "group", "algorithm", "state", "issued", "activated", "dropped", "destroyed"]);
            Ok(())
        }
        Units::ExtendDecryption { barcode, end, ask } => {
            let until = end.until()?;
            ask.outcome(&ask.post::<RequestOutcome>(&format!("/v1/units/{barcode}/extend"), &ExtendUnit { until })?)
        }
    }
}

/// Keys.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// List them
    List {
        /// Those of a volume
        #[arg(long, value_name = "BARCODE")]
        volume: Option<Volser>,
        /// Those of a group; `unconfirmed-keys` are those that lost nodes gave out and nobody has confirmed
        #[arg(long, value_name = "NAME")]
        group: Option<Name>,
        /// Those in a state: ready, protect-and-process, process-only, deactivated, compromised, destroyed
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// List keys from the pools of lost nodes that no volume has named yet: volumes that nobody has read since the loss
    /// may be encrypted with them
    Recovered(Ask),
    /// Confirm the group of a key that a lost node gave out; until then, no drive gets that key
    Confirm {
        /// Its tag: 32 hexadecimal digits
        tag: KeyTag,
        /// Its volume [default: the one on record, which a drive has reported]
        #[arg(long, value_name = "BARCODE")]
        volume: Option<Volser>,
        /// Its group
        #[arg(long, value_name = "NAME")]
        group: Name,
        #[command(flatten)]
        ask: Ask,
    },
    /// Mark a key as compromised, because others may know it: it no longer encrypts
    Compromise(OneKey),
    /// Destroy a key; if it can still decrypt, the quorum must approve
    Destroy(OneKey),
    /// Export keys: ask the quorum first, then fetch the keys into a file with `--request`
    Export(Export),
    /// Import the keys of another store: ask the quorum first, then send the keys with `--request`
    Import(Import),
}

#[derive(Debug, Args)]
pub struct OneKey {
    /// Its tag: 32 hexadecimal digits
    tag: KeyTag,
    #[command(flatten)]
    ask: Ask,
}

pub(crate) fn keys(asked: Keys, sealing: Sealing) -> anyhow::Result<Completeness> {
    match asked {
        Keys::Export(asked) => return transfer::export(&asked, sealing),
        Keys::List { volume, group, state, ask } => {
            let volume = volume.map(|volume| volume.to_string());
            let question = [("volume", volume), ("group", group.map(|group| group.to_string())), ("state", state)];
            let items = ask.pages("/v1/keys", &question)?;
            ask.list(&items, &["key", "volume", "group", "state", "issued", "agent", "kma"]);
            Ok(())
        }
        Keys::Recovered(ask) => {
            ask.list(&ask.pages("/v1/keys/recovered", &[])?, &["key", "drawn"]);
            Ok(())
        }
        Keys::Confirm { tag: key, volume, group, ask } => {
            ask.outcome(&ask.post::<RequestOutcome>("/v1/keys/confirm", &ConfirmKey { key, volume, group })?)
        }
        Keys::Compromise(OneKey { tag, ask }) => {
            ask.outcome(&ask.post::<RequestOutcome>("/v1/keys/compromise", &NamedKey { key: tag })?)
        }
        Keys::Destroy(OneKey { tag, ask }) => {
            ask.outcome(&ask.post::<RequestOutcome>("/v1/keys/destroy", &NamedKey { key: tag })?)
        }
        Keys::Import(asked) => transfer::import(&asked, sealing),
    }
    .map(|()| Completeness::Whole)
}
