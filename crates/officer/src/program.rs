//! How the reader of a message types a command: with `keyd`, or with `capstan keys`.

use std::ffi::OsStr;
use std::path::Path;

/// Families of commands that `capstan keys` has in the same words as `keyd`.
const IN_BOTH: [&str; 10] =
    ["agents", "audit", "backups", "groups", "pending", "policies", "quorum", "sites", "units", "users"];

/// A command of this program, in the quotes of a message. What only `keyd` has is a command of `keyd`.
pub(crate) fn command(words: &str) -> String {
    of_program(words, runs_keyd())
}

/// A command that the two programs have in other words.
pub(crate) fn command_of(keyd: &str, capstan: &str) -> String {
    if runs_keyd() { format!("`keyd {keyd}`") } else { format!("`capstan keys {capstan}`") }
}

fn of_program(words: &str, is_keyd: bool) -> String {
    let in_both = words.split(' ').next().is_some_and(|family| IN_BOTH.contains(&family));
    let program = if in_both && !is_keyd { "capstan keys" } else { "keyd" };
    format!("`{program} {words}`")
}

/// Whether this program was started as `keyd`, under its own name or by a link.
fn runs_keyd() -> bool {
    let started = std::env::args_os().next();
    let name = started.as_deref().and_then(|started| Path::new(started).file_name());
    name.is_some_and(|name| name == OsStr::new("keyd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_command_that_its_reader_has() {
        assert_eq!(of_program("pending list", true), "`keyd pending list`");
        assert_eq!(of_program("pending list", false), "`capstan keys pending list`");
        assert_eq!(of_program("keys confirm", false), "`keyd keys confirm`", "capstan has no such command");
        assert_eq!(of_program("backup", false), "`keyd backup`", "the machine of a node makes backups");
    }
}
