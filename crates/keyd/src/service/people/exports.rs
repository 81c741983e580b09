//! What has left the cluster: an export is on record for as long as somebody may have it.

use axum::Json;
use capstan_keys::api::{Base64, ExportListed, ExportWhat};
use capstan_keys::{KeyRecord, Name};
use serde::{Deserialize, Serialize};

use super::super::openapi::Paths;
use super::leaving;
use super::queue::id_of;
use super::{Of, Person, broken, time};
use crate::authority::{Act, PendingId};
use crate::desk::Decided;
use crate::destruction::{CLOCK_SKEW_NS, KeptExport};
use crate::door::Refusal;
use crate::path::Path;
use crate::record::IssuedRecord;
use crate::state::View;

pub(super) fn routes() -> Paths {
    Paths::new().get("/v1/exports", Act::ListBackups, list).post(
        "/v1/exports/{id}/destroyed",
        Act::NoteBackupDestroyed,
        note_destroyed,
    )
}

/// An export that was carried out: JSON at `export/ID`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExportRecord {
    pub(super) by: Name,
    pub(super) what: ExportWhat,
    pub(super) keys: usize,
    pub(super) made_ns: i64,
    /// When the last of its keys was issued, by whichever node's clock, if that is later: one that was ahead issued keys that are no younger
    /// than the export.
    #[serde(default)]
    pub(super) until_ns: i64,
    /// For whom exactly: the same question again is known by it.
    pub(super) public: Base64,
    /// When somebody said that it is destroyed, with whatever was made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) destroyed_ns: Option<i64>,
}

impl ExportRecord {
    /// Until when keys were issued that may be in it.
    pub(super) fn until_ns(&self) -> i64 {
        self.until_ns.max(self.made_ns)
    }
}

pub(super) fn export_path(id: PendingId) -> Path {
    Path::Other(format!("export/{id}"))
}

pub(super) fn record_of(view: View<'_>, id: PendingId) -> Option<ExportRecord> {
    serde_json::from_slice(view.ledger().other(&export_path(id).to_string())?).ok()
}

/// The exports that had a key in them, if there was such a key then, and that nobody has said to be destroyed.
pub(in super::super) fn exports_of(
    view: View<'_>,
    key: &KeyRecord,
    group: &Name,
) -> (Vec<KeptExport>, Vec<(KeptExport, i64)>) {
    let has = |what: &ExportWhat| match what {
        ExportWhat::All => true,
        ExportWhat::Group(exported) => exported == group,
        ExportWhat::Unit(volser) => *volser == key.volser,
    };
    let records = view.ledger().others("export/").map(|(path, bytes)| {
        let id = path.trim_start_matches("export/").to_owned();
        // One that cannot be read is of a newer program, and may have any key.
        (id, serde_json::from_slice::<ExportRecord>(bytes).ok())
    });
    let (mut kept, mut destroyed) = (Vec::new(), Vec::new());
    for (id, record) in records {
        let Some(record) = record else {
            kept.push(KeptExport { id, made_ns: key.created_ns, until_ns: key.created_ns });
            continue;
        };
        let export = KeptExport { id, made_ns: record.made_ns, until_ns: record.until_ns() };
        match record.destroyed_ns {
            None if has(&record.what) => kept.push(export),
            Some(said_ns) if has(&record.what) => destroyed.push((export, said_ns)),
            None | Some(_) => {}
        }
    }
    (kept, destroyed)
}

/// An export that is on record, and whether a key left in it.
pub(super) struct Known {
    pub(super) id: String,
    pub(super) record: ExportRecord,
}

impl Known {
    /// All of them. One that cannot be read is of a newer program.
    pub(super) fn all(view: View<'_>) -> Vec<Self> {
        let records = view.ledger().others("export/").filter_map(|(path, bytes)| {
            let id = path.trim_start_matches("export/").to_owned();
            Some(Self { id, record: serde_json::from_slice(bytes).ok()? })
        });
        records.collect()
    }

    /// Whether a key is in it, as far as that can be known: what leaves is decided when it leaves, by clocks of several nodes.
    pub(super) fn has(&self, view: View<'_>, key: &IssuedRecord) -> bool {
        let (made_ns, record) = (self.record.made_ns, &key.stored.record);
        let was_there = key.issued.issued_ns <= self.record.until_ns().saturating_add(CLOCK_SKEW_NS)
            && record.destroyed_ns.is_none_or(|at_ns| at_ns >= made_ns.saturating_sub(CLOCK_SKEW_NS));
        was_there && leaving::may_leave(view, &self.record.what, key)
    }
}

async fn list(person: Person) -> Result<Json<Vec<ExportListed>>, Refusal> {
    person.looks(Act::ListBackups, |view, _| Ok(Json(listed(view)))).await
}

fn listed(view: View<'_>) -> Vec<ExportListed> {
    let records = view.ledger().others("export/").filter_map(|(path, bytes)| {
        let record: ExportRecord = serde_json::from_slice(bytes).ok()?;
        Some(said(path.trim_start_matches("export/"), record))
    });
    records.collect()
}

fn said(id: &str, record: ExportRecord) -> ExportListed {
    let ExportRecord { by, what, keys, made_ns, destroyed_ns, .. } = record;
    let what = match what {
        ExportWhat::All => "all keys".to_owned(),
        ExportWhat::Group(group) => format!("group {group}"),
        ExportWhat::Unit(volser) => format!("unit {volser}"),
    };
    ExportListed { id: id.to_owned(), made: time(made_ns), by, what, keys, destroyed: destroyed_ns.map(time) }
}

async fn note_destroyed(person: Person, Of(id): Of<String>) -> Result<Json<ExportListed>, Refusal> {
    person.at_once(Act::NoteBackupDestroyed).await?;
    let id = id_of(&id)?;
    let noted = person.entry(Act::NoteBackupDestroyed).of("export", id);
    let mut listed = None;
    let noting = person.change(|view| {
        let unknown = || Refusal::not_found(format!("There is no export {id}: `keyd exports list`."));
        let mut record = record_of(view, id).ok_or_else(unknown)?;
        let is_new = record.destroyed_ns.is_none();
        let at_ns = *record.destroyed_ns.get_or_insert(person.node.now_ns());
        let bytes = serde_json::to_vec(&ExportRecord { destroyed_ns: Some(at_ns), ..record.clone() });
        let put = (export_path(id), bytes.map_err(|error| broken(&error))?);
        listed = Some(said(&id.to_string(), record));
        Ok(Decided::records(if is_new { vec![put] } else { Vec::new() }, Vec::new()))
    });
    person.does(noted, noting).await?;
    listed.map(Json).ok_or_else(Refusal::failed)
}
