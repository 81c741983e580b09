//! The data path of a process that decides: its own, or that of a mover elsewhere.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_format::SessionRecord;

use super::{RemoteMover, session};
use crate::feed::{DrivesAt, DrivesWay};
use crate::{CopyHost, MountedDrives, MoverError, Session, SessionOptions};

/// Where blocks are written and read.
#[derive(Clone)]
pub enum MoverAt {
    /// In this process, with the drives that are mounted in it.
    Here(Arc<MountedDrives>),
    /// At a mover elsewhere.
    Elsewhere(RemoteMover),
}

impl MoverAt {
    /// The drives, for reads.
    pub fn drives(&self) -> DrivesAt<'_> {
        match self {
            Self::Here(drives) => DrivesAt::from(&**drives),
            Self::Elsewhere(mover) => DrivesAt(DrivesWay::Elsewhere(mover)),
        }
    }

    /// Whether several reads may have a drive at the same time.
    pub fn shares_drives(&self) -> bool {
        match self {
            Self::Here(_) => true,
            Self::Elsewhere(mover) => mover.shares_drives(),
        }
    }

    /// Starts a session, as [`Session::start`] does.
    ///
    /// # Errors
    /// As there; [`MoverError::Elsewhere`] if the mover is gone.
    pub fn start_session(
        &self,
        options: &SessionOptions,
        record: &SessionRecord,
        hosts: Vec<Box<dyn CopyHost>>,
        stop: Arc<AtomicBool>,
    ) -> Result<Session, MoverError> {
        match self {
            Self::Here(drives) => Session::start(options, record, drives, hosts, stop),
            Self::Elsewhere(mover) => session::start(mover, options, record, hosts, stop),
        }
    }
}
