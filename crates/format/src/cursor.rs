//! Reading and writing little-endian fields and varints without trusting a length.

use crate::FormatError;

/// Reads fields from a slice, naming the structure in each error. Whatever is kept in bytes is read by it: volumes, and
/// keys.
pub struct Cursor<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which are `what` in errors.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if there are fewer.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        let Some(end) = end else {
            return Err(FormatError::Truncated {
                what: self.what,
                needed: (self.at as u64).saturating_add(len as u64),
                found: self.bytes.len() as u64,
            });
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// As many bytes as the array has.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] at the end.
    pub fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if fewer than four bytes follow.
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A signed number of 64 bits.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if fewer than eight bytes follow.
    pub fn i64(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// [`FormatError::Field`] if something follows.
    pub fn end(&self) -> Result<(), FormatError> {
        let behind = self.bytes.len() - self.at;
        if behind == 0 { Ok(()) } else { Err(self.field("bytes behind its end", &behind)) }
    }

    /// LEB128, at most ten bytes; a value above 64 bits is an error.
    pub(crate) fn varint(&mut self) -> Result<u64, FormatError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.field("varint", &"above 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.field("varint", &"longer than ten bytes"))
    }

    pub(crate) fn varint_u32(&mut self) -> Result<u32, FormatError> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.field("varint of 32 bits", &value))
    }

    pub(crate) fn varint_signed(&mut self) -> Result<i64, FormatError> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// A varint length, at most `max`, then as many bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], FormatError> {
        let len = self.varint()?;
        match usize::try_from(len) {
            Ok(len) if len <= max => self.take(len),
            _ => Err(self.field("length", &len)),
        }
    }

    pub(crate) fn text(&mut self, max: usize) -> Result<String, FormatError> {
        let bytes = self.bytes(max)?;
        str::from_utf8(bytes).map(str::to_owned).map_err(|_| self.field("text", &"not UTF-8"))
    }

    /// Says that a field has a value that it cannot have.
    pub fn field(&self, field: &'static str, value: &impl ToString) -> FormatError {
        FormatError::Field { what: self.what, field, value: value.to_string() }
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_varint_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
