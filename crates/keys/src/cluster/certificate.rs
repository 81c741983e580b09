//! What a peer's certificate says.

use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use crate::api::{ClusterId, PeerId, Serial};
use crate::dates::date;

/// What a peer's name begins with in its certificate: a URI among the alternative names, as in `capstan:agent/DRIVE1`.
pub const PEER_URI_SCHEME: &str = "capstan:";
const SECOND_NS: i64 = 1_000_000_000;

/// A certificate is none that a cluster's authority made out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the certificate was not made out by a Capstan cluster: {reason}. Enrol with the cluster that is meant")]
pub struct InvalidCertificate {
    reason: &'static str,
}

/// The fields of a certificate that decide something. Reading them proves nothing: TLS checks the signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Whose it is.
    pub peer: PeerId,
    /// The cluster that it holds in: the organisation of its subject.
    pub cluster: ClusterId,
    /// Its number.
    pub serial: Serial,
    /// From when it holds.
    pub not_before_ns: i64,
    /// Until when.
    pub not_after_ns: i64,
}

impl PeerCertificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// [`InvalidCertificate`]: it is no certificate of a peer of a key cluster.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, InvalidCertificate> {
        let invalid = |reason| InvalidCertificate { reason };
        let (rest, parsed) =
            x509_parser::parse_x509_certificate(certificate).map_err(|_| invalid("it cannot be read"))?;
        if !rest.is_empty() {
            return Err(invalid("there is something after its end"));
        }
        let mut organisations = parsed.subject().iter_organization();
        let cluster = organisations.next().and_then(|name| name.as_str().ok()?.parse().ok());
        let number = parsed.raw_serial();
        let validity = parsed.validity();
        let ns = |seconds: i64| seconds.saturating_mul(SECOND_NS);
        Ok(Self {
            peer: peer(&parsed).ok_or(invalid("it does not name one peer"))?,
            cluster: cluster.ok_or(invalid("it names no cluster"))?,
            serial: Serial(number.try_into().map_err(|_| invalid("its number has not 16 bytes"))?),
            not_before_ns: ns(validity.not_before.timestamp()),
            not_after_ns: ns(validity.not_after.timestamp()),
        })
    }

    /// Whether it holds at that time.
    pub fn holds(&self, now_ns: i64) -> bool {
        (self.not_before_ns..self.not_after_ns).contains(&now_ns)
    }

    /// When it ends, for people.
    pub fn end_text(&self) -> String {
        date(self.not_after_ns)
    }

    /// When two thirds of its time are over: from then on its holder asks for another.
    pub fn renewal_due_ns(&self) -> i64 {
        let third = (self.not_after_ns.saturating_sub(self.not_before_ns)) / 3;
        self.not_after_ns.saturating_sub(third)
    }
}

/// The one peer that the alternative names name: none is too few, and two are too many.
fn peer(certificate: &x509_parser::certificate::X509Certificate<'_>) -> Option<PeerId> {
    let names = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
        _ => None,
    })?;
    let mut peers = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(PEER_URI_SCHEME),
        _ => None,
    });
    let peer = peers.next()?.parse().ok()?;
    peers.next().is_none().then_some(peer)
}

/// The key that a certificate is for: the bytes of its public key.
pub(super) fn public_key(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.public_key().subject_public_key.data.to_vec())
}
