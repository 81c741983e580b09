//! Keys from whoever keeps them: the sealed store of this machine, or a key cluster.

use std::time::{SystemTime, UNIX_EPOCH};

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{Cartridge, KeyError, KeyProvider, Name, VolumeKey};
use capstan_tape::DriveKey;

use crate::agent::{KeyAgent, KeyAgentError};

/// Fetches keys from a [`KeyProvider`], for all drives of a library at once; other programs may ask the same one.
pub struct ProviderAgent<P> {
    keys: P,
}

impl<P: KeyProvider> ProviderAgent<P> {
    /// Drives get their keys from here.
    pub fn new(keys: P) -> Self {
        Self { keys }
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

/// Blames a key that is not there or not to be had, or else those who keep it.
fn of_key(drive: &str, volser: &Volser, tag: &KeyTag) -> impl FnOnce(KeyError) -> KeyAgentError {
    let (drive, volser, tag) = (drive.to_owned(), volser.clone(), *tag);
    move |error| match error {
        KeyError::KeyDestroyed { .. } | KeyError::KeyMissing { .. } => {
            KeyAgentError::Gone { volser, tag, source: error.into() }
        }
        KeyError::Refused(_) | KeyError::RefusedByCluster { .. } | KeyError::KeyOfOtherVolume { .. } => {
            KeyAgentError::Refused { drive, volser, source: error.into() }
        }
        error => unreachable(&volser)(error),
    }
}

/// The drive, as those know it who keep keys; one whose serial number is no name they cannot tell from others.
fn name(drive: &str) -> Option<Name> {
    drive.parse().ok()
}

impl<P: KeyProvider> KeyAgent for ProviderAgent<P> {
    fn new_key(&self, drive: &str, volser: &Volser, algorithm: Algorithm) -> Result<DriveKey, KeyAgentError> {
        let issued = self.keys.key_for_new_volume(volser, name(drive).as_ref(), None, algorithm, now_ns());
        issued.map(|key| drive_key(&key)).map_err(|error| match error {
            error if error.is_refusal() => {
                KeyAgentError::Refused { drive: drive.to_owned(), volser: volser.clone(), source: error.into() }
            }
            error => unreachable(volser)(error),
        })
    }

    fn began(&self, drive: &str, cartridge: Cartridge<'_>, tag: &KeyTag) -> Result<(), KeyAgentError> {
        let begun = self.keys.activate(cartridge, tag, now_ns());
        begun.map(drop).map_err(of_key(drive, cartridge.volser, tag))
    }

    fn key(&self, drive: &str, cartridge: Cartridge<'_>, tag: &KeyTag) -> Result<DriveKey, KeyAgentError> {
        let found = self.keys.key_for_reading(cartridge, tag, name(drive).as_ref(), now_ns());
        found.map(|key| drive_key(&key)).map_err(of_key(drive, cartridge.volser, tag))
    }

    fn key_to_append(&self, drive: &str, cartridge: Cartridge<'_>, first: &KeyTag) -> Result<DriveKey, KeyAgentError> {
        let to_append = self.keys.key_for_append(cartridge, first, name(drive).as_ref(), now_ns());
        to_append.map(|key| drive_key(&key)).map_err(of_key(drive, cartridge.volser, first))
    }
}
