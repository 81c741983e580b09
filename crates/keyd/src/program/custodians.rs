//! `keyd core-backup`: asked of the quorum first, and carried out with `--request` once it has approved, with the
//! custodians there.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::authority::Act;
use crate::service::{AskCoreBackup, CoreBackupMade, Custodian, MakeCoreBackup};
use anyhow::Context;
use capstan_keys::Name;
use capstan_keys::api::{RequestId, Requested};
use capstan_keys::cluster::NodeClient;
use capstan_officer::{Approved, Ask, create, id_of, new_passphrase, sync_folder};
use clap::{ArgGroup, Args};

use super::arguments::of_name;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("step").required(true).args(["custodians", "request", "last"])))]
pub(crate) struct CoreBackup {
    /// Ask for a backup of which this custodian has a share; the custodian need not be a user; may be given several
    /// times
    #[arg(long = "custodian", value_name = "NAME", requires = "needed")]
    custodians: Vec<Name>,
    /// How many custodians open it: at least as many as open the root key
    #[arg(long, value_name = "NUMBER", requires = "custodians")]
    needed: Option<u8>,
    #[command(flatten)]
    approved: Approved,
    /// File to write the backup to; each custodian is asked for a passphrase; nothing is overwritten
    #[arg(
        long,
        value_name = "FILE",
        requires = "approved",
        required_unless_present = "custodians",
        conflicts_with = "custodians"
    )]
    out: Option<PathBuf>,
    /// A custodian's passphrase is in a file instead
    #[arg(long, value_name = "NAME=FILE", value_parser = of_name, requires = "approved", conflicts_with = "custodians")]
    passphrase_file: Vec<(Name, PathBuf)>,
    #[command(flatten)]
    ask: Ask,
}

pub(crate) fn core_backup(asked: &CoreBackup) -> anyhow::Result<()> {
    if let (Some(request), Some(out)) = (asked.approved.of(&asked.ask, Act::BackUpCoreSecurity.name())?, &asked.out) {
        return carry_out(asked, &request, out);
    }
    let needed = asked.needed.context("say how many custodians open it: --needed")?;
    let question = AskCoreBackup { custodians: asked.custodians.clone(), needed };
    let requested: Requested = asked.ask.post("/v1/core-backups", &question)?;
    asked.ask.waits(&requested)?;
    asked.ask.then(&format!(
        "`keyd core-backup --request {} --out FILE`, with all custodians there, and who approved",
        requested.id
    ));
    Ok(())
}

/// Everything that can fail here is tried before the node is asked, for it makes one once.
fn carry_out(asked: &CoreBackup, request: &str, out: &Path) -> anyhow::Result<()> {
    let (client, id) = (asked.ask.asking.client()?, id_of(request)?);
    let mut file = create(out)?;
    let made = made(asked, &client, id).and_then(|made| {
        let written = file.write_all(&made.file.0).and_then(|()| file.sync_all()).and_then(|()| sync_folder(out));
        written.with_context(|| format!("{} cannot be written: ask the quorum for another", out.display()))?;
        Ok(made)
    });
    let made = made.inspect_err(|_| {
        let _ = fs::remove_file(out);
    })?;
    let words = format!(
        "the core security backup is in {}: {} of its {} custodians open it, together with any database backup of this cluster key\n\
         Keep copies of it in safes, apart from the database backups. It changes only with the cluster key and the authority.",
        out.display(),
        made.record.needed,
        made.record.custodians.len()
    );
    asked.ask.done(&made.record, &words)
}

fn made(asked: &CoreBackup, client: &NodeClient, id: RequestId) -> anyhow::Result<CoreBackupMade> {
    let path = format!("/v1/core-backups/{id}");
    let approved: AskCoreBackup = client.get(&path)?;
    if let Some((name, _)) = asked.passphrase_file.iter().find(|(name, _)| !approved.custodians.contains(name)) {
        anyhow::bail!("{name} is no custodian of what was approved: `keyd pending show {id}`");
    }
    let mut custodians = Vec::new();
    for name in approved.custodians {
        let file = asked.passphrase_file.iter().find(|(other, _)| *other == name).map(|(_, file)| file.as_path());
        let passphrase = new_passphrase(&format!("passphrase of custodian {name}"), file)?;
        custodians.push(Custodian { name, passphrase });
    }
    client.post(&path, &MakeCoreBackup { custodians }).with_context(|| {
        format!(
            "no core security backup was given out; if `keyd pending show {id}` says executed, ask the quorum for \
             another"
        )
    })
}
