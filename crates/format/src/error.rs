//! What can be wrong with bytes read from a volume.

use thiserror::Error;

/// Why bytes could not be decoded. The blame is always the medium's (or a writer's newer than this reader).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Fewer bytes than the structure needs.
    #[error("{what} is cut short: {needed} bytes needed, {found} found")]
    Truncated {
        /// The structure that was decoded.
        what: &'static str,
        /// Bytes that the structure needs at least.
        needed: u64,
        /// Bytes that were there.
        found: u64,
    },
    /// The bytes do not begin as this structure begins.
    #[error("not a {what}: its first bytes are wrong")]
    Magic {
        /// The structure that was decoded.
        what: &'static str,
    },
    /// Written by a later version of the format.
    #[error("{what} has format version {found}; this program reads up to {supported}: use a newer Capstan")]
    Version {
        /// The structure that was decoded.
        what: &'static str,
        /// The version on the volume.
        found: u32,
        /// The highest version that can be read.
        supported: u32,
    },
    /// The checksum does not match the bytes.
    #[error("checksum of {what} is wrong: stored {stored:08x}, computed {computed:08x}")]
    Checksum {
        /// The structure that was decoded.
        what: &'static str,
        /// CRC32C as stored.
        stored: u32,
        /// CRC32C of the bytes read.
        computed: u32,
    },
    /// A field holds a value that no writer writes.
    #[error("{what}: {field} has the impossible value {value}")]
    Field {
        /// The structure that was decoded.
        what: &'static str,
        /// The field's name.
        field: &'static str,
        /// The value found, as text.
        value: String,
    },
    /// Found by another process, in its words.
    #[error("{text}")]
    Reported {
        /// What is wrong.
        text: String,
        /// See [`FormatError::is_of_later_version`].
        is_later: bool,
    },
}

impl FormatError {
    /// Whether it was written by a later version, which knows what it is for.
    pub fn is_of_later_version(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::Reported { is_later: true, .. })
    }
}
