//! The presence of those who change something in a state directory: as many as like, or a rebuild by itself.
//!
//! A rebuild puts another catalog in the place of the one that there is, in which nothing can be reserved any more. So
//! it needs all others gone, and none may come. The system lets go of the lock with the process that has it.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::site::Site;
use crate::{DirectorError, Event};

/// How long others are waited for, and how often it is looked whether they are done.
const WAIT: Duration = Duration::from_secs(2);
const LOOKS: Duration = Duration::from_millis(10);

/// Held while a process changes something; let go when dropped.
pub(crate) struct Presence {
    _file: File,
}

impl Site {
    /// Is there, with all others that are. Whoever has the state directory for itself is waited for for moments.
    pub(crate) fn presence(&self) -> Result<Presence, DirectorError> {
        self.lock(FlockOperation::NonBlockingLockShared)
    }

    /// Has the state directory for itself, as soon as all others have ended.
    pub(crate) fn alone(&self) -> Result<Presence, DirectorError> {
        self.lock(FlockOperation::NonBlockingLockExclusive)
    }

    /// Is there, however long somebody else has the state directory for itself; says who.
    pub(crate) fn presence_waited_for(&self, stop: &AtomicBool) -> Result<Presence, DirectorError> {
        let mut told = None;
        loop {
            let holder = match self.presence() {
                Err(DirectorError::Busy { holder }) => holder,
                other => return other,
            };
            if stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            if told.as_ref() != Some(&holder) {
                let message = format!(
                    "another capstan (process {holder}) has this state directory for itself: this backup begins when it has ended"
                );
                (self.events)(Event::Waiting { message });
                told = Some(holder);
            }
        }
    }

    fn lock(&self, how: FlockOperation) -> Result<Presence, DirectorError> {
        if self.is_read_only() {
            return Err(DirectorError::StateReadOnly { path: self.dir().to_owned() });
        }
        let path = self.work_dir().join("writer.lock");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(DirectorError::host("open", &path))?;
        let began = Instant::now();
        loop {
            match flock(&file, how) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < WAIT => std::thread::sleep(LOOKS),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let mut holder = String::new();
                    // The number is a courtesy; without it the message still says what to do.
                    let _ = file.read_to_string(&mut holder);
                    return Err(DirectorError::Busy { holder: holder.trim().to_owned() });
                }
                Err(error) => return Err(DirectorError::host("lock", &path)(error.into())),
            }
        }
        let note = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        note.map_err(DirectorError::host("write", &path))?;
        Ok(Presence { _file: file })
    }
}
