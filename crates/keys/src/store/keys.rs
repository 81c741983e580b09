//! Keys of volumes: issued, activated, looked up, destroyed.

use capstan_format::{Algorithm, KeyTag, Volser};

use super::{SealedStore, find};
use crate::envelope::wrap;
use crate::holdings::{DrawnKey, Holdings, KeyToAppend};
use crate::root::StoreKeys;
use crate::volume_key::VolumeKey;
use crate::{Agent, Cartridge, KeyError, KeyRecord, KeyState, Name, NewKey};

/// What destroying a key came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destruction {
    /// It is gone now.
    Destroyed(KeyRecord),
    /// It was gone before, as the record says; what may have been left of it in the file is cleared.
    AlreadyDestroyed(KeyRecord),
}

impl SealedStore {
    /// Every key the store ever had, in the order in which it came to know them.
    ///
    /// # Errors
    /// [`KeyError::Tampered`] if the store was altered; else it cannot be read.
    pub fn list(&self) -> Result<Vec<KeyRecord>, KeyError> {
        Ok(self.read()?.0.rows.into_iter().map(|row| row.key.record).collect())
    }

    /// A new key of a group for a volume that is about to be written from the beginning of tape. It was never used
    /// before and never comes from here again.
    ///
    /// When this returns, the key is on disk, was read back from the file through another connection, unwrapped, and
    /// compared with its tag. It is `ready`: the volume's older key stays in force until [`SealedStore::activate`] says
    /// that the volume was begun anew, so that a label that fails costs nothing.
    ///
    /// # Errors
    /// [`KeyError::Refused`].
    pub fn key_for_new_volume(
        &mut self,
        volser: &Volser,
        agent: &Agent,
        group: &Name,
        algorithm: Algorithm,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let mut drawn = None;
        self.operate(Some(volser), None, |holdings, keys| {
            holdings.begin(volser, agent, group, algorithm, now_ns, |new| draw(keys, new, now_ns, &mut drawn))
        })?;
        self.prove_drawn(drawn, volser, now_ns)
    }

    /// Reports that the first block encrypted with a key stands on its volume, flushed. From here on that key fills the
    /// volume; the volume's older keys only read. Gives the tags of those that this has retired.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] and [`KeyError::KeyOfOtherVolume`] if it is no key of this volume;
    /// [`KeyError::KeyDestroyed`] and [`KeyError::KeyRetired`] if its state does not allow it; else the store cannot be
    /// written.
    pub fn activate<'a>(
        &mut self,
        cartridge: impl Into<Cartridge<'a>>,
        tag: &KeyTag,
        now_ns: i64,
    ) -> Result<Vec<KeyTag>, KeyError> {
        let cartridge = cartridge.into();
        self.operate(Some(cartridge.volser), Some(tag), |holdings, _| holdings.activate(cartridge, tag, now_ns))
    }

    /// Reports that a volume was erased, or begun anew without encryption: its keys encrypt no more, and it holds
    /// nothing of them.
    ///
    /// # Errors
    /// The store cannot be written, or was altered.
    pub fn ended<'a>(&mut self, cartridge: impl Into<Cartridge<'a>>, now_ns: i64) -> Result<(), KeyError> {
        let cartridge = cartridge.into();
        self.operate(Some(cartridge.volser), None, |holdings, _| holdings.ended(cartridge, now_ns))
    }

    /// The key to append to a volume with, whose first block names the key `first`: that one, or the one that was put
    /// in force for it since, while its encryption period lasts; else a new one of the same group, and the older ones
    /// read only from here on. That it is in force is on record before its first block: no block lies under a key that
    /// seems to be unused.
    ///
    /// A first key that is still `ready` is activated by this: the volume proves that it was begun with it, and that
    /// only the report was lost.
    ///
    /// # Errors
    /// [`KeyError::Refused`], [`KeyError::KeyOfOtherVolume`], and those of [`SealedStore::key_for_reading`].
    pub fn key_for_append<'a>(
        &mut self,
        cartridge: impl Into<Cartridge<'a>>,
        first: &KeyTag,
        agent: &Agent,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let cartridge @ Cartridge { volser, .. } = cartridge.into();
        let mut drawn = None;
        let to_append = self.operate(Some(volser), Some(first), |holdings, keys| {
            holdings.append(cartridge, first, agent, now_ns, |new| draw(keys, new, now_ns, &mut drawn))
        })?;
        match to_append {
            KeyToAppend::Stored(stored) => {
                let keys = self.root.store_keys(&self.store_id)?;
                self.unwrap_key(&stored, &keys)
            }
            KeyToAppend::Drawn { tag } => {
                let key = self.prove_drawn(drawn, volser, now_ns)?;
                self.activate(volser, &tag, now_ns)?;
                Ok(key)
            }
        }
    }

    /// The key to read a volume with, whose tag the volume carries. `volser` is that volume, for the error.
    ///
    /// # Errors
    /// [`KeyError::Refused`], [`KeyError::KeyMissing`], [`KeyError::KeyDestroyed`], [`KeyError::Tampered`].
    pub fn key_for_reading(
        &self,
        volser: &Volser,
        tag: &KeyTag,
        agent: &Agent,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let (contents, keys) = self.read()?;
        let holdings = contents.holdings(self.database.path(), Some(volser), Some(tag));
        let stored = holdings.reading(volser, tag)?;
        let key = self.unwrap_key(stored, &keys)?;
        holdings.check_reading(agent, &stored.record, now_ns)?;
        Ok(key)
    }

    /// Notes that a volume was read on a cartridge: where another one is known as the volume's, people are to know.
    pub(crate) fn seen(&mut self, cartridge: Cartridge<'_>, now_ns: i64) -> Result<(), KeyError> {
        self.operate(Some(cartridge.volser), None, |holdings, _| {
            holdings.seen(cartridge, now_ns);
            Ok(())
        })
    }

    /// Notes that somebody else may know a key: it encrypts no more, and reads what is to be moved under another. Gives
    /// its record.
    ///
    /// # Errors
    /// [`KeyError::KeyDestroyed`], which nobody can know any more.
    pub fn compromise(&mut self, tag: &KeyTag, now_ns: i64) -> Result<KeyRecord, KeyError> {
        self.operate(None, Some(tag), |holdings, _| holdings.compromise(tag, now_ns))
    }

    /// Says that a key is to encrypt no more: what is appended to its volume gets another. Gives its record.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`] if there is no such key; [`KeyError::KeyDestroyed`] if it is gone; else the store
    /// cannot be written.
    pub fn retire(&mut self, tag: &KeyTag, now_ns: i64) -> Result<KeyRecord, KeyError> {
        self.operate(None, Some(tag), |holdings, _| holdings.retire(tag, now_ns))
    }

    /// Destroys a key: its wrapped bytes are overwritten and cleared out of the file, its record stays. The data that
    /// was encrypted with it is gone for good, unless an export or a copy of the store elsewhere still holds the key.
    ///
    /// # Errors
    /// [`KeyError::NotCleared`] if the key is destroyed and the file could not be rewritten; repeat it then.
    pub fn destroy(&mut self, tag: &KeyTag, now_ns: i64) -> Result<Destruction, KeyError> {
        let destruction = self.operate(None, Some(tag), |holdings, _| {
            let gone = holdings.named(tag)?.state == KeyState::Destroyed;
            let record = holdings.destroy(tag, now_ns)?;
            Ok(if gone { Destruction::AlreadyDestroyed(record) } else { Destruction::Destroyed(record) })
        })?;
        self.clear_old_bytes(|| format!("key {tag} is destroyed"))?;
        Ok(destruction)
    }

    /// One operation on what is known of a volume and a key, as one change.
    pub(super) fn operate<T>(
        &mut self,
        volser: Option<&Volser>,
        tag: Option<&KeyTag>,
        operation: impl FnOnce(&mut Holdings, &StoreKeys) -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        let path = self.database.path().to_owned();
        self.change(|contents, keys| {
            let mut holdings = contents.holdings(&path, volser, tag);
            let result = operation(&mut holdings, keys)?;
            contents.apply(holdings.finish());
            Ok(result)
        })
    }

    /// Proves that a key that was drawn is stored, and only then lets it be used.
    fn prove_drawn(&mut self, drawn: Option<VolumeKey>, volser: &Volser, now_ns: i64) -> Result<VolumeKey, KeyError> {
        let key = drawn.ok_or_else(|| KeyError::host("drawing a key", "a key was issued and none was drawn"))?;
        self.prove_stored(&[key.tag()])?;
        self.operate(Some(volser), Some(&key.tag()), |holdings, _| holdings.stored(&key.tag(), now_ns))?;
        Ok(key)
    }

    /// Reads keys back from the file, not from this connection's cache, and takes them out of their envelopes.
    pub(super) fn prove_stored(&self, tags: &[KeyTag]) -> Result<(), KeyError> {
        let keys = self.root.store_keys(&self.store_id)?;
        let path = self.database.path();
        let contents = self.database.reopen()?.read()?;
        contents.verify(&keys).map_err(|what| KeyError::tampered(path, what))?;
        tags.iter().try_for_each(|tag| {
            let place = find(path, &contents, tag, None)?;
            self.unwrap_key(&contents.rows[place].key, &keys).map(drop)
        })
    }
}

/// Draws a key, to be stored; `drawn` takes it.
fn draw(keys: &StoreKeys, new: &NewKey, now_ns: i64, drawn: &mut Option<VolumeKey>) -> Result<DrawnKey, KeyError> {
    let key = drawn.insert(VolumeKey::random(new.algorithm)?);
    let wrapped = wrap(&keys.wrapping, key.expose())?;
    Ok(DrawnKey { tag: key.tag(), wrapped, state: KeyState::Generated, created_ns: now_ns })
}
