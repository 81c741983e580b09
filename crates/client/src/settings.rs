//! What the server may ask of a client, `STATE/client.toml`, and how a mover takes part, `STATE/mover.toml`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};

use capstan_keys::api::PeerKind;
use capstan_mover::devices::LibraryConfig;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{ClientError, MemberState};

/// What a new `client.toml` says.
const CLIENT_TEXT: &str = "\
# What the server of the cell may ask this machine to do. A change takes effect when `capstan client run` starts again.

# Folders that may be backed up, as in [\"/home\", \"/srv\"]. An empty list bounds nothing: all of this machine may be.
paths = []

# Folders below which users of the cell may have something restored to this machine, as in [\"/srv/restored\"]. An empty
# list allows nothing. `capstan client restore`, typed here, needs none.
restore_to = []

# Programs that policies may have run on this machine, each with its arguments, by name.
[scripts]
# quiesce = [\"/usr/local/bin/quiesce\", \"--all\"]
";

/// What a new `mover.toml` says.
const MOVER_TEXT: &str = "\
# How this mover takes part in its cell. A change takes effect when `capstan mover run` starts again.

# Clients bring their data here: address and port.
listen = \"0.0.0.0:5703\"

# Host and port that clients are told; empty for the address that this mover comes from at the server, with the port of
# listen.
announce = \"\"

# State directory of the client of this machine, if it is to run in this process: what is backed up of it to these drives
# crosses no network. \"\" for none; stop `capstan client run` there first.
client = \"\"

# The drives of this mover, and who brings cartridges to them.
[library]
# Device of a library's changer (`capstan drives scan`); \"by hand\" for drives without one; empty for virtual cartridges.
changer = \"\"
# Drives of a real library to use; none for all that this host finds.
devices = []
# Blocks have checksums on their way to a real drive and back, where it offers that.
protect_blocks = false
# Where virtual cartridges lie, relative to the state directory, and how many virtual drives there are.
path = \"library\"
drives = 4
";

/// What the server may ask of this machine: `STATE/client.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    /// Folders that may be backed up; none for no bound.
    pub paths: Vec<PathBuf>,
    /// Folders below which users of the cell may have something restored; none if they may not.
    pub restore_to: Vec<PathBuf>,
    /// Programs that policies may have run on this machine, each with its arguments, by name.
    pub scripts: BTreeMap<String, Vec<String>>,
}

impl ClientSettings {
    /// Reads the settings of a state directory; without a file, nothing is bounded and no program is run.
    ///
    /// # Errors
    /// [`ClientError::Settings`] says what is wrong with the file.
    pub fn read(state: &Path) -> Result<Self, ClientError> {
        let path = file(state, PeerKind::Client);
        let settings: Self = read(&path)?;
        let wrong = |reason: String| ClientError::Settings { path: path.clone(), reason };
        for (key, folders) in [("paths", &settings.paths), ("restore_to", &settings.restore_to)] {
            if let Some(folder) = folders.iter().find(|folder| !is_plain(folder)) {
                let shown = folder.display();
                return Err(wrong(format!("{key}: {shown} must be an absolute path without `..`")));
            }
        }
        if let Some((name, _)) = settings.scripts.iter().find(|(_, words)| words.first().is_none_or(String::is_empty)) {
            return Err(wrong(format!("scripts.{name}: its first word is the program, and it is empty")));
        }
        Ok(settings)
    }

    /// Whether this path may be backed up. It is looked at as it is written: whoever opens it sees to links.
    pub fn permits(&self, path: &Path) -> bool {
        is_plain(path) && (self.paths.is_empty() || self.paths.iter().any(|root| path.starts_with(root)))
    }
}

/// Whether something may be restored below a directory, if it may be below these folders. It is looked at as it is
/// written: whoever writes there sees to links.
pub fn may_restore_to(folders: &[impl AsRef<Path>], directory: &Path) -> bool {
    is_plain(directory) && folders.iter().any(|folder| directory.starts_with(folder))
}

/// How a mover takes part in its cell: `STATE/mover.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MoverSettings {
    /// Where clients bring their data.
    #[serde(deserialize_with = "address_and_port")]
    pub listen: SocketAddr,
    /// Host and port that clients are told; empty for the address that the mover comes from, with the port of `listen`.
    pub announce: String,
    /// State directory of the client that runs in the same process; empty for none.
    pub client: PathBuf,
    /// Its drives.
    pub library: LibraryConfig,
}

impl Default for MoverSettings {
    fn default() -> Self {
        let library = LibraryConfig::default();
        let (announce, client) = Default::default();
        Self { listen: (Ipv4Addr::UNSPECIFIED, 5703).into(), announce, client, library }
    }
}

impl MoverSettings {
    /// Reads the settings of a state directory; without a file, they are the defaults.
    ///
    /// # Errors
    /// [`ClientError::Settings`] says what is wrong with the file.
    pub fn read(state: &Path) -> Result<Self, ClientError> {
        let path = file(state, PeerKind::Mover);
        let settings: Self = read(&path)?;
        let wrong = |reason| Err(ClientError::Settings { path: path.clone(), reason });
        let MoverSettings { announce, client, library, .. } = &settings;
        if !client.as_os_str().is_empty() && !client.is_absolute() {
            return wrong(format!("client: {} must be an absolute path", client.display()));
        }
        if !announce.is_empty() && !is_host_and_port(announce) {
            return wrong(format!("announce: {announce:?} is no host and port: write it as in tape1.example.org:5703"));
        }
        if let Err(reason) = library.check() {
            return wrong(reason);
        }
        if !library.mover.is_empty() {
            return wrong("library.mover is for the server's capstan.toml: here are the drives".to_owned());
        }
        Ok(settings)
    }

    /// Where clients reach a mover that listens at this port, as the server is told it: what is announced, or `:port`.
    pub fn data(&self, port: u16) -> String {
        if self.announce.is_empty() { format!(":{port}") } else { self.announce.clone() }
    }
}

fn address_and_port<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    let invalid = |_| D::Error::custom(format!("{text:?} is no address and port: write it as in 0.0.0.0:5703"));
    text.parse().map_err(invalid)
}

/// Whether a text is a host and a port that can be dialled, as in `tape1:5703` or `[::1]:5703`.
pub fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        !host.is_empty() && is_plain && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}

/// Writes the settings of a client or mover with their defaults, where there are none.
///
/// # Errors
/// [`ClientError::Io`] if the file cannot be written.
pub(crate) fn write_default(state: &MemberState) -> Result<(), ClientError> {
    let path = file(state.dir(), state.kind());
    let text = match state.kind() {
        PeerKind::Client => CLIENT_TEXT,
        PeerKind::Mover => MOVER_TEXT,
        // A user is asked nothing.
        _ => return Ok(()),
    };
    if path.exists() {
        return Ok(());
    }
    std::fs::write(&path, text).map_err(ClientError::io("write", &path))
}

/// Reads a file of settings; without one, they are the defaults.
fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T, ClientError> {
    let wrong = |reason: String| ClientError::Settings { path: path.to_owned(), reason };
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map_err(|error| wrong(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}

fn file(state: &Path, kind: PeerKind) -> PathBuf {
    state.join(format!("{kind}.toml"))
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
        let client = MemberState::new(state.path(), PeerKind::Client);
        write_default(&client).unwrap();
        assert_eq!(ClientSettings::read(state.path()).unwrap(), ClientSettings::default());
        std::fs::write(file(state.path(), PeerKind::Client), "paths = [\"home\"]").unwrap();
        assert!(ClientSettings::read(state.path()).unwrap_err().to_string().contains("absolute"));
    }

    #[test]
    fn the_file_of_a_mover_says_where_clients_bring_their_data() {
        let state = tempfile::tempdir().unwrap();
        let mover = MemberState::new(state.path(), PeerKind::Mover);
        assert_eq!(MoverSettings::read(state.path()).unwrap(), MoverSettings::default());
        write_default(&mover).unwrap();
        let settings = MoverSettings::read(state.path()).unwrap();
        assert_eq!((&settings, settings.data(5703).as_str()), (&MoverSettings::default(), ":5703"));
        let write = |text: &str| std::fs::write(file(state.path(), PeerKind::Mover), text).unwrap();
        write("announce = \"tape1:7003\"");
        write_default(&mover).unwrap();
        assert_eq!(MoverSettings::read(state.path()).unwrap().data(5703), "tape1:7003", "a file that is there is kept");
        for (text, answer) in [
            ("listen = \"5703\"", "\"5703\" is no address and port: write it as in 0.0.0.0:5703"),
            ("announce = \"tape1\"", "announce: \"tape1\" is no host and port"),
            ("announce = \":5703\"", "is no host and port"),
            ("client = \"client\"", "client: client must be an absolute path"),
            ("paths = []", "unknown field `paths`"),
        ] {
            write(text);
            let said = MoverSettings::read(state.path()).unwrap_err().to_string();
            assert!(said.contains(answer) && said.contains("mover.toml"), "{text}: {said}");
        }
    }
}
