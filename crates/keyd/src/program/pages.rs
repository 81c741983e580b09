//! Man pages and shell completions, from the definition of the command line.

use std::io;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::command_line::Keyd;

/// `keyd.1`, `keyd-keys.1`, `keyd-keys-export.1` ...
pub(super) fn man(dir: &Path) -> anyhow::Result<()> {
    let not_written = || format!("write man pages into {}", dir.display());
    std::fs::create_dir_all(dir).with_context(not_written)?;
    clap_mangen::generate_to(Keyd::command(), dir).with_context(not_written)
}

pub(super) fn completions(shell: Shell) {
    clap_complete::generate(shell, &mut Keyd::command(), "keyd", &mut io::stdout());
}
