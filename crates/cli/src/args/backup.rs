//! What is backed up, and where to: `init`, `backup`, `jobs`.

use std::path::PathBuf;

use capstan_catalog::Database;
use capstan_format::Algorithm;
use capstan_mover::SnapshotUse;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Capacity of a new virtual cartridge: 500M, 100G, 12T [default: a twentieth of its disk, 1G to 100G]
    #[arg(long, value_parser = crate::units::parse_bytes)]
    pub(crate) volume_size: Option<u64>,
    /// How many cartridges the library may create automatically; 0 creates none
    #[arg(long, default_value_t = 1000)]
    pub(crate) volumes_max: u32,
    /// How many virtual drives
    #[arg(long, default_value_t = 4)]
    pub(crate) drives: u32,
    /// Directory of the virtual library [default: in the state directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) library: Option<PathBuf>,
    /// Use a physical library instead: the device of its changer (`capstan drives scan` lists it)
    #[arg(long, value_name = "DEVICE", conflicts_with = "library", group = "real")]
    pub(crate) changer: Option<PathBuf>,
    /// Drives to use, with --changer or --standalone [default: all of the library that this host finds]
    #[arg(long = "drive", value_name = "DEVICE", requires = "real")]
    pub(crate) devices: Vec<PathBuf>,
    /// Use the drives of --drive without a library: Capstan asks a person for each cartridge
    #[arg(long, alias = "by-hand", conflicts_with_all = ["changer", "library"], requires = "devices", group = "real")]
    pub(crate) standalone: bool,
    /// Cipher of the default pool
    #[arg(long, value_enum, default_value_t = Cipher::Gcm)]
    pub(crate) encrypt: Cipher,
    /// Where the catalog keeps its tables: sqlite, for a file in the state directory, or the address of a PostgreSQL
    /// database, postgres://USER@HOST/NAME
    #[arg(long, value_name = "DATABASE", default_value = "sqlite", env = "CAPSTAN_DATABASE", hide_env_values = true)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) keys: KeyCluster,
}

/// A key cluster instead of the key store of this machine.
#[derive(Debug, Args)]
pub(crate) struct KeyCluster {
    /// Get the keys from a key cluster: the address of one of its nodes; may be given several times
    #[arg(long = "key-cluster", value_name = "HOST:PORT", requires = "identity")]
    pub(crate) nodes: Vec<String>,
    /// Identity file of this machine for the key cluster, made by `capstan keys enrol`
    #[arg(long = "key-identity", value_name = "FILE", requires = "nodes")]
    pub(crate) identity: Option<PathBuf>,
    /// The site whose nodes are asked first
    #[arg(long = "key-site", value_name = "SITE", requires = "nodes")]
    pub(crate) site: Option<String>,
}

/// A pool's cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cipher {
    /// AES-256-GCM
    Gcm,
    /// AES-256-CCM
    Ccm,
    /// No encryption
    None,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Backup {
    /// Files, directories, or block devices; or a job of capstan.toml or a policy by its name (write ./NAME for a path
    /// of that name)
    #[arg(required_unless_present = "stdin", value_name = "SOURCE|JOB")]
    pub(crate) sources: Vec<PathBuf>,
    /// Storage unit, or library, to write to [default: main, which is the one under [library] in capstan.toml]
    #[arg(long)]
    pub(crate) unit: Option<String>,
    /// Pool to write to [default: default]
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Policy to record with the objects [default: manual]; a job always records its own name
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// Streams that read at the same time [default: one a core, at most 8]
    #[arg(long, short = 'j', value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) connections: Option<u16>,
    /// Copies written at once, each to volumes of its own [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) copies: Option<u8>,
    /// Lock the retention of what it makes: nobody can have it forgotten before that ends
    #[arg(long)]
    pub(crate) lock: bool,
    /// Tag what it makes with a word, such as before-upgrade or release=1.2; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// Whether it stores something by name
    #[arg(skip)]
    pub(crate) is_put: bool,
    /// Drives that each copy is written to at the same time, at most: as many as are free when the backup begins
    /// [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) drives: Option<u8>,
    /// Whether they are those of a job, which uses fewer for little
    #[arg(skip)]
    pub(crate) drives_by_need: bool,
    /// How many incrementals of a job may stand on a full backup
    #[arg(skip)]
    pub(crate) consolidate_after: Option<u32>,
    /// Only what changed since the last object of the same source that can be restored
    #[arg(long, conflicts_with = "full")]
    pub(crate) incremental: bool,
    /// Everything (the default)
    #[arg(long)]
    pub(crate) full: bool,
    /// Make an incremental, or a full backup if the last full backup of the source is this old: 7d, 4w
    #[arg(long, value_name = "TIME", conflicts_with = "full")]
    pub(crate) full_every: Option<String>,
    /// Leave out paths that match, and everything below them: a name (*.o), a path below the source (a/node_modules),
    /// or one from the root (/srv/a); may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Read exclude patterns from this file, one on each line; lines that begin with # are comments
    #[arg(long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// If a CACHEDIR.TAG marks a directory as a cache, store only that tag
    #[arg(long)]
    pub(crate) exclude_caches: bool,
    /// Stay on the source's file system
    #[arg(long, short = 'x')]
    pub(crate) one_file_system: bool,
    /// Take a source in which nothing is any more for emptied, and not for one whose file system is not mounted
    #[arg(long)]
    pub(crate) may_be_empty: bool,
    /// Read each tree from a snapshot that is made for it: where one can be made, or not at all otherwise
    #[arg(long, value_name = "USE", value_enum)]
    pub(crate) snapshot: Option<Snapshots>,
    /// Back up standard input under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) stdin: Option<String>,
    /// Run the program given after `--` and back up its output; if it does not end with exit code 0, none of it counts
    #[arg(long, requires = "stdin")]
    pub(crate) from_command: bool,
    /// Where blocks go
    #[arg(long, value_enum, default_value_t = Device::Virtual)]
    pub(crate) device: Device,
    /// Do not count files first; progress then has no percentage
    #[arg(long)]
    pub(crate) no_tree_walk: bool,
    /// zstd level, -7 (fastest) to 19, 0 for none [default: from capstan.toml]
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-7..=19))]
    pub(crate) compression: Option<i32>,
    /// Wait for another job that has the source, and for a volume when the pool has none, instead of failing;
    /// `--wait=writer` waits for the other job alone
    #[arg(long, value_name = "FOR", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) wait: Option<WaitFor>,
    /// Name of the machine that the sources belong to, if it was renamed or its backups continue here [default: client
    /// of capstan.toml, or the host's name]
    #[arg(long, value_name = "HOST")]
    pub(crate) client: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The name that it is stored under, such as app.log or dumps/shop.sql
    pub(crate) name: String,
    /// The file to store [default: standard input]
    #[arg(conflicts_with = "command")]
    pub(crate) file: Option<PathBuf>,
    /// Run this program and store its output; if it does not end with exit code 0, none of it counts
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<PathBuf>,
    /// Store what standard input has also if that is nothing
    #[arg(long)]
    pub(crate) may_be_empty: bool,
    /// Tag this version with a word, such as nightly or release=1.2; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// Job or policy to store it under [default: the one whose put_names match, or none]
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// Storage unit, or library, to write to [default: that of the policy, or main]
    #[arg(long)]
    pub(crate) unit: Option<String>,
    /// Pool to write to [default: that of the policy, or default]
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Copies written at once, each to volumes of its own [default: that of the policy, or 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) copies: Option<u8>,
    /// How long it is kept: 30d, 12w, 10y [default: as the policy or the pool says]
    #[arg(long, value_name = "TIME")]
    pub(crate) retention: Option<String>,
    /// Lock that: nobody can have it forgotten before
    #[arg(long)]
    pub(crate) lock: bool,
    /// Wait for a volume when the pool has none, instead of failing
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Where a backup's blocks go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// The virtual library
    #[default]
    Virtual,
    /// Nowhere: measures the source and the data path
    Null,
}

/// What a backup waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitFor {
    /// For another job that has the source, and for a volume
    All,
    /// For another job that has the source
    Writer,
}

#[derive(Debug, Args)]
pub(crate) struct Jobs {
    /// Write the systemd service and timer that run a job by the clock into this directory, with the paths of this
    /// machine
    #[arg(long, value_name = "DIR")]
    pub(crate) units: Option<PathBuf>,
}

impl Cipher {
    /// What it encrypts with; none for plain volumes.
    pub(crate) fn algorithm(self) -> Option<Algorithm> {
        match self {
            Self::Gcm => Some(Algorithm::Aes256Gcm),
            Self::Ccm => Some(Algorithm::Aes256Ccm),
            Self::None => None,
        }
    }
}

/// When a tree is read from a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Snapshots {
    /// Never
    None,
    /// Where the file system or the logical volume can make one
    Prefer,
    /// Always; a tree of which none can be made is not read
    Require,
}

impl From<Snapshots> for SnapshotUse {
    fn from(snapshots: Snapshots) -> Self {
        match snapshots {
            Snapshots::None => Self::None,
            Snapshots::Prefer => Self::Prefer,
            Snapshots::Require => Self::Require,
        }
    }
}

impl From<SnapshotUse> for Snapshots {
    fn from(snapshots: SnapshotUse) -> Self {
        match snapshots {
            SnapshotUse::None => Self::None,
            SnapshotUse::Prefer => Self::Prefer,
            SnapshotUse::Require => Self::Require,
        }
    }
}
