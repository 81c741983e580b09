//! What has left the cluster: an export is on record for as long as somebody may have it.

use axum::Json;
use capstan_keys::api::{ExportListed, ExportWhat};
use capstan_service::problem::Refusal;

use super::super::access::NodeRoutes;
use super::super::export_record::{ExportRecord, export_path, record_of};
use super::super::request_id::id_of;
use super::leaving;
use super::{Of, Person, broken, time};
use crate::authority::Act;
use crate::desk::Decided;
use crate::destruction::CLOCK_SKEW_NS;
use crate::record::IssuedRecord;
use crate::state::View;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new().get("/v1/exports", Act::ListBackups, list).post(
        "/v1/exports/{id}/destroyed",
        Act::NoteBackupDestroyed,
        note_destroyed,
    )
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

    /// Whether a key is in it, as far as that can be known: what leaves is decided when it leaves, by clocks of several
    /// nodes.
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
