//! A member gets its next certificate.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use capstan_keys::api::{Base64, IssuedCertificate, RenewCertificate};
use capstan_keys::cluster::{CertificateKey, Identity, IdentityError};

use crate::server_link::ServerLink;
use crate::{ClientError, MemberState};

/// Bytes of an identity, and more than it has.
const ROOM: usize = 16 << 10;

/// Renews the certificate over a link that the old one opened, and keeps the new identity.
pub(crate) fn renew(link: &ServerLink, state: &MemberState, now_ns: i64) -> Result<Identity, ClientError> {
    check_room(&state.identity_file())?;
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

/// Whether another identity can be kept beside the one that is there. It is asked first: the server takes whoever was
/// sent a certificate for one that has it.
fn check_room(identity: &Path) -> Result<(), ClientError> {
    let trial = identity.with_extension("trial");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&trial).and_then(|mut file| {
        file.write_all(&[0; ROOM])?;
        file.sync_all()
    });
    drop(std::fs::remove_file(&trial));
    written.map_err(|error| {
        let reason = format!(
            "the next certificate could not be kept here ({error}), so none was asked for: see that the folder can be \
             written, and that its disk is not full"
        );
        ClientError::Settings { path: identity.to_owned(), reason }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    /// A client whose disk was full was sent a certificate each minute, kept none, and ended when the old one did.
    #[test]
    fn no_certificate_is_asked_for_that_cannot_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let identity = folder.path().join("identity.pem");
        check_room(&identity).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of the trial");
        let said = check_room(&folder.path().join("gone/identity.pem")).unwrap_err().to_string();
        assert!(said.contains("so none was asked for"), "{said}");
    }
}
