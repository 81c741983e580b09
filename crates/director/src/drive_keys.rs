//! Keys as drives take them, and what the catalog is told of those that are gone.

use std::sync::{Arc, Mutex};

use capstan_catalog::{Catalog, Volume};
use capstan_format::{KeyTag, Volser};
use capstan_keys::{Cartridge, KeyError, Name, VolumeKey};
use capstan_mover::HostError;
use capstan_mover::devices::{KeySource, KeyWanted};
use capstan_tape::DriveKey;

use crate::DirectorError;
use crate::mounts::Mounts;
use crate::shared::{Clock, SharedKeys, locked};

/// Gives drives the keys that blocks name.
#[derive(Clone)]
pub(crate) struct BlockKeys {
    pub(crate) catalog: Arc<Mutex<Catalog>>,
    /// None while they are locked.
    pub(crate) provider: Option<SharedKeys>,
    pub(crate) clock: Clock,
    /// Where a key that could not be had is noted.
    pub(crate) mounts: Arc<Mounts>,
}

impl KeySource for BlockKeys {
    fn key(&self, wanted: &KeyWanted) -> Result<DriveKey, HostError> {
        let cartridge = Cartridge { volser: &wanted.volser, serial: wanted.cartridge.as_ref() };
        let drive = wanted.drive.as_ref().and_then(|serial| serial.parse().ok());
        self.drive_key(cartridge, &wanted.tag, drive.as_ref()).map_err(|error| {
            let (mut missed, key) = (locked(&self.mounts.missed_keys), (wanted.volser.clone(), wanted.tag));
            if !missed.contains(&key) {
                missed.push(key);
            }
            error.into()
        })
    }
}

impl BlockKeys {
    /// The key of a tag, ready for the drive's key slot. `serial` is the drive's, where it is in one.
    pub(crate) fn drive_key(
        &self,
        cartridge: Cartridge<'_>,
        tag: &KeyTag,
        serial: Option<&Name>,
    ) -> Result<DriveKey, DirectorError> {
        let keys = self.provider.as_deref().ok_or(DirectorError::KeysLocked)?;
        let found = keys.key_for_reading(cartridge, tag, serial, (self.clock)());
        if let Err(KeyError::KeyDestroyed { destroyed_ns, .. }) = &found {
            // The catalog may be older than the destruction, or made anew since.
            note_destroyed(&mut locked(&self.catalog), cartridge.volser, tag, *destroyed_ns)?;
        }
        Ok(for_drive(&found?))
    }
}

/// A key as drives take it.
pub(crate) fn for_drive(key: &VolumeKey) -> DriveKey {
    DriveKey { tag: key.tag(), algorithm: key.algorithm(), key: *key.expose() }
}

/// Notes that a key of a volume is gone. The catalog knows the first key of each volume; where it is another, the whole
/// volume counts as one whose key was destroyed: what still can be read is read, and none of it is promised.
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
