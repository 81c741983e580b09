//! Seats: who may use drives at the same time.
//!
//! Each library has as many seats as drives. A job takes all that it needs at once, before it mounts anything, and
//! waits for them if it must; so no two jobs each wait for a drive that the other has. Where drives differ they may: a
//! job that has a drive already waits for another one for some minutes only. What takes a drive for moments only (a
//! volume is labelled, say) has no seat: it uses a drive that is free, and whoever has a seat and finds no drive free
//! waits for those moments.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use capstan_catalog::{Reservation, Resource, SeatsWanted, Wish};
use capstan_format::Volser;
use capstan_tape::ChangerError;

use super::{Mounter, locked};
use crate::drive_waits::note_wait;
use crate::hold::{Hold, holder, what};
use crate::libraries::{LibraryAt, in_words};
use crate::{DirectorError, DrivesOwner, Event};

/// How long a job that has a drive waits for another one among drives that differ.
pub(super) const UNLIKE_WAITS_MAX: Duration = Duration::from_secs(300);
/// How often whoever has a seat looks for a drive that is free.
pub(super) const LOOKS: Duration = Duration::from_millis(200);
/// How many looks in a row find a drive in use though no job of this site has a volume, before it is a stranger's: one
/// that had it may end between two looks, and a killed process keeps its drives for moments.
const STRANGER_LOOKS: u32 = 5;

/// Whether drives are waited for that other jobs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drives {
    Waited,
    /// Nothing is done where none are free.
    IfFree,
}

/// How a job has waited for a drive.
#[derive(Default)]
pub(super) struct DriveWait {
    /// Since when. None before the first look.
    since: Option<Instant>,
    /// How many of the last looks found no job that could have the drive.
    of_strangers: u32,
}

/// What one job has of the drives.
#[derive(Default)]
pub(crate) struct JobDrives {
    /// Under which generations it reserved the volumes that it mounted.
    mounted: Mutex<Vec<u64>>,
    /// The drives that have volumes of its.
    used: AtomicUsize,
}

impl JobDrives {
    /// Counts one more drive.
    pub(super) fn one_more(self: &Arc<Self>) -> DriveOfJob {
        self.used.fetch_add(1, Ordering::Relaxed);
        DriveOfJob(Arc::clone(self))
    }
}

/// A drive that has a volume of a job.
pub(super) struct DriveOfJob(Arc<JobDrives>);

impl Drop for DriveOfJob {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Mounter {
    /// Takes as many seats as drives are needed at the same time, or as there are; waits for them, and says so.
    pub(crate) fn seats(&self, wanted: u32) -> Result<Hold, DirectorError> {
        self.wait_for(&Wish { seats: vec![self.seats_at(&self.library, wanted)?], ..Wish::default() })
    }

    /// Takes seats for as many drive sets of so many drives each as are free; waits for those of one if none are. How
    /// many sets they are for.
    pub(crate) fn seats_for_sets(&self, drives: u32, sets: u32) -> Result<(Hold, u32), DirectorError> {
        for sets in (2..=sets).rev() {
            let wish = Wish { seats: vec![self.seats_at(&self.library, drives * sets)?], ..Wish::default() };
            if let Ok(hold) = self.holds.reserve(&wish)? {
                self.mounts_under(&hold);
                return Ok((hold, sets));
            }
        }
        Ok((self.seats(drives)?, 1))
    }

    /// How many drives nobody has of the library that a volume is in.
    pub(crate) fn drives_free(&self, volser: &Volser) -> Result<u32, DirectorError> {
        let library = self.libraries.of_volume(&self.catalog, volser, &self.library)?;
        let is_seat =
            |held: &Reservation| matches!(&held.resource, Resource::Seat { library: of, .. } if *of == library.name);
        let taken = self.holds.living()?.iter().filter(|held| is_seat(held)).count();
        Ok(library.devices.drives()?.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX)))
    }

    /// One seat, if a drive is free.
    pub(crate) fn seat_if_free(&self) -> Result<Option<Hold>, DirectorError> {
        let wish = Wish { seats: vec![self.seats_at(&self.library, 1)?], ..Wish::default() };
        let hold = self.holds.reserve(&wish)?.ok();
        hold.iter().for_each(|hold| self.mounts_under(hold));
        Ok(hold)
    }

    /// Reserves volumes that are read, and a seat for them in each library that has some; and one in the library that
    /// the job writes in, if it writes: all at once, so that nobody has one thing and waits for
    /// another. None where nothing can be recorded: whoever restores must be able to, on a full disk too, and the
    /// drives' own locks keep others away.
    pub(crate) fn hold_to_read(&self, volumes: &[Volser], writes: bool) -> Result<Option<Hold>, DirectorError> {
        match self.wait_for(&self.wish_to_read(volumes, writes)?) {
            Err(DirectorError::Catalog(error)) => {
                let message = format!("that volumes are in use could not be noted: {error}");
                (self.events)(Event::Notice { message });
                Ok(None)
            }
            hold => hold.map(Some),
        }
    }

    /// [`Mounter::hold_to_read`] if nobody has any of it.
    pub(crate) fn hold_to_read_if_free(&self, volumes: &[Volser], writes: bool) -> Result<Option<Hold>, DirectorError> {
        let hold = self.holds.reserve(&self.wish_to_read(volumes, writes)?)?.ok();
        if let Some(hold) = &hold {
            self.mounts_under(hold);
        }
        Ok(hold)
    }

    /// Notes that somebody waits for a drive of a library, unless the queue knows.
    pub(crate) fn note_wait_at(&self, library: &str) {
        if !self.is_of_queue {
            note_wait(&self.catalog, library, self.now_ns());
        }
    }

    fn wait_for(&self, wish: &Wish) -> Result<Hold, DirectorError> {
        let hold = self.holds.wait_for(wish, (&self.stop, &self.events), |held| {
            if let Resource::Seat { library, .. } = &held.resource {
                self.note_wait_at(library);
                return self.waits_for_seat(wish, library, held);
            }
            if let Resource::Volume(volser) = &held.resource
                && let Ok(library) = self.libraries.of_volume(&self.catalog, volser, &self.library)
            {
                // Restores that join others keep it for longer.
                self.note_wait_at(&library.name);
            }
            let (what, holder) = (what(&held.resource), holder(held));
            format!("{what} is in use by {holder}: this job goes on when it is free")
        })?;
        self.mounts_under(&hold);
        Ok(hold)
    }

    /// A volume, and a seat where it is in another library than the job writes in.
    pub(crate) fn wish_beside(&self, volser: &Volser) -> Result<Wish, DirectorError> {
        let library = self.libraries.of_volume(&self.catalog, volser, &self.library)?;
        let is_own = library.name == self.library.name;
        let seats = if is_own { Vec::new() } else { vec![self.seats_at(library, 1)?] };
        Ok(Wish { seats, ..Wish::alone(Resource::Volume(volser.clone())) })
    }

    /// What whoever waits for drives of a library is told.
    fn waits_for_seat(&self, wish: &Wish, library: &str, held: &Reservation) -> String {
        let of = if self.libraries.are_several() { format!(" of {}", in_words(library)) } else { String::new() };
        let wanted = wish.seats.iter().find(|seats| seats.library == library);
        let (seats, all) = wanted.map_or((1, 1), |seats| (seats.wanted, seats.of));
        match (seats, all) {
            (_, 1) => format!("the drive{of} is in use by {}: this job goes on when it is free", holder(held)),
            (1, _) => format!("other jobs use all drives{of}: this job goes on when one is free"),
            _ => format!("this job needs {seats} drives{of} at once: it goes on when other jobs leave it as many"),
        }
    }

    fn seats_at(&self, library: &LibraryAt, wanted: u32) -> Result<SeatsWanted, DirectorError> {
        let of = library.devices.drives()?;
        Ok(SeatsWanted { library: library.name.clone(), wanted: wanted.min(of), of })
    }

    /// Whether volumes can be read while another one is written in the library of this mounter.
    pub(crate) fn check_drives_to_copy(&self, volumes: &[Volser]) -> Result<(), DirectorError> {
        for volser in volumes {
            let library = self.libraries.of_volume(&self.catalog, volser, &self.library)?;
            if library.name == self.library.name && library.devices.drives()? == 1 {
                let owner = DrivesOwner::of(&library.config);
                return Err(DirectorError::OneDrive { library: library.name.clone(), owner });
            }
        }
        Ok(())
    }

    fn wish_to_read(&self, volumes: &[Volser], writes: bool) -> Result<Wish, DirectorError> {
        let mut libraries: Vec<(&LibraryAt, u32)> = Vec::new();
        if writes {
            libraries.push((&self.library, 1));
        }
        for volser in volumes {
            let library = self.libraries.of_volume(&self.catalog, volser, &self.library)?;
            let written = usize::from(writes);
            match libraries[written..].iter().any(|(known, _)| known.name == library.name) {
                true => {}
                false => libraries.push((library, 1)),
            }
        }
        if volumes.is_empty() && !writes {
            libraries.push((&self.library, 1));
        }
        let mut seats: Vec<SeatsWanted> = Vec::new();
        for (library, wanted) in libraries {
            match seats.iter_mut().find(|seats| seats.library == library.name) {
                Some(seats) => seats.wanted = (seats.wanted + wanted).min(seats.of),
                None => seats.push(self.seats_at(library, wanted)?),
            }
        }
        let alone = volumes.iter().cloned().map(Resource::Volume).collect();
        Ok(Wish { alone, seats, ..Wish::default() })
    }

    /// Notes that a volume is this job's, and not what it waits for.
    pub(super) fn mounts_under(&self, hold: &Hold) {
        locked(&self.drives.mounted).push(hold.generation());
    }

    /// A volume was put back, or left to another job that reads it.
    pub(super) fn mounts_no_more_under(&self, hold: &Hold) {
        locked(&self.drives.mounted).retain(|generation| *generation != hold.generation());
    }

    /// The last generation that this job has mounted under; 0 for none.
    pub(super) fn last_generation(&self) -> u64 {
        locked(&self.drives.mounted).last().copied().unwrap_or_default()
    }

    /// Waits a little for a drive, if another job has one that will be free again; else says why there is none.
    pub(super) fn wait_for_drive(
        &self,
        volser: &Volser,
        busy: ChangerError,
        library: &LibraryAt,
        waited: &mut DriveWait,
    ) -> Result<(), DirectorError> {
        if !matches!(busy, ChangerError::InUse { .. }) {
            return Err(DirectorError::Changer(busy));
        }
        if self.other_job_has_a_volume()? {
            waited.of_strangers = 0;
        } else {
            waited.of_strangers += 1;
            if waited.of_strangers >= STRANGER_LOOKS {
                return Err(DirectorError::Changer(busy));
            }
            return self.pause();
        }
        let since = &mut waited.since;
        // A seat is one at any of the library's drives: where they differ, two jobs may each wait for one that the
        // other has. One that has none keeps nobody waiting.
        let may_deadlock = self.drives.used.load(Ordering::Relaxed) > 0;
        if may_deadlock && since.is_some_and(|since| since.elapsed() > self.unlike_waits) && library.has_unlike_drives()
        {
            return Err(DirectorError::Changer(busy));
        }
        let is_first = since.is_none();
        // The time counts from when it has another one.
        if is_first || !may_deadlock {
            *since = Some(Instant::now());
        }
        if is_first {
            let message = format!("{busy}; volume {volser} is mounted when a drive is free");
            (self.events)(Event::Waiting { message });
        }
        self.pause()
    }

    /// Lets time go by until the next look.
    fn pause(&self) -> Result<(), DirectorError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(DirectorError::Interrupted);
        }
        std::thread::sleep(self.looks);
        Ok(())
    }

    fn other_job_has_a_volume(&self) -> Result<bool, DirectorError> {
        let own = locked(&self.drives.mounted).clone();
        let is_other =
            |held: &Reservation| matches!(held.resource, Resource::Volume(_)) && !own.contains(&held.generation);
        Ok(self.holds.living()?.iter().any(is_other))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_keys::create_key_file;
    use capstan_tape::{DriveDescription, VirtualLibrary};

    use super::*;
    use crate::library_in_tests::LibraryInTests;
    use crate::{Config, InitOptions, Site};

    /// Two drives that differ, as their library says.
    fn mixed(drives: Vec<DriveDescription>) -> Vec<DriveDescription> {
        let classes = ["LTO-9", "LTO-8"].map(|class| Some(class.to_owned()));
        drives.into_iter().zip(classes).map(|(drive, class)| DriveDescription { class, ..drive }).collect()
    }

    /// Two jobs that each have a drive may wait for that of the other; one that has none waits until there is one.
    #[test]
    fn among_drives_that_differ_only_whoever_has_one_gives_up() {
        let dir = tempfile::tempdir().unwrap();
        let unlock = create_key_file(&dir.path().join("key")).unwrap();
        let (state, mut config) = (dir.path().join("state"), Config::default());
        config.library.drives = 2;
        let options = InitOptions { config, encryption: None, database: capstan_catalog::Database::Sqlite };
        Site::init(&state, &options, Some(&unlock)).unwrap();
        let site = Site::open(&state, Some(&unlock), || 0, Arc::new(|_| {})).unwrap();
        let library = VirtualLibrary::open(site.library_dir(), 2).unwrap();
        let site = site.with_library(LibraryInTests { inner: library, described: mixed, dressed: |drive| drive });
        let mut mounter = Mounter::new(&site);
        (mounter.unlike_waits, mounter.looks) = (Duration::ZERO, Duration::ZERO);
        let volser = Volser::new("A00001").unwrap();
        let wait = |mounter: &Mounter| {
            let busy = ChangerError::InUse { what: "drive 0".to_owned(), holder: "another job".to_owned() };
            let mut waited = DriveWait { since: Some(Instant::now()), ..DriveWait::default() };
            std::thread::sleep(Duration::from_millis(1));
            mounter.wait_for_drive(&volser, busy, &mounter.library, &mut waited)
        };
        let other = Mounter::new(&site);
        let _used = other.holds.volume(&Volser::new("A00002").unwrap()).unwrap();
        wait(&mounter).unwrap();
        let own = mounter.drives.one_more();
        assert!(matches!(wait(&mounter), Err(DirectorError::Changer(ChangerError::InUse { .. }))));
        drop(own);
        wait(&mounter).unwrap();
    }

    /// Whoever had the drive may have ended since it was found in use: it is looked at again before it counts as a
    /// stranger's.
    #[test]
    fn a_drive_is_a_strangers_when_several_looks_find_nobody_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let unlock = create_key_file(&dir.path().join("key")).unwrap();
        let state = dir.path().join("state");
        let options =
            InitOptions { config: Config::default(), encryption: None, database: capstan_catalog::Database::Sqlite };
        Site::init(&state, &options, Some(&unlock)).unwrap();
        let site = Site::open(&state, Some(&unlock), || 0, Arc::new(|_| {})).unwrap();
        let (mut mounter, other) = (Mounter::new(&site), Mounter::new(&site));
        mounter.looks = Duration::ZERO;
        let volser = Volser::new("A00001").unwrap();
        let wait = |waited: &mut DriveWait| {
            let busy = ChangerError::InUse { what: "drive 0".to_owned(), holder: "somebody".to_owned() };
            mounter.wait_for_drive(&volser, busy, &mounter.library, waited)
        };
        let mut waited = DriveWait::default();
        for _ in 1..STRANGER_LOOKS {
            wait(&mut waited).unwrap();
        }
        let used = other.holds.volume(&Volser::new("A00002").unwrap()).unwrap();
        wait(&mut waited).unwrap();
        drop(used);
        for _ in 1..STRANGER_LOOKS {
            wait(&mut waited).unwrap();
        }
        assert!(matches!(wait(&mut waited), Err(DirectorError::Changer(ChangerError::InUse { .. }))));
    }
}
