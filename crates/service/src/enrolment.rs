//! Enrolment: how a peer gets its first certificate, and the next ones.
//!
//! ```text
//!  Enrolment     a one-time passphrase as a verifier: single use, expires                             --+
//!  Conversation  the key exchange over it, pure                                                        +--> certificate
//!  renewal       under the old certificate, from two thirds of its time                               --+
//! ```
//! What is kept of it, and where, is the program's business: it implements [`Registrar`] over its own state.

mod conversation;
mod record;
mod routes;

pub use conversation::{Conversation, Conversations, Proved, Registrar};
pub use record::{ENROLMENT_TRIES, Enrolment, EnrolmentId, EnrolmentRefusal, EnrolmentState};
pub use routes::{enrolment_routes, renewal_routes};
