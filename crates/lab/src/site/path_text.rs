//! Paths in a file that is text: what is not UTF-8 is kept as `%` and two digits, and `%` itself, too.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02x}")));
    }
    serializer.serialize_str(&text)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut bytes = Vec::new();
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| D::Error::custom(format!("{text} has a % without two digits")))?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use serde::Serialize;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Kept(#[serde(with = "super")] PathBuf);

    #[test]
    fn any_path_comes_back() {
        for name in [&b"/srv/a b"[..], b"/odd/x\xffy", b"/100%/\xc3\xa9", b"%", b""] {
            let path = PathBuf::from(OsString::from_vec(name.to_vec()));
            let text = serde_json::to_string(&Kept(path.clone())).unwrap();
            assert_eq!(serde_json::from_str::<Kept>(&text).unwrap().0, path, "{text}");
        }
        assert!(serde_json::from_str::<Kept>("\"/a%z\"").is_err());
    }
}
