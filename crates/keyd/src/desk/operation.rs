//! What can be asked of keys.

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser};
use capstan_keys::{Agent, KeyGroup, KeyUse, KnownPolicy, Name, Policy, Revocation, StoredKey, WrappedKey};

/// A question, with all that its answer depends on beside the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What.
    pub operation: Operation,
    /// The number that whoever asks gave the question: the same number is the same question.
    pub request: [u8; 16],
    /// Who asks.
    pub by: Name,
    /// The node that is asked.
    pub kma: Name,
    /// When, in nanoseconds since 1970.
    pub now_ns: i64,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A key for a volume that is about to be written from the beginning of tape.
    Begin {
        /// The volume.
        volser: Volser,
        /// The drive, and what it may use; whoever asks for it is held to the same.
        drive: Name,
        /// The group; the drive's own where none is named.
        group: Option<Name>,
        /// The cipher.
        algorithm: Algorithm,
        /// The key of the pool that is given; none if there is none.
        draw: Option<KeyTag>,
    },
    /// The key to append to a volume with.
    Append {
        /// The volume.
        volser: Volser,
        /// The serial number of its cartridge, where that was told.
        serial: Option<MediumSerial>,
        /// The drive.
        drive: Name,
        /// The key that the volume's first block names.
        first: KeyTag,
        /// The key of the pool that is given if a new one is needed and there is one.
        draw: Option<KeyTag>,
    },
    /// The first block encrypted with a key is about to be written, or stands: it is the volume's from here on.
    Activate {
        /// The volume.
        volser: Volser,
        /// The serial number of its cartridge, where that was told.
        serial: Option<MediumSerial>,
        /// The key.
        tag: KeyTag,
    },
    /// The volume's first block was seen to name a key: the volume still is what it was begun as.
    Carried {
        /// The volume.
        volser: Volser,
        /// The serial number of its cartridge, where that was told.
        serial: Option<MediumSerial>,
        /// The key.
        first: KeyTag,
    },
    /// A volume was read on a cartridge that is not the one known as its own.
    Seen {
        /// The volume.
        volser: Volser,
        /// The serial number of that cartridge.
        serial: MediumSerial,
    },
    /// A volume was erased, or begun anew without encryption.
    End {
        /// The volume.
        volser: Volser,
        /// The serial number of its cartridge, where that was told.
        serial: Option<MediumSerial>,
        /// The newest key that it had then; none where none was known.
        last: Option<KeyTag>,
    },
    /// A key that was issued by a node that was cut off: it is taken in whatever the rules say by now, since data lie
    /// under it.
    Adopt(Box<Adopted>),
    /// A volume names a key that a lost node may have given out: it is on record from here on, and of which group is to
    /// be confirmed.
    Claim {
        /// The volume.
        volser: Volser,
        /// The key.
        tag: KeyTag,
        /// The key of the group of such keys, should that be new.
        group_key: WrappedKey,
    },
    /// Somebody says of which volume and group a key is that a lost node gave out.
    Confirm {
        /// The volume.
        volser: Volser,
        /// The key.
        tag: KeyTag,
        /// The group.
        group: Name,
    },
    /// An agent takes a key out of use.
    Revoke {
        /// The key.
        tag: KeyTag,
        /// Why.
        why: Revocation,
    },
    /// Somebody else may know a key.
    Compromise {
        /// The key.
        tag: KeyTag,
    },
    /// A key is destroyed.
    Destroy {
        /// The key.
        tag: KeyTag,
    },
    /// Keys of another store are taken in.
    Import {
        /// Their volume.
        volser: Volser,
        /// The group that they join.
        group: Name,
        /// Each under its group's key.
        keys: Vec<StoredKey>,
    },
    /// A policy is made.
    PutPolicy {
        /// All of it.
        policy: Policy,
        /// What becomes of one that is there.
        known: KnownPolicy,
    },
    /// A key group is made.
    PutGroup {
        /// The group.
        group: KeyGroup,
        /// Its key, should it be new.
        wrapped: WrappedKey,
    },
    /// An agent is told which groups it may use.
    PutAgent(Agent),
    /// A volume's keys are given out for reading until then.
    ExtendReading {
        /// The volume.
        volser: Volser,
        /// Until when, in nanoseconds since 1970.
        until_ns: i64,
    },
}

/// A key that was issued by a node that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The volume.
    pub volser: Volser,
    /// The key.
    pub tag: KeyTag,
    /// The key under its group's.
    pub wrapped: WrappedKey,
    /// Its group.
    pub group: Name,
    /// Its cipher.
    pub algorithm: Algorithm,
    /// What it was issued for.
    pub issued_for: KeyUse,
    /// When it was drawn.
    pub created_ns: i64,
}

impl Operation {
    /// The volume that is concerned, where the question names it.
    pub fn volser(&self) -> Option<&Volser> {
        match self {
            Self::Begin { volser, .. }
            | Self::Append { volser, .. }
            | Self::Activate { volser, .. }
            | Self::Import { volser, .. }
            | Self::Carried { volser, .. }
            | Self::Seen { volser, .. }
            | Self::End { volser, .. }
            | Self::Claim { volser, .. }
            | Self::Confirm { volser, .. }
            | Self::ExtendReading { volser, .. } => Some(volser),
            Self::Adopt(adopted) => Some(&adopted.volser),
            Self::Revoke { .. }
            | Self::Compromise { .. }
            | Self::Destroy { .. }
            | Self::PutPolicy { .. }
            | Self::PutGroup { .. }
            | Self::PutAgent(_) => None,
        }
    }

    /// The key that is named.
    pub fn tag(&self) -> Option<&KeyTag> {
        match self {
            Self::Append { first: tag, .. }
            | Self::Carried { first: tag, .. }
            | Self::Activate { tag, .. }
            | Self::Claim { tag, .. }
            | Self::Confirm { tag, .. }
            | Self::Revoke { tag, .. }
            | Self::Compromise { tag }
            | Self::Destroy { tag } => Some(tag),
            Self::End { last, .. } => last.as_ref(),
            Self::Adopt(adopted) => Some(&adopted.tag),
            Self::Begin { .. }
            | Self::Seen { .. }
            | Self::Import { .. }
            | Self::PutPolicy { .. }
            | Self::PutGroup { .. }
            | Self::PutAgent(_)
            | Self::ExtendReading { .. } => None,
        }
    }

    /// The same, and which key of the pool is given if a new one is needed.
    pub fn drawing(self, draw: Option<KeyTag>) -> Self {
        match self {
            Self::Begin { volser, drive, group, algorithm, .. } => {
                Self::Begin { volser, drive, group, algorithm, draw }
            }
            Self::Append { volser, serial, drive, first, .. } => Self::Append { volser, serial, drive, first, draw },
            other => other,
        }
    }

    /// Whether it may need a new key.
    pub fn may_draw(&self) -> bool {
        matches!(self, Self::Begin { .. } | Self::Append { .. })
    }

    /// Whether a node that is cut off from the majority may decide it by itself: what a drive needs to go on writing
    /// and reading. What takes away, or changes what holds for others, needs the majority.
    pub fn in_isolation(&self) -> bool {
        match self {
            Self::Begin { .. }
            | Self::Append { .. }
            | Self::Activate { .. }
            | Self::Carried { .. }
            | Self::End { .. } => true,
            Self::Adopt(_)
            | Self::Seen { .. }
            | Self::Claim { .. }
            | Self::Confirm { .. }
            | Self::Revoke { .. }
            | Self::Compromise { .. }
            | Self::Destroy { .. }
            | Self::Import { .. }
            | Self::PutPolicy { .. }
            | Self::PutGroup { .. }
            | Self::PutAgent(_)
            | Self::ExtendReading { .. } => false,
        }
    }
}
