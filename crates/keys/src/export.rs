//! A key export: keys that leave the store, sealed under a passphrase of their own.
//!
//! ```text
//!  0 22  "capstan key export v1\n"
//! 22 12  Argon2id memory in KiB, iterations, lanes
//! 34 16  salt, random
//! 50 40  the export key, random, wrapped under Argon2id of the passphrase
//! 90  4  number of keys
//! 94     each key: a record as in `record.rs`, its key wrapped under HKDF(export key, "capstan key export wrap v1")
//! .. 32  HMAC-SHA-256 of all before, under HKDF(export key, "capstan key export mac v1")
//! ..  4  CRC32C of all before
//! ```
//! HKDF-SHA-256 without a salt: the export key is random and used once. As with the store, the checksum has no key, so
//! that a damaged export is told from a wrong passphrase; the MAC tells an altered one.

mod file;

use std::collections::HashSet;

use aws_lc_rs::hmac;
use capstan_format::{Algorithm, Cursor, FormatError};
use zeroize::Zeroizing;

use crate::envelope::{WrappedKey, derive, unwrap, wrap};
use crate::fields::{checked, put_checksum};
use crate::record::StoredKey;
use crate::secret::{Secret, random};
use crate::unlock::{Argon2Cost, SALT_LEN, passphrase_key};
use crate::volume_key::VolumeKey;
use crate::{KeyError, KeyRecord, KeyState};

pub use file::{ExportPart, ExportReader, ExportWriter, open_records, records_of};

const NAME: &[u8] = b"capstan key export v";
const VERSION: u32 = 1;
const WHAT: &str = "key export";
const MAC_LEN: usize = 32;

/// A key and what is known of it, on its way from one keeper of keys to another. No `Debug`, no `Clone`.
pub struct ExportedKey {
    /// What is known of it.
    pub record: KeyRecord,
    /// Itself.
    pub key: VolumeKey,
}

/// What the keys of one export are wrapped under: random, and used for nothing else. Whoever has it needs no
/// passphrase, so that it goes from machine to machine as keys do, handed over for one request. No `Debug`, no `Clone`.
pub struct ExportKey(VolumeKey);

impl ExportKey {
    /// A new one, for one export.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the random generator fails.
    pub fn random() -> Result<Self, KeyError> {
        Ok(Self::from(VolumeKey::random(Self::ALGORITHM)?))
    }

    /// Nothing is encrypted with it but keys; its name is part of how keys travel.
    pub const ALGORITHM: Algorithm = Algorithm::Aes256Gcm;

    /// The key as it is handed over.
    pub fn key(&self) -> &VolumeKey {
        &self.0
    }
}

impl From<VolumeKey> for ExportKey {
    fn from(key: VolumeKey) -> Self {
        Self(key)
    }
}

/// A decoded export, not yet opened.
///
/// It holds nothing secret.
#[derive(Debug)]
pub struct KeyExport<'a> {
    head: Head,
    keys: Vec<StoredKey>,
    signed: &'a [u8],
    mac: &'a [u8],
}

impl<'a> KeyExport<'a> {
    /// Decodes an export: pure, bounded by the bytes given, and for any bytes at all.
    ///
    /// # Errors
    /// The bytes are cut short or go on behind their end, or a field has a value that no writer writes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, FormatError> {
        if !bytes.starts_with(NAME) {
            return Err(FormatError::Magic { what: WHAT });
        }
        let body = checked(WHAT, bytes)?;
        let mut fields = Cursor::new(WHAT, body);
        let head = Head::decode(&mut fields)?;
        let count = fields.u32()?;
        // Grows with what is there: the count is believed only as far as records follow.
        let mut keys = Vec::new();
        let mut tags = HashSet::new();
        for _ in 0..count {
            let key = StoredKey::decode(&mut fields)?;
            if matches!(key.record.state, KeyState::Generated | KeyState::Destroyed) {
                return Err(fields.field("state of an exported key", &key.record.state));
            }
            if !tags.insert(key.record.tag) {
                return Err(fields.field("key that is there twice", &key.record.tag));
            }
            keys.push(key);
        }
        let mac = fields.take(MAC_LEN)?;
        fields.end()?;
        Ok(Self { head, keys, signed: &body[..body.len() - MAC_LEN], mac })
    }

    /// [`KeyExport::decode`], with the error that tells an operator what to do.
    ///
    /// # Errors
    /// [`KeyError::Version`] if a later program wrote it; [`KeyError::ExportDamaged`] if the bytes are no export.
    pub fn read(bytes: &'a [u8]) -> Result<Self, KeyError> {
        Self::decode(bytes).map_err(|error| match error {
            FormatError::Version { found, supported, .. } => {
                KeyError::Version { what: "the key export".to_owned(), found, supported }
            }
            other => KeyError::ExportDamaged { what: other.to_string() },
        })
    }

    /// How many keys are in it.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The key that its keys are wrapped under, for whoever knows the passphrase.
    ///
    /// # Errors
    /// [`KeyError::WrongExportPassphrase`].
    pub fn export_key(&self, passphrase: &Zeroizing<String>) -> Result<ExportKey, KeyError> {
        self.head.export_key(passphrase)
    }

    /// Opens the export: checks the MAC, unwraps every key and checks it against its tag.
    ///
    /// # Errors
    /// [`KeyError::ExportDamaged`]; a key of another export shows as that, too.
    pub fn open(self, export_key: &ExportKey) -> Result<Vec<ExportedKey>, KeyError> {
        let keys = ExportKeys::new(export_key)?;
        hmac::verify(&keys.mac, self.signed, self.mac).map_err(|_| KeyError::ExportDamaged {
            what: "its seal does not match, so somebody altered it".to_owned(),
        })?;
        self.keys.into_iter().map(|key| open_one(key, &keys)).collect()
    }
}

/// Unwraps a key and checks it against its tag.
fn open_one(StoredKey { record, wrapped }: StoredKey, keys: &ExportKeys) -> Result<ExportedKey, KeyError> {
    let key = wrapped
        .and_then(|wrapped| unwrap(&keys.wrapping, &wrapped))
        .map(|secret| VolumeKey::new(secret, record.algorithm))
        .filter(|key| key.tag() == record.tag);
    let what = || format!("key {} of volume {} is not what it says", record.tag, record.volser);
    let key = key.ok_or_else(|| KeyError::ExportDamaged { what: what() })?;
    Ok(ExportedKey { record, key })
}

/// What an export begins with, before the number of its keys.
#[derive(Debug)]
struct Head {
    cost: Argon2Cost,
    salt: [u8; SALT_LEN],
    wrapped: WrappedKey,
}

impl Head {
    fn decode(fields: &mut Cursor<'_>) -> Result<Self, FormatError> {
        let none = FormatError::Magic { what: WHAT };
        if fields.take(NAME.len()).ok() != Some(NAME) {
            return Err(none);
        }
        // A version has no more digits than a number has room for.
        let mut digits = Vec::new();
        while let Ok(digit) = fields.u8()
            && digit != b'\n'
            && digits.len() <= 9
        {
            digits.push(digit);
        }
        match str::from_utf8(&digits).ok().filter(|digits| digits.len() <= 9).and_then(|text| text.parse().ok()) {
            Some(VERSION) if digits == b"1" => {}
            Some(found) => return Err(FormatError::Version { what: WHAT, found, supported: VERSION }),
            None => return Err(none),
        }
        let cost = Argon2Cost { memory_kib: fields.u32()?, iterations: fields.u32()?, lanes: fields.u32()? };
        cost.check().map_err(|error| fields.field("Argon2 parameters", &error))?;
        Ok(Self { cost, salt: fields.array()?, wrapped: fields.array()? })
    }

    fn export_key(&self, passphrase: &Zeroizing<String>) -> Result<ExportKey, KeyError> {
        let opening = passphrase_key(passphrase, self.cost, &self.salt)?;
        let secret = unwrap(&opening, &self.wrapped).ok_or(KeyError::WrongExportPassphrase)?;
        Ok(ExportKey::from(VolumeKey::new(secret, ExportKey::ALGORITHM)))
    }
}

/// The part of an export that takes no passphrase: number of keys and records, wrapped under its key. A node makes it,
/// and whoever asked puts the passphrase on it, so that neither sees what the other keeps.
///
/// # Errors
/// [`KeyError::Host`] if the cryptographic library fails.
pub fn wrap_for_export(keys: &[ExportedKey], export_key: &ExportKey) -> Result<Vec<u8>, KeyError> {
    let derived = ExportKeys::new(export_key)?;
    let count = u32::try_from(keys.len()).map_err(|error| KeyError::host("counting the keys to export", error))?;
    let mut bytes = count.to_le_bytes().to_vec();
    for ExportedKey { record, key } in keys {
        let wrapped = Some(wrap(&derived.wrapping, key.expose())?);
        StoredKey { record: record.clone(), wrapped }.encode(&mut bytes);
    }
    Ok(bytes)
}

/// An export of what [`wrap_for_export`] made: it opens with the passphrase and needs nothing else.
///
/// # Errors
/// [`KeyError::EmptyPassphrase`] and [`KeyError::Argon2`] if the passphrase or its cost is refused;
/// [`KeyError::ExportDamaged`] if `wrapped` is no such part; else the cryptographic library fails.
pub fn seal_export(
    wrapped: &[u8],
    export_key: &ExportKey,
    passphrase: &Zeroizing<String>,
    cost: Argon2Cost,
) -> Result<Vec<u8>, KeyError> {
    let derived = ExportKeys::new(export_key)?;
    let mut bytes = head(export_key, passphrase, cost)?;
    bytes.extend_from_slice(wrapped);
    let mac = hmac::sign(&derived.mac, &bytes);
    bytes.extend_from_slice(mac.as_ref());
    put_checksum(&mut bytes);
    Ok(bytes)
}

/// What [`Head::decode`] reads.
fn head(export_key: &ExportKey, passphrase: &Zeroizing<String>, cost: Argon2Cost) -> Result<Vec<u8>, KeyError> {
    let mut salt = [0; SALT_LEN];
    random(&mut salt)?;
    let mut bytes = NAME.to_vec();
    bytes.extend_from_slice(format!("{VERSION}\n").as_bytes());
    for parameter in [cost.memory_kib, cost.iterations, cost.lanes] {
        bytes.extend_from_slice(&parameter.to_le_bytes());
    }
    bytes.extend_from_slice(&salt);
    bytes.extend_from_slice(&wrap(&passphrase_key(passphrase, cost, &salt)?, export_key.key().expose())?);
    Ok(bytes)
}

struct ExportKeys {
    wrapping: Secret,
    mac: hmac::Key,
}

impl ExportKeys {
    fn new(export_key: &ExportKey) -> Result<Self, KeyError> {
        let key = |purpose| derive(export_key.key().expose(), &[], purpose);
        let mac = hmac::Key::new(hmac::HMAC_SHA256, key("capstan key export mac v1")?.expose());
        Ok(Self { wrapping: key("capstan key export wrap v1")?, mac })
    }
}

#[cfg(test)]
mod tests;
