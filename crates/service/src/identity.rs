//! Who is who: what a certificate of the cluster's authority says, and whether its holder is still let in.
//!
//! **Why no revocation lists:** the program has the cluster's state at hand. A serial number that is looked up there
//! acts on the next request, also on a connection that was open before, and nothing has to be published, signed or
//! fetched.
//!
//! **Why two listeners:** members meet a TLS that asks for a certificate before a byte of theirs is parsed as HTTP.
//! Whoever enrols comes in by another port with two routes and small limits, which can be closed while no enrolment is
//! open. One port where certificates are optional would make every route's safety a matter of remembering to ask.

mod gate;
mod tls;

pub use gate::{Gate, Peer, REVOKED, Revocations, TurnedAway};
pub use tls::{OldestTls, PresentedCertificate, enrolment_tls, member_tls, member_tls_from};
