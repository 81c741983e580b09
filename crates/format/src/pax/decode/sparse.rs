//! The map in front of a sparse member's content, as GNU tar's format 1.0 has it.
//!
//! Decimal numbers, each ended by a newline, padded with NULs to a multiple of 512 bytes:
//! ```text
//! count of extents, then for each: offset in the file, length
//! ```
//! The extents' bytes follow one after another.

use crate::FormatError;
use crate::pax::{BLOCK_LEN, DataExtent};

/// Most extents that are read from one map: 16 MiB of memory.
pub const SPARSE_EXTENTS_MAX: usize = 1 << 20;

/// Reads a map, one 512-byte record after another.
#[derive(Debug)]
pub struct SparseDecoder {
    size: u64,
    stored: u64,
    fed: u64,
    number: Option<u64>,
    digits: u32,
    count: Option<usize>,
    offset: Option<u64>,
    extents: Vec<DataExtent>,
    data: u64,
}

impl SparseDecoder {
    /// A decoder for a file of `size` bytes whose map and data are `stored` bytes in the stream.
    pub fn new(size: u64, stored: u64) -> Self {
        Self { size, stored, fed: 0, number: None, digits: 0, count: None, offset: None, extents: Vec::new(), data: 0 }
    }

    /// Takes the next record of the content. `Some` is the complete map: ascending, inside the file, and exactly as
    /// much data as the stream holds behind the map.
    ///
    /// # Errors
    /// [`FormatError`] if the map is malformed, or longer than the content.
    pub fn feed(&mut self, record: &[u8; BLOCK_LEN]) -> Result<Option<Vec<DataExtent>>, FormatError> {
        self.fed += BLOCK_LEN as u64;
        if self.fed > self.stored {
            return Err(FormatError::Truncated { what: "sparse map", needed: self.fed, found: self.stored });
        }
        for &byte in record {
            match byte {
                b'0'..=b'9' => {
                    let value = self.number.unwrap_or(0);
                    let value = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(byte - b'0')));
                    self.digits += 1;
                    if self.digits > 20 {
                        return Err(wrong("number", "longer than 20 digits"));
                    }
                    self.number = Some(value.ok_or_else(|| wrong("number", "above 64 bits"))?);
                }
                b'\n' => {
                    let value = self.number.take().ok_or_else(|| wrong("number", "empty"))?;
                    self.digits = 0;
                    if self.take(value)? {
                        return self.complete().map(Some);
                    }
                }
                _ => return Err(wrong("number", byte.escape_ascii())),
            }
        }
        Ok(None)
    }

    /// Takes a number; tells whether it was the last.
    fn take(&mut self, value: u64) -> Result<bool, FormatError> {
        let Some(count) = self.count else {
            let count = usize::try_from(value).ok().filter(|&count| count <= SPARSE_EXTENTS_MAX);
            self.count = count;
            return count.map(|count| count == 0).ok_or_else(|| wrong("count of extents", value));
        };
        let Some(offset) = self.offset.take() else {
            self.offset = Some(value);
            return Ok(false);
        };
        let end = offset.checked_add(value).filter(|&end| end <= self.size).ok_or_else(|| wrong("extent", offset))?;
        let begin = self.extents.last().map_or(0, |last| last.offset + last.len);
        if offset < begin || end < offset {
            return Err(wrong("extent out of order", offset));
        }
        self.data += value;
        self.extents.push(DataExtent { offset, len: value });
        Ok(self.extents.len() == count)
    }

    fn complete(&mut self) -> Result<Vec<DataExtent>, FormatError> {
        if self.data != self.stored - self.fed {
            return Err(FormatError::Truncated {
                what: "data of a sparse file",
                needed: self.data,
                found: self.stored - self.fed,
            });
        }
        Ok(std::mem::take(&mut self.extents))
    }
}

fn wrong(field: &'static str, value: impl std::fmt::Display) -> FormatError {
    FormatError::Field { what: "sparse map", field, value: format!("{value}") }
}
