//! How attributes and refusals look in messages: one way in KMIP 1.x, another in 2.x. What decides knows of neither.
//!
//! ```text
//!        request                                   decided on             response
//!  1.x   Template-Attribute, Attribute {           Given { name,          Attribute { Name, Index?, Value } ...
//!          Name "x-Barcode", Index?, Value }  -->    value, rule }   -->
//!  2.x   Attributes { CryptographicLength 256,     Instance               Attributes { tagged fields,
//!          Attribute { Vendor "x", Name, Value } }                          Attribute { Vendor, Name, Value } }
//! ```
//! Within, an attribute has the name that 1.x gave it, and a client's own is `x-NAME` (of vendor `x`, as 2.x says) or,
//! from 2.x on, `VENDOR:NAME`. An object that was made in one version is so the same object in every other. Reasons are
//! those of 2.x, of which 1.x has fewer.

mod one;
mod two;

use std::borrow::Cow;

use crate::enumeration::ResultReason;
use crate::object::{Attribute, Named};
use crate::refusal::Refused;
use crate::ttlv::{Item, Value};
use crate::version::Version;

pub(crate) use one::read as read_of_template;

/// An attribute as a client gives it.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) name: Cow<'static, str>,
    pub(crate) value: Value,
    pub(crate) rule: Named,
}

impl Given {
    /// Whether another says the same.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.name == other.name && self.value == other.value
    }
}

/// What a request wants a new object to have.
#[derive(Default)]
pub(crate) struct Wanted {
    /// The values of the Names of templates, of which 2.x has none.
    pub(crate) templates: Vec<Value>,
    pub(crate) own: Vec<Given>,
}

/// Which instance of an attribute a request means.
#[derive(Debug, Clone)]
pub(crate) enum Instance {
    /// The one with this index, as 1.x counts.
    Numbered(u32),
    /// The one with this value.
    Valued(Value),
    /// The only one there is.
    Only,
    /// All that there are.
    All,
}

/// A way to read and write messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    /// Of KMIP 1.0 to 1.4.
    One(Version),
    /// Of KMIP 2.0 and 2.1.
    Two,
}

impl Codec {
    pub(crate) fn of(version: Version) -> Self {
        if version < Version::V2_0 { Self::One(version) } else { Self::Two }
    }

    /// The attributes for a new object.
    pub(crate) fn wanted(self, payload: &Item) -> Result<Wanted, Refused> {
        match self {
            Self::One(_) => one::wanted(payload),
            Self::Two => Ok(Wanted { templates: Vec::new(), own: two::attributes(payload)? }),
        }
    }

    /// The attributes to look for.
    pub(crate) fn criteria(self, payload: &Item) -> Result<Vec<Given>, Refused> {
        match self {
            Self::One(_) => one::criteria(payload),
            Self::Two => two::attributes(payload),
        }
    }

    /// The names of attributes in a structure.
    pub(crate) fn names(self, structure: &Item) -> Result<Vec<Cow<'static, str>>, Refused> {
        match self {
            Self::One(_) => one::names(structure),
            Self::Two => two::names(structure),
        }
    }

    /// The attribute to be added, or set.
    pub(crate) fn added(self, payload: &Item) -> Result<Given, Refused> {
        match self {
            Self::One(_) => one::added(payload),
            Self::Two => two::new_attribute(payload),
        }
    }

    /// The attribute to be modified: which, and what it is to be.
    pub(crate) fn modified(self, payload: &Item) -> Result<(Instance, Given), Refused> {
        match self {
            Self::One(_) => one::modified(payload),
            Self::Two => two::modified(payload),
        }
    }

    /// The attribute to be deleted.
    pub(crate) fn deleted(self, payload: &Item) -> Result<(Cow<'static, str>, Instance), Refused> {
        match self {
            Self::One(_) => one::deleted(payload),
            Self::Two => two::deleted(payload),
        }
    }

    /// Attributes as a response has them.
    pub(crate) fn show<'a>(self, attributes: impl Iterator<Item = &'a Attribute>) -> Vec<Item> {
        match self {
            Self::One(version) => attributes.map(|attribute| one::show(attribute, version)).collect(),
            Self::Two => vec![two::show(attributes)],
        }
    }

    /// Names of attributes as a response has them.
    pub(crate) fn show_names<'a>(self, names: impl Iterator<Item = &'a str>) -> Vec<Item> {
        match self {
            Self::One(_) => names.map(one::show_name).collect(),
            Self::Two => names.filter_map(two::show_name).collect(),
        }
    }

    /// What a response says of an attribute that was added, modified or deleted: 2.x says nothing.
    pub(crate) fn show_changed(self, attribute: &Attribute) -> Option<Item> {
        match self {
            Self::One(version) => Some(one::show(attribute, version)),
            Self::Two => None,
        }
    }

    /// A reason in the words that the version has.
    pub(crate) fn reason(self, reason: ResultReason) -> ResultReason {
        match self {
            Self::One(version) => one::reason(reason, version),
            Self::Two => two::reason(reason),
        }
    }
}

fn unknown(name: &str) -> Refused {
    let shown: String = name.chars().take(64).collect();
    Refused::new(
        ResultReason::UnsupportedAttribute,
        format!("there is no attribute {shown:?}; one of your own begins with x-, or has a vendor"),
    )
}

fn checked(name: Cow<'static, str>, value: &Value, rule: Named) -> Result<Given, Refused> {
    rule.check(value)
        .map_err(|reason| Refused::new(reason, format!("{name} has a value of another type, or with other fields")))?;
    Ok(Given { name, value: value.clone(), rule })
}

impl Refused {
    /// With its reason in the words that a version has.
    pub(crate) fn told_by(self, codec: Codec) -> Self {
        Self { reason: codec.reason(self.reason), message: self.message }
    }
}

#[cfg(test)]
mod tests {
    use super::Codec;
    use crate::enumeration::ResultReason;
    use crate::version::{VERSIONS, Version};

    /// The last reasons of the standards' tables: a client of that version knows no later one.
    #[test]
    fn every_reason_is_one_that_the_version_has() {
        for version in VERSIONS {
            for reason in ResultReason::ALL {
                let told = Codec::of(version).reason(*reason);
                let number = u32::from(told);
                let last = match version {
                    Version::V1_0 => 0x11,
                    Version::V1_1 => 0x12,
                    Version::V1_2 | Version::V1_3 => 0x15,
                    Version::V1_4 => 0x18,
                    _ => 0x49,
                };
                assert!(
                    number <= last || told == ResultReason::GeneralFailure,
                    "{version:?}: {reason:?} is told as {told:?}"
                );
                if version >= Version::V2_0 {
                    assert!(!matches!(number, 0x0b | 0x0e), "{told:?} is not in 2.x");
                }
            }
        }
    }
}
