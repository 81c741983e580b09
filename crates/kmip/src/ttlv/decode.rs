//! From bytes to items, within limits.

use thiserror::Error;

use super::{Bytes, HEADER_LEN, Item, Tag, Value};

/// How much a message may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the whole, its header included.
    pub len_max: usize,
    /// Structures within structures.
    pub depth_max: usize,
    /// Items in all.
    pub items_max: usize,
}

impl Default for Limits {
    /// What a request may have: 1 MiB (the standard's own default is not to say), 12 deep (1.4 needs 9), 20,000 items.
    fn default() -> Self {
        Self { len_max: 1 << 20, depth_max: 12, items_max: 20_000 }
    }
}

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It ends before it should, or goes on after it.
    #[error("an item at byte {at} is longer or shorter than what holds it")]
    Length {
        /// Where the item begins.
        at: usize,
    },
    /// More than the limits allow.
    #[error("the message is larger than is taken here: at most {len_max} bytes, {items_max} items, {depth_max} deep")]
    TooLarge {
        /// Of [`Limits`].
        len_max: usize,
        /// Of [`Limits`].
        items_max: usize,
        /// Of [`Limits`].
        depth_max: usize,
    },
    /// A tag that is none, or a type that no version has.
    #[error("{tag} at byte {at} has the unknown type {kind}")]
    Type {
        /// Where the item begins.
        at: usize,
        /// Its tag.
        tag: Tag,
        /// Its type.
        kind: u8,
    },
    /// A length that the type cannot have, padding that is not zero, a boolean of 2, text that is not UTF-8.
    #[error("{tag} at byte {at} has a value that its type cannot have")]
    Value {
        /// Where the item begins.
        at: usize,
        /// Its tag.
        tag: Tag,
    },
}

impl From<Limits> for Malformed {
    fn from(Limits { len_max, items_max, depth_max }: Limits) -> Self {
        Self::TooLarge { len_max, items_max, depth_max }
    }
}

/// How long the message is that begins with these bytes, header included: so that a reader of a connection knows how
/// much to wait for, and refuses before it allocates.
///
/// # Errors
/// [`Malformed::Type`] if no request or response begins so; [`Malformed::Length`] if the length is no multiple of 8;
/// [`Malformed::TooLarge`] if it is above the limit.
pub fn message_len(header: &[u8; HEADER_LEN], limits: &Limits) -> Result<usize, Malformed> {
    let [t0, t1, t2, kind, length @ ..] = *header;
    let tag = Tag(u32::from_be_bytes([0, t0, t1, t2]));
    if kind != 0x01 || (tag != Tag::REQUEST_MESSAGE && tag != Tag::RESPONSE_MESSAGE) {
        return Err(Malformed::Type { at: 0, tag, kind });
    }
    let length = u32::from_be_bytes(length) as usize;
    if !length.is_multiple_of(8) {
        return Err(Malformed::Length { at: 0 });
    }
    length.checked_add(HEADER_LEN).filter(|len| *len <= limits.len_max).ok_or_else(|| (*limits).into())
}

/// Decodes one item that fills `bytes` to the end.
///
/// # Errors
/// [`Malformed::TooLarge`] if the item exceeds a limit; else it is not well formed, or something follows it.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Item, Malformed> {
    if bytes.len() > limits.len_max {
        return Err((*limits).into());
    }
    let mut reader = Reader { bytes, at: 0, items_left: limits.items_max, limits };
    let item = reader.item(bytes.len(), limits.depth_max)?;
    if reader.at == bytes.len() { Ok(item) } else { Err(Malformed::Length { at: reader.at }) }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    items_left: usize,
    limits: &'a Limits,
}

impl Reader<'_> {
    /// One item that ends at `end` or before.
    fn item(&mut self, end: usize, depth_left: usize) -> Result<Item, Malformed> {
        let at = self.at;
        let too_large = Malformed::from(*self.limits);
        self.items_left = self.items_left.checked_sub(1).ok_or(too_large)?;
        let value_at = at.checked_add(HEADER_LEN).filter(|value| *value <= end).ok_or(Malformed::Length { at })?;
        let header = self.bytes.get(at..value_at).and_then(|bytes| <[u8; HEADER_LEN]>::try_from(bytes).ok());
        let [t0, t1, t2, kind, length @ ..] = header.ok_or(Malformed::Length { at })?;
        let tag = Tag(u32::from_be_bytes([0, t0, t1, t2]));
        let length = u32::from_be_bytes(length) as usize;
        let value_end = value_at.checked_add(length).ok_or(Malformed::Length { at })?;
        let padded_end = value_end.checked_next_multiple_of(8).filter(|padded| *padded <= end);
        let padded_end = padded_end.ok_or(Malformed::Length { at })?;
        // `end` is within the bytes, so these are too.
        let value = self.bytes.get(value_at..value_end).ok_or(Malformed::Length { at })?;
        let padding = self.bytes.get(value_end..padded_end).ok_or(Malformed::Length { at })?;
        let wrong = Malformed::Value { at, tag };
        if padding.iter().any(|byte| *byte != 0) {
            return Err(wrong);
        }
        let value = match kind {
            0x01 => {
                if padded_end != value_end {
                    return Err(wrong);
                }
                let depth_left = depth_left.checked_sub(1).ok_or(too_large)?;
                self.at = value_at;
                let mut items = Vec::new();
                while self.at < value_end {
                    items.push(self.item(value_end, depth_left)?);
                }
                Value::Structure(items)
            }
            0x02 => Value::Integer(i32::from_be_bytes(fixed(value).ok_or(wrong)?)),
            0x03 => Value::LongInteger(i64::from_be_bytes(fixed(value).ok_or(wrong)?)),
            0x04 if !value.is_empty() && value.len() % 8 == 0 => Value::BigInteger(Bytes::from(value)),
            0x05 => Value::Enumeration(u32::from_be_bytes(fixed(value).ok_or(wrong)?)),
            0x06 => match u64::from_be_bytes(fixed(value).ok_or(wrong)?) {
                0 => Value::Boolean(false),
                1 => Value::Boolean(true),
                _ => return Err(wrong),
            },
            0x07 => Value::TextString(std::str::from_utf8(value).map_err(|_| wrong)?.to_owned()),
            0x08 => Value::ByteString(Bytes::from(value)),
            0x09 => Value::DateTime(i64::from_be_bytes(fixed(value).ok_or(wrong)?)),
            0x0a => Value::Interval(u32::from_be_bytes(fixed(value).ok_or(wrong)?)),
            0x04 => return Err(wrong),
            _ => return Err(Malformed::Type { at, tag, kind }),
        };
        self.at = padded_end;
        Ok(Item { tag, value })
    }
}

fn fixed<const LEN: usize>(value: &[u8]) -> Option<[u8; LEN]> {
    value.try_into().ok()
}
