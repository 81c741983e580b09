//! Names of things on tape: volumes, sessions, objects, keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::FormatError;

/// A volume's barcode, the name people use: 1 to 8 characters of `A-Z 0-9`, as printed on the cartridge.
///
/// An ANSI label has room for six; the two further characters are the media type that libraries append (`L9`).
///
/// It takes eight bytes and no allocation: a node of the key cluster holds a million of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volser {
    /// Filled up with zeros, which come before every character of a barcode: so the bytes are in the order of the
    /// texts.
    bytes: [u8; VOLSER_LEN_MAX],
}

const VOLSER_LEN_MAX: usize = 8;

impl Volser {
    /// Checks the characters and the length.
    ///
    /// # Errors
    /// [`FormatError::Field`] if the text is not 1 to 8 of A-Z and 0-9.
    pub fn new(text: &str) -> Result<Self, FormatError> {
        let fits = (1..=VOLSER_LEN_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        if !fits {
            return Err(FormatError::Field { what: "volser", field: "characters", value: text.to_owned() });
        }
        let mut bytes = [0; VOLSER_LEN_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes })
    }

    /// The barcode as text.
    pub fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(VOLSER_LEN_MAX);
        // Nothing but ASCII was let in.
        str::from_utf8(&self.bytes[..len]).unwrap_or_default()
    }
}

impl fmt::Display for Volser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Volser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Volser {
    type Err = FormatError;
    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::new(text)
    }
}

/// Serial number that the maker gave a cartridge, as its memory tells it (attribute 0401h, SPC-4 7.4.2.4): 1 to 32
/// printable ASCII characters, no space at either end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediumSerial {
    /// Filled up with zeros.
    bytes: [u8; MEDIUM_SERIAL_LEN_MAX],
}

const MEDIUM_SERIAL_LEN_MAX: usize = 32;

impl MediumSerial {
    /// Checks the characters and the length.
    ///
    /// # Errors
    /// [`FormatError::Field`] if the text is not 1 to 32 printable ASCII characters, or begins or ends with a space.
    pub fn new(text: &str) -> Result<Self, FormatError> {
        let fits = (1..=MEDIUM_SERIAL_LEN_MAX).contains(&text.len())
            && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
            && text.trim() == text;
        if !fits {
            let value = text.chars().take(MEDIUM_SERIAL_LEN_MAX + 1).collect();
            return Err(FormatError::Field { what: "serial number of a cartridge", field: "characters", value });
        }
        let mut bytes = [0; MEDIUM_SERIAL_LEN_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes })
    }

    /// The number as text.
    pub fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(MEDIUM_SERIAL_LEN_MAX);
        // Nothing but ASCII was let in.
        str::from_utf8(&self.bytes[..len]).unwrap_or_default()
    }
}

impl fmt::Display for MediumSerial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for MediumSerial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for MediumSerial {
    type Err = FormatError;
    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::new(text)
    }
}

/// What is written as text in JSON: the form that people see, checked when it is read.
macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

macro_rules! random_u64_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = FormatError;
            fn from_str(text: &str) -> Result<Self, FormatError> {
                let wrong = || FormatError::Field { what: $what, field: "hex digits", value: text.to_owned() };
                if text.len() != 16 {
                    return Err(wrong());
                }
                u64::from_str_radix(text, 16).map(Self).map_err(|_| wrong())
            }
        }
    };
}

random_u64_id! {
    /// One life of a volume: drawn at random each time the volume is labelled, so that blocks of an earlier life are
    /// never taken for blocks of this one.
    VolumeId, "volume id"
}

random_u64_id! {
    /// One run that writes objects to one volume: drawn at random when the session is begun.
    SessionId, "session id"
}

macro_rules! sixteen_byte_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = FormatError;
            fn from_str(text: &str) -> Result<Self, FormatError> {
                let wrong = || FormatError::Field { what: $what, field: "hex digits", value: text.to_owned() };
                if text.len() != 32 || !text.is_ascii() {
                    return Err(wrong());
                }
                let mut bytes = [0; 16];
                for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                    let digits = str::from_utf8(digits).map_err(|_| wrong())?;
                    *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
                }
                Ok(Self(bytes))
            }
        }
    };
}

sixteen_byte_id! {
    /// One backup image of one source: a UUID of version 7, so that ids sort by the time they were drawn.
    ObjectId, "object id"
}

sixteen_byte_id! {
    /// The public name of a key: the first 16 bytes of HMAC-SHA-256 of `capstan key tag v1` under the key itself.
    ///
    /// It tells nothing about the key and anyone who holds the key can check that the tag is its own.
    KeyTag, "key tag"
}

as_text!(Volser, MediumSerial, VolumeId, SessionId, ObjectId, KeyTag);
