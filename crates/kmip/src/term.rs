//! Terms: the attributes that objects are found by without looking at all of them.

use crate::object::{Attribute, ManagedObject, Named, name_text, named};
use crate::ttlv::{Item, Tag, Value, encode};

/// An attribute with its value, as an index knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term(Vec<u8>);

/// Attributes that say which object is meant; states, dates and lengths say only what it is like, and are compared.
const INDEXED: [&str; 7] = [
    "Name",
    "Object Type",
    "Object Group",
    "Application Specific Information",
    "Alternative Name",
    "Contact Information",
    "Link",
];

impl Term {
    /// The term of an attribute, if it is one that is indexed and its value is whole.
    pub(crate) fn of(name: &str, value: &Value) -> Option<Self> {
        let custom = matches!(named(name), Some(Named::Custom | Named::Vendor));
        if !custom && !INDEXED.contains(&name) {
            return None;
        }
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(0);
        match value {
            // A name is the same whatever its type.
            _ if name == "Name" => bytes.extend_from_slice(name_text(value)?.as_bytes()),
            // The other structures have two fields, which come in any order.
            Value::Structure(items) if !custom => {
                let mut fields: Vec<&Item> = items.iter().collect();
                if fields.len() != 2 {
                    return None;
                }
                fields.sort_by_key(|item| item.tag);
                fields.iter().for_each(|item| bytes.extend_from_slice(&encode(item)));
            }
            value => bytes.extend_from_slice(&encode(&Item::new(Tag::ATTRIBUTE_VALUE, value.clone()))),
        }
        Some(Self(bytes))
    }

    /// The bytes of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl ManagedObject {
    /// Every term that it is to be found by.
    pub fn terms(&self) -> Vec<Term> {
        let object_type =
            Attribute { name: "Object Type".into(), index: 0, value: Value::Enumeration(self.object_type.into()) };
        let attributes = self.attributes.iter().chain([&object_type]);
        attributes.filter_map(|attribute| Term::of(&attribute.name, &attribute.value)).collect()
    }
}
