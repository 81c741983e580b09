//! The codec against the standard's examples, its limits, and itself.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use proptest::prelude::*;

use super::{Bytes, Item, Limits, Malformed, Tag, Value, decode, encode, message_len};

/// The examples of KMIP 1.4, section 9.1.2.
#[test]
fn the_standards_examples() {
    let tag = Tag(0x42_0020);
    let examples: [(Value, &str); 9] = [
        (Value::Integer(8), "42002002000000040000000800000000"),
        (Value::LongInteger(123_456_789_000_000_000), "420020030000000801b69b4ba5749200"),
        (
            Value::BigInteger(Bytes::from(vec![
                0, 0, 0, 0, 3, 0xfd, 0x35, 0xeb, 0x6b, 0xc2, 0xdf, 0x46, 0x18, 0x08, 0, 0,
            ])),
            "42002004000000100000000003fd35eb6bc2df4618080000",
        ),
        (Value::Enumeration(255), "4200200500000004000000ff00000000"),
        (Value::Boolean(true), "42002006000000080000000000000001"),
        (Value::TextString("Hello World".to_owned()), "420020070000000b48656c6c6f20576f726c640000000000"),
        (Value::ByteString(Bytes::from(vec![1, 2, 3])), "42002008000000030102030000000000"),
        (Value::DateTime(0x47da_67f8), "42002009000000080000000047da67f8"),
        (Value::Interval(0x000d_2f00), "4200200a00000004000d2f0000000000"),
    ];
    for (value, hex) in examples {
        let item = Item::new(tag, value);
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        assert_eq!(encode(&item).as_slice(), bytes);
        assert_eq!(decode(&bytes, &Limits::default()).unwrap(), item);
    }
}

#[test]
fn limits_hold() {
    let limits = Limits { len_max: 1024, depth_max: 3, items_max: 5 };
    let nested = |depth: usize| {
        (0..depth).fold(Item::integer(Tag::BATCH_COUNT, 1), |inner, _| Item::structure(Tag::ATTRIBUTE, vec![inner]))
    };
    assert!(decode(&encode(&nested(3)), &limits).is_ok());
    assert_eq!(decode(&encode(&nested(4)), &limits), Err(limits.into()));
    let wide = |count: usize| Item::structure(Tag::ATTRIBUTE, vec![Item::integer(Tag::BATCH_COUNT, 1); count]);
    assert!(decode(&encode(&wide(4)), &limits).is_ok());
    assert_eq!(decode(&encode(&wide(5)), &limits), Err(limits.into()));
    let long = Item::bytes(Tag::DATA, vec![0; 1024]);
    assert_eq!(decode(&encode(&long), &limits), Err(limits.into()));
    // A length of 4 GiB in a header is refused before anything is allocated.
    let header = [0x42, 0, 0x78, 1, 0xff, 0xff, 0xff, 0xf8];
    assert_eq!(message_len(&header, &limits), Err(limits.into()));
    assert_eq!(decode(&header, &limits), Err(Malformed::Length { at: 0 }));
}

fn values() -> impl Strategy<Value = Item> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Value::Integer),
        any::<i64>().prop_map(Value::LongInteger),
        any::<u32>().prop_map(Value::Enumeration),
        any::<bool>().prop_map(Value::Boolean),
        ".{0,20}".prop_map(Value::TextString),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Value::ByteString(bytes.into())),
        any::<i64>().prop_map(Value::DateTime),
        any::<u32>().prop_map(Value::Interval),
    ];
    let item = |value: BoxedStrategy<Value>| {
        (0x42_0001..0x42_0125u32, value).prop_map(|(tag, value)| Item::new(Tag(tag), value))
    };
    item(leaf.boxed()).prop_recursive(4, 40, 6, move |inner| {
        item(proptest::collection::vec(inner, 0..6).prop_map(Value::Structure).boxed())
    })
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(item in values()) {
        prop_assert_eq!(decode(&encode(&item), &Limits::default()).unwrap(), item);
    }

    /// Damage is noticed or decodes to something else that encodes to the damaged bytes: there is one encoding of a
    /// value.
    #[test]
    fn there_is_one_encoding(item in values(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let mut bytes = encode(&item).to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(decoded) = decode(&bytes, &Limits::default()) {
            prop_assert!(*encode(&decoded) == bytes);
        }
        let _ = decode(&bytes[..at], &Limits::default());
    }
}
