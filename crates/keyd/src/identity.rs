//! The cluster's own authority, certificates, and enrolment. [`capstan_service::identity`] checks them on every
//! request.
//!
//! ```text
//!  Authority    made when the cluster is; its key lies sealed under the cluster key, and is in memory while the node is unlocked
//!  Enrolment    a one-time passphrase as a verifier: single use, expires, locked after 5 tries       --+
//!  Conversation the key exchange over it, pure                                                        +--> certificate
//!  renewal      under the old certificate, from two thirds of its time                               --+
//! ```
//! A certificate holds for [`CERTIFICATE_LIFETIME_NS`]; kind and name stand in it as `capstan:agent/DRIVE1`, the
//! cluster as its organisation.

mod authority;
mod conversation;
mod enrolment;
mod routes;

pub use authority::{
    Authority, AuthorityError, AuthorityKey, AuthorityRecord, CERTIFICATE_LIFETIME_NS, Issued, random_serial,
};
pub use conversation::{Conversation, Conversations, Proved, Registrar};
pub use enrolment::{ENROLMENT_TRIES, Enrolment, EnrolmentId, EnrolmentRefusal, EnrolmentState};
pub use routes::{enrolment_routes, renewal_routes};
