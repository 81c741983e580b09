//! The peer of a connection, and whether it is still let in: asked on every request.

use std::net::SocketAddr;
use std::sync::Arc;

use capstan_keys::api::{ClusterId, PeerId, Serial};
use capstan_keys::cluster::{InvalidCertificate, PeerCertificate};
use rustls::pki_types::CertificateDer;
use thiserror::Error;

use crate::clock::WallClock;

/// The kind of the problem that a peer with a revoked certificate is answered with.
pub const REVOKED: &str = "revoked";

/// Who is at the other end: proved by TLS, and what every handler decides by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Kind and name.
    pub id: PeerId,
    /// The number of its certificate.
    pub serial: Serial,
    /// Until when its certificate holds.
    pub not_after_ns: i64,
}

/// The serial numbers that are revoked, as the cluster's state has them at this moment. It is asked on every request,
/// so it answers from memory.
pub trait Revocations: Send + Sync + 'static {
    /// Whether this one is.
    fn is_revoked(&self, serial: &Serial) -> bool;

    /// Hears of a peer that is turned away because its certificate is, and from where it came.
    fn was_met(&self, peer: &PeerId, from: SocketAddr);
}

/// Why a peer that TLS let in is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TurnedAway {
    /// Its certificate was revoked.
    #[error("the certificate of this peer was revoked: ask a security officer to open an enrolment, and enrol again")]
    Revoked,
    /// Its certificate has expired since the connection was opened, or since the session that it resumed.
    #[error("the certificate of this peer has expired: ask a security officer to open an enrolment, and enrol again")]
    Expired,
}

/// Who is let in.
#[derive(Clone)]
pub struct Gate {
    cluster: ClusterId,
    revoked: Arc<dyn Revocations>,
    clock: WallClock,
}

impl Gate {
    /// Lets the peers of `cluster` in.
    pub fn new(cluster: ClusterId, revoked: Arc<dyn Revocations>, clock: WallClock) -> Self {
        Self { cluster, revoked, clock }
    }

    /// The peer of a certificate that TLS has verified; none if it is of another cluster.
    ///
    /// # Errors
    /// The certificate says nothing of a peer.
    pub fn peer(&self, certificate: &CertificateDer<'_>) -> Result<Option<Peer>, InvalidCertificate> {
        let PeerCertificate { peer, cluster, serial, not_after_ns, .. } = PeerCertificate::read(certificate)?;
        Ok((cluster == self.cluster).then_some(Peer { id: peer, serial, not_after_ns }))
    }

    /// Whether a peer that comes from there is still let in: to be asked on each request, not only on each connection.
    ///
    /// # Errors
    /// It is not, and why.
    pub fn admits(&self, peer: &Peer, from: SocketAddr) -> Result<(), TurnedAway> {
        if self.revoked.is_revoked(&peer.serial) {
            self.revoked.was_met(&peer.id, from);
            return Err(TurnedAway::Revoked);
        }
        if (self.clock)() >= peer.not_after_ns {
            return Err(TurnedAway::Expired);
        }
        Ok(())
    }
}
