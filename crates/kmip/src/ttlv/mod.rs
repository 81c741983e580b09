//! TTLV: items of tag, type, length and value, the encoding of every KMIP message (KMIP 1.4, section 9.1).
//!
//! ```text
//!  0        3      4            8                 8+length      next multiple of 8
//!  | tag    | type | length     | value           | zeros       |
//!  | 24 bit | 8    | 32, of the | big-endian      | not counted |
//!                    value alone
//! ```
//! Written by hand rather than taken from a crate: bytes come from strangers, so depth, number and length of items are
//! checked before anything is allocated, and byte strings, which hold keys, are zeroised. The decoder takes the one
//! encoding of a value and refuses others, so that what was decoded encodes to the same bytes.

mod decode;
mod encode;
mod tag;
#[cfg(test)]
mod tests;

use std::fmt;

use zeroize::Zeroizing;

pub use decode::{Limits, Malformed, decode, message_len};
pub use encode::encode;
pub(crate) use encode::encoded_len;
pub use tag::Tag;

/// Bytes of tag, type and length.
pub const HEADER_LEN: usize = 8;

/// A byte string: zeroised when dropped, and never shown, for it may be a key.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Bytes(Zeroizing<Vec<u8>>);

impl Bytes {
    /// The bytes; a copy of them must be zeroised too.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.0.len())
    }
}

/// A value, with its type.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the standard's types")]
pub enum Value {
    Structure(Vec<Item>),
    Integer(i32),
    LongInteger(i64),
    /// Two's complement, a multiple of 8 bytes.
    BigInteger(Bytes),
    Enumeration(u32),
    Boolean(bool),
    TextString(String),
    ByteString(Bytes),
    /// Seconds since 1970.
    DateTime(i64),
    /// Seconds.
    Interval(u32),
}

/// A value under its tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// What it is.
    pub tag: Tag,
    /// Its value.
    pub value: Value,
}

impl Item {
    /// Any value under a tag.
    pub fn new(tag: Tag, value: Value) -> Self {
        Self { tag, value }
    }

    /// A structure.
    pub fn structure(tag: Tag, items: Vec<Self>) -> Self {
        Self::new(tag, Value::Structure(items))
    }

    /// An integer.
    pub fn integer(tag: Tag, value: i32) -> Self {
        Self::new(tag, Value::Integer(value))
    }

    /// An enumeration.
    pub fn enumeration(tag: Tag, value: impl Into<u32>) -> Self {
        Self::new(tag, Value::Enumeration(value.into()))
    }

    /// A text string.
    pub fn text(tag: Tag, text: impl Into<String>) -> Self {
        Self::new(tag, Value::TextString(text.into()))
    }

    /// A byte string.
    pub fn bytes(tag: Tag, bytes: impl Into<Bytes>) -> Self {
        Self::new(tag, Value::ByteString(bytes.into()))
    }

    /// A moment.
    pub fn date_time(tag: Tag, seconds: i64) -> Self {
        Self::new(tag, Value::DateTime(seconds))
    }

    /// The items of a structure; none of anything else.
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Value::Structure(items) => items,
            _ => &[],
        }
    }

    /// The first item of a structure with this tag.
    pub fn child(&self, tag: Tag) -> Option<&Self> {
        self.items().iter().find(|item| item.tag == tag)
    }
}
