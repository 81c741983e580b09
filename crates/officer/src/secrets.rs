//! Secrets that people type, or that lie in files of theirs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use zeroize::Zeroizing;

/// A passphrase: from its file, whose last line break does not count, or from the terminal.
///
/// # Errors
/// The file cannot be read, or others may read it; there is no terminal; the passphrase is empty.
pub fn passphrase(prompt: &str, file: Option<&Path>) -> anyhow::Result<Zeroizing<String>> {
    let text = match file {
        Some(file) => {
            let refused = || format!("the passphrase file {} cannot be read", file.display());
            let mode = fs::metadata(file).with_context(refused)?.mode();
            ensure!(mode & 0o077 == 0, "others may read {}: `chmod 600 {0}`", file.display());
            Zeroizing::new(fs::read_to_string(file).with_context(refused)?)
        }
        None => Zeroizing::new(
            rpassword::prompt_password(format!("{prompt}: ")).context("there is no terminal to ask at: give a file")?,
        ),
    };
    let text = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
    ensure!(!text.is_empty(), "the passphrase is empty");
    Ok(text)
}

/// A passphrase that is made up now: asked for twice.
///
/// # Errors
/// As for [`passphrase`], and where the two differ.
pub fn new_passphrase(prompt: &str, file: Option<&Path>) -> anyhow::Result<Zeroizing<String>> {
    let first = passphrase(prompt, file)?;
    if file.is_none() && passphrase("again", None)? != first {
        bail!("the two differ: type it again");
    }
    Ok(first)
}
