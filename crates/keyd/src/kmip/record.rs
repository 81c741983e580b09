//! The record of an object, and its material under its key.
//!
//! ```text
//!  0   1  version, 1
//!  1  16  attempt: drawn for each attempt to commit, the same in all records of one
//! 17   4  length of the object, little-endian
//! 21   n  the object, as in `capstan_kmip::ManagedObject`
//! ..   n  its material, wrapped; nothing if it has none
//! ```

use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrapPadded};
use capstan_format::{Cursor, FormatError};
use capstan_keys::{KeyError, Secret, random};
use capstan_kmip::{KeyMaterial, ManagedObject, RecordError};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::root::ClusterKeys;

const VERSION: u8 = 1;
/// What stands before the material within the wrap.
const MATERIAL: u8 = 1;
/// What a wrap adds at most: its check value and the padding of the last 8 bytes.
const WRAP_LEN_MAX: usize = 8 + 7;

/// Why a record or its material cannot be used.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// Peer: the record is damaged, or a later program wrote it.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Peer: so is the object in it.
    #[error(transparent)]
    Object(#[from] RecordError),
    /// Peer: the record of another object.
    #[error("the record is that of object {found}: it was put where it does not belong")]
    OtherObject {
        /// What it says.
        found: String,
    },
    /// Peer: the material does not open.
    #[error("the material does not open under this cluster's key: the record was altered")]
    Material,
    /// Host: the cryptographic library failed.
    #[error("the cryptographic library could not wrap the material")]
    Wrap,
    /// Host: it failed otherwise.
    #[error(transparent)]
    Host(#[from] KeyError),
}

/// An attempt to commit a decision, told from every other: whoever lost the answer to a commit sees in the records
/// whether it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt([u8; 16]);

impl Attempt {
    /// A new one.
    pub fn random() -> Result<Self, KeyError> {
        let mut attempt = [0; 16];
        random(&mut attempt)?;
        Ok(Self(attempt))
    }
}

/// A record, taken apart.
pub struct KmipObjectRecord {
    /// The attempt that wrote it.
    pub attempt: Attempt,
    /// The object.
    pub object: ManagedObject,
    /// Its material, wrapped; empty if it has none.
    pub wrapped: Box<[u8]>,
    /// How long the whole record is.
    pub len: usize,
}

impl KmipObjectRecord {
    /// The bytes of a record, to be sealed.
    pub fn encode(attempt: Attempt, object: &ManagedObject, wrapped: &[u8]) -> Vec<u8> {
        let object = object.encode();
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&attempt.0);
        // An object has 40 KiB at most.
        bytes.extend_from_slice(&u32::try_from(object.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&object);
        bytes.extend_from_slice(wrapped);
        bytes
    }

    /// Reads the record of the object `uid`.
    pub fn decode(uid: &str, bytes: &[u8]) -> Result<Self, ObjectError> {
        let what = "KMIP object";
        let mut fields = Cursor::new(what, bytes);
        let found = fields.u8()?;
        if found != VERSION {
            return Err(FormatError::Version { what, found: found.into(), supported: VERSION.into() }.into());
        }
        let attempt = Attempt(fields.array()?);
        let len = fields.u32()? as usize;
        let object = ManagedObject::decode(fields.take(len)?)?;
        if object.uid != uid {
            return Err(ObjectError::OtherObject { found: object.uid });
        }
        let wrapped = bytes[1 + 16 + 4 + len..].into();
        Ok(Self { attempt, object, wrapped, len: bytes.len() })
    }
}

/// Wraps the material of the object `uid`.
pub(super) fn wrap(keys: &ClusterKeys, uid: &str, material: &KeyMaterial) -> Result<Box<[u8]>, ObjectError> {
    let failed = |_| ObjectError::Wrap;
    let mut plain = Zeroizing::new(Vec::with_capacity(1 + material.expose().len()));
    plain.push(MATERIAL);
    plain.extend_from_slice(material.expose());
    let mut wrapped = vec![0; plain.len() + WRAP_LEN_MAX];
    let key = AesKek::new(&AES_256, wrapping(keys, uid)?.expose()).map_err(failed)?;
    Ok((&*key.wrap_with_padding(&plain, &mut wrapped).map_err(failed)?).into())
}

/// Opens what [`wrap`] wrapped.
pub(super) fn unwrap(keys: &ClusterKeys, uid: &str, wrapped: &[u8]) -> Result<KeyMaterial, ObjectError> {
    let wrong = |_| ObjectError::Material;
    let mut plain = Zeroizing::new(vec![0; wrapped.len()]);
    let key = AesKek::new(&AES_256, wrapping(keys, uid)?.expose()).map_err(wrong)?;
    match &*key.unwrap_with_padding(wrapped, &mut plain).map_err(wrong)? {
        [MATERIAL, material @ ..] => Ok(KeyMaterial::new(material)),
        _ => Err(ObjectError::Material),
    }
}

/// Whether the material of the object `uid` opens. Nobody sees it.
pub(crate) fn opens(keys: &ClusterKeys, uid: &str, wrapped: &[u8]) -> Result<(), ObjectError> {
    unwrap(keys, uid, wrapped).map(drop)
}

fn wrapping(keys: &ClusterKeys, uid: &str) -> Result<Secret, KeyError> {
    keys.derive(&keys.cluster().0, &format!("capstan keyd kmip wrap v1 {uid}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_keys::api::ClusterId;

    use super::*;

    #[test]
    fn material_opens_as_that_of_its_object_in_its_cluster_alone() {
        let keys = ClusterKeys::create(ClusterId([1; 16])).unwrap();
        for len in [0, 1, 7, 8, 16, 32, 33, 16 << 10] {
            let material = KeyMaterial::new(&vec![0xa5; len]);
            let wrapped = wrap(&keys, "a1", &material).unwrap();
            assert_eq!(unwrap(&keys, "a1", &wrapped).unwrap().expose(), material.expose());
            assert!(unwrap(&keys, "a2", &wrapped).is_err());
            assert!(unwrap(&ClusterKeys::create(ClusterId([1; 16])).unwrap(), "a1", &wrapped).is_err());
            let mut altered = wrapped.clone();
            altered[len / 2] ^= 1;
            assert!(unwrap(&keys, "a1", &altered).is_err());
            assert!(opens(&keys, "a1", &wrapped).is_ok() && opens(&keys, "a1", &altered).is_err());
        }
    }
}
