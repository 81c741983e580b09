//! What keys do: AES in the modes of the Cryptographic Server profiles, key wrapping, HMAC and hashes.
//!
//! The ciphers are those of the cryptographic library; only the modes that it does not offer as KMIP asks for them (GCM
//! with nonces of any length, in parts) are put together here, out of its AES.

mod aes;
mod gcm;
mod hash;
mod wrap;

pub(crate) use aes::{Aes, BLOCK_LEN, pad, unpad};
pub(crate) use gcm::{Gcm, TAG_LENS};
pub(crate) use hash::{hash, mac, mac_verify};
pub(crate) use wrap::{WrapMode, wrap};
