//! How the words of each version of a protocol were, for tests: whoever is of a version that is still understood says
//! them so. A change of the words that is not told by a new version number fails a test here.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;
use std::{fs, io};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message as this version says it, and whether a text is understood as a message of its type.
pub(crate) struct Word {
    name: &'static str,
    text: String,
    understands: fn(&str) -> Result<(), String>,
}

impl Word {
    pub(crate) fn of<T: Serialize + DeserializeOwned>(name: &'static str, message: &T) -> Self {
        let understands = |text: &str| match serde_json::from_str::<T>(text) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        Self { name, text: serde_json::to_string(message).unwrap(), understands }
    }
}

impl Word {
    /// Bytes that are no JSON, and whether such bytes are understood.
    pub(crate) fn of_bytes(
        name: &'static str,
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
        understands: fn(&str) -> Result<(), String>,
    ) -> Self {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        Self { name, text: bytes.iter().map(|byte| format!("{byte:02x}")).collect(), understands }
    }
}

/// The bytes that such a text stands for.
pub(crate) fn bytes_of(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Checks that the words of all versions from the oldest to this one are understood, and that those of this one are
/// as they were. With `CAPSTAN_WRITE_DOCS=1` the file of this version is written, if there is none.
pub(crate) fn check(protocol: &str, (oldest, version): (u32, u32), words: &[Word]) {
    let file = |version: u32| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("words").join(format!("{protocol}-{version}.txt"))
    };
    let text: String = words.iter().map(|Word { name, text, .. }| format!("{name} {text}\n")).collect();
    if std::env::var_os("CAPSTAN_WRITE_DOCS").is_some() && !file(version).exists() {
        fs::create_dir_all(file(version).parent().unwrap()).unwrap();
        fs::write(file(version), &text).unwrap();
    }
    for version in oldest..=version {
        let kept = fs::read_to_string(file(version)).unwrap();
        for line in kept.lines() {
            let (name, text) = line.split_once(' ').unwrap();
            let word = words.iter().find(|word| word.name == name);
            let word =
                word.unwrap_or_else(|| panic!("{name} of version {version} of {protocol} is not known any more"));
            if let Err(reason) = (word.understands)(text) {
                panic!("{name} of version {version} of {protocol} is not understood any more: {reason}");
            }
        }
    }
    let kept = fs::read_to_string(file(version)).unwrap();
    assert_eq!(text, kept, "words of {protocol} have changed: give them a new version number, and keep this file");
}
