//! Nodes: they join, move, unlock themselves and are removed by quorum.
//!
//! **What a removal is,** in one transaction: `kma/X`, `held/X` and its proof go, so that nothing counts it for a
//! second copy or for a site; its certificates are revoked; `removed/X` says when, and by whose word. Everything else
//! follows from that record, in each node ([`crate::node`]): its journal is taken in from whoever has a copy, its pool
//! is set aside.
//!
//! **Refused:** the last node, for nobody would be left with keys; a removal at the node that is removed, for another
//! one must be there, in touch and unlocked, to go on; a removal after which others remain than was approved.

use axum::Json;
use capstan_keys::Name;
use capstan_keys::api::{AddKma, JournalOfRemoved, MoveKma, PeerId, PeerKind, RemovedListed, Requested};
use capstan_service::problem::{Input, Refusal};

use super::super::access::NodeRoutes;
use super::super::autonomous::AutonomousRecord;
use super::super::registrar::{enrolment_path, joining_path};
use super::kma_changes::{checked_host, described, known};
use super::peers::new_enrolment;
use super::proposal::Proposal;
use super::{Of, Person, broken, queue, time};
use crate::authority::Act;
use crate::desk::Decided;
use crate::node::journals_said;
use crate::path::Path;
use crate::record::KmaRecord;
use crate::root::Opens;
use crate::state::View;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .post("/v1/kmas/add", Act::AddKma, add)
        .get("/v1/kmas/removed", Act::ListKmas, list_removed)
        .post("/v1/kmas/{name}/remove", Act::RemoveKma, remove)
        .post("/v1/kmas/{name}/move", Act::ChangeKma, move_to)
        .post("/v1/kmas/{name}/call-off", Act::CallOffKma, call_off)
        .post("/v1/kmas/{name}/destroyed", Act::NoteKmaDestroyed, note_destroyed)
        .post("/v1/kmas/{name}/autonomous-unlock", Act::SetAutonomousUnlock, set_autonomous)
        .post("/v1/kmas/{name}/autonomous-unlock/end", Act::EndAutonomousUnlock, end_autonomous)
}

async fn add(person: Person, Input(asked): Input<AddKma>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::AddKma).await?;
    let host = checked_host(&asked.address)?;
    let peer = PeerId { kind: PeerKind::Kma, name: asked.name.clone() };
    let enrolment = new_enrolment(&person, peer, vec![host])?;
    let AddKma { name, address, site } = asked;
    queue::request(&person, Proposal::AddKma { name, address, site }, Some(enrolment)).await.map(Json)
}

async fn remove(person: Person, Of(name): Of<Name>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::RemoveKma).await?;
    let (remaining, warnings) = person.node.view(|view| (described(view, &name), warnings(view, &name)));
    let requested = queue::request(&person, Proposal::RemoveKma { name, remaining }, None).await?;
    Ok(Json(Requested { warnings, ..requested }))
}

async fn move_to(person: Person, Of(name): Of<Name>, Input(asked): Input<MoveKma>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ChangeKma).await?;
    let KmaRecord { site, address, .. } = person.node.view(|view| known(view, &name).cloned())?;
    let (address, site) = (asked.address.unwrap_or(address), asked.site.unwrap_or(site));
    queue::request(&person, Proposal::MoveKma { name, address, site }, None).await.map(Json)
}

async fn list_removed(person: Person) -> Result<Json<Vec<RemovedListed>>, Refusal> {
    let look = |view: View<'_>, _| {
        let ledger = view.ledger();
        let removed = ledger.removed_kmas().filter_map(|kma| Some((ledger.removed(&kma)?, kma)));
        let listed = removed.map(|(removed, name)| {
            let said = journals_said(ledger, &name).into_iter();
            let journals = said.map(|(holder, said)| JournalOfRemoved {
                holder: holder.to_owned(),
                sequence: said.sequence,
                taken: said.taken,
                void: said.void,
            });
            RemovedListed {
                destroyed: removed.disks_destroyed_ns().map(time),
                met: removed.met_since_ns().map(time),
                site: removed.was.site,
                removed: time(removed.removed_ns),
                by: removed.by,
                pool: ledger.pool(&name).count(),
                journals: journals.collect(),
                name,
            }
        });
        Ok(Json(listed.collect()))
    };
    person.looks(Act::ListKmas, look).await
}

async fn note_destroyed(person: Person, Of(name): Of<Name>) -> Result<Json<serde_json::Value>, Refusal> {
    person.permitted(Act::NoteKmaDestroyed).await?;
    let noted = person.entry(Act::NoteKmaDestroyed).of("kma", &name);
    let noting = person.change(|view| {
        let none = || Refusal::not_found(format!("No node {name} was removed: remove it first (`keyd kmas remove`)."));
        let removed = view.ledger().removed(&name).ok_or_else(none)?;
        let bytes =
            serde_json::to_vec(&removed.with_disks_destroyed(person.node.now_ns())).map_err(|error| broken(&error))?;
        Ok(Decided::records(vec![(Path::removed(&name), bytes)], Vec::new()))
    });
    person.does(noted, noting).await?;
    Ok(Json(serde_json::json!({})))
}

async fn set_autonomous(person: Person, Of(name): Of<Name>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::SetAutonomousUnlock).await?;
    if let Opens::Token { .. } = person.service.sealed_root().opens() {
        return Err(Refusal::conflict(
            "The root key is in a token, so no file that opens without the token may be on a disk. To let the node \
             unlock itself, leave the token's PIN with it ([token] pin_file in keyd.toml).",
        ));
    }
    queue::request(&person, Proposal::AutonomousUnlock { name }, None).await.map(Json)
}

/// To take it back is the safe direction, and may be asked for where the node itself is locked and about to open.
async fn end_autonomous(person: Person, Of(name): Of<Name>) -> Result<Json<serde_json::Value>, Refusal> {
    person.permitted(Act::EndAutonomousUnlock).await?;
    let noted = person.entry(Act::EndAutonomousUnlock).of("kma", &name);
    let request = person.request.to_string();
    let ending = person.change(|view| {
        known(view, &name)?;
        let (by, epoch, since_ns) = (person.user.name.clone(), person.node.epoch(), person.node.now_ns());
        if !AutonomousRecord::of(view, &name, epoch).is_some_and(|record| record.allowed) {
            return Err(Refusal::conflict(format!("Node {name} is unlocked by its holders already.")));
        }
        let record = AutonomousRecord { allowed: false, by, request: request.clone(), epoch, since_ns };
        let record = serde_json::to_vec(&record).map_err(|error| broken(&error))?;
        Ok(Decided::records(vec![(AutonomousRecord::path(&name), record)], Vec::new()))
    });
    person.does(noted, ending).await?;
    Ok(Json(serde_json::json!({})))
}

/// Takes back that a node may join, at once: its passphrase may be in the wrong hands.
async fn call_off(person: Person, Of(name): Of<Name>) -> Result<Json<serde_json::Value>, Refusal> {
    person.permitted(Act::CallOffKma).await?;
    let peer = PeerId { kind: PeerKind::Kma, name: name.clone() };
    let noted = person.entry(Act::CallOffKma).of("kma", &name);
    let mut is_done = false;
    let calling_off = person.change(|view| {
        if view.ledger().kmas().contains_key(&name) {
            let detail = format!("Node {name} has joined: `keyd kmas remove {name}` asks the quorum to take it out.");
            return Err(Refusal::conflict(detail));
        }
        let there = [joining_path(&peer), enrolment_path(&peer)].into_iter();
        let removes: Vec<_> = there.filter(|path| view.ledger().other(&path.to_string()).is_some()).collect();
        if removes.is_empty() && !is_done {
            return Err(Refusal::not_found(format!("There is no approved node {name} that has yet to join.")));
        }
        is_done = true;
        // Who joins meanwhile either finds this done or stops it.
        let rests_on = vec![Path::Kma(name.clone())];
        Ok(Decided { removes, rests_on, ..Decided::records(Vec::new(), Vec::new()) })
    });
    person.does(noted, calling_off).await?;
    Ok(Json(serde_json::json!({})))
}

/// What whoever asks for a removal should know.
fn warnings(view: View<'_>, without: &Name) -> Vec<String> {
    let kmas = view.ledger().kmas();
    let remaining: Vec<_> = kmas.iter().filter(|(name, _)| *name != without).collect();
    let mut warnings = Vec::new();
    if let [(name, _)] = remaining[..] {
        warnings.push(format!(
            "{name} alone will be left: it then gives out no key that a verified backup does not hold. Add another node, or make \
             backups (`keyd backup`)"
        ));
    } else if let Some((_, first)) = remaining.first()
        && kmas.values().any(|record| record.site != first.site)
        && remaining.iter().all(|(_, record)| record.site == first.site)
    {
        warnings.push(format!("every node will stand at site {:?}: no key will be stored elsewhere", first.site));
    }
    warnings.push(
        "its member stays in etcd and counts for the majority: remove it as well (`etcdctl member remove`)".to_owned(),
    );
    warnings
}
