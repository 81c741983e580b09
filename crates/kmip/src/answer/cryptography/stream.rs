//! Encryption in parts: where it stands travels with the client.
//!
//! The Correlation Value is the state of the cipher, sealed under a key that is derived from the object's own. So a
//! node keeps nothing between two requests, nothing is lost when it stops, and any other node goes on; what a client
//! may do with it is what it may do with the key: to encrypt.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

use super::{Aes, Gcm, gcm, missing_iv};
use crate::answer::batch::uid_item;
use crate::cipher::BLOCK_LEN;
use crate::enumeration::ResultReason;
use crate::fields::Fields;
use crate::object::{KeyMaterial, ManagedObject};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag};

/// Whether a request is a part of something.
pub(super) fn asked(payload: &Item) -> Result<bool, Refused> {
    let said = |tag| Ok::<_, Refused>(payload.boolean(tag)?.unwrap_or(false));
    Ok(said(Tag::INIT_INDICATOR)? || said(Tag::FINAL_INDICATOR)? || payload.child(Tag::CORRELATION_VALUE).is_some())
}

pub(super) fn encrypt(
    object: &ManagedObject,
    material: &KeyMaterial,
    payload: &Item,
    data: &[u8],
    tag_len: usize,
) -> Result<Vec<Item>, Refused> {
    let first = payload.boolean(Tag::INIT_INDICATOR)?.unwrap_or(false);
    let last = payload.boolean(Tag::FINAL_INDICATOR)?.unwrap_or(false);
    let aes = Aes::new(material.expose())?;
    let mut cipher = match (first, payload.bytes(Tag::CORRELATION_VALUE)?) {
        (true, None) => gcm(aes, payload.bytes(Tag::IV_COUNTER_NONCE)?.ok_or_else(missing_iv)?, payload)?,
        (false, Some(correlation)) => Gcm::restore(aes, &*open(object, material, correlation)?)?,
        _ => return Err(Refused::message("the first part has the Init Indicator, the others a Correlation Value")),
    };
    if !last && !data.len().is_multiple_of(BLOCK_LEN) {
        return Err(Refused::field("every part but the last has a multiple of 16 bytes"));
    }
    let mut data = Zeroizing::new(data.to_vec());
    cipher.encrypt(&mut data)?;
    let mut response = vec![uid_item(&object.uid), Item::bytes(Tag::DATA, data.as_slice())];
    if last {
        response.push(Item::bytes(Tag::AUTHENTICATED_ENCRYPTION_TAG, &cipher.tag()?[..tag_len]));
    } else {
        response.push(Item::bytes(Tag::CORRELATION_VALUE, seal(object, material, cipher.save().as_slice())?));
    }
    Ok(response)
}

fn failed() -> Refused {
    Refused::new(ResultReason::CryptographicFailure, "sealing the Correlation Value failed")
}

fn invalid() -> Refused {
    Refused::field("the Correlation Value is none that was given out for this key")
}

struct SealingKeyLen;

impl KeyType for SealingKeyLen {
    fn len(&self) -> usize {
        32
    }
}

fn sealing_key(material: &KeyMaterial) -> Option<LessSafeKey> {
    let derived = Salt::new(HKDF_SHA256, b"capstan kmip").extract(material.expose());
    let mut key = Zeroizing::new([0; 32]);
    derived.expand(&[b"correlation value v1"], SealingKeyLen).ok()?.fill(key.as_mut_slice()).ok()?;
    Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_slice()).ok()?))
}

fn seal(object: &ManagedObject, material: &KeyMaterial, state: &[u8]) -> Result<Vec<u8>, Refused> {
    let key = sealing_key(material).ok_or_else(failed)?;
    let nonce: [u8; NONCE_LEN] = super::draw(NONCE_LEN)?.try_into().map_err(|_| failed())?;
    let mut sealed = state.to_vec();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(object.uid.as_bytes()), &mut sealed)
        .map_err(|_| failed())?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn open<const LEN: usize>(
    object: &ManagedObject,
    material: &KeyMaterial,
    correlation: &[u8],
) -> Result<Zeroizing<[u8; LEN]>, Refused> {
    let key = sealing_key(material).ok_or_else(failed)?;
    let (nonce, sealed) = correlation.split_first_chunk::<NONCE_LEN>().ok_or_else(invalid)?;
    let mut state = Zeroizing::new(sealed.to_vec());
    let aad = Aad::from(object.uid.as_bytes());
    let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut state).map_err(|_| invalid())?;
    Ok(Zeroizing::new((&*opened).try_into().map_err(|_| invalid())?))
}
