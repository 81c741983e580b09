//! The key slot of an encrypting drive: mount keys, nonces, sealing and opening of blocks.
//!
//! The layout around a block and the derivation of a mount key are those of [`capstan_format::Envelope`]. A mount salt
//! is drawn when a loaded key is first written with, so each load has its own key and counts its nonces from zero.
//! Whoever only reads draws none: the first random bytes of a process cost some twenty milliseconds.

use aes::Aes256;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use capstan_format::{Algorithm, ENVELOPE_LEN, ENVELOPE_PREFIX_LEN, Envelope, KeyTag, MOUNT_SALT_LEN, TAG_LEN};
use ccm::Ccm;
use ccm::aead::array::Array;
use ccm::aead::consts::{U12, U16};
use ccm::aead::inout::InOutBuf;
use ccm::{AeadInOut, KeyInit};
use zeroize::Zeroizing;

use crate::DriveKey;

const MOUNT_KEY_INFO: &[u8] = b"capstan mount key v1";

type Aes256Ccm = Ccm<Aes256, U16, U12>;

/// A key in the slot, ready to seal and to open.
pub(super) struct KeySlot {
    key: DriveKey,
    /// What blocks are written with, once one was.
    sealing: Option<Sealing>,
    /// The mount key that was needed last for reading.
    opening: Option<(Algorithm, [u8; MOUNT_SALT_LEN], MountKey)>,
}

/// A mount's own key, and the count of its nonces.
struct Sealing {
    salt: [u8; MOUNT_SALT_LEN],
    counter: NonceCounter,
    key: MountKey,
}

impl Sealing {
    /// Draws the mount salt.
    fn begin(key: &DriveKey) -> Result<Self, Unspecified> {
        let salt = super::random::draw().map_err(|_| Unspecified)?;
        let key = MountKey::derive(key, key.algorithm, &salt)?;
        Ok(Self { salt, counter: NonceCounter::default(), key })
    }
}

impl KeySlot {
    /// Takes a key.
    pub(super) fn new(key: DriveKey) -> Self {
        Self { key, sealing: None, opening: None }
    }

    pub(super) fn tag(&self) -> KeyTag {
        self.key.tag
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.key.algorithm
    }

    /// Encrypts `block` for `lbn` into `stored`, which becomes envelope, ciphertext and tag.
    pub(super) fn seal(&mut self, lbn: u64, block: &[u8], stored: &mut Vec<u8>) -> Result<(), Unspecified> {
        let Sealing { salt, counter, key } = match &mut self.sealing {
            Some(sealing) => sealing,
            None => self.sealing.insert(Sealing::begin(&self.key)?),
        };
        let envelope = Envelope { algorithm: self.key.algorithm, mount_salt: *salt, counter: counter.take() };
        stored.resize(block.len() + ENVELOPE_LEN, 0);
        let (prefix, sealed) = stored.split_at_mut(ENVELOPE_PREFIX_LEN);
        prefix.copy_from_slice(&envelope.encode());
        let (ciphertext, tag) = sealed.split_at_mut(block.len());
        key.seal(&envelope, lbn, block, ciphertext, tag)
    }

    /// Decrypts a stored block of `lbn` into `block`, which has the length of the ciphertext. On failure `block` is
    /// zeroed.
    pub(super) fn open(
        &mut self,
        algorithm: Algorithm,
        lbn: u64,
        stored: &[u8],
        block: &mut [u8],
    ) -> Result<(), Unspecified> {
        let opened = self.try_open(algorithm, lbn, stored, block);
        if opened.is_err() {
            block.fill(0);
        }
        opened
    }

    fn try_open(&mut self, algorithm: Algorithm, lbn: u64, stored: &[u8], block: &mut [u8]) -> Result<(), Unspecified> {
        let (envelope, sealed) = Envelope::decode(stored).map_err(|_| Unspecified)?;
        if envelope.algorithm != algorithm {
            return Err(Unspecified);
        }
        let known = |(of, salt, _): &(Algorithm, [u8; MOUNT_SALT_LEN], MountKey)| {
            *of == envelope.algorithm && *salt == envelope.mount_salt
        };
        if !self.opening.as_ref().is_some_and(known) {
            let key = MountKey::derive(&self.key, envelope.algorithm, &envelope.mount_salt)?;
            self.opening = Some((envelope.algorithm, envelope.mount_salt, key));
        }
        let (_, _, key) = self.opening.as_ref().ok_or(Unspecified)?;
        let (ciphertext, tag) = sealed.split_at(sealed.len() - TAG_LEN);
        key.open(&envelope, lbn, ciphertext, tag, block)
    }
}

/// Counts the nonces of one mount key.
///
/// A nonce that repeats under one key reveals plaintext, so this can be neither cloned nor set back, and panics rather
/// than wraps. (At a million blocks a second the end is 585,000 years away.)
#[derive(Default)]
struct NonceCounter {
    next: u64,
}

impl NonceCounter {
    fn take(&mut self) -> u64 {
        let counter = self.next;
        self.next = counter.checked_add(1).expect("the nonces of a mount key are used up");
        counter
    }
}

/// The key of one mount.
enum MountKey {
    Gcm(LessSafeKey),
    Ccm(Box<Aes256Ccm>),
}

impl MountKey {
    fn derive(key: &DriveKey, algorithm: Algorithm, salt: &[u8; MOUNT_SALT_LEN]) -> Result<Self, Unspecified> {
        let code = [algorithm.code()];
        let info = [MOUNT_KEY_INFO, &code];
        let mut mount_key = Zeroizing::new([0; 32]);
        let extracted = Salt::new(HKDF_SHA256, salt).extract(&key.key);
        extracted.expand(&info, HKDF_SHA256)?.fill(mount_key.as_mut_slice())?;
        Ok(match algorithm {
            Algorithm::Aes256Gcm => Self::Gcm(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, mount_key.as_slice())?)),
            Algorithm::Aes256Ccm => {
                Self::Ccm(Box::new(Aes256Ccm::new_from_slice(mount_key.as_slice()).map_err(|_| Unspecified)?))
            }
        })
    }

    fn seal(
        &self,
        envelope: &Envelope,
        lbn: u64,
        block: &[u8],
        ciphertext: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unspecified> {
        let (nonce, aad) = (envelope.nonce(), envelope.additional_data(lbn));
        match self {
            Self::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.seal_out_of_place_scatter(nonce, Aad::from(aad), block, ciphertext, &[], tag)
            }
            Self::Ccm(key) => {
                let buffers = InOutBuf::new(block, ciphertext).map_err(|_| Unspecified)?;
                let made = key.encrypt_inout_detached(&Array(nonce), &aad, buffers).map_err(|_| Unspecified)?;
                tag.copy_from_slice(&made);
                Ok(())
            }
        }
    }

    fn open(
        &self,
        envelope: &Envelope,
        lbn: u64,
        ciphertext: &[u8],
        tag: &[u8],
        block: &mut [u8],
    ) -> Result<(), Unspecified> {
        let (nonce, aad) = (envelope.nonce(), envelope.additional_data(lbn));
        match self {
            Self::Gcm(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                key.open_separate_gather(nonce, Aad::from(aad), ciphertext, tag, block)
            }
            Self::Ccm(key) => {
                let tag: [u8; TAG_LEN] = tag.try_into().map_err(|_| Unspecified)?;
                let buffers = InOutBuf::new(ciphertext, block).map_err(|_| Unspecified)?;
                key.decrypt_inout_detached(&Array(nonce), &aad, buffers, &Array(tag)).map_err(|_| Unspecified)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn slot(algorithm: Algorithm) -> KeySlot {
        KeySlot::new(DriveKey { tag: KeyTag([1; 16]), algorithm, key: [7; 32] })
    }

    #[test]
    fn what_is_sealed_opens_only_where_it_was_written() {
        for algorithm in [Algorithm::Aes256Gcm, Algorithm::Aes256Ccm] {
            let mut writer = slot(algorithm);
            let mut reader = slot(algorithm);
            let block: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
            let mut stored = Vec::new();
            writer.seal(5, &block, &mut stored).unwrap();
            assert_eq!(stored.len(), block.len() + ENVELOPE_LEN);
            let mut opened = vec![0; block.len()];
            reader.open(algorithm, 5, &stored, &mut opened).unwrap();
            assert_eq!(opened, block);
            assert!(reader.open(algorithm, 6, &stored, &mut opened).is_err());
            assert_eq!(opened, vec![0; block.len()], "nothing unauthenticated may be seen");
            for at in 0..stored.len() {
                stored[at] ^= 1;
                assert!(reader.open(algorithm, 5, &stored, &mut opened).is_err(), "byte {at}");
                stored[at] ^= 1;
            }
        }
    }

    #[test]
    fn no_two_envelopes_of_a_slot_or_of_two_loads_are_alike() {
        let mut stored = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..2 {
            let mut slot = slot(Algorithm::Aes256Gcm);
            for _ in 0..100 {
                slot.seal(0, b"the same block at the same place", &mut stored).unwrap();
                assert!(seen.insert(stored[..ENVELOPE_PREFIX_LEN].to_vec()));
            }
        }
    }

    #[test]
    #[should_panic(expected = "used up")]
    fn nonces_never_wrap() {
        let mut counter = NonceCounter { next: u64::MAX };
        counter.take();
    }
}
