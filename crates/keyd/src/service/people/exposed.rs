//! What a compromise exposes, and the plan for it.

use axum::Json;
use axum::extract::Query;
use capstan_format::KeyTag;
use capstan_keys::api::PeerKind;
use capstan_keys::{KeyRecord, Name};
use capstan_service::problem::Refusal;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

use super::super::access::NodeRoutes;
use super::super::handed::{self, Logs, Wanted};
use super::super::registrar::CertificateRecord;
use super::super::request_id::id_of;
use super::exports::Known as Exports;
use super::material::state_of;
use super::{Person, broken};
use crate::authority::Act;
use crate::desk::recovered;
use crate::exposure::{Exported, ExposureFacts, Handed, Lack, RekeyPlan, Suspect, Unread, exports_of, exposure};
use crate::node::{MajorityContact, Node};
use crate::record::IssuedRecord;
use crate::state::View;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new().get("/v1/exposure", Act::ReadExposure, exposed).get("/v1/rekey-plan", Act::PlanRekey, plan)
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
    let asked_since = asked.since;
    let suspect = suspect(asked)?;
    person.service.note(person.entry(act)).await?;
    let Logs { handed, read, unread } = logs_that_matter(&person, &suspect, asked_since).await;
    let (node, suspected) = (person.node.clone(), suspect.clone());
    let known = tokio::task::spawn_blocking(move || known(&node, handed, &suspected)).await;
    let known = known.map_err(|error| broken(&error))?;
    let is_known = match &suspect {
        Suspect::Agent { name, .. } => {
            known.handed.iter().any(|handed| handed.agent == *name)
                || person.node.view(|view| had_certificate(view, name))
        }
        Suspect::Key(tag) => {
            known.keys.contains_key(tag) || person.node.view(|view| recovered(view.ledger(), tag).is_some())
        }
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
    let missing: Vec<_> = unread.iter().map(|unread| unread.to_json(&suspect)).collect();
    let words = unread.iter().map(|unread| format!("missing: {}\n", unread.words(&suspect)));
    let words = words.chain([plan.to_string()]).collect::<String>();
    let whole = !unread.iter().any(|unread| unread.hides(&suspect));
    Ok(Json(json!({ "plan": plan.to_json(), "words": words, "logs_read": read, "missing": missing, "whole": whole })))
}

/// What audit logs say that matters to a suspect: to which keys an agent came, all of them; which lay open at a node,
/// its own. What is known of a key or an export stands in the ledger.
async fn logs_that_matter(person: &Person, suspect: &Suspect, since: Option<Timestamp>) -> Logs {
    let Person { service, node, .. } = person;
    let kmas: Vec<Name> = node.view(|view| match suspect {
        Suspect::Agent { .. } => view.ledger().kmas().keys().cloned().chain(view.ledger().removed_kmas()).collect(),
        Suspect::Kma(name) => vec![name.clone()],
        Suspect::Key(_) | Suspect::Export(_) => Vec::new(),
    });
    let agent = if let Suspect::Agent { name, .. } = suspect { Some(name.clone()) } else { None };
    let mut logs = handed::search(service, node, kmas, &Wanted::of(agent, since)).await;
    // A key that was suspected and has its volume says all; so does an export, which none of these is in.
    let unnamed = node.view(|view| match suspect {
        Suspect::Agent { .. } | Suspect::Kma(_) => view.ledger().recovered().count(),
        Suspect::Key(tag) => usize::from(recovered(view.ledger(), tag).is_some()),
        Suspect::Export(_) => 0,
    });
    if unnamed > 0 {
        logs.unread.push(Unread { kma: service.name().clone(), lack: Lack::Unnamed { keys: unnamed } });
    }
    if node.standing() != MajorityContact::Current {
        logs.unread.push(Unread { kma: service.name().clone(), lack: Lack::CutOff });
    }
    logs
}

/// All that is known of keys, volumes and exports, looked at a slice at a time: a million keys keep nobody waiting.
fn known(node: &Node, mut handed: Vec<Handed>, suspect: &Suspect) -> ExposureFacts {
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
    let now_ns = node.now_ns();
    let pick = |view: View<'_>, key: &IssuedRecord| {
        // In the state that time has made of it, as `keyd keys list` has it.
        let record = KeyRecord { state: state_of(view, key, now_ns), ..key.stored.record.clone() };
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
    ExposureFacts { units, keys, handed, removed_kmas: BTreeMap::new(), exports }
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
