//! The versions of the protocol that are spoken.

use crate::ttlv::{Item, Tag};

/// The versions that are spoken, the one most wished for first.
pub const VERSIONS: [Version; 7] =
    [Version::V2_1, Version::V2_0, Version::V1_4, Version::V1_3, Version::V1_2, Version::V1_1, Version::V1_0];

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Of 1.4 the 1.
    pub major: i32,
    /// Of 1.4 the 4.
    pub minor: i32,
}

impl Version {
    pub(crate) const V1_0: Self = Self { major: 1, minor: 0 };
    pub(crate) const V1_1: Self = Self { major: 1, minor: 1 };
    pub(crate) const V1_2: Self = Self { major: 1, minor: 2 };
    pub(crate) const V1_3: Self = Self { major: 1, minor: 3 };
    pub(crate) const V1_4: Self = Self { major: 1, minor: 4 };
    pub(crate) const V2_0: Self = Self { major: 2, minor: 0 };
    pub(crate) const V2_1: Self = Self { major: 2, minor: 1 };

    /// The version to answer in, where the one that was asked in is not spoken: the nearest that is.
    pub(crate) fn nearest(self) -> Self {
        if self.major >= Self::V2_0.major { Self::V2_1 } else { Self::V1_4 }
    }

    pub(crate) fn item(self) -> Item {
        let major = Item::integer(Tag::PROTOCOL_VERSION_MAJOR, self.major);
        let minor = Item::integer(Tag::PROTOCOL_VERSION_MINOR, self.minor);
        Item::structure(Tag::PROTOCOL_VERSION, vec![major, minor])
    }
}
