//! `keyd root`: the root key under other holders.

use std::path::PathBuf;

use crate::root::{Holder, Quorum, SealedRoot};
use crate::service::StateDirectory;
use anyhow::{Context, ensure};
use capstan_keys::api::{Base64, Requested, SplitRoot};
use capstan_keys::{Argon2Cost, Name};
use capstan_officer::{Ask, new_passphrase, passphrase};
use clap::{Args, Subcommand};

use super::arguments::of_name;

/// The root key.
#[derive(Debug, Subcommand)]
pub(crate) enum Root {
    /// Split the root key among other holders. It takes as many of the old holders as unlock a node, and the quorum
    /// must approve the new split
    Split(Split),
}

#[derive(Debug, Args)]
pub(crate) struct Split {
    /// The state directory of a node, on its own machine
    #[arg(long)]
    state: PathBuf,
    /// A holder of the present split, who is asked for their passphrase; may be given several times
    #[arg(long = "given", value_name = "NAME", required = true)]
    given: Vec<Name>,
    /// A holder's passphrase is in a file instead
    #[arg(long, value_name = "NAME=FILE", value_parser = of_name)]
    passphrase_file: Vec<(Name, PathBuf)>,
    /// A holder of the new split; name all of them. Each is asked for a passphrase, which may be their old one
    #[arg(long = "holder", value_name = "NAME", required = true)]
    holders: Vec<Name>,
    /// How many of them open the root key
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    needed: u8,
    /// A new holder's passphrase is in a file instead
    #[arg(long, value_name = "NAME=FILE", value_parser = of_name)]
    new_passphrase_file: Vec<(Name, PathBuf)>,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn root(Root::Split(asked): Root, cost: Argon2Cost) -> anyhow::Result<()> {
    let (directory, _) = StateDirectory::open(&asked.state)?;
    let sealed = SealedRoot::read(&directory.root())?;
    let file = |files: &[(Name, PathBuf)], holder: &Name| {
        files.iter().find(|(other, _)| other == holder).map(|(_, file)| file.clone())
    };
    let mut shares = Vec::new();
    for holder in &asked.given {
        let file = file(&asked.passphrase_file, holder);
        let passphrase = passphrase(&format!("passphrase of holder {holder}"), file.as_deref())?;
        shares.push(sealed.open_share(holder, &passphrase)?);
    }
    let open = sealed.open_with_shares(&shares)?;
    let mut holders = Vec::new();
    for name in &asked.holders {
        let file = file(&asked.new_passphrase_file, name);
        let passphrase = new_passphrase(&format!("passphrase of new holder {name}"), file.as_deref())?;
        holders.push(Holder { name: name.clone(), passphrase });
    }
    let quorum = Quorum { threshold: asked.needed, holders, cost };
    let split = open.under_another_quorum(sealed.epoch(), &quorum)?;
    // Opened as it will be, before it takes the place of one that opens.
    let first = quorum.holders.iter().take(usize::from(asked.needed));
    let opened =
        first.map(|holder| split.open_share(&holder.name, &holder.passphrase)).collect::<Result<Vec<_>, _>>()?;
    split.open_with_shares(&opened).context("the new split does not open")?;
    ensure!(split.cluster() == sealed.cluster(), "the new split is of another cluster");
    let requested: Requested = asked.ask.post("/v1/root/split", &SplitRoot { root: Base64(split.encode()) })?;
    asked.ask.waits(&requested)
}
