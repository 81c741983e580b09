//! A root key in a token (PKCS#11): a hardware security module, or SoftHSM.
//!
//! The root key is an AES-256 key that the token makes, sensitive and not extractable; it wraps the cluster key inside
//! the token. How, is the token's choice and stands in `root.sealed`:
//! - **AES-GCM**, where the token encrypts with it: nonce (12) | ciphertext | tag (16), additional data
//!   `capstan keyd token v1` and cluster id. It binds the cluster, and the opened key is written to one place that we
//!   zeroise.
//! - **AES key wrap with padding** (`CKM_AES_KEY_WRAP_PAD`, RFC 5649) where it does not (a FIPS mode that refuses
//!   nonces of ours). The opened key is then read out as an attribute of a session object, and the library `cryptoki`
//!   leaves a copy of it in memory that it gives back without clearing: this is why it comes second.
//!
//! A module is loaded and initialised once in a process and stays until its end: unloading modules that have threads
//! and exit handlers of their own is what crashes. A session is used by one thread at a time.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use capstan_format::{Cursor, FormatError};
use capstan_keys::{KEY_LEN, KeyError, RootKey, random};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use zeroize::{Zeroize, Zeroizing};

use super::ClusterKeys;
use capstan_keys::api::ClusterId;

mod error;
mod pin;

pub use error::TokenError;
pub use pin::Pin;

const LABEL_LEN_MAX: usize = 32;
const WRAPPED_LEN_MAX: usize = 64;
const KEY_LABEL: &[u8] = b"capstan root key";
const DOMAIN: &[u8] = b"capstan keyd token v1";
const NONCE_LEN: usize = 12;
const TAG_BITS: u64 = 128;

/// How a token wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrap {
    KeyWrapPad,
    Gcm,
}

/// A cluster key that a token has wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenSealed {
    label: String,
    key_id: [u8; 16],
    wrap: Wrap,
    wrapped: Vec<u8>,
}

impl TokenSealed {
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.label.len() as u8);
        bytes.extend_from_slice(self.label.as_bytes());
        bytes.extend_from_slice(&self.key_id);
        bytes.push(match self.wrap {
            Wrap::KeyWrapPad => 1,
            Wrap::Gcm => 2,
        });
        bytes.push(self.wrapped.len() as u8);
        bytes.extend_from_slice(&self.wrapped);
    }

    pub(crate) fn decode(fields: &mut Cursor<'_>) -> Result<Self, FormatError> {
        let mut counted = |field, max: usize| {
            let len = fields.u8()?;
            if usize::from(len) > max {
                return Err(fields.field(field, &len));
            }
            fields.take(usize::from(len))
        };
        let label = counted("length of the token's label", LABEL_LEN_MAX)?;
        let label = str::from_utf8(label).map_err(|_| fields.field("label of the token", &"not UTF-8"))?.to_owned();
        let key_id = fields.array()?;
        let wrap = match fields.u8()? {
            1 => Wrap::KeyWrapPad,
            2 => Wrap::Gcm,
            other => return Err(fields.field("way of wrapping", &other)),
        };
        let len = fields.u8()?;
        if usize::from(len) > WRAPPED_LEN_MAX {
            return Err(fields.field("length of the wrapped cluster key", &len));
        }
        let wrapped = fields.take(usize::from(len))?.to_vec();
        Ok(Self { label, key_id, wrap, wrapped })
    }
}

/// A token that is logged into.
pub struct Token {
    label: String,
    wrap: Wrap,
    session: Mutex<Session>,
}

/// The modules of this process.
static MODULES: Mutex<Vec<(PathBuf, Pkcs11)>> = Mutex::new(Vec::new());

fn module(path: &Path) -> Result<Pkcs11, TokenError> {
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, module)) = modules.iter().find(|(known, _)| known == path) {
        return Ok(module.clone());
    }
    let failed = |source| TokenError::Module { module: path.to_owned(), source };
    let module = Pkcs11::new(path).map_err(failed)?;
    match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(CryptokiError::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
        Err(error) => return Err(failed(error)),
    }
    modules.push((path.to_owned(), module.clone()));
    Ok(module)
}

impl Token {
    /// Logs into the token of this label, by the module at this path.
    ///
    /// A token counts wrong PINs and locks itself: this tries once.
    pub fn open(module_path: &Path, label: &str, pin: &Pin) -> Result<Self, TokenError> {
        let module = module(module_path)?;
        let slot = find(&module, module_path, label)?;
        let failed = |error| TokenError::classify(label, error);
        let wrap = choose(&module, slot, label)?;
        let session = module.open_rw_session(slot).map_err(failed)?;
        match session.login(UserType::User, Some(pin.secret())) {
            // A login is the process's, not the session's.
            Ok(()) | Err(CryptokiError::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(Self { label: label.to_owned(), wrap, session: Mutex::new(session) })
    }

    /// Makes a root key in the token, and wraps a cluster key under it. Opens it again before it is believed.
    pub(crate) fn seal(&self, keys: &ClusterKeys) -> Result<TokenSealed, TokenError> {
        match self.seal_by(self.wrap, keys) {
            // Some tokens list a cipher and refuse nonces that are not theirs.
            Err(TokenError::Refused { .. }) if self.wrap == Wrap::Gcm => self.seal_by(Wrap::KeyWrapPad, keys),
            outcome => outcome,
        }
    }

    fn seal_by(&self, wrap: Wrap, keys: &ClusterKeys) -> Result<TokenSealed, TokenError> {
        let mut key_id = [0; 16];
        random(&mut key_id)?;
        {
            let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            let root = self.made(session.generate_key(&Mechanism::AesKeyGen, &root_template(wrap, key_id)))?;
            let wrapped = match wrap {
                Wrap::KeyWrapPad => self.key_wrap(&session, root, keys.key()),
                Wrap::Gcm => self.encrypt(&session, root, keys),
            };
            let wrapped = match wrapped {
                Ok(wrapped) if wrapped.len() <= WRAPPED_LEN_MAX => wrapped,
                outcome => {
                    // A root key that wraps nothing is only in the way.
                    let _ = session.destroy_object(root);
                    outcome?;
                    return Err(TokenError::altered(&self.label));
                }
            };
            drop(session);
            let sealed = TokenSealed { label: self.label.clone(), key_id, wrap, wrapped };
            let again = self.open_key(&sealed, keys.cluster())?;
            if again.expose() != keys.key().expose() {
                return Err(TokenError::altered(&self.label));
            }
            Ok(sealed)
        }
    }

    /// The keys of a cluster, unwrapped in the token.
    pub(crate) fn unseal(&self, sealed: &TokenSealed, cluster: ClusterId) -> Result<ClusterKeys, TokenError> {
        Ok(ClusterKeys::new(self.open_key(sealed, cluster)?, cluster))
    }

    fn open_key(&self, sealed: &TokenSealed, cluster: ClusterId) -> Result<RootKey, TokenError> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let template =
            [Attribute::Class(ObjectClass::SECRET_KEY), Attribute::Token(true), Attribute::Id(sealed.key_id.to_vec())];
        let found = self.made(session.find_objects(&template))?;
        let &[root] = &found[..] else {
            // Some modules answer a token that was pulled out with an empty list.
            self.made(session.get_session_info())?;
            return Err(TokenError::KeyMissing { token: self.label.clone(), expected: sealed.label.clone() });
        };
        let value = match sealed.wrap {
            Wrap::KeyWrapPad => self.key_unwrap(&session, root, &sealed.wrapped)?,
            Wrap::Gcm => self.decrypt(&session, root, &sealed.wrapped, cluster)?,
        };
        let value: &[u8; KEY_LEN] = value[..].try_into().map_err(|_| TokenError::altered(&self.label))?;
        Ok(RootKey::filled(|bytes| {
            bytes.copy_from_slice(value);
            Ok::<(), KeyError>(())
        })?)
    }

    fn encrypt(&self, session: &Session, root: ObjectHandle, keys: &ClusterKeys) -> Result<Vec<u8>, TokenError> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce)?;
        let (mut given, bound) = (nonce, [DOMAIN, &keys.cluster().0].concat());
        let parameters = self.made(GcmParams::new(&mut given, &bound, TAG_BITS.into()))?;
        let sealed = self.made(session.encrypt(&Mechanism::AesGcm(parameters), root, keys.key().expose()))?;
        Ok([&nonce[..], &sealed].concat())
    }

    fn decrypt(
        &self,
        session: &Session,
        root: ObjectHandle,
        wrapped: &[u8],
        cluster: ClusterId,
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        let Some((nonce, sealed)) = wrapped.split_first_chunk::<NONCE_LEN>() else {
            return Err(TokenError::altered(&self.label));
        };
        let (mut given, bound) = (*nonce, [DOMAIN, &cluster.0].concat());
        let parameters = self.made(GcmParams::new(&mut given, &bound, TAG_BITS.into()))?;
        self.made(session.decrypt(&Mechanism::AesGcm(parameters), root, sealed)).map(Zeroizing::new)
    }

    fn key_wrap(&self, session: &Session, root: ObjectHandle, key: &RootKey) -> Result<Vec<u8>, TokenError> {
        let mut template = session_key_template();
        template.push(Attribute::Value(key.expose().to_vec()));
        let object = session.create_object(&template);
        if let Some(Attribute::Value(value)) = template.last_mut() {
            value.zeroize();
        }
        let object = self.made(object)?;
        let wrapped = session.wrap_key(&Mechanism::AesKeyWrapPad, root, object);
        let destroyed = session.destroy_object(object);
        let wrapped = self.made(wrapped)?;
        self.made(destroyed)?;
        Ok(wrapped)
    }

    fn key_unwrap(
        &self,
        session: &Session,
        root: ObjectHandle,
        wrapped: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        let object =
            self.made(session.unwrap_key(&Mechanism::AesKeyWrapPad, root, wrapped, &session_key_template()))?;
        let values = session.get_attributes(object, &[AttributeType::Value]);
        let destroyed = session.destroy_object(object);
        let value = self.made(values)?.into_iter().find_map(|attribute| match attribute {
            Attribute::Value(value) => Some(Zeroizing::new(value)),
            _ => None,
        });
        self.made(destroyed)?;
        value.ok_or_else(|| TokenError::altered(&self.label))
    }

    fn made<T>(&self, outcome: Result<T, CryptokiError>) -> Result<T, TokenError> {
        outcome.map_err(|error| TokenError::classify(&self.label, error))
    }
}

/// The slot of the one token with this label.
fn find(module: &Pkcs11, path: &Path, label: &str) -> Result<Slot, TokenError> {
    let failed = |source| TokenError::Module { module: path.to_owned(), source };
    let mut labels = Vec::new();
    let mut found = Vec::new();
    for slot in module.get_slots_with_token().map_err(failed)? {
        // A reader whose card is pulled out in this moment is no reason not to look at the others.
        let Ok(info) = module.get_token_info(slot) else { continue };
        if !info.token_initialized() {
            continue;
        }
        if info.label() == label {
            found.push(slot);
        }
        labels.push(info.label().to_owned());
    }
    match found[..] {
        [slot] => Ok(slot),
        [] if labels.is_empty() => Err(TokenError::NoToken { module: path.to_owned(), label: label.to_owned() }),
        [] => Err(TokenError::NoSuchToken { label: label.to_owned(), found: labels.join(", ") }),
        _ => Err(TokenError::SameLabel { label: label.to_owned() }),
    }
}

fn choose(module: &Pkcs11, slot: Slot, label: &str) -> Result<Wrap, TokenError> {
    let failed = |error| TokenError::classify(label, error);
    let mechanisms = module.get_mechanism_list(slot).map_err(failed)?;
    if mechanisms.contains(&MechanismType::AES_GCM) {
        let info = module.get_mechanism_info(slot, MechanismType::AES_GCM).map_err(failed)?;
        if info.encrypt() && info.decrypt() {
            return Ok(Wrap::Gcm);
        }
    }
    if mechanisms.contains(&MechanismType::AES_KEY_WRAP_PAD) {
        return Ok(Wrap::KeyWrapPad);
    }
    Err(TokenError::CannotWrap { label: label.to_owned() })
}

/// The root key may do what it is for and nothing else: many tokens refuse a key that both wraps and encrypts, and
/// rightly.
fn root_template(wrap: Wrap, id: [u8; 16]) -> Vec<Attribute> {
    let (wraps, encrypts) = (wrap == Wrap::KeyWrapPad, wrap == Wrap::Gcm);
    vec![
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::AES),
        Attribute::ValueLen((KEY_LEN as u64).into()),
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Wrap(wraps),
        Attribute::Unwrap(wraps),
        Attribute::Encrypt(encrypts),
        Attribute::Decrypt(encrypts),
        Attribute::Sign(false),
        Attribute::Verify(false),
        Attribute::Label(KEY_LABEL.to_vec()),
        Attribute::Id(id.to_vec()),
    ]
}

fn session_key_template() -> Vec<Attribute> {
    vec![
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::AES),
        Attribute::Token(false),
        Attribute::Private(true),
        Attribute::Sensitive(false),
        Attribute::Extractable(true),
    ]
}

#[cfg(test)]
mod tests;
