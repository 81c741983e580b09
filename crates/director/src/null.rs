//! A copy that goes nowhere: the whole data path without a drive.

use std::sync::Arc;

use capstan_format::{SessionId, Volser, VolumeId};
use capstan_mover::{Commit, CopyHost, FIRST_SESSION_LBN, HostError, MountId, Mounted, MountedDrives, VolumeEnd};
use capstan_tape::{Drive, NullDrive};

use crate::shared::Clock;

/// Serves a session with a null drive and records nothing.
pub(crate) struct NullHost {
    clock: Clock,
    drives: Arc<MountedDrives>,
}

impl NullHost {
    pub(crate) fn new(clock: Clock, drives: Arc<MountedDrives>) -> Self {
        Self { clock, drives }
    }
}

impl CopyHost for NullHost {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        let mut drive: Box<dyn Drive> = Box::new(NullDrive::new());
        drive.load()?;
        // A null drive stands where it has written: three blocks stand for the label.
        for _ in 0..FIRST_SESSION_LBN {
            drive.write_block(b"label")?;
        }
        let (mount, volser, session) = (self.drives.add(drive), Volser::new("NULL")?, SessionId(0));
        Ok(Mounted { mount, volser, volume: VolumeId(0), append_lbn: FIRST_SESSION_LBN, session })
    }

    fn committed(&mut self, _commit: &Commit) -> Result<(), HostError> {
        Ok(())
    }

    fn release(&mut self, mount: MountId, _volser: &Volser, _end: VolumeEnd) {
        drop(self.drives.remove(mount));
    }

    fn now_ns(&self) -> i64 {
        (self.clock)()
    }
}
