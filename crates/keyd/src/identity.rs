//! Who is who: the cluster's own authority, certificates, enrolment, and what is checked on every request.
//!
//! ```text
//!  Authority    made when the cluster is; its key lies sealed under the cluster key, and is in memory while the node is unlocked
//!  Enrolment    a one-time passphrase as a verifier: single use, expires, locked after 5 tries       --+
//!  Conversation the key exchange over it, pure                                                        +--> certificate
//!  renewal      under the old certificate, from two thirds of its time                               --+
//!  Gate         asked on every request: not revoked, not expired                                  TLS --> Peer
//! ```
//! **Why no revocation lists:** every node has the cluster's state at hand. A serial number that is looked up there
//! acts on the next request, also on a connection that was open before, and nothing has to be published, signed or
//! fetched.
//!
//! **Why two doors:** members meet a TLS that asks for a certificate before a byte of theirs is parsed as HTTP.
//! Strangers who enrol come in by another port with two routes and small limits, which can be closed while no enrolment
//! is open. One port where certificates are optional would make every route's safety a matter of remembering to ask.
//!
//! A certificate holds for [`CERTIFICATE_LIFETIME_NS`]; kind and name stand in it as `capstan:agent/DRIVE1`, the
//! cluster as its organisation.

mod authority;
mod conversation;
mod enrolment;
mod gate;
mod tls;

pub use authority::{
    Authority, AuthorityError, AuthorityKey, AuthorityRecord, CERTIFICATE_LIFETIME_NS, Issued, random_serial,
};
pub use conversation::{Conversation, Conversations, Proved, Registrar};
pub use enrolment::{ENROLMENT_TRIES, Enrolment, EnrolmentId, EnrolmentRefusal, EnrolmentState};
pub use gate::{Clock, Gate, Peer, Revoked, SystemClock, TurnedAway};
pub use tls::{OldestTls, PresentedCertificate, kmip_tls, member_tls, stranger_tls};
