//! How the reader of a message types a command: with `keyd`, or with `capstan keys`, which has the same families.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process is `capstan`. A process is one program, so this is not passed from hand to hand.
static IS_CAPSTAN: AtomicBool = AtomicBool::new(false);

/// Has messages of this process name commands of `capstan keys` from now on.
pub(crate) fn speak_for_capstan() {
    IS_CAPSTAN.store(true, Ordering::Relaxed);
}

/// A command that both programs have in the same words, in the quotes of a message.
pub(crate) fn command(words: &str) -> String {
    command_of(words, words)
}

/// A command that the two programs have in other words.
pub(crate) fn command_of(keyd: &str, capstan: &str) -> String {
    match IS_CAPSTAN.load(Ordering::Relaxed) {
        true => format!("`capstan keys {capstan}`"),
        false => format!("`keyd {keyd}`"),
    }
}
