//! Who this machine is for the cluster: its key, its certificate, and the authority that it knows the nodes by.
//!
//! One PEM file that only its owner may read: `PRIVATE KEY` (PKCS#8), `CERTIFICATE` (its own), `CERTIFICATE` (the
//! authority's), so that they cannot come apart and other programs can read it. It is replaced as a whole: written
//! beside, flushed, renamed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;
use zeroize::Zeroizing;

use super::certificate::{InvalidCertificate, PeerCertificate, public_key};
use crate::api::IssuedCertificate;
use crate::key_file::sync_directory;

/// A certificate has some hundred bytes; a file that is longer than this is another one.
const FILE_LEN_MAX: u64 = 64 << 10;

/// Why there is no identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// Operator: the file is not as it must be.
    #[error("the identity file {}: {reason}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is the matter, and what to do.
        reason: String,
    },
    /// Host: the file could not be read or written.
    #[error("the identity file {} could not be read or written", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// Peer: what it sent is no certificate for this key.
    #[error("the certificate that came is for another key: enrol again")]
    OtherKey,
    /// Host, this one or the node's: a clock is wrong.
    #[error(
        "the certificate that came does not hold now: the clock of this machine is wrong, or that of the node that made it out. Set it"
    )]
    OtherTime,
    /// Peer: what it sent is no certificate.
    #[error(transparent)]
    Certificate(#[from] InvalidCertificate),
    /// Host: no key could be made.
    #[error("no key could be made for a certificate")]
    Key(#[source] rcgen::Error),
}

/// A key that waits for its certificate. No `Debug`; zeroised.
pub struct CertificateKey {
    pkcs8: Zeroizing<Vec<u8>>,
    public: Vec<u8>,
    request: Vec<u8>,
}

impl CertificateKey {
    /// A new ECDSA key on P-256 and a signing request for it, which names nobody: the authority knows who asks.
    ///
    /// # Errors
    /// [`IdentityError::Key`] if no key can be made.
    pub fn generate() -> Result<Self, IdentityError> {
        let pair = Zeroizing::new(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(IdentityError::Key)?);
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        let request = parameters.serialize_request(&*pair).map_err(IdentityError::Key)?;
        Ok(Self {
            pkcs8: Zeroizing::new(pair.serialized_der().to_vec()),
            public: pair.public_key_raw().to_vec(),
            request: request.der().to_vec(),
        })
    }

    /// The signing request (PKCS#10, DER).
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Joins the key and its certificate, if it is its certificate.
    ///
    /// # Errors
    /// [`IdentityError::OtherKey`] if the certificate is for another key; [`IdentityError::Certificate`] if it is none.
    pub fn certified(self, issued: &IssuedCertificate) -> Result<Identity, IdentityError> {
        let certificate = CertificateDer::from(issued.certificate.0.clone());
        if public_key(&certificate).as_ref() != Some(&self.public) {
            return Err(IdentityError::OtherKey);
        }
        Identity::new(self.pkcs8, certificate, CertificateDer::from(issued.authority.0.clone())).map_err(Into::into)
    }
}

/// A peer's key, certificate and authority. No `Debug`; the key is zeroised.
pub struct Identity {
    pkcs8: Zeroizing<Vec<u8>>,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
    fields: PeerCertificate,
}

impl Identity {
    fn new(
        pkcs8: Zeroizing<Vec<u8>>,
        certificate: CertificateDer<'static>,
        authority: CertificateDer<'static>,
    ) -> Result<Self, InvalidCertificate> {
        let fields = PeerCertificate::read(&certificate)?;
        Ok(Self { pkcs8, certificate, authority, fields })
    }

    /// What the certificate says.
    pub fn certificate(&self) -> &PeerCertificate {
        &self.fields
    }

    /// The certificate itself.
    pub fn certificate_der(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The authority's certificate.
    pub fn authority_der(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// The private key, for a TLS configuration and nothing else: it must not be stored, printed or sent.
    pub fn expose_key(&self) -> PrivateKeyDer<'_> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.pkcs8.as_slice()))
    }

    /// Reads the file. It must be ours or the administrator's, and nobody else's to read or write.
    ///
    /// # Errors
    /// [`IdentityError::Io`] if the file cannot be read; [`IdentityError::Unfit`] if others can read or write it, or it
    /// is no identity.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let text = read_secret_file(path)?;
        let unfit = |reason| IdentityError::Unfit { path: path.to_owned(), reason };
        Self::from_pem(&text).map_err(unfit)
    }

    /// Reads `cert.pem`, `key.pem` and `ca.pem`, as [`Identity::save_split`] wrote them; all three must be ours alone.
    ///
    /// # Errors
    /// As [`Identity::load`].
    pub fn load_split(folder: &Path) -> Result<Self, IdentityError> {
        let [key, certificate, authority] =
            ["key.pem", "cert.pem", "ca.pem"].map(|file| read_secret_file(&folder.join(file)));
        let (key, certificate, authority) = (key?, certificate?, authority?);
        // One allocation: one that grows leaves copies of the key behind.
        let mut text = Zeroizing::new(Vec::with_capacity(key.len() + certificate.len() + authority.len()));
        for part in [&key, &certificate, &authority] {
            text.extend_from_slice(part);
        }
        let unfit = |reason| IdentityError::Unfit { path: folder.to_owned(), reason };
        Self::from_pem(&text).map_err(unfit)
    }

    fn from_pem(text: &[u8]) -> Result<Self, String> {
        let (mut key, mut certificates) = (None, Vec::new());
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text) {
            let (kind, bytes) = section.map_err(|_| "it is no PEM file".to_owned())?;
            match kind {
                SectionKind::PrivateKey if key.is_none() => key = Some(Zeroizing::new(bytes)),
                SectionKind::Certificate => certificates.push(CertificateDer::from(bytes)),
                _ => return Err("it holds something that does not belong there".to_owned()),
            }
        }
        let (Some(key), Ok([own, authority])) = (key, <[_; 2]>::try_from(certificates)) else {
            return Err("it must hold a private key, a certificate, and the authority's certificate".to_owned());
        };
        let pair = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.as_slice()))
            .map_err(|_| "its private key cannot be read".to_owned())?;
        let pair = Zeroizing::new(pair);
        if public_key(&own).as_deref() != Some(pair.public_key_raw()) {
            return Err("its certificate is for another key".to_owned());
        }
        Self::new(key, own, authority).map_err(|error| error.to_string())
    }

    /// Writes the file, in place of an older one; it is on disk when this returns.
    ///
    /// # Errors
    /// [`IdentityError::Io`] if the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), IdentityError> {
        write_pem_file(path, &[self.key_section(), self.certificate_section(), self.authority_section()])
    }

    /// Writes `cert.pem`, `key.pem` and `ca.pem` into a new folder, for programs that are not ours.
    ///
    /// # Errors
    /// [`IdentityError::Io`] if the folder exists or cannot be written.
    pub fn save_split(&self, folder: &Path) -> Result<(), IdentityError> {
        let host = |source| IdentityError::Io { path: folder.to_owned(), source };
        std::fs::DirBuilder::new().mode(0o700).create(folder).map_err(host)?;
        write_pem_file(&folder.join("cert.pem"), &[self.certificate_section()])?;
        write_pem_file(&folder.join("ca.pem"), &[self.authority_section()])?;
        // The last one: whoever finds it finds the others.
        write_pem_file(&folder.join("key.pem"), &[self.key_section()])
    }

    fn key_section(&self) -> Section<'_> {
        ("PRIVATE KEY", &self.pkcs8)
    }

    fn certificate_section(&self) -> Section<'_> {
        ("CERTIFICATE", &self.certificate)
    }

    fn authority_section(&self) -> Section<'_> {
        ("CERTIFICATE", &self.authority)
    }
}

/// Whether an identity can be written there. Asked before an enrolment, which is used up by its answer.
///
/// # Errors
/// [`IdentityError::Unfit`] says why not.
pub fn check_place(path: &Path) -> Result<(), IdentityError> {
    let beside = beside(path);
    let unfit = |source: io::Error| unwritable(path, &source);
    let _ = std::fs::remove_file(&beside);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(unfit)?;
    drop(made);
    let removed = std::fs::remove_file(&beside).map_err(unfit);
    if path.is_dir() {
        return Err(IdentityError::Unfit { path: path.to_owned(), reason: "it is a folder: name a file".to_owned() });
    }
    removed
}

/// The same of a folder for three files.
///
/// # Errors
/// [`IdentityError::Unfit`] if the folder exists or cannot be made.
pub fn check_split_place(folder: &Path) -> Result<(), IdentityError> {
    let unfit = |source: io::Error| unwritable(folder, &source);
    std::fs::DirBuilder::new().mode(0o700).create(folder).map_err(unfit)?;
    std::fs::remove_dir(folder).map_err(unfit)
}

fn unwritable(path: &Path, source: &io::Error) -> IdentityError {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let reason = match source.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no folder {}: make it first. Nothing was enrolled", parent.display())
        }
        _ => format!("nothing can be written there ({source}): name another place. Nothing was enrolled"),
    };
    IdentityError::Unfit { path: path.to_owned(), reason }
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    PathBuf::from(beside)
}

/// Reads a file that is ours or the administrator's, and nobody else's to read or write.
///
/// # Errors
/// [`IdentityError::Io`] if it cannot be read; [`IdentityError::Unfit`] if it is not there, or others can read or write
/// it.
pub fn read_secret_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, IdentityError> {
    let unfit = |reason: &str| IdentityError::Unfit { path: path.to_owned(), reason: reason.to_owned() };
    let host = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => unfit("it is not there. Enrol this machine first, or name the right file"),
        _ => IdentityError::Io { path: path.to_owned(), source },
    };
    let file = File::open(path).map_err(host)?;
    let metadata = file.metadata().map_err(host)?;
    if !metadata.is_file() {
        return Err(unfit("it is no file"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(unfit(
            "others than its owner may read or write it. Run `chmod 600` on it, have its certificate revoked if \
             somebody may have read it, and enrol again",
        ));
    }
    let ours = rustix::process::geteuid().as_raw();
    if ![ours, 0].contains(&metadata.uid()) {
        return Err(unfit(
            "it belongs to somebody else: who owns it can put another key there. Use a file of your own",
        ));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(metadata.len().min(FILE_LEN_MAX) as usize + 1));
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut text).map_err(host)?;
    if text.len() as u64 > FILE_LEN_MAX {
        return Err(unfit("it is too long for an identity file"));
    }
    Ok(text)
}

/// A label, and what stands under it.
type Section<'a> = (&'static str, &'a [u8]);

/// Writes a PEM file that only its owner may read, in place of an older one; each section is a label and what stands
/// under it. It is on disk when this returns.
///
/// # Errors
/// [`IdentityError::Io`] if the file cannot be written.
pub fn write_pem_file(path: &Path, sections: &[(&'static str, &[u8])]) -> Result<(), IdentityError> {
    let host = |source| IdentityError::Io { path: path.to_owned(), source };
    let beside = beside(path);
    // What is left of a write that was interrupted; a link there must not lead us elsewhere, and `create_new` sees to
    // it.
    let _ = std::fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(host)?;
    let written = file.write_all(to_pem(sections).as_bytes()).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| std::fs::rename(&beside, path)).and_then(|()| sync_directory(path));
    renamed.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        host(error)
    })
}

fn to_pem(sections: &[Section<'_>]) -> Zeroizing<String> {
    // Base64 takes 4 bytes for 3, a line break each 64, and two lines around: twice the bytes is room for all, without
    // growing.
    let room = sections.iter().map(|(_, bytes)| bytes.len() * 2 + 100).sum();
    let mut text = Zeroizing::new(String::with_capacity(room));
    for (label, bytes) in sections {
        text.push_str(&format!("-----BEGIN {label}-----\n"));
        // 48 bytes are a line of 64 characters.
        for line in bytes.chunks(48) {
            let mut encoded = Zeroizing::new([0; 64]);
            let len = STANDARD.encode_slice(line, &mut *encoded).unwrap_or_default();
            text.extend(encoded[..len].iter().map(|byte| char::from(*byte)));
            text.push('\n');
        }
        text.push_str(&format!("-----END {label}-----\n"));
    }
    text
}
