//! Sources: of each the last backup that can be restored, and what stands in the way of the next.

use std::collections::BTreeMap;
use std::path::PathBuf;

use capstan_catalog::{CopyState, GoneSource, Object};
use capstan_format::{ObjectId, ObjectKind};

use crate::DirectorError;
use crate::journal::HistoryEntry;
use crate::keys::unreadable_volumes;
use crate::protection::Protection;
use crate::site::{Site, locked};

/// How a source stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRow {
    /// The source.
    pub source: Vec<u8>,
    /// The machine it is on.
    pub client: String,
    /// The latest backup that can be restored in full.
    pub last: Option<Object>,
    /// Copies of it that are known to be whole and whose keys are there, and copies that were promised.
    pub copies: (usize, usize),
    /// Copies of it that are whole and cannot be read, because a key is not in the key store or was destroyed.
    pub copies_without_key: usize,
    /// A later one that cannot be restored in full.
    pub unprotected: Option<ObjectId>,
    /// A later one that is open.
    pub open: Option<Object>,
    /// The run that writes that, if one does.
    pub run: Option<i64>,
    /// Whether somebody said that the source is gone.
    pub is_gone: bool,
    /// Whether its last backup was stored by name under a policy for that: nobody waits for a next one.
    pub is_stored: bool,
    /// A job of the settings that names it, on this machine.
    pub job: Option<String>,
}

impl SourceRow {
    fn new(source: Vec<u8>, client: String) -> Self {
        Self {
            source,
            client,
            last: None,
            copies: (0, 0),
            copies_without_key: 0,
            unprotected: None,
            open: None,
            run: None,
            is_gone: false,
            is_stored: false,
            job: None,
        }
    }

    /// How long ago the last backup ended, in nanoseconds; none where there is none.
    pub fn age_ns(&self, now_ns: i64) -> Option<i64> {
        self.last.as_ref().map(|last| now_ns.saturating_sub(last.ended_ns).max(0))
    }

    /// Whether nothing was ever backed up of it.
    pub fn is_never(&self) -> bool {
        self.last.is_none() && self.unprotected.is_none() && self.open.is_none()
    }

    /// Whether a next backup is waited for.
    pub fn is_awaited(&self) -> bool {
        !self.is_gone && !self.is_stored
    }

    /// Whether the last backup is older than it may be; one that never was is, too. A source that is gone waits for
    /// none.
    pub fn is_overdue(&self, now_ns: i64, max_age_ns: Option<i64>) -> bool {
        let Some(max_age_ns) = max_age_ns else { return false };
        self.is_awaited() && self.age_ns(now_ns).is_none_or(|age_ns| age_ns > max_age_ns)
    }
}

impl Site {
    /// All sources, by their names, then by their machines.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn sources(&self, protection: &Protection, running: &[HistoryEntry]) -> Result<Vec<SourceRow>, DirectorError> {
        let of_policies = self.copies_of_policies()?;
        let catalog = locked(&self.catalog);
        let mut rows = group(protection, &catalog.gone_sources()?);
        self.add_named(&mut rows);
        let unreadable = unreadable_volumes(&catalog)?;
        let stored_by_name = self.stored_by_name();
        for row in &mut rows {
            if let Some(last) = &row.last {
                row.is_stored = last.kind == ObjectKind::Stream && stored_by_name.contains(&last.policy);
                let mut wanted = catalog.wanted_copies(last.id)?;
                wanted.retain(|wanted| wanted.state == CopyState::Whole || !of_policies.make(last, &wanted.pool));
                let copies = catalog.copies(last.id)?.into_iter();
                let without_key = copies.filter(|copy| copy.volumes.iter().any(|volser| unreadable.contains(volser)));
                let without_key: Vec<_> = without_key.map(|copy| copy.copy).collect();
                let whole = wanted.iter().filter(|wanted| wanted.state == CopyState::Whole);
                let (shut, readable): (Vec<_>, Vec<_>) = whole.partition(|wanted| without_key.contains(&wanted.copy));
                row.copies = (readable.len(), wanted.len());
                row.copies_without_key = shut.len();
            }
            if let Some(open) = &row.open {
                row.run = running.iter().find(|row| row.objects.contains(&open.id)).map(|row| row.job.id);
            }
        }
        Ok(rows)
    }
}

impl Site {
    /// Adds what jobs name and nothing was ever backed up of.
    fn add_named(&self, rows: &mut Vec<SourceRow>) {
        use std::os::unix::ffi::OsStringExt;
        for (name, job) in &self.config.jobs {
            // As a backup writes it: without a slash at its end.
            let paths =
                job.sources.iter().map(|path| path.components().collect::<PathBuf>().into_os_string().into_vec());
            let sources: Vec<_> = paths.chain(job.stdin.iter().map(|name| name.clone().into_bytes())).collect();
            for client in job.clients_of(&self.client) {
                for source in &sources {
                    match rows.iter_mut().find(|row| row.source == *source && row.client == client) {
                        Some(row) => row.job = Some(name.clone()),
                        None => {
                            let new = SourceRow::new(source.clone(), client.to_owned());
                            rows.push(SourceRow { job: Some(name.clone()), ..new });
                        }
                    }
                }
            }
        }
        rows.sort_by(|one, other| (&one.source, &one.client).cmp(&(&other.source, &other.client)));
    }
}

/// Objects by their sources. Of each kind the first is the latest.
fn group(protection: &Protection, gone: &[GoneSource]) -> Vec<SourceRow> {
    let mut rows: BTreeMap<(Vec<u8>, String), SourceRow> = BTreeMap::new();
    let mut row = |object: &Object, enter: &dyn Fn(&mut SourceRow)| {
        let (source, client) = (object.source.clone(), object.client.clone());
        let is_gone = gone.iter().any(|gone| gone.source == source && gone.client == client);
        let new = SourceRow { is_gone, ..SourceRow::new(source.clone(), client.clone()) };
        enter(rows.entry((source, client)).or_insert(new));
    };
    for object in &protection.protected {
        row(object, &|row| {
            row.last.get_or_insert_with(|| object.clone());
        });
    }
    for object in &protection.unprotected {
        // Ids stand in the order of recording.
        row(object, &|row| {
            if row.last.as_ref().is_none_or(|last| last.id < object.id) && row.unprotected.is_none() {
                row.unprotected = Some(object.id);
            }
        });
    }
    for object in &protection.open {
        row(object, &|row| {
            row.open.get_or_insert_with(|| object.clone());
        });
    }
    rows.into_values().collect()
}
