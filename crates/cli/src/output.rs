//! How lists and answers go out: as a table, or as lines of JSON.

use std::io::stdout;
use std::process::ExitCode;

use serde::Serialize;

use crate::failure::Failure;
use crate::json::{self, Lines};
use crate::table::Table;

pub(crate) fn print_json(value: &impl Serialize) -> Result<ExitCode, Failure> {
    json::print(value)?;
    Ok(ExitCode::SUCCESS)
}

/// A line a row, as the rows come.
pub(crate) fn print_rows<T: Serialize>(
    rows: impl IntoIterator<Item = Result<T, Failure>>,
) -> Result<ExitCode, Failure> {
    let mut lines = Lines::new();
    for row in rows {
        lines.row(&row?)?;
    }
    lines.finish()?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn print(table: &Table) -> Result<ExitCode, Failure> {
    table.print(&mut stdout().lock()).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}
