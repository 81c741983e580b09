//! Keys from the sealed store of this machine.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{Agent, KeyError, Name, SealedStore, Unlock, VolumeKey};
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

/// Blames a key that is not there or not to be had, or else the store.
fn of_key(drive: &str, volser: &Volser, tag: &KeyTag) -> impl FnOnce(KeyError) -> KeyAgentError {
    let (drive, volser, tag) = (drive.to_owned(), volser.clone(), *tag);
    move |error| match error {
        KeyError::KeyDestroyed { .. } | KeyError::KeyMissing { .. } => {
            KeyAgentError::Gone { volser, tag, source: error.into() }
        }
        KeyError::Refused(_) | KeyError::KeyOfOtherVolume { .. } => {
            KeyAgentError::Refused { drive, volser, source: error.into() }
        }
        error => unreachable(&volser)(error),
    }
}

/// What is said of a drive; of one whose serial number is no name nothing can be.
fn agent(store: &SealedStore, drive: &str) -> Result<Agent, KeyError> {
    Ok(match drive.parse() {
        Ok(name) => store.realm()?.agent(&name),
        Err(_) => Agent::anything(Name::default()),
    })
}

impl KeyAgent for StoreAgent {
    fn new_key(&self, drive: &str, volser: &Volser, algorithm: Algorithm) -> Result<DriveKey, KeyAgentError> {
        let mut store = self.store();
        let issued = agent(&store, drive)
            .and_then(|agent| store.key_for_new_volume(volser, &agent, &agent.default_group, algorithm, now_ns()));
        issued.map(|key| drive_key(&key)).map_err(|error| match error {
            KeyError::Refused(_) => {
                KeyAgentError::Refused { drive: drive.to_owned(), volser: volser.clone(), source: error.into() }
            }
            error => unreachable(volser)(error),
        })
    }

    fn began(&self, drive: &str, volser: &Volser, tag: &KeyTag) -> Result<(), KeyAgentError> {
        self.store().activate(volser, tag, now_ns()).map(drop).map_err(of_key(drive, volser, tag))
    }

    fn key(&self, drive: &str, volser: &Volser, tag: &KeyTag) -> Result<DriveKey, KeyAgentError> {
        let store = self.store();
        let found = agent(&store, drive).and_then(|agent| store.key_for_reading(volser, tag, &agent, now_ns()));
        found.map(|key| drive_key(&key)).map_err(of_key(drive, volser, tag))
    }

    fn key_to_append(&self, drive: &str, volser: &Volser, first: &KeyTag) -> Result<DriveKey, KeyAgentError> {
        let mut store = self.store();
        let to_append = agent(&store, drive).and_then(|agent| store.key_for_append(volser, first, &agent, now_ns()));
        to_append.map(|key| drive_key(&key)).map_err(of_key(drive, volser, first))
    }
}
