//! What attributes there are and who may do what to them, as a table (KMIP 1.4, section 3).

use std::borrow::Cow;

use crate::enumeration::{ObjectType, ResultReason};
use crate::ttlv::{Item, Tag, Value};

/// Longest name of an attribute, in bytes.
pub(crate) const NAME_LEN_MAX: usize = 128;

/// How many instances an attribute may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instances {
    One,
    Many,
}

/// When a client may give, change or take away an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// Whenever it likes.
    Any,
    /// When it makes the object, and no more.
    AtFirst,
    /// Whenever it likes, but it cannot take it away.
    Keep,
    /// A date: set while the object has not come that far in its life, and never taken away.
    Date,
    /// Never: the server's own.
    Never,
}

/// What an attribute's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Integer,
    Enumeration,
    Boolean,
    DateTime,
    Interval,
    /// A structure with these fields, of which the first must be there.
    Structure(&'static [Tag]),
}

/// What the standard says of an attribute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) instances: Instances,
    pub(crate) client: Client,
    /// The first minor version of KMIP 1 that has it: older clients are not told of it.
    pub(crate) since_minor: i32,
}

const PARAMETERS: &[Tag] = &[
    Tag::BLOCK_CIPHER_MODE,
    Tag::PADDING_METHOD,
    Tag::HASHING_ALGORITHM,
    Tag::KEY_ROLE_TYPE,
    Tag::DIGITAL_SIGNATURE_ALGORITHM,
    Tag::CRYPTOGRAPHIC_ALGORITHM,
    Tag::RANDOM_IV,
    Tag::IV_LENGTH,
    Tag::TAG_LENGTH,
    Tag::FIXED_FIELD_LENGTH,
    Tag::INVOCATION_FIELD_LENGTH,
    Tag::COUNTER_LENGTH,
    Tag::INITIAL_COUNTER_VALUE,
    Tag::SALT_LENGTH,
    Tag::MASK_GENERATOR,
    Tag::MASK_GENERATOR_HASHING_ALGORITHM,
    Tag::P_SOURCE,
    Tag::TRAILER_FIELD,
];

macro_rules! rules {
    ($($name:literal $kind:expr, $instances:ident, $client:ident, $minor:literal;)*) => {
        /// The table.
        pub(crate) const RULES: &[Rule] = &[$(Rule {
            name: $name, kind: $kind, instances: Instances::$instances, client: Client::$client, since_minor: $minor,
        }),*];
    };
}

rules! {
    "Unique Identifier" Kind::Text, One, Never, 0;
    "Object Type" Kind::Enumeration, One, Never, 0;
    "Name" Kind::Structure(&[Tag::NAME_VALUE, Tag::NAME_TYPE]), Many, Any, 0;
    "Cryptographic Algorithm" Kind::Enumeration, One, AtFirst, 0;
    "Cryptographic Length" Kind::Integer, One, AtFirst, 0;
    "Cryptographic Parameters" Kind::Structure(PARAMETERS), Many, Any, 0;
    "Cryptographic Usage Mask" Kind::Integer, One, AtFirst, 0;
    "Digest" Kind::Structure(&[Tag::HASHING_ALGORITHM, Tag::DIGEST_VALUE, Tag::KEY_FORMAT_TYPE]), Many, Never, 0;
    "Operation Policy Name" Kind::Text, One, AtFirst, 0;
    "Lease Time" Kind::Interval, One, Never, 0;
    "Usage Limits" Kind::Structure(&[Tag::USAGE_LIMITS_TOTAL, Tag::USAGE_LIMITS_COUNT, Tag::USAGE_LIMITS_UNIT]), One, AtFirst, 0;
    "State" Kind::Enumeration, One, Never, 0;
    "Initial Date" Kind::DateTime, One, Never, 0;
    "Activation Date" Kind::DateTime, One, Date, 0;
    "Process Start Date" Kind::DateTime, One, Date, 0;
    "Protect Stop Date" Kind::DateTime, One, Date, 0;
    "Deactivation Date" Kind::DateTime, One, Date, 0;
    "Destroy Date" Kind::DateTime, One, Never, 0;
    "Compromise Occurrence Date" Kind::DateTime, One, Never, 0;
    "Compromise Date" Kind::DateTime, One, Never, 0;
    "Revocation Reason" Kind::Structure(&[Tag::REVOCATION_REASON_CODE, Tag::REVOCATION_MESSAGE]), One, Never, 0;
    "Archive Date" Kind::DateTime, One, Never, 0;
    "Object Group" Kind::Text, Many, Any, 0;
    "Link" Kind::Structure(&[Tag::LINK_TYPE, Tag::LINKED_OBJECT_IDENTIFIER]), Many, Any, 0;
    "Application Specific Information" Kind::Structure(&[Tag::APPLICATION_NAMESPACE, Tag::APPLICATION_DATA]), Many, Any, 0;
    "Contact Information" Kind::Text, One, Any, 0;
    "Last Change Date" Kind::DateTime, One, Never, 0;
    "Fresh" Kind::Boolean, One, Never, 1;
    "Alternative Name" Kind::Structure(&[Tag::ALTERNATIVE_NAME_VALUE, Tag::ALTERNATIVE_NAME_TYPE]), Many, Any, 2;
    "Original Creation Date" Kind::DateTime, One, AtFirst, 2;
    "Random Number Generator" Kind::Structure(&[Tag::RNG_ALGORITHM, Tag::CRYPTOGRAPHIC_ALGORITHM, Tag::CRYPTOGRAPHIC_LENGTH, Tag::DRBG_ALGORITHM]), One, Never, 3;
    "Description" Kind::Text, One, Any, 4;
    "Comment" Kind::Text, One, Any, 4;
    "Sensitive" Kind::Boolean, One, Keep, 4;
    "Always Sensitive" Kind::Boolean, One, Never, 4;
    "Extractable" Kind::Boolean, One, Keep, 4;
    "Never Extractable" Kind::Boolean, One, Never, 4;
}

/// One instance of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Its name: the standard's, of which there is one copy for all objects, or a client's own that begins with `x-`.
    pub name: Cow<'static, str>,
    /// Which instance it is; others may have gone before it.
    pub index: u32,
    /// Its value.
    pub value: Value,
}

impl Attribute {
    /// As a message shows it.
    pub(crate) fn item(&self) -> Item {
        let mut items = vec![Item::text(Tag::ATTRIBUTE_NAME, self.name.as_ref())];
        if self.index > 0 {
            items.push(Item::integer(Tag::ATTRIBUTE_INDEX, i32::try_from(self.index).unwrap_or(i32::MAX)));
        }
        items.push(Item::new(Tag::ATTRIBUTE_VALUE, self.value.clone()));
        Item::structure(Tag::ATTRIBUTE, items)
    }
}

/// A name as attributes have it.
pub(crate) fn shared_name(name: &str) -> Cow<'static, str> {
    match RULES.iter().find(|rule| rule.name == name) {
        Some(rule) => Cow::Borrowed(rule.name),
        None => Cow::Owned(name.to_owned()),
    }
}

/// Who made the rule that an attribute goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Named {
    Standard(&'static Rule),
    /// `x-`: a client's own, any value, any number of instances.
    Custom,
    /// `y-`: set aside for servers, and this one has none.
    Server,
}

/// What goes for an attribute of this name, if there is such a one.
pub(crate) fn named(name: &str) -> Option<Named> {
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    if name.starts_with("x-") {
        return Some(Named::Custom);
    }
    if name.starts_with("y-") {
        return Some(Named::Server);
    }
    RULES.iter().find(|rule| rule.name == name).map(Named::Standard)
}

impl Named {
    pub(crate) fn instances(self) -> Instances {
        match self {
            Self::Standard(rule) => rule.instances,
            Self::Custom | Self::Server => Instances::Many,
        }
    }

    pub(crate) fn client(self) -> Client {
        match self {
            Self::Standard(rule) => rule.client,
            Self::Custom => Client::Any,
            Self::Server => Client::Never,
        }
    }

    /// Refuses a value of another kind.
    pub(crate) fn check(self, value: &Value) -> Result<(), ResultReason> {
        let Self::Standard(rule) = self else { return Ok(()) };
        let fits = match (rule.kind, value) {
            (Kind::Text, Value::TextString(_))
            | (Kind::Integer, Value::Integer(_))
            | (Kind::Enumeration, Value::Enumeration(_))
            | (Kind::Boolean, Value::Boolean(_))
            | (Kind::DateTime, Value::DateTime(_))
            | (Kind::Interval, Value::Interval(_)) => true,
            (Kind::Structure(fields), Value::Structure(items)) => {
                items.iter().all(|item| fields.contains(&item.tag))
                    && (rule.name == "Cryptographic Parameters" || items.iter().any(|item| item.tag == fields[0]))
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(ResultReason::InvalidField) }
    }
}

/// Whether a kind of object has states, dates and a use: opaque objects and templates do not.
pub(crate) fn has_life(object_type: ObjectType) -> bool {
    !matches!(object_type, ObjectType::OpaqueObject | ObjectType::Template)
}
