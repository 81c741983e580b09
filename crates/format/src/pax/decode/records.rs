//! The records of an extended header: `LENGTH KEY=VALUE\n`, the length in decimal counting itself and the newline.
//!
//! Known keys are applied to the member, unknown ones ignored, as POSIX asks. An empty value takes back what a global
//! header said; for the keys here that is the value of the header block, so such a record is passed over.

use super::DecodedMember;
use crate::FormatError;

const WHAT: &str = "extended header record";

/// Most extended attributes of one member. Linux lists at most 64 KiB of names, which is fewer.
const XATTRS_MAX: usize = 16_384;

/// Walks over all records without applying them.
pub(super) fn check(bytes: &[u8]) -> Result<(), FormatError> {
    apply(bytes, &mut DecodedMember::new())
}

/// Applies all records in order, so that the last of a key wins.
pub(super) fn apply(mut bytes: &[u8], member: &mut DecodedMember) -> Result<(), FormatError> {
    while !bytes.is_empty() {
        let (record, rest) = split(bytes)?;
        bytes = rest;
        let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(|| wrong("separator", record))?;
        set(&record[..equals], &record[equals + 1..], member)?;
    }
    Ok(())
}

/// The first record's `KEY=VALUE`, and what follows it.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), FormatError> {
    let mut len = 0usize;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        match byte {
            b'0'..=b'9' => len = len * 10 + usize::from(byte - b'0'),
            b' ' if at > 0 => {
                let inside = at + 1..len.saturating_sub(1);
                if bytes.len() < len || inside.is_empty() || bytes[len - 1] != b'\n' {
                    break;
                }
                return Ok((&bytes[inside], &bytes[len..]));
            }
            _ => break,
        }
    }
    Err(wrong("length", bytes))
}

fn set(key: &[u8], value: &[u8], member: &mut DecodedMember) -> Result<(), FormatError> {
    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
        if member.xattrs.len() == XATTRS_MAX {
            return Err(wrong("count of extended attributes", b"above 16384"));
        }
        member.xattrs.push((unescape(name), value.to_vec()));
        return Ok(());
    }
    if value.is_empty() {
        return Ok(());
    }
    match key {
        b"path" => copy(&mut member.path, value),
        b"linkpath" => copy(&mut member.link, value),
        b"size" => member.size = decimal("size", value)?,
        b"uid" => member.uid = decimal_u32("uid", value)?,
        b"gid" => member.gid = decimal_u32("gid", value)?,
        b"mtime" => member.mtime_ns = seconds("mtime", value)?,
        b"atime" => member.atime_ns = Some(seconds("atime", value)?),
        b"SCHILY.acl.access" => copy(&mut member.acl_access, value),
        b"SCHILY.acl.default" => copy(&mut member.acl_default, value),
        b"SCHILY.devmajor" => member.device_major = decimal_u32("SCHILY.devmajor", value)?,
        b"SCHILY.devminor" => member.device_minor = decimal_u32("SCHILY.devminor", value)?,
        b"GNU.sparse.major" => member.sparse_version.0 = decimal_u32("GNU.sparse.major", value)?,
        b"GNU.sparse.minor" => member.sparse_version.1 = decimal_u32("GNU.sparse.minor", value)?,
        b"GNU.sparse.name" => copy(&mut member.sparse_path, value),
        b"GNU.sparse.realsize" => member.sparse_size = Some(decimal("GNU.sparse.realsize", value)?),
        // Layouts 0.0 and 0.1 keep the map in the header. Taking their content for the file would restore it wrong.
        b"GNU.sparse.map" | b"GNU.sparse.numblocks" => return Err(wrong("GNU sparse version", b"0")),
        _ => {}
    }
    Ok(())
}

/// Takes back `%XX`: GNU tar writes `=` and `%` of an attribute's name so, libarchive more.
fn unescape(name: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = match tail {
            [high, low, ..] if byte == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            out.push(high << 4 | low);
            rest = &tail[2..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    out
}

fn copy(field: &mut Vec<u8>, value: &[u8]) {
    field.clear();
    field.extend_from_slice(value);
}

fn digits(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

fn decimal(field: &'static str, value: &[u8]) -> Result<u64, FormatError> {
    digits(value).ok_or_else(|| wrong(field, value))
}

fn decimal_u32(field: &'static str, value: &[u8]) -> Result<u32, FormatError> {
    decimal(field, value)?.try_into().map_err(|_| wrong(field, value))
}

/// `-?SECONDS(.FRACTION)?` in nanoseconds; digits beyond the ninth are cut off.
fn seconds(field: &'static str, value: &[u8]) -> Result<i128, FormatError> {
    let (sign, text) = match value.strip_prefix(b"-") {
        Some(text) => (-1, text),
        None => (1, value),
    };
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = point.map_or((text, &b""[..]), |at| (&text[..at], &text[at + 1..]));
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(wrong(field, value));
    }
    let whole = decimal(field, whole)?;
    let mut nanoseconds = 0;
    for place in 0..9 {
        nanoseconds = nanoseconds * 10 + fraction.get(place).map_or(0, |digit| i128::from(digit - b'0'));
    }
    Ok((i128::from(whole) * 1_000_000_000 + nanoseconds) * sign)
}

fn wrong(field: &'static str, value: &[u8]) -> FormatError {
    let shown = &value[..value.len().min(80)];
    FormatError::Field { what: WHAT, field, value: shown.escape_ascii().to_string() }
}
