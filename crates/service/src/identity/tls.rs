//! TLS as a listener speaks it: 1.3 alone, or 1.2 too where an operator allows it to old clients; aws-lc-rs alone.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use capstan_keys::cluster::{Identity, provider};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{Error, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use serde::{Deserialize, Serialize};

use crate::clock::WallClock;

/// A clock of ours, as TLS asks for one.
struct TlsClock(WallClock);

impl fmt::Debug for TlsClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClock")
    }
}

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = u64::try_from((self.0)()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(now)))
    }
}

/// The certificate that this process shows: replaced when it is renewed, without a connection being closed.
pub struct PresentedCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl PresentedCertificate {
    /// Shows this identity.
    ///
    /// # Errors
    /// Its key is not one that TLS can sign with.
    pub fn new(identity: &Identity) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { current: RwLock::new(certified(identity)?) }))
    }

    /// Shows this one from the next connection on.
    ///
    /// # Errors
    /// Its key is not one that TLS can sign with.
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

/// The oldest TLS that a listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OldestTls {
    /// What every other listener takes too.
    #[default]
    #[serde(rename = "1.3")]
    V1_3,
    /// With ECDHE and AEAD suites alone. Who listens reads the names in the certificates, which 1.3 hides.
    #[serde(rename = "1.2")]
    V1_2,
}

/// For members: a certificate of the cluster's authority is asked for in the handshake, and there is no way past it.
/// Sessions can be resumed by ticket; who comes back with one is looked up again by the [`super::Gate`], for a ticket
/// proves what was true when it was given.
///
/// # Errors
/// The certificates or the key are not what TLS takes.
pub fn member_tls(
    presented: Arc<PresentedCertificate>,
    authority: CertificateDer<'static>,
    clock: WallClock,
) -> Result<Arc<ServerConfig>, Error> {
    let mut config = for_members(presented, authority, clock, &[&version::TLS13])?;
    config.ticketer = Ticketer::new()?;
    // One is enough for a client that keeps its connections, and each costs a write.
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// For clients that others have made: as for members, and for libraries and arrays that have nothing newer, TLS 1.2
/// where an operator allows it.
///
/// Nothing is resumed then. A session of 1.2 that is resumed is bound to its first handshake by an extension (RFC 7627)
/// that just those old clients do not have; and one configuration has one rule for both versions.
///
/// # Errors
/// What rustls says, of the authority's certificate above all.
pub fn member_tls_from(
    presented: Arc<PresentedCertificate>,
    authority: CertificateDer<'static>,
    clock: WallClock,
    oldest: OldestTls,
) -> Result<Arc<ServerConfig>, Error> {
    match oldest {
        OldestTls::V1_3 => member_tls(presented, authority, clock),
        OldestTls::V1_2 => {
            let mut config = for_members(presented, authority, clock, &[&version::TLS13, &version::TLS12])?;
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Ok(Arc::new(config))
        }
    }
}

fn for_members(
    presented: Arc<PresentedCertificate>,
    authority: CertificateDer<'static>,
    clock: WallClock,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ServerConfig, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    Ok(ServerConfig::builder_with_details(provider(), Arc::new(TlsClock(clock)))
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(presented))
}

/// For whoever enrols: no certificate is asked for, nothing is resumed.
///
/// # Errors
/// What rustls says.
pub fn enrolment_tls(presented: Arc<PresentedCertificate>) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(presented);
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
