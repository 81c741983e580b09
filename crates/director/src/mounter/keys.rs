//! Keys at the mounter: fetched as blocks name them, the newest to append with, and what is known of those that are
//! gone.
//!
//! A volume has one key from its label on, and a further one each time that it goes on after the encryption period of
//! the last. Reading takes whichever key a block names ([`crate::drive_keys::BlockKeys`]); writing takes the newest
//! alone.

use std::sync::{Arc, Mutex};

use capstan_catalog::{Pool, Volume, VolumeState};
use capstan_format::{KeyTag, Volser};
use capstan_keys::{Cartridge, KeyError, KeyRecord};
use capstan_tape::{EncryptionState, with_causes};

use super::{InDrive, Mounter};
use crate::drive_keys::{for_drive, note_destroyed};
use crate::shared::locked;
use crate::{DirectorError, Event};

impl Mounter {
    /// Whether volumes of a pool can get keys at all: asked before a cartridge is made or mounted for it.
    pub(crate) fn check_policy(&self, pool: &Pool) -> Result<(), DirectorError> {
        let (Some(algorithm), Some(keys)) = (pool.encryption, self.keys.provider.as_deref()) else { return Ok(()) };
        Ok(keys.check_new_volume(None, &pool.name, algorithm)?)
    }

    /// Sees that keys can be had at all, before anything is noted of a backup that could not begin. What the rules say
    /// of a pool's keys is a matter of its copy, and a plain copy is made whatever becomes of the others.
    pub(crate) fn check_keys(&self, pools: &[Pool]) -> Result<(), DirectorError> {
        let encrypted: Vec<_> = pools.iter().filter(|pool| pool.encryption.is_some()).collect();
        let Some(first) = encrypted.first() else { return Ok(()) };
        if self.keys.provider.is_none() {
            return Err(DirectorError::KeysLocked);
        }
        match self.check_policy(first) {
            Err(error) if error.no_keys_at_all() && encrypted.len() == pools.len() => Err(error),
            _ => Ok(()),
        }
    }

    /// Passes over the volumes that these pools would go on with and whose key was destroyed elsewhere since, before
    /// one is mounted.
    pub(crate) fn learn_destroyed(&self, pools: &[Pool]) -> Result<(), DirectorError> {
        let gone_on_with = |volume: &Volume| {
            let of_these = pools.iter().any(|pool| volume.pool.as_ref() == Some(&pool.name));
            of_these && volume.state == VolumeState::Filling && volume.key_destroyed_ns.is_none()
        };
        let mut volumes = locked(&self.catalog).volumes()?;
        volumes.retain(gone_on_with);
        for (volser, first) in volumes.into_iter().filter_map(|volume| Some((volume.volser, volume.key?.tag))) {
            // What cannot be asked now is told at the mount.
            if let Ok(Some((tag, destroyed_ns))) = self.destroyed_elsewhere(&volser, &first) {
                self.pass_over(&volser, &tag, destroyed_ns)?;
            }
        }
        Ok(())
    }

    /// A key of a volume, from its first one on, that encrypted something on it and was destroyed, and when: as those
    /// who keep keys say.
    pub(crate) fn destroyed_elsewhere(
        &self,
        volser: &Volser,
        first: &KeyTag,
    ) -> Result<Option<(KeyTag, i64)>, KeyError> {
        let Some(keys) = self.keys.provider.as_deref() else { return Ok(None) };
        let held = keys.keys_held(volser)?;
        // Nothing may lie under the first any more, by what they know, and the catalog still counts on it.
        let known = if held.iter().any(|key| key.tag == *first) { held } else { keys.keys_of(volser)? };
        let mut of_life = known.into_iter().skip_while(|key| key.tag != *first);
        // One that was drawn later and never used takes nothing along.
        let was_used = |key: &KeyRecord| key.tag == *first || key.activated_ns.is_some();
        Ok(of_life.find_map(|key| Some((key.tag, key.destroyed_ns.filter(|_| was_used(&key))?))))
    }

    /// Goes on without a volume whose key was destroyed: nothing is added to it until it is labelled anew.
    pub(crate) fn pass_over(&self, volser: &Volser, tag: &KeyTag, destroyed_ns: i64) -> Result<(), DirectorError> {
        note_destroyed(&mut locked(&self.catalog), volser, tag, destroyed_ns)?;
        let error = KeyError::KeyDestroyed { tag: *tag, volser: volser.clone(), destroyed_ns };
        let reason = with_causes(&error);
        let message =
            format!("volume {volser} is passed over: {reason}. To use it again: `capstan label {volser} --force`");
        (self.events)(Event::Notice { message });
        locked(&self.passed_over).push((volser.clone(), reason));
        Ok(())
    }

    /// The volumes that were passed over, and why.
    pub(crate) fn passed_over(&self) -> Arc<Mutex<Vec<(Volser, String)>>> {
        Arc::clone(&self.passed_over)
    }

    /// The same, and forgets them.
    pub(crate) fn take_passed_over(&self) -> Vec<(Volser, String)> {
        std::mem::take(&mut locked(&self.passed_over))
    }

    /// Nothing on a volume is encrypted any more. Where the store is locked, or no node of a cluster answers, its
    /// history says so later, when the volume has a key again.
    pub(crate) fn keys_ended(&self, cartridge: Cartridge<'_>) -> Result<(), DirectorError> {
        let Some(keys) = self.keys.provider.as_deref() else { return Ok(()) };
        match keys.ended(cartridge, self.now_ns()) {
            Err(error @ KeyError::Cluster(_)) => {
                let why = with_causes(&error);
                let message = format!(
                    "it will be recorded later that nothing on volume {} is encrypted any more: {why}",
                    cartridge.volser
                );
                (self.events)(Event::Notice { message });
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Forgets which keys of a volume could not be had.
    pub(super) fn forget_missed(&self, volser: &Volser) {
        locked(&self.mounts.missed_keys).retain(|(other, _)| other != volser);
    }

    /// The keys of a volume that could not be had since this was asked last, and why not.
    pub(super) fn take_missed(&self, volser: &Volser) -> Vec<(Volser, DirectorError)> {
        let missed: Vec<_> = locked(&self.mounts.missed_keys).extract_if(.., |(other, _)| other == volser).collect();
        // Asked for once more, for the reason.
        let reason = |(volser, tag): (Volser, KeyTag)| {
            self.keys.drive_key((&volser).into(), &tag, None).err().map(|error| (volser, error))
        };
        missed.into_iter().filter_map(reason).collect()
    }

    /// Whether blocks of the volume may have a key that is there, although its first key is not: whether it went on
    /// under a later one.
    pub(super) fn went_on(&self, volser: &Volser, first: &KeyTag) -> Result<bool, DirectorError> {
        let keys = self.keys.provider.as_deref().ok_or(DirectorError::KeysLocked)?;
        let of_volume = keys.keys_of(volser)?;
        let mut later = of_volume.into_iter().skip_while(|key| key.tag != *first).skip(1);
        Ok(later.any(|key| key.activated_ns.is_some() && key.destroyed_ns.is_none()))
    }

    /// Loads the key that a volume goes on with: the one in force, or a new one where that one's encryption period is
    /// over.
    pub(crate) fn load_key_to_append(&self, volume: &InDrive) -> Result<(), DirectorError> {
        let EncryptionState::Encrypted { tag: first, .. } = volume.medium.encryption else { return Ok(()) };
        let keys = self.keys.provider.as_deref().ok_or(DirectorError::KeysLocked)?;
        let key = keys.key_for_append(volume.cartridge(), &first, volume.serial.as_ref(), self.now_ns())?;
        volume.set_key(Some(for_drive(&key)))
    }
}
