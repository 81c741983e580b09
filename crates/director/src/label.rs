//! New cartridges, and new lives of volumes.

use capstan_catalog::{KeyRef, LostCopy, Pool, Promise, Volume, VolumeState};
use capstan_format::{Volser, VolumeHeader, VolumeId};
use capstan_keys::KeyError;
use capstan_mover::devices::ChangerOrder;
use capstan_mover::{FIRST_SESSION_LBN, MoverError};
use capstan_tape::{CartridgeSpec, ChangerError, EncryptionState, Rewritability, barcode};
use uuid::Uuid;

use crate::drive_keys::for_drive;
use crate::limits::reserved_at_the_end;
use crate::mounter::{InDrive, Mounter};
use crate::site::locked;
use crate::{DirectorError, Event, WriteOnceBar};

pub(crate) fn random_u64() -> u64 {
    Uuid::new_v4().as_u64_pair().1.rotate_left(17) ^ Uuid::new_v4().as_u64_pair().0
}

/// A new cartridge of the virtual library.
pub(crate) fn create_cartridge(mounter: &Mounter, volser: &Volser, capacity_bytes: u64) -> Result<(), DirectorError> {
    let early_warning_bytes = reserved_at_the_end(capacity_bytes);
    if barcode::is_cleaning(volser) {
        return Err(DirectorError::Changer(ChangerError::CleaningCartridge { volser: volser.clone() }));
    }
    let spec =
        CartridgeSpec { volser: volser.clone(), capacity_bytes, early_warning_bytes, generation: "virtual".to_owned() };
    mounter.library.devices.change(&ChangerOrder::Create(spec))?;
    // Of names that somebody chose, too: what is forgotten later is known by its key alone.
    crate::names::note_used(&mut locked(&mounter.catalog), [volser]);
    locked(&mounter.catalog).put_volume(&Volume {
        capacity: Some(capacity_bytes),
        library: mounter.library.name.clone(),
        ..Volume::blank(volser.clone())
    })?;
    (mounter.events)(Event::Created { volser: volser.clone() });
    Ok(())
}

/// Makes sure that a volume that a person gives up holds no more than the catalog knows of, which may be an older one
/// that was put back. No key is asked for where it is the one that the catalog knows.
pub(crate) fn check_all_known(mounter: &Mounter, volume: &mut InDrive, known: &Volume) -> Result<(), DirectorError> {
    let unknown = |reason: String| DirectorError::HoldsUnknown { volser: known.volser.clone(), reason };
    let takes_for_blank = known.state == VolumeState::Blank;
    let key = match volume.medium.encryption {
        EncryptionState::Blank => return Ok(()),
        EncryptionState::Encrypted { tag, .. } => Some(tag),
        _ => None,
    };
    let life = if key.is_some() && key == known.key.map(|key| key.tag) {
        known.id
    } else {
        match mounter.open_label(volume) {
            // What an erasing left that was killed is of an earlier life.
            Ok(header) if takes_for_blank && header.recycled < known.recycled => None,
            Ok(header) if !takes_for_blank && header.recycled <= known.recycled => {
                if let Some(reason) = why_not_given_up(volume, known, &header)? {
                    return Err(unknown(reason));
                }
                Some(header.volume)
            }
            Ok(_) => return Err(unknown("it was labelled after what the catalog knows of it".to_owned())),
            // That no key can be had is told as it is: with keys it may be seen that all is known.
            Err(error) if error.no_keys_at_all() => return Err(error),
            Err(error) if error.is_of_later_version() => return Err(unknown(error.to_string())),
            // Nobody reads it any more.
            Err(DirectorError::Keys(KeyError::KeyDestroyed { .. })) => None,
            Err(DirectorError::Mover(MoverError::NotLabelled { .. } | MoverError::Format { .. })) => {
                if takes_for_blank {
                    return Err(unknown("the catalog takes it for blank, and something is written on it".to_owned()));
                }
                None
            }
            Err(DirectorError::Mover(MoverError::Misplaced { reason, .. })) => return Err(unknown(reason)),
            Err(error) if matches!(error, DirectorError::Keys(_)) || error.blames_volume() => {
                return Err(unknown(format!("its label cannot be read: {error}")));
            }
            Err(error) => return Err(error),
        }
    };
    let Some(life) = known.id.filter(|known| Some(*known) == life) else { return Ok(()) };
    if volume.last_checkpoint_lbn(life)?.is_some_and(|lbn| lbn > known.checkpoint_lbn) {
        return Err(unknown("it has sessions that are not in the catalog".to_owned()));
    }
    Ok(())
}

/// Why a volume is not written over whose label is of another life than the catalog knows; none where nothing is lost
/// by that.
///
/// The catalog is told of a new life before the medium is. So a labelling that is killed leaves the label of a life
/// that the catalog has given up, which has fewer lives before it and was begun earlier, and in the new life nothing
/// was written yet. Any other label is none of this catalog's.
pub(crate) fn why_not_given_up(
    volume: &InDrive,
    known: &Volume,
    header: &VolumeHeader,
) -> Result<Option<String>, DirectorError> {
    let was_given_up = known.checkpoint_lbn == 0
        && header.recycled < known.recycled
        && known.labelled_ns.is_none_or(|labelled_ns| header.labelled_ns <= labelled_ns);
    // Behind a label alone nothing stands that could be lost.
    if known.id == Some(header.volume) || was_given_up || volume.end_of_data()?.lbn <= FIRST_SESSION_LBN {
        return Ok(None);
    }
    Ok(Some(
        "its label was not written with this catalog. It is another cartridge with the same barcode, perhaps of another \
         site, and it holds data"
            .to_owned(),
    ))
}

/// Gives a volume a new life in a pool: new key, label, catalog row. What it held before is gone: copies of these
/// objects.
pub(crate) fn label_volume(
    mounter: &Mounter,
    volume: &mut InDrive,
    pool: Option<&Pool>,
    block_len_max: u32,
    promise: Promise,
) -> Result<(VolumeId, Vec<LostCopy>), DirectorError> {
    volume.check_writable()?;
    volume.check_sound()?;
    volume.check_rewritable()?;
    if pool.is_none() && volume.medium.rewritability == Rewritability::WriteOnce {
        return Err(DirectorError::WriteOnce { volser: volume.volser.clone(), because: WriteOnceBar::Scratch });
    }
    let (volser, now_ns) = (volume.volser.clone(), mounter.now_ns());
    let known = locked(&mounter.catalog).volume(&volser)?.unwrap_or_else(|| Volume::blank(volser.clone()));
    let recycled = if known.id.is_some() { known.recycled + 1 } else { known.recycled };
    let mut key: Option<KeyRef> = None;
    if let Some(algorithm) = pool.and_then(|pool| pool.encryption) {
        let keys = mounter.keys.provider.as_deref().ok_or(DirectorError::KeysLocked)?;
        let (serial, pool) = (volume.serial.as_ref(), pool.map(|pool| pool.name.as_str()));
        let issued = keys.key_for_new_volume(&volser, serial, pool, algorithm, now_ns)?;
        volume.set_key(Some(for_drive(&issued)))?;
        key = Some(KeyRef { tag: issued.tag(), algorithm });
    } else {
        volume.set_key(None)?;
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
        medium: volume.kind(known.medium),
        generation: volume.medium.generation.clone().or(known.generation.clone()),
        library: volume.library.name.clone(),
        ..known
    };
    let lost = {
        let mut catalog = locked(&mounter.catalog);
        let lost = catalog.relabelled(&row, promise)?;
        crate::keys::note_key(&mut catalog, &volser)?;
        lost
    };
    let pool = header.pool.clone();
    volume.write_label(header)?;
    match (key, mounter.keys.provider.as_deref()) {
        (Some(key), Some(keys)) => drop(keys.activate(volume.cartridge(), &key.tag, now_ns)?),
        _ => mounter.keys_ended(volume.cartridge())?,
    }
    mounter.describe(volume);
    mounter.change_drive_faults(|faults| faults.forget(&volser));
    (mounter.events)(Event::Labelled { volser, pool, recycled });
    Ok((life, lost))
}
