//! The settings file of a state directory, `capstan.toml`.
//!
//! Every setting has a default; the file that `init` writes names them all and says what each does, so that a person
//! sees what can be changed. What is unknown, out of bounds or contradicts itself is named with its line.

mod bandwidth;
mod care;
mod job;
mod lists;
mod network;
mod put;
mod tell;
mod text;
mod timing;
mod unit;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_format::BLOCK_HEADER_LEN;
use capstan_keys::cluster::ClusterPlace;
use capstan_mover::devices::LibraryConfig;
use capstan_schedule::CalendarEvent;
use serde::{Deserialize, Serialize};

use crate::DirectorError;
use crate::limits::EARLY_WARNING_SHARE_MAX;

pub use bandwidth::Bandwidth;
pub(crate) use care::{VaultRule, check_vault};
pub(crate) use job::Wrong;
pub use job::{JobConfig, JobLevel, MANUAL, StageWhen, parse_age};
pub use network::{NetworkConfig, NetworkRuns, NetworkShare};
pub use tell::{MailConfig, MailSecurity, TellEvent, TellRule};
pub(crate) use text::{fault_of, in_plain_words};
pub use timing::PolicyTiming;
pub use unit::{StorageUnit, UnitConfig};

/// What `capstan.toml` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The machine that sources are of, as objects name it; empty for the host's name. Who renames a host, or goes on
    /// on another machine, writes the old name here: an incremental then stands on what is there.
    pub client: String,
    /// The main library.
    pub library: LibraryConfig,
    /// The data path.
    pub data: DataConfig,
    /// Where keys come from.
    pub keys: KeysConfig,
    /// Where the server of a cell listens.
    pub server: ServerConfig,
    /// What `status` calls to attention.
    pub attention: AttentionConfig,
    /// Further libraries, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub libraries: BTreeMap<String, LibraryConfig>,
    /// Storage units, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, UnitConfig>,
    /// Networks that clients are in, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<String, NetworkConfig>,
    /// Backups that have a name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub jobs: BTreeMap<String, JobConfig>,
    /// Programs that policies may have run on this machine, each with its arguments, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scripts: BTreeMap<String, Vec<String>>,
    /// How mail is sent; `None` if no rule sends any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail: Option<MailConfig>,
    /// Whom the server tells what, by the names of rules.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tell: BTreeMap<String, TellRule>,
}

/// What `status` calls to attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttentionConfig {
    /// A volume that was not verified for this many days; 0 for none.
    pub verify_days: u32,
    /// A source whose last backup is older than this many hours; 0 for none.
    pub backup_hours: u32,
    /// A volume that was labelled this many days ago, and whose key is in no export; 0 for none.
    pub export_days: u32,
    /// A library of a cell with fewer volumes than this that a pool could take next; 0 for none.
    pub scratch_volumes: u32,
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self { verify_days: 0, backup_hours: 0, export_days: 7, scratch_volumes: 2 }
    }
}

/// Where keys come from: the sealed store of this machine, or a cluster of key nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeysConfig {
    /// Nodes of a cluster, host and port, as many as are known: one that answers tells of the others. None for the
    /// sealed store.
    pub nodes: Vec<String>,
    /// Who this machine is for the cluster: the file that enrolment made. Relative to the state directory.
    pub identity: PathBuf,
    /// The site whose nodes are asked first; empty for none.
    pub site: String,
}

impl KeysConfig {
    /// Whether a cluster keeps the keys; then no passphrase opens anything here.
    pub fn is_cluster(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Where the cluster is, if one keeps the keys.
    pub fn cluster(&self, dir: &Path) -> Option<ClusterPlace> {
        let place =
            || ClusterPlace { identity: dir.join(&self.identity), nodes: self.nodes.clone(), site: self.site.clone() };
        self.is_cluster().then(place)
    }

    fn check(&self) -> Result<(), String> {
        if self.is_cluster() == self.identity.as_os_str().is_empty() {
            return Err(
                "keys.nodes and keys.identity go together: name both for a key cluster, none of them for keys of this \
                        machine"
                    .to_owned(),
            );
        }
        let is_address = |node: &str| {
            let (host, port) = node.rsplit_once(':').unwrap_or_default();
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
        };
        match self.nodes.iter().find(|node| !is_address(node)) {
            Some(node) => Err(format!("keys.nodes: {node:?} is no host and port, as in \"kma1:7443\"")),
            None => Ok(()),
        }
    }
}

/// Most runs that may take turns at one drive.
const RUNS_PER_DRIVE_MAX: u8 = 64;

/// How a server works, and where it listens for the peers of its cell, each as address and port; empty texts for
/// nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Runs of policies whose blocks take turns at one drive, at most.
    pub runs_per_drive: u8,
    /// Runs of one client that are at work at the same time, at most; 0 for no bound.
    pub runs_per_client: u8,
    /// For clients and movers that have a certificate.
    pub listen: String,
    /// For those that enrol; the next port if it is empty.
    pub enrolment: String,
    /// For the blocks of clients; the port after that if it is empty.
    pub data: String,
    /// For whoever scrapes metrics, in plain HTTP; nobody if it is empty.
    pub metrics_listen: String,
    /// When backups expire whose retention has ended, as a calendar event; never by themselves if it is empty.
    pub expire: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let nowhere = String::new;
        Self {
            runs_per_drive: 8,
            runs_per_client: 0,
            listen: nowhere(),
            enrolment: nowhere(),
            data: nowhere(),
            metrics_listen: nowhere(),
            // When few backups run, and people are there.
            expire: "12:00".to_owned(),
        }
    }
}

impl ServerConfig {
    /// When backups expire by themselves, if they do.
    pub fn expires(&self) -> Option<CalendarEvent> {
        self.expire.parse().ok()
    }

    fn check(&self) -> Result<(), String> {
        if let (false, Err(error)) = (self.expire.is_empty(), self.expire.parse::<CalendarEvent>()) {
            return Err(format!("server.expire: {error}; or leave it empty: then nothing expires by itself"));
        }
        if !(1..=RUNS_PER_DRIVE_MAX).contains(&self.runs_per_drive) {
            return Err(format!("server.runs_per_drive must be between 1 and {RUNS_PER_DRIVE_MAX}"));
        }
        for (name, address) in [
            ("listen", &self.listen),
            ("enrolment", &self.enrolment),
            ("data", &self.data),
            ("metrics_listen", &self.metrics_listen),
        ] {
            if !address.is_empty() && address.parse::<SocketAddr>().is_err() {
                return Err(format!("server.{name}: {address:?} is no address and port, as in \"0.0.0.0:5701\""));
            }
        }
        if self.listen.is_empty() && !(self.enrolment.is_empty() && self.data.is_empty()) {
            return Err("server.listen is empty, so server.enrolment and server.data must be empty too".to_owned());
        }
        Ok(())
    }
}

/// The data path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Payload of a block, in KiB.
    pub block_kib: u32,
    /// Memory of the block pool, in MiB.
    pub buffer_mib: u64,
    /// zstd level; 0 stores blocks as they are read.
    pub compression_level: i32,
    /// A stream that was interrupted is taken up again once it has this many MiB.
    pub extent_worthwhile_mib: u64,
    /// After this many MiB another stream has its turn.
    pub extent_longest_mib: u64,
    /// A checkpoint after this many MiB ...
    pub checkpoint_mib: u64,
    /// ... or this many seconds.
    pub checkpoint_seconds: u64,
    /// A job that may write to several drives uses another one for each so many GiB that it will probably write.
    pub drive_worthwhile_gib: u64,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            block_kib: 512,
            buffer_mib: 128,
            compression_level: 1,
            extent_worthwhile_mib: 4,
            extent_longest_mib: 256,
            checkpoint_mib: 4096,
            checkpoint_seconds: 60,
            drive_worthwhile_gib: 32,
        }
    }
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// [`DirectorError::Config`] says which setting is wrong, or why the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, DirectorError> {
        let wrong = |reason: String| DirectorError::Config { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let config: Self = toml::from_str(&text).map_err(|error| wrong(in_plain_words(&error.to_string())))?;
        config.check().map_err(wrong)?;
        for (name, job) in &config.jobs {
            job.check_job(name).map_err(|(key, reason)| wrong(fault_of(&text, ("jobs", name), key, &reason)))?;
        }
        for (name, rule) in &config.tell {
            let checked = check_rule_name(name).and_then(|()| rule.check(config.mail.as_ref()));
            checked.map_err(|(key, reason)| wrong(fault_of(&text, ("tell", name), key, &reason)))?;
        }
        Ok(config)
    }

    /// The file's text, with a comment for each setting.
    pub fn to_text(&self) -> String {
        text::commented(&toml::to_string(self).unwrap_or_default())
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_units()?;
        self.check_networks()?;
        self.check_data()?;
        self.keys.check()?;
        self.server.check()?;
        self.mail.as_ref().map_or(Ok(()), MailConfig::check)?;
        if self.tell.len() > tell::TELL_RULES_MAX {
            return Err(format!("[tell]: at most {} rules", tell::TELL_RULES_MAX));
        }
        if let Some((name, _)) = self.scripts.iter().find(|(_, command)| command.first().is_none_or(String::is_empty)) {
            return Err(format!("scripts.{name}: its first word is the program, and it is empty"));
        }
        for (name, job) in &self.jobs {
            if self.unit(job.unit.as_deref()).is_none() {
                return Err(format!(
                    "jobs.{name}.unit: {}",
                    self.no_such_unit(job.unit.as_deref().unwrap_or_default())
                ));
            }
        }
        for (_, library) in self.all_libraries() {
            let Some(model) = library.pace().map_err(|error| format!("library.pace: {error}"))? else { continue };
            let (block_len, max) = (BLOCK_HEADER_LEN + self.chunk_len(), model.block_len_max.value);
            if block_len > max as usize {
                let most = (max as usize - BLOCK_HEADER_LEN) / 1024;
                return Err(format!(
                    "{} writes blocks of at most {max} bytes: data.block_kib must be {most} or less",
                    model.name
                ));
            }
        }
        Ok(())
    }

    fn check_data(&self) -> Result<(), &'static str> {
        let DataConfig { block_kib, buffer_mib, checkpoint_seconds, checkpoint_mib, compression_level, .. } = self.data;
        if !(4..=2000).contains(&block_kib) {
            return Err("data.block_kib must be between 4 and 2000");
        }
        if buffer_mib == 0 || buffer_mib > 1 << 20 {
            return Err("data.buffer_mib must be between 1 and 1048576");
        }
        if checkpoint_mib == 0 || checkpoint_seconds == 0 {
            return Err("data.checkpoint_mib and data.checkpoint_seconds must be above 0");
        }
        if !(-7..=19).contains(&compression_level) {
            return Err("data.compression_level must be between -7 and 19");
        }
        Ok(())
    }

    pub(crate) fn chunk_len(&self) -> usize {
        self.data.block_kib as usize * 1024
    }

    /// Bytes behind early warning of a volume of a library's usual capacity that are kept at least.
    pub(crate) fn reserve_bytes_min(library: &LibraryConfig) -> usize {
        usize::try_from((library.volume_mib << 20) / EARLY_WARNING_SHARE_MAX).unwrap_or(usize::MAX)
    }

    pub(crate) fn checkpoint_every(&self) -> Duration {
        Duration::from_secs(self.data.checkpoint_seconds)
    }
}

/// A rule's name stands in messages and in the catalog.
fn check_rule_name(name: &str) -> Result<(), Wrong> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err((None, "a rule's name has up to 64 letters, digits, `-`, `_` and `.`".to_owned()));
    }
    Ok(())
}

/// The file of settings of a state directory. One that this user may not look into is not one that was never made.
///
/// # Errors
/// [`DirectorError::NotInitialised`] if there is none; [`DirectorError::StateUnreadable`] if the directory cannot be
/// looked into.
pub fn find_settings(dir: &Path) -> Result<PathBuf, DirectorError> {
    let path = dir.join("capstan.toml");
    match std::fs::metadata(&path) {
        Ok(_) => Ok(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(DirectorError::NotInitialised { path: dir.to_owned() })
        }
        Err(source) => Err(DirectorError::StateUnreadable { path: dir.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests;
