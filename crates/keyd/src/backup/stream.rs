//! Bytes that pass by under a checksum and a MAC, read and written without holding them all.

use std::io::{self, Read, Write};

use aws_lc_rs::hmac;
use capstan_format::FormatError;

pub(super) const WHAT: &str = "database backup";

/// What went wrong while reading.
pub(super) enum ReadError {
    Format(FormatError),
    Io(io::Error),
}

impl From<FormatError> for ReadError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

/// What passed by so far.
pub(super) struct Passed {
    crc: u32,
    mac: hmac::Context,
    len: u64,
}

impl Passed {
    pub(super) fn new(key: &hmac::Key) -> Self {
        Self { crc: 0, mac: hmac::Context::with_key(key), len: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.crc = capstan_format::crc32c_append(self.crc, bytes);
        self.mac.update(bytes);
        self.len += bytes.len() as u64;
    }

    fn mac(&self) -> hmac::Tag {
        self.mac.clone().sign()
    }
}

/// Writes, and ends with MAC and CRC32C.
pub(super) struct Sealed<W> {
    out: W,
    passed: Passed,
}

impl<W: Write> Sealed<W> {
    pub(super) fn new(out: W, key: &hmac::Key) -> Self {
        Self { out, passed: Passed::new(key) }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.passed.add(bytes);
        self.out.write_all(bytes)
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        let mac = self.passed.mac();
        self.put(mac.as_ref())?;
        let crc = self.passed.crc;
        self.out.write_all(&crc.to_le_bytes())?;
        self.out.flush()
    }
}

/// Whether the MAC at the end was that of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Genuine,
    /// The checksum is right and the MAC is not: another key, or somebody altered it.
    Altered,
}

/// Reads what [`Sealed`] wrote, believing no length.
pub(super) struct Unsealed<R> {
    input: R,
    passed: Passed,
}

impl<R: Read> Unsealed<R> {
    pub(super) fn new(input: R, key: &hmac::Key) -> Self {
        Self { input, passed: Passed::new(key) }
    }

    pub(super) fn take(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        self.fill(bytes)?;
        self.passed.add(bytes);
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.take(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let needed = self.passed.len + bytes.len() as u64;
                ReadError::Format(FormatError::Truncated { what: WHAT, needed, found: self.passed.len })
            }
            _ => ReadError::Io(error),
        })
    }

    pub(super) fn finish(mut self) -> Result<End, ReadError> {
        let expected = self.passed.mac();
        let mac: [u8; 32] = self.array()?;
        let mut stored = [0; 4];
        self.fill(&mut stored)?;
        let (stored, computed) = (u32::from_le_bytes(stored), self.passed.crc);
        if stored != computed {
            return Err(FormatError::Checksum { what: WHAT, stored, computed }.into());
        }
        if self.input.read(&mut [0]).map_err(ReadError::Io)? != 0 {
            let (field, value) = ("bytes behind its end", "1 or more".to_owned());
            return Err(FormatError::Field { what: WHAT, field, value }.into());
        }
        let genuine = aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), &mac).is_ok();
        Ok(if genuine { End::Genuine } else { End::Altered })
    }
}
