//! Options that all commands have.

use std::path::PathBuf;

use clap::Args;

/// Where options stand in lists that each command has: behind those of its own.
pub(crate) const OF_ALL_COMMANDS: usize = 900;

/// Options that stand before or behind any command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Globals {
    /// State directory: catalog, virtual library, sealed key store [env: CAPSTAN_STATE] [default:
    /// $XDG_STATE_HOME/capstan]
    #[arg(long, global = true, value_name = "DIR", display_order = OF_ALL_COMMANDS)]
    pub(crate) state: Option<PathBuf>,

    /// File that unlocks the key store instead of the passphrase [env: CAPSTAN_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE", display_order = OF_ALL_COMMANDS)]
    pub(crate) key_file: Option<PathBuf>,

    /// Print JSON, one object on each line: for lists an object for each row, for other commands one for each event,
    /// for `status` and `show` a single object
    #[arg(long, global = true, display_order = OF_ALL_COMMANDS)]
    pub(crate) json: bool,

    /// Print nothing but errors and results
    #[arg(long, short, global = true, display_order = OF_ALL_COMMANDS)]
    pub(crate) quiet: bool,
}
