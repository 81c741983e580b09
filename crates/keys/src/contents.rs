//! All that a store holds, checked and sealed as one.
//!
//! ```text
//! MAC of a key's record   = HMAC-SHA-256(row key, number of the record (8 bytes) | record, as in `record.rs`)
//! MAC of a realm's record = HMAC-SHA-256(realm key, number of the record (8) | kind (1) | record, as in `realm/record.rs`)
//! MAC of the set          = HMAC-SHA-256(set key, counter (8) | SHA-256 of the header (32) |
//!                                        number of keys (8) | MACs of their records in the order of their numbers (32 each) |
//!                                        the same of the realm, if it has records)
//! ```
//! Records are numbered from 1 without a gap and are never deleted; the counter grows with every change. So a record
//! that was altered or exchanged fails its own MAC, one that is missing leaves a gap, and one that was put back to an
//! earlier state, whose own MAC is good, fails the MAC of the set. The set is small (a record for each life of each
//! volume) and is read whole in every operation: nothing in it is believed that was not just checked.

use std::path::Path;

use aws_lc_rs::{constant_time, digest, hmac};
use capstan_format::{KeyTag, Volser};

use crate::KeyPlace;
use crate::holdings::{Holdings, HoldingsChanges};
use crate::realm::{Realm, RealmRecord};
use crate::record::StoredKey;
use crate::root::StoreKeys;

/// An HMAC-SHA-256.
pub(crate) type Mac = [u8; 32];

/// What a store holds, as read from disk: nothing is known of it before [`Contents::verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) header: Vec<u8>,
    pub(crate) counter: i64,
    pub(crate) mac: Mac,
    pub(crate) rows: Vec<Row>,
    pub(crate) realm: Vec<RealmRow>,
}

/// One record of the realm and its MAC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RealmRow {
    pub(crate) serial: i64,
    pub(crate) record: RealmRecord,
    pub(crate) mac: Mac,
}

/// One record and its MAC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) serial: i64,
    pub(crate) key: StoredKey,
    pub(crate) mac: Mac,
}

/// Whether sealing found anything to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sealed {
    /// Nothing differs from what was read.
    Unchanged,
    /// The rows at these places differ, or the header does.
    Changed(ChangedRows),
}

/// The places of what differs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedRows {
    pub(crate) rows: Vec<usize>,
    pub(crate) realm: Vec<usize>,
}

impl Contents {
    /// A store without keys, sealed.
    pub(crate) fn empty(header: Vec<u8>, keys: &StoreKeys) -> Self {
        let mut contents = Self { header, counter: 1, mac: [0; 32], rows: Vec::new(), realm: Vec::new() };
        contents.mac = contents.set_mac(keys);
        contents
    }

    /// Checks everything; says what was altered, and how that shows.
    pub(crate) fn verify(&self, keys: &StoreKeys) -> Result<(), String> {
        for (row, expected) in self.rows.iter().zip(1..) {
            if row.serial != expected {
                return Err(format!("record {expected} was removed, or has another number now"));
            }
            let name =
                || format!("record {} (key {} of volume {})", row.serial, row.key.record.tag, row.key.record.volser);
            if !is_equal(&row.mac, &row.mac_now(keys)) {
                return Err(format!("{} was changed or exchanged; its seal does not match", name()));
            }
            if let Some(contradiction) = row.key.contradiction() {
                return Err(format!("{} says {contradiction}", name()));
            }
        }
        for (row, expected) in self.realm.iter().zip(1..) {
            let name = || format!("{} {}", row.record.kind().name(), row.record.name());
            if row.serial != expected {
                return Err(format!("a record before that of {} was removed, or has another number now", name()));
            }
            if !is_equal(&row.mac, &row.mac_now(keys)) {
                return Err(format!("the record of {} was changed or exchanged; its seal does not match", name()));
            }
        }
        if !is_equal(&self.mac, &self.set_mac(keys)) {
            let count = self.rows.len() + self.realm.len();
            return Err(format!(
                "the seal over the header and all {count} records does not match: the last record was removed, or one of \
                 them or the header was put back to an earlier state"
            ));
        }
        Ok(())
    }

    /// Adds a record, to be sealed.
    pub(crate) fn push(&mut self, key: StoredKey) {
        // At most as many as fit in memory; `verify` has seen that they are numbered from 1 without a gap.
        let serial = self.rows.len() as i64 + 1;
        self.rows.push(Row { serial, key, mac: [0; 32] });
    }

    /// What the rules look at beside the keys.
    pub(crate) fn realm(&self) -> Realm {
        let mut realm = Realm::default();
        self.realm.iter().for_each(|row| realm.put(row.record.clone()));
        realm
    }

    /// Takes a record into the realm, in the place of the one that has its name; to be sealed.
    pub(crate) fn put(&mut self, record: RealmRecord) {
        match self.realm.iter_mut().find(|row| row.record.is_same(&record)) {
            Some(row) => row.record = record,
            None => self.realm.push(RealmRow { serial: self.realm.len() as i64 + 1, record, mac: [0; 32] }),
        }
    }

    /// What an operation on a volume and a key looks at: the whole realm, the keys of the volume, and the one named.
    pub(crate) fn holdings(&self, path: &Path, volser: Option<&Volser>, tag: Option<&KeyTag>) -> Holdings {
        let concerned = |key: &StoredKey| Some(&key.record.volser) == volser || Some(&key.record.tag) == tag;
        let keys = self.rows.iter().map(|row| &row.key).filter(|key| concerned(key)).cloned().collect();
        Holdings::new(KeyPlace::Store(path.to_owned()), self.realm(), keys)
    }

    /// Takes in what an operation decided, to be sealed.
    pub(crate) fn apply(&mut self, changes: HoldingsChanges) {
        for key in changes.keys {
            match self.rows.iter_mut().find(|row| row.key.record.tag == key.record.tag) {
                Some(row) => row.key = key,
                None => self.push(key),
            }
        }
        changes.realm.into_iter().for_each(|record| self.put(record));
    }

    /// Computes the MACs of what was changed since `self` was read as `before`.
    pub(crate) fn seal(&mut self, before: &Self, keys: &StoreKeys) -> Sealed {
        let mut changed = ChangedRows::default();
        for (place, row) in self.rows.iter_mut().enumerate() {
            if before.rows.get(place).is_none_or(|before| before.key != row.key) {
                row.mac = row.mac_now(keys);
                changed.rows.push(place);
            }
        }
        for (place, row) in self.realm.iter_mut().enumerate() {
            if before.realm.get(place).is_none_or(|before| before.record != row.record) {
                row.mac = row.mac_now(keys);
                changed.realm.push(place);
            }
        }
        if changed == ChangedRows::default() && self.header == before.header {
            return Sealed::Unchanged;
        }
        self.counter += 1;
        self.mac = self.set_mac(keys);
        Sealed::Changed(changed)
    }

    fn set_mac(&self, keys: &StoreKeys) -> Mac {
        let mut context = hmac::Context::with_key(&keys.set);
        context.update(&self.counter.to_le_bytes());
        context.update(digest::digest(&digest::SHA256, &self.header).as_ref());
        context.update(&(self.rows.len() as u64).to_le_bytes());
        self.rows.iter().for_each(|row| context.update(&row.mac));
        // A store from before there were policies has none, and its seal stays what it was.
        if !self.realm.is_empty() {
            context.update(&(self.realm.len() as u64).to_le_bytes());
            self.realm.iter().for_each(|row| context.update(&row.mac));
        }
        mac(&context.sign())
    }
}

impl Row {
    fn mac_now(&self, keys: &StoreKeys) -> Mac {
        let mut bytes = self.serial.to_le_bytes().to_vec();
        self.key.encode(&mut bytes);
        mac(&hmac::sign(&keys.row, &bytes))
    }
}

impl RealmRow {
    fn mac_now(&self, keys: &StoreKeys) -> Mac {
        let mut bytes = self.serial.to_le_bytes().to_vec();
        bytes.push(self.record.kind().code());
        bytes.extend_from_slice(&self.record.encode());
        mac(&hmac::sign(&keys.realm, &bytes))
    }
}

fn mac(tag: &hmac::Tag) -> Mac {
    let mut mac = [0; 32];
    mac.copy_from_slice(tag.as_ref());
    mac
}

fn is_equal(one: &Mac, other: &Mac) -> bool {
    constant_time::verify_slices_are_equal(one, other).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::{Algorithm, KeyTag, Volser};

    use super::*;
    use crate::root::RootKey;
    use crate::{KeyRecord, KeyState};

    fn stored(number: u8) -> StoredKey {
        let record = KeyRecord {
            tag: KeyTag([number; 16]),
            volser: Volser::new("A00001").unwrap(),
            algorithm: Algorithm::Aes256Gcm,
            state: KeyState::Ready,
            created_ns: 1,
            activated_ns: None,
            retired_ns: None,
            destroyed_ns: None,
            imported_ns: None,
        };
        StoredKey { record, wrapped: Some([number; 40]) }
    }

    fn sealed() -> (StoreKeys, Contents) {
        let keys = RootKey::random().unwrap().store_keys(&[0; 16]).unwrap();
        let mut contents = Contents::empty(b"header".to_vec(), &keys);
        let before = contents.clone();
        (1..=3).for_each(|number| contents.push(stored(number)));
        assert_eq!(contents.seal(&before, &keys), Sealed::Changed(ChangedRows { rows: vec![0, 1, 2], realm: vec![] }));
        contents.verify(&keys).unwrap();
        (keys, contents)
    }

    #[track_caller]
    fn complaint(keys: &StoreKeys, contents: &Contents) -> String {
        contents.verify(keys).unwrap_err()
    }

    #[test]
    fn every_field_of_a_record_is_bound() {
        let (keys, good) = sealed();
        let changes: [fn(&mut StoredKey); 9] = [
            |key| key.record.tag.0[0] ^= 1,
            |key| key.record.volser = Volser::new("A00002").unwrap(),
            |key| key.record.algorithm = Algorithm::Aes256Ccm,
            |key| key.record.state = KeyState::ProtectAndProcess,
            |key| key.record.created_ns = 2,
            |key| key.record.activated_ns = Some(1),
            |key| key.record.retired_ns = Some(1),
            |key| key.record.imported_ns = Some(1),
            |key| key.wrapped = Some([9; 40]),
        ];
        for change in changes {
            let mut altered = good.clone();
            change(&mut altered.rows[1].key);
            assert!(complaint(&keys, &altered).starts_with("record 2 (key "));
        }
    }

    #[test]
    fn removed_exchanged_and_rolled_back_records_are_seen() {
        let (keys, good) = sealed();

        let mut removed = good.clone();
        removed.rows.remove(1);
        assert!(complaint(&keys, &removed).starts_with("record 2 was removed"));

        let mut last_removed = good.clone();
        last_removed.rows.pop();
        assert!(complaint(&keys, &last_removed).contains("the last record was removed"));

        let mut exchanged = good.clone();
        let first = exchanged.rows[0].key.clone();
        exchanged.rows[0].key = std::mem::replace(&mut exchanged.rows[1].key, first);
        assert!(complaint(&keys, &exchanged).starts_with("record 1 (key "));

        let mut wrapped_exchanged = good.clone();
        wrapped_exchanged.rows[2].key.wrapped = good.rows[0].key.wrapped;
        assert!(complaint(&keys, &wrapped_exchanged).starts_with("record 3 (key "));

        let mut later = good.clone();
        later.rows[1].key.record.state = KeyState::ProtectAndProcess;
        assert_eq!(later.seal(&good, &keys), Sealed::Changed(ChangedRows { rows: vec![1], realm: vec![] }));
        later.verify(&keys).unwrap();
        later.rows[1] = good.rows[1].clone();
        assert!(complaint(&keys, &later).contains("put back to an earlier state"));
    }

    #[test]
    fn header_and_counter_are_bound() {
        let (keys, good) = sealed();
        let mut altered = good.clone();
        altered.header[0] ^= 1;
        assert!(altered.verify(&keys).is_err());
        let mut altered = good.clone();
        altered.counter -= 1;
        assert!(altered.verify(&keys).is_err());
        let other = RootKey::random().unwrap().store_keys(&[0; 16]).unwrap();
        assert!(good.verify(&other).is_err());
    }

    #[test]
    fn nothing_changed_is_nothing_to_write() {
        let (keys, good) = sealed();
        let mut same = good.clone();
        assert_eq!(same.seal(&good, &keys), Sealed::Unchanged);
        assert_eq!(same, good);
    }
}
