//! What everybody may know of a key.

use capstan_format::{Algorithm, KeyTag, Volser};

use crate::lifecycle::KeyState;

/// What is known of a key. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key's public name, which its volume carries.
    pub tag: KeyTag,
    /// The volume it was issued for.
    pub volser: Volser,
    /// The cipher it is for.
    pub algorithm: Algorithm,
    /// Where it stands in its life.
    pub state: KeyState,
    /// When it was drawn, in nanoseconds since 1970, as all times here.
    pub created_ns: i64,
    /// When the first block encrypted with it was reported to stand on the volume.
    pub activated_ns: Option<i64>,
    /// When it stopped encrypting.
    pub retired_ns: Option<i64>,
    /// When it was destroyed.
    pub destroyed_ns: Option<i64>,
    /// When it came from an export of another store, if it did.
    pub imported_ns: Option<i64>,
}
