//! Keys of volumes: issued, activated, looked up, destroyed.

use capstan_format::{Algorithm, KeyTag, Volser};

use super::{SealedStore, find};
use crate::contents::Contents;
use crate::envelope::wrap;
use crate::lifecycle::KeyEvent;
use crate::realm::RealmRecord;
use crate::record::StoredKey;
use crate::root::StoreKeys;
use crate::secret::VolumeKey;
use crate::{Agent, AppendKey, DataUnit, IssuedKey, KeyError, KeyRecord, KeyState, KeyUse, Name, NewKey};

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
    pub fn list(&self) -> Result<Vec<KeyRecord>, KeyError> {
        Ok(self.read()?.0.rows.into_iter().map(|row| row.key.record).collect())
    }

    /// A new key of a group for a volume that is about to be written from the beginning of tape. It was never used before and
    /// never comes from here again.
    ///
    /// When this returns, the key is on disk, was read back from the file through another connection, unwrapped, and
    /// compared with its tag. It is `ready`: the volume's older key stays in force until [`SealedStore::activate`] says
    /// that the volume was begun anew, so that a label that fails costs nothing.
    ///
    /// Errors: [`KeyError::Refused`].
    pub fn key_for_new_volume(
        &mut self,
        volser: &Volser,
        agent: &Agent,
        group: &Name,
        algorithm: Algorithm,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let key = self.change(|contents, keys| {
            let new = contents.realm().key_to_begin(agent, group, algorithm)?;
            draw(contents, keys, volser, KeyUse::Begin, &new, now_ns)
        })?;
        self.prove_drawn(key, volser, now_ns)
    }

    /// Proves that a key that was drawn is stored, and only then lets it be used.
    fn prove_drawn(&mut self, key: VolumeKey, volser: &Volser, now_ns: i64) -> Result<VolumeKey, KeyError> {
        self.prove_stored(&[key.tag()])?;
        let path = self.database.path().to_owned();
        self.change(|contents, _| {
            let place = find(&path, contents, &key.tag(), Some(volser))?;
            advance(&mut contents.rows[place].key, KeyEvent::Stored, now_ns)
        })?;
        Ok(key)
    }

    /// Reports that the first block encrypted with a key stands on its volume, flushed. From here on that key fills the
    /// volume; the volume's older keys only read. Gives the tags of those that this has retired.
    pub fn activate(&mut self, volser: &Volser, tag: &KeyTag, now_ns: i64) -> Result<Vec<KeyTag>, KeyError> {
        let path = self.database.path().to_owned();
        self.change(|contents, _| {
            let place = find(&path, contents, tag, Some(volser))?;
            check_owner(&contents.rows[place].key.record, volser)?;
            activate(contents, place, now_ns)
        })
    }

    /// Reports that a volume was erased, or begun anew without encryption: its keys encrypt no more, and it holds nothing of them.
    pub fn ended(&mut self, volser: &Volser, now_ns: i64) -> Result<(), KeyError> {
        self.change(|contents, _| {
            change_issues(contents, volser, |key| key.dropped_ns = key.dropped_ns.or(Some(now_ns)));
            let of_volume = contents.rows.iter_mut().filter(|row| row.key.record.volser == *volser);
            of_volume.map(|row| &mut row.key).try_for_each(|key| advance(key, KeyEvent::Superseded, now_ns))
        })
    }

    /// The key to append to a volume with, whose first block names the key `first`: that one, or the one that was put in force
    /// for it since, while its encryption period lasts; else a new one of the same group, and the older ones read only from
    /// here on. That it is in force is on record before its first block: no block lies under a key that seems to be unused.
    ///
    /// A first key that is still `ready` is activated by this: the volume proves that it was begun with it, and that only the
    /// report was lost. Errors: [`KeyError::Refused`], [`KeyError::KeyOfOtherVolume`], and those of
    /// [`SealedStore::key_for_reading`].
    pub fn key_for_append(
        &mut self,
        volser: &Volser,
        first: &KeyTag,
        agent: &Agent,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let path = self.database.path().to_owned();
        let found = self.change(|contents, keys| {
            let place = find(&path, contents, first, Some(volser))?;
            check_owner(&contents.rows[place].key.record, volser)?;
            still_carried(contents, volser, first);
            if contents.rows[place].key.record.state == KeyState::Ready {
                activate(contents, place, now_ns)?;
            }
            let tag = in_force(contents, volser, first);
            let stored = contents.rows[find(&path, contents, &tag, Some(volser))?].key.clone();
            if let Some(destroyed_ns) = stored.record.destroyed_ns {
                return Err(KeyError::KeyDestroyed { tag, volser: volser.clone(), destroyed_ns });
            }
            match contents.realm().key_to_append(agent, &stored.record, now_ns)? {
                AppendKey::Same => Ok(Found::Stored(stored)),
                AppendKey::New(new) => {
                    let issued_for = KeyUse::Append { first: *first };
                    draw(contents, keys, volser, issued_for, &new, now_ns).map(Found::Drawn)
                }
            }
        })?;
        match found {
            Found::Stored(stored) => {
                let keys = self.root.store_keys(&self.store_id)?;
                self.unwrap_key(&stored, &keys)
            }
            Found::Drawn(key) => {
                let key = self.prove_drawn(key, volser, now_ns)?;
                self.activate(volser, &key.tag(), now_ns)?;
                Ok(key)
            }
        }
    }

    /// The key to read a volume with, whose tag the volume carries. `volser` is that volume, for the error.
    ///
    /// Errors: [`KeyError::Refused`], [`KeyError::KeyMissing`], [`KeyError::KeyDestroyed`], [`KeyError::Tampered`].
    pub fn key_for_reading(
        &self,
        volser: &Volser,
        tag: &KeyTag,
        agent: &Agent,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        let (contents, keys) = self.read()?;
        let stored = &contents.rows[find(self.database.path(), &contents, tag, Some(volser))?].key;
        let key = self.unwrap_key(stored, &keys)?;
        contents.realm().check_reading(agent, &stored.record, now_ns)?;
        Ok(key)
    }

    /// Notes that somebody else may know a key: it encrypts no more, and reads what is to be moved under another. Gives its record.
    ///
    /// Errors: [`KeyError::KeyDestroyed`], which nobody can know any more.
    pub fn compromise(&mut self, tag: &KeyTag, now_ns: i64) -> Result<KeyRecord, KeyError> {
        let path = self.database.path().to_owned();
        self.change(|contents, _| {
            let place = find(&path, contents, tag, None)?;
            let stored = &mut contents.rows[place].key;
            advance(stored, KeyEvent::Compromised, now_ns)?;
            Ok(stored.record.clone())
        })
    }

    /// Destroys a key: its wrapped bytes are overwritten and cleared out of the file, its record stays. The data that was
    /// encrypted with it is gone for good, unless an export or a copy of the store elsewhere still holds the key.
    ///
    /// Errors: [`KeyError::NotCleared`] if the key is destroyed and the file could not be rewritten; repeat it then.
    pub fn destroy(&mut self, tag: &KeyTag, now_ns: i64) -> Result<Destruction, KeyError> {
        let path = self.database.path().to_owned();
        let destruction = self.change(|contents, _| {
            let place = find(&path, contents, tag, None)?;
            let stored = &mut contents.rows[place].key;
            if stored.record.state == KeyState::Destroyed {
                return Ok(Destruction::AlreadyDestroyed(stored.record.clone()));
            }
            advance(stored, KeyEvent::Destroyed, now_ns)?;
            Ok(Destruction::Destroyed(stored.record.clone()))
        })?;
        self.clear_old_bytes(|| format!("key {tag} is destroyed"))?;
        Ok(destruction)
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

/// What an append gets.
enum Found {
    Stored(StoredKey),
    Drawn(VolumeKey),
}

/// Draws a key and notes what for, to be stored.
fn draw(
    contents: &mut Contents,
    keys: &StoreKeys,
    volser: &Volser,
    issued_for: KeyUse,
    new: &NewKey,
    now_ns: i64,
) -> Result<VolumeKey, KeyError> {
    let key = VolumeKey::random(new.algorithm)?;
    let record = KeyRecord {
        tag: key.tag(),
        volser: volser.clone(),
        algorithm: new.algorithm,
        state: KeyState::Generated,
        created_ns: now_ns,
        activated_ns: None,
        retired_ns: None,
        destroyed_ns: None,
        imported_ns: None,
    };
    let wrapped = Some(wrap(&keys.wrapping, key.expose())?);
    contents.push(StoredKey { record, wrapped });
    let unit = contents.realm().unit(volser).cloned();
    let unit = unit.unwrap_or_else(|| DataUnit::first_seen(volser.clone(), now_ns));
    contents.put(RealmRecord::unit(DataUnit { last_seen_ns: now_ns, ..unit }));
    let issued =
        IssuedKey { tag: key.tag(), group: new.group.clone(), issued_for, issued_ns: now_ns, dropped_ns: None };
    contents.put(RealmRecord::Issue { volser: volser.clone(), key: issued });
    Ok(key)
}

/// The key that a volume is appended to with: `first`, or the last one that was drawn for this life of it and is in force.
fn in_force(contents: &Contents, volser: &Volser, first: &KeyTag) -> KeyTag {
    let realm = contents.realm();
    let is_in_force = |tag: &KeyTag| {
        let mut records = contents.rows.iter().map(|row| &row.key.record);
        records.any(|key| key.tag == *tag && key.state == KeyState::ProtectAndProcess)
    };
    let of_life = realm.unit(volser).into_iter().flat_map(|unit| &unit.keys).filter(|key| key.is_of_life(first));
    of_life.rev().find(|key| is_in_force(&key.tag)).map_or(*first, |key| key.tag)
}

/// A volume carries a key as its first: then it was not begun anew, whatever was reported.
fn still_carried(contents: &mut Contents, volser: &Volser, first: &KeyTag) {
    change_issues(contents, volser, |key| {
        if key.is_of_life(first) {
            key.dropped_ns = None;
        }
    });
}

/// A volume was begun with a key: it holds nothing of the others any more.
fn begun(contents: &mut Contents, volser: &Volser, first: &KeyTag, now_ns: i64) {
    change_issues(contents, volser, |key| {
        if !key.is_of_life(first) {
            key.dropped_ns = key.dropped_ns.or(Some(now_ns));
        }
    });
}

fn change_issues(contents: &mut Contents, volser: &Volser, change: impl Fn(&mut IssuedKey)) {
    let keys = contents.realm().unit(volser).map(|unit| unit.keys.clone()).unwrap_or_default();
    for mut key in keys {
        change(&mut key);
        contents.put(RealmRecord::Issue { volser: volser.clone(), key });
    }
}

fn check_owner(record: &KeyRecord, volser: &Volser) -> Result<(), KeyError> {
    if record.volser == *volser {
        return Ok(());
    }
    Err(KeyError::KeyOfOtherVolume { tag: record.tag, volser: volser.clone(), owner: record.volser.clone() })
}

/// Activates the key at a place and supersedes the one that its volume was filled with.
fn activate(contents: &mut Contents, place: usize, now_ns: i64) -> Result<Vec<KeyTag>, KeyError> {
    advance(&mut contents.rows[place].key, KeyEvent::Activated, now_ns)?;
    let KeyRecord { tag, volser, .. } = contents.rows[place].key.record.clone();
    if contents.realm().issued(&contents.rows[place].key.record).issued_for == KeyUse::Begin {
        begun(contents, &volser, &tag, now_ns);
    }
    let mut retired = Vec::new();
    for row in &mut contents.rows {
        if row.key.record.tag != tag && row.key.record.volser == volser {
            let before = row.key.record.state;
            advance(&mut row.key, KeyEvent::Superseded, now_ns)?;
            if row.key.record.state != before {
                retired.push(row.key.record.tag);
            }
        }
    }
    Ok(retired)
}

/// Takes a key through one event of its life, with the time of it.
pub(super) fn advance(stored: &mut StoredKey, event: KeyEvent, now_ns: i64) -> Result<(), KeyError> {
    let record = &mut stored.record;
    let next = record.state.after(event).map_err(|forbidden| match (forbidden.state, record.destroyed_ns) {
        (KeyState::Destroyed, Some(destroyed_ns)) => {
            KeyError::KeyDestroyed { tag: record.tag, volser: record.volser.clone(), destroyed_ns }
        }
        (state, _) => KeyError::KeyRetired { tag: record.tag, volser: record.volser.clone(), state },
    })?;
    if next == record.state {
        return Ok(());
    }
    record.state = next;
    match next {
        KeyState::Generated | KeyState::Ready => {}
        KeyState::ProtectAndProcess => record.activated_ns = Some(now_ns),
        KeyState::ProcessOnly | KeyState::Deactivated | KeyState::Compromised => {
            record.retired_ns.get_or_insert(now_ns);
        }
        KeyState::Destroyed => {
            record.retired_ns.get_or_insert(now_ns);
            record.destroyed_ns = Some(now_ns);
            stored.wrapped = None;
        }
    }
    Ok(())
}
