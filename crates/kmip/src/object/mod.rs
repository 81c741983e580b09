//! Managed objects: their attributes, their state, and how they are stored.

mod attribute;
mod material;
mod record;

use crate::enumeration::{Algorithm, KeyFormat, ObjectType};
use crate::lifecycle::{Material, State};
use crate::ttlv::{Bytes, Item, Tag, Value, encoded_len};

pub use attribute::Attribute;
pub(crate) use attribute::{Client, Instances, Named, RULES, Rule, has_life, named, shared_name, spoken};
pub use material::KeyMaterial;
pub use record::{RECORD_LEN_MAX, RecordError};

/// What is known of a managed object, without its material.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedObject {
    /// Its Unique Identifier.
    pub uid: String,
    /// Whose it is: requesters of other domains do not see it.
    pub domain: String,
    /// What it is.
    pub object_type: ObjectType,
    /// The state that was last written down; the calendar may have gone on ([`ManagedObject::state`]).
    pub(crate) written_state: State,
    /// How its material is laid out; of templates and opaque objects nothing.
    pub(crate) block: Option<KeyBlock>,
    /// The Secret Data Type or Opaque Data Type.
    pub(crate) subtype: Option<u32>,
    /// What a template gives to those made by it.
    pub(crate) template: Vec<Item>,
    /// All attributes but Unique Identifier, Object Type, State and Lease Time, which are computed.
    pub(crate) attributes: Vec<Attribute>,
}

/// What a Key Block says of its material.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyBlock {
    pub(crate) format: KeyFormat,
    /// As it was registered: any algorithm's number, also of those that nothing is computed with here.
    pub(crate) algorithm: Option<u32>,
    pub(crate) length_bits: Option<i32>,
    /// The Key Wrapping Data of a key that was registered wrapped: the material is then the wrapped bytes.
    pub(crate) wrapping: Option<Item>,
}

/// Where keys are kept, as a mask of KMIP 2.0: in software.
pub(crate) const PROTECTION_STORAGE_MASK: i32 = 1;

/// Longest record of an object that is destroyed, in bytes, unless what the server itself says of it is longer.
const REMAINS_LEN_MAX: usize = 2 << 10;

/// Seconds that a client may hold an object before it asks again.
const LEASE_S: u32 = 3600;

impl ManagedObject {
    /// The state that it is in at this moment.
    pub fn state(&self, now_s: i64) -> State {
        self.written_state.at(now_s, self.date("Activation Date"), self.date("Deactivation Date"))
    }

    /// Whether there is any material left.
    pub fn material(&self) -> Material {
        self.written_state.material()
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Attribute> {
        self.attributes.iter().filter(move |attribute| attribute.name == name)
    }

    pub(crate) fn first(&self, name: &str) -> Option<&Value> {
        self.attributes.iter().find(|attribute| attribute.name == name).map(|attribute| &attribute.value)
    }

    pub(crate) fn date(&self, name: &str) -> Option<i64> {
        match self.first(name) {
            Some(Value::DateTime(date)) => Some(*date),
            _ => None,
        }
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.first(name), Some(Value::Boolean(true)))
    }

    pub(crate) fn usage_mask(&self) -> i32 {
        match self.first("Cryptographic Usage Mask") {
            Some(Value::Integer(mask)) => *mask,
            _ => 0,
        }
    }

    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        self.block.as_ref().and_then(|block| block.algorithm).and_then(Algorithm::from_number)
    }

    /// Sets the one instance of an attribute.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        match self.attributes.iter_mut().find(|attribute| attribute.name == name) {
            Some(attribute) => attribute.value = value,
            None => self.attributes.push(Attribute { name: shared_name(name), index: 0, value }),
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.attributes.retain(|attribute| attribute.name != name);
    }

    /// Adds an instance and says which it is.
    pub(crate) fn add(&mut self, name: &str, value: Value) -> u32 {
        let index = self.all(name).map(|attribute| attribute.index + 1).max().unwrap_or(0);
        self.attributes.push(Attribute { name: shared_name(name), index, value });
        index
    }

    /// Lets go of what takes room and is of no use without the material: of what a client gave it keeps what fits into
    /// [`REMAINS_LEN_MAX`], the first first.
    pub(crate) fn reduce(&mut self) {
        self.template.clear();
        if let Some(block) = &mut self.block {
            block.wrapping = None;
        }
        let len = self.encode().len();
        let mut over = len.saturating_sub(REMAINS_LEN_MAX);
        let mut place = self.attributes.len();
        while over > 0 && place > 0 {
            place -= 1;
            let by_server = |name: &str| matches!(named(name).map(Named::client), Some(Client::Never | Client::Date));
            if !by_server(&self.attributes[place].name) {
                let gone = self.attributes.remove(place);
                over = over.saturating_sub(encoded_len(&gone.item()));
            }
        }
    }

    /// Every attribute as a client sees it: the stored and the computed.
    pub(crate) fn shown(&self, now_s: i64) -> Vec<Attribute> {
        let computed = |name: &str, value| Attribute { name: shared_name(name), index: 0, value };
        let mut shown = vec![
            computed("Unique Identifier", Value::TextString(self.uid.clone())),
            computed("Short Unique Identifier", Value::ByteString(self.short_uid())),
            computed("Object Type", Value::Enumeration(self.object_type.into())),
            computed("Protection Storage Mask", Value::Integer(PROTECTION_STORAGE_MASK)),
        ];
        if has_life(self.object_type) {
            shown.push(computed("State", Value::Enumeration(self.state(now_s).into())));
            shown.push(computed("Lease Time", Value::Interval(LEASE_S)));
        }
        shown.extend(self.key_format_type().map(|format| computed("Key Format Type", Value::Enumeration(format))));
        shown.extend(self.opaque_data_type().map(|kind| computed("Opaque Data Type", Value::Enumeration(kind))));
        shown.extend(self.attributes.iter().cloned());
        shown
    }

    pub(crate) fn key_format_type(&self) -> Option<u32> {
        match self.object_type {
            ObjectType::OpaqueObject => Some(KeyFormat::Opaque.into()),
            _ => self.block.as_ref().map(|block| block.format.into()),
        }
    }

    pub(crate) fn opaque_data_type(&self) -> Option<u32> {
        self.subtype.filter(|_| self.object_type == ObjectType::OpaqueObject)
    }

    /// The Unique Identifier in as few bytes as it takes: those that it is the hexadecimal digits of.
    pub(crate) fn short_uid(&self) -> Bytes {
        let digits = self.uid.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> =
            digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
        bytes.unwrap_or_else(|| self.uid.clone().into_bytes()).into()
    }

    /// The text of each Name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.all("Name").filter_map(|attribute| name_text(&attribute.value))
    }
}

/// The text within the value of a Name.
pub(crate) fn name_text(name: &Value) -> Option<&str> {
    let Value::Structure(items) = name else { return None };
    items.iter().find_map(|item| match &item.value {
        Value::TextString(text) if item.tag == Tag::NAME_VALUE => Some(text.as_str()),
        _ => None,
    })
}
