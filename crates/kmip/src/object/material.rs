//! The secret part of a managed object.

use aws_lc_rs::{digest, rand};
use zeroize::Zeroizing;

/// The bytes of a key, a password or an opaque object: on the heap, zeroised when dropped.
///
/// It has no `Debug`, `Display` or `Clone`, and whoever stores it wraps it first:
/// ```compile_fail
/// fn printed(key: capstan_kmip::KeyMaterial) -> String { format!("{key:?}") }
/// ```
pub struct KeyMaterial(Zeroizing<Vec<u8>>);

impl KeyMaterial {
    /// A copy of `bytes`, which the caller zeroises.
    pub fn new(bytes: &[u8]) -> Self {
        // Exactly as large as needed, so that it never moves.
        let mut copy = Zeroizing::new(Vec::with_capacity(bytes.len()));
        copy.extend_from_slice(bytes);
        Self(copy)
    }

    /// `len` bytes from the random generator, or `None` if that fails.
    pub(crate) fn random(len: usize) -> Option<Self> {
        let mut bytes = Zeroizing::new(vec![0; len]);
        rand::fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// With its bytes written anew by `change`.
    pub(crate) fn changed(mut self, change: impl Fn(u8) -> u8) -> Self {
        self.0.iter_mut().for_each(|byte| *byte = change(*byte));
        self
    }

    /// The bytes; they must not be copied anywhere that is not zeroised.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// SHA-256 of it, for the Digest attribute.
    pub(crate) fn sha256(&self) -> Vec<u8> {
        digest::digest(&digest::SHA256, &self.0).as_ref().to_vec()
    }
}
