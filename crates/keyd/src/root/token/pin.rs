//! The PIN of a token.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cryptoki::types::AuthPin;
use zeroize::Zeroizing;

use super::TokenError;

/// Longest PIN; PKCS#11 leaves it to the token, and none takes more than 255.
const LEN_MAX: usize = 255;

/// A user's PIN. No `Debug` that tells it, no `Clone`; zeroised.
pub struct Pin(AuthPin);

impl Pin {
    /// A PIN that was typed.
    pub fn new(text: &Zeroizing<String>) -> Self {
        Self(AuthPin::from(Box::<str>::from(text.as_str())))
    }

    /// The first line of a file that its owner alone may read, for machines that start unattended.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let refused = |reason: String| TokenError::PinFile { path: path.to_owned(), reason };
        let host = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => refused("it is not there. Name the right file".to_owned()),
            _ => refused(format!("{error}")),
        };
        let file = File::open(path).map_err(host)?;
        if file.metadata().map_err(host)?.mode() & 0o077 != 0 {
            return Err(refused(
                "others than its owner may read or write it. Run `chmod 600` on it, and change the PIN if \
                                somebody may have read it"
                    .to_owned(),
            ));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(LEN_MAX + 3));
        file.take(LEN_MAX as u64 + 2).read_to_end(&mut bytes).map_err(host)?;
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let line = str::from_utf8(line).unwrap_or_default();
        if line.is_empty() || line.len() > LEN_MAX || line.contains(['\n', '\r', '\0']) {
            return Err(refused(
                "it is not one line of text with a PIN. Write the PIN into it, and nothing else".to_owned(),
            ));
        }
        Ok(Self(AuthPin::from(Box::<str>::from(line))))
    }

    pub(in crate::root) fn secret(&self) -> &AuthPin {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_pin_file_is_one_line_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pin");
        let reason = |path: &Path| match Pin::read(path) {
            Err(TokenError::PinFile { reason, .. }) => reason,
            Err(error) => panic!("{error}"),
            Ok(_) => String::new(),
        };
        assert!(reason(&path).contains("not there"));
        for (text, mode, said) in [
            (&b"1234\n"[..], 0o600, ""),
            (b"1234", 0o400, ""),
            (b"1234\n", 0o640, "chmod 600"),
            (b"1234\n", 0o604, "chmod 600"),
            (b"", 0o600, "one line"),
            (b"\n", 0o600, "one line"),
            (b"12\n34\n", 0o600, "one line"),
            (b"\xff\n", 0o600, "one line"),
            (&[b'1'; 256], 0o600, "one line"),
        ] {
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let found = reason(&path);
            assert!(found.contains(said) && found.is_empty() == said.is_empty(), "{text:?} {mode:o}: {found}");
        }
    }
}
