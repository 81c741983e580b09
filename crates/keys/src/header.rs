//! The header of a store: what must be known before it is unlocked.
//!
//! ```text
//!  0  8  "CAPSKEYS"
//!  8  4  version, 1
//! 12 16  store id, random: the salt of all that is derived from the root key
//! 28  1  number of slots, 1 to 8
//! 29 70  each slot:
//!          0  1  slot number, 1 to 255, ascending
//!          1  1  kind: 1 passphrase (Argon2id), 2 key file (HKDF-SHA-256)
//!          2 12  Argon2id memory in KiB, iterations, lanes; zero for a key file
//!         14 16  salt, random
//!         30 40  the root key, wrapped under the slot's key
//! ..  4  CRC32C of all before
//! ```
//! The checksum has no key, so that a damaged header is told from a wrong passphrase before one is known; against
//! somebody who computes a new checksum, the header is part of the MAC over the whole store.

use capstan_format::{Cursor, FormatError};

use crate::KeyError;
use crate::envelope::{WRAPPED_LEN, WrappedKey};
use crate::fields::{checked, put_checksum};
use crate::root::RootKey;
use crate::secret::random;
use crate::unlock::{Argon2Cost, Derivation, SALT_LEN, SlotKind, Unlock};

const MAGIC: &[u8; 8] = b"CAPSKEYS";
const VERSION: u32 = 1;
const WHAT: &str = "header of the key store";
/// Most slots of a store: a wrong passphrase costs one derivation for each.
pub(crate) const SLOTS_MAX: usize = 8;

/// The decoded header of a store.
///
/// Public for those who feed [`StoreHeader::decode`] with hostile bytes; it holds nothing secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHeader {
    pub(crate) store_id: [u8; 16],
    pub(crate) slots: Vec<Slot>,
}

/// One way to the root key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u8,
    pub(crate) derivation: Derivation,
    pub(crate) salt: [u8; SALT_LEN],
    pub(crate) wrapped: WrappedKey,
}

/// A slot as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRecord {
    /// Its number, which never changes.
    pub number: u8,
    /// What opens it.
    pub kind: SlotKind,
}

impl StoreHeader {
    /// Decodes a header: pure, bounded, and for any bytes at all.
    ///
    /// # Errors
    /// Every field that no writer writes, among them Argon2 parameters above the limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if !bytes.starts_with(MAGIC) {
            return Err(FormatError::Magic { what: WHAT });
        }
        let mut fields = Cursor::new(WHAT, checked(WHAT, bytes)?);
        fields.take(MAGIC.len())?;
        let version = fields.u32()?;
        if version != VERSION {
            return Err(FormatError::Version { what: WHAT, found: version, supported: VERSION });
        }
        let store_id = fields.array()?;
        let count = usize::from(fields.u8()?);
        if !(1..=SLOTS_MAX).contains(&count) {
            return Err(fields.field("number of slots", &count));
        }
        let mut slots: Vec<Slot> = Vec::with_capacity(count);
        for _ in 0..count {
            let slot = Slot::decode(&mut fields)?;
            if slots.last().map_or(0, |last| last.number) >= slot.number {
                return Err(fields.field("slot number", &slot.number));
            }
            slots.push(slot);
        }
        fields.end()?;
        Ok(Self { store_id, slots })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.store_id);
        bytes.push(self.slots.len() as u8);
        self.slots.iter().for_each(|slot| slot.encode(&mut bytes));
        put_checksum(&mut bytes);
        bytes
    }

    /// The lowest slot number that is free, if one is.
    pub(crate) fn free_slot(&self) -> Option<u8> {
        if self.slots.len() >= SLOTS_MAX {
            return None;
        }
        (1..=u8::MAX).find(|number| self.slots.iter().all(|slot| slot.number != *number))
    }

    pub(crate) fn insert(&mut self, slot: Slot) {
        self.slots.push(slot);
        self.slots.sort_by_key(|slot| slot.number);
    }
}

impl Slot {
    /// Wraps `root` for what `unlock` holds.
    pub(crate) fn new(number: u8, root: &RootKey, unlock: &Unlock, cost: Argon2Cost) -> Result<Self, KeyError> {
        let mut salt = [0; SALT_LEN];
        random(&mut salt)?;
        let derivation = unlock.derivation(cost);
        let wrapping = unlock
            .wrapping_key(derivation, &salt)?
            .ok_or_else(|| KeyError::host("deriving a slot's key", "the slot is not of its own secret's kind"))?;
        Ok(Self { number, derivation, salt, wrapped: root.wrap(&wrapping)? })
    }

    fn decode(fields: &mut Cursor<'_>) -> Result<Self, FormatError> {
        let number = fields.u8()?;
        let kind = fields.u8()?;
        let cost = Argon2Cost { memory_kib: fields.u32()?, iterations: fields.u32()?, lanes: fields.u32()? };
        let derivation = match (kind, cost) {
            (1, cost) => match cost.check() {
                Ok(_) => Derivation::Argon2id(cost),
                Err(error) => return Err(fields.field("Argon2 parameters", &error)),
            },
            (2, Argon2Cost { memory_kib: 0, iterations: 0, lanes: 0 }) => Derivation::Hkdf,
            (2, _) => return Err(fields.field("parameters of a key file slot", &"not zero")),
            _ => return Err(fields.field("kind of slot", &kind)),
        };
        let (salt, wrapped) = (fields.array()?, fields.array::<WRAPPED_LEN>()?);
        Ok(Self { number, derivation, salt, wrapped })
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let (kind, cost) = match self.derivation {
            Derivation::Argon2id(cost) => (1, cost),
            Derivation::Hkdf => (2, Argon2Cost { memory_kib: 0, iterations: 0, lanes: 0 }),
        };
        bytes.extend_from_slice(&[self.number, kind]);
        for parameter in [cost.memory_kib, cost.iterations, cost.lanes] {
            bytes.extend_from_slice(&parameter.to_le_bytes());
        }
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(&self.wrapped);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use proptest::prelude::*;

    use super::*;

    fn sample() -> StoreHeader {
        let cost = Argon2Cost { memory_kib: 64, iterations: 2, lanes: 1 };
        let slot = |number, derivation| Slot { number, derivation, salt: [number; 16], wrapped: [number; 40] };
        let slots = vec![slot(1, Derivation::Argon2id(cost)), slot(9, Derivation::Hkdf)];
        StoreHeader { store_id: [3; 16], slots }
    }

    /// The layout above, byte by byte.
    #[test]
    fn layout() {
        let mut expected = b"CAPSKEYS\x01\0\0\0".to_vec();
        expected.extend_from_slice(&[3; 16]);
        expected.extend_from_slice(b"\x02\x01\x01\x40\0\0\0\x02\0\0\0\x01\0\0\0");
        expected.extend_from_slice(&[1; 16 + 40]);
        expected.extend_from_slice(b"\x09\x02\0\0\0\0\0\0\0\0\0\0\0\0");
        expected.extend_from_slice(&[9; 16 + 40]);
        let encoded = sample().encode();
        assert_eq!(encoded[..expected.len()], expected);
        assert_eq!(encoded.len(), expected.len() + 4);
        assert_eq!(StoreHeader::decode(&encoded).unwrap(), sample());
    }

    #[test]
    fn each_altered_byte_and_each_cut_is_seen() {
        let encoded = sample().encode();
        for at in 0..encoded.len() {
            for flip in 1..=255 {
                let mut altered = encoded.clone();
                altered[at] ^= flip;
                assert!(StoreHeader::decode(&altered).is_err(), "byte {at} flipped by {flip}");
            }
            assert!(StoreHeader::decode(&encoded[..at]).is_err(), "cut to {at} bytes");
        }
    }

    fn altered(change: impl FnOnce(&mut Vec<u8>)) -> FormatError {
        let mut bytes = sample().encode();
        bytes.truncate(bytes.len() - 4);
        change(&mut bytes);
        put_checksum(&mut bytes);
        StoreHeader::decode(&bytes).unwrap_err()
    }

    /// Fields that are impossible although the checksum is right.
    #[test]
    fn impossible_fields_are_refused() {
        assert!(matches!(altered(|bytes| bytes[8] = 2), FormatError::Version { found: 2, supported: 1, .. }));
        for (change, field) in [
            ((|bytes| bytes[28] = 0) as fn(&mut Vec<u8>), "number of slots"),
            (|bytes| bytes[28] = 9, "number of slots"),
            (|bytes| bytes[30] = 3, "kind of slot"),
            (|bytes| bytes[34] = 0xff, "Argon2 parameters"),
            (|bytes| bytes[29] = 9, "slot number"),
            (|bytes| bytes[29] = 0, "slot number"),
            (|bytes| bytes[101] = 1, "parameters of a key file slot"),
            (|bytes| bytes.push(0), "bytes behind its end"),
        ] {
            let error = altered(change);
            assert!(matches!(error, FormatError::Field { field: found, .. } if found == field), "{field}: {error}");
        }
        assert!(matches!(altered(|bytes| bytes[28] = 3), FormatError::Truncated { .. }));
    }

    #[test]
    fn free_slots_are_found_until_none_is_left() {
        let mut header = sample();
        for expected in 2..=7 {
            let number = header.free_slot().unwrap();
            assert_eq!(number, expected);
            header.insert(Slot { number, ..header.slots[0] });
        }
        assert_eq!(header.free_slot(), None);
        assert_eq!(StoreHeader::decode(&header.encode()).unwrap(), header);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(body in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut bytes = [&MAGIC[..], &body].concat();
            put_checksum(&mut bytes);
            if let Ok(header) = StoreHeader::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
