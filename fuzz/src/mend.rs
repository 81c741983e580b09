//! Makes the checksums of hostile bytes right, so that what stands behind them is reached.
//!
//! The places are those of `docs/FORMAT.md`, written down here once more: a checksum that the product computes another
//! way than the page says keeps the targets from their depths, and their tests on valid seeds say so.

use capstan_format::{BLOCK_HEADER_LEN, crc32c, crc32c_append, pax::BLOCK_LEN};

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Structures whose last four bytes are the CRC32C of all before: volume header, key store header, key export.
pub(crate) fn tail(bytes: &mut [u8]) {
    if let Some(crc_at) = bytes.len().checked_sub(4) {
        let crc = crc32c(&bytes[..crc_at]);
        put_u32(bytes, crc_at, crc);
    }
}

/// A block: its lengths, as far as they follow from its size, and its checksum.
pub(crate) fn block(bytes: &mut [u8]) {
    const ZSTD: u8 = 1;
    let Some(payload_len) = bytes.len().checked_sub(BLOCK_HEADER_LEN) else { return };
    put_u32(bytes, 44, payload_len as u32);
    if bytes[5] & ZSTD == 0 {
        put_u32(bytes, 56, payload_len as u32);
    }
    let crc = crc32c_append(crc32c(&bytes[..60]), &bytes[BLOCK_HEADER_LEN..]);
    put_u32(bytes, 60, crc);
}

/// The checksum of every ustar header in a stream.
pub(crate) fn pax_headers(stream: &mut [u8]) {
    for block in stream.chunks_exact_mut(BLOCK_LEN).filter(|block| block[257..].starts_with(b"ustar")) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

/// Both copies of a cartridge's memory, and every record header that begins as one: their checksums and those of their
/// data.
pub(crate) fn cartridge(file: &mut [u8]) {
    for at in [0, 2048] {
        if let Some(copy) = file.get_mut(at..at + 512) {
            tail(copy);
        }
    }
    let headers: Vec<usize> =
        file.windows(4).enumerate().filter(|(_, four)| four == b"CPR1").map(|(at, _)| at).collect();
    for at in headers {
        let Some(header) = file.get(at..at + 36) else { continue };
        let len = u32::from_le_bytes([header[24], header[25], header[26], header[27]]) as usize;
        if let Some(stored) = file.get(at + 36..).and_then(|rest| rest.get(..len)) {
            let crc = crc32c(stored);
            put_u32(file, at + 28, crc);
        }
        let crc = crc32c_append(crc32c(&file[at..at + 32]), &(at as u64).to_le_bytes());
        put_u32(file, at + 32, crc);
    }
}

/// A cartridge's index: its header, for this life, and every entry's checksum.
pub(crate) fn index(index: &mut [u8], life: [u8; 8]) {
    let Some((header, entries)) = index.split_at_mut_checked(32) else { return };
    header.fill(0);
    header[..8].copy_from_slice(b"CPSTNIDX");
    header[8] = 1;
    header[16..24].copy_from_slice(&life);
    tail(header);
    for (lbn, entry) in (0u64..).zip(entries.chunks_exact_mut(16)) {
        let crc = crc32c_append(crc32c_append(crc32c(&life), &lbn.to_le_bytes()), &entry[..12]);
        put_u32(entry, 12, crc);
    }
}

/// PDUs of iSCSI: the checksums of their headers and of their data, where there are such.
pub(crate) fn pdus(bytes: &mut [u8], header_digests: bool, data_digests: bool) {
    const HEADER_LEN: usize = 48;
    let digest_len = |there: bool| if there { 4 } else { 0 };
    let mut at = 0;
    while let Some(&[.., ahs, high, middle, low]) = bytes.get(at..at + 8) {
        let header_end = at + HEADER_LEN + usize::from(ahs) * 4;
        let data_len = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let data_at = header_end + digest_len(header_digests);
        let data_end = data_at + data_len.next_multiple_of(4);
        if let Some(header) = bytes.get(at..header_end).filter(|_| header_digests) {
            put_u32(bytes, header_end, crc32c(header));
        }
        if let Some(data) = bytes.get(data_at..data_end).filter(|_| data_digests && data_len > 0) {
            put_u32(bytes, data_end, crc32c(data));
        }
        at = data_end + digest_len(data_digests && data_len > 0);
    }
}
