//! `keyd backup`, `keyd backups`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::service::{BackupKept, BackupMade, BackupPart, BackupRecord, BackupState, digest_of};
use anyhow::{Context, ensure};
use capstan_keys::cluster::NodeClient;
use clap::{Args, Subcommand};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::arguments::Asking;
use super::clients::{awaited, client};

#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    asking: Asking,
    /// Where it is put; nothing is overwritten
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Where that is, as the list of backups is to say it [default: machine and file]
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
    /// List them
    List {
        #[command(flatten)]
        asking: Asking,
        /// In JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a backup that lies somewhere as a restore would, without a node
    Check(super::recovery::Check),
    /// Say that all copies of backups were destroyed
    Destroyed {
        #[command(flatten)]
        asking: Asking,
        /// The backups, as `keyd backups list` names them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

pub(super) fn backup(asked: &Backup) -> anyhow::Result<()> {
    let client = client(&asked.asking)?;
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
            "{} is whole; keep it, and see in `keyd backups list` whether {} was noted",
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
    let (_, sha256) = digest_of(part).with_context(|| format!("{} cannot be read again", part.display()))?;
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

pub(super) fn backups(asked: &Backups) -> anyhow::Result<()> {
    match &asked.command {
        OfBackups::List { asking, json } => {
            let mut known: Vec<BackupRecord> = client(asking)?.get("/v1/backups")?;
            known.sort_by_key(|backup| (backup.epoch, backup.revision));
            if *json {
                println!("{}", serde_json::to_string_pretty(&known)?);
                return Ok(());
            }
            if known.is_empty() {
                println!("there is no backup: `keyd backup`, before anything is written to tape");
            }
            known.iter().for_each(show);
        }
        OfBackups::Check(check) => super::recovery::check(check)?,
        OfBackups::Destroyed { asking, ids } => {
            let client = client(asking)?;
            for id in ids {
                let noted: BackupRecord = client.post(&format!("/v1/backups/{id}/destroyed"), &())?;
                show(&noted);
            }
        }
    }
    Ok(())
}

fn show(backup: &BackupRecord) {
    let BackupRecord { id, epoch, revision, made, by, keys, place, state, .. } = backup;
    let state = match state {
        BackupState::Kept => "kept".to_owned(),
        BackupState::Destroyed { at, by } => format!("destroyed, says {by} at {at}"),
    };
    println!("{id}  {made:.0}  epoch {epoch}, revision {revision}  {keys} keys  by {by}  {place}  {state}");
}

/// A new file, for its owner alone.
pub(super) fn create(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{} exists already and is left as it is: name another file", path.display())
        }
        _ => anyhow::Error::from(error).context(format!("{} cannot be created", path.display())),
    })
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Machine and file.
fn place(path: &Path) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    format!("{}:{}", host.trim(), path.display())
}
