//! The digest of a file, as people compare it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};

/// Bytes that are read at a time.
const READ_AT_ONCE: usize = 256 << 10;

/// Reads a file to its end. Gives its length and its SHA-256, in hexadecimal.
///
/// # Errors
/// The file cannot be opened, or not be read to its end.
pub fn file_digest(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut context, mut buffer, mut bytes) = (Context::new(&SHA256), vec![0; READ_AT_ONCE], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => {
                context.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
    let hex = context.finish().as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    Ok((bytes, hex))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_file_has_the_digest_that_sha256sum_shows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "abc").unwrap();
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(file_digest(&file).unwrap(), (3, sha256.to_owned()));
        assert_eq!(file_digest(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
