//! Enrolment: how a peer gets its first certificate, and the next ones.
//!
//! ```text
//!  Enrolment     the key of a one-time passphrase, which checks the client's proof and makes the node's --+
//!                (single use, expires)                                                                    +--> certificate
//!  renewal       under the old certificate, from two thirds of its time                                 --+
//! ```
//! What is kept of it, and where, is the program's business: it implements [`Registrar`] over its own state.

mod record;
mod registrar;
mod routes;

pub use record::{ENROLMENT_TRIES, Enrolment, EnrolmentId, EnrolmentRefusal, EnrolmentState};
pub use registrar::Registrar;
pub use routes::{enrolment_routes, renewal_routes};
