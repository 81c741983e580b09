//! Finding and handing out volumes to one copy of a session, and recording what it has flushed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_catalog::{
    Catalog, CatalogError, CheckpointSeen, KeyRef, Moment, Pool, Promise, Resource, ScratchFeed, Volume, VolumeState,
    Wish,
};
use capstan_format::{BLOCK_HEADER_LEN, SessionId, Volser, VolumeId};
use capstan_keys::KeyError;
use capstan_mover::{
    Commit, CopyHost, DriveHealth, FIRST_SESSION_LBN, HostError, MountId, Mounted, MoverError, VolumeEnd,
};
use capstan_tape::{Blame, ChangerError, DriveError, EncryptionState, FolderRoom, UnfitDrive, WriteFit, with_causes};

use crate::catch_up::{catch_up, set_aside};
use crate::config::Config;
use crate::drive_faults::DriveAt;
use crate::hold::Hold;
use crate::label::{create_cartridge, label_volume, random_u64, why_not_given_up};
use crate::lifetime::{Lifetime, LifetimeSpan};
use crate::mounter::{InDrive, Mounter, generation_of};
use crate::pools::{Candidate, Choice, Fill, Refill, WantedVolume, choose_volume};
use crate::request::Shortfall;
use crate::room::give_room_back;
use crate::site::locked;
use crate::volume_lifetimes::lifetimes_of_volumes;
use crate::{DirectorError, Event, WriteOnceBar};

/// How often an operator's new volume is looked for.
const WAIT_EVERY: Duration = Duration::from_secs(2);

/// How often whoever waits looks whether to stop: a person who pressed Ctrl-C takes this for at once.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// Serves one copy of a session with volumes of one pool.
pub(crate) struct AppendHost {
    pub(crate) mounter: Mounter,
    pub(crate) config: Arc<Config>,
    /// Where new virtual cartridges are made.
    pub(crate) library_dir: PathBuf,
    pub(crate) pool: Pool,
    pub(crate) copy: u8,
    pub(crate) shortfall: Shortfall,
    /// How long what is written will be kept.
    pub(crate) lifetime: Lifetime,
    /// The volume that is written.
    pub(crate) writing: Option<Writing>,
    /// The drive in which a volume failed that was mounted, where the error does not name it.
    pub(crate) failed_in: Mutex<Option<String>>,
}

/// A volume that is written.
pub(crate) struct Writing {
    volume: InDrive,
    life: VolumeId,
    generation: u64,
}

/// The catalog's volumes as the choice sees them.
pub(crate) fn candidates(
    volumes: &[Volume],
    present: &[Volser],
    rooms: &[FolderRoom],
    fits: &HashMap<Volser, WriteFit>,
    lifetimes: &HashMap<Volser, LifetimeSpan>,
) -> Vec<Candidate> {
    let lacks_room = |volume: &Volume, fill: Fill| {
        let lies_in = rooms.iter().find(|room| room.volumes.contains(&volume.volser));
        // What is written from its beginning gives its room back first.
        let given_back = if fill == Fill::Empty { volume.written } else { 0 };
        lies_in.is_some_and(|room| !room.has_room_with(given_back))
    };
    let candidate = |volume: &Volume| {
        let fill = match volume.state {
            VolumeState::Blank | VolumeState::Scratch => Fill::Empty,
            VolumeState::Filling if volume.checkpoint_lbn == 0 => Fill::Empty,
            // It protects nothing any more, and nothing is added to it.
            VolumeState::Filling if volume.key_destroyed_ns.is_some() => Fill::Full,
            VolumeState::Filling => Fill::Filling,
            VolumeState::Full => Fill::Full,
            VolumeState::Suspect | VolumeState::Retired => Fill::Barred,
        };
        Candidate {
            volser: volume.volser.clone(),
            pool: volume.pool.clone(),
            fill,
            written_bytes: volume.written,
            present: present.contains(&volume.volser),
            lacks_room: lacks_room(volume, fill),
            fit: fits.get(&volume.volser).copied().unwrap_or(WriteFit::Own),
            lifetimes: lifetimes.get(&volume.volser).copied(),
        }
    };
    volumes.iter().map(candidate).collect()
}

impl AppendHost {
    fn block_len_max(&self) -> u32 {
        (BLOCK_HEADER_LEN + self.config.chunk_len()) as u32
    }

    fn next_volser(&self, present: &[Volser], volumes: &[Volume], in_use: &[Volser]) -> Option<Volser> {
        // A name that a volume had which is forgotten is not given again: its cartridge may come back.
        let first = crate::names::last_used(&locked(&self.mounter.catalog)) + 1;
        (first..=99_999u32).find_map(|number| {
            let volser = crate::names::volser_of(number)?;
            let taken = present.contains(&volser)
                || in_use.contains(&volser)
                || volumes.iter().any(|volume| volume.volser == volser);
            (!taken).then_some(volser)
        })
    }

    /// Refuses to make a cartridge where none of those that are known is in the library: a disk may not be mounted.
    /// Folders of one that has several are marked, each of them.
    fn check_library_is_there(&self, present: &[Volser], volumes: &[Volume]) -> Result<(), DirectorError> {
        if !self.mounter.library.config.folders.is_empty() {
            return Ok(());
        }
        let own = &self.mounter.library.name;
        let known = volumes.iter().filter(|volume| volume.id.is_some() && volume.library == *own);
        let known: Vec<_> = known.map(|volume| &volume.volser).collect();
        if known.is_empty() || known.iter().any(|volser| present.contains(volser)) {
            return Ok(());
        }
        let (path, pool) = (self.library_dir.clone(), self.pool.name.clone());
        Err(DirectorError::CartridgesGone { path, known: known.len(), pool })
    }

    /// Waits until it is worth looking for a volume again.
    fn pause(&self) -> Result<(), DirectorError> {
        let began = std::time::Instant::now();
        while began.elapsed() < WAIT_EVERY {
            if self.mounter.is_to_stop() {
                return Err(DirectorError::Interrupted);
            }
            std::thread::sleep(STOP_EVERY);
        }
        Ok(())
    }

    /// Chooses a volume of those that nobody has, and reserves it; no hold for one that another job took meanwhile.
    fn choose(&self, barred: &[Volser]) -> Result<(Choice, Option<Hold>), DirectorError> {
        let mut choice = self.choice(barred, None)?;
        if matches!(choice, Choice::Nothing(_)) {
            // A volume that another job made between the looks was in one of them alone.
            choice = self.choice(barred, None)?;
        }
        let (Choice::Append(volser) | Choice::Label(volser)) = &choice else { return Ok((choice, None)) };
        let wish = Wish::alone(Resource::Volume(volser.clone()));
        let Ok(hold) = self.mounter.holds.reserve(&wish)? else { return Ok((choice, None)) };
        // Between look and reservation another job may have had it and let it go: it is looked at once more, as if it
        // were free.
        let looked = self.choice(barred, Some(volser))?;
        let same = looked == choice;
        Ok((choice, same.then_some(hold)))
    }

    /// What is to be written next, where `own` counts as free.
    fn choice(&self, barred: &[Volser], own: Option<&Volser>) -> Result<Choice, DirectorError> {
        self.choice_beside(0, barred, own)
    }

    /// The same where so many new cartridges are for others.
    pub(crate) fn choice_beside(
        &self,
        made: usize,
        barred: &[Volser],
        own: Option<&Volser>,
    ) -> Result<Choice, DirectorError> {
        let mut in_use = self.mounter.holds.volumes()?;
        in_use.retain(|volser| Some(volser) != own);
        in_use.extend_from_slice(barred);
        in_use.extend(self.mounter.holds.emptied()?);
        // Behind the look at the reservations: what was let go of before that look is seen as it was left. And before
        // the look into the library: what is made meanwhile is no volume that is away.
        let (volumes, lifetimes) = {
            let catalog = locked(&self.mounter.catalog);
            (catalog.volumes()?, lifetimes_of_volumes(&catalog, &self.config)?)
        };
        let present = self.mounter.present_to_write()?;
        let anywhere = self.mounter.anywhere_here()?;
        let library = &self.mounter.library.config;
        let rooms = self.mounter.rooms()?;
        let folders_full = !rooms.is_empty() && !rooms.iter().any(FolderRoom::has_room);
        let room = if library.is_virtual() && !folders_full { library.volumes_max as usize } else { 0 };
        let refill = Refill {
            scratch: self.pool.feed == ScratchFeed::Allowed,
            create: room.saturating_sub(anywhere.len() + made),
            reserve: self.config.attention.scratch_volumes as usize,
        };
        let fits = self.mounter.write_fits(&volumes)?;
        let candidates = candidates(&volumes, &present, &rooms, &fits, &lifetimes);
        let wanted = WantedVolume { pool: &self.pool.name, lifetime: self.lifetime, refill };
        let mut choice = choose_volume(&candidates, wanted, &in_use);
        if let Choice::Nothing(shortage) = &mut choice {
            shortage.folders_full = folders_full;
            // With none allowed, a person makes them.
            shortage.cartridges_max = Some(library.volumes_max).filter(|_| room > 0);
        }
        Ok(choice)
    }

    /// Makes a cartridge, and reserves it before it is there; none where another job makes one of that name.
    fn create(&self) -> Result<Option<(Volser, Hold)>, DirectorError> {
        // Before the look into the library: what another job labels behind that look would be taken for gone.
        let volumes = locked(&self.mounter.catalog).volumes()?;
        let in_use = self.mounter.holds.volumes()?;
        let anywhere = self.mounter.anywhere_here()?;
        // Nor is a name taken that a stranger in another library has.
        let mut taken = self.mounter.present()?;
        taken.extend_from_slice(&anywhere);
        let Some(volser) = self.next_volser(&taken, &volumes, &in_use) else {
            let none = crate::pools::Shortage { full: volumes.len(), ..Default::default() };
            return Err(DirectorError::NoVolume { pool: self.pool.name.clone(), shortage: none });
        };
        self.check_library_is_there(&anywhere, &volumes)?;
        let wish = Wish::alone(Resource::Volume(volser.clone()));
        let Ok(hold) = self.mounter.holds.reserve(&wish)? else { return Ok(None) };
        if locked(&self.mounter.catalog).volume(&volser)?.is_some() {
            return Ok(None);
        }
        // With the name reserved, the room is counted once more: what was made since the choice, and what others are
        // making, which are reserved names that neither catalog nor library knows.
        let anywhere = self.mounter.anywhere_here()?;
        let is_new = |other: &Volser| {
            *other != volser && !anywhere.contains(other) && volumes.iter().all(|known| known.volser != *other)
        };
        let others = self.mounter.holds.volumes()?.iter().filter(|other| is_new(other)).count();
        if (anywhere.len() + others) as u64 >= u64::from(self.mounter.library.config.volumes_max) {
            return Ok(None);
        }
        match create_cartridge(&self.mounter, &volser, self.mounter.library.config.volume_mib << 20) {
            Ok(()) => Ok(Some((volser, hold))),
            // Of another job's cartridge, or of one that is away with its disk.
            Err(DirectorError::Changer(ChangerError::VolserTaken { .. })) => {
                crate::names::note_used(&mut locked(&self.mounter.catalog), [&volser]);
                Ok(None)
            }
            // Somebody has filled the disk since: what to do then is decided anew.
            Err(DirectorError::Changer(ChangerError::FoldersFull { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn mount_next(&mut self) -> Result<InDriveForAppend, DirectorError> {
        let mut said = None;
        // The tab says nothing of what is on a volume: another is taken, and it is good again once its tab is back.
        let (mut protected, mut told) = (Vec::new(), Vec::new());
        let (mut past, mut occupied) = (Vec::new(), Vec::new());
        let mut of_drive = None;
        let mut doubted = self.mounter.drive_faults().doubted();
        // A volume that failed where the drive took another one since.
        let mut perhaps_bad: Option<(Volser, String, DriveAt)> = None;
        self.mounter.check_policy(&self.pool)?;
        give_room_back(&self.mounter);
        // Where drives differ, a volume whose drive is free goes before one that would be waited for.
        let is_mixed = self.mounter.library.has_unlike_drives();
        self.mounter.waits_for_drives(!is_mixed);
        loop {
            let mut barred = protected.clone();
            barred.extend_from_slice(&past);
            barred.extend_from_slice(&occupied);
            barred.extend_from_slice(&doubted);
            let (choice, hold) = self.choose(&barred)?;
            *locked(&self.failed_in) = None;
            let (volser, prepared) = match (choice, hold) {
                (Choice::Append(volser), Some(hold)) => (volser.clone(), self.append_to(&volser, hold)),
                (Choice::Label(volser), Some(hold)) => (volser.clone(), self.label(&volser, hold)),
                // Another job was first.
                (Choice::Append(_) | Choice::Label(_), None) => continue,
                (Choice::Create, _) => match self.create()? {
                    Some((volser, hold)) => match self.label(&volser, hold) {
                        Err(error) if !error.is_of_drive() => return Err(error),
                        prepared => (volser, prepared),
                    },
                    None => continue,
                },
                // There is no other.
                (Choice::Nothing(_), _) if !doubted.is_empty() => {
                    doubted.clear();
                    continue;
                }
                (Choice::Nothing(_), _) if !occupied.is_empty() => {
                    occupied.clear();
                    self.mounter.waits_for_drives(true);
                    continue;
                }
                (Choice::Nothing(shortage), _) => {
                    // There would be one more, had its drive not failed.
                    if let Some(error) = of_drive {
                        return Err(error);
                    }
                    let error = DirectorError::NoVolume { pool: self.pool.name.clone(), shortage };
                    if self.shortfall == Shortfall::Fail {
                        return Err(error);
                    }
                    let message = error.to_string();
                    if said.as_ref() != Some(&message) {
                        (self.mounter.events)(Event::Waiting { message: message.clone() });
                        said = Some(message);
                    }
                    self.pause()?;
                    // A tab may have been slid meanwhile.
                    protected.clear();
                    continue;
                }
            };
            match prepared {
                Err(DirectorError::VolumeDiffers { volser, reason }) => set_aside(&self.mounter, volser, reason)?,
                Err(DirectorError::WriteOnce { volser, because }) => self.mounter.close_write_once(volser, because)?,
                Err(DirectorError::Changer(busy @ ChangerError::InUse { .. })) if is_mixed => {
                    if self.mounter.waits_for_drives_now() {
                        return Err(DirectorError::NoFitDrive { volser, source: busy });
                    }
                    // Others of its generation wait for the same drives.
                    let volumes = locked(&self.mounter.catalog).volumes()?;
                    let generation = volumes.iter().find(|known| known.volser == volser).and_then(generation_of);
                    let alike = volumes.iter().filter(|known| generation_of(known) == generation);
                    occupied.extend(alike.map(|known| known.volser.clone()));
                    occupied.push(volser);
                }
                // It was set aside when it left its drive, and somebody was told.
                Err(DirectorError::VolumeWorn { volser, .. }) => protected.push(volser),
                // Its keys are past their time, or not confirmed: it is left as it is, and may be used again when
                // somebody says so.
                Err(DirectorError::Keys(error)) if error.past_its_time().is_some() || error.unconfirmed() => {
                    (self.mounter.events)(Event::Notice { message: with_causes(&error) });
                    past.push(volser);
                }
                // Its keys are not in the store: they may come back with an import, and until then nothing can be added
                // to it.
                Err(DirectorError::Keys(error @ KeyError::KeyMissing { .. })) => {
                    let message = format!("volume {volser} is passed over: {}", with_causes(&error));
                    (self.mounter.events)(Event::Notice { message });
                    past.push(volser);
                }
                // Destroyed since this run began: to try once more is to meet it once more.
                Err(DirectorError::Keys(KeyError::KeyDestroyed { tag, destroyed_ns, .. })) => {
                    self.mounter.pass_over(&volser, &tag, destroyed_ns)?;
                    past.push(volser);
                }
                Err(DirectorError::Keys(error)) if error.keys_used_up() => {
                    (self.mounter.events)(Event::Notice { message: with_causes(&error) });
                    locked(&self.mounter.catalog).update_volume(&volser, Volume::fill)?;
                }
                Err(
                    error @ (DirectorError::Volume { source: DriveError::WriteProtected { .. }, .. }
                    | DirectorError::Changer(ChangerError::Foreign { .. })),
                ) if !is_of_all_volumes(&error) => {
                    if !told.contains(&volser) {
                        (self.mounter.events)(Event::Notice { message: with_causes(&error) });
                        told.push(volser.clone());
                    }
                    protected.push(volser);
                }
                // The cartridge may be at fault, or the drive. If the next one fares alike, it is the drive, and no
                // volume is the worse for it.
                Err(error) if error.is_of_drive() => {
                    let named = error.of_drive().and_then(DriveError::drive).map(str::to_owned);
                    let drive = named.or_else(|| locked(&self.failed_in).take());
                    let at = DriveAt { library: self.mounter.library.name.clone(), drive };
                    // What is the drive's alone, such as a reset, says nothing of the volume.
                    let is_recorded = error.blame() != Some(Blame::Drive);
                    let failed_before =
                        is_recorded && self.mounter.change_drive_faults(|faults| faults.failed(&volser, &at));
                    if of_drive.is_some() {
                        self.mounter.change_drive_faults(|faults| faults.drive_failed(&at));
                        return Err(error);
                    }
                    let reason = with_causes(&error);
                    let message = format!("volume {volser} is passed over: {reason}");
                    (self.mounter.events)(Event::Notice { message });
                    if failed_before && error.blame() == Some(Blame::Either) {
                        perhaps_bad = Some((volser.clone(), reason, at));
                    }
                    of_drive = Some(error);
                    past.push(volser);
                    // One that has not failed says most of the drive.
                    doubted = self.mounter.drive_faults().all_failed();
                }
                // The drive is not for it, whatever is known of it: that is no fault of the volume.
                Err(error) if error.is_of_unfit_drive() => {
                    (self.mounter.events)(Event::Notice { message: with_causes(&error) });
                    past.push(volser);
                }
                Ok(mounted) => {
                    let drive = Some(mounted.volume.drive.clone());
                    let at = DriveAt { library: mounted.volume.library.name.clone(), drive };
                    self.mounter.change_drive_faults(|faults| faults.took(&volser, &at));
                    if let Some((bad, reason, _)) = perhaps_bad.filter(|(_, _, failed_at)| *failed_at == at) {
                        self.set_bad_aside(&bad, &reason);
                    }
                    return Ok(mounted);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets a volume aside that its drive could not use, where it takes others; unless somebody has it, or another
    /// drive has taken it since.
    fn set_bad_aside(&self, volser: &Volser, reason: &str) {
        let Ok(_hold) = self.mounter.holds.volume(volser) else { return };
        if !self.mounter.drive_faults().all_failed().contains(volser) {
            return;
        }
        let message = match self.mounter.suspect(volser, reason) {
            Ok(()) => format!(
                "volume {volser} is set aside: it could not be made ready again, where the drive takes others ({reason})"
            ),
            Err(error) => format!("volume {volser} should be set aside, and could not be: {error}"),
        };
        (self.mounter.events)(Event::Notice { message });
    }

    fn label(&self, volser: &Volser, hold: Hold) -> Result<InDriveForAppend, DirectorError> {
        let known = self.mounter.volume(volser)?;
        // Whatever made it empty in the catalog: what is kept is not written over.
        let kept = locked(&self.mounter.catalog).objects_on(volser)?.len();
        if kept > 0 {
            let objects = if kept == 1 { "1 object".to_owned() } else { format!("{kept} objects") };
            let reason = format!("the catalog takes it for empty, and lists {objects} on it that must be kept");
            return Err(DirectorError::VolumeDiffers { volser: volser.clone(), reason });
        }
        let mut volume = self.mounter.mount_held(volser, Some(hold))?;
        if known.state == VolumeState::Blank && volume.medium.encryption != EncryptionState::Blank {
            let _ = self.mounter.dismount(volume);
            let reason = "the catalog takes it for blank, and something is written on it".to_owned();
            return Err(DirectorError::VolumeDiffers { volser: volser.clone(), reason });
        }
        let prepared = self.only_known(&mut volume, &known).and_then(|append_lbn| match (append_lbn, known.id) {
            (Some(append_lbn), Some(life)) => {
                self.mounter.load_key_to_append(&volume)?;
                Ok((life, append_lbn))
            }
            _ => {
                let labelled =
                    label_volume(&self.mounter, &mut volume, Some(&self.pool), self.block_len_max(), Promise::Keep);
                let (life, _) = labelled.map_err(|error| match error {
                    // One that told nobody of it, until its label was to be written over something.
                    DirectorError::Volume { volser, source: DriveError::WriteOnce { .. } } => {
                        DirectorError::WriteOnce { volser, because: WriteOnceBar::NoLabel }
                    }
                    // Else there would have been an end to append to.
                    DirectorError::WriteOnce { volser, because: WriteOnceBar::HoldsData } => {
                        DirectorError::WriteOnce { volser, because: WriteOnceBar::NoLabel }
                    }
                    other => other,
                })?;
                Ok((life, FIRST_SESSION_LBN))
            }
        });
        match prepared {
            Ok((life, append_lbn)) => Ok(InDriveForAppend { volume, life, append_lbn }),
            Err(error) => {
                *locked(&self.failed_in) = Some(volume.drive.clone());
                let _ = self.mounter.dismount(volume);
                Err(error)
            }
        }
    }

    /// Makes sure that nothing is written over that the catalog does not know of: the catalog may be an older one that
    /// was put back. Where the volume is this pool's already, gives where to append to it.
    fn only_known(&self, volume: &mut InDrive, known: &Volume) -> Result<Option<u64>, DirectorError> {
        let differs = |reason: String| DirectorError::VolumeDiffers { volser: known.volser.clone(), reason };
        let header = match self.mounter.open_label(volume) {
            Ok(header) => header,
            // A label of ours that names another volume: what is on that one the catalog may well know.
            Err(DirectorError::Mover(MoverError::Misplaced { reason, .. })) => return Err(differs(reason)),
            // Of a later version of this program, which knows what it is for.
            Err(error) if error.is_of_later_version() => return Err(differs(error.to_string())),
            // A key that may come back with an import opens a life that the catalog does not know.
            Err(DirectorError::Keys(KeyError::KeyMissing { tag, .. }))
                if known.key.is_none_or(|key| key.tag != tag) =>
            {
                return Err(differs(format!("it is encrypted with key {tag}, and the catalog knows nothing of that")));
            }
            // What has no label of ours, or one that no key opens any more, tells nothing. Whatever else keeps it from
            // being read may be gone in a moment, and the label is there then.
            Err(
                DirectorError::Mover(MoverError::NotLabelled { .. } | MoverError::Format { .. })
                | DirectorError::Keys(KeyError::KeyDestroyed { .. } | KeyError::KeyMissing { .. }),
            ) => return Ok(None),
            // What is past its time can be had back. It is the life that the catalog knows to be of no use, or another
            // one.
            Err(DirectorError::Keys(error)) => {
                return match error.past_its_time() {
                    None => Err(error.into()),
                    tag if tag == known.key.map(|key| key.tag) => Ok(None),
                    Some(_) => Err(differs(
                        "it is encrypted with another key than the catalog knows, which is past its time".to_owned(),
                    )),
                };
            }
            Err(error) => return Err(error),
        };
        if header.recycled > known.recycled {
            return Err(differs("it was labelled after what the catalog knows of it".to_owned()));
        }
        if let Some(reason) = why_not_given_up(volume, known, &header)? {
            let volser = &known.volser;
            return Err(differs(format!(
                "{reason}. If nobody needs it, `capstan label {volser} --force` writes over it"
            )));
        }
        // Another life is what a labelling that was killed leaves: the catalog had given it up.
        let Some(life) = known.id.filter(|life| *life == header.volume) else { return Ok(None) };
        if known.state == VolumeState::Filling && known.pool.as_ref() == Some(&self.pool.name) {
            if volume.end_of_data()?.lbn < FIRST_SESSION_LBN {
                // A label without its filemark: a labelling was killed, and nothing can stand behind it.
                return Ok(None);
            }
            return self.may_append(volume, known, life).map(Some);
        }
        if volume.last_checkpoint_lbn(life)?.is_some_and(|lbn| lbn > known.checkpoint_lbn) {
            return Err(differs("it holds sessions that the catalog does not know".to_owned()));
        }
        Ok(None)
    }

    fn append_to(&self, volser: &Volser, hold: Hold) -> Result<InDriveForAppend, DirectorError> {
        let known = self.mounter.volume(volser)?;
        let differs = |reason: String| DirectorError::VolumeDiffers { volser: volser.clone(), reason };
        let Some(life) = known.id else { return Err(differs("the catalog knows no life of it".to_owned())) };
        // What its policy says, or that nobody can be asked, needs no mount; whatever else is wrong with its key is
        // told by the volume itself.
        if let Some(Err(DirectorError::Keys(error))) =
            known.key.map(|key| self.mounter.keys.drive_key(volser.into(), &key.tag, None))
            && (error.is_refusal() || matches!(error, KeyError::Cluster(_)))
        {
            return Err(error.into());
        }
        let volume = match self.mounter.mount_known(volser, life, hold) {
            Ok(volume) => volume,
            Err(error) if error.blames_volume() && !error.is_of_drive() => return Err(differs(error.to_string())),
            // Without its key no volume can be written: that is for the operator to mend, not a fault of the volume.
            Err(error) => return Err(error),
        };
        let checked = self
            .may_append(&volume, &known, life)
            .and_then(|append_lbn| self.mounter.load_key_to_append(&volume).map(|()| append_lbn));
        match checked {
            Ok(append_lbn) => Ok(InDriveForAppend { volume, life, append_lbn }),
            Err(error) => {
                *locked(&self.failed_in) = Some(volume.drive.clone());
                let _ = self.mounter.dismount(volume);
                Err(error)
            }
        }
    }

    fn may_append(&self, volume: &InDrive, known: &Volume, life: VolumeId) -> Result<u64, DirectorError> {
        let differs = |reason: String| DirectorError::VolumeDiffers { volser: known.volser.clone(), reason };
        let encrypted = match volume.medium.encryption {
            EncryptionState::Encrypted { tag, algorithm } => Some(KeyRef { tag, algorithm }),
            EncryptionState::Plain | EncryptionState::Blank => None,
        };
        if encrypted != known.key {
            return Err(differs("it is not encrypted with the key that the catalog knows".to_owned()));
        }
        volume.check_writable()?;
        volume.check_sound()?;
        let append_lbn = catch_up(&self.mounter, volume, known, life).map_err(|error| match error {
            DirectorError::VolumeDiffers { .. } => error,
            other if other.blames_volume() && !other.is_of_drive() => differs(other.to_string()),
            other => other,
        })?;
        volume.check_ends_at(append_lbn)?;
        Ok(append_lbn)
    }
}

/// Whether an error is that of the drives, and another volume would meet it, too.
fn is_of_all_volumes(error: &DirectorError) -> bool {
    let DirectorError::Changer(ChangerError::Foreign { source, .. }) = error else { return false };
    matches!(**source, UnfitDrive::Plain { .. } | UnfitDrive::OtherModel { .. })
}

struct InDriveForAppend {
    volume: InDrive,
    life: VolumeId,
    append_lbn: u64,
}

impl CopyHost for AppendHost {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        let InDriveForAppend { mut volume, life, append_lbn } = self.mount_next()?;
        let volser = volume.volser.clone();
        let generation = match &volume.hold {
            Some(hold) => hold.generation(),
            None => volume.hold.insert(self.mounter.holds.volume(&volser)?).generation(),
        };
        {
            let mut catalog = locked(&self.mounter.catalog);
            catalog.update_volume(&volser, |known| known.mounts += 1)?;
            // Before the first block: a session that is killed leaves the note.
            catalog.volume_opened(life, generation)?;
        }
        let mount = volume.mount;
        self.writing = Some(Writing { volume, life, generation });
        Ok(Mounted { mount, volser, volume: life, append_lbn, session: SessionId(random_u64()) })
    }

    fn committed(&mut self, commit: &Commit) -> Result<(), HostError> {
        let seen = CheckpointSeen {
            volser: &commit.volser,
            volume: commit.volume,
            session: commit.session,
            session_record: Some(&commit.session_record),
            lbn: commit.checkpoint_lbn,
            checkpoint: &commit.checkpoint,
            part: &commit.part,
        };
        {
            let mut catalog = locked(&self.mounter.catalog);
            match &self.writing {
                Some(writing) => catalog.record_checkpoint_under(&seen, writing.generation)?,
                None => catalog.record_checkpoint(&seen)?,
            };
        }
        // A drive that fails now and then writes some checkpoints well; half a cartridge speaks for it.
        let is_half = |volume: &InDrive| {
            let capacity = volume.medium.capacity_bytes;
            capacity > 0 && commit.session_bytes >= capacity / 2
        };
        if let Some(writing) = self.writing.as_ref().filter(|writing| is_half(&writing.volume)) {
            self.mounter.note_flushed(&writing.volume);
        }
        (self.mounter.events)(Event::Checkpoint {
            objects: commit.part.objects.iter().map(|record| record.object).collect(),
            copy: self.copy,
            volser: commit.volser.clone(),
            bytes: commit.session_bytes,
        });
        Ok(())
    }

    fn health(&mut self, volser: &Volser, health: &DriveHealth) {
        self.mounter.note_health(health, volser, Moment::Checkpoint);
    }

    fn release(&mut self, _mount: MountId, volser: &Volser, end: VolumeEnd) {
        let Some(Writing { volume, life, generation }) = self.writing.take() else { return };
        let notice = |message: String| (self.mounter.events)(Event::Notice { message });
        // If it was taken over: what it is now, whoever has it knows.
        let is_own = |catalog: &Catalog| Ok::<_, CatalogError>(catalog.opened_under(life)? == Some(generation));
        if end == VolumeEnd::Full {
            (self.mounter.events)(Event::Full { volser: volser.clone() });
            let full = |catalog: &mut Catalog| match is_own(catalog)? {
                true => catalog.update_volume(volser, Volume::fill).map(drop),
                false => Ok(()),
            };
            if let Err(error) = full(&mut locked(&self.mounter.catalog)) {
                notice(format!("volume {volser} could not be recorded as full: {error}"));
            }
        }
        let is_own = is_own(&locked(&self.mounter.catalog)).unwrap_or(false);
        if end != VolumeEnd::Failed && is_own {
            self.mounter.note_written(&volume, end == VolumeEnd::WriteFailed);
        }
        // What was flushed was recorded. Behind a failure that is not known.
        if matches!(end, VolumeEnd::Closed | VolumeEnd::Full)
            && let Err(error) = locked(&self.mounter.catalog).volume_closed_under(life, generation)
        {
            notice(format!("that volume {volser} was closed could not be noted: {error}"));
        }
        if let Err(error) = self.mounter.dismount_written(volume) {
            notice(format!("volume {volser} could not be put back: {error}"));
        }
    }

    fn now_ns(&self) -> i64 {
        self.mounter.now_ns()
    }
}
