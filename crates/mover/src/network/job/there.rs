//! What of a restore is at the client already, asked before anything is read for it.

use std::sync::atomic::{AtomicBool, Ordering};

use capstan_format::FileEntry;

use super::super::hello::SAYS_WHAT_IS_THERE;
use super::super::orders::{FILES_EACH, JobOrder, JobReport, pack_files};
use super::super::report_bounds::hear;
use super::NetworkJob;
use crate::source::SourceError;

impl NetworkJob {
    /// Which of these files are at the client as a restore would write them, and are left as they are: nothing need be
    /// read of them. None are if it replaces all files, or is of a version that cannot be asked.
    ///
    /// # Errors
    /// The client is gone, or does not keep to the protocol.
    pub fn files_there(&self, files: &[&FileEntry], stop: &AtomicBool) -> Result<Vec<bool>, SourceError> {
        let mut there = Vec::with_capacity(files.len());
        let mut is_asked = self.version()? >= SAYS_WHAT_IS_THERE;
        while is_asked && there.len() < files.len() && !stop.load(Ordering::Relaxed) {
            let answer = self.some_there(&files[there.len()..])?;
            is_asked = answer.is_some();
            there.extend(answer.unwrap_or_default());
        }
        there.resize(files.len(), false);
        Ok(there)
    }

    /// Which of the first of these files are there, as many as the client says; none where nothing is left as it is.
    fn some_there(&self, files: &[&FileEntry]) -> Result<Option<Vec<bool>>, SourceError> {
        let lost = |error: std::io::Error| self.lost(&error);
        let (count, packed) = pack_files(files).map_err(lost)?;
        let (report, there) = self.on_link(|link| {
            link.send(&JobOrder::There, &packed).map_err(lost)?;
            hear(link, FILES_EACH).map_err(lost)
        })?;
        self.check_admitted()?;
        match report {
            JobReport::There { is_left: false } => Ok(None),
            JobReport::There { is_left: true } if (1..=count).contains(&there.len()) => {
                Ok(Some(there.iter().map(|byte| *byte == 1).collect()))
            }
            _ => Err(self.nonsense()),
        }
    }
}
