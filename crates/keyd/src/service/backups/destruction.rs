//! `POST /v1/keys/TAG/destruction`: that a key is destroyed everywhere, or what is missing until then.

use axum::Json;
use axum::extract::Path as InPath;
use capstan_format::KeyTag;
use capstan_keys::Name;
use capstan_keys::api::{BackupState, Problem};
use capstan_service::problem::Refusal;

use crate::authority::Act;
use crate::desk::Decided;
use crate::destruction::{
    Certificate, CopyLocations, Declared, Destroyed, KeptBackup, LeftDisk, Missing, Reached, certify,
};
use crate::node::NodeError;
use crate::path::Path;
use crate::service::backup_record::backups;
use crate::service::entry;
use crate::service::export_record::exports_of;
use crate::service::person::Person;
use crate::service::proof::proved_up_to;
use crate::service::wiped::{copies_wiped, journals_wiped, own_journal_empty_at};
use crate::state::View;

pub(super) async fn certificate(person: Person, InPath(tag): InPath<String>) -> Result<Json<Certificate>, Refusal> {
    person.at_once(Act::CertifyDestruction).await?;
    let Person { service, node, peer, from, .. } = person;
    let tag: KeyTag = tag.parse().map_err(|_| Refusal::malformed(format!("{tag:?} is no key.")))?;
    let (key, mut known) = node.view(|view| looked_up(view, &tag, service.settings.epoch))?;
    let applied = node.progress().borrow().applied;
    for reached in known.kmas.iter_mut().filter(|reached| reached.kma == *node.name()) {
        reached.commit = applied;
    }
    // Forgetting does nothing to what is: nodes that were away for longer copy the whole.
    match service.opening.ledger.forget(key.commit).await {
        Ok(()) => known.forgotten = key.commit,
        Err(error) => tracing::warn!(%error, "the ledger's history was not compacted"),
    }
    match certify(&key, &known, node.now_ns()) {
        Ok(certificate) => {
            service.note(entry(&peer, from, Act::CertifyDestruction.into()).of("key", tag)).await?;
            let path = format!("destruction/{tag}");
            // What was certified keeps its date, and what it stood on then.
            let first = node.view(|view| view.ledger().other(&path).map(serde_json::from_slice::<Certificate>));
            if let Some(Ok(first)) = first.filter(|first| first.as_ref().is_ok_and(|first| first.commit == key.commit))
            {
                return Ok(Json(first));
            }
            let bytes = serde_json::to_vec(&certificate).map_err(|_| Refusal::failed())?;
            let put = (Path::Other(path), bytes);
            node.change(|_| Ok::<_, NodeError>(Decided::records(vec![put.clone()], Vec::new()))).await?;
            Ok(Json(certificate))
        }
        Err(missing) => {
            let said: Vec<_> = missing.iter().map(said).collect();
            let detail = format!("Key {tag} is destroyed in the ledger, and copies may be left. {}", said.join(" "));
            Err(Problem::new(409, "copies-left", "The key is not destroyed everywhere", detail).into())
        }
    }
}

/// What is known of a destroyed key and its copies.
fn looked_up(view: View<'_>, tag: &KeyTag, epoch: u32) -> Result<(Destroyed, CopyLocations), Refusal> {
    let record = view.ledger().key(tag).ok_or_else(|| Refusal::not_found(format!("There is no key {tag}.")))?;
    let known = &record.stored.record;
    let (Some(destroyed_ns), None) = (known.destroyed_ns, &record.stored.wrapped) else {
        return Err(Refusal::conflict(format!("Key {tag} is not destroyed: it is {}.", known.state)));
    };
    if view.ledger().is_kept(&Path::Key(*tag)) {
        let detail = format!(
            "The record of key {tag} was taken from the ledger, or altered there: nothing can be certified of it. See `keyd status`."
        );
        return Err(Refusal::conflict(detail));
    }
    let commit = view.ledger().mark(&Path::Key(*tag)).revision;
    let kmas = view.ledger().kmas().keys();
    let kmas =
        kmas.map(|kma| Reached { kma: kma.clone(), commit: view.ledger().held(kma).max(proved_up_to(view, kma)) });
    let key = Destroyed { tag: *tag, created_ns: known.created_ns, destroyed_ns, commit, epoch };
    let mut declared = Vec::new();
    let mut kept = Vec::new();
    for backup in backups(view) {
        let made_ns = i64::try_from(backup.made.as_nanosecond()).unwrap_or(i64::MAX);
        let there = KeptBackup { id: backup.id, epoch: backup.epoch, commit: backup.revision, made_ns };
        match backup.state {
            BackupState::Kept => kept.push(there),
            BackupState::Destroyed { at, by } if there.may_hold(&key) => {
                let said_ns = i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX);
                declared.push(Declared { copy: format!("backup {}", there.id), said_ns, by: Some(by), met_ns: None });
            }
            BackupState::Destroyed { .. } => {}
        }
    }
    let mut left = Vec::new();
    for kma in view.ledger().removed_kmas() {
        let Some(removed) = view.ledger().removed(&kma) else { continue };
        // What an older program wrote of a removal says nothing of journals.
        let commit = removed.held.min(own_journal_empty_at(view, &kma));
        let disk = LeftDisk { kma, epoch: removed.epoch, commit, removed_ns: removed.removed_ns };
        match removed.disks_destroyed_ns() {
            None => left.push(disk),
            Some(said_ns) if disk.may_hold(&key) => {
                declared.push(Declared { copy: disks_of(&disk.kma), said_ns, by: None, met_ns: None });
            }
            Some(_) => {}
        }
    }
    let (exports, destroyed_exports) = exports_of(view, known, &record.issued.group);
    let held =
        destroyed_exports.into_iter().filter(|(export, _)| key.was_there_between(export.made_ns, export.until_ns));
    declared.extend(held.map(|(export, said_ns)| Declared {
        copy: format!("export {}", export.id),
        said_ns,
        by: None,
        met_ns: None,
    }));
    let pools = view.ledger().kmas().keys().filter(|kma| view.ledger().pool_key(kma, tag).is_some());
    let pools = pools.map(|kma| Path::Pool { kma: kma.clone(), tag: *tag }.to_string());
    let recovered = Path::recovered(tag).to_string();
    let recovered = view.ledger().other(&recovered).is_some().then_some(recovered);
    let copies = pools.chain(recovered).collect();
    let (journals, journal_copies) = (journals_wiped(view), copies_wiped(view));
    let (kmas, removed, backups) = (kmas.collect(), left, kept);
    let known =
        CopyLocations { kmas, journals, journal_copies, removed, backups, exports, copies, forgotten: 0, declared };
    Ok((key, known))
}

/// What a certificate calls the disks of a removed node.
pub(in crate::service) fn disks_of(kma: &Name) -> String {
    format!("disks of {kma}")
}

fn said(missing: &Missing) -> String {
    match missing {
        Missing::Node { kma, at, needed } => {
            format!(
                "Node {kma} says its disk is at commit {at} and must be at {needed}: see that it runs and is unlocked, and wait a minute."
            )
        }
        Missing::Journal { kma, .. } => {
            format!(
                "Node {kma} has not said that nothing of it is left in its journal, nor in a backup that waits to be fetched: see that it runs, is \
                 unlocked and in touch, and wait a minute (an hour for a backup that nobody fetches)."
            )
        }
        Missing::JournalCopies { kma, of } => {
            let of: Vec<_> = of.iter().map(Name::as_str).collect();
            format!(
                "Node {kma} may have it in its copies of the journals of {}: see that all of these run, are unlocked and in touch, and wait a \
                 minute. If one stays, the log of {kma} says why, or its `keyd status`.",
                of.join(", ")
            )
        }
        Missing::RemovedNode { kma } => {
            format!(
                "The disks of {kma}, which was removed, may hold it: destroy them, then `keyd kmas confirm-destroyed {kma}`."
            )
        }
        Missing::Backup { id } => {
            format!("Backup {id} may hold it: destroy all its copies, then `keyd backups confirm-destroyed {id}`.")
        }
        Missing::Export { id } => {
            format!(
                "Export {id} may hold it: destroy all its copies, and what they were imported into, then `keyd exports confirm-destroyed {id}`."
            )
        }
        Missing::Record { path } => format!("The record {path} holds it as well."),
        Missing::History { needed, .. } => {
            format!("The ledger keeps its history: `etcdctl compact {needed}`, then `etcdctl defrag` on each member.")
        }
    }
}
