//! Keys that leave the cluster, and keys of other stores that come to it. What goes over the wire: `capstan_keys::api`,
//! "transfer".
//!
//! Both are asked of the quorum like all else, and carried out by whoever asked, once: it takes a passphrase or a file
//! that only they have. What was given out is on record at `export/ID`, so that a key's copies can be accounted for;
//! the same question again, whose answer was lost, is answered again, and the rest of it part by part
//! ([`super::leaving`]). An import goes in volume by volume and may be repeated until all of it is there.

use std::collections::BTreeMap;

use axum::Json;
use capstan_format::Volser;
use capstan_keys::api::{
    AskExport, AskImport, Base64, CarryOutExport, CarryOutImport, ExportGiven, ImportReady, ImportStep, KeyTaken,
    RequestId, Requested, SentExportKey,
};
use capstan_keys::cluster::{HandOverFailed, KeyRequest, hand_over};
use capstan_keys::{
    ExportKey, ExportedKey, ImportOutcome, ImportedKey, Name, StoredKey, VolumeKey, open_records, records_of,
    wrap_for_export,
};
use capstan_service::problem::{Input, Refusal};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::super::access::NodeRoutes;
use super::super::export_record::{ExportRecord, export_path, record_of};
use super::super::request_id::id_of;
use super::arriving::Approved;
use super::leaving::{Part, count, left_out, part, refused};
use super::proposal::Proposal;
use super::queue::{self, execute_own};
use super::{Of, Person, broken, time};
use crate::authority::{Act, PendingId};
use crate::desk::{Answer, Asked, Decided, Operation, decide};
use crate::node::{Node, NodeError};
use crate::state::View;

/// Keys of one part of an export: some seconds of work, and an answer well below what clients read.
const EXPORT_KEYS_MAX: usize = 8_192;
/// For how long whoever began an export is given the rest of it, and what was lost on the way again.
const ANSWERED_AGAIN_NS: i64 = 24 * 3600 * 1_000_000_000;
/// Each request for an export has a key of its own.
const EXPORT_PURPOSE: &str = "capstan keyd export v1";
/// Keys of one volume that are imported in one commit.
const KEYS_AT_ONCE: usize = 40;
/// Volumes of an import that are committed at a time.
const AT_A_TIME: usize = 16;
/// Each request for an import has a key of its own.
const IMPORT_PURPOSE: &str = "capstan keyd import v1";

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .post("/v1/exports", Act::ExportKeys, ask_export)
        .post("/v1/exports/{id}", Act::ExportKeys, export)
        .post("/v1/imports", Act::ImportKeys, ask_import)
        .get("/v1/imports/{id}", Act::ImportKeys, ready)
        .post("/v1/imports/{id}", Act::ImportKeys, import)
}

async fn ask_export(person: Person, Input(AskExport { what }): Input<AskExport>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ExportKeys).await?;
    let (node, counted) = (person.node.clone(), what.clone());
    let counting = tokio::task::spawn_blocking(move || count(&node, &counted));
    counting.await.map_err(|error| broken(&error))??;
    queue::request(&person, Proposal::ExportKeys { what }, None).await.map(Json)
}

/// The first question carries the export out; those that follow get the rest of it.
async fn export(
    person: Person,
    Of(id): Of<String>,
    Input(asked): Input<CarryOutExport>,
) -> Result<Json<ExportGiven>, Refusal> {
    person.permitted(Act::ExportKeys).await?;
    let id = id_of(&id)?;
    let CarryOutExport { public, after, keys_max } = asked;
    let export_key = export_key(&person.node, id)?;
    let handed_over =
        hand_over(export_key.key(), &public, &person.peer.id, &RequestId(id.0)).map_err(not_handed_over)?;
    let mut noted = person.entry(Act::ExportKeys).of("pending", id).with("carried-out", "keys leave the cluster");
    if let Some(after) = &after {
        noted = noted.with("behind-volume", &after.volume).with("behind-key", after.key);
    }
    let exporting = async {
        let stay = match &after {
            None => begin(&person, id, &public).await?,
            Some(_) => 0,
        };
        let made =
            person.node.view(|view| record_of(view, id)).filter(|made| is_answered_again(&person, made, &public));
        let made = made.ok_or_else(|| {
            Refusal::conflict("This export was begun by another question: ask the quorum for a new one.")
        })?;
        let (node, what, is_first) = (person.node.clone(), made.what.clone(), after.is_none());
        let keys_max = keys_max.unwrap_or(EXPORT_KEYS_MAX).clamp(1, EXPORT_KEYS_MAX);
        let wrapping = move || {
            let Part { keys, next } = part(&node, &made.what, after, made.until_ns(), keys_max)?;
            let wrapped = wrap_for_export(&keys, &export_key).map_err(|error| broken(&error))?;
            Ok::<_, Refusal>((export_key.key().tag(), wrapped, next))
        };
        let given = tokio::task::spawn_blocking(wrapping).await.map_err(|error| broken(&error))?;
        let left_out = match is_first {
            true => person.node.view(|view| left_out(view, &what)),
            false => (Vec::new(), 0, 0),
        };
        given.map(|(tag, wrapped, next)| (tag, wrapped, next, stay, left_out))
    };
    let (tag, wrapped, next, stay, (unconfirmed, unconfirmed_in_all, recovered)) =
        person.does(noted, exporting).await?;
    if next.is_none() {
        person.service.anchor_soon();
    }
    let (key, wrapped) = (SentExportKey { tag, handed_over }, Base64(wrapped));
    Ok(Json(ExportGiven { key, wrapped, stay, unconfirmed, unconfirmed_in_all, recovered, next }))
}

/// Executes the request and puts the export on record, once. Says how many keys stay.
async fn begin(person: &Person, id: PendingId, public: &Base64) -> Result<usize, Refusal> {
    let what_of = |view: View<'_>| match record_of(view, id).filter(|made| is_answered_again(person, made, public)) {
        Some(made) => Ok((made.what, Decided::records(Vec::new(), Vec::new()))),
        None => {
            let (mandate, decided) = execute_own(person, view, id, Act::ExportKeys)?;
            match Proposal::read(mandate.act(), mandate.arguments()) {
                Some(Proposal::ExportKeys { what }) => Ok((what, decided)),
                _ => Err(Refusal::failed()),
            }
        }
    };
    let (what, _) = person.node.view_or_look_again(what_of).await?;
    let node = person.node.clone();
    let counting = tokio::task::spawn_blocking(move || count(&node, &what));
    let counted = counting.await.map_err(|error| broken(&error))??;
    person
        .change(|view| {
            let (what, mut decided) = what_of(view)?;
            if !decided.puts.is_empty() {
                let (by, public, made_ns) = (person.user.name.clone(), public.clone(), person.node.now_ns());
                let (keys, until_ns) = (counted.keys, counted.last_ns.max(made_ns));
                let made = ExportRecord { by, what, keys, made_ns, until_ns, public, destroyed_ns: None };
                decided.puts.push((export_path(id), serde_json::to_vec(&made).map_err(|error| broken(&error))?));
            }
            Ok(decided)
        })
        .await?;
    Ok(counted.stay)
}

/// Whether a question is of the one that an export was begun by, whose answer was lost or goes on.
fn is_answered_again(person: &Person, made: &ExportRecord, public: &Base64) -> bool {
    let is_young = person.node.now_ns().saturating_sub(made.made_ns) <= ANSWERED_AGAIN_NS;
    made.public == *public && made.by == person.user.name && is_young && made.destroyed_ns.is_none()
}

/// The key of an export: whichever node is asked for a part wraps it under the same one.
fn export_key(node: &Node, id: PendingId) -> Result<ExportKey, Refusal> {
    let secret = node.keys().derive(&id.0, EXPORT_PURPOSE).map_err(|error| broken(&error))?;
    Ok(ExportKey::from(VolumeKey::new(secret, ExportKey::ALGORITHM)))
}

async fn ask_import(person: Person, Input(asked): Input<AskImport>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ImportKeys).await?;
    let AskImport { group, keys, sha256 } = asked;
    if sha256.len() != 64 || !sha256.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(Refusal::malformed("The digest of an export is 64 hexadecimal digits."));
    }
    let keys = match keys {
        0 => return Err(Refusal::malformed("The export holds no key.")),
        keys => u32::try_from(keys).map_err(|_| Refusal::malformed("No file holds so many keys."))?,
    };
    queue::request(&person, Proposal::ImportKeys { group, keys, sha256 }, None).await.map(Json)
}

/// What the key of the file is handed over to: whichever node is asked answers for all of them.
async fn ready(person: Person, Of(id): Of<String>) -> Result<Json<ImportReady>, Refusal> {
    person.permitted(Act::ImportKeys).await?;
    Ok(Json(ImportReady { public: import_request(&person.node, id_of(&id)?)?.public() }))
}

/// A part of a file, to be checked or to be taken ([`super::arriving`]).
async fn import(
    person: Person,
    Of(id): Of<String>,
    Input(CarryOutImport { export, at, is_last, step, key }): Input<CarryOutImport>,
) -> Result<Json<Vec<KeyTaken>>, Refusal> {
    person.permitted(Act::ImportKeys).await?;
    let id = id_of(&id)?;
    let arriving = &person.service.arriving;
    if step == ImportStep::Take {
        arriving.may_be_taken(id, at, &export.0)?;
        if let Some(answer) = arriving.answered(id, at) {
            return Ok(Json(answer));
        }
    }
    let own = |view: View<'_>| execute_own(&person, view, id, Act::ImportKeys);
    let (mandate, _) = person.node.view_or_look_again(own).await?;
    let Some(Proposal::ImportKeys { group, keys, sha256 }) = Proposal::read(mandate.act(), mandate.arguments()) else {
        return Err(Refusal::failed());
    };
    let records = records_of(&export.0, at, is_last).map_err(malformed)?;
    let volumes = opened(&person, id, &group, records, &key)?;
    if step == ImportStep::Check {
        // What contradicts the records is told before anything changes.
        for (volser, keys) in &volumes {
            let asked = asked(&person, id, operation(volser, &group, keys));
            person.node.view(|view| decide(view, person.node.keys(), &asked).map(drop).map_err(refused))?;
        }
        let found = volumes.values().map(Vec::len).sum();
        let last = is_last.then_some(Approved { keys: keys as usize, sha256: &sha256 });
        arriving.checked(id, (at, &export.0), found, last.as_ref())?;
        return Ok(Json(Vec::new()));
    }
    let noted = person.entry(Act::ImportKeys).of("pending", id).with("group", &group).with("at", at);
    let importing = async {
        let one = |(volser, keys): (&Volser, &Vec<StoredKey>)| {
            let parts: Vec<_> = keys.chunks(KEYS_AT_ONCE).map(|part| operation(volser, &group, part)).collect();
            let person = &person;
            // One after the other: each writes the volume's data unit.
            async move {
                let mut answers = Vec::new();
                for part in parts {
                    answers.push(person.node.ask(part, &person.user.name, id.0).await?);
                }
                Ok::<_, NodeError>(answers)
            }
        };
        let answers: Vec<_> = stream::iter(volumes.iter().map(one)).buffered(AT_A_TIME).try_collect().await?;
        let is_done = arriving.taken(id, at);
        if is_done {
            person.change(|view| execute_own(&person, view, id, Act::ImportKeys).map(|(_, decided)| decided)).await?;
        }
        Ok((answers, is_done))
    };
    let (answers, is_done) = person.does(noted, importing).await?;
    let taken = answers.into_iter().flatten().flat_map(|answered| match answered.answer {
        Answer::Imported(keys) => keys,
        Answer::Key(_) | Answer::Retired(_) | Answer::Record(_) | Answer::Done | Answer::Late => Vec::new(),
    });
    let taken: Vec<_> = taken.map(said).collect();
    if is_done {
        arriving.carried_out(id, at, &taken);
        person.service.anchor_soon();
    }
    Ok(Json(taken))
}

/// The keys of a part, each wrapped under the key of the group that it joins, by volume.
fn opened(
    person: &Person,
    id: PendingId,
    group: &Name,
    records: &[u8],
    sent: &SentExportKey,
) -> Result<BTreeMap<Volser, Vec<StoredKey>>, Refusal> {
    let request = import_request(&person.node, id)?;
    let accepted =
        request.accept(&sent.handed_over, &person.peer.id, &RequestId(id.0), &sent.tag, ExportKey::ALGORITHM);
    let export_key = accepted.map(ExportKey::from).map_err(not_handed_over)?;
    let keys = open_records(records, &export_key).map_err(malformed)?;
    let unknown = || refused(capstan_keys::RuleRefusal::UnknownGroup { group: group.clone() });
    let wrapped =
        person.node.view(|view| view.ledger().group(group).map(|record| record.wrapped)).ok_or_else(unknown)?;
    let group_key = person.node.keys().group_key(group, &wrapped).map_err(refused)?;
    let mut volumes: BTreeMap<Volser, Vec<StoredKey>> = BTreeMap::new();
    for ExportedKey { record, key } in keys {
        let wrapped = Some(group_key.wrap(&key).map_err(|error| broken(&error))?);
        volumes.entry(record.volser.clone()).or_default().push(StoredKey { record, wrapped });
    }
    Ok(volumes)
}

fn operation(volser: &Volser, group: &Name, keys: &[StoredKey]) -> Operation {
    Operation::Import { volser: volser.clone(), group: group.clone(), keys: keys.to_vec() }
}

fn asked(person: &Person, id: PendingId, operation: Operation) -> Asked {
    let (by, kma, now_ns) = (person.user.name.clone(), person.node.name().clone(), person.node.now_ns());
    Asked { operation, request: id.0, by, kma, now_ns }
}

fn import_request(node: &Node, id: PendingId) -> Result<KeyRequest, Refusal> {
    let secret = node.keys().derive(&id.0, IMPORT_PURPOSE).map_err(|error| broken(&error))?;
    KeyRequest::derived(&secret).map_err(|error| broken(&error))
}

fn said(ImportedKey { tag, volser, outcome }: ImportedKey) -> KeyTaken {
    let (outcome, state, destroyed) = match outcome {
        ImportOutcome::Added(state) => ("added", Some(state.to_string()), None),
        ImportOutcome::AlreadyPresent => ("known", None, None),
        ImportOutcome::StaysDestroyed { destroyed_ns } => ("destroyed", None, Some(time(destroyed_ns))),
    };
    KeyTaken { key: tag, volume: volser, outcome: outcome.to_owned(), state, destroyed }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn malformed(error: capstan_keys::KeyError) -> Refusal {
    Refusal::malformed(error.to_string())
}

fn not_handed_over(error: HandOverFailed) -> Refusal {
    match error {
        HandOverFailed::NotForUs => Refusal::malformed("The key was not handed over for this request."),
        HandOverFailed::Host(error) => broken(&error),
    }
}
