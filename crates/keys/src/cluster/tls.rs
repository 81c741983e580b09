//! TLS as a client speaks it: 1.3 alone, aws-lc-rs alone, and the cluster's authority alone.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, version};

use super::{Identity, PeerCertificate};
use crate::api::{ClusterId, PeerKind};

/// The one provider of ciphers, named wherever TLS is set up, so that no other can slip in by a default of the process.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// TLS for everything but enrolment: both sides show certificates of the same authority. The other side must be of a
/// kind that peers of this identity's kind connect to: a node for members of a key cluster, the server or a mover for
/// clients and movers of a cell, a node or the server for a user of either.
///
/// # Errors
/// What rustls says of the identity's key or certificate.
pub fn member_config(identity: &Identity) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority_der().clone())?;
    let cluster = identity.certificate().cluster;
    let expected = expected_of(identity.certificate().peer.kind);
    let verifier = PeerOfCluster { roots, cluster, expected, provider: provider() };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(vec![identity.certificate_der().clone()], identity.expose_key().clone_key())?;
    // A host's name says nothing here, so it is not sent either.
    config.enable_sni = false;
    Ok(config)
}

/// For enrolment alone: takes any certificate, since none can be known yet. The proofs inside say who is there, and
/// they are bound to this connection.
pub(super) fn stranger_config() -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody { provider: provider() }))
        .with_no_client_auth();
    config.enable_sni = false;
    Ok(config)
}

/// Which kinds of peers one of this kind connects to.
fn expected_of(kind: PeerKind) -> &'static [PeerKind] {
    match kind {
        PeerKind::Kma | PeerKind::Agent | PeerKind::KmipClient => &[PeerKind::Kma],
        // Of a key cluster or of a cell: the authority of either makes out no certificates of the other's kind.
        PeerKind::User => &[PeerKind::Kma, PeerKind::Server],
        PeerKind::Server | PeerKind::Mover | PeerKind::Client => &[PeerKind::Server, PeerKind::Mover],
    }
}

/// Takes certificates of one cluster: signed by its authority, in time, for servers, of one of the kinds that are
/// expected. The last keeps an agent or a client that was broken into from posing as a node or as the server.
#[derive(Debug)]
struct PeerOfCluster {
    roots: RootCertStore,
    cluster: ClusterId,
    expected: &'static [PeerKind],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PeerOfCluster {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        let refused = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        match PeerCertificate::read(end_entity) {
            Ok(fields) if self.expected.contains(&fields.peer.kind) && fields.cluster == self.cluster => {
                Ok(ServerCertVerified::assertion())
            }
            _ => Err(refused),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[derive(Debug)]
struct Anybody {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn only_tls13() -> Error {
    Error::General("only TLS 1.3 is spoken here".to_owned())
}
