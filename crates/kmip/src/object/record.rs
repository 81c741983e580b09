//! The record of a managed object: its bytes at rest, without its material.
//!
//! ```text
//!   0  "CKMO"
//!   4  version, 1
//!   5  zero, zero, zero
//!   8  TTLV: structure Attributes-of-an-object, to the end
//!        UniqueIdentifier  text
//!        54 00 01 domain   text
//!        ObjectType        enumeration
//!        State             enumeration, as it was last written down
//!        54 00 02 subtype  enumeration, optional: Secret Data Type or Opaque Data Type
//!        KeyBlock          structure, optional: KeyFormatType, CryptographicAlgorithm?, CryptographicLength?, KeyWrappingData?
//!        Template          structure, optional
//!        Attribute         structure, any number: AttributeName, AttributeIndex?, AttributeValue
//! ```
//! The material is stored apart, wrapped by whoever stores it. A record says who owns the object and what state it is
//! in: whoever stores it seals both together, so that they cannot be exchanged.

use thiserror::Error;

use super::{Attribute, KeyBlock, ManagedObject, shared_name};
use crate::enumeration::{KeyFormat, ObjectType};
use crate::lifecycle::State;
use crate::ttlv::{Item, Limits, Malformed, Tag, Value, decode, encode};

/// Longest record, in bytes: with its wrapped material it has to fit into a record of the ledger, of 64 KiB.
pub const RECORD_LEN_MAX: usize = 40 << 10;

const MAGIC: [u8; 8] = *b"CKMO\x01\0\0\0";
const OBJECT: Tag = Tag(0x54_0000);
const DOMAIN: Tag = Tag(0x54_0001);
const SUBTYPE: Tag = Tag(0x54_0002);

/// Why bytes are not the record of a managed object.
#[derive(Debug, Error)]
pub enum RecordError {
    /// They begin otherwise: they are something else, or from a later version.
    #[error("this is not a managed object of version 1: if a later version wrote it, read it with that version")]
    Version,
    /// The encoding is damaged.
    #[error("the record of a managed object is damaged: take it from another node or from a backup")]
    Malformed(#[source] Malformed),
    /// Something is missing, or of another kind.
    #[error("the record of a managed object has no valid {field}: take it from another node or from a backup")]
    Field {
        /// What.
        field: Tag,
    },
}

impl ManagedObject {
    /// The bytes at rest.
    pub fn encode(&self) -> Vec<u8> {
        let mut items = vec![
            Item::text(Tag::UNIQUE_IDENTIFIER, self.uid.clone()),
            Item::text(DOMAIN, self.domain.clone()),
            Item::enumeration(Tag::OBJECT_TYPE, self.object_type),
            Item::enumeration(Tag::STATE, self.written_state),
        ];
        items.extend(self.subtype.map(|subtype| Item::enumeration(SUBTYPE, subtype)));
        if let Some(block) = &self.block {
            let mut fields = vec![Item::enumeration(Tag::KEY_FORMAT_TYPE, block.format)];
            fields.extend(block.algorithm.map(|value| Item::enumeration(Tag::CRYPTOGRAPHIC_ALGORITHM, value)));
            fields.extend(block.length_bits.map(|value| Item::integer(Tag::CRYPTOGRAPHIC_LENGTH, value)));
            fields.extend(block.wrapping.clone());
            items.push(Item::structure(Tag::KEY_BLOCK, fields));
        }
        if !self.template.is_empty() {
            items.push(Item::structure(Tag::TEMPLATE, self.template.clone()));
        }
        items.extend(self.attributes.iter().map(Attribute::item));
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&encode(&Item::structure(OBJECT, items)));
        bytes
    }

    /// Reads what [`ManagedObject::encode`] wrote.
    ///
    /// # Errors
    /// [`RecordError::Version`] if the bytes begin otherwise; [`RecordError::Malformed`] if they are damaged;
    /// [`RecordError::Field`] if something is missing or of another kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let ttlv = bytes.strip_prefix(&MAGIC).ok_or(RecordError::Version)?;
        let limits = Limits { len_max: RECORD_LEN_MAX, ..Limits::default() };
        let record = decode(ttlv, &limits).map_err(RecordError::Malformed)?;
        if record.tag != OBJECT {
            return Err(RecordError::Field { field: record.tag });
        }
        let state = State::from_number(number(&record, Tag::STATE)?);
        let object_type = ObjectType::from_number(number(&record, Tag::OBJECT_TYPE)?);
        let wrong = |field| RecordError::Field { field };
        Ok(Self {
            uid: text(&record, Tag::UNIQUE_IDENTIFIER)?,
            domain: text(&record, DOMAIN)?,
            object_type: object_type.ok_or(wrong(Tag::OBJECT_TYPE))?,
            written_state: state.ok_or(wrong(Tag::STATE))?,
            block: record.child(Tag::KEY_BLOCK).map(block).transpose()?,
            subtype: record.child(SUBTYPE).map(|_| number(&record, SUBTYPE)).transpose()?,
            template: record.child(Tag::TEMPLATE).map(|template| template.items().to_vec()).unwrap_or_default(),
            attributes: record
                .items()
                .iter()
                .filter(|item| item.tag == Tag::ATTRIBUTE)
                .map(attribute)
                .collect::<Result<_, _>>()?,
        })
    }
}

fn attribute(item: &Item) -> Result<Attribute, RecordError> {
    let wrong = || RecordError::Field { field: Tag::ATTRIBUTE };
    let index = match item.child(Tag::ATTRIBUTE_INDEX).map(|index| &index.value) {
        None => 0,
        Some(Value::Integer(index)) => u32::try_from(*index).map_err(|_| wrong())?,
        Some(_) => return Err(wrong()),
    };
    let value = item.child(Tag::ATTRIBUTE_VALUE).ok_or_else(wrong)?.value.clone();
    Ok(Attribute { name: shared_name(&text(item, Tag::ATTRIBUTE_NAME)?), index, value })
}

fn block(item: &Item) -> Result<KeyBlock, RecordError> {
    let format = KeyFormat::from_number(number(item, Tag::KEY_FORMAT_TYPE)?);
    let length_bits = match item.child(Tag::CRYPTOGRAPHIC_LENGTH).map(|length| &length.value) {
        None => None,
        Some(Value::Integer(bits)) => Some(*bits),
        Some(_) => return Err(RecordError::Field { field: Tag::CRYPTOGRAPHIC_LENGTH }),
    };
    let algorithm = Tag::CRYPTOGRAPHIC_ALGORITHM;
    Ok(KeyBlock {
        format: format.ok_or(RecordError::Field { field: Tag::KEY_FORMAT_TYPE })?,
        algorithm: item.child(algorithm).map(|_| number(item, algorithm)).transpose()?,
        length_bits,
        wrapping: item.child(Tag::KEY_WRAPPING_DATA).cloned(),
    })
}

fn number(item: &Item, field: Tag) -> Result<u32, RecordError> {
    match item.child(field).map(|child| &child.value) {
        Some(Value::Enumeration(number)) => Ok(*number),
        _ => Err(RecordError::Field { field }),
    }
}

fn text(item: &Item, field: Tag) -> Result<String, RecordError> {
    match item.child(field).map(|child| &child.value) {
        Some(Value::TextString(text)) => Ok(text.clone()),
        _ => Err(RecordError::Field { field }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::{KeyBlock, ManagedObject, RecordError};
    use crate::enumeration::{KeyFormat, ObjectType};
    use crate::lifecycle::State;
    use crate::ttlv::Value;

    fn example() -> ManagedObject {
        let block = KeyBlock { format: KeyFormat::Raw, algorithm: Some(3), length_bits: Some(256), wrapping: None };
        let mut object = ManagedObject {
            uid: "k1".to_owned(),
            domain: "library".to_owned(),
            object_type: ObjectType::SymmetricKey,
            written_state: State::Active,
            block: Some(block),
            subtype: None,
            template: Vec::new(),
            attributes: Vec::new(),
        };
        object.add("x-Barcode", Value::TextString("A00001L9".to_owned()));
        object.add("x-Barcode", Value::Integer(7));
        object
    }

    /// The bytes of version 1, so that a change to them is seen.
    #[test]
    fn version_1_stays_readable() {
        let golden = concat!(
            "434b4d4f01000000",
            "54000001000000e8",
            "42009407000000026b31000000000000",
            "54000107000000076c69627261727900",
            "42005705000000040000000200000000",
            "42008d05000000040000000200000000",
            "4200400100000030",
            "42004205000000040000000100000000",
            "42002805000000040000000300000000",
            "42002a02000000040000010000000000",
            "4200080100000028",
            "42000a0700000009782d426172636f646500000000000000",
            "42000b07000000084130303030314c39",
            "4200080100000038",
            "42000a0700000009782d426172636f646500000000000000",
            "42000902000000040000000100000000",
            "42000b02000000040000000700000000",
        );
        let hex: String = example().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
        assert_eq!(ManagedObject::decode(&example().encode()).unwrap(), example());
    }

    #[test]
    fn damage_is_refused() {
        let bytes = example().encode();
        for end in 0..bytes.len() {
            assert!(ManagedObject::decode(&bytes[..end]).is_err());
        }
        let mut later = bytes;
        later[4] = 2;
        assert!(matches!(ManagedObject::decode(&later), Err(RecordError::Version)));
    }
}
