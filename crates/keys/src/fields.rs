//! Reading little-endian fields without trusting a length.

use capstan_format::FormatError;

/// Reads fields from a slice, naming the structure in each error.
pub(crate) struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
    len: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes, len: bytes.len() }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            let read = self.len - self.rest.len();
            return Err(FormatError::Truncated {
                what: self.what,
                needed: (read as u64).saturating_add(len as u64),
                found: self.len as u64,
            });
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A presence byte, 0 or 1, then the number if it is present.
    pub(crate) fn optional_i64(&mut self, field: &'static str) -> Result<Option<i64>, FormatError> {
        match self.u8()? {
            0 => Ok(None),
            1 => Ok(Some(self.i64()?)),
            other => Err(self.field(field, &other)),
        }
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Result<(), FormatError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.field("bytes behind its end", &self.rest.len())) }
    }

    pub(crate) fn field(&self, field: &'static str, value: &impl ToString) -> FormatError {
        FormatError::Field { what: self.what, field, value: value.to_string() }
    }
}

/// What [`Fields::optional_i64`] reads.
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
