//! Options of the commands that look into objects.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct Objects {
    /// Only objects of this source
    #[arg(long)]
    pub(crate) source: Option<PathBuf>,
    /// Only those begun at this time or later: 2026-11-01, 2026-11-01T12:00, or an age such as 3d
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only the last N of each source
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) last: Option<u32>,
    /// Only those of this host
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Only objects that were made under this policy
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// Only objects with this tag; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// Expired ones too
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) what: LsWhat,
    /// Of this client, where several have the source
    #[arg(long, value_name = "CLIENT")]
    pub(crate) of: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LsWhat {
    /// OBJECT[:PATH], where OBJECT is an id, its beginning or end, or a source path for its latest object
    #[arg(value_name = "OBJECT[:PATH]")]
    pub(crate) place: OsString,
    /// The whole tree below
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// Show owners and groups as numbers, not by their names on this machine
    #[arg(long, short = 'n')]
    pub(crate) numeric: bool,
    /// The state at this time instead of the latest: 2026-11-01, 2026-11-01T12:00, or an age such as 3d
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Find {
    #[command(flatten)]
    pub(crate) what: FindWhat,
    /// Only in objects of this client
    #[arg(long, value_name = "CLIENT")]
    pub(crate) of: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FindWhat {
    /// Glob on the path, or on the file's name if it has no slash
    #[arg(value_name = "GLOB")]
    pub(crate) glob: String,
    /// Only in this object
    #[arg(long)]
    pub(crate) object: Option<String>,
    /// Only the latest state of each source, not each version
    #[arg(long, conflicts_with = "object")]
    pub(crate) latest: bool,
    /// Only what was modified at this time or later: 2026-11-01, 2026-11-01T12:00, or an age such as 3d
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only what is of this type; may be given several times
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(crate) types: Vec<FileType>,
    /// Only files of such a size: +10M for larger ones, -1K for smaller ones
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE", value_parser = crate::units::parse_size_range)]
    pub(crate) size: Option<capstan_client::files::SizeRange>,
}

/// What `find` may look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileType {
    /// Regular files, under each of their names
    #[value(alias = "f")]
    File,
    /// Directories
    #[value(alias = "d")]
    Directory,
    /// Symbolic links
    #[value(alias = "l")]
    Symlink,
    /// Fifos
    #[value(alias = "p")]
    Fifo,
    /// Block and character devices
    Device,
    /// Paths that an incremental recorded as deleted
    Deleted,
}

impl From<FileType> for capstan_client::files::FileType {
    fn from(file_type: FileType) -> Self {
        match file_type {
            FileType::File => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Device => Self::Device,
            FileType::Deleted => Self::Deleted,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Versions {
    #[command(flatten)]
    pub(crate) what: VersionsWhat,
    /// Only in objects of this client
    #[arg(long, value_name = "CLIENT")]
    pub(crate) of: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct VersionsWhat {
    /// The path
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ObjectOf {
    #[command(subcommand)]
    pub(crate) action: ObjectAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ObjectAction {
    /// List the copies of an object, which policy makes each, how long it is kept, and when what is missing comes
    #[command(after_help = "Example:\n  capstan object why 7f3a90c1")]
    Why {
        /// The object; or a source, for its latest object
        object: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// An object or a volume
    pub(crate) what: String,
}
