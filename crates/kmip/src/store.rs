//! The boundary to whoever keeps the objects: what a decision reads, and what it wants changed.
//!
//! ```text
//! answer(request, requester, store, now) --reads--> ObjectStore
//!         '--> Decided { response, changes, notes } --commit changes--> send the response
//!                                                   '-- conflict ----> answer() again
//! ```
//! A decision changes nothing. Its changes name the version that they rest on, so that whoever commits them does so by
//! compare-and-set, all or none, before the response leaves; on a conflict the request is decided anew on what is there
//! then.

use std::sync::Arc;

use thiserror::Error;

use crate::enumeration::{Operation, ResultReason};
use crate::object::{KeyMaterial, ManagedObject};
use crate::term::Term;

/// An object as a store has it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The object.
    pub object: Arc<ManagedObject>,
    /// The version that a change of it must expect, the revision of its record.
    pub version: i64,
}

/// The material of an object cannot be had, though it was not destroyed: a key above it is locked, or a record is
/// damaged.
#[derive(Debug, Error)]
#[error("the material of {uid} cannot be unwrapped: unlock the node, or take the record from another node")]
pub struct MaterialUnavailable {
    /// Of which object.
    pub uid: String,
    /// What went wrong.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// What decisions read.
///
/// Every read of one decision must see the same moment: a store is not changed while a decision borrows it.
pub trait ObjectStore {
    /// The object with this Unique Identifier, destroyed ones too.
    fn find(&self, uid: &str) -> Option<Stored>;

    /// The material of an object, or `None` if it has none (a template, or what was destroyed).
    ///
    /// # Errors
    /// [`MaterialUnavailable`] if a key above it is locked, or its record is damaged.
    fn material(&self, uid: &str) -> Result<Option<Arc<KeyMaterial>>, MaterialUnavailable>;

    /// Shows every object of a domain that has all the terms and is not destroyed; others may be shown with them. Terms
    /// are what an index is for: this must not look at objects that have none of them.
    fn visit(&self, domain: &str, terms: &[Term], visitor: &mut dyn FnMut(&Stored));
}

/// Something that is to be changed.
pub enum ObjectChange {
    /// A new object; there must be none with its Unique Identifier.
    Insert {
        /// The object.
        object: Arc<ManagedObject>,
        /// Its material, if it has any.
        material: Option<Arc<KeyMaterial>>,
    },
    /// An object with other attributes or in another state; its material stays.
    Replace {
        /// What it is to be.
        object: Arc<ManagedObject>,
        /// The version that it must have.
        expected: i64,
    },
    /// An object whose material is to be destroyed; what is known of it stays.
    Destroy {
        /// What it is to be.
        object: Arc<ManagedObject>,
        /// The version that it must have.
        expected: i64,
    },
}

impl ObjectChange {
    /// The object as it is to be.
    pub fn object(&self) -> &Arc<ManagedObject> {
        match self {
            Self::Insert { object, .. } | Self::Replace { object, .. } | Self::Destroy { object, .. } => object,
        }
    }
}

/// What was done, for the audit log: never anything secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedAct {
    /// The operation, or `None` when it could not be read.
    pub operation: Option<Operation>,
    /// The objects that it was about.
    pub uids: Vec<String>,
    /// Whether it was done, or why not.
    pub outcome: Result<(), ResultReason>,
}
