//! Volumes that were sent to a vault: what no library and no volume knows.

use capstan_format::Volser;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, params};
use crate::volume::volser;

/// A volume that was sent to a vault, and has not been seen in a library since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentVolume {
    /// Its barcode.
    pub volser: Volser,
    /// The vault, as an operator calls it.
    pub vault: String,
    /// When it was sent, nanoseconds since 1970.
    pub sent_ns: i64,
}

/// Since when, and until when, something on a volume is needed, as far as the volume itself says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededTimes {
    /// Its barcode.
    pub volser: Volser,
    /// When the first of what is needed was begun on it, nanoseconds since 1970.
    pub first_ns: i64,
    /// When the last of it expires, nanoseconds since 1970; `None` if something is kept for ever, or as long as a keep
    /// rule keeps it.
    pub until_ns: Option<i64>,
}

const PUT: &str = "INSERT INTO sent_volumes (volser, vault, sent_ns) VALUES (?1, ?2, ?3)
    ON CONFLICT (volser) DO UPDATE SET vault = excluded.vault, sent_ns = excluded.sent_ns";
const NEEDED: &str = "SELECT volser, min(copies.first_ns), min(coalesce(copies.expires_ns, objects.expires_ns)),
        max(coalesce(copies.expires_ns, objects.expires_ns))
    FROM copies JOIN volumes ON volumes.volume = copies.volume JOIN objects ON objects.object = copies.object
    WHERE expired_ns IS NULL GROUP BY volser ORDER BY volser";

impl Catalog {
    /// All volumes that are at vaults, by barcode.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn sent_volumes(&self) -> Result<Vec<SentVolume>, CatalogError> {
        self.db.query("SELECT volser, vault, sent_ns FROM sent_volumes ORDER BY volser", &[], sent)
    }

    /// Notes volumes that are sent to vaults, in place of what was noted of them before.
    ///
    /// # Errors
    /// The database cannot be written; nothing is noted then.
    pub fn note_sent(&mut self, sent: &[SentVolume]) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        for SentVolume { volser, vault, sent_ns } in sent {
            transaction.execute(PUT, params![volser.as_str(), vault, sent_ns])?;
        }
        transaction.commit()
    }

    /// Notes that volumes are back, which were seen at that moment, unless they were sent between it and now; gives
    /// those that had been sent. Whoever sent one later than now had a clock that was ahead.
    ///
    /// # Errors
    /// The database cannot be written; nothing is noted then.
    pub fn note_back(&mut self, seen: &[Volser], seen_ns: i64, now_ns: i64) -> Result<Vec<Volser>, CatalogError> {
        let transaction = self.write()?;
        let mut back = Vec::new();
        for volser in seen {
            let back_now = "DELETE FROM sent_volumes WHERE volser = ?1 AND (sent_ns <= ?2 OR sent_ns > ?3)";
            if transaction.execute(back_now, params![volser.as_str(), seen_ns, now_ns])? > 0 {
                back.push(volser.clone());
            }
        }
        transaction.commit()?;
        Ok(back)
    }

    /// Since when and until when volumes are needed, by barcode; none of those that hold nothing that is. One pass over
    /// all copies.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn needed_times(&self) -> Result<Vec<NeededTimes>, CatalogError> {
        self.db.query(NEEDED, &[], |row| {
            let (first_end, last_end): (i64, i64) = (row.get(2)?, row.get(3)?);
            let is_open = first_end == 0 || last_end == i64::MAX;
            Ok(NeededTimes { volser: volser(row, 0)?, first_ns: row.get(1)?, until_ns: (!is_open).then_some(last_end) })
        })
    }
}

fn sent(row: &Row<'_>) -> Result<SentVolume, CatalogError> {
    Ok(SentVolume { volser: volser(row, 0)?, vault: row.get(1)?, sent_ns: row.get(2)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::place_in_tests::catalog_in;

    #[test]
    fn what_was_sent_is_away_until_it_is_seen_after_that() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = catalog_in(dir.path());
        let volser = |name: &str| Volser::new(name).unwrap();
        let sent = |name: &str, vault: &str, sent_ns| SentVolume { volser: volser(name), vault: vault.into(), sent_ns };
        catalog.note_sent(&[sent("A00001", "hill", 5), sent("A00002", "hill", 5)]).unwrap();
        catalog.note_sent(&[sent("A00002", "bank", 9)]).unwrap();
        assert_eq!(catalog.sent_volumes().unwrap(), [sent("A00001", "hill", 5), sent("A00002", "bank", 9)]);
        // Whoever looked before it was sent has seen it before it left.
        let all = [volser("A00001"), volser("A00002"), volser("A00003")];
        assert_eq!(catalog.note_back(&all, 7, 9).unwrap(), [volser("A00001")]);
        assert_eq!(catalog.sent_volumes().unwrap(), [sent("A00002", "bank", 9)]);
        // And nobody has sent one in the future.
        assert_eq!(catalog.note_back(&all, 7, 8).unwrap(), [volser("A00002")]);
    }
}
