//! CRC32C (Castagnoli): the checksum of blocks, headers and files, in one piece, in pieces, and over holes.

use crc_fast::{CrcAlgorithm, Digest};

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// CRC32C of bytes; 0 for none.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(ALGORITHM, bytes) as u32
}

/// CRC32C of what `crc` covers and then `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    if crc == 0 {
        // The checksum of nothing (or of bytes that stand like nothing): the shorter way gives the same.
        return crc32c(bytes);
    }
    let mut digest = Digest::new_with_init_state(ALGORITHM, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

/// CRC32C of what `first` covers and then what `second` covers, given the length of the latter.
pub fn crc32c_combine(first: u32, second: u32, second_len: u64) -> u32 {
    crc_fast::checksum_combine(ALGORITHM, u64::from(first), u64::from(second), second_len) as u32
}

/// CRC32C of what `crc` covers and then `len` zeros, in time that grows with the logarithm of `len`: holes may be long.
pub fn crc32c_append_zeros(crc: u32, mut len: u64) -> u32 {
    let (mut zeros, mut zeros_len) = (crc32c(&[0]), 1u64);
    let mut crc = crc;
    while len > 0 {
        if len & 1 == 1 {
            crc = crc32c_combine(crc, zeros, zeros_len);
        }
        len >>= 1;
        if len > 0 {
            zeros = crc32c_combine(zeros, zeros, zeros_len);
            zeros_len *= 2;
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_give_the_checksum_of_the_whole(first in proptest::collection::vec(any::<u8>(), 0..3_000), second in proptest::collection::vec(any::<u8>(), 0..3_000)) {
            let whole = crc32c(&[&first[..], &second[..]].concat());
            prop_assert_eq!(crc32c_append(crc32c(&first), &second), whole);
            prop_assert_eq!(crc32c_combine(crc32c(&first), crc32c(&second), second.len() as u64), whole);
        }

        #[test]
        fn zeros_need_not_be_there(first in proptest::collection::vec(any::<u8>(), 0..100), len in 0usize..70_000) {
            let mut whole = first.clone();
            whole.resize(first.len() + len, 0);
            prop_assert_eq!(crc32c_append_zeros(crc32c(&first), len as u64), crc32c(&whole));
        }
    }

    #[test]
    fn the_check_value_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_append_zeros(0, 32), 0x8a91_36aa);
    }
}
