//! Where a mover listens for the data of clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use capstan_keys::api::{PeerId, PeerKind, Serial};
use capstan_keys::cluster::Identity;
use capstan_mover::ServedMover;
use capstan_service::identity::{Gate, Peer, PresentedCertificate, Revocations, member_tls};

use super::CellError;
use super::data::{DataDoor, DataListener, PeerStream, objection};

/// Listens for clients until it is dropped. Whoever brings or fetches data comes with a token of the server, so nobody
/// has to ask it who was revoked.
pub struct MoverListener {
    listener: DataListener,
    presented: Arc<PresentedCertificate>,
}

impl MoverListener {
    /// Opens the port. `say` is told what clients do against the protocol.
    ///
    /// # Errors
    /// [`CellError::Listen`] if it is taken; otherwise the identity is none that TLS takes.
    pub fn start(
        identity: &Identity,
        address: SocketAddr,
        now_ns: fn() -> i64,
        mover: &ServedMover,
        say: Arc<dyn Fn(String) + Send + Sync>,
    ) -> Result<Self, CellError> {
        let presented = PresentedCertificate::new(identity)?;
        let authority = identity.authority_der().clone();
        let gate = Gate::new(identity.certificate().cluster, Arc::new(TokensDecide), Arc::new(now_ns));
        let tls = member_tls(presented.clone(), authority, Arc::new(now_ns))?;
        let listener = DataListener::start(address, tls, gate, Arc::new(MoverDoor { mover: mover.clone(), say }))?;
        Ok(Self { listener, presented })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Shows another certificate from the next connection on.
    ///
    /// # Errors
    /// Its key is none that TLS can sign with.
    pub fn present(&self, identity: &Identity) -> Result<(), CellError> {
        Ok(self.presented.replace(identity)?)
    }
}

struct MoverDoor {
    mover: ServedMover,
    say: Arc<dyn Fn(String) + Send + Sync>,
}

impl DataDoor for MoverDoor {
    fn accept(&self, Peer { id, .. }: &Peer, stream: PeerStream) -> io::Result<()> {
        match id.kind {
            PeerKind::Client => {
                let served = self.mover.accept(id.name.as_str(), Box::new(stream));
                objection(id, &served).into_iter().for_each(|reason| (self.say)(reason));
                served
            }
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

struct TokensDecide;

impl Revocations for TokensDecide {
    fn is_revoked(&self, _: &Serial) -> bool {
        false
    }

    fn was_met(&self, _: &PeerId, _: SocketAddr) {}
}
