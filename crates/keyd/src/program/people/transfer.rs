//! `keyd keys export`, `keyd keys import`: asked of the quorum first, and carried out with `--request` once it has approved.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use capstan_format::Volser;
use capstan_keys::api::{
    AskExport, AskImport, Base64, CarryOutExport, CarryOutImport, ExportGiven, ExportWhat, ImportReady, KeyTaken,
    PeerId, RequestId, Requested, SentExportKey,
};
use capstan_keys::cluster::{ClusterError, Identity, KeyRequest, NodeClient, hand_over};
use capstan_keys::{ExportKey, KeyExport, Name, seal_export};
use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::Ask;
use crate::program::backups::{create, sync_folder};
use crate::program::clients::client;
use crate::program::founding::cost;
use crate::program::secrets::{new_passphrase, passphrase};

/// How often an export whose answer was lost is asked for: the node knows it again.
const TRIES: u32 = 3;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["all", "group", "unit", "request"])))]
pub(crate) struct Export {
    /// Ask for all keys that policies let go
    #[arg(long)]
    all: bool,
    /// Ask for the keys of a group
    #[arg(long, value_name = "NAME")]
    group: Option<Name>,
    /// Ask for the keys of a data unit
    #[arg(long, value_name = "BARCODE")]
    unit: Option<Volser>,
    /// Carry out what was asked for and approved
    #[arg(long, value_name = "ID", requires = "out")]
    request: Option<String>,
    /// Where the keys are put, sealed under a passphrase; nothing is overwritten
    #[arg(long, value_name = "FILE", requires = "request")]
    out: Option<PathBuf>,
    /// The passphrase of the export is in a file [default: asked for]
    #[arg(long, value_name = "FILE", requires = "request")]
    passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["group", "request"])))]
pub(crate) struct Import {
    /// A key export: of `capstan keys export`, or of a cluster
    file: PathBuf,
    /// Ask that its keys join this group
    #[arg(long, value_name = "NAME")]
    group: Option<Name>,
    /// Carry out what was asked for and approved
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// The passphrase of the export is in a file [default: asked for]
    #[arg(long, value_name = "FILE", requires = "request")]
    passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    ask: Ask,
}

/// Exports that were carried out.
#[derive(Debug, Subcommand)]
pub(crate) enum Exports {
    /// List them
    List(Ask),
    /// Say that all copies of exports were destroyed, and all that they were imported into
    Destroyed {
        /// The exports, as `keyd exports list` names them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        ask: Ask,
    },
}

pub(super) fn exports(asked: &Exports) -> anyhow::Result<()> {
    let (ask, items) = match asked {
        Exports::List(ask) => (ask, ask.get("/v1/exports")?),
        Exports::Destroyed { ids, ask } => {
            let noted = |id: &String| ask.post(&format!("/v1/exports/{}/destroyed", id_of(id)?), &json!({}));
            (ask, ids.iter().map(noted).collect::<anyhow::Result<Vec<Value>>>()?)
        }
    };
    ask.list(&items, &["id", "made", "by", "what", "keys", "destroyed"]);
    Ok(())
}

pub(super) fn export(asked: &Export) -> anyhow::Result<()> {
    if let (Some(request), Some(out)) = (&asked.request, &asked.out) {
        return fetch(asked, request, out);
    }
    let what = match (&asked.group, &asked.unit) {
        (Some(group), _) => ExportWhat::Group(group.clone()),
        (None, Some(unit)) => ExportWhat::Unit(unit.clone()),
        (None, None) => ExportWhat::All,
    };
    let requested: Requested = asked.ask.post("/v1/exports", &AskExport { what })?;
    asked.ask.waits(&requested)?;
    asked.ask.then(&format!("`keyd keys export --request {} --out FILE`", requested.id));
    Ok(())
}

/// Everything that can fail here is tried before the node is asked, for it gives the keys once.
fn fetch(asked: &Export, request: &str, out: &Path) -> anyhow::Result<()> {
    let (us, client, id) = (me(&asked.ask)?, client(&asked.ask.asking)?, id_of(request)?);
    let file = create(out)?;
    let made = sealed(asked, &us, &client, id).and_then(|(bytes, keys, stay)| {
        written(file, &bytes, out)?;
        Ok((keys, stay))
    });
    let (keys, stay) = made.inspect_err(|_| {
        // Not whole: it would be taken for an export.
        let _ = fs::remove_file(out);
    })?;
    println!("{} holds {keys} keys, sealed under its passphrase; each was opened again", out.display());
    if stay > 0 {
        eprintln!("{stay} keys are not in it: by policy they never leave the cluster, and only its backups hold them.");
    }
    Ok(())
}

fn sealed(asked: &Export, us: &PeerId, client: &NodeClient, id: RequestId) -> anyhow::Result<(Vec<u8>, usize, usize)> {
    let passphrase = new_passphrase("passphrase of the export", asked.passphrase_file.as_deref())?;
    let ours = KeyRequest::new()?;
    let question = CarryOutExport { public: ours.public() };
    let mut tries = 1;
    let given: ExportGiven = loop {
        match client.post(&format!("/v1/exports/{id}"), &question) {
            Err(ClusterError::AllGone(_)) if tries < TRIES => tries += 1,
            answer => break answer?,
        }
    };
    let key = ours.accept(&given.key.handed_over, us, &id, &given.key.tag, ExportKey::ALGORITHM)?;
    let bytes = seal_export(&given.wrapped.0, &ExportKey::from(key), &passphrase, cost())?;
    let keys = opened(&bytes, &passphrase).context("what the node gave is no export of keys")?;
    Ok((bytes, keys, given.stay))
}

/// Opens an export as whoever needs it will, and counts its keys.
fn opened(bytes: &[u8], passphrase: &Zeroizing<String>) -> anyhow::Result<usize> {
    let export = KeyExport::read(bytes)?;
    let export_key = export.export_key(passphrase)?;
    Ok(export.open(&export_key)?.len())
}

fn written(mut file: File, bytes: &[u8], out: &Path) -> anyhow::Result<()> {
    let failed = || format!("{} cannot be written: ask for another export", out.display());
    file.write_all(bytes).and_then(|()| file.sync_all()).with_context(failed)?;
    sync_folder(out).with_context(failed)
}

pub(super) fn import(asked: &Import) -> anyhow::Result<()> {
    let bytes = fs::read(&asked.file).with_context(|| format!("{} cannot be read", asked.file.display()))?;
    let export = KeyExport::read(&bytes)?;
    let Some(request) = &asked.request else {
        let group = asked.group.clone().context("name the group that the keys join: --group")?;
        let question = AskImport { group, keys: export.keys(), sha256: sha256(&bytes) };
        let requested: Requested = asked.ask.post("/v1/imports", &question)?;
        asked.ask.waits(&requested)?;
        asked.ask.then(&format!("`keyd keys import {} --request {}`", asked.file.display(), requested.id));
        return Ok(());
    };
    let (us, client, id) = (me(&asked.ask)?, client(&asked.ask.asking)?, id_of(request)?);
    let passphrase = passphrase("passphrase of the export", asked.passphrase_file.as_deref())?;
    let export_key = export.export_key(&passphrase)?;
    let path = format!("/v1/imports/{id}");
    let ImportReady { public } = client.get(&path)?;
    let handed_over = hand_over(export_key.key(), &public, &us, &id)?;
    let key = SentExportKey { tag: export_key.key().tag(), handed_over };
    let taken: Vec<KeyTaken> = client
        .post(&path, &CarryOutImport { export: Base64(bytes.clone()), key })
        .context("not all keys may be there: say the same again, which is safe")?;
    let taken = taken.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    asked.ask.list(&taken, &["key", "volume", "outcome", "state", "destroyed"]);
    Ok(())
}

/// Who asks, as keys are handed over to them.
fn me(ask: &Ask) -> anyhow::Result<PeerId> {
    Ok(Identity::load(&ask.asking.identity)?.certificate().peer.clone())
}

/// The id of a request, which keys are bound to on their way.
fn id_of(text: &str) -> anyhow::Result<RequestId> {
    text.parse().ok().with_context(|| format!("{text:?} is no request: `keyd pending list` names them"))
}

fn sha256(bytes: &[u8]) -> String {
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
