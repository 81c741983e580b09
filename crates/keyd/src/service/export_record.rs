//! What is on record of an export.

use capstan_keys::api::{Base64, ExportWhat};
use capstan_keys::{KeyRecord, Name};
use serde::{Deserialize, Serialize};

use crate::authority::PendingId;
use crate::destruction::KeptExport;
use crate::path::Path;
use crate::state::View;

/// An export that was carried out: JSON at `export/ID`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExportRecord {
    pub(super) by: Name,
    pub(super) what: ExportWhat,
    pub(super) keys: usize,
    pub(super) made_ns: i64,
    /// When the last of its keys was issued, by whichever node's clock, if that is later: one that was ahead issued
    /// keys that are no younger than the export.
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
pub(super) fn exports_of(view: View<'_>, key: &KeyRecord, group: &Name) -> (Vec<KeptExport>, Vec<(KeptExport, i64)>) {
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
