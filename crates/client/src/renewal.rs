//! A member gets its next certificate.

use capstan_keys::api::{Base64, IssuedCertificate, RenewCertificate};
use capstan_keys::cluster::{CertificateKey, Identity, IdentityError};

use crate::server_link::ServerLink;
use crate::{ClientError, MemberState};

/// Renews the certificate over a link that the old one opened, and keeps the new identity.
pub(crate) fn renew(link: &ServerLink, state: &MemberState, now_ns: i64) -> Result<Identity, ClientError> {
    let key = CertificateKey::generate()?;
    let question = RenewCertificate { request: Base64(key.request().to_vec()) };
    let issued: IssuedCertificate = link.post("/v1/certificates/renew", &question)?;
    let identity = key.certified(&issued)?;
    // With one of another time this member would be let in nowhere, and could not even ask for the next.
    if !identity.certificate().holds(now_ns) {
        return Err(IdentityError::OtherTime.into());
    }
    identity.save(&state.identity_file())?;
    Ok(identity)
}
