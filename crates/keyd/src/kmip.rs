//! The objects of KMIP clients as the cluster keeps them: records of the ledger, and what a node answers from.
//!
//! ```text
//!  kmip/UID          an object, and its material wrapped under a key of its own        kmip-client/NAME   whose objects a client sees, and by which policy
//! ```
//! [`Objects`] is the part of [`crate::state::State`] that has them: each record that is taken in goes into the index
//! with it, under the same lock and with the same mark, so that the index is right after every commit and costs one
//! object's terms. Material stays wrapped there; [`OpenObjects`] opens that of an object which is asked for.
//!
//! **Material** is wrapped by AES key wrap with padding (RFC 5649) under HKDF-SHA-256(salt = cluster id, key = cluster
//! key, info = `capstan keyd kmip wrap v1 UID`). The wrap has no nonce that could be used twice and takes any length;
//! the derivation binds it to its object. One byte, 1, stands before the material, since what is empty cannot be
//! wrapped.

mod client;
mod objects;
mod record;

pub use client::ClientRecord;
pub use objects::{Objects, OpenObjects, Usage};
pub(crate) use record::opens;
pub use record::{Attempt, KmipObjectRecord, ObjectError};
