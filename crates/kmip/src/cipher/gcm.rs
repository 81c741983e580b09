//! GCM (NIST SP 800-38D) with nonces of any length, tags of 4 and 8 and 12 to 16 bytes, and data in parts.
//!
//! The cryptographic library has GCM with 12-byte nonces and in one piece alone, and the profile's cases ask for more.
//! The blocks are its AES, and the hash is the crate `ghash`, which takes the same time for every key and all data. A
//! test compares with the library's own GCM.

use aws_lc_rs::constant_time;
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use zeroize::{Zeroize, Zeroizing};

use super::aes::{Aes, BLOCK_LEN};
use crate::refusal::Refused;

/// Lengths of a tag that GCM allows.
pub(crate) const TAG_LENS: [usize; 7] = [4, 8, 12, 13, 14, 15, 16];

/// Bytes of [`Gcm::save`].
pub(crate) const SAVED_LEN: usize = 4 * BLOCK_LEN;

/// An encryption or decryption that is under way.
pub(crate) struct Gcm<'a> {
    aes: Aes<'a>,
    /// The hash key.
    h: [u8; BLOCK_LEN],
    /// The counter block that hides the tag.
    first: u128,
    /// The counter block of the data to come.
    counter: u128,
    hash: u128,
    additional_len: u64,
    data_len: u64,
}

impl Drop for Gcm<'_> {
    fn drop(&mut self) {
        self.h.zeroize();
        self.hash.zeroize();
    }
}

impl<'a> Gcm<'a> {
    /// Begins with a nonce, which is not empty, and the additional data.
    pub(crate) fn new(aes: Aes<'a>, nonce: &[u8], additional: &[u8]) -> Result<Self, Refused> {
        let h = hash_key(&aes)?;
        let first = match <[u8; 12]>::try_from(nonce) {
            Ok(nonce) => {
                let mut block = [0; BLOCK_LEN];
                block[..12].copy_from_slice(&nonce);
                block[15] = 1;
                u128::from_be_bytes(block)
            }
            Err(_) => absorb(&h, absorb(&h, 0, nonce), &(u128::from(nonce.len() as u64) << 3).to_be_bytes()),
        };
        let hash = absorb(&h, 0, additional);
        let additional_len = additional.len() as u64;
        Ok(Self { aes, h, first, counter: next(first), hash, additional_len, data_len: 0 })
    }

    /// What [`Gcm::restore`] goes on from; as secret as the key.
    pub(crate) fn save(&self) -> Zeroizing<[u8; SAVED_LEN]> {
        let mut saved = Zeroizing::new([0; SAVED_LEN]);
        let lens = (u128::from(self.additional_len) << 64) | u128::from(self.data_len);
        for (block, value) in saved.chunks_exact_mut(BLOCK_LEN).zip([self.first, self.counter, self.hash, lens]) {
            block.copy_from_slice(&value.to_be_bytes());
        }
        saved
    }

    pub(crate) fn restore(aes: Aes<'a>, saved: &[u8; SAVED_LEN]) -> Result<Self, Refused> {
        let mut blocks = saved.chunks_exact(BLOCK_LEN).map(block);
        let mut block = || blocks.next().unwrap_or(0);
        let (first, counter, hash, lens) = (block(), block(), block(), block());
        let h = hash_key(&aes)?;
        Ok(Self { aes, h, first, counter, hash, additional_len: (lens >> 64) as u64, data_len: lens as u64 })
    }

    /// Encrypts a part. Every part but the last has whole blocks.
    pub(crate) fn encrypt(&mut self, data: &mut [u8]) -> Result<(), Refused> {
        self.crypt(data)?;
        self.hash = absorb(&self.h, self.hash, data);
        self.data_len += data.len() as u64;
        Ok(())
    }

    /// Decrypts the whole, if the tag is right; else `data` stay as they were.
    pub(crate) fn decrypt(mut self, data: &mut [u8], tag: &[u8]) -> Result<(), Refused> {
        self.hash = absorb(&self.h, self.hash, data);
        self.data_len += data.len() as u64;
        let right = self.tag()?;
        let right = right.get(..tag.len()).filter(|right| TAG_LENS.contains(&right.len()));
        let same = right.is_some_and(|right| constant_time::verify_slices_are_equal(right, tag).is_ok());
        if !same {
            let reason = crate::enumeration::ResultReason::CryptographicFailure;
            return Err(Refused::new(reason, "the Authenticated Encryption Tag is not that of these data"));
        }
        self.crypt(data)
    }

    /// The tag of everything so far.
    pub(crate) fn tag(&self) -> Result<[u8; BLOCK_LEN], Refused> {
        // Lengths in bits; messages are far too small for the shift to lose any.
        let lens = (u128::from(self.additional_len << 3) << 64) | u128::from(self.data_len << 3);
        let mut mask = self.first.to_be_bytes();
        self.aes.ecb_encrypt(&mut mask)?;
        Ok((absorb(&self.h, self.hash, &lens.to_be_bytes()) ^ u128::from_be_bytes(mask)).to_be_bytes())
    }

    fn crypt(&mut self, data: &mut [u8]) -> Result<(), Refused> {
        let mut stream = Zeroizing::new(Vec::with_capacity(data.len().next_multiple_of(BLOCK_LEN)));
        for _ in data.chunks(BLOCK_LEN) {
            stream.extend_from_slice(&self.counter.to_be_bytes());
            self.counter = next(self.counter);
        }
        self.aes.ecb_encrypt(&mut stream)?;
        data.iter_mut().zip(stream.iter()).for_each(|(byte, stream)| *byte ^= stream);
        Ok(())
    }
}

fn hash_key(aes: &Aes<'_>) -> Result<[u8; BLOCK_LEN], Refused> {
    let mut h = [0; BLOCK_LEN];
    aes.ecb_encrypt(&mut h)?;
    Ok(h)
}

/// The next counter block: its last four bytes count, and turn over by themselves.
fn next(counter: u128) -> u128 {
    const LOW: u128 = 0xffff_ffff;
    (counter & !LOW) | u128::from((counter as u32).wrapping_add(1))
}

fn block(bytes: &[u8]) -> u128 {
    let mut block = [0; BLOCK_LEN];
    block[..bytes.len()].copy_from_slice(bytes);
    u128::from_be_bytes(block)
}

/// The hash of what was hashed to `hash` so far, and these data behind it, the last block filled up with zeros.
fn absorb(h: &[u8; BLOCK_LEN], hash: u128, data: &[u8]) -> u128 {
    let Some((first, rest)) = data.split_at_checked(BLOCK_LEN.min(data.len())).filter(|(first, _)| !first.is_empty())
    else {
        return hash;
    };
    let mut hasher = GHash::new(&(*h).into());
    // A hash goes on from another one where that is added to the next block.
    hasher.update(&[(hash ^ block(first)).to_be_bytes().into()]);
    hasher.update_padded(rest);
    u128::from_be_bytes(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use aws_lc_rs::aead;
    use proptest::prelude::*;

    use super::{Aes, BLOCK_LEN, Gcm, next};

    proptest! {
        /// The library's GCM is the oracle where it can be asked.
        #[test]
        fn as_the_library_has_it(
            key in any::<[u8; 32]>(),
            nonce in any::<[u8; 12]>(),
            additional in proptest::collection::vec(any::<u8>(), 0..50),
            data in proptest::collection::vec(any::<u8>(), 0..100),
            split in 0..6usize,
        ) {
            let library = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_256_GCM, &key).unwrap());
            let mut theirs = data.clone();
            let nonce_of = aead::Nonce::assume_unique_for_key(nonce);
            library.seal_in_place_append_tag(nonce_of, aead::Aad::from(&additional), &mut theirs).unwrap();

            let mut ours = data.clone();
            let (one, two) = ours.split_at_mut((split * BLOCK_LEN).min(data.len()));
            let mut gcm = Gcm::new(Aes::new(&key).unwrap(), &nonce, &additional).unwrap();
            gcm.encrypt(one).unwrap();
            let mut gcm = Gcm::restore(Aes::new(&key).unwrap(), &gcm.save()).unwrap();
            gcm.encrypt(two).unwrap();
            let tag = gcm.tag().unwrap();
            ours.extend_from_slice(&tag);
            prop_assert_eq!(&ours, &theirs);

            ours.truncate(data.len());
            let whole = || Gcm::new(Aes::new(&key).unwrap(), &nonce, &additional).unwrap();
            let mut bent = tag;
            bent[split] ^= 1;
            prop_assert!(whole().decrypt(&mut ours, &bent).is_err());
            prop_assert!(whole().decrypt(&mut ours, &tag[..11]).is_err());
            whole().decrypt(&mut ours, &tag).unwrap();
            prop_assert_eq!(ours, data);
        }
    }

    #[test]
    fn the_counter_turns_over_in_its_last_four_bytes() {
        assert_eq!(next(0x1234_ffff_ffff), 0x1234_0000_0000);
        assert_eq!(next(0x1234_0000_0009), 0x1234_0000_000a);
    }
}
