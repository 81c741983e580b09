//! How a question ended, and what it was given beside its words.

use capstan_keys::Argon2Cost;
use zeroize::Zeroizing;

/// How something ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// All of it was done.
    Whole,
    /// Something was left out, and was named.
    InPart,
}

/// How an export is sealed.
pub struct Sealing {
    /// What each guess of its passphrase costs.
    pub cost: Argon2Cost,
    /// Its passphrase, where the caller has it; otherwise the file of the command line has it, or a person is asked.
    pub passphrase: Option<Zeroizing<String>>,
}

/// An error with its causes, each said once.
#[must_use]
pub fn said(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_its_error_names_already_is_not_said_again() {
        let error = anyhow::anyhow!("no such file").context("read it: no such file").context("open");
        assert_eq!(said(&error), "open: read it: no such file");
    }
}
