//! Commands that list: from the catalog, without keys.

mod clock;
mod files;
mod find;
mod history;
mod jobs;
mod media;
mod objects;
mod show;
mod status;

use std::io::stdout;
use std::process::ExitCode;
use std::sync::Arc;

use capstan_director::{Algorithm, DirectorError, Events, Object, Site, Volser, Volume, meant_by};
use serde::Serialize;

use crate::args::{Cipher, Cli};
use crate::failure::Failure;
use crate::json::{self, Lines};
use crate::place::find_object;
use crate::secrets::{Need, open};
use crate::table::Table;

pub(crate) use clock::{clock, doubt_name, doubt_text};
pub(crate) use files::{ls, versions};
pub(crate) use find::find;
pub(crate) use history::{history, outcome_name};
pub(crate) use jobs::jobs;
pub(crate) use media::{pools, state_name, volumes};
pub(crate) use objects::objects;
pub(crate) use show::show;
pub(crate) use status::status;

fn silent() -> Events {
    Arc::new(|_| {})
}

pub(crate) fn site(cli: &Cli) -> Result<Site, Failure> {
    open(cli, Need::Nothing, silent())
}

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

pub(crate) fn short(object: &Object) -> String {
    let id = object.id.to_string();
    id[id.len() - 8..].to_owned()
}

pub(crate) fn director(error: impl Into<DirectorError>) -> Failure {
    Failure::Director(error.into())
}

pub(crate) fn cipher(cipher: Cipher) -> Option<Algorithm> {
    match cipher {
        Cipher::Gcm => Some(Algorithm::Aes256Gcm),
        Cipher::Ccm => Some(Algorithm::Aes256Ccm),
        Cipher::None => None,
    }
}

/// The volume that a text names, if it names one.
pub(crate) fn find_volume(site: &Site, text: &str) -> Result<Option<(Volser, Volume)>, Failure> {
    let Ok(volser) = Volser::new(text) else { return Ok(None) };
    let found = site.catalog().volume(&volser).map_err(director)?;
    Ok(found.map(|volume| (volser, volume)))
}

/// The object that a text names, where a volume could have been named too.
pub(crate) fn object_or_volume(site: &Site, text: &str) -> Result<Object, Failure> {
    find_object(site, text, None).map_err(|error| match error {
        DirectorError::UnknownObject { wanted, like } => Failure::Other(format!(
            "no object or volume matches {wanted:?}{}: `capstan objects` and `capstan volumes` list them",
            meant_by(like.as_deref())
        )),
        other => other.into(),
    })
}
