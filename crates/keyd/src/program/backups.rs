//! `keyd backup`, `keyd backups`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::service::{BackupKept, BackupMade, BackupPart};
use anyhow::{Context, ensure};
use capstan_keys::api::BackupRecord;
use capstan_keys::cluster::NodeClient;
use capstan_keys::file_digest;
use capstan_officer::{Asking, BackupsKnown, create, sync_folder};
use clap::{Args, Subcommand};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::clients::awaited;

#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    asking: Asking,
    /// Where it is put; nothing is overwritten
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The place of the backup, as the list of backups shows it [default: machine and file]
    #[arg(long, value_name = "TEXT")]
    place: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Backups {
    #[command(subcommand)]
    command: OfBackups,
}

#[derive(Debug, Subcommand)]
enum OfBackups {
    #[command(flatten)]
    Known(BackupsKnown),
    /// Check a stored backup as a restore would, without asking a node
    Check(super::recovery::Check),
}

pub(super) fn backup(asked: &Backup) -> anyhow::Result<()> {
    let client = asked.asking.client()?;
    ensure!(!asked.out.exists(), "{} exists already and is left as it is: name another file", asked.out.display());
    // Under another name until it is whole: whoever breaks this off leaves nothing that looks like a backup.
    let part = part_of(&asked.out);
    let file = create(&part)?;
    let (made, sha256) = fetched(&client, asked, &part, file).inspect_err(|_| {
        let _ = std::fs::remove_file(&part);
    })?;
    let kept = BackupKept { sha256, place: asked.place.clone().unwrap_or_else(|| place(&asked.out)) };
    let path = format!("/v1/backups/{}/kept", made.id);
    let kept: BackupRecord = client.post(&path, &kept).with_context(|| {
        // It may have been noted, and its answer lost: then keys are given out that this file holds.
        format!(
            "{} is complete, but perhaps it is not on record; keep it, and check whether `keyd backups list` shows {}",
            asked.out.display(),
            made.id
        )
    })?;
    println!(
        "backup {} is in {}: {} records and {} keys at revision {}, each key unwrapped and compared",
        kept.id,
        asked.out.display(),
        kept.records,
        kept.keys,
        kept.revision
    );
    Ok(())
}

fn fetched(client: &NodeClient, asked: &Backup, part: &Path, mut file: File) -> anyhow::Result<(BackupMade, String)> {
    let unwritten = || format!("{} cannot be written", part.display());
    let made: BackupMade = awaited(client, "/v1/backups")?;
    let mut at = 0;
    while at < made.bytes {
        let BackupPart { data } = client.get(&format!("/v1/backups/{}/data/{at}", made.id))?;
        ensure!(!data.0.is_empty(), "the node's copy of the backup ended early: make another");
        file.write_all(&data.0).with_context(unwritten)?;
        at += data.0.len() as u64;
    }
    file.sync_all().with_context(unwritten)?;
    let (_, sha256) = file_digest(part).with_context(|| format!("{} cannot be read again", part.display()))?;
    ensure!(sha256 == made.sha256, "{} differs from what was sent: the medium is at fault", part.display());
    renameat_with(CWD, part, CWD, &asked.out, RenameFlags::NOREPLACE).with_context(|| {
        format!("{} cannot be put there: see that nothing is, and name another file", asked.out.display())
    })?;
    sync_folder(&asked.out)?;
    Ok((made, sha256))
}

fn part_of(out: &Path) -> PathBuf {
    let mut part = out.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

pub(super) fn backups(asked: Backups) -> anyhow::Result<()> {
    match asked.command {
        OfBackups::Known(known) => known.run(),
        OfBackups::Check(check) => super::recovery::check(&check),
    }
}

/// Machine and file.
fn place(path: &Path) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    format!("{}:{}", host.trim(), path.display())
}
