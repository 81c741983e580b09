//! Where drives get their keys, whoever keeps them: the sealed store of this machine, or a cluster of key nodes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_format::{Algorithm, KeyTag, Volser};

use crate::{Agent, Cartridge, KeyError, KeyRecord, Name, Realm, SealedStore, VolumeKey};

/// Gives drives the keys of their volumes. `drive` is the drive, which may be held to some of the keys: its serial
/// number; none where it has no number that is a name, and then it is whoever asks that may be held.
///
/// Every implementation keeps the same promises: a key is given out to write with only after it is stored where it can
/// be had back, a new one was never used before, and whatever fails leaves the volume's older keys as they were.
/// Several drives may ask at the same time, and none waits for what another one waits for, but for a store that does
/// one thing after the other.
///
/// The cartridge's serial number, where its memory tells it, is kept with what is known of the volume; that it is
/// another than before is noted for people, and refuses nothing.
pub trait KeyProvider: Send + Sync {
    /// Whether a volume of a pool could get a key at all: asked before a cartridge is made or mounted for it.
    ///
    /// # Errors
    /// [`KeyError::Refused`] or [`KeyError::RefusedByCluster`] if the rules forbid it; else whoever keeps the keys
    /// cannot be asked.
    fn check_new_volume(&self, drive: Option<&Name>, pool: &str, algorithm: Algorithm) -> Result<(), KeyError>;

    /// A new key for a volume that is about to be written from the beginning of tape: of the group of its pool, or,
    /// where it is of none, of the one that its drive uses unasked. The older ones stay in force until it is activated.
    ///
    /// # Errors
    /// As [`KeyProvider::check_new_volume`].
    fn key_for_new_volume(
        &self,
        volser: &Volser,
        drive: Option<&Name>,
        pool: Option<&str>,
        algorithm: Algorithm,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError>;

    /// The first block encrypted with a key stands on its volume, or is about to. Gives the tags of the keys that this
    /// has retired.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`], [`KeyError::KeyDestroyed`] and [`KeyError::KeyOfOtherVolume`] if there is no such key;
    /// else whoever keeps the keys cannot be asked. No block must be written then.
    fn activate(&self, cartridge: Cartridge<'_>, tag: &KeyTag, now_ns: i64) -> Result<Vec<KeyTag>, KeyError>;

    /// The key to append to a volume with, whose first block names the key `first`; if it is a new one, that is on
    /// record already.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`], [`KeyError::KeyDestroyed`] and [`KeyError::KeyOfOtherVolume`] if there is no such key;
    /// else as [`KeyProvider::check_new_volume`].
    fn key_for_append(
        &self,
        cartridge: Cartridge<'_>,
        first: &KeyTag,
        drive: Option<&Name>,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError>;

    /// The key to read a volume with, whose tag a block of it carries.
    ///
    /// # Errors
    /// As [`KeyProvider::key_for_append`]; [`KeyError::CryptoperiodOver`] or [`KeyError::Refused`] if it is no longer
    /// given out.
    fn key_for_reading(
        &self,
        cartridge: Cartridge<'_>,
        tag: &KeyTag,
        drive: Option<&Name>,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError>;

    /// A volume was erased, or begun anew without encryption: its keys encrypt no more.
    ///
    /// # Errors
    /// Whoever keeps the keys cannot be asked.
    fn ended(&self, cartridge: Cartridge<'_>, now_ns: i64) -> Result<(), KeyError>;

    /// Every key that was ever issued for a volume, those issued first in front.
    ///
    /// # Errors
    /// Whoever keeps the keys cannot be asked.
    fn keys_of(&self, volser: &Volser) -> Result<Vec<KeyRecord>, KeyError>;

    /// Those of them under which something on the volume may still lie, as far as that is on record.
    ///
    /// # Errors
    /// As [`KeyProvider::keys_of`].
    fn keys_held(&self, volser: &Volser) -> Result<Vec<KeyRecord>, KeyError> {
        self.keys_of(volser)
    }
}

/// A store is used by one thread at a time.
impl KeyProvider for Mutex<SealedStore> {
    fn check_new_volume(&self, drive: Option<&Name>, pool: &str, algorithm: Algorithm) -> Result<(), KeyError> {
        let realm = locked(self).realm()?;
        realm.key_to_begin(&agent(&realm, drive), &realm.group_of_pool(pool), algorithm)?;
        Ok(())
    }

    fn key_for_new_volume(
        &self,
        volser: &Volser,
        drive: Option<&Name>,
        pool: Option<&str>,
        algorithm: Algorithm,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let mut store = locked(self);
        let realm = store.realm()?;
        let agent = agent(&realm, drive);
        let group = pool.map_or_else(|| agent.default_group.clone(), |pool| realm.group_of_pool(pool));
        store.key_for_new_volume(volser, &agent, &group, algorithm, now_ns)
    }

    fn activate(&self, cartridge: Cartridge<'_>, tag: &KeyTag, now_ns: i64) -> Result<Vec<KeyTag>, KeyError> {
        locked(self).activate(cartridge, tag, now_ns)
    }

    fn key_for_append(
        &self,
        cartridge: Cartridge<'_>,
        first: &KeyTag,
        drive: Option<&Name>,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let mut store = locked(self);
        let agent = agent(&store.realm()?, drive);
        store.key_for_append(cartridge, first, &agent, now_ns)
    }

    fn key_for_reading(
        &self,
        cartridge: Cartridge<'_>,
        tag: &KeyTag,
        drive: Option<&Name>,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let mut store = locked(self);
        let realm = store.realm()?;
        let key = store.key_for_reading(cartridge.volser, tag, &agent(&realm, drive), now_ns)?;
        let known = realm.unit(cartridge.volser).map(|unit| &unit.cartridges);
        if known.is_some_and(|known| known.differs(cartridge.serial).is_some()) {
            // A volume is read also where nothing can be written: on a full disk, from a store on a medium that is
            // write-protected.
            let _ = store.seen(cartridge, now_ns);
        }
        Ok(key)
    }

    fn ended(&self, cartridge: Cartridge<'_>, now_ns: i64) -> Result<(), KeyError> {
        locked(self).ended(cartridge, now_ns)
    }

    fn keys_of(&self, volser: &Volser) -> Result<Vec<KeyRecord>, KeyError> {
        Ok(locked(self).list()?.into_iter().filter(|key| key.volser == *volser).collect())
    }
}

/// A store that a thread left in the middle of something is as it was before.
fn locked(store: &Mutex<SealedStore>) -> MutexGuard<'_, SealedStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is said of a drive; of one without a name nothing can be.
fn agent(realm: &Realm, drive: Option<&Name>) -> Agent {
    drive.map_or_else(|| Agent::anything(Name::default()), |drive| realm.agent(drive))
}
