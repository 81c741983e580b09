//! `keyd keys export`, `keyd keys import`: asked of the quorum first, and carried out with `--request` once it has
//! approved.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use capstan_format::Volser;
use capstan_keys::api::{
    AskExport, AskImport, Base64, CarryOutExport, CarryOutImport, ExportAt, ExportGiven, ExportWhat, ImportReady,
    ImportStep, KeyTaken, PeerId, RequestId, Requested, SentExportKey, UnconfirmedKey,
};
use capstan_keys::cluster::{ClusterError, KeyRequest, NodeClient, hand_over};
use capstan_keys::{ExportKey, ExportPart, ExportReader, ExportWriter, Name, file_digest, open_records};
use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::ask::Ask;
use crate::file::{create, sync_folder};
use crate::outcome::{Completeness, Sealing};
use crate::program::{command, command_of};
use crate::secrets::{new_passphrase, passphrase};
use crate::users;

/// What a node calls the act of asking for an export.
pub const EXPORT_KEYS: &str = "export-keys";
/// And for an import.
pub const IMPORT_KEYS: &str = "import-keys";

/// What a person is asked for.
const PROMPT: &str = "passphrase of the export";
/// How often an export whose answer was lost is asked for: the node knows it again.
const TRIES: u32 = 3;
/// Keys that are sent at a time: what carries them stays below what the node's listener takes.
const SENT_AT_ONCE: usize = 4000;
/// Keys of a file that are opened at a time.
const OPENED_AT_ONCE: usize = 1000;

/// What was asked of the quorum, and is to be carried out now.
#[derive(Debug, Args)]
#[group(id = "approved", multiple = false)]
pub struct Approved {
    /// Carry out the approved request with this id
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// Carry out your own newest request that was approved
    #[arg(long)]
    last: bool,
}

impl Approved {
    /// Which request is meant, where one is to be carried out; `act` is what the node calls what was asked for.
    ///
    /// # Errors
    /// No node answers, or no request of one's own for this was approved.
    pub fn of(&self, ask: &Ask, act: &str) -> anyhow::Result<Option<String>> {
        match &self.request {
            None if self.last => users::newest_approved(ask, act).map(Some),
            request => Ok(request.clone()),
        }
    }
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["all", "group", "unit", "request", "last"])))]
pub struct Export {
    /// Ask for all keys that their policies allow to be exported
    #[arg(long)]
    all: bool,
    /// Ask for the keys of a group
    #[arg(long, value_name = "NAME")]
    group: Option<Name>,
    /// Ask for the keys of a data unit
    #[arg(long, value_name = "BARCODE")]
    unit: Option<Volser>,
    #[command(flatten)]
    approved: Approved,
    /// File to write the keys to, sealed under a passphrase; an existing file is never overwritten
    #[arg(long, value_name = "FILE", requires = "approved", required_unless_present_any = ["all", "group", "unit"], conflicts_with_all = ["all", "group", "unit"])]
    out: Option<PathBuf>,
    /// The passphrase of the export is in a file [default: asked for]
    #[arg(long, value_name = "FILE", requires = "approved", conflicts_with_all = ["all", "group", "unit"])]
    passphrase_file: Option<PathBuf>,
    /// Keys that are fetched at a time [default: as many as the node gives]
    #[arg(long, value_name = "NUMBER", requires = "approved", conflicts_with_all = ["all", "group", "unit"], hide = true)]
    keys_at_once: Option<usize>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["group", "request", "last"])))]
pub struct Import {
    /// A key export: of `capstan keys export`, or of a cluster
    file: PathBuf,
    /// Ask that its keys join this group
    #[arg(long, value_name = "NAME")]
    group: Option<Name>,
    #[command(flatten)]
    approved: Approved,
    /// The passphrase of the export is in a file [default: asked for]
    #[arg(long, value_name = "FILE", requires = "approved", conflicts_with = "group")]
    passphrase_file: Option<PathBuf>,
    /// Keys that are sent at a time [default: as many as the node takes]
    #[arg(long, value_name = "NUMBER", requires = "approved", conflicts_with = "group", hide = true)]
    keys_at_once: Option<usize>,
    #[command(flatten)]
    ask: Ask,
}

/// Exports that were carried out.
#[derive(Debug, Subcommand)]
pub enum Exports {
    /// List them
    List(Ask),
    /// Confirm that all copies of exports were destroyed, and everything that they were imported into
    #[command(alias = "destroyed")]
    ConfirmDestroyed {
        /// The exports, as `keyd exports list` names them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        ask: Ask,
    },
}

pub(crate) fn exports(asked: &Exports) -> anyhow::Result<()> {
    let (ask, items) = match asked {
        Exports::List(ask) => (ask, ask.get("/v1/exports")?),
        Exports::ConfirmDestroyed { ids, ask } => {
            let noted = |id: &String| ask.post(&format!("/v1/exports/{}/destroyed", id_of(id)?), &json!({}));
            (ask, ids.iter().map(noted).collect::<anyhow::Result<Vec<Value>>>()?)
        }
    };
    ask.list(&items, &["id", "made", "by", "what", "keys", "destroyed"]);
    Ok(())
}

pub(crate) fn export(asked: &Export, sealing: Sealing) -> anyhow::Result<Completeness> {
    if let (Some(request), Some(out)) = (asked.approved.of(&asked.ask, EXPORT_KEYS)?, &asked.out) {
        return fetch(asked, &request, out, sealing);
    }
    let what = match (&asked.group, &asked.unit) {
        (Some(group), _) => ExportWhat::Group(group.clone()),
        (None, Some(unit)) => ExportWhat::Unit(unit.clone()),
        (None, None) => ExportWhat::All,
    };
    let requested: Requested = asked.ask.post("/v1/exports", &AskExport { what })?;
    asked.ask.waits(&requested)?;
    asked.ask.then(&command_of(
        &format!("keys export --request {} --out FILE", requested.id),
        &format!("export FILE --request {}", requested.id),
    ));
    Ok(Completeness::Whole)
}

/// Everything that can fail here is tried before the node is asked, for it gives the keys once.
fn fetch(asked: &Export, request: &str, out: &Path, sealing: Sealing) -> anyhow::Result<Completeness> {
    let (us, client, id) = (asked.ask.own_id()?, asked.ask.asking.client()?, id_of(request)?);
    let file = create(out)?;
    let made = sealed(asked, &us, &client, id, file, sealing).and_then(|made| {
        sync_folder(out).with_context(|| format!("{} cannot be written: ask for another export", out.display()))?;
        Ok(made)
    });
    let (keys, LeftOut { stay, unconfirmed, unconfirmed_in_all, recovered }) = made.inspect_err(|_| {
        // Not whole: it would be taken for an export.
        let _ = fs::remove_file(out);
    })?;
    println!("{} holds {keys} keys, sealed under its passphrase; each was opened again", out.display());
    if stay > 0 {
        eprintln!("{stay} keys are not in it: by policy they never leave the cluster, and only its backups hold them.");
    }
    for UnconfirmedKey { volume, key } in &unconfirmed {
        eprintln!(
            "not in the export: key {key} of volume {volume}. A lost node gave it out, and its group must be confirmed \
             first (`keyd keys confirm {key} --group GROUP`)"
        );
    }
    if unconfirmed_in_all > unconfirmed.len() {
        eprintln!("not in it: {} more keys like these (`keyd keys list`)", unconfirmed_in_all - unconfirmed.len());
    }
    if recovered > 0 {
        eprintln!(
            "not in the export: {recovered} keys of lost nodes that no volume has named yet (`keyd keys recovered`). \
             Volumes that were written through such a node while it was cut off may be encrypted with them: read each \
             of these volumes once, confirm its key, and export again."
        );
    }
    Ok(if unconfirmed_in_all + recovered > 0 { Completeness::InPart } else { Completeness::Whole })
}

/// What is not in an export.
struct LeftOut {
    stay: usize,
    unconfirmed: Vec<UnconfirmedKey>,
    unconfirmed_in_all: usize,
    recovered: usize,
}

/// Fetches the keys part by part, each of which goes to the file at once: a million of them need no more memory than a
/// part.
fn sealed(
    asked: &Export,
    us: &PeerId,
    client: &NodeClient,
    id: RequestId,
    file: File,
    Sealing { cost, passphrase }: Sealing,
) -> anyhow::Result<(usize, LeftOut)> {
    let passphrase = match passphrase {
        Some(given) => given,
        None => new_passphrase(PROMPT, asked.passphrase_file.as_deref())?,
    };
    let ours = KeyRequest::new()?;
    let part = |after: Option<ExportAt>| -> anyhow::Result<(ExportGiven, ExportKey)> {
        let question = CarryOutExport { public: ours.public(), after, keys_max: asked.keys_at_once };
        let mut tries = 1;
        let given: ExportGiven = loop {
            match client.post(&format!("/v1/exports/{id}"), &question) {
                Err(ClusterError::AllGone(_)) if tries < TRIES => tries += 1,
                answer => break answer?,
            }
        };
        let key = ours.accept(&given.key.handed_over, us, &id, &given.key.tag, ExportKey::ALGORITHM)?;
        Ok((given, ExportKey::from(key)))
    };
    let (given, export_key) = part(None)?;
    let ExportGiven { stay, unconfirmed, unconfirmed_in_all, recovered, .. } = given;
    let left_out = LeftOut { stay, unconfirmed, unconfirmed_in_all, recovered };
    let (tag, mut next) = (given.key.tag, given.next);
    let mut export = ExportWriter::begin(file, &export_key, &passphrase, cost)?;
    export.add(&given.wrapped.0)?;
    while next.is_some() {
        let (given, _) = part(next)?;
        anyhow::ensure!(given.key.tag == tag, "the node gave a part of another export: ask for another export");
        export.add(&given.wrapped.0)?;
        next = given.next;
    }
    let (file, keys) = export.finish()?;
    file.sync_all()?;
    let opened = opened(file, &passphrase).context("what the node gave is no export of keys")?;
    anyhow::ensure!(opened == keys, "what was written differs from what was sent: the medium is at fault");
    Ok((keys, left_out))
}

/// Opens an export as whoever needs it will, and counts its keys.
fn opened(file: File, passphrase: &Zeroizing<String>) -> anyhow::Result<usize> {
    let mut export = ExportReader::open(file)?;
    let export_key = export.export_key(passphrase)?;
    export.check(&export_key)?;
    let mut keys = 0;
    loop {
        let records = export.records(OPENED_AT_ONCE)?;
        if records.is_empty() {
            return Ok(keys);
        }
        keys += open_records(&records, &export_key)?.len();
    }
}

pub(crate) fn import(asked: &Import, sealing: Sealing) -> anyhow::Result<()> {
    let unreadable = || format!("{} cannot be read", asked.file.display());
    let mut export = ExportReader::open(File::open(&asked.file).with_context(unreadable)?)?;
    let Some(request) = asked.approved.of(&asked.ask, IMPORT_KEYS)? else {
        let group = asked.group.clone().context("name the group that the keys join: --group")?;
        let (_, sha256) = file_digest(&asked.file).with_context(unreadable)?;
        let question = AskImport { group, keys: export.keys(), sha256 };
        let requested: Requested = asked.ask.post("/v1/imports", &question)?;
        asked.ask.waits(&requested)?;
        asked.ask.then(&command_of(
            &format!("keys import {} --request {}", asked.file.display(), requested.id),
            &format!("import {} --request {}", asked.file.display(), requested.id),
        ));
        return Ok(());
    };
    let (us, client, id) = (asked.ask.own_id()?, asked.ask.asking.client()?, id_of(&request)?);
    let passphrase = match sealing.passphrase {
        Some(given) => given,
        None => passphrase(PROMPT, asked.passphrase_file.as_deref())?,
    };
    let export_key = export.export_key(&passphrase)?;
    export.check(&export_key)?;
    let path = format!("/v1/imports/{id}");
    let ImportReady { public } = client.get(&path)?;
    let handed_over = hand_over(export_key.key(), &public, &us, &id)?;
    let key = SentExportKey { tag: export_key.key().tag(), handed_over };
    let keys_max = asked.keys_at_once.unwrap_or(SENT_AT_ONCE).min(SENT_AT_ONCE);
    let mut taken = Vec::new();
    // The node sees all of the file before it takes any of it.
    for step in [ImportStep::Check, ImportStep::Take] {
        export.rewind()?;
        while let Some(ExportPart { at, bytes, is_last }) = export.part(keys_max)? {
            let question = CarryOutImport { export: Base64(bytes), at, is_last, step, key: key.clone() };
            let mut tries = 1;
            let answer: Vec<KeyTaken> = loop {
                match client.post(&path, &question) {
                    Err(ClusterError::AllGone(_)) if tries < TRIES => tries += 1,
                    answer => break answer.context("some keys may be missing: run it again, which is safe")?,
                }
            };
            for key in answer {
                taken.push(serde_json::to_value(key)?);
            }
        }
    }
    asked.ask.list(&taken, &["key", "volume", "outcome", "state", "destroyed"]);
    Ok(())
}

/// The id of a request, which keys are bound to on their way.
///
/// # Errors
/// It is none.
pub fn id_of(text: &str) -> anyhow::Result<RequestId> {
    text.parse().ok().with_context(|| format!("{text:?} is no request: {} lists them", command("pending list")))
}
