//! Decoding a page of texts (directories, names) straight into one buffer.
//!
//! The Parquet library makes a reference-counted buffer of each value; for 128 Ki short names that takes longer than
//! everything else in a listing. The encoding is simple enough to read here: DELTA_BYTE_ARRAY of the Parquet
//! specification (`Encodings.md`), each value as the bytes it shares with the one before and the rest:
//! ```text
//! shared lengths (DELTA_BINARY_PACKED) | lengths of the rests (DELTA_BINARY_PACKED) | the rests
//! ```

/// Most values in a block of DELTA_BINARY_PACKED that is believed.
const BLOCK_VALUES_MAX: u64 = 1 << 16;

/// A page's values: how much each shares with the one before, and the rest of each.
pub(super) struct Texts<'a> {
    shared: Vec<u32>,
    rest_lens: Vec<u32>,
    rests: &'a [u8],
}

impl<'a> Texts<'a> {
    /// Reads the lengths of `rows` values; `None` if the page is not what it should be.
    pub(super) fn decode(page: &'a [u8], rows: usize) -> Option<Self> {
        let mut cursor = Cursor(page);
        let shared = cursor.binary_packed(rows)?;
        let rest_lens = cursor.binary_packed(rows)?;
        let rest_len: u64 = rest_lens.iter().map(|&len| u64::from(len)).sum();
        (rest_len == cursor.0.len() as u64).then_some(Self { shared, rest_lens, rests: cursor.0 })
    }

    /// How long all values are together; `None` if one shares more than there is.
    pub(super) fn len(&self) -> Option<usize> {
        let (mut before, mut all) = (0, 0);
        for (&shared, &rest_len) in self.shared.iter().zip(&self.rest_lens) {
            if u64::from(shared) > before {
                return None;
            }
            before = u64::from(shared) + u64::from(rest_len);
            all += before;
        }
        // As places in them are kept.
        u32::try_from(all).ok().map(|all| all as usize)
    }

    /// Calls `value` for each value with the length shared and the rest, in order.
    pub(super) fn for_each(&self, mut value: impl FnMut(usize, &'a [u8]) -> Option<()>) -> Option<()> {
        let mut rests = self.rests;
        for (&shared, &rest_len) in self.shared.iter().zip(&self.rest_lens) {
            let (rest, behind) = rests.split_at_checked(rest_len as usize)?;
            rests = behind;
            value(shared as usize, rest)?;
        }
        Some(())
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn varint_signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// DELTA_BINARY_PACKED numbers of 32 bits, as many as expected; arithmetic wraps, as the specification says.
    fn binary_packed(&mut self, expected: usize) -> Option<Vec<u32>> {
        let (block_values, miniblocks, count) = (self.varint()?, self.varint()?, self.varint()?);
        let mut value = self.varint_signed()? as u32;
        if count != expected as u64 || block_values > BLOCK_VALUES_MAX || !(1..=block_values).contains(&miniblocks) {
            return None;
        }
        let per_miniblock = (block_values / miniblocks) as usize;
        if !per_miniblock.is_multiple_of(8) || per_miniblock == 0 {
            return None;
        }
        let mut values = Vec::with_capacity(expected);
        if expected > 0 {
            values.push(value);
        }
        while values.len() < expected {
            let delta_min = self.varint_signed()? as u32;
            let widths = self.take(miniblocks as usize)?;
            for &width in widths {
                let left = expected - values.len();
                if left == 0 {
                    break;
                }
                let width = usize::from(width);
                if width > 32 {
                    return None;
                }
                // Words are read beyond its end, up to that of the page.
                let packed = self.0;
                self.take(per_miniblock / 8 * width)?;
                let mask = (1 << width) - 1;
                for number in 0..per_miniblock.min(left) {
                    let bit = number * width;
                    let delta = (word_at(packed, bit / 8) >> (bit % 8) & mask) as u32;
                    value = value.wrapping_add(delta_min).wrapping_add(delta);
                    values.push(value);
                }
            }
        }
        Some(values)
    }
}

/// The eight bytes from a place on, with zeros behind the end.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|from| from.first_chunk());
    word.copied().map_or_else(|| last_word(&bytes[at.min(bytes.len())..]), u64::from_le_bytes)
}

#[cold]
fn last_word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::random::Random;

    /// Numbers as the specification's first example has them: 1, 2, 3, 4, 5 with blocks of 8 in one miniblock.
    #[test]
    fn the_example_of_the_specification() {
        // Block of 8, 1 miniblock, 5 values, first 1 (zigzag 2); delta 1 (zigzag 2), width 0.
        let packed = [8, 1, 5, 2, 2, 0];
        assert_eq!(Cursor(&packed).binary_packed(5).unwrap(), [1, 2, 3, 4, 5]);
        // The second example: 7, 5, 3, 1, 2, 3, 4, 5; least delta -2, the rest 0 0 0 3 3 3 3 in 2 bits each.
        let packed = [8, 1, 8, 14, 3, 2, 0b1100_0000, 0b0011_1111];
        assert_eq!(Cursor(&packed).binary_packed(8).unwrap(), [7, 5, 3, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn hostile_pages_are_refused() {
        let mut random = Random::seeded("hostile_pages_are_refused");
        for _ in 0..20_000 {
            let len = random.below(40);
            let page: Vec<u8> = (0..len).map(|_| (random.u64() >> (random.below(8) * 8)) as u8 & 0x8f).collect();
            let rows = random.below(12) as usize;
            if let Some(texts) = Texts::decode(&page, rows) {
                let mut values = 0;
                let _ = texts.for_each(|_, _| {
                    values += 1;
                    Some(())
                });
                assert!(values <= rows);
            }
        }
    }
}
