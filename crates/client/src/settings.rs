//! What the server may ask of this machine: `STATE/client.toml`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ClientError;

/// What a new file says.
const DEFAULT_TEXT: &str = "\
# What the server of the cell may ask this machine to do. A change takes effect when `capstan client run` starts again.

# Folders that may be backed up, as in [\"/home\", \"/srv\"]; none for no bound.
paths = []

# Programs that policies may have run on this machine, each with its arguments, by name.
[scripts]
# quiesce = [\"/usr/local/bin/quiesce\", \"--all\"]
";

/// What the server may ask of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    /// Folders that may be backed up; none for no bound.
    pub paths: Vec<PathBuf>,
    /// Programs that policies may have run on this machine, each with its arguments, by name.
    pub scripts: BTreeMap<String, Vec<String>>,
}

impl ClientSettings {
    /// Reads the settings of a state directory; without a file, nothing is bounded and no program is run.
    ///
    /// # Errors
    /// [`ClientError::Settings`] says what is wrong with the file.
    pub fn read(state: &Path) -> Result<Self, ClientError> {
        let path = file(state);
        let wrong = |reason: String| ClientError::Settings { path: path.clone(), reason };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let settings: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for path in &settings.paths {
            if !is_plain(path) {
                let shown = path.display();
                return Err(wrong(format!("paths: {shown} must be an absolute path without `..`")));
            }
        }
        if let Some((name, _)) = settings.scripts.iter().find(|(_, words)| words.first().is_none_or(String::is_empty)) {
            return Err(wrong(format!("scripts.{name}: its first word is the program, and it is empty")));
        }
        Ok(settings)
    }

    /// Writes a file with the defaults, where there is none.
    ///
    /// # Errors
    /// [`ClientError::Io`] if it cannot be written.
    pub(crate) fn write_default(state: &Path) -> Result<(), ClientError> {
        let path = file(state);
        if path.exists() {
            return Ok(());
        }
        std::fs::write(&path, DEFAULT_TEXT).map_err(ClientError::io("write", &path))
    }

    /// Whether this path may be backed up. It is looked at as it is written: whoever opens it sees to links.
    pub fn permits(&self, path: &Path) -> bool {
        is_plain(path) && (self.paths.is_empty() || self.paths.iter().any(|root| path.starts_with(root)))
    }
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}

fn file(state: &Path) -> PathBuf {
    state.join("client.toml")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_path_is_permitted_below_the_folders_that_are_named() {
        let bounded = ClientSettings { paths: vec!["/home".into()], ..ClientSettings::default() };
        for (path, is_permitted) in
            [("/home", true), ("/home/ada", true), ("/homes", false), ("/home/../etc", false), ("home", false)]
        {
            assert_eq!(bounded.permits(Path::new(path)), is_permitted, "{path}");
        }
        assert!(ClientSettings::default().permits(Path::new("/etc")));
        assert!(!ClientSettings::default().permits(Path::new("../etc")));
    }

    #[test]
    fn the_file_that_is_written_first_bounds_nothing() {
        let state = tempfile::tempdir().unwrap();
        ClientSettings::write_default(state.path()).unwrap();
        assert_eq!(ClientSettings::read(state.path()).unwrap(), ClientSettings::default());
        std::fs::write(file(state.path()), "paths = [\"home\"]").unwrap();
        assert!(ClientSettings::read(state.path()).unwrap_err().to_string().contains("absolute"));
    }
}
