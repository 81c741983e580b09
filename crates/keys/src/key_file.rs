//! The key file: 32 random bytes that open a store without a passphrase, for machines that start unattended.
//!
//! ```text
//! # Capstan key file v1: ... (one fixed line)
//! 72 hex digits: 32 bytes of key, then their CRC32C, little-endian
//! ```
//! Text, because people print it and type it in again; a checksum, so that a slip in typing reads as that and not as a
//! key file of another store; parsed strictly, so that there is one spelling.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use capstan_format::crc32c;
use zeroize::Zeroizing;

use crate::KeyError;
use crate::secret::{KEY_LEN, Secret};

const HEADING: &str =
    "# Capstan key file v1: it opens a key store. Keep a copy where the machine is not; show it to no one.";
const DIGITS: usize = (KEY_LEN + 4) * 2;
const FILE_LEN: usize = HEADING.len() + 1 + DIGITS + 1;

/// Makes a new key file that only its owner may read, on disk when this returns, and gives the secret in it.
///
/// # Errors
/// [`KeyError::AlreadyExists`]; a key file is never overwritten.
pub(crate) fn make(path: &Path) -> Result<Secret, KeyError> {
    let secret = Secret::random()?;
    let text = encode(&secret);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            return KeyError::AlreadyExists { path: path.to_owned() };
        }
        KeyError::host(format!("creating the key file {}", path.display()), error)
    })?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| sync_directory(path));
    if let Err(error) = written {
        // A key file that is half there would only be taken for one that works.
        let _ = std::fs::remove_file(path);
        return Err(KeyError::host(format!("writing the key file {}", path.display()), error));
    }
    Ok(secret)
}

/// Flushes the directory of `path`, so that its name is as durable as its contents.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

/// The secret in a key file.
///
/// # Errors
/// [`KeyError::KeyFile`] if it is missing or damaged, or others than its owner may read it.
pub fn read_key_file(path: &Path) -> Result<Secret, KeyError> {
    let refused = |reason: &str| KeyError::KeyFile { path: path.to_owned(), reason: reason.to_owned() };
    let host = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => refused("it is not there. Mount the medium it is on, or name the right file"),
        _ => KeyError::host(format!("reading the key file {}", path.display()), error),
    };
    let file = File::open(path).map_err(host)?;
    let metadata = file.metadata().map_err(host)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(refused(
            "others than its owner may read or write it. Run `chmod 600` on it, and make a new one if \
                            somebody may have read it",
        ));
    }
    // One byte more than it may have, and room for all of it at once, so that no growing buffer leaves copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_LEN + 1));
    file.take(FILE_LEN as u64 + 1).read_to_end(&mut text).map_err(host)?;
    decode(&text).map_err(refused)
}

fn encode(secret: &Secret) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(FILE_LEN));
    text.push_str(HEADING);
    text.push('\n');
    for byte in secret.expose().iter().copied().chain(crc32c(secret.expose()).to_le_bytes()) {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
    }
    text.push('\n');
    text
}

fn decode(text: &[u8]) -> Result<Secret, &'static str> {
    let rest = text
        .strip_prefix(HEADING.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"\n"))
        .ok_or("its first line is not that of a Capstan key file. Name the right file")?;
    let digits = rest
        .strip_suffix(b"\n")
        .filter(|digits| digits.len() == DIGITS)
        .ok_or("its second line has not 72 digits and an end of line. Use another copy of it")?;
    let mut bytes = Zeroizing::new([0; KEY_LEN + 4]);
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let nibble = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => {
                    return Err(
                        "its second line has something else than the digits 0-9 and a-f. Use another copy of it",
                    );
                }
            };
            *byte = *byte << 4 | nibble;
        }
    }
    let (key, checksum) = bytes.split_at(KEY_LEN);
    if crc32c(key).to_le_bytes() != checksum {
        return Err("its checksum is wrong, so a digit is. Compare it with another copy");
    }
    Secret::filled(|secret| {
        secret.copy_from_slice(key);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_reads_back_and_only_its_owner_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.key");
        make(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let text = std::fs::read(&path).unwrap();
        assert_eq!(text, encode(&read_key_file(&path).unwrap()).as_bytes());
        assert_eq!(text.len(), FILE_LEN);
        assert!(matches!(make(&path), Err(KeyError::AlreadyExists { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), text, "it was left as it was");
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.key");
        make(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o666] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let error = read_key_file(&path).err().unwrap().to_string();
            assert!(error.contains("chmod 600"), "{mode:o}: {error}");
        }
    }

    #[test]
    fn a_missing_key_file_says_so() {
        let error = read_key_file(Path::new("/nonexistent/store.key")).err().unwrap();
        assert!(matches!(&error, KeyError::KeyFile { reason, .. } if reason.contains("not there")), "{error}");
    }

    /// Every altered byte is a damaged key file, never another key.
    #[test]
    fn each_altered_byte_is_seen() {
        let text = encode(&Secret::random().unwrap()).as_bytes().to_vec();
        assert!(decode(&text).is_ok());
        for at in 0..text.len() {
            for flip in [1, 2, 4, 8, 16, 32, 64, 128] {
                let mut altered = text.clone();
                altered[at] ^= flip;
                assert!(decode(&altered).is_err(), "byte {at} flipped by {flip} was not seen");
            }
        }
        for len in 0..text.len() {
            assert!(decode(&text[..len]).is_err(), "cut to {len} bytes");
        }
        assert!(decode(&[&text[..], b"\n"].concat()).is_err());
    }
}
