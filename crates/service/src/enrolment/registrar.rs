//! What enrolment and renewal need of a cluster's state.

use capstan_keys::api::{IssuedCertificate, PeerId, Problem};
use futures_util::future::BoxFuture;

use super::{Enrolment, EnrolmentId};
use crate::audit::AuditOrigin;
use crate::identity::Peer;

/// What enrolment and renewal need of the cluster's state. The program keeps it; nothing is answered before it says
/// so. What it does, and for whom from where, it notes in the audit log.
pub trait Registrar: Send + Sync + 'static {
    /// Finds the enrolment of `peer` and takes a try off it ([`Enrolment::take_try`]); the majority has that on disk
    /// when this returns.
    ///
    /// # Errors
    /// There is no such enrolment, it is over, or it is tried too often.
    fn take_try<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<Enrolment, Problem>>;

    /// Puts on record that a try came to nothing: whoever made it did not know the passphrase of `peer`.
    ///
    /// # Errors
    /// It cannot be put on record.
    fn not_proved<'a>(&'a self, peer: &'a PeerId, from: AuditOrigin) -> BoxFuture<'a, Result<(), Problem>>;

    /// Uses the enrolment `proved` of `peer` up ([`Enrolment::use_up`]), unless another took its place meanwhile, and
    /// makes out a certificate over the key of `request`, in one transaction.
    ///
    /// # Errors
    /// The enrolment is over or was replaced, or nothing can be put on record.
    fn admit<'a>(
        &'a self,
        peer: &'a PeerId,
        proved: EnrolmentId,
        request: &'a [u8],
        from: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>>;

    /// Makes out another certificate for a peer that has one.
    ///
    /// # Errors
    /// The certificate was revoked or holds for long enough, or nothing can be put on record.
    fn renew<'a>(
        &'a self,
        peer: &'a Peer,
        request: &'a [u8],
        from: AuditOrigin,
    ) -> BoxFuture<'a, Result<IssuedCertificate, Problem>>;
}
