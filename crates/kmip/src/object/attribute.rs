//! What attributes there are and who may do what to them, as a table (KMIP 1.4, section 3; KMIP 2.1, section 4).

use std::borrow::Cow;

use crate::enumeration::{ObjectType, ResultReason};
use crate::ttlv::{Item, Tag, Value};
use crate::version::Version;

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
    Bytes,
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
    /// What stands for it in KMIP 2.x.
    pub(crate) tag: Tag,
    /// The first version that has it: older clients are not told of it.
    pub(crate) since: Version,
    /// The first version that has it no more.
    pub(crate) until: Option<Version>,
}

impl Rule {
    fn spoken(&self, version: Version) -> bool {
        self.since <= version && self.until.is_none_or(|until| version < until)
    }
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
    ($($name:literal $tag:ident, $kind:expr, $instances:ident, $client:ident, $since:ident $($until:ident)?;)*) => {
        /// The table.
        pub(crate) const RULES: &[Rule] = &[$(Rule {
            name: $name,
            kind: $kind,
            instances: Instances::$instances,
            client: Client::$client,
            tag: Tag::$tag,
            since: Version::$since,
            until: rules!(@until $($until)?),
        }),*];
    };
    (@until) => { None };
    (@until $until:ident) => { Some(Version::$until) };
}

rules! {
    "Unique Identifier" UNIQUE_IDENTIFIER, Kind::Text, One, Never, V1_0;
    "Object Type" OBJECT_TYPE, Kind::Enumeration, One, Never, V1_0;
    "Name" NAME, Kind::Structure(&[Tag::NAME_VALUE, Tag::NAME_TYPE]), Many, Any, V1_0;
    "Cryptographic Algorithm" CRYPTOGRAPHIC_ALGORITHM, Kind::Enumeration, One, AtFirst, V1_0;
    "Cryptographic Length" CRYPTOGRAPHIC_LENGTH, Kind::Integer, One, AtFirst, V1_0;
    "Cryptographic Parameters" CRYPTOGRAPHIC_PARAMETERS, Kind::Structure(PARAMETERS), Many, Any, V1_0;
    "Cryptographic Usage Mask" CRYPTOGRAPHIC_USAGE_MASK, Kind::Integer, One, AtFirst, V1_0;
    "Digest" DIGEST, Kind::Structure(&[Tag::HASHING_ALGORITHM, Tag::DIGEST_VALUE, Tag::KEY_FORMAT_TYPE]), Many, Never, V1_0;
    "Operation Policy Name" OPERATION_POLICY_NAME, Kind::Text, One, AtFirst, V1_0 V2_0;
    "Lease Time" LEASE_TIME, Kind::Interval, One, Never, V1_0;
    "Usage Limits" USAGE_LIMITS, Kind::Structure(&[Tag::USAGE_LIMITS_TOTAL, Tag::USAGE_LIMITS_COUNT, Tag::USAGE_LIMITS_UNIT]), One, AtFirst, V1_0;
    "State" STATE, Kind::Enumeration, One, Never, V1_0;
    "Initial Date" INITIAL_DATE, Kind::DateTime, One, Never, V1_0;
    "Activation Date" ACTIVATION_DATE, Kind::DateTime, One, Date, V1_0;
    "Process Start Date" PROCESS_START_DATE, Kind::DateTime, One, Date, V1_0;
    "Protect Stop Date" PROTECT_STOP_DATE, Kind::DateTime, One, Date, V1_0;
    "Deactivation Date" DEACTIVATION_DATE, Kind::DateTime, One, Date, V1_0;
    "Destroy Date" DESTROY_DATE, Kind::DateTime, One, Never, V1_0;
    "Compromise Occurrence Date" COMPROMISE_OCCURRENCE_DATE, Kind::DateTime, One, Never, V1_0;
    "Compromise Date" COMPROMISE_DATE, Kind::DateTime, One, Never, V1_0;
    "Revocation Reason" REVOCATION_REASON, Kind::Structure(&[Tag::REVOCATION_REASON_CODE, Tag::REVOCATION_MESSAGE]), One, Never, V1_0;
    "Archive Date" ARCHIVE_DATE, Kind::DateTime, One, Never, V1_0;
    "Object Group" OBJECT_GROUP, Kind::Text, Many, Any, V1_0;
    "Link" LINK, Kind::Structure(&[Tag::LINK_TYPE, Tag::LINKED_OBJECT_IDENTIFIER]), Many, Any, V1_0;
    "Application Specific Information" APPLICATION_SPECIFIC_INFORMATION, Kind::Structure(&[Tag::APPLICATION_NAMESPACE, Tag::APPLICATION_DATA]), Many, Any, V1_0;
    "Contact Information" CONTACT_INFORMATION, Kind::Text, One, Any, V1_0;
    "Last Change Date" LAST_CHANGE_DATE, Kind::DateTime, One, Never, V1_0;
    "Fresh" FRESH, Kind::Boolean, One, Never, V1_1;
    "Alternative Name" ALTERNATIVE_NAME, Kind::Structure(&[Tag::ALTERNATIVE_NAME_VALUE, Tag::ALTERNATIVE_NAME_TYPE]), Many, Any, V1_2;
    "Original Creation Date" ORIGINAL_CREATION_DATE, Kind::DateTime, One, AtFirst, V1_2;
    "Random Number Generator" RANDOM_NUMBER_GENERATOR, Kind::Structure(&[Tag::RNG_ALGORITHM, Tag::CRYPTOGRAPHIC_ALGORITHM, Tag::CRYPTOGRAPHIC_LENGTH, Tag::HASHING_ALGORITHM, Tag::DRBG_ALGORITHM]), One, AtFirst, V1_3;
    "Description" DESCRIPTION, Kind::Text, One, Any, V1_4;
    "Comment" COMMENT, Kind::Text, One, Any, V1_4;
    "Sensitive" SENSITIVE, Kind::Boolean, One, Keep, V1_4;
    "Always Sensitive" ALWAYS_SENSITIVE, Kind::Boolean, One, Never, V1_4;
    "Extractable" EXTRACTABLE, Kind::Boolean, One, Keep, V1_4;
    "Never Extractable" NEVER_EXTRACTABLE, Kind::Boolean, One, Never, V1_4;
    "Short Unique Identifier" SHORT_UNIQUE_IDENTIFIER, Kind::Bytes, One, Never, V2_0;
    "Key Format Type" KEY_FORMAT_TYPE, Kind::Enumeration, One, AtFirst, V2_0;
    "Opaque Data Type" OPAQUE_DATA_TYPE, Kind::Enumeration, One, AtFirst, V2_0;
    "Protection Storage Mask" PROTECTION_STORAGE_MASK, Kind::Integer, One, Never, V2_0;
    "Protection Level" PROTECTION_LEVEL, Kind::Enumeration, One, Any, V2_0;
    "Protection Period" PROTECTION_PERIOD, Kind::Interval, One, Any, V2_0;
    "Quantum Safe" QUANTUM_SAFE, Kind::Boolean, One, Any, V2_0;
    "NIST Key Type" NIST_KEY_TYPE, Kind::Enumeration, Many, AtFirst, V2_0;
    "PKCS#12 Friendly Name" PKCS12_FRIENDLY_NAME, Kind::Text, One, Any, V2_0;
    "Rotate Name" ROTATE_NAME, Kind::Structure(&[Tag::ROTATE_NAME_VALUE, Tag::ROTATE_NAME_TYPE]), One, Any, V2_1;
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
    /// `VENDOR:`: as `x-`, of a vendor of KMIP 2.x.
    Vendor,
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
    match name.split_once(':') {
        Some((vendor, name)) if is_vendor(vendor) && !name.is_empty() => Some(Named::Vendor),
        _ => RULES.iter().find(|rule| rule.name == name).map(Named::Standard),
    }
}

/// What the standard allows in a Vendor Identification (KMIP 2.1, section 4.60).
fn is_vendor(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric() || "_.".contains(character))
}

/// Whether a client of this version is told of an attribute of this name.
pub(crate) fn spoken(name: &str, version: Version) -> bool {
    match named(name) {
        Some(Named::Standard(rule)) => rule.spoken(version),
        Some(Named::Custom | Named::Server) => true,
        Some(Named::Vendor) => version >= Version::V2_0,
        None => false,
    }
}

impl Named {
    pub(crate) fn instances(self) -> Instances {
        match self {
            Self::Standard(rule) => rule.instances,
            Self::Custom | Self::Server | Self::Vendor => Instances::Many,
        }
    }

    pub(crate) fn client(self) -> Client {
        match self {
            Self::Standard(rule) => rule.client,
            Self::Custom | Self::Vendor => Client::Any,
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
            | (Kind::Interval, Value::Interval(_))
            | (Kind::Bytes, Value::ByteString(_)) => true,
            (Kind::Structure(fields), Value::Structure(items)) => {
                items.iter().all(|item| fields.contains(&item.tag))
                    && (rule.name == "Cryptographic Parameters" || items.iter().any(|item| item.tag == fields[0]))
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(ResultReason::InvalidAttributeValue) }
    }
}

/// Whether a kind of object has states, dates and a use: opaque objects and templates do not.
pub(crate) fn has_life(object_type: ObjectType) -> bool {
    !matches!(object_type, ObjectType::OpaqueObject | ObjectType::Template)
}
