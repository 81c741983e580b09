//! Data units: cartridges, with every key that was ever issued for them.

use capstan_format::{KeyTag, Volser};

use super::Name;

/// What a key was issued for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// To write the volume from the beginning of tape: what was there before is gone with the keys it had.
    Begin,
    /// To append: the volume's older keys still read what stands before.
    Append,
}

/// A key of a data unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedKey {
    /// The key.
    pub tag: KeyTag,
    /// Its group.
    pub group: Name,
    /// What it was issued for.
    pub issued_for: KeyUse,
    /// When it was issued first: its policy's periods run from here.
    pub issued_ns: i64,
    /// When the volume was begun anew with another, if it was: the volume holds nothing of this one any more.
    pub dropped_ns: Option<i64>,
}

/// A cartridge: which keys were used on it, and what was said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataUnit {
    /// Its barcode.
    pub volser: Volser,
    /// When a key was first asked for it.
    pub first_seen_ns: i64,
    /// When one was issued for it last.
    pub last_seen_ns: i64,
    /// Its keys are given out for reading until then, though their cryptoperiod be over.
    pub read_until_ns: Option<i64>,
    /// Every key ever issued for it, in order.
    pub keys: Vec<IssuedKey>,
}

impl DataUnit {
    pub(crate) fn first_seen(volser: Volser, now_ns: i64) -> Self {
        Self { volser, first_seen_ns: now_ns, last_seen_ns: now_ns, read_until_ns: None, keys: Vec::new() }
    }

    /// What is known of one of its keys.
    pub fn key(&self, tag: &KeyTag) -> Option<&IssuedKey> {
        self.keys.iter().find(|key| key.tag == *tag)
    }

    /// A key is in force: if the volume was begun with it, the others have nothing on the volume any more.
    pub(crate) fn activated(&mut self, tag: &KeyTag, now_ns: i64) {
        if self.key(tag).is_none_or(|key| key.issued_for == KeyUse::Append) {
            return;
        }
        for key in self.keys.iter_mut().take_while(|key| key.tag != *tag) {
            key.dropped_ns.get_or_insert(now_ns);
        }
    }
}
