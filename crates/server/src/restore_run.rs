//! What a restore in the queue is: asked for once, and carried out by whichever server has its turn.

use std::net::SocketAddr;

use capstan_catalog::QueuedRun;
use capstan_client::orders::OrderedRestore;
use capstan_client::restores::AskRestore;
use serde::{Deserialize, Serialize};

/// A restore that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoreRun {
    /// Whose data.
    pub(crate) of: String,
    /// Who asked.
    pub(crate) asker: Asker,
    /// From where.
    pub(crate) from: SocketAddr,
    /// What, in their words.
    pub(crate) ask: AskRestore,
    /// Where and how the client writes it; none where the client asked, and knows that itself.
    pub(crate) into: Option<OrderedRestore>,
    /// What was found by that: objects, each with paths in it where not all of it is meant.
    pub(crate) places: Vec<RestorePlace>,
    /// Volumes that are read, in their order, as it was planned.
    pub(crate) volumes: Vec<String>,
    /// How long it was thought to take.
    pub(crate) estimate_ns: u64,
}

/// An object, and paths in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestorePlace {
    /// Its whole id.
    pub(crate) object: String,
    /// Paths, with `%` and two digits for what is no plain letter.
    pub(crate) paths: Vec<String>,
}

impl RestorePlace {
    pub(crate) fn new(object: String, paths: &[Vec<u8>]) -> Self {
        Self { object, paths: paths.iter().map(|path| percent(path)).collect() }
    }

    /// The paths as they are.
    pub(crate) fn bytes(&self) -> Option<Vec<Vec<u8>>> {
        self.paths.iter().map(|path| unpercent(path)).collect()
    }
}

/// Bytes as text: a path need not be UTF-8.
fn percent(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'!'..=b'~' if byte != b'%' && byte != b'"' && byte != b'\\' => text.push(byte.into()),
            _ => text += &format!("%{byte:02x}"),
        }
    }
    text
}

fn unpercent(text: &str) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte == b'%' {
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            path.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &behind[2..];
        } else {
            path.push(byte);
        }
    }
    Some(path)
}

/// Who asked for a restore, and hears of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Asker {
    /// The client of this name, at which it was typed.
    Client(String),
    /// The user of this name.
    User(String),
}

impl RestoreRun {
    /// As the queue has it.
    ///
    /// # Errors
    /// It cannot be read; why, in words.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let cannot = |error| format!("what it restores cannot be read ({error}): cancel the run, and ask again");
        serde_json::from_str(text).map_err(cannot)
    }

    /// For the queue.
    pub(crate) fn to_text(&self) -> String {
        // Nothing in it cannot be written so.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The volume that is read first.
    pub(crate) fn first_volume(&self) -> Option<&str> {
        self.volumes.first().map(String::as_str)
    }

    /// What is restored, from which client and to which.
    pub(crate) fn in_words(&self, to: &str) -> String {
        let places = self.ask.places.join(" ");
        let into = self.into.as_ref().map(|into| format!(", {}", into.directory)).unwrap_or_default();
        if self.of == to { format!("{places} to {to}{into}") } else { format!("{places} of {} to {to}{into}", self.of) }
    }
}

/// What a run of the queue restores, in words, if it is a restore.
pub(crate) fn restored_in_words(run: &QueuedRun) -> Option<String> {
    let what = RestoreRun::of(run.restore.as_deref()?);
    Some(what.map_or_else(|fault| fault, |what| what.in_words(&run.client)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_crosses_as_text_whatever_is_in_it() {
        let paths = [b"srv/web/a b%c".to_vec(), vec![0, 255, b'"', b'\\', 10], "Stra\u{df}e".into(), Vec::new()];
        let place = RestorePlace::new("1".to_owned(), &paths);
        assert_eq!(place.paths[0], "srv/web/a%20b%25c");
        assert_eq!(place.bytes().as_deref(), Some(&paths[..]));
        let broken = RestorePlace { paths: vec!["%4".to_owned()], ..place };
        assert_eq!(broken.bytes(), None);
    }
}
