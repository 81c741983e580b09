//! What is done with keys beyond mounting.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use capstan_format::{KeyTag, Volser};
use capstan_keys::{Argon2Cost, ExportSelection, KeyError, SealedStore, Unlock};
use zeroize::Zeroizing;

use crate::DirectorError;
use crate::config::Config;
use crate::config::find_settings;
use crate::site::{Site, check_writable, key_store_path, locked};

/// Where the catalog keeps which volumes have no key.
const WITHOUT_KEY_FACT: &str = "volumes_without_key";

/// The name of the fact: the tags of keys that are in an export which was made here.
const EXPORTED_FACT: &str = "exported_keys";

/// Makes a new key store in place of one that is lost or damaged. A damaged one is kept beside it, and its path is
/// given.
///
/// # Errors
/// [`DirectorError::KeyStoreWhole`] if there is one that `unlock` opens; [`DirectorError::KeysInCluster`] if a cluster
/// keeps the keys. Otherwise what opening it said, if that was anything but damage; or the new one cannot be written.
pub fn create_key_store(dir: &Path, unlock: &Unlock, now_ns: i64) -> Result<Option<PathBuf>, DirectorError> {
    let config = Config::read(&find_settings(dir)?)?;
    if config.keys.is_cluster() {
        return Err(DirectorError::KeysInCluster { nodes: config.keys.nodes.join(", ") });
    }
    check_writable(dir)?;
    let store = key_store_path(dir);
    let mut aside = None;
    match SealedStore::open(&store, unlock) {
        Ok(_) => return Err(DirectorError::KeyStoreWhole { path: store }),
        Err(KeyError::StoreMissing { .. }) => {}
        Err(KeyError::Tampered { .. }) => {
            let kept = dir.join(format!("keys.db.damaged-{now_ns}"));
            std::fs::rename(&store, &kept).map_err(DirectorError::host("move aside", &store))?;
            // What belongs to it must not be taken for the new one's.
            let journal = dir.join("keys.db-journal");
            if journal.exists() {
                let kept = dir.join(format!("keys.db-journal.damaged-{now_ns}"));
                std::fs::rename(&journal, &kept).map_err(DirectorError::host("move aside", &journal))?;
            }
            aside = Some(kept);
        }
        Err(error) => return Err(error.into()),
    }
    SealedStore::create(&store, unlock, Argon2Cost::default())?;
    Ok(aside)
}

/// Volumes whose keys are not in the key store, as far as somebody has looked since it was made anew.
pub(crate) fn volumes_without_key(catalog: &capstan_catalog::Catalog) -> Result<Vec<Volser>, DirectorError> {
    let words = catalog.fact(WITHOUT_KEY_FACT)?.unwrap_or_default();
    Ok(words.split_whitespace().filter_map(|word| Volser::new(word).ok()).collect())
}

/// Volumes that nobody can read, because a key of theirs is not in the key store or was destroyed.
pub(crate) fn unreadable_volumes(catalog: &capstan_catalog::Catalog) -> Result<BTreeSet<Volser>, DirectorError> {
    let destroyed = catalog.volumes()?.into_iter().filter(|volume| volume.key_destroyed_ns.is_some());
    Ok(destroyed.map(|volume| volume.volser).chain(volumes_without_key(catalog)?).collect())
}

/// Notes that a volume has a key that is there, or needs none.
pub(crate) fn note_key(catalog: &mut capstan_catalog::Catalog, volser: &Volser) -> Result<(), DirectorError> {
    let without = volumes_without_key(catalog)?;
    if without.contains(volser) {
        let words: Vec<_> = without.iter().filter(|other| *other != volser).map(Volser::as_str).collect();
        catalog.put_fact(WITHOUT_KEY_FACT, &words.join(" "))?;
    }
    Ok(())
}

impl Site {
    /// Volumes whose keys are not in the key store. Known since [`Site::look_at_keys`].
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn volumes_without_key(&self) -> Result<Vec<Volser>, DirectorError> {
        volumes_without_key(&locked(&self.catalog))
    }

    /// Volumes that nobody can read, because a key of theirs is not in the key store or was destroyed. A copy that
    /// stands on one is none.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn unreadable_volumes(&self) -> Result<BTreeSet<Volser>, DirectorError> {
        unreadable_volumes(&locked(&self.catalog))
    }

    /// Notes which volumes have no key in the key store, which must be open: nothing on them is protected, and nothing
    /// is added to them.
    ///
    /// # Errors
    /// The key store is not open or cannot be read ([`Site::keys`]), or the catalog cannot be written.
    pub fn look_at_keys(&self) -> Result<Vec<Volser>, DirectorError> {
        let keys = self.keys()?.list()?;
        let held: Vec<KeyTag> = keys.iter().map(|key| key.tag).collect();
        let mut catalog = locked(&self.catalog);
        // Volumes that are elsewhere keep their names.
        crate::names::note_used(&mut catalog, keys.iter().map(|key| &key.volser));
        let mut volumes = catalog.volumes()?;
        volumes.retain(|volume| volume.key.is_some_and(|key| !held.contains(&key.tag)));
        let volsers: Vec<Volser> = volumes.into_iter().map(|volume| volume.volser).collect();
        let words: Vec<_> = volsers.iter().map(Volser::as_str).collect();
        catalog.put_fact(WITHOUT_KEY_FACT, &words.join(" "))?;
        Ok(volsers)
    }

    /// Volumes whose keys are in no export that was made here, and when they were labelled. Of a cluster none: that
    /// keeps its own backups.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn volumes_not_exported(&self) -> Result<Vec<(Volser, Option<i64>)>, DirectorError> {
        if self.config.keys.is_cluster() {
            return Ok(Vec::new());
        }
        let catalog = locked(&self.catalog);
        let exported = catalog.fact(EXPORTED_FACT)?.unwrap_or_default();
        let exported: HashSet<&str> = exported.split_whitespace().collect();
        let mut volumes = catalog.volumes()?;
        volumes.retain(|volume| {
            let lives = volume.key_destroyed_ns.is_none();
            lives && volume.key.is_some_and(|key| !exported.contains(key.tag.to_string().as_str()))
        });
        Ok(volumes.into_iter().map(|volume| (volume.volser, volume.labelled_ns)).collect())
    }

    /// Notes that these keys are in an export that was written.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub fn note_exported(&self, tags: &[KeyTag]) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        let before = catalog.fact(EXPORTED_FACT)?.unwrap_or_default();
        let now = tags.iter().map(ToString::to_string);
        let all: BTreeSet<String> = before.split_whitespace().map(str::to_owned).chain(now).collect();
        let all: Vec<_> = all.into_iter().collect();
        Ok(catalog.put_fact(EXPORTED_FACT, &all.join(" "))?)
    }

    /// Keys in a sealed file: all, or those of some volumes; and which they are.
    ///
    /// # Errors
    /// [`DirectorError::UnknownVolume`] if a volume has no key that lives. Otherwise the key store is not open or
    /// cannot be read ([`Site::keys`]).
    pub fn export_keys(
        &self,
        volumes: &[String],
        passphrase: &Zeroizing<String>,
    ) -> Result<(Vec<u8>, Vec<KeyTag>), DirectorError> {
        let keys = self.keys()?;
        // What is drawn from here on is in no list of what was exported.
        let list = keys.list()?;
        let mut tags = Vec::new();
        for volume in volumes {
            let of_volume = list.iter().filter(|key| key.volser.as_str() == volume && key.destroyed_ns.is_none());
            let before = tags.len();
            tags.extend(of_volume.map(|key| key.tag));
            if tags.len() == before {
                return Err(DirectorError::UnknownVolume { volser: volume.clone() });
            }
        }
        let (selection, tags) = match volumes {
            [] => (ExportSelection::All, list.iter().map(|key| key.tag).collect()),
            _ => (ExportSelection::Keys(tags.clone()), tags),
        };
        Ok((keys.export(&selection, passphrase, Argon2Cost::default())?, tags))
    }

    /// Lets one more secret open the key store, and gives its slot.
    ///
    /// # Errors
    /// The key store is not open ([`Site::keys`]) or cannot be written, or has no free slot.
    pub fn add_key_slot(&self, unlock: &Unlock) -> Result<u8, DirectorError> {
        Ok(self.keys()?.add_slot(unlock, Argon2Cost::default())?)
    }
}
