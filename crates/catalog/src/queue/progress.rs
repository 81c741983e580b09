//! How far the runs at work are, as their server notes it now and then.

use std::collections::HashMap;

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::params;

/// How far a run at work is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunProgress {
    /// Files or paths that are done.
    pub files: u64,
    /// Bytes of what is planned that are behind it, moved or not.
    pub bytes: u64,
    /// Bytes that are planned; 0 while that is not known.
    pub bytes_planned: u64,
    /// Bytes a second since this was noted before.
    pub rate: u64,
    /// When it was noted, nanoseconds since 1970.
    pub noted_ns: i64,
}

impl Catalog {
    /// Notes how far runs at work are, by their numbers; those that are not at work any more are passed over.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn note_progress(&mut self, term: u64, progress: &[(i64, RunProgress)]) -> Result<(), CatalogError> {
        let term = number("a term", term)?;
        let transaction = self.write_for_now()?;
        for (run, progress) in progress {
            let RunProgress { files, bytes, bytes_planned, rate, noted_ns } = *progress;
            transaction.execute(
                "UPDATE active_runs SET files = ?3, bytes = ?4, bytes_planned = ?5, rate = ?6, noted_ns = ?7
                 WHERE run = ?1 AND term = ?2",
                params![
                    run,
                    term,
                    number("files", files)?,
                    number("bytes", bytes)?,
                    number("bytes", bytes_planned)?,
                    number("bytes", rate)?,
                    noted_ns
                ],
            )?;
        }
        transaction.commit()
    }

    /// How far the runs at work are of which that is noted.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn run_progress(&self) -> Result<HashMap<i64, RunProgress>, CatalogError> {
        let query =
            "SELECT run, files, bytes, bytes_planned, rate, noted_ns FROM active_runs WHERE noted_ns IS NOT NULL";
        let rows = self.db.query(query, &[], |row| {
            let (files, bytes) = (row.get(1)?, row.get(2)?);
            let (bytes_planned, rate, noted_ns) = (row.get(3)?, row.get(4)?, row.get(5)?);
            Ok((row.get(0)?, RunProgress { files, bytes, bytes_planned, rate, noted_ns }))
        })?;
        Ok(rows.into_iter().collect())
    }
}
