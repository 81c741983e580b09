//! What a compromise exposes, and the plan for it.

use axum::Json;
use axum::extract::Query;
use capstan_format::KeyTag;
use capstan_keys::Name;
use capstan_keys::api::PeerKind;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::super::openapi::Paths;
use super::super::registrar::CertificateRecord;
use super::exports::Known as Exports;
use super::queue::id_of;
use super::{Person, broken};
use crate::audit::log_files;
use crate::authority::Act;
use crate::door::Refusal;
use crate::exposure::{Exported, Handed, RekeyPlan, Suspect, View as Known, exports_of, exposure};
use crate::node::Node;
use crate::record::IssuedRecord;
use crate::state::View;

pub(super) fn routes() -> Paths {
    Paths::new().get("/v1/exposure", Act::ReadExposure, exposed).get("/v1/rekey-plan", Act::PlanRekey, plan)
}

/// Who or what is suspected: one of the four.
#[derive(Deserialize, JsonSchema)]
struct Suspected {
    agent: Option<Name>,
    key: Option<String>,
    kma: Option<Name>,
    export: Option<String>,
    since: Option<Timestamp>,
}

async fn exposed(person: Person, Query(asked): Query<Suspected>) -> Result<Json<Value>, Refusal> {
    answer(person, Act::ReadExposure, asked).await
}

async fn plan(person: Person, Query(asked): Query<Suspected>) -> Result<Json<Value>, Refusal> {
    answer(person, Act::PlanRekey, asked).await
}

async fn answer(person: Person, act: Act, asked: Suspected) -> Result<Json<Value>, Refusal> {
    person.permitted(act).await?;
    let suspect = suspect(asked)?;
    person.service.note(person.entry(act)).await?;
    let directory = person.service.audit_directory.clone();
    let handed = tokio::task::spawn_blocking(move || handed_by_log(&directory)).await;
    let handed = handed.map_err(|error| broken(&error))?.map_err(|error| broken(&error))?;
    let (node, suspected) = (person.node.clone(), suspect.clone());
    let known = tokio::task::spawn_blocking(move || known(&node, handed, &suspected)).await;
    let known = known.map_err(|error| broken(&error))?;
    let is_known = match &suspect {
        Suspect::Agent { name, .. } => {
            known.handed.iter().any(|handed| handed.agent == *name)
                || person.node.view(|view| had_certificate(view, name))
        }
        Suspect::Key(tag) => known.keys.contains_key(tag),
        Suspect::Kma(name) => {
            person.node.view(|view| view.ledger().kmas().contains_key(name) || view.ledger().removed(name).is_some())
        }
        Suspect::Export(id) => known.exports.iter().any(|export| export.id == *id),
    };
    if !is_known {
        // Nothing exposed, and a name that was misspelt, must not look the same.
        return Err(Refusal::not_found(match suspect {
            Suspect::Agent { name, .. } => format!("There never was an agent {name}: `keyd agents list`."),
            Suspect::Key(tag) => format!("There is no key {tag}: `keyd keys list`."),
            Suspect::Kma(name) => format!("There never was a node {name}: `keyd kmas list`."),
            Suspect::Export(id) => format!("There never was an export {id}: `keyd exports list`."),
        }));
    }
    let plan = RekeyPlan::new(suspect.clone(), exports_of(&known, &suspect), exposure(&known, &suspect));
    // What other nodes gave out for reading stands in their logs, not in this one.
    let logs = [person.service.name().to_string()];
    Ok(Json(json!({ "plan": plan.to_json(), "words": plan.to_string(), "logs_read": logs })))
}

/// All that is known of keys, volumes and exports, looked at a slice at a time: a million keys keep nobody waiting.
fn known(node: &Node, mut handed: Vec<Handed>, suspect: &Suspect) -> Known {
    let all = node.view(Exports::all);
    let matters = |id: &str, tag: &KeyTag| match suspect {
        Suspect::Key(suspected) => suspected == tag,
        Suspect::Export(suspected) => suspected == id,
        Suspect::Agent { .. } | Suspect::Kma(_) => false,
    };
    let exported = |export: &Exports| Exported {
        id: export.id.clone(),
        by: export.record.by.clone(),
        made_ns: export.record.made_ns,
        destroyed_ns: export.record.destroyed_ns,
        keys: BTreeSet::new(),
    };
    let mut exports: Vec<_> = all.iter().map(exported).collect();
    let mut keys = BTreeMap::new();
    let pick = |view: View<'_>, key: &IssuedRecord| {
        let record = key.stored.record.clone();
        let has = |export: &Exports| matters(&export.id, &record.tag) && export.has(view, key);
        let left_in: Vec<usize> = (0..all.len()).filter(|&at| has(&all[at])).collect();
        let (agent, kma, at_ns) = (key.origin.agent.clone(), key.origin.kma.clone(), key.issued.issued_ns);
        (Handed { tag: record.tag, agent, kma, at_ns }, left_in, record)
    };
    node.walk_keys(pick, |slice| {
        for (issued, left_in, record) in slice {
            left_in.into_iter().for_each(|at| {
                exports[at].keys.insert(record.tag);
            });
            keys.insert(record.tag, record);
            handed.push(issued);
        }
    });
    let mut units = Vec::new();
    node.walk_units(|_, unit| unit.clone(), |slice| units.extend(slice));
    Known { units, keys, handed, removed_kmas: BTreeMap::new(), exports }
}

/// Whether there ever was an agent of that name.
fn had_certificate(view: View<'_>, name: &Name) -> bool {
    let mut records = view.ledger().others("certificate/");
    records.any(|(_, bytes)| {
        serde_json::from_slice::<CertificateRecord>(bytes)
            .is_ok_and(|record| record.peer.kind == PeerKind::Agent && record.peer.name == *name)
    })
}

fn suspect(asked: Suspected) -> Result<Suspect, Refusal> {
    let since_ns = asked.since.and_then(|since| i64::try_from(since.as_nanosecond()).ok());
    match (asked.agent, asked.key, asked.kma, asked.export) {
        (Some(name), None, None, None) => Ok(Suspect::Agent { name, since_ns }),
        (None, Some(key), None, None) => {
            let tag = key.parse().map_err(|_| Refusal::malformed(format!("{key:?} is no tag of a key.")))?;
            Ok(Suspect::Key(tag))
        }
        (None, None, Some(name), None) => Ok(Suspect::Kma(name)),
        (None, None, None, Some(id)) => Ok(Suspect::Export(id_of(&id)?.to_string())),
        _ => Err(Refusal::malformed("Name one suspect: an agent, a key, a kma, or an export.")),
    }
}

/// A record of the audit log, as far as it says that a key was handed out.
#[derive(Deserialize)]
struct Noted {
    time: Timestamp,
    kma: Name,
    who: String,
    act: String,
    #[serde(default)]
    object: String,
}

/// The keys that this node handed out, by its audit log: issue records tell the first time alone.
fn handed_by_log(directory: &Path) -> io::Result<Vec<Handed>> {
    let mut handed = Vec::new();
    for file in log_files(directory)? {
        for line in BufReader::new(File::open(file)?).lines() {
            let line = line?;
            // Most records are none of these, and JSON costs.
            if line.contains("\"act\":\"key-to-") {
                handed.extend(serde_json::from_str(&line).ok().and_then(of_record));
            }
        }
    }
    Ok(handed)
}

fn of_record(noted: Noted) -> Option<Handed> {
    let tag = noted.object.strip_prefix("key/").filter(|_| noted.act.starts_with("key-to-"))?.parse().ok()?;
    let agent = noted.who.strip_prefix("agent/")?.parse().ok()?;
    Some(Handed { tag, agent, kma: noted.kma, at_ns: i64::try_from(noted.time.as_nanosecond()).ok()? })
}
