//! What a compromise exposes, and the plan for it.

use axum::Json;
use axum::extract::Query;
use capstan_keys::Name;
use capstan_keys::api::PeerKind;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::super::openapi::Paths;
use super::super::registrar::CertificateRecord;
use super::{Person, broken};
use crate::audit::log_files;
use crate::authority::Act;
use crate::door::Refusal;
use crate::exposure::{Handed, RekeyPlan, Suspect, View as Known, exposure};
use crate::state::View;

pub(super) fn routes() -> Paths {
    Paths::new().get("/v1/exposure", Act::ReadExposure, exposed).get("/v1/rekey-plan", Act::PlanRekey, plan)
}

/// Who or what is suspected: one of the three.
#[derive(Deserialize, JsonSchema)]
struct Suspected {
    agent: Option<Name>,
    key: Option<String>,
    kma: Option<Name>,
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
    let mut handed = handed.map_err(|error| broken(&error))?.map_err(|error| broken(&error))?;
    let known = person.node.view(|view| {
        let ledger = view.ledger();
        handed.extend(ledger.keys().map(|key| Handed {
            tag: key.stored.record.tag,
            agent: key.origin.agent.clone(),
            kma: key.origin.kma.clone(),
            at_ns: key.issued.issued_ns,
        }));
        let keys = ledger.keys().map(|key| (key.stored.record.tag, key.stored.record.clone())).collect();
        Known { units: ledger.realm().units().cloned().collect(), keys, handed, removed_kmas: BTreeMap::new() }
    });
    let is_known = match &suspect {
        Suspect::Agent { name, .. } => {
            known.handed.iter().any(|handed| handed.agent == *name)
                || person.node.view(|view| had_certificate(view, name))
        }
        Suspect::Key(tag) => known.keys.contains_key(tag),
        Suspect::Kma(name) => {
            person.node.view(|view| view.ledger().kmas().contains_key(name) || view.ledger().removed(name).is_some())
        }
    };
    if !is_known {
        // Nothing exposed, and a name that was misspelt, must not look the same.
        return Err(Refusal::not_found(match suspect {
            Suspect::Agent { name, .. } => format!("There never was an agent {name}: `keyd agents list`."),
            Suspect::Key(tag) => format!("There is no key {tag}: `keyd keys list`."),
            Suspect::Kma(name) => format!("There never was a node {name}: `keyd kmas list`."),
        }));
    }
    let plan = RekeyPlan::new(suspect.clone(), exposure(&known, &suspect));
    // What other nodes gave out for reading stands in their logs, not in this one.
    let logs = [person.service.name().to_string()];
    Ok(Json(json!({ "plan": plan.to_json(), "words": plan.to_string(), "logs_read": logs })))
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
    match (asked.agent, asked.key, asked.kma) {
        (Some(name), None, None) => Ok(Suspect::Agent { name, since_ns }),
        (None, Some(key), None) => {
            let tag = key.parse().map_err(|_| Refusal::malformed(format!("{key:?} is no tag of a key.")))?;
            Ok(Suspect::Key(tag))
        }
        (None, None, Some(name)) => Ok(Suspect::Kma(name)),
        _ => Err(Refusal::malformed("Name one suspect: an agent, a key, or a kma.")),
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
