//! Who is who: the cluster's own authority, what its certificates say, and whether their holders are still let in.
//!
//! **Why no revocation lists:** the program has the cluster's state at hand. A serial number that is looked up there
//! acts on the next request, also on a connection that was open before, and nothing has to be published, signed or
//! fetched.
//!
//! **Why two listeners:** members meet a TLS that asks for a certificate before a byte of theirs is parsed as HTTP.
//! Whoever enrols comes in by another port with two routes and small limits, which can be closed while no enrolment is
//! open. One port where certificates are optional would make every route's safety a matter of remembering to ask.
//!
//! A certificate holds for [`CERTIFICATE_LIFETIME_NS`]; kind and name stand in it as `capstan:agent/DRIVE1`, the
//! cluster as its organisation.

mod authority;
mod gate;
mod tls;

pub use authority::{Authority, AuthorityError, AuthorityKey, CERTIFICATE_LIFETIME_NS, Issued, random_serial};
pub use gate::{Gate, Peer, REVOKED, Revocations, TurnedAway};
pub use tls::{OldestTls, PresentedCertificate, enrolment_tls, member_tls, member_tls_from};
