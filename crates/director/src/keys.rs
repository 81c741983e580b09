//! What is done with keys beyond mounting.

use capstan_format::{KeyTag, Volser};
use capstan_keys::{Argon2Cost, Destruction, ExportSelection, Unlock};
use zeroize::Zeroizing;

use crate::DirectorError;
use crate::desk::note_destroyed;
use crate::site::{Site, locked};

/// A key that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestroyedKey {
    /// Its volume.
    pub volser: Volser,
    /// Its public name.
    pub tag: KeyTag,
}

impl Site {
    /// Keys in a sealed file: all, or those of some volumes.
    pub fn export_keys(&self, volumes: &[String], passphrase: &Zeroizing<String>) -> Result<Vec<u8>, DirectorError> {
        let keys = self.keys()?;
        let selection = if volumes.is_empty() {
            ExportSelection::All
        } else {
            let mut tags = Vec::new();
            for volume in volumes {
                let of_volume =
                    keys.list()?.into_iter().filter(|key| key.volser.as_str() == volume && key.destroyed_ns.is_none());
                let before = tags.len();
                tags.extend(of_volume.map(|key| key.tag));
                if tags.len() == before {
                    return Err(DirectorError::UnknownVolume { volser: volume.clone() });
                }
            }
            ExportSelection::Keys(tags)
        };
        Ok(keys.export(&selection, passphrase, Argon2Cost::default())?)
    }

    /// Lets one more secret open the key store, and gives its slot.
    pub fn add_key_slot(&self, unlock: &Unlock) -> Result<u8, DirectorError> {
        Ok(self.keys()?.add_slot(unlock, Argon2Cost::default())?)
    }

    /// Destroys a key. What it encrypted is gone for good.
    pub fn destroy_key(&self, tag: &KeyTag) -> Result<DestroyedKey, DirectorError> {
        let now_ns = self.now_ns();
        let (destruction, realm) = {
            let mut keys = self.keys()?;
            (keys.destroy(tag, now_ns)?, keys.realm()?)
        };
        let (Destruction::Destroyed(record) | Destruction::AlreadyDestroyed(record)) = destruction;
        let destroyed_ns = record.destroyed_ns.unwrap_or(now_ns);
        let mut catalog = locked(&self.catalog);
        let first = catalog.volume(&record.volser)?.and_then(|volume| volume.key).map(|key| key.tag);
        let unit = realm.unit(&record.volser);
        let is_further = first
            .filter(|first| first != tag)
            .is_some_and(|first| unit.and_then(|unit| unit.key(tag)).is_some_and(|issued| issued.is_of_life(&first)));
        if is_further && record.activated_ns.is_some() {
            note_destroyed(&mut catalog, &record.volser, &record.tag, destroyed_ns)?;
        } else {
            catalog.key_destroyed(&record.tag, destroyed_ns)?;
        }
        Ok(DestroyedKey { volser: record.volser, tag: record.tag })
    }
}
