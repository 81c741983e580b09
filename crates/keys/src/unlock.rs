//! What opens a store: a passphrase, through Argon2id, or a key file, through HKDF.

use std::path::Path;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::{Zeroize, Zeroizing};

use crate::KeyError;
use crate::envelope::derive;
use crate::key_file::{self, read_key_file};
use crate::secret::{KEY_LEN, Secret};

/// Bytes of a salt.
pub const SALT_LEN: usize = 16;

/// Highest memory of one derivation: 4 GiB.
const MEMORY_KIB_MAX: u32 = 4 * 1024 * 1024;
/// Most lanes.
const LANES_MAX: u32 = 64;
/// Most memory times iterations: 16 GiB filled, some ten seconds. A store read from disk cannot ask for more.
const WORK_KIB_MAX: u64 = 16 * 1024 * 1024;

/// How much work one guess of a passphrase costs: the parameters of Argon2id (RFC 9106).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory that one derivation fills.
    pub memory_kib: u32,
    /// How often it is filled.
    pub iterations: u32,
    /// Lanes it is filled in; one machine's guess runs them one after the other.
    pub lanes: u32,
}

impl Default for Argon2Cost {
    /// The second recommended choice of RFC 9106, section 4: 64 MiB, three iterations, four lanes.
    ///
    /// The first, 2 GiB, would leave no room for the block pool of a small mover each time a command opens the store.
    fn default() -> Self {
        Self { memory_kib: 64 * 1024, iterations: 3, lanes: 4 }
    }
}

impl Argon2Cost {
    /// Whether a derivation with these parameters would be refused: for those who read parameters from a file.
    ///
    /// # Errors
    /// [`KeyError::Argon2`] says which limit.
    pub fn within_limits(self) -> Result<(), KeyError> {
        self.check().map(drop)
    }

    /// Checks the limits, which hold for parameters from a caller and for those read from a file.
    pub(crate) fn check(self) -> Result<Params, KeyError> {
        let Self { memory_kib, iterations, lanes } = self;
        let refused = |reason: String| Err(KeyError::Argon2 { reason });
        if memory_kib > MEMORY_KIB_MAX {
            return refused(format!("memory of {memory_kib} KiB is above the limit of {MEMORY_KIB_MAX}"));
        }
        if lanes > LANES_MAX {
            return refused(format!("{lanes} lanes are above the limit of {LANES_MAX}"));
        }
        let work_kib = u64::from(memory_kib) * u64::from(iterations);
        if work_kib > WORK_KIB_MAX {
            return refused(format!("memory times iterations, {work_kib} KiB, is above the limit of {WORK_KIB_MAX}"));
        }
        Params::new(memory_kib, iterations, lanes, Some(KEY_LEN)).or_else(|error| refused(error.to_string()))
    }
}

/// What opens a store. It holds a secret: it has no `Debug` and no `Clone`, and zeroises itself.
pub struct Unlock(Kind);

enum Kind {
    Passphrase(Zeroizing<String>),
    KeyFile(Secret),
}

/// The kind of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// Opened by a passphrase, through Argon2id.
    Passphrase,
    /// Opened by a key file, through HKDF.
    KeyFile,
}

impl SlotKind {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passphrase => "passphrase",
            Self::KeyFile => "key file",
        }
    }
}

/// How a slot makes its wrapping key out of the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Derivation {
    Argon2id(Argon2Cost),
    Hkdf,
}

impl Derivation {
    pub(crate) fn kind(self) -> SlotKind {
        match self {
            Self::Argon2id(_) => SlotKind::Passphrase,
            Self::Hkdf => SlotKind::KeyFile,
        }
    }
}

impl Unlock {
    /// A passphrase, taken as the bytes it has in UTF-8. An empty one opens nothing and protects nothing.
    pub fn passphrase(passphrase: Zeroizing<String>) -> Self {
        Self(Kind::Passphrase(passphrase))
    }

    /// A key file, read now.
    ///
    /// # Errors
    /// [`KeyError::KeyFile`] if it is missing or damaged, or others than its owner may read it.
    pub fn key_file(path: &Path) -> Result<Self, KeyError> {
        Ok(Self::key_file_secret(read_key_file(path)?))
    }

    fn key_file_secret(secret: Secret) -> Self {
        Self(Kind::KeyFile(secret))
    }

    pub(crate) fn kind(&self) -> SlotKind {
        match &self.0 {
            Kind::Passphrase(_) => SlotKind::Passphrase,
            Kind::KeyFile(_) => SlotKind::KeyFile,
        }
    }

    /// How a new slot for this secret derives its key.
    pub(crate) fn derivation(&self, cost: Argon2Cost) -> Derivation {
        match &self.0 {
            Kind::Passphrase(_) => Derivation::Argon2id(cost),
            Kind::KeyFile(_) => Derivation::Hkdf,
        }
    }

    /// The wrapping key of a slot, or none if the slot is of the other kind.
    pub(crate) fn wrapping_key(
        &self,
        derivation: Derivation,
        salt: &[u8; SALT_LEN],
    ) -> Result<Option<Secret>, KeyError> {
        match (&self.0, derivation) {
            (Kind::Passphrase(passphrase), Derivation::Argon2id(cost)) => {
                passphrase_key(passphrase, cost, salt).map(Some)
            }
            (Kind::KeyFile(secret), Derivation::Hkdf) => {
                derive(secret.expose(), salt, "capstan key store key file v1").map(Some)
            }
            (Kind::Passphrase(_), Derivation::Hkdf) | (Kind::KeyFile(_), Derivation::Argon2id(_)) => Ok(None),
        }
    }
}

/// Argon2id of a passphrase: some tenths of a second, and as much memory as `cost` says.
///
/// # Errors
/// An empty passphrase, parameters outside the limits, or too little memory.
pub fn passphrase_key(
    passphrase: &Zeroizing<String>,
    cost: Argon2Cost,
    salt: &[u8; SALT_LEN],
) -> Result<Secret, KeyError> {
    let parameters = cost.check()?;
    if passphrase.is_empty() {
        return Err(KeyError::EmptyPassphrase);
    }
    // Allocated here rather than by the library, so that too little memory is an error and so that it is zeroised.
    let mut memory = Vec::new();
    let what = || format!("reserving the {} KiB of memory that the passphrase's key derivation needs", cost.memory_kib);
    memory.try_reserve_exact(parameters.block_count()).map_err(|error| KeyError::host(what(), error))?;
    memory.resize(parameters.block_count(), Block::new());
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters);
    let key = Secret::filled(|key| {
        argon2.hash_password_into_with_memory(passphrase.as_bytes(), salt, key, memory.as_mut_slice())
    });
    memory.zeroize();
    key.map_err(|error| KeyError::host("deriving a key from the passphrase", error.to_string()))
}

/// Makes a new key file that only its owner may read, on disk when this returns, and gives what it opens with.
///
/// # Errors
/// [`KeyError::AlreadyExists`]; a key file is never overwritten.
pub fn create_key_file(path: &Path) -> Result<Unlock, KeyError> {
    key_file::make(path).map(Unlock::key_file_secret)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::time::Instant;

    use super::*;

    fn passphrase(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    /// Value from another implementation: OpenSSL's, by way of Python's `cryptography`.
    #[test]
    fn it_is_argon2id() {
        let cost = Argon2Cost { memory_kib: 1024, iterations: 2, lanes: 4 };
        let key = passphrase_key(&passphrase("password"), cost, b"somesaltsomesalt").unwrap();
        let hex: String = key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "41d149ca71825f08e61ec006d2aada40c2fbb4003e9578363a64f6b3282590ad");
    }

    #[test]
    fn a_default_guess_is_dear() {
        let default = Argon2Cost::default();
        assert!(u64::from(default.memory_kib) * u64::from(default.iterations) >= 3 * 64 * 1024, "RFC 9106, section 4");
        let begun = Instant::now();
        passphrase_key(&passphrase("guess"), default, &[0; SALT_LEN]).unwrap();
        let took = begun.elapsed();
        println!("one default derivation took {took:?}");
        // 192 MiB written and read cannot be had for less on any machine: memory of 40 GB/s would need 10 ms.
        assert!(took.as_millis() >= 10, "a guess took only {took:?}");
    }

    #[test]
    fn limits_hold() {
        let cost = |memory_kib, iterations, lanes| Argon2Cost { memory_kib, iterations, lanes };
        for fits in [cost(8, 1, 1), cost(4 << 20, 4, 4), Argon2Cost::default()] {
            assert!(fits.check().is_ok(), "{fits:?}");
        }
        for beyond in [
            cost((4 << 20) + 1, 1, 1),
            cost(4 << 20, 5, 1),
            cost(u32::MAX, u32::MAX, u32::MAX),
            cost(1 << 20, 1, 65),
            cost(7, 1, 1),
            cost(8, 0, 1),
            cost(8, 1, 0),
            cost(8, 1, 2),
        ] {
            assert!(matches!(beyond.check(), Err(KeyError::Argon2 { .. })), "{beyond:?}");
        }
    }

    #[test]
    fn an_empty_passphrase_is_refused() {
        let key = passphrase_key(&passphrase(""), Argon2Cost::default(), &[0; SALT_LEN]);
        assert!(matches!(key, Err(KeyError::EmptyPassphrase)));
    }
}
