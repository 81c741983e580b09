//! The sealed store: what can be done with it, each as one transaction.

use std::path::Path;
use std::time::Duration;

use capstan_format::{FormatError, KeyTag, Volser};

use crate::contents::{Contents, Sealed};
use crate::database::Database;
use crate::envelope::unwrap;
use crate::header::{SLOTS_MAX, Slot, StoreHeader};
use crate::record::StoredKey;
use crate::root::{RootKey, StoreKeys};
use crate::secret::random;
use crate::volume_key::VolumeKey;
use crate::{Argon2Cost, KeyError, KeyPlace, SlotKind, SlotRecord, Unlock};

mod keys;
mod policies;
mod transfer;

pub use keys::Destruction;
pub use transfer::ExportSelection;

/// How long an operation waits for another process. Operations take milliseconds; a process that holds the store for
/// longer is stopped or stuck, and the operator should hear of it.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The key store of one machine, unlocked.
///
/// Several processes may have it open; each operation is one transaction and sees what the others have committed. The
/// value can be sent to another thread and is used by one at a time. It must not be carried across `fork`: neither
/// SQLite's locks nor the page of the root key go with it. Dropping it forgets the root key.
pub struct SealedStore {
    database: Database,
    root: RootKey,
    store_id: [u8; 16],
    opened_slot: u8,
}

impl SealedStore {
    /// Creates a store that `unlock` opens, readable by its owner only, and opens it.
    ///
    /// # Errors
    /// [`KeyError::AlreadyExists`]; a store is never overwritten.
    pub fn create(path: &Path, unlock: &Unlock, cost: Argon2Cost) -> Result<Self, KeyError> {
        if path.symlink_metadata().is_ok() {
            return Err(KeyError::AlreadyExists { path: path.to_owned() });
        }
        let mut store_id = [0; 16];
        random(&mut store_id)?;
        let root = RootKey::random()?;
        let header = StoreHeader { store_id, slots: vec![Slot::new(1, &root, unlock, cost)?] };
        Database::create(path, &Contents::empty(header.encode(), &root.store_keys(&store_id)?))?;
        // Opened as ever after: the first proof that it can be.
        Self::open(path, unlock)
    }

    /// Opens a store, and checks all of it.
    ///
    /// # Errors
    /// [`KeyError::WrongPassphrase`] or [`KeyError::WrongKeyFile`], [`KeyError::Tampered`],
    /// [`KeyError::StoreMissing`], [`KeyError::Locked`].
    pub fn open(path: &Path, unlock: &Unlock) -> Result<Self, KeyError> {
        Self::open_waiting(path, unlock, LOCK_WAIT)
    }

    fn open_waiting(path: &Path, unlock: &Unlock, lock_wait: Duration) -> Result<Self, KeyError> {
        let database = Database::open(path, lock_wait)?;
        // No transaction is open while the passphrase is being worked on: that takes long, and others may write.
        let header = decode_header(path, &database.read()?)?;
        let (root, opened_slot) = unlock_root(path, &header, unlock)?;
        let store = Self { database, root, store_id: header.store_id, opened_slot };
        store.read()?;
        Ok(store)
    }

    /// The slots, in the order of their numbers.
    ///
    /// # Errors
    /// [`KeyError::Tampered`] if the store was altered; else it cannot be read.
    pub fn slots(&self) -> Result<Vec<SlotRecord>, KeyError> {
        let header = decode_header(self.database.path(), &self.read()?.0)?;
        Ok(header.slots.iter().map(|slot| SlotRecord { number: slot.number, kind: slot.derivation.kind() }).collect())
    }

    /// The slot that this store was opened with.
    pub fn opened_slot(&self) -> u8 {
        self.opened_slot
    }

    /// Lets `unlock` open the store too, and gives the number of its slot. Changing a passphrase is adding the new one
    /// and removing the old one.
    ///
    /// # Errors
    /// [`KeyError::SlotThere`] if it does already; [`KeyError::SlotsFull`] if all slots are in use;
    /// [`KeyError::EmptyPassphrase`] and [`KeyError::Argon2`] if the way is refused; else the store cannot be written.
    pub fn add_slot(&mut self, unlock: &Unlock, cost: Argon2Cost) -> Result<u8, KeyError> {
        let store = self.database.path();
        if let Ok((_, slot)) = unlock_root(store, &decode_header(store, &self.database.read()?)?, unlock) {
            return Err(KeyError::SlotThere { store: store.to_owned(), slot });
        }
        // Derived before the transaction, for a number that is corrected within it.
        let mut slot = Slot::new(1, &self.root, unlock, cost)?;
        let path = self.database.path().to_owned();
        self.change(|contents, _| {
            let mut header = decode_header(&path, contents)?;
            slot.number = header.free_slot().ok_or(KeyError::SlotsFull { store: path, slots: SLOTS_MAX })?;
            header.insert(slot);
            contents.header = header.encode();
            Ok(slot.number)
        })
    }

    /// Takes a way to open the store away, and clears it out of the file.
    ///
    /// It does not reach copies: who has an old copy of the store and the old secret can still open the copy.
    ///
    /// # Errors
    /// [`KeyError::SlotMissing`] if there is no such slot; [`KeyError::LastSlot`] if nothing else opens the store;
    /// [`KeyError::NotCleared`] if it is gone and the file could not be rewritten; else the store cannot be written.
    pub fn remove_slot(&mut self, number: u8) -> Result<(), KeyError> {
        let path = self.database.path().to_owned();
        self.change(|contents, _| {
            let mut header = decode_header(&path, contents)?;
            if header.slots.iter().all(|slot| slot.number != number) {
                return Err(KeyError::SlotMissing { store: path, slot: number });
            }
            if header.slots.len() == 1 {
                return Err(KeyError::LastSlot { store: path, slot: number });
            }
            header.slots.retain(|slot| slot.number != number);
            contents.header = header.encode();
            Ok(())
        })?;
        self.clear_old_bytes(|| format!("slot {number} is removed"))
    }

    /// Everything, read and checked.
    fn read(&self) -> Result<(Contents, StoreKeys), KeyError> {
        let keys = self.root.store_keys(&self.store_id)?;
        let contents = self.database.read()?;
        contents.verify(&keys).map_err(|what| KeyError::tampered(self.database.path(), what))?;
        Ok((contents, keys))
    }

    /// One change: reads and checks everything, lets `edit` change it, seals it, writes what differs, reads it back
    /// within the transaction, and commits. Whatever fails on the way, nothing has changed.
    fn change<T>(
        &mut self,
        edit: impl FnOnce(&mut Contents, &StoreKeys) -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        let keys = self.root.store_keys(&self.store_id)?;
        let path = self.database.path().to_owned();
        let change = self.database.begin()?;
        let before = change.read()?;
        before.verify(&keys).map_err(|what| KeyError::tampered(&path, what))?;
        let mut contents = before.clone();
        let result = edit(&mut contents, &keys)?;
        if let Sealed::Changed(changed) = contents.seal(&before, &keys) {
            change.write(&contents, &changed)?;
            // A file that is damaged where nobody has looked yet may lose on writing what it had on reading.
            let written = change.read()?;
            if written != contents {
                return Err(KeyError::tampered(&path, "a change that was written to it does not read back"));
            }
            written.verify(&keys).map_err(|what| KeyError::tampered(&path, what))?;
            change.commit()?;
        }
        Ok(result)
    }

    /// Clears what a committed change has overwritten out of the file.
    fn clear_old_bytes(&self, what: impl FnOnce() -> String) -> Result<(), KeyError> {
        self.database.rewrite().map_err(|source| KeyError::NotCleared {
            what: what(),
            store: self.database.path().to_owned(),
            source: Box::new(source),
        })
    }

    /// Takes a key out of its envelope and checks that it is the one its record names.
    fn unwrap_key(&self, stored: &StoredKey, keys: &StoreKeys) -> Result<VolumeKey, KeyError> {
        let record = &stored.record;
        let Some(wrapped) = &stored.wrapped else {
            return Err(KeyError::KeyDestroyed {
                tag: record.tag,
                volser: record.volser.clone(),
                destroyed_ns: record.destroyed_ns.unwrap_or_default(),
            });
        };
        unwrap(&keys.wrapping, wrapped)
            .map(|secret| VolumeKey::new(secret, record.algorithm))
            .filter(|key| key.tag() == record.tag)
            .ok_or_else(|| {
                let what = format!("key {} of volume {} is not what its record says", record.tag, record.volser);
                KeyError::tampered(self.database.path(), what)
            })
    }
}

fn decode_header(path: &Path, contents: &Contents) -> Result<StoreHeader, KeyError> {
    StoreHeader::decode(&contents.header).map_err(|error| match error {
        FormatError::Version { found, supported, .. } => {
            KeyError::Version { what: format!("the key store {}", path.display()), found, supported }
        }
        other => KeyError::tampered(path, other.to_string()),
    })
}

/// The root key, from the first slot that opens.
fn unlock_root(path: &Path, header: &StoreHeader, unlock: &Unlock) -> Result<(RootKey, u8), KeyError> {
    let mut slots_of_kind = 0;
    for slot in &header.slots {
        let Some(wrapping) = unlock.wrapping_key(slot.derivation, &slot.salt)? else { continue };
        slots_of_kind += 1;
        if let Some(root) = RootKey::unwrap(&wrapping, &slot.wrapped)? {
            return Ok((root, slot.number));
        }
    }
    let store = path.to_owned();
    Err(match (unlock.kind(), slots_of_kind) {
        (SlotKind::Passphrase, 0) => {
            KeyError::NoSuchSlot { store, offered: SlotKind::Passphrase.name(), needed: SlotKind::KeyFile.name() }
        }
        (SlotKind::KeyFile, 0) => {
            KeyError::NoSuchSlot { store, offered: SlotKind::KeyFile.name(), needed: SlotKind::Passphrase.name() }
        }
        (SlotKind::Passphrase, _) => KeyError::WrongPassphrase { store },
        (SlotKind::KeyFile, _) => KeyError::WrongKeyFile { store },
    })
}

/// The place of a key among the rows.
fn find(path: &Path, contents: &Contents, tag: &KeyTag, volser: Option<&Volser>) -> Result<usize, KeyError> {
    contents.rows.iter().position(|row| row.key.record.tag == *tag).ok_or_else(|| KeyError::KeyMissing {
        place: KeyPlace::Store(path.to_owned()),
        tag: *tag,
        volser: volser.cloned(),
    })
}

#[cfg(test)]
mod tests;
