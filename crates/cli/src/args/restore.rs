//! Options of the commands that give files back.

use std::ffi::OsString;
use std::path::PathBuf;

use capstan_mover::extract;
use clap::{Args, ValueEnum};

/// When a file that exists is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Overwrite {
    /// Never: it is reported
    Never,
    /// If its size or modification time differs
    Changed,
    /// Always
    Always,
}

impl From<Overwrite> for extract::Overwrite {
    fn from(overwrite: Overwrite) -> Self {
        match overwrite {
            Overwrite::Never => Self::Never,
            Overwrite::Changed => Self::Changed,
            Overwrite::Always => Self::Always,
        }
    }
}

impl From<&Overwrite> for extract::Overwrite {
    fn from(overwrite: &Overwrite) -> Self {
        (*overwrite).into()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// What to restore, as OBJECT[:PATH]; several are restored in one pass. PATH is a path from the root, a path below
    /// the source, or a pattern such as 'docs/*.tex'
    #[arg(required = true, value_name = "OBJECT[:PATH]")]
    pub(crate) places: Vec<OsString>,
    /// Directory to write below
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    pub(crate) to: Option<PathBuf>,
    /// The client whose data it is, where several have the source; a user of a cell names it always
    #[arg(long, value_name = "CLIENT")]
    pub(crate) of: Option<String>,
    /// As a user of a cell: the client that writes it [default: the one that --of names]
    #[arg(long, value_name = "CLIENT", requires = "of")]
    pub(crate) to_client: Option<String>,
    /// The state at this time instead of the latest: 2026-11-01, 2026-11-01T12:00, or an age such as 3d
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Only what matches, with all below it: a name (*.tex), a path below the source (docs/*), or one from the root;
    /// may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out paths that match, and everything below them; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Remove this many leading components from each path, as tar does
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) strip: u16,
    /// Show the plan and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// What to do with files that exist
    #[arg(long, value_enum, default_value_t = Overwrite::Never)]
    pub(crate) overwrite: Overwrite,
    /// Keep what can be read of a damaged file, as its name with .damaged added: zeros stand for what is missing
    #[arg(long)]
    pub(crate) keep_damaged: bool,
    /// Restore what is there if a volume is not in the library, and do not wait for it: of a restore to a client, which
    /// waits in the queue
    #[arg(long)]
    pub(crate) partial: bool,
    /// Make device nodes too
    #[arg(long)]
    pub(crate) devices: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The name that it was stored under
    pub(crate) name: String,
    /// File to write it to, once all of it is read [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Replace FILE if it is there
    #[arg(long, requires = "to")]
    pub(crate) overwrite: bool,
    /// The latest version with this tag; with several, one that has them all
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// This version, by its id or the beginning or end of that
    #[arg(long, value_name = "ID", conflicts_with_all = ["at", "tags"])]
    pub(crate) id: Option<String>,
    /// The latest version at this time: 2026-11-01, 2026-11-01T12:00, or an age such as 3d
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// The client that stored it, where several have the name
    #[arg(long, value_name = "CLIENT")]
    pub(crate) of: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// OBJECT for the whole pax stream, OBJECT:PATH for one file's content
    #[arg(value_name = "OBJECT[:PATH]")]
    pub(crate) place: OsString,
    /// The state at this time instead of the latest: 2026-11-01, 2026-11-01T12:00, or an age such as 3d
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
}
