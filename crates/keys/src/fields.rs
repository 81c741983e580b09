//! What the key store keeps beyond plain fields: times that may be absent, and checksums.

use capstan_format::{Cursor, FormatError};

/// A presence byte, 0 or 1, then the number if it is present.
pub(crate) fn optional_i64(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Option<i64>, FormatError> {
    match cursor.u8()? {
        0 => Ok(None),
        1 => Ok(Some(cursor.i64()?)),
        other => Err(cursor.field(field, &other)),
    }
}

/// What [`optional_i64`] reads.
pub(crate) fn put_optional_i64(out: &mut Vec<u8>, value: Option<i64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Splits off the CRC32C at the end and checks it.
pub(crate) fn checked<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a [u8], FormatError> {
    let Some((body, stored)) = bytes.split_last_chunk::<4>() else {
        return Err(FormatError::Truncated { what, needed: 4, found: bytes.len() as u64 });
    };
    let (stored, computed) = (u32::from_le_bytes(*stored), capstan_format::crc32c(body));
    if stored != computed {
        return Err(FormatError::Checksum { what, stored, computed });
    }
    Ok(body)
}

/// Appends the CRC32C that [`checked`] checks.
pub(crate) fn put_checksum(out: &mut Vec<u8>) {
    let checksum = capstan_format::crc32c(out);
    out.extend_from_slice(&checksum.to_le_bytes());
}
