//! Data units: cartridges, with every key that was ever issued for them.

use capstan_format::{KeyTag, Volser};

use super::{Name, SeenCartridges};

/// What a key was issued for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// To write the volume from the beginning of tape: what was there before is gone with the keys it had.
    Begin,
    /// To append to the volume as long as its first block names this key; the older keys still read what stands before.
    Append {
        /// The key of the first block.
        first: KeyTag,
    },
    /// Another store issued it, and does not say what for.
    Elsewhere,
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
    /// When the volume was begun anew without it, if it was: the volume holds nothing of this one any more.
    pub dropped_ns: Option<i64>,
}

impl IssuedKey {
    /// Whether the blocks of a volume whose first one names `first` may name it.
    pub fn is_of_life(&self, first: &KeyTag) -> bool {
        self.tag == *first || matches!(self.issued_for, KeyUse::Append { first: of } if of == *first)
    }
}

/// A cartridge: which keys were used on it, and what was said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataUnit {
    /// Its barcode.
    pub volser: Volser,
    /// When a key was first issued for it.
    pub first_seen_ns: i64,
    /// When one was issued for it last.
    pub last_seen_ns: i64,
    /// Its keys are given out for reading until then, though their cryptoperiod be over.
    pub read_until_ns: Option<i64>,
    /// The cartridges that its barcode was seen on, where their serial numbers were told.
    pub cartridges: SeenCartridges,
    /// Every key ever issued for it, in order.
    pub keys: Vec<IssuedKey>,
}

impl DataUnit {
    pub(crate) fn first_seen(volser: Volser, now_ns: i64) -> Self {
        Self {
            volser,
            first_seen_ns: now_ns,
            last_seen_ns: now_ns,
            read_until_ns: None,
            cartridges: SeenCartridges::default(),
            keys: Vec::new(),
        }
    }

    /// Whether blocks of the life whose first one names `first` may name a key. What an imported key was issued for
    /// nobody says: those of a life are drawn after its first one, and those of earlier lives before it.
    pub fn may_be_of_life(&self, tag: &KeyTag, first: &KeyTag) -> bool {
        let Some(key) = self.key(tag) else { return tag == first };
        let is_later = || self.key(first).is_none_or(|first| key.issued_ns > first.issued_ns);
        key.is_of_life(first) || (key.issued_for == KeyUse::Elsewhere && is_later())
    }

    /// What is known of one of its keys.
    pub fn key(&self, tag: &KeyTag) -> Option<&IssuedKey> {
        self.keys.iter().find(|key| key.tag == *tag)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    /// What came back with an import is of the life that was written when it was drawn.
    #[test]
    fn imported_keys_are_of_the_life_that_was_begun_before_them() {
        let mut unit = DataUnit::first_seen(Volser::new("A00001").unwrap(), 1);
        let [older, first, later, appended] = [1, 2, 3, 4].map(|byte| KeyTag([byte; 16]));
        let group: Name = "main".parse().unwrap();
        for (tag, issued_ns) in [(first, 20), (older, 10), (later, 30)] {
            let issued_for = KeyUse::Elsewhere;
            unit.keys.push(IssuedKey { tag, group: group.clone(), issued_for, issued_ns, dropped_ns: None });
        }
        let issued_for = KeyUse::Append { first: older };
        unit.keys.push(IssuedKey { tag: appended, group, issued_for, issued_ns: 40, dropped_ns: None });
        let of_first = [older, first, later, appended].map(|tag| unit.may_be_of_life(&tag, &first));
        assert_eq!(of_first, [false, true, true, false]);
        assert!(unit.may_be_of_life(&appended, &older));
    }
}
