//! Fields of this room's records as bytes.
//!
//! All integers are little-endian, times are signed nanoseconds since 1970; a *name* is its length in one byte and its
//! bytes. The layouts stand above the code of each record: [`super::User`], [`super::QuorumRule`], [`super::Pending`].

use capstan_format::{Cursor, FormatError};
use capstan_keys::Name;

pub(super) fn put_name(bytes: &mut Vec<u8>, name: &Name) {
    // A name has at most 63 bytes.
    bytes.push(name.as_str().len() as u8);
    bytes.extend_from_slice(name.as_str().as_bytes());
}

pub(super) fn name(fields: &mut Cursor<'_>) -> Result<Name, FormatError> {
    let len = usize::from(fields.u8()?);
    let text = text(fields, len)?;
    text.parse().map_err(|_| fields.field("name", &text))
}

pub(super) fn text<'a>(fields: &mut Cursor<'a>, len: usize) -> Result<&'a str, FormatError> {
    let bytes = fields.take(len)?;
    str::from_utf8(bytes).map_err(|_| fields.field("text", &"not UTF-8"))
}

pub(super) fn version(fields: &mut Cursor<'_>, what: &'static str, supported: u8) -> Result<(), FormatError> {
    match fields.u8()? {
        found if found == supported => Ok(()),
        found => Err(FormatError::Version { what, found: found.into(), supported: supported.into() }),
    }
}

/// What a test does to every record: no byte can be cut off, added or changed without an error or another record, and
/// nothing panics.
#[cfg(test)]
pub(super) fn check_hostile<R: PartialEq + std::fmt::Debug>(
    record: &R,
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<R, FormatError>,
) {
    assert_eq!(decode(bytes).as_ref(), Ok(record));
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err());
    }
    assert!(decode(&[bytes, b"\0"].concat()).is_err());
    for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut altered = bytes.to_vec();
        altered[at] ^= 1 << bit;
        assert_ne!(decode(&altered).ok().as_ref(), Some(record), "byte {at}, bit {bit}");
    }
}
