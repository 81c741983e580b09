//! AES with keys of all three lengths: ECB, CBC, CTR, and PKCS#5 padding.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::constant_time;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::iv::FixedLength;
use zeroize::Zeroizing;

use crate::enumeration::ResultReason;
use crate::refusal::Refused;

/// Bytes of a block.
pub(crate) const BLOCK_LEN: usize = 16;

/// An AES key of 128, 192 or 256 bits.
pub(crate) struct Aes<'a>(&'a [u8]);

impl<'a> Aes<'a> {
    pub(crate) fn new(key: &'a [u8]) -> Result<Self, Refused> {
        match key.len() {
            16 | 24 | 32 => Ok(Self(key)),
            _ => Err(failure("the key has no length that AES has")),
        }
    }

    fn unbound(&self) -> Result<UnboundCipherKey, Unspecified> {
        let algorithm = match self.0.len() {
            16 => &AES_128,
            24 => &AES_192,
            _ => &AES_256,
        };
        UnboundCipherKey::new(algorithm, self.0)
    }

    /// Encrypts whole blocks, each by itself.
    pub(crate) fn ecb_encrypt(&self, blocks: &mut [u8]) -> Result<(), Refused> {
        whole(blocks)?;
        let encrypt = |blocks| EncryptingKey::ecb(self.unbound()?)?.less_safe_encrypt(blocks, EncryptionContext::None);
        encrypt(blocks).map(|_| ()).map_err(|Unspecified| failure("encryption failed"))
    }

    pub(crate) fn ecb_decrypt(&self, blocks: &mut [u8]) -> Result<(), Refused> {
        whole(blocks)?;
        let decrypt =
            |blocks| DecryptingKey::ecb(self.unbound()?)?.decrypt(blocks, DecryptionContext::None).map(|_| ());
        decrypt(blocks).map_err(|Unspecified| failure("decryption failed"))
    }

    pub(crate) fn cbc_encrypt(&self, iv: [u8; BLOCK_LEN], blocks: &mut [u8]) -> Result<(), Refused> {
        whole(blocks)?;
        let context = EncryptionContext::Iv128(FixedLength::from(iv));
        let encrypt = |blocks| EncryptingKey::cbc(self.unbound()?)?.less_safe_encrypt(blocks, context);
        encrypt(blocks).map(|_| ()).map_err(|Unspecified| failure("encryption failed"))
    }

    pub(crate) fn cbc_decrypt(&self, iv: [u8; BLOCK_LEN], blocks: &mut [u8]) -> Result<(), Refused> {
        whole(blocks)?;
        let context = DecryptionContext::Iv128(FixedLength::from(iv));
        let decrypt = |blocks| DecryptingKey::cbc(self.unbound()?)?.decrypt(blocks, context).map(|_| ());
        decrypt(blocks).map_err(|Unspecified| failure("decryption failed"))
    }

    /// Encrypts or decrypts, which is the same.
    pub(crate) fn ctr(&self, counter: [u8; BLOCK_LEN], bytes: &mut [u8]) -> Result<(), Refused> {
        let context = EncryptionContext::Iv128(FixedLength::from(counter));
        let encrypt = |bytes| EncryptingKey::ctr(self.unbound()?)?.less_safe_encrypt(bytes, context);
        encrypt(bytes).map(|_| ()).map_err(|Unspecified| failure("encryption failed"))
    }
}

fn whole(blocks: &[u8]) -> Result<(), Refused> {
    if blocks.len().is_multiple_of(BLOCK_LEN) {
        Ok(())
    } else {
        Err(failure("the data are no whole number of blocks, and no padding was asked for"))
    }
}

/// `data` with PKCS#5 padding: one to sixteen bytes that tell their number.
pub(crate) fn pad(data: &[u8]) -> Zeroizing<Vec<u8>> {
    let len = (data.len() / BLOCK_LEN + 1) * BLOCK_LEN;
    let mut padded = Zeroizing::new(Vec::with_capacity(len));
    padded.extend_from_slice(data);
    padded.resize(len, u8::try_from(len - data.len()).unwrap_or(0));
    padded
}

/// Takes the padding off. What is wrong with it is not told, nor by the time that it takes to find out.
pub(crate) fn unpad(mut padded: Zeroizing<Vec<u8>>) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let wrong = || failure("decryption failed");
    let count = usize::from(*padded.last().ok_or_else(wrong)?);
    let last = padded.last_chunk::<BLOCK_LEN>().ok_or_else(wrong)?;
    let in_range = (1..=BLOCK_LEN).contains(&count);
    let count = if in_range { count } else { BLOCK_LEN };
    let mut expected = *last;
    expected[BLOCK_LEN - count..].fill(u8::try_from(count).unwrap_or(0));
    let same = constant_time::verify_slices_are_equal(&expected, last).is_ok();
    if !(same & in_range) {
        return Err(wrong());
    }
    let len = padded.len() - count;
    padded.truncate(len);
    Ok(padded)
}

fn failure(message: &'static str) -> Refused {
    Refused::new(ResultReason::CryptographicFailure, message)
}
