//! A copy that goes nowhere: the whole data path without a drive.

use capstan_format::{SessionId, Volser, VolumeId};
use capstan_mover::{Commit, CopyHost, FIRST_SESSION_LBN, HostError, Mounted, VolumeEnd};
use capstan_tape::{Drive, NullDrive};

use crate::shared::Clock;

/// Serves a session with a null drive and records nothing.
pub(crate) struct NullHost {
    clock: Clock,
}

impl NullHost {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock }
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
        let volser = Volser::new("NULL")?;
        let session = SessionId(0);
        Ok(Mounted { drive, volser, volume: VolumeId(0), append_lbn: FIRST_SESSION_LBN, session })
    }

    fn committed(&mut self, _commit: &Commit) -> Result<(), HostError> {
        Ok(())
    }

    fn release(&mut self, _drive: Box<dyn Drive>, _volser: &Volser, _end: VolumeEnd) {}

    fn now_ns(&self) -> i64 {
        (self.clock)()
    }
}
