//! TLS as a node speaks it: 1.3 alone, aws-lc-rs alone.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use capstan_keys::cluster::{Identity, provider};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore, ServerConfig, version};

use super::Clock;
use super::gate::TlsClock;

/// The certificate that a node shows: replaced when it is renewed, without a connection being closed.
pub struct PresentedCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl PresentedCertificate {
    /// Shows this identity.
    pub fn new(identity: &Identity) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { current: RwLock::new(certified(identity)?) }))
    }

    /// Shows this one from the next connection on.
    pub fn replace(&self, identity: &Identity) -> Result<(), Error> {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = certified(identity)?;
        Ok(())
    }
}

fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, Error> {
    let key = provider().key_provider.load_private_key(identity.expose_key().clone_key())?;
    Ok(Arc::new(CertifiedKey::new(vec![identity.certificate_der().clone()], key)))
}

impl fmt::Debug for PresentedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresentedCertificate")
    }
}

impl ResolvesServerCert for PresentedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// For members: a certificate of the cluster's authority is asked for in the handshake, and there is no way past it. Sessions can be resumed
/// by ticket; who comes back with one is looked up again by the [`super::Gate`], for a ticket proves what was true when it was given.
pub fn member_tls(
    presented: Arc<PresentedCertificate>,
    authority: CertificateDer<'static>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<ServerConfig>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(TlsClock(clock)))
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(presented);
    config.ticketer = Ticketer::new()?;
    // One is enough for a client that keeps its connections, and each costs a write.
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// For strangers who enrol: no certificate is asked for, nothing is resumed.
pub fn stranger_tls(presented: Arc<PresentedCertificate>) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(presented);
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
