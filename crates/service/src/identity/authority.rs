//! The cluster's own certificate authority.
//!
//! ECDSA on P-256 throughout: a handshake costs a node a fifth of what P-384 costs, and what the authority signs lives
//! 90 days. There are no intermediate authorities: whoever has the cluster's keys has the authority anyway, so they
//! would protect nothing.

use capstan_keys::api::{ClusterId, PeerId, PeerKind, Serial};
use capstan_keys::cluster::{InvalidCertificate, PEER_URI_SCHEME, PeerCertificate};
use capstan_keys::{KeyError, random};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    SerialNumber, SignatureAlgorithm, SigningKey,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivatePkcs8KeyDer};
use thiserror::Error;
use time::OffsetDateTime;
use zeroize::Zeroizing;

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 24 * 60 * 60 * SECOND_NS;

/// How long a peer's certificate holds: 90 days, so that one that is stolen unnoticed is of use for a season at most.
pub const CERTIFICATE_LIFETIME_NS: i64 = 90 * DAY_NS;
/// How long the authority holds: as long as tapes are kept. Changing it means enrolling everybody anew.
const AUTHORITY_LIFETIME_NS: i64 = 30 * 365 * DAY_NS;
/// Peers' clocks may be this much behind a node's.
const CLOCK_SKEW_NS: i64 = 5 * 60 * SECOND_NS;
/// A signing request has some hundred bytes; one with an RSA key of 4096 bits has 1600.
const REQUEST_LEN_MAX: usize = 16 << 10;

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// Peer: the signing request cannot be read, its signature is wrong, or its key is of a kind that is not taken.
    #[error("the certificate signing request is not acceptable: make one (PKCS#10) with an ECDSA, Ed25519 or RSA key")]
    Request(#[source] rcgen::Error),
    /// Caller: a name or an address cannot stand in a certificate.
    #[error("{host:?} cannot stand in a certificate: give names and IP addresses of the node")]
    Host {
        /// What was given.
        host: String,
        /// Why not.
        #[source]
        source: rcgen::Error,
    },
    /// Caller: key and certificate of the authority do not belong together, or the certificate is none of an authority.
    #[error(
        "the authority's key and its certificate do not belong together: the cluster's state was put together from two clusters"
    )]
    Mismatch,
    /// Peer: the private key does not open under this cluster's key.
    #[error("the authority's key does not open under the cluster key: its record was altered")]
    Wrapped,
    /// Host: the cryptographic library failed.
    #[error("the authority could not sign")]
    Sign(#[source] rcgen::Error),
    /// Host: no random numbers.
    #[error(transparent)]
    Random(#[from] KeyError),
    /// Caller: the time cannot stand in a certificate.
    #[error("the clock of this node says a time that cannot be: set it")]
    Time,
    /// Host: what was made cannot be read back.
    #[error(transparent)]
    Certificate(#[from] InvalidCertificate),
}

/// The authority's private key (PKCS#8): it must only be kept wrapped or sealed. No `Debug`; zeroised.
pub struct AuthorityKey(Zeroizing<Vec<u8>>);

impl AuthorityKey {
    /// Takes what was unsealed.
    pub fn new(pkcs8: Zeroizing<Vec<u8>>) -> Self {
        Self(pkcs8)
    }

    /// The bytes, to be sealed.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

/// The authority, able to sign.
pub struct Authority {
    certificate: CertificateDer<'static>,
    cluster: ClusterId,
    issuer: Issuer<'static, Signer>,
}

/// The authority's key pair; zeroised.
struct Signer(Zeroizing<KeyPair>);

impl PublicKeyData for Signer {
    fn der_bytes(&self) -> &[u8] {
        self.0.der_bytes()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl SigningKey for Signer {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.0.sign(message)
    }
}

/// A certificate that was made out, and what it says, for the record of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
    /// What it says.
    pub fields: PeerCertificate,
}

impl Authority {
    /// The authority of a new cluster, and its key to be sealed.
    ///
    /// # Errors
    /// The cryptographic library makes no key or no certificate.
    pub fn create(cluster: ClusterId, now_ns: i64) -> Result<(Self, AuthorityKey), AuthorityError> {
        let pair = Zeroizing::new(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Sign)?);
        let mut parameters = parameters(cluster, "Capstan cluster authority", now_ns, AUTHORITY_LIFETIME_NS)?;
        parameters.serial_number = Some(SerialNumber::from_slice(&random_serial()?.0));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = parameters.self_signed(&*pair).map_err(AuthorityError::Sign)?;
        let key = AuthorityKey(Zeroizing::new(pair.serialized_der().to_vec()));
        let authority =
            Self { certificate: certificate.der().clone(), cluster, issuer: Issuer::new(parameters, Signer(pair)) };
        Ok((authority, key))
    }

    /// The authority of a cluster that was unlocked.
    ///
    /// # Errors
    /// The certificate and the key do not belong together, or cannot be read.
    pub fn open(certificate: CertificateDer<'static>, key: &AuthorityKey) -> Result<Self, AuthorityError> {
        let mismatch = |_| AuthorityError::Mismatch;
        let pair = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.expose())).map_err(mismatch)?;
        let pair = Zeroizing::new(pair);
        let cluster = {
            let (_, parsed) =
                x509_parser::parse_x509_certificate(&certificate).map_err(|_| AuthorityError::Mismatch)?;
            if parsed.public_key().subject_public_key.data != pair.public_key_raw() || !parsed.is_ca() {
                return Err(AuthorityError::Mismatch);
            }
            let organisation = parsed.subject().iter_organization().next();
            organisation.and_then(|name| name.as_str().ok()?.parse().ok()).ok_or(AuthorityError::Mismatch)?
        };
        let issuer = Issuer::from_ca_cert_der(&certificate, Signer(pair)).map_err(mismatch)?;
        Ok(Self { certificate, cluster, issuer })
    }

    /// Its certificate, which every peer knows the nodes by.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Makes out a certificate for `peer` over the key of a signing request (PKCS#10, DER). Of the request nothing
    /// counts but its key, and that it was signed with it. `hosts` are the names and addresses that clients other than
    /// ours know a node by.
    ///
    /// # Errors
    /// The request is none, is not signed by its key, or has a kind of key that is not taken.
    pub fn issue(
        &self,
        peer: &PeerId,
        hosts: &[String],
        request: &[u8],
        serial: Serial,
        now_ns: i64,
    ) -> Result<Issued, AuthorityError> {
        if request.len() > REQUEST_LEN_MAX {
            return Err(AuthorityError::Request(rcgen::Error::CouldNotParseCertificationRequest));
        }
        let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
            .map_err(AuthorityError::Request)?;
        let mut parameters = parameters(self.cluster, peer.name.as_str(), now_ns, CERTIFICATE_LIFETIME_NS)?;
        parameters.serial_number = Some(SerialNumber::from_slice(&serial.0));
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        // These are connected to.
        if matches!(peer.kind, PeerKind::Kma | PeerKind::Server | PeerKind::Mover) {
            parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let uri = format!("{PEER_URI_SCHEME}{peer}");
        let uri = uri.try_into().map_err(AuthorityError::Sign)?;
        parameters.subject_alt_names = vec![SanType::URI(uri)];
        for host in hosts {
            parameters.subject_alt_names.push(host_name(host)?);
        }
        let certificate = parameters.signed_by(&request.public_key, &self.issuer).map_err(AuthorityError::Sign)?;
        let fields = PeerCertificate::read(certificate.der())?;
        Ok(Issued { certificate: certificate.der().to_vec(), fields })
    }
}

/// A serial number: 126 random bits, under a beginning that makes it 16 bytes in every encoding.
///
/// # Errors
/// The system gives no random numbers.
pub fn random_serial() -> Result<Serial, KeyError> {
    let mut serial = Serial([0; 16]);
    random(&mut serial.0)?;
    serial.0[0] = serial.0[0] & 0x3f | 0x40;
    Ok(serial)
}

fn parameters(
    cluster: ClusterId,
    name: &str,
    now_ns: i64,
    lifetime_ns: i64,
) -> Result<CertificateParams, AuthorityError> {
    let time =
        |ns: i64| OffsetDateTime::from_unix_timestamp(ns.div_euclid(SECOND_NS)).map_err(|_| AuthorityError::Time);
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, cluster.to_string());
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.not_before = time(now_ns.saturating_sub(CLOCK_SKEW_NS))?;
    parameters.not_after = time(now_ns.saturating_add(lifetime_ns))?;
    Ok(parameters)
}

fn host_name(host: &str) -> Result<SanType, AuthorityError> {
    if let Ok(address) = host.parse() {
        return Ok(SanType::IpAddress(address));
    }
    let name = host.to_owned().try_into();
    name.map(SanType::DnsName).map_err(|source| AuthorityError::Host { host: host.to_owned(), source })
}

#[cfg(test)]
mod tests;
