//! Keys from the sealed store of this machine.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{KeyError, SealedStore, Unlock, VolumeKey};
use capstan_tape::DriveKey;

use crate::agent::{KeyAgent, KeyAgentError};

/// Fetches keys from a sealed store; other programs may use the same store.
pub struct StoreAgent {
    store: Mutex<SealedStore>,
}

impl StoreAgent {
    /// Opens the store.
    pub fn open(path: &Path, unlock: &Unlock) -> Result<Self, KeyError> {
        Ok(Self { store: Mutex::new(SealedStore::open(path, unlock)?) })
    }

    fn store(&self) -> MutexGuard<'_, SealedStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn drive_key(key: &VolumeKey) -> DriveKey {
    DriveKey { tag: key.tag(), algorithm: key.algorithm(), key: *key.expose() }
}

fn unreachable(volser: &Volser) -> impl FnOnce(KeyError) -> KeyAgentError {
    let volser = volser.clone();
    move |source| KeyAgentError::Unreachable { volser, source: source.into() }
}

/// Blames a key that is not there, or else the store.
fn of_key(volser: &Volser, tag: &KeyTag) -> impl FnOnce(KeyError) -> KeyAgentError {
    let (volser, tag) = (volser.clone(), *tag);
    move |error| match error {
        KeyError::KeyDestroyed { .. } | KeyError::KeyMissing { .. } => {
            KeyAgentError::Gone { volser, tag, source: error.into() }
        }
        KeyError::KeyRetired { .. } | KeyError::KeyOfOtherVolume { .. } => {
            KeyAgentError::Refused { volser, source: error.into() }
        }
        error => unreachable(&volser)(error),
    }
}

impl KeyAgent for StoreAgent {
    fn new_key(&self, volser: &Volser, algorithm: Algorithm) -> Result<DriveKey, KeyAgentError> {
        let key = self.store().key_for_new_volume(volser, algorithm, now_ns()).map_err(unreachable(volser))?;
        Ok(drive_key(&key))
    }

    fn began(&self, volser: &Volser, tag: &KeyTag) -> Result<(), KeyAgentError> {
        self.store().activate(volser, tag, now_ns()).map(drop).map_err(of_key(volser, tag))
    }

    fn key(&self, volser: &Volser, tag: &KeyTag) -> Result<DriveKey, KeyAgentError> {
        self.store().key_by_tag(volser, tag).map(|key| drive_key(&key)).map_err(of_key(volser, tag))
    }

    fn key_to_append(&self, volser: &Volser, tag: &KeyTag) -> Result<DriveKey, KeyAgentError> {
        let key = self.store().key_for_append(volser, tag, now_ns());
        key.map(|key| drive_key(&key)).map_err(of_key(volser, tag))
    }
}
