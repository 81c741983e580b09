//! Finding, labelling and handing out volumes to one copy of a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_catalog::{CheckpointSeen, LostCopy, Pool, ScratchFeed, Volume, VolumeKey, VolumeState};
use capstan_format::{BLOCK_HEADER_LEN, SessionId, Volser, VolumeHeader, VolumeId};
use capstan_mover::{
    Commit, CopyHost, FIRST_SESSION_LBN, FoundCheckpoint, HostError, Mounted, VolumeEnd, VolumeReader, write_label,
};
use capstan_tape::{CartridgeSpec, Drive, DriveKey, EncryptionState};
use uuid::Uuid;

use crate::backup::ENTRY_BYTES_MAX;
use crate::config::Config;
use crate::desk::{Desk, InDrive};
use crate::pools::{Candidate, Choice, Fill, Refill, choose_volume};
use crate::site::locked;
use crate::{DirectorError, Event};

/// Share of a cartridge that is kept for trailers behind early warning: a catalog part and its checkpoint fit many times.
const EARLY_WARNING_SHARE: u64 = 20;
/// Least that is kept for them, where the cartridge has twice that: the longest catalog part, and the block that met it.
const EARLY_WARNING_MIN: u64 = ENTRY_BYTES_MAX as u64 + (4 << 20);
/// Most that is kept for them.
const EARLY_WARNING_MAX: u64 = 256 << 20;
/// Share of a cartridge that is kept for them at most, and of it the entries between two checkpoints may take half.
pub(crate) const EARLY_WARNING_SHARE_MAX: u64 = 4;
/// How often an operator's new volume is looked for.
const WAIT_EVERY: Duration = Duration::from_secs(2);
/// How often whoever waits looks whether to stop: a person who pressed Ctrl-C takes this for at once.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// Waits for a volume, or fails, when a pool has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortfall {
    /// The session ends with an error that says what to insert.
    Fail,
    /// The session waits until somebody adds a volume.
    Wait,
}

/// Serves one copy of a session with volumes of one pool.
pub(crate) struct AppendHost {
    pub(crate) desk: Desk,
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) copy: u8,
    pub(crate) shortfall: Shortfall,
    /// Ends the wait for a volume.
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) mounted: Option<(u32, Volser)>,
}

pub(crate) fn random_u64() -> u64 {
    Uuid::new_v4().as_u64_pair().1.rotate_left(17) ^ Uuid::new_v4().as_u64_pair().0
}

/// The catalog's volumes as the choice sees them.
pub(crate) fn candidates(volumes: &[Volume], present: &[Volser]) -> Vec<Candidate> {
    let candidate = |volume: &Volume| Candidate {
        volser: volume.volser.clone(),
        pool: volume.pool.clone(),
        fill: match volume.state {
            VolumeState::Blank | VolumeState::Scratch => Fill::Empty,
            VolumeState::Filling if volume.checkpoint_lbn == 0 => Fill::Empty,
            VolumeState::Filling => Fill::Filling,
            VolumeState::Full => Fill::Full,
            VolumeState::Suspect | VolumeState::Retired => Fill::Barred,
        },
        written_bytes: volume.written,
        present: present.contains(&volume.volser),
    };
    volumes.iter().map(candidate).collect()
}

/// A new cartridge of the virtual library.
pub(crate) fn create_cartridge(desk: &Desk, volser: &Volser, capacity_bytes: u64) -> Result<(), DirectorError> {
    let early_warning_bytes = (capacity_bytes / EARLY_WARNING_SHARE)
        .clamp(EARLY_WARNING_MIN, EARLY_WARNING_MAX)
        .min(capacity_bytes / EARLY_WARNING_SHARE_MAX);
    let spec =
        CartridgeSpec { volser: volser.clone(), capacity_bytes, early_warning_bytes, generation: "virtual".to_owned() };
    locked(&desk.library).create_cartridge(&spec).map_err(DirectorError::Changer)?;
    locked(&desk.catalog).put_volume(&Volume { capacity: Some(capacity_bytes), ..Volume::blank(volser.clone()) })?;
    (desk.events)(Event::Created { volser: volser.clone() });
    Ok(())
}

/// Gives a volume a new life in a pool: new key, label, catalog row. What it held before is gone: copies of these objects.
pub(crate) fn label_volume(
    desk: &Desk,
    volume: &mut InDrive,
    pool: Option<&Pool>,
    block_len_max: u32,
) -> Result<(VolumeId, Vec<LostCopy>), DirectorError> {
    let (volser, now_ns) = (volume.volser.clone(), desk.now_ns());
    let known = locked(&desk.catalog).volume(&volser)?.unwrap_or_else(|| Volume::blank(volser.clone()));
    let recycled = if known.id.is_some() { known.recycled + 1 } else { known.recycled };
    let mut key: Option<VolumeKey> = None;
    if let Some(algorithm) = pool.and_then(|pool| pool.encryption) {
        let keys = desk.keys.as_deref().ok_or(DirectorError::KeysLocked)?;
        let issued = locked(keys).key_for_new_volume(&volser, algorithm, now_ns)?;
        let tag = issued.tag();
        volume.drive.set_key(Some(DriveKey { tag, algorithm, key: *issued.expose() }))?;
        key = Some(VolumeKey { tag, algorithm });
    } else {
        volume.drive.set_key(None)?;
    }
    let life = VolumeId(random_u64());
    let header = VolumeHeader {
        volume: life,
        volser: volser.clone(),
        labelled_ns: now_ns,
        pool: pool.map(|pool| pool.name.clone()).unwrap_or_default(),
        block_len_max,
        recycled,
    };
    // The catalog forgets the old life before the tape does: what it lists can always be read.
    let row = Volume {
        pool: pool.map(|pool| pool.name.clone()),
        id: Some(life),
        state: if pool.is_some() { VolumeState::Filling } else { VolumeState::Scratch },
        key,
        capacity: Some(volume.medium.capacity_bytes),
        written: 0,
        end_of_data_lbn: FIRST_SESSION_LBN,
        checkpoint_lbn: 0,
        labelled_ns: Some(now_ns),
        written_ns: None,
        recycled,
        key_destroyed_ns: None,
        ..known
    };
    let lost = locked(&desk.catalog).relabelled(&row)?;
    write_label(volume.drive.as_mut(), &header)?;
    if let (Some(key), Some(keys)) = (key, desk.keys.as_deref()) {
        locked(keys).activate(&volser, &key.tag, now_ns)?;
    }
    volume.medium = volume.drive.medium()?;
    let pool = header.pool;
    (desk.events)(Event::Labelled { volser, pool, recycled });
    Ok((life, lost))
}

/// Checkpoints on the volume that the catalog lacks: a run was killed between flush and commit.
///
/// Also finds that the volume is not what the catalog thinks: that it ends before its last checkpoint as the catalog knows it,
/// or that its checkpoints do not lead back to that one. Either bars it from being written.
pub(crate) fn catch_up(
    desk: &Desk,
    volume: &mut InDrive,
    known: &Volume,
    life: VolumeId,
) -> Result<u64, DirectorError> {
    let volser = volume.volser.clone();
    let mut reader = VolumeReader::new(volume.drive.as_mut(), volser.clone(), life);
    let Some(last) = reader.last_checkpoint()? else {
        if known.checkpoint_lbn > 0 {
            let reason = format!("it has no checkpoint, and should have one at block {}", known.checkpoint_lbn);
            return Err(DirectorError::VolumeDiffers { volser, reason });
        }
        return Ok(FIRST_SESSION_LBN);
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
        at = if previous > 0 { Some(reader.checkpoint(previous)?) } else { None };
    }
    if at.map_or(0, |found| found.lbn) != known.checkpoint_lbn {
        let lbn = known.checkpoint_lbn;
        let reason =
            format!("its checkpoints do not lead back to the one at block {lbn}: it was written by somebody else");
        return Err(DirectorError::VolumeDiffers { volser, reason });
    }
    for found in missing.iter().rev() {
        let part = reader.catalog_part(found)?;
        let record = session_record(&mut reader, found)?;
        let seen = CheckpointSeen {
            volser: &volser,
            volume: life,
            session: found.session,
            session_record: record.as_ref(),
            lbn: found.lbn,
            checkpoint: &found.checkpoint,
            part: &part,
        };
        locked(&desk.catalog).record_checkpoint(&seen)?;
    }
    if !missing.is_empty() {
        let message = format!("volume {volser} holds {} checkpoints that the catalog lacked: recorded", missing.len());
        (desk.events)(Event::Notice { message });
    }
    Ok(append_lbn)
}

/// Whether all that the volumes of some pools hold is in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    All,
    /// A volume is absent or cannot be read; it may hold a checkpoint more.
    NotAll,
}

/// Records what the volumes of a pool and of its further copies hold and the catalog lacks. A volume that is not as it should
/// be is set aside.
pub(crate) fn catch_up_pool(desk: &Desk, pool: &str) -> Result<Known, DirectorError> {
    let present = desk.present()?;
    let volumes = locked(&desk.catalog).volumes()?;
    let open = |volume: &&Volume| {
        volume.pool.as_deref().is_some_and(|name| is_copy_pool(pool, name))
            && matches!(volume.state, VolumeState::Filling | VolumeState::Suspect)
    };
    let mut all = Known::All;
    for known in volumes.iter().filter(open) {
        let Some(life) = known.id else { continue };
        if !present.contains(&known.volser) {
            all = Known::NotAll;
            continue;
        }
        let caught_up = match desk.mount_known(&known.volser, life) {
            Ok(mut volume) => {
                let caught_up = catch_up(desk, &mut volume, known, life);
                desk.dismount(volume.drive, volume.number, &known.volser)?;
                caught_up
            }
            // A run was killed before the label was written: nothing can be on it, and it will be labelled again.
            Err(error) if known.checkpoint_lbn == 0 && error.blames_volume() => continue,
            Err(error) => Err(error),
        };
        match caught_up {
            Ok(_) => {}
            // A full disk, a catalog that cannot be written: no fault of the volume, and no run can go on.
            Err(error) if !error.blames_volume() => return Err(error),
            Err(_) if known.state == VolumeState::Suspect => all = Known::NotAll,
            Err(DirectorError::VolumeDiffers { volser, reason }) => {
                set_aside(desk, volser, reason)?;
                all = Known::NotAll;
            }
            Err(error) => {
                set_aside(desk, known.volser.clone(), error.to_string())?;
                all = Known::NotAll;
            }
        }
    }
    Ok(all)
}

/// Whether a pool is another or one that holds further copies for it.
pub(crate) fn is_copy_pool(pool: &str, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name == pool || name.strip_prefix(pool).and_then(|rest| rest.strip_prefix("-copy")).is_some_and(is_number)
}

/// Bars a volume from being written, and says why.
fn set_aside(desk: &Desk, volser: Volser, reason: String) -> Result<(), DirectorError> {
    desk.suspect(&volser)?;
    let error = DirectorError::VolumeDiffers { volser, reason };
    (desk.events)(Event::Notice { message: error.to_string() });
    Ok(())
}

/// The header of the session that a checkpoint is the first of.
pub(crate) fn session_record(
    reader: &mut VolumeReader<'_>,
    found: &FoundCheckpoint,
) -> Result<Option<capstan_format::SessionRecord>, DirectorError> {
    if found.checkpoint.number != 1 {
        return Ok(None);
    }
    let previous = found.checkpoint.previous_lbn;
    let lbn = if previous > 0 { previous + 2 } else { FIRST_SESSION_LBN };
    let (session, record) = reader.session_record(lbn)?;
    Ok((session == found.session).then_some(record))
}

impl AppendHost {
    fn block_len_max(&self) -> u32 {
        (BLOCK_HEADER_LEN + self.config.chunk_len()) as u32
    }

    fn next_volser(&self, present: &[Volser], volumes: &[Volume]) -> Option<Volser> {
        (1..=99_999u32).find_map(|number| {
            let volser = Volser::new(&format!("A{number:05}")).ok()?;
            let taken = present.contains(&volser) || volumes.iter().any(|volume| volume.volser == volser);
            (!taken).then_some(volser)
        })
    }

    /// Waits until it is worth looking for a volume again.
    fn pause(&self) -> Result<(), DirectorError> {
        let began = std::time::Instant::now();
        while began.elapsed() < WAIT_EVERY {
            if self.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            std::thread::sleep(STOP_EVERY);
        }
        Ok(())
    }

    fn mount_next(&mut self) -> Result<InDriveForAppend, DirectorError> {
        let mut said = None;
        loop {
            let choosing = locked(&self.desk.choosing);
            let volumes_lock = self.desk.volumes_lock()?;
            let present = self.desk.present()?;
            let volumes = locked(&self.desk.catalog).volumes()?;
            let in_use = locked(&self.desk.in_use).clone();
            let refill = Refill {
                scratch: self.pool.feed == ScratchFeed::Allowed,
                create: (present.len() as u64) < u64::from(self.config.library.volumes_max),
            };
            let candidates = candidates(&volumes, &present);
            match choose_volume(&candidates, &self.pool.name, &in_use, refill) {
                Choice::Append(volser) => match self.append_to(&volser) {
                    Err(DirectorError::VolumeDiffers { volser, reason }) => set_aside(&self.desk, volser, reason)?,
                    other => return other,
                },
                Choice::Label(volser) => match self.label(&volser) {
                    Err(DirectorError::VolumeDiffers { volser, reason }) => set_aside(&self.desk, volser, reason)?,
                    other => return other,
                },
                Choice::Create => {
                    let Some(volser) = self.next_volser(&present, &volumes) else {
                        let none = crate::pools::Shortage { full: volumes.len(), barred: 0, absent: 0, in_use: 0 };
                        return Err(DirectorError::NoVolume { pool: self.pool.name.clone(), shortage: none });
                    };
                    create_cartridge(&self.desk, &volser, self.config.library.volume_mib << 20)?;
                    return self.label(&volser);
                }
                Choice::Nothing(shortage) => {
                    let error = DirectorError::NoVolume { pool: self.pool.name.clone(), shortage };
                    if self.shortfall == Shortfall::Fail {
                        return Err(error);
                    }
                    drop(volumes_lock);
                    drop(choosing);
                    let message = error.to_string();
                    if said.as_ref() != Some(&message) {
                        (self.desk.events)(Event::Waiting { message: message.clone() });
                        said = Some(message);
                    }
                    self.pause()?;
                }
            }
        }
    }

    fn label(&self, volser: &Volser) -> Result<InDriveForAppend, DirectorError> {
        let known = self.desk.volume(volser)?;
        let mut volume = self.desk.mount(volser)?;
        if known.state == VolumeState::Blank && volume.medium.encryption != EncryptionState::Blank {
            let _ = self.desk.dismount(volume.drive, volume.number, volser);
            let reason = "the catalog takes it for blank, and something is written on it".to_owned();
            return Err(DirectorError::VolumeDiffers { volser: volser.clone(), reason });
        }
        let prepared = self.only_known(&mut volume, &known).and_then(|append_lbn| match (append_lbn, known.id) {
            (Some(append_lbn), Some(life)) => Ok((life, append_lbn)),
            _ => {
                let (life, _) = label_volume(&self.desk, &mut volume, Some(&self.pool), self.block_len_max())?;
                Ok((life, FIRST_SESSION_LBN))
            }
        });
        match prepared {
            Ok((life, append_lbn)) => Ok(InDriveForAppend { volume, life, append_lbn }),
            Err(error) => {
                let _ = self.desk.dismount(volume.drive, volume.number, volser);
                Err(error)
            }
        }
    }

    /// Makes sure that nothing is written over that the catalog does not know of: the catalog may be an older one that was put
    /// back. Where the volume is this pool's already, gives where to append to it.
    fn only_known(&self, volume: &mut InDrive, known: &Volume) -> Result<Option<u64>, DirectorError> {
        // What has no label of ours, or one that no key opens any more, tells nothing.
        let Ok(header) = self.desk.open_label(volume) else { return Ok(None) };
        let differs = |reason: String| DirectorError::VolumeDiffers { volser: known.volser.clone(), reason };
        if header.recycled > known.recycled {
            return Err(differs("it was labelled after what the catalog knows of it".to_owned()));
        }
        // Another life is what a labelling that was killed leaves: the catalog had given it up.
        let Some(life) = known.id.filter(|life| *life == header.volume) else { return Ok(None) };
        if known.state == VolumeState::Filling && known.pool.as_ref() == Some(&self.pool.name) {
            return self.may_append(volume, known, life).map(Some);
        }
        let last = VolumeReader::new(volume.drive.as_mut(), known.volser.clone(), life).last_checkpoint_lbn()?;
        if last.is_some_and(|lbn| lbn > known.checkpoint_lbn) {
            return Err(differs("it holds sessions that the catalog does not know".to_owned()));
        }
        Ok(None)
    }

    fn append_to(&self, volser: &Volser) -> Result<InDriveForAppend, DirectorError> {
        let known = self.desk.volume(volser)?;
        let differs = |reason: String| DirectorError::VolumeDiffers { volser: volser.clone(), reason };
        let Some(life) = known.id else { return Err(differs("the catalog knows no life of it".to_owned())) };
        let mut volume = match self.desk.mount_known(volser, life) {
            Ok(volume) => volume,
            Err(error) if error.blames_volume() => return Err(differs(error.to_string())),
            // Without its key no volume can be written: that is for the operator to mend, not a fault of the volume.
            Err(error) => return Err(error),
        };
        let checked = self.may_append(&mut volume, &known, life);
        match checked {
            Ok(append_lbn) => Ok(InDriveForAppend { volume, life, append_lbn }),
            Err(error) => {
                let _ = self.desk.dismount(volume.drive, volume.number, volser);
                Err(error)
            }
        }
    }

    fn may_append(&self, volume: &mut InDrive, known: &Volume, life: VolumeId) -> Result<u64, DirectorError> {
        let differs = |reason: String| DirectorError::VolumeDiffers { volser: known.volser.clone(), reason };
        let encrypted = match volume.medium.encryption {
            EncryptionState::Encrypted { tag, algorithm } => Some(VolumeKey { tag, algorithm }),
            EncryptionState::Plain | EncryptionState::Blank => None,
        };
        if encrypted != known.key {
            return Err(differs("it is not encrypted with the key that the catalog knows".to_owned()));
        }
        if volume.medium.write_protected {
            return Err(differs("it is write-protected: slide its tab".to_owned()));
        }
        catch_up(&self.desk, volume, known, life).map_err(|error| match error {
            DirectorError::VolumeDiffers { .. } => error,
            other if other.blames_volume() => differs(other.to_string()),
            other => other,
        })
    }
}

struct InDriveForAppend {
    volume: InDrive,
    life: VolumeId,
    append_lbn: u64,
}

impl CopyHost for AppendHost {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        let InDriveForAppend { volume, life, append_lbn } = self.mount_next()?;
        let InDrive { drive, number, volser, .. } = volume;
        locked(&self.desk.catalog).update_volume(&volser, |known| known.mounts += 1)?;
        self.mounted = Some((number, volser.clone()));
        Ok(Mounted { drive, volser, volume: life, append_lbn, session: SessionId(random_u64()) })
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
        locked(&self.desk.catalog).record_checkpoint(&seen)?;
        (self.desk.events)(Event::Checkpoint {
            objects: commit.part.objects.iter().map(|record| record.object).collect(),
            copy: self.copy,
            volser: commit.volser.clone(),
            bytes: commit.session_bytes,
        });
        Ok(())
    }

    fn release(&mut self, drive: Box<dyn Drive>, volser: &Volser, end: VolumeEnd) {
        let Some((number, _)) = self.mounted.take() else { return };
        let notice = |message: String| (self.desk.events)(Event::Notice { message });
        if end == VolumeEnd::Full {
            (self.desk.events)(Event::Full { volser: volser.clone() });
            let changed = locked(&self.desk.catalog).update_volume(volser, |volume| volume.state = VolumeState::Full);
            if let Err(error) = changed {
                notice(format!("volume {volser} could not be recorded as full: {error}"));
            }
        }
        if let Err(error) = self.desk.dismount(drive, number, volser) {
            notice(format!("volume {volser} could not be put back: {error}"));
        }
    }

    fn now_ns(&self) -> i64 {
        self.desk.now_ns()
    }
}
