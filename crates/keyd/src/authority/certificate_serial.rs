//! Serial numbers of certificates.

use std::fmt;

/// Bytes of a serial number, by RFC 5280, section 4.1.2.2.
const SERIAL_LEN_MAX: usize = 20;

/// The serial number that the cluster's own authority gave to a certificate: 1 to 20 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateSerial(Vec<u8>);

impl From<capstan_keys::api::Serial> for CertificateSerial {
    fn from(serial: capstan_keys::api::Serial) -> Self {
        Self(serial.0.to_vec())
    }
}

impl CertificateSerial {
    /// The serial number, big-endian as in the certificate; none if it is empty or longer than 20 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=SERIAL_LEN_MAX).contains(&bytes.len()).then(|| Self(bytes.to_vec()))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for CertificateSerial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
