//! From items to bytes.

use zeroize::Zeroizing;

use super::{HEADER_LEN, Item, Value};

/// The bytes of an item, zeroised when dropped. They are allocated once: a vector that grows leaves copies behind.
pub fn encode(item: &Item) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(encoded_len(item)));
    append(item, &mut bytes);
    bytes
}

/// Bytes that an item takes, with header and padding.
pub(crate) fn encoded_len(item: &Item) -> usize {
    HEADER_LEN + value_len(&item.value).next_multiple_of(8)
}

fn value_len(value: &Value) -> usize {
    match value {
        Value::Structure(items) => items.iter().map(encoded_len).sum(),
        Value::Integer(_) | Value::Enumeration(_) | Value::Interval(_) => 4,
        Value::LongInteger(_) | Value::Boolean(_) | Value::DateTime(_) => 8,
        Value::TextString(text) => text.len(),
        Value::BigInteger(bytes) | Value::ByteString(bytes) => bytes.expose().len(),
    }
}

fn append(item: &Item, bytes: &mut Vec<u8>) {
    let kind = match &item.value {
        Value::Structure(_) => 0x01,
        Value::Integer(_) => 0x02,
        Value::LongInteger(_) => 0x03,
        Value::BigInteger(_) => 0x04,
        Value::Enumeration(_) => 0x05,
        Value::Boolean(_) => 0x06,
        Value::TextString(_) => 0x07,
        Value::ByteString(_) => 0x08,
        Value::DateTime(_) => 0x09,
        Value::Interval(_) => 0x0a,
    };
    bytes.extend_from_slice(&item.tag.0.to_be_bytes()[1..]);
    bytes.push(kind);
    // Nothing of 4 GiB is ever put together here: requests and records have limits far below.
    let length = u32::try_from(value_len(&item.value)).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    match &item.value {
        Value::Structure(items) => items.iter().for_each(|item| append(item, bytes)),
        Value::Integer(value) => bytes.extend_from_slice(&value.to_be_bytes()),
        Value::Enumeration(value) | Value::Interval(value) => bytes.extend_from_slice(&value.to_be_bytes()),
        Value::LongInteger(value) | Value::DateTime(value) => bytes.extend_from_slice(&value.to_be_bytes()),
        Value::Boolean(value) => bytes.extend_from_slice(&u64::from(*value).to_be_bytes()),
        Value::TextString(text) => bytes.extend_from_slice(text.as_bytes()),
        Value::BigInteger(value) | Value::ByteString(value) => bytes.extend_from_slice(value.expose()),
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}
