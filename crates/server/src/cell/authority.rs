//! The authority of the cell, in two files that only their owner may read.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use capstan_keys::Name;
use capstan_keys::api::{Base64, ClusterId, IssuedCertificate, PeerId, PeerKind};
use capstan_keys::cluster::{CertificateKey, Identity, read_secret_file, write_pem_file};
use capstan_keys::random;
use capstan_service::file_lock;
use capstan_service::identity::{Authority, AuthorityKey, random_serial};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use super::CellError;

/// The authority of the cell of a state directory; it is made where there is none yet.
pub(super) fn open_or_create(state: &Path, now_ns: i64) -> Result<Authority, CellError> {
    let cell = state.join("cell");
    let host = |what| move |source| CellError::Host { what, source };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&cell).map_err(host("make the folder `cell` of the state directory"))?;
    // The server and `client enrol` or `mover enrol` may come at the same time.
    let lock = file_lock::lock(&cell.join("authority.lock")).map_err(host("lock the authority of the cell"))?;
    let busy = || CellError::AuthorityFile {
        path: cell.join("authority.lock"),
        reason: "another process has it locked: try again".to_owned(),
    };
    let _lock = lock.ok_or_else(busy)?;
    let (certificate_file, key_file) = (cell.join("authority.pem"), cell.join("authority.key"));
    if !certificate_file.exists() {
        let mut id = ClusterId([0; 16]);
        random(&mut id.0)?;
        let (authority, key) = Authority::create(id, now_ns)?;
        // The certificate comes last: whoever finds it finds the key.
        write_pem_file(&key_file, &[("PRIVATE KEY", key.expose())])?;
        write_pem_file(&certificate_file, &[("CERTIFICATE", authority.certificate())])?;
        return Ok(authority);
    }
    let unfit = |path: &Path, what: &str| CellError::AuthorityFile {
        path: path.to_owned(),
        reason: format!("{what}: restore both files of the authority from a copy of the state directory"),
    };
    let certificate = CertificateDer::from_pem_slice(&read_secret_file(&certificate_file)?)
        .map_err(|_| unfit(&certificate_file, "it is no certificate"))?;
    let key = PrivatePkcs8KeyDer::from_pem_slice(&read_secret_file(&key_file)?)
        .map_err(|_| unfit(&key_file, "it is no private key"))?;
    let key = AuthorityKey::new(Zeroizing::new(key.secret_pkcs8_der().to_vec()));
    Ok(Authority::open(certificate, &key)?)
}

/// A new identity of the server.
pub(super) fn server_identity(authority: &Authority, now_ns: i64) -> Result<Identity, CellError> {
    let peer = PeerId { kind: PeerKind::Server, name: name_of(&host()) };
    let key = CertificateKey::generate()?;
    let issued = authority.issue(&peer, &[], key.request(), random_serial()?, now_ns)?;
    Ok(key.certified(&as_issued(authority, issued.certificate))?)
}

/// A certificate as a peer gets it, with the authority's.
pub(super) fn as_issued(authority: &Authority, certificate: Vec<u8>) -> IssuedCertificate {
    IssuedCertificate { certificate: Base64(certificate), authority: Base64(authority.certificate().to_vec()) }
}

/// The name of this host.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of a host as a peer's name: what may not stand there is a dash.
fn name_of(host: &str) -> Name {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let plain: String = host.chars().map(|character| if allowed(character) { character } else { '-' }).collect();
    let begins = plain.trim_start_matches(['.', '_', '-']);
    begins[..begins.len().min(63)].parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn hosts_have_names_that_certificates_take() {
        for (host, name) in
            [("tern.example.org", "tern.example.org"), ("-a b", "a-b"), ("", "default"), ("\u{e9}", "default")]
        {
            assert_eq!(name_of(host).as_str(), name, "{host:?}");
        }
        assert_eq!(name_of(&"x".repeat(80)).as_str().len(), 63);
    }

    #[test]
    fn the_authority_is_made_once_and_nobody_else_may_read_it() {
        let state = tempfile::tempdir().unwrap();
        let now_ns = 1_800_000_000_000_000_000;
        let made = open_or_create(state.path(), now_ns).unwrap();
        let opened = open_or_create(state.path(), now_ns).unwrap();
        assert_eq!((made.cluster(), made.certificate()), (opened.cluster(), opened.certificate()));
        let key = state.path().join("cell/authority.key");
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        let server = server_identity(&opened, now_ns).unwrap();
        assert_eq!(server.certificate().peer.kind, PeerKind::Server);
        std::fs::write(&key, "no key").unwrap();
        assert!(matches!(open_or_create(state.path(), now_ns), Err(CellError::AuthorityFile { .. })));
    }
}
