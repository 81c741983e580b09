//! Ends of commands that could not be entered in the history: the disk of the catalog was full, or its database away.
//!
//! Without them, a process that lives on would seem to work on those commands for ever.

use std::sync::{Mutex, PoisonError};

use capstan_catalog::{Catalog, CatalogError, JobEnd};

/// Those that are kept, at most.
const KEPT_MAX: usize = 1_000;

#[derive(Default)]
pub(crate) struct UnenteredEnds(Mutex<Vec<UnenteredEnd>>);

struct UnenteredEnd {
    job: i64,
    end: JobEnd,
    log: String,
}

impl UnenteredEnds {
    /// Keeps the end of a job.
    pub(crate) fn keep(&self, job: i64, end: JobEnd, log: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(UnenteredEnd { job, end, log });
        }
    }

    /// Enters what is kept; what still cannot be entered stays.
    pub(crate) fn enter(&self, catalog: &Mutex<Catalog>) -> Result<(), CatalogError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(UnenteredEnd { job, end, log }) = kept.last() {
            catalog.lock().unwrap_or_else(PoisonError::into_inner).end_job(*job, end, log)?;
            kept.pop();
        }
        Ok(())
    }
}
