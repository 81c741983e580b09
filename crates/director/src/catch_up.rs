//! Catching up: what a volume holds and the catalog lacks is recorded before anything is appended.
//!
//! A run may be killed between a flush and the commit that follows it. What was flushed counts; so the volume is read
//! back from its last checkpoint to the one that the catalog knows, and flushed before that is recorded.
//!
//! Which volumes these can be, the catalog knows: a session notes each volume before it writes on it
//! ([`Catalog::volume_opened`]), and the note goes when the volume was closed and recorded. Only a catalog that is an
//! older one, which was put back, may know less. It is found out by what a volume of the interrupted object holds: more
//! than a killed session leaves, which is one checkpoint on a volume that is noted. Then every volume that may hold
//! more is looked at.
//!
//! [`Catalog::volume_opened`]: capstan_catalog::Catalog::volume_opened

use capstan_catalog::{Catalog, CheckpointSeen, MediumKind, Reservation, Resource, Volume, VolumeState};
use capstan_format::{Volser, VolumeId};
use capstan_keys::KeyError;
use capstan_mover::{FIRST_SESSION_LBN, FoundCheckpoint};
use capstan_tape::{ChangerError, DriveError, with_causes};

use crate::mounter::{InDrive, Mounter};
use crate::pools::is_copy_pool;
use crate::site::locked;
use crate::{DirectorError, Event};

/// Whether all that the volumes of some pools hold is in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    All,
    /// A volume is absent or cannot be read; it may hold a checkpoint more.
    NotAll,
}

/// Checkpoints on the volume that the catalog lacks: a run was killed between flush and commit.
///
/// Also finds that the volume is not what the catalog thinks: that it ends before its last checkpoint as the catalog
/// knows it, or that its checkpoints do not lead back to that one. Either bars it from being written.
pub(crate) fn catch_up(
    mounter: &Mounter,
    volume: &InDrive,
    known: &Volume,
    life: VolumeId,
) -> Result<u64, DirectorError> {
    record_missing(mounter, volume, known, life).map(|CaughtUp { append_lbn, .. }| append_lbn)
}

/// What became of a volume that was caught up with.
struct CaughtUp {
    /// Where its next session begins.
    append_lbn: u64,
    /// Checkpoints that the catalog lacked.
    recorded: usize,
    /// Whether an incomplete checkpoint stands where it begins, which that will write over.
    is_torn: bool,
}

fn record_missing(
    mounter: &Mounter,
    volume: &InDrive,
    known: &Volume,
    life: VolumeId,
) -> Result<CaughtUp, DirectorError> {
    let (volser, kind) = (volume.volser.clone(), volume.kind(known.medium));
    let mut is_torn = false;
    let last = match volume.last_checkpoint(life) {
        // What a drive could not read just now may be whole: nothing is given up for that.
        Err(error) if error.blames_volume() && !error.is_of_drive() && is_torn_tail(mounter, volume, life, known)? => {
            // Of one that keeps what is on it more is said when it is not appended to.
            let next = match kind {
                MediumKind::Rewritable => "; the next write overwrites it",
                MediumKind::WriteOnce => "",
            };
            let message = format!(
                "volume {volser} ends in an incomplete checkpoint: {}. Nothing of it was reported as protected{next}",
                with_causes(&error)
            );
            (mounter.events)(Event::Notice { message });
            is_torn = kind == MediumKind::Rewritable && may_grow(known);
            match known.checkpoint_lbn {
                0 => None,
                lbn => Some(volume.checkpoint(life, lbn)?),
            }
        }
        last => last?,
    };
    let Some(last) = last else {
        if known.checkpoint_lbn > 0 {
            let reason = format!("it has no checkpoint, and should have one at block {}", known.checkpoint_lbn);
            return Err(DirectorError::VolumeDiffers { volser, reason });
        }
        return Ok(CaughtUp { append_lbn: FIRST_SESSION_LBN, recorded: 0, is_torn });
    };
    if last.lbn < known.checkpoint_lbn {
        let reason = format!(
            "its last checkpoint stands at block {}, and there should be one at block {}: it was cut short",
            last.lbn, known.checkpoint_lbn
        );
        return Err(DirectorError::VolumeDiffers { volser, reason });
    }
    let append_lbn = last.lbn + 2;
    let mut missing = Vec::new();
    let mut at = Some(last);
    while let Some(found) = at.take_if(|found| found.lbn > known.checkpoint_lbn) {
        let previous = found.checkpoint.previous_lbn;
        missing.push(found);
        at = if previous > 0 { Some(volume.checkpoint(life, previous)?) } else { None };
    }
    if at.map_or(0, |found| found.lbn) != known.checkpoint_lbn {
        let lbn = known.checkpoint_lbn;
        let reason =
            format!("its checkpoints do not lead back to the one at block {lbn}: it was written by somebody else");
        return Err(DirectorError::VolumeDiffers { volser, reason });
    }
    if !missing.is_empty() {
        // The run may have been killed in front of its flush as well as behind it; what the catalog lists as protected
        // is flushed.
        volume.flush()?;
    }
    for found in missing.iter().rev() {
        let part = volume.catalog_part(life, found)?;
        let record = session_record(volume, life, found)?;
        let seen = CheckpointSeen {
            volser: &volser,
            volume: life,
            session: found.session,
            session_record: record.as_ref(),
            lbn: found.lbn,
            checkpoint: &found.checkpoint,
            part: &part,
        };
        let mut catalog = locked(&mounter.catalog);
        match &volume.hold {
            Some(hold) => catalog.record_checkpoint_under(&seen, hold.generation())?,
            None => catalog.record_checkpoint(&seen)?,
        };
    }
    if !missing.is_empty() {
        let held =
            if missing.len() == 1 { "1 checkpoint".to_owned() } else { format!("{} checkpoints", missing.len()) };
        let message = format!("volume {volser} holds {held} that the catalog lacked: recorded");
        (mounter.events)(Event::Notice { message });
    }
    Ok(CaughtUp { append_lbn, recorded: missing.len(), is_torn })
}

/// Whether the last checkpoint is one further than the catalog knows: a loss of power can leave its filemark and not
/// all in front of it. What is flushed is recorded before anything else is written, so nothing more can be missing; a
/// volume that has further checkpoints is ahead of an older catalog, and keeps them. So is one that no session is known
/// to have left open: its last checkpoint was reported, and cannot be read now.
fn is_torn_tail(mounter: &Mounter, volume: &InDrive, life: VolumeId, known: &Volume) -> Result<bool, DirectorError> {
    if locked(&mounter.catalog).opened_under(life)?.is_none() {
        return Ok(false);
    }
    let Some(last) = volume.last_checkpoint_lbn(life)? else { return Ok(false) };
    Ok(last > known.checkpoint_lbn && volume.checkpoint_lbn_before(life, last)?.unwrap_or(0) == known.checkpoint_lbn)
}

/// Lets a volume that was set aside be written again: all of it was read and is good. Its end is looked at as before
/// any append. One of no pool is scratch only if it holds nothing that is kept.
pub(crate) fn clear_suspicion(mounter: &Mounter, known: &Volume, life: VolumeId) -> Result<(), DirectorError> {
    let volser = &known.volser;
    let hold = mounter.holds.volume(volser)?;
    // Another job may have had it since it was looked at.
    let known = &mounter.volume(volser)?;
    if known.state != VolumeState::Suspect {
        return Ok(());
    }
    let mut volume = mounter.mount_known(volser, life, hold)?;
    let sound = volume.check_sound();
    let looked = sound.and_then(|()| record_missing(mounter, &volume, known, life));
    let looked = looked.and_then(|caught_up| Ok((volume.end_of_data()?.early_warning, caught_up.is_torn)));
    // Nobody else has it until the catalog says what it is now.
    let _hold = volume.hold.take();
    mounter.dismount(volume)?;
    let (is_full, is_torn) = looked?;
    // All that it holds is known, so nothing keeps it from being freed later. Until it is written over, whoever looks
    // at an incomplete end again must know that nothing of it was reported.
    if !is_torn {
        locked(&mounter.catalog).volume_closed(life)?;
    }
    let pool = match &known.pool {
        Some(pool) => Some(pool.clone()),
        None => {
            let place = place_of_kept(&locked(&mounter.catalog), volser)?;
            match place {
                // What expired of it has given it back.
                PlaceOfKept::Scratch => None,
                PlaceOfKept::Pool(pool) => Some(pool),
                PlaceOfKept::Nowhere => {
                    let message = format!(
                        "volume {volser} stays set aside: all of it is good, but it is in no pool, and the pool that \
                         its objects were written for is gone. Make that pool again (`capstan pools add`), and then \
                         `capstan verify {volser}`"
                    );
                    (mounter.events)(Event::Notice { message });
                    return Ok(());
                }
            }
        }
    };
    let state = match (&pool, is_full) {
        (None, _) => VolumeState::Scratch,
        (Some(_), true) => VolumeState::Full,
        (Some(_), false) => VolumeState::Filling,
    };
    locked(&mounter.catalog).update_volume(volser, |volume| {
        volume.state = state;
        volume.pool = pool;
    })?;
    mounter.change_drive_faults(|faults| faults.forget(volser));
    let message = format!("volume {volser} was set aside, and all of it is good: it may be written again");
    (mounter.events)(Event::Notice { message });
    Ok(())
}

/// Where a volume of no pool belongs by what it holds.
enum PlaceOfKept {
    /// In scratch: it holds nothing that is kept.
    Scratch,
    /// In this pool: copies of what is kept were promised to it.
    Pool(String),
    /// It holds something that is kept, and there is no pool that this was promised to.
    Nowhere,
}

fn place_of_kept(catalog: &Catalog, volser: &Volser) -> Result<PlaceOfKept, DirectorError> {
    let kept = catalog.objects_on(volser)?;
    if kept.is_empty() {
        return Ok(PlaceOfKept::Scratch);
    }
    for object in kept {
        let wanted = catalog.wanted_copies(object.id)?;
        for copy in catalog.copies(object.id)?.into_iter().filter(|copy| copy.volumes.contains(volser)) {
            let Some(promised) = wanted.iter().find(|wanted| wanted.copy == copy.copy) else { continue };
            if catalog.pool(&promised.pool)?.is_some() {
                return Ok(PlaceOfKept::Pool(promised.pool.clone()));
            }
        }
    }
    Ok(PlaceOfKept::Nowhere)
}

fn may_grow(volume: &Volume) -> bool {
    matches!(volume.state, VolumeState::Filling | VolumeState::Suspect)
}

/// The volumes of a pool and of its further copies: those that likely hold more than is known, and the others.
fn likely_volumes<'a>(
    volumes: &'a [Volume],
    pool: &str,
    noted: &[VolumeId],
    held: &[VolumeId],
) -> (Vec<&'a Volume>, Vec<&'a Volume>) {
    let of_pool = |volume: &&Volume| volume.pool.as_deref().is_some_and(|name| is_copy_pool(pool, name));
    volumes.iter().filter(of_pool).partition(|volume| {
        volume.id.is_some_and(|life| noted.contains(&life) || held.contains(&life) && may_grow(volume))
    })
}

/// Whether volumes have to be mounted to know what those of a pool hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looking {
    /// No: all that may hold more are written by jobs, which have looked.
    Needless,
    /// Yes, and nobody has them.
    Possible,
    /// Yes, and a job has one of them, which may be about to write on it.
    Later,
}

/// Whether volumes have to be mounted to know what those of a pool hold.
pub(crate) fn looking(mounter: &Mounter, pool: &str) -> Result<Looking, DirectorError> {
    let living = mounter.holds.living()?;
    let catalog = locked(&mounter.catalog);
    let (volumes, noted, held) = (catalog.volumes()?, catalog.opened_volumes()?, catalog.volumes_of_open_objects()?);
    let mut looking = Looking::Needless;
    for volume in likely_volumes(&volumes, pool, &noted, &held).0 {
        let hold = living.iter().find(|held| held.resource == Resource::Volume(volume.volser.clone()));
        let Some(life) = volume.id else { continue };
        match hold {
            Some(hold) if catalog.opened_under(life)? == Some(hold.generation) => {}
            Some(_) => return Ok(Looking::Later),
            None => looking = Looking::Possible,
        }
    }
    Ok(looking)
}

/// What can be learned now of a volume that may hold more than the catalog knows.
enum Learned {
    /// All of it; so many checkpoints were recorded.
    Recorded(usize),
    /// Nothing, and that will not change soon.
    Nothing,
    /// Nothing yet: its library or its mover is away, or has no drive free.
    NotYet,
}

/// What is known once the volumes of a pool were looked at.
#[derive(Default)]
pub(crate) struct Looked {
    /// Whether a volume cannot be read.
    has_unread: bool,
    /// Volumes that were out of reach, and that a session wrote on which did not close them.
    pub(crate) later: Vec<Volser>,
}

impl Looked {
    pub(crate) fn known(&self) -> Known {
        if self.has_unread || !self.later.is_empty() { Known::NotAll } else { Known::All }
    }

    /// Looks at a volume, which is noted if a session wrote on it and did not close it; gives how many checkpoints were
    /// recorded.
    fn at(
        &mut self,
        mounter: &Mounter,
        (volume, is_noted): (&Volume, bool),
        present: &[Volser],
    ) -> Result<usize, DirectorError> {
        match catch_up_with(mounter, volume, present)? {
            Learned::Recorded(recorded) => return Ok(recorded),
            Learned::NotYet if is_noted => self.later.push(volume.volser.clone()),
            Learned::NotYet | Learned::Nothing => self.has_unread = true,
        }
        Ok(0)
    }

    /// Looks once more at the volumes that were out of reach.
    pub(crate) fn once_more(&mut self, mounter: &Mounter) -> Result<(), DirectorError> {
        let present = mounter.present()?;
        for volser in std::mem::take(&mut self.later) {
            let volume = mounter.volume(&volser)?;
            self.at(mounter, (&volume, true), &present)?;
        }
        Ok(())
    }
}

/// Records what the volumes of a pool and of its further copies hold and the catalog lacks. A volume that is not as it
/// should be is set aside.
pub(crate) fn catch_up_pool(mounter: &Mounter, pool: &str) -> Result<Looked, DirectorError> {
    let present = mounter.present()?;
    let (volumes, noted, held) = {
        let catalog = locked(&mounter.catalog);
        (catalog.volumes()?, catalog.opened_volumes()?, catalog.volumes_of_open_objects()?)
    };
    let (likely, others) = likely_volumes(&volumes, pool, &noted, &held);
    let (mut looked, mut catalog_is_older) = (Looked::default(), false);
    for known in likely {
        let is_noted = known.id.is_some_and(|life| noted.contains(&life));
        catalog_is_older |= looked.at(mounter, (known, is_noted), &present)? > usize::from(is_noted);
    }
    if catalog_is_older {
        for known in others.into_iter().filter(|volume| may_grow(volume)) {
            looked.at(mounter, (known, false), &present)?;
        }
    }
    Ok(looked)
}

/// Catches up with one volume.
fn catch_up_with(mounter: &Mounter, known: &Volume, present: &[Volser]) -> Result<Learned, DirectorError> {
    let Some(life) = known.id else { return Ok(Learned::Recorded(0)) };
    if !present.contains(&known.volser) {
        return Ok(Learned::NotYet);
    }
    // One in another library than the job's needs a drive there, and is left alone where none is free.
    let wish = mounter.wish_beside(&known.volser)?;
    let hold = match mounter.holds.reserve(&wish)? {
        Ok(hold) => hold,
        Err(Reservation { resource: Resource::Seat { .. }, .. }) => return Ok(Learned::NotYet),
        Err(held) => {
            // A job that writes on it has caught up with it before, and records what it writes.
            let is_written = locked(&mounter.catalog).opened_under(life)? == Some(held.generation);
            return Ok(if is_written { Learned::Recorded(0) } else { Learned::NotYet });
        }
    };
    // Another job may have had it since it was looked at.
    let known = &mounter.volume(&known.volser)?;
    if known.id != Some(life) {
        return Ok(Learned::Recorded(0));
    }
    let caught_up = match mounter.mount_known(&known.volser, life, hold) {
        Ok(volume) => {
            let caught_up = record_missing(mounter, &volume, known, life);
            mounter.dismount(volume)?;
            caught_up
        }
        // A run was killed before the label was written: nothing can be on it, and it will be labelled again.
        Err(error) if known.checkpoint_lbn == 0 && error.blames_volume() && !error.is_of_drive() => {
            return Ok(Learned::Recorded(0));
        }
        // Without its key nothing of it can be learned, and other volumes can be written all the same.
        Err(DirectorError::Keys(error)) if error.is_refusal() || matches!(error, KeyError::KeyDestroyed { .. }) => {
            (mounter.events)(Event::Notice { message: with_causes(&error) });
            return Ok(Learned::Nothing);
        }
        // No drive here reads it: what it holds stays unknown, and other volumes can be written all the same.
        Err(error)
            if error.is_of_unfit_drive() || matches!(error, DirectorError::Changer(ChangerError::Foreign { .. })) =>
        {
            (mounter.events)(Event::Notice { message: with_causes(&error) });
            return Ok(Learned::Nothing);
        }
        Err(error) => Err(error),
    };
    match caught_up {
        Ok(CaughtUp { recorded, is_torn, .. }) => {
            // Until it is written over, whoever looks again must know that nothing of it was reported.
            if !is_torn {
                locked(&mounter.catalog).volume_closed(life)?;
            }
            return Ok(Learned::Recorded(recorded));
        }
        // Another drive, or this one later, may read it.
        Err(error) if error.is_of_drive() => {
            (mounter.events)(Event::Notice { message: with_causes(&error) });
            let may_pass = error.of_drive().is_some_and(DriveError::may_pass) && known.state != VolumeState::Suspect;
            return Ok(if may_pass { Learned::NotYet } else { Learned::Nothing });
        }
        // A full disk, a catalog that cannot be written: no fault of the volume, and no run can go on.
        Err(error) if !error.blames_volume() => return Err(error),
        Err(_) if known.state == VolumeState::Suspect => {}
        Err(DirectorError::VolumeDiffers { volser, reason }) => set_aside(mounter, volser, reason)?,
        Err(error) => set_aside(mounter, known.volser.clone(), error.to_string())?,
    }
    Ok(Learned::Nothing)
}

/// Bars a volume from being written, and says why.
pub(crate) fn set_aside(mounter: &Mounter, volser: Volser, reason: String) -> Result<(), DirectorError> {
    mounter.suspect(&volser, &reason)?;
    let error = DirectorError::VolumeDiffers { volser, reason };
    (mounter.events)(Event::Notice { message: error.to_string() });
    Ok(())
}

/// The header of the session that a checkpoint is the first of.
pub(crate) fn session_record(
    volume: &InDrive,
    life: VolumeId,
    found: &FoundCheckpoint,
) -> Result<Option<capstan_format::SessionRecord>, DirectorError> {
    if found.checkpoint.number != 1 {
        return Ok(None);
    }
    let previous = found.checkpoint.previous_lbn;
    let lbn = if previous > 0 { previous + 2 } else { FIRST_SESSION_LBN };
    let (session, record) = volume.session_record(life, lbn)?;
    Ok((session == found.session).then_some(record))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::{Drive, Fault, FaultyDrive};

    use super::*;
    use crate::library_in_tests::StateInTests;
    use crate::site::Site;
    use crate::{BackupWatch, Config};

    fn refuses_first_flush(drive: Box<dyn Drive>) -> Box<dyn Drive> {
        Box::new(FaultyDrive::new(drive, vec![Fault::FlushRefused { flush: 0 }]))
    }

    /// A run that was killed between a checkpoint's last block and its flush left the checkpoint in the page cache; it
    /// was recorded as protected, and a loss of power took it.
    #[test]
    fn what_is_recorded_late_is_flushed_first() {
        let state = StateInTests::new(Config::default(), b"a");
        let site = state.open();
        site.backup(&state.request, &BackupWatch::default()).unwrap();

        let known = locked(&site.catalog).volumes().unwrap().remove(0);
        let life = known.id.unwrap();
        drop(site);
        for (checkpoint_lbn, is_flushed) in [(known.checkpoint_lbn, false), (0, true)] {
            let mounter = Mounter::new(&state.open_dressed(|_| {}, refuses_first_flush));
            let volume = mounter.mount(&known.volser).unwrap();
            let caught_up = catch_up(&mounter, &volume, &Volume { checkpoint_lbn, ..known.clone() }, life);
            match caught_up {
                Err(DirectorError::Volume { source: DriveError::Deferred { .. }, .. }) => assert!(is_flushed),
                other => assert!(!is_flushed, "{other:?}"),
            }
            mounter.dismount(volume).unwrap();
        }
    }

    fn is_reset_always(drive: Box<dyn Drive>) -> Box<dyn Drive> {
        Box::new(FaultyDrive::new(drive, (0..500).map(|command| Fault::Reset { command }).collect()))
    }

    /// A drive that failed at each cartridge set the volumes of a pool aside, one after the other.
    #[test]
    fn a_drive_that_fails_sets_no_volume_aside() {
        let state = StateInTests::new(Config::default(), b"a");
        let backup = |site: Site| site.backup(&state.request, &BackupWatch::default());
        backup(state.open()).unwrap();
        let failed = backup(state.open_dressed(|_| {}, is_reset_always)).unwrap_err();
        assert!(with_causes(&failed).contains("reset"), "{failed:?}");
        let first = || locked(&state.open().catalog).volumes().unwrap().remove(0);
        let before = first();
        assert_eq!(before.state, VolumeState::Filling);
        backup(state.open()).unwrap();
        assert!(first().checkpoint_lbn > before.checkpoint_lbn, "it goes on where it was");
    }
}
