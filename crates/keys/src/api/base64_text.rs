//! Bytes in JSON.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes that are base64 (RFC 4648, with padding) in JSON. Not for secrets: it is neither zeroised nor hidden from
/// `Debug`.
#[derive(Clone, PartialEq, Eq, JsonSchema)]
#[schemars(transparent, extend("contentEncoding" = "base64"))]
pub struct Base64(#[schemars(with = "String")] pub Vec<u8>);

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Self).map_err(de::Error::custom)
    }
}
