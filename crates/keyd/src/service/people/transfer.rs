//! Keys that leave the cluster, and keys of other stores that come to it. What goes over the wire: `capstan_keys::api`, "transfer".
//!
//! Both are asked of the quorum like all else, and carried out by whoever asked, once: it takes a passphrase or a file that only they
//! have. What was given out is on record at `export/ID`, so that a key's copies can be accounted for; the same question again, whose answer
//! was lost, is answered again. An import goes in volume by volume and may be repeated until all of it is there.

use std::collections::BTreeMap;

use axum::Json;
use capstan_format::Volser;
use capstan_keys::api::{
    AskExport, AskImport, Base64, CarryOutExport, CarryOutImport, ExportGiven, ExportWhat, ImportReady, KeyTaken,
    Problem, RequestId, Requested, SentExportKey,
};
use capstan_keys::cluster::{HandOverFailed, KeyRequest, hand_over};
use capstan_keys::{
    ExportKey, ExportedKey, ImportOutcome, ImportedKey, KeyExport, KeyState, Name, Permission, StoredKey,
    wrap_for_export,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::super::openapi::Paths;
use super::exports::{ExportRecord, export_path, record_of};
use super::proposal::{Proposal, fingerprint};
use super::queue::{self, execute_own, id_of};
use super::{Of, Person, broken, time};
use crate::authority::{Act, PendingId};
use crate::desk::{Answer, Asked, Decided, DeskError, Operation, decide, open};
use crate::door::{Input, Refusal};
use crate::node::{Node, NodeError};
use crate::record::IssuedRecord;
use crate::state::View;

/// Keys of one export: its answer stays below what clients read.
const EXPORT_KEYS_MAX: usize = 30_000;
/// For how long an export whose answer was lost is answered again.
const ANSWERED_AGAIN_NS: i64 = 15 * 60 * 1_000_000_000;
/// Keys of one volume that are imported in one commit.
const KEYS_AT_ONCE: usize = 40;
/// Keys of one import: its request stays below what the door takes.
const IMPORT_KEYS_MAX: usize = 4_000;
/// Volumes of an import that are committed at a time.
const AT_A_TIME: usize = 16;
/// Each request for an import has a key of its own.
const IMPORT_PURPOSE: &str = "capstan keyd import v1";

pub(super) fn routes() -> Paths {
    Paths::new()
        .post("/v1/exports", Act::ExportKeys, ask_export)
        .post("/v1/exports/{id}", Act::ExportKeys, export)
        .post("/v1/imports", Act::ImportKeys, ask_import)
        .get("/v1/imports/{id}", Act::ImportKeys, ready)
        .post("/v1/imports/{id}", Act::ImportKeys, import)
}

/// Keys that an export holds.
pub(super) struct Leaving<'a> {
    keys: Vec<&'a IssuedRecord>,
    /// Keys that were asked for and by policy never leave.
    stay: usize,
}

/// The keys of an export, or which policy forbids it.
pub(super) fn leaving<'a>(view: View<'a>, what: &ExportWhat) -> Result<Leaving<'a>, Refusal> {
    let realm = view.ledger().realm();
    let exists = |key: &&IssuedRecord| !matches!(key.stored.record.state, KeyState::Generated | KeyState::Destroyed);
    let (keys, stay) = match what {
        ExportWhat::All => {
            let (keys, stay): (Vec<_>, Vec<_>) = view.ledger().keys().filter(exists).partition(|key| {
                realm.policy_of(&key.issued.group).is_ok_and(|policy| policy.export == Permission::Allowed)
            });
            (keys, stay.len())
        }
        ExportWhat::Group(group) => {
            let policy = realm.policy_of(group).map_err(refused)?;
            if policy.export == Permission::Forbidden {
                let detail =
                    format!("The keys of group {group} never leave the cluster: policy {} says so.", policy.name);
                return Err(Problem::new(403, "refused", "The rules forbid it", detail).into());
            }
            (view.ledger().keys().filter(exists).filter(|key| key.issued.group == *group).collect(), 0)
        }
        ExportWhat::Unit(volser) => {
            let unknown = || Refusal::not_found(format!("No key was ever issued for volume {volser}."));
            let unit = view.unit(volser).ok_or_else(unknown)?;
            let keys: Vec<_> =
                unit.keys.iter().filter_map(|issued| view.ledger().key(&issued.tag)).filter(exists).collect();
            keys.iter().try_for_each(|key| realm.check_export(&key.stored.record)).map_err(refused)?;
            (keys, 0)
        }
    };
    match keys.len() {
        0 => Err(Refusal::conflict("There is no key that could leave: each was destroyed, or is kept by its policy.")),
        1..=EXPORT_KEYS_MAX => Ok(Leaving { keys, stay }),
        many => Err(Refusal::conflict(format!(
            "These are {many} keys, and an export has at most {EXPORT_KEYS_MAX}: export group by group, or unit by unit."
        ))),
    }
}

async fn ask_export(person: Person, Input(AskExport { what }): Input<AskExport>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ExportKeys).await?;
    queue::request(&person, Proposal::ExportKeys { what }, None).await.map(Json)
}

async fn export(
    person: Person,
    Of(id): Of<String>,
    Input(CarryOutExport { public }): Input<CarryOutExport>,
) -> Result<Json<ExportGiven>, Refusal> {
    person.permitted(Act::ExportKeys).await?;
    let id = id_of(&id)?;
    let export_key = ExportKey::random().map_err(|error| broken(&error))?;
    let handed_over =
        hand_over(export_key.key(), &public, &person.peer.id, &RequestId(id.0)).map_err(not_handed_over)?;
    let noted = person.entry(Act::ExportKeys).of("pending", id).with("carried-out", "keys leave the cluster");
    let exporting = async {
        person
            .change(|view| {
                let again = |made: &ExportRecord| {
                    let is_young = person.node.now_ns().saturating_sub(made.made_ns) <= ANSWERED_AGAIN_NS;
                    made.public == public && made.by == person.user.name && is_young
                };
                if record_of(view, id).as_ref().is_some_and(again) {
                    return Ok(Decided::records(Vec::new(), Vec::new()));
                }
                let (mandate, mut decided) = execute_own(&person, view, id, Act::ExportKeys)?;
                let Some(Proposal::ExportKeys { what }) = Proposal::read(mandate.act(), mandate.arguments()) else {
                    return Err(Refusal::failed());
                };
                let (keys, made_ns) = (leaving(view, &what)?.keys.len(), person.node.now_ns());
                let (by, public) = (person.user.name.clone(), public.clone());
                let made = ExportRecord { by, what, keys, made_ns, public, destroyed_ns: None };
                let made = serde_json::to_vec(&made).map_err(|error| broken(&error))?;
                decided.puts.push((export_path(id), made));
                Ok(decided)
            })
            .await?;
        let node = person.node.clone();
        let wrapping =
            move || wrapped(&node, id, &export_key).map(|(wrapped, stay)| (wrapped, stay, export_key.key().tag()));
        tokio::task::spawn_blocking(wrapping).await.map_err(|error| broken(&error))?
    };
    let (wrapped, stay, tag) = person.does(noted, exporting).await?;
    person.service.anchor_soon();
    Ok(Json(ExportGiven { key: SentExportKey { tag, handed_over }, wrapped: Base64(wrapped), stay }))
}

/// The keys of an export that is on record, each opened and wrapped for it.
fn wrapped(node: &Node, id: PendingId, export_key: &ExportKey) -> Result<(Vec<u8>, usize), Refusal> {
    node.view(|view| {
        let made = record_of(view, id).ok_or_else(Refusal::failed)?;
        let Leaving { mut keys, stay } = leaving(view, &made.what)?;
        // What came since was approved by nobody.
        keys.retain(|key| key.issued.issued_ns <= made.made_ns);
        keys.sort_by_key(|key| (key.volser(), key.issued.issued_ns, key.stored.record.tag));
        let opened = keys.into_iter().map(|key| {
            let opened = open(view, node.keys(), key).map_err(refused)?;
            Ok(ExportedKey { record: key.stored.record.clone(), key: opened })
        });
        let opened = opened.collect::<Result<Vec<_>, Refusal>>()?;
        Ok((wrap_for_export(&opened, export_key).map_err(|error| broken(&error))?, stay))
    })
}

async fn ask_import(person: Person, Input(asked): Input<AskImport>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ImportKeys).await?;
    let AskImport { group, keys, sha256 } = asked;
    if sha256.len() != 64 || !sha256.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(Refusal::malformed("The digest of an export is 64 hexadecimal digits."));
    }
    let keys = match keys {
        0 => return Err(Refusal::malformed("The export holds no key.")),
        1..=IMPORT_KEYS_MAX => keys as u32,
        many => return Err(too_many(many)),
    };
    queue::request(&person, Proposal::ImportKeys { group, keys, sha256 }, None).await.map(Json)
}

/// What the key of the file is handed over to: whichever node is asked answers for all of them.
async fn ready(person: Person, Of(id): Of<String>) -> Result<Json<ImportReady>, Refusal> {
    person.permitted(Act::ImportKeys).await?;
    Ok(Json(ImportReady { public: import_request(&person.node, id_of(&id)?)?.public() }))
}

async fn import(
    person: Person,
    Of(id): Of<String>,
    Input(CarryOutImport { export, key }): Input<CarryOutImport>,
) -> Result<Json<Vec<KeyTaken>>, Refusal> {
    person.permitted(Act::ImportKeys).await?;
    let id = id_of(&id)?;
    let (mandate, _) = person.node.view(|view| execute_own(&person, view, id, Act::ImportKeys))?;
    let Some(Proposal::ImportKeys { group, keys, sha256 }) = Proposal::read(mandate.act(), mandate.arguments()) else {
        return Err(Refusal::failed());
    };
    if fingerprint(&export.0) != sha256 {
        return Err(Refusal::conflict(format!("The quorum approved another file, whose SHA-256 is {sha256}.")));
    }
    let volumes = opened(&person, id, &group, &export.0, &key)?;
    let found: usize = volumes.values().map(Vec::len).sum();
    if found != keys as usize {
        let detail = format!(
            "The quorum approved {keys} keys, and the file has {found}: ask again, with `keyd keys import FILE`."
        );
        return Err(Refusal::conflict(detail));
    }
    let noted = person.entry(Act::ImportKeys).of("pending", id).with("group", &group);
    let importing = async {
        // All of it or nothing, as far as it can be known: what contradicts the records is told before anything changes.
        person.node.view(|view| {
            let operations = volumes.iter().map(|(volser, keys)| operation(volser, &group, keys));
            operations
                .map(|operation| asked(&person, id, operation))
                .try_for_each(|asked| decide(view, person.node.keys(), &asked).map(drop).map_err(refused))
        })?;
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
        person.change(|view| execute_own(&person, view, id, Act::ImportKeys).map(|(_, decided)| decided)).await?;
        Ok(answers)
    };
    let answers = person.does(noted, importing).await?;
    person.service.anchor_soon();
    let taken = answers.into_iter().flatten().flat_map(|answered| match answered.answer {
        Answer::Imported(keys) => keys,
        Answer::Key(_) | Answer::Retired(_) | Answer::Record(_) | Answer::Done | Answer::Late => Vec::new(),
    });
    Ok(Json(taken.map(said).collect()))
}

/// The keys of a file, each wrapped under the key of the group that it joins, by volume.
fn opened(
    person: &Person,
    id: PendingId,
    group: &Name,
    export: &[u8],
    sent: &SentExportKey,
) -> Result<BTreeMap<Volser, Vec<StoredKey>>, Refusal> {
    let malformed = |error: capstan_keys::KeyError| Refusal::malformed(error.to_string());
    let decoded = KeyExport::read(export).map_err(malformed)?;
    if decoded.keys() > IMPORT_KEYS_MAX {
        return Err(too_many(decoded.keys()));
    }
    let request = import_request(&person.node, id)?;
    let accepted =
        request.accept(&sent.handed_over, &person.peer.id, &RequestId(id.0), &sent.tag, ExportKey::ALGORITHM);
    let export_key = accepted.map(ExportKey::from).map_err(not_handed_over)?;
    let keys = decoded.open(&export_key).map_err(malformed)?;
    let unknown = || refused(capstan_keys::Refusal::UnknownGroup { group: group.clone() });
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

fn too_many(keys: usize) -> Refusal {
    Refusal::conflict(format!(
        "The export holds {keys} keys, and one import takes {IMPORT_KEYS_MAX}: make several (`capstan keys export --volume`)."
    ))
}

fn refused(error: impl Into<DeskError>) -> Refusal {
    NodeError::from(error.into()).into()
}

fn not_handed_over(error: HandOverFailed) -> Refusal {
    match error {
        HandOverFailed::NotForUs => Refusal::malformed("The key was not handed over for this request."),
        HandOverFailed::Host(error) => broken(&error),
    }
}
