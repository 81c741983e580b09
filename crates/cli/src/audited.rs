//! The audit log of a cell, for what commands do at a shell of its server.

use capstan_director::Site;
use capstan_server::cell::CellError;
use capstan_server::cell::users::noted_at_shell;
use capstan_tape::with_causes;

pub(crate) use capstan_server::cell::users::ShellAct;

use crate::failure::{Failure, of_cell};

/// Does what is to be in the audit log, where the state directory is that of a cell: the act, and the names of what it
/// is done to.
pub(crate) fn audited<T>(
    site: &Site,
    act: ShellAct,
    names: &[impl AsRef<str>],
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let tell = |error: &CellError| {
        eprintln!("capstan: this is not in the audit log, which cannot be written: {}", with_causes(error));
    };
    noted_at_shell(site, rustix::process::getuid().as_raw(), (act, &names), (of_cell, tell), work)
}
