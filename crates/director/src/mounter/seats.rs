//! Seats: who may use drives at the same time.
//!
//! There are as many seats as drives. A job takes all that it needs at once, before it mounts anything, and waits for
//! them if it must; so no two jobs each wait for a drive that the other has. What takes a drive for moments only (a
//! volume is labelled, say) has no seat: it uses a drive that is free, and whoever has a seat and finds no drive free
//! waits for those moments.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_catalog::{Reservation, Resource, Wish};
use capstan_format::Volser;
use capstan_tape::ChangerError;

use super::{Mounter, locked};
use crate::hold::{Hold, holder};
use crate::{DirectorError, Event};

/// How often whoever has a seat looks for a drive that is free.
const LOOKS: Duration = Duration::from_millis(200);

/// Whether drives are waited for that other jobs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drives {
    Waited,
    /// Nothing is done where none are free.
    IfFree,
}

/// What one job has of the drives.
#[derive(Default)]
pub(crate) struct JobDrives {
    /// Its seats; none for one that needs none, or where nothing can be recorded.
    seats: Mutex<Option<Hold>>,
    /// Under which generations it reserved the volumes that it mounted.
    mounted: Mutex<Vec<u64>>,
}

impl Mounter {
    /// Takes as many seats as drives are needed at the same time, or as there are; waits for them, and says so.
    pub(crate) fn take_seats(&self, wanted: u32) -> Result<(), DirectorError> {
        let Some(wish) = self.wish_for_seats(wanted)? else { return Ok(()) };
        let waiting = |held: &Reservation| {
            let drives = if wish.seats_of == 1 { "the drive" } else { "each drive that is needed" };
            format!("{drives} is in use, by {}: this job goes on when it is free", holder(held))
        };
        let hold = match self.holds.wait_for(&wish, &self.stop, waiting) {
            // Whoever restores must be able to, on a full disk too.
            Err(DirectorError::Catalog(_)) => None,
            hold => Some(hold?),
        };
        *locked(&self.drives.seats) = hold;
        Ok(())
    }

    /// Takes seats if they are free; whether it has them.
    pub(crate) fn try_to_take_seats(&self, wanted: u32) -> Result<bool, DirectorError> {
        let Some(wish) = self.wish_for_seats(wanted)? else { return Ok(true) };
        let Ok(hold) = self.holds.reserve(&wish)? else { return Ok(false) };
        *locked(&self.drives.seats) = Some(hold);
        Ok(true)
    }

    /// Gives its seats to others.
    pub(crate) fn leave_seats(&self) {
        let seats = locked(&self.drives.seats).take();
        drop(seats);
    }

    /// None where it has seats already.
    fn wish_for_seats(&self, wanted: u32) -> Result<Option<Wish>, DirectorError> {
        if locked(&self.drives.seats).is_some() {
            return Ok(None);
        }
        let drives = locked(&self.library).drives().map_err(DirectorError::Changer)?;
        Ok(Some(Wish { seats: wanted.min(drives), seats_of: drives, ..Wish::default() }))
    }

    /// Notes that a volume is this job's, and not what it waits for.
    pub(super) fn mounts_under(&self, hold: &Hold) {
        locked(&self.drives.mounted).push(hold.generation());
    }

    /// Waits a little for a drive, if another job has one that will be free again; else says why there is none.
    pub(super) fn wait_for_drive(
        &self,
        volser: &Volser,
        busy: ChangerError,
        said: &mut bool,
    ) -> Result<(), DirectorError> {
        let is_taken = matches!(busy, ChangerError::InUse { .. }) && self.other_job_has_a_volume()?;
        if !is_taken {
            return Err(DirectorError::Changer(busy));
        }
        if !std::mem::replace(said, true) {
            let message = format!("{busy}; volume {volser} is mounted when a drive is free");
            (self.events)(Event::Waiting { message });
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(DirectorError::Interrupted);
        }
        std::thread::sleep(LOOKS);
        Ok(())
    }

    fn other_job_has_a_volume(&self) -> Result<bool, DirectorError> {
        let own = locked(&self.drives.mounted).clone();
        let is_other =
            |held: &Reservation| matches!(held.resource, Resource::Volume(_)) && !own.contains(&held.generation);
        Ok(self.holds.living()?.iter().any(is_other))
    }
}
