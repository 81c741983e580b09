//! Keys under keys: AES key wrap (RFC 3394) and with padding (RFC 5649), NIST SP 800-38F.

use aws_lc_rs::key_wrap::{AES_128, AES_256, AesKek, KeyWrap, KeyWrapPadded};

use crate::enumeration::ResultReason;
use crate::refusal::Refused;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrapMode {
    /// RFC 3394: a multiple of 8 bytes, 16 at least.
    NistKeyWrap,
    /// RFC 5649: any number of bytes.
    Padded,
}

/// Wraps `plain` under an AES key of 128 or 256 bits.
pub(crate) fn wrap(wrapping: &[u8], plain: &[u8], mode: WrapMode) -> Result<Vec<u8>, Refused> {
    let cipher = match wrapping.len() {
        16 => &AES_128,
        32 => &AES_256,
        _ => return Err(Refused::feature("keys are wrapped under AES keys of 128 or 256 bits here")),
    };
    let failed = |_| {
        let reason = ResultReason::CryptographicFailure;
        Refused::new(reason, "the key cannot be wrapped so: NIST Key Wrap takes multiples of 8 bytes, 16 at least")
    };
    let kek = AesKek::new(cipher, wrapping).map_err(failed)?;
    let mut room = vec![0; plain.len() + 16];
    let wrapped = match mode {
        WrapMode::NistKeyWrap => kek.wrap(plain, &mut room).map_err(failed)?,
        WrapMode::Padded => kek.wrap_with_padding(plain, &mut room).map_err(failed)?,
    };
    Ok(wrapped.to_vec())
}
