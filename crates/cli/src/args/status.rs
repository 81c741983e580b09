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
    /// Call a source to attention if its last backup is older than this: 26h, 8d [default: attention.backup_hours of
    /// capstan.toml]
    #[arg(long, value_name = "TIME")]
    pub(crate) max_age: Option<String>,
    /// Show every source, and all that needs attention, however many there are
    #[arg(long)]
    pub(crate) all: bool,
    /// Print OpenMetrics text for a collector; the exit code is 0 even if something needs attention
    #[arg(long)]
    pub(crate) metrics: bool,
    /// Write the metrics to this file; an older file is replaced in one step
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub(crate) output: Option<PathBuf>,
}

/// What the history has entries of.
const KINDS: [&str; 14] = [
    "backup",
    "restore",
    "verify",
    "scrub",
    "copy",
    "consolidate",
    "reclaim",
    "care",
    "repair",
    "expire",
    "label",
    "erase",
    "forget",
    "rebuild",
];

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The number of a run, to show everything about it and its output; or a job, source or volume, to list its runs
    #[arg(value_name = "RUN|NAME")]
    pub(crate) run: Option<String>,
    /// List at most this many runs, the latest ones
    #[arg(long, short = 'n', default_value_t = 50)]
    pub(crate) last: u32,
    /// Only what was begun since: 7d, 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only these
    #[arg(long, value_name = "KIND", value_parser = KINDS)]
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Clock {
    /// Confirm that the clock is right, although the records contradict it
    #[arg(long)]
    pub(crate) confirm: bool,
}
