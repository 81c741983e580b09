//! Keys at the mount desk: fetched as blocks name them, the newest to append with, and what is known of those that are gone.
//!
//! A volume has one key from its label on, and a further one each time that it goes on after the encryption period of the last.
//! Reading takes whichever key a block names ([`Keyed`]); writing takes the newest alone.

use capstan_catalog::{Catalog, Volume};
use capstan_format::{KeyTag, Volser};
use capstan_keys::{KeyError, KeyToAppend};
use capstan_tape::{Drive, DriveKey, EncryptionState, Keyed};

use super::{Desk, InDrive};
use crate::DirectorError;
use crate::site::locked;

impl Desk {
    /// The same drive, which fetches the keys that blocks of this volume name.
    pub(super) fn keyed(&self, drive: Box<dyn Drive>, volser: &Volser) -> Box<dyn Drive> {
        let (desk, volser) = (self.clone(), volser.clone());
        let fetch = move |tag: &KeyTag| {
            desk.drive_key(&volser, tag).inspect_err(|_| {
                let (mut missed, key) = (locked(&desk.missed), (volser.clone(), *tag));
                if !missed.contains(&key) {
                    missed.push(key);
                }
            })
        };
        Box::new(Keyed::new(drive, fetch))
    }

    /// The key of a tag, ready for the drive's key slot.
    pub(crate) fn drive_key(&self, volser: &Volser, tag: &KeyTag) -> Result<DriveKey, DirectorError> {
        let keys = self.keys.as_deref().ok_or(DirectorError::KeysLocked)?;
        let found = locked(keys).key_for_reading(volser, tag, &self.agent(), self.now_ns());
        if let Err(KeyError::KeyDestroyed { destroyed_ns, .. }) = &found {
            // The catalog may be older than the destruction, or made anew since.
            note_destroyed(&mut locked(&self.catalog), volser, tag, *destroyed_ns)?;
        }
        let key = found?;
        Ok(DriveKey { tag: *tag, algorithm: key.algorithm(), key: *key.expose() })
    }

    /// The keys of a volume that could not be had since this was asked last, and why not.
    pub(super) fn take_missed(&self, volser: &Volser) -> Vec<(Volser, DirectorError)> {
        let missed: Vec<_> = locked(&self.missed).extract_if(.., |(other, _)| other == volser).collect();
        // Asked for once more, for the reason.
        let reason = |(volser, tag): (Volser, KeyTag)| self.drive_key(&volser, &tag).err().map(|error| (volser, error));
        missed.into_iter().filter_map(reason).collect()
    }

    /// Whether blocks of the volume may have a key that is there, although its first key is not: whether it went on under a later
    /// one.
    pub(super) fn went_on(&self, volser: &Volser, first: &KeyTag) -> Result<bool, DirectorError> {
        let keys = self.keys.as_deref().ok_or(DirectorError::KeysLocked)?;
        let of_volume = locked(keys).list()?.into_iter().filter(|key| key.volser == *volser);
        // The store lists keys in the order in which it came to know them.
        let mut later = of_volume.skip_while(|key| key.tag != *first).skip(1);
        Ok(later.any(|key| key.activated_ns.is_some() && key.destroyed_ns.is_none()))
    }

    /// Loads the key that a volume goes on with: the one in force, or a new one where that one's encryption period is over. Gives
    /// the name of a new one, to be put in force ([`Desk::key_begun`]) once a block under it stands on the volume.
    pub(crate) fn load_key_to_append(&self, volume: &mut InDrive) -> Result<Option<KeyTag>, DirectorError> {
        let EncryptionState::Encrypted { tag: first, .. } = volume.medium.encryption else { return Ok(None) };
        let keys = self.keys.as_deref().ok_or(DirectorError::KeysLocked)?;
        let to_append = locked(keys).key_for_append(&volume.volser, &first, &self.agent(), self.now_ns())?;
        let (key, new) = match &to_append {
            KeyToAppend::Same(key) => (key, None),
            KeyToAppend::New(key) => (key, Some(key.tag())),
        };
        volume.drive.set_key(Some(DriveKey { tag: key.tag(), algorithm: key.algorithm(), key: *key.expose() }))?;
        Ok(new)
    }

    /// A block under a new key stands on its volume, flushed: the volume's older keys only read from now on.
    pub(crate) fn key_begun(&self, volser: &Volser, tag: &KeyTag) -> Result<(), DirectorError> {
        let keys = self.keys.as_deref().ok_or(DirectorError::KeysLocked)?;
        locked(keys).activate(volser, tag, self.now_ns())?;
        Ok(())
    }
}

/// Notes that a key of a volume is gone. The catalog knows the first key of each volume; where it is another, the whole volume
/// counts as one whose key was destroyed: what still can be read is read, and none of it is promised.
pub(crate) fn note_destroyed(
    catalog: &mut Catalog,
    volser: &Volser,
    tag: &KeyTag,
    destroyed_ns: i64,
) -> Result<(), DirectorError> {
    catalog.key_destroyed(tag, destroyed_ns)?;
    let further = |known: &Volume| known.key.is_some_and(|first| first.tag != *tag) && known.key_destroyed_ns.is_none();
    if catalog.volume(volser)?.is_some_and(|known| further(&known)) {
        catalog.update_volume(volser, |known| known.key_destroyed_ns = Some(destroyed_ns))?;
    }
    Ok(())
}
