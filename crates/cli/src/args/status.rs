//! What is the matter: `status`, `history`, `clock`, and the manual.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write capstan.1 and a page for each command into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
    /// The command, as in `keys policies add` [default: the page of the program]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Call a source to attention whose last backup is older: 26h, 8d [default: attention.backup_hours of capstan.toml]
    #[arg(long, value_name = "TIME")]
    pub(crate) max_age: Option<String>,
    /// Print OpenMetrics text for a collector; ends with 0 whatever it says
    #[arg(long)]
    pub(crate) metrics: bool,
    /// Write the metrics to this file, whole or not at all
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The number of a run: everything about it, and what it said; or a job, a source or a volume: the runs that name
    /// it
    #[arg(value_name = "RUN|NAME")]
    pub(crate) run: Option<String>,
    /// The last so many
    #[arg(long, short = 'n', default_value_t = 50)]
    pub(crate) last: u32,
    /// Only what was begun since: 7d, 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only these: backup, restore, verify, copy, repair, expire, label, erase, forget, rebuild
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Clock {
    /// Say that the clock is right now, whatever is recorded
    #[arg(long)]
    pub(crate) confirm: bool,
}
