//! Commands that list: from the catalog, without keys.

mod clock;
mod files;
mod history;
mod jobs;
mod media;
mod objects;
mod status;

use std::ffi::OsStr;
use std::io::stdout;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use capstan_director::{Algorithm, DirectorError, Events, Object, Site, Volser, Volume, index_path};
use serde::Serialize;

use crate::args::{Cipher, Cli};
use crate::failure::Failure;
use crate::json::{self, Lines};
use crate::secrets::{Need, open};
use crate::table::Table;

pub(crate) use clock::{clock, doubt_name, doubt_text};
pub(crate) use files::{find, ls, versions};
pub(crate) use history::{history, outcome_name};
pub(crate) use jobs::jobs;
pub(crate) use media::{pools, state_name, volumes};
pub(crate) use objects::{objects, show};
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

/// The object that a text names; a source may be named from the working directory, as it was for the backup.
pub(crate) fn find_object(site: &Site, text: &str, at_ns: Option<i64>) -> Result<Object, DirectorError> {
    match site.find_object(text, at_ns) {
        Err(unknown @ DirectorError::UnknownObject { .. }) => {
            let absolute = std::path::absolute(text).ok();
            let absolute =
                absolute.and_then(|path| path.components().collect::<PathBuf>().into_os_string().into_string().ok());
            absolute.and_then(|path| site.find_object(&path, at_ns).ok()).ok_or(unknown)
        }
        other => other,
    }
}

/// `OBJECT[:PATH]`, cut at the last colon that leaves an object in front of it. A path is bytes, and need not be UTF-8.
pub(crate) fn split_place(
    site: &Site,
    place: &OsStr,
    at_ns: Option<i64>,
) -> Result<(Object, Option<Vec<u8>>), Failure> {
    let place = place.as_bytes();
    let find = |name| str::from_utf8(name).ok().and_then(|name| find_object(site, name, at_ns).ok());
    // A source may have colons in its name, so the longest object that exists wins.
    if let Some(object) = find(place) {
        return Ok((object, None));
    }
    let colons = || place.iter().enumerate().filter(|&(_, &byte)| byte == b':').map(|(at, _)| at);
    for at in colons().rev() {
        if let Some(object) = find(&place[..at]) {
            let path = index_path(&place[at + 1..]);
            return Ok((object, (!path.is_empty()).then_some(path)));
        }
    }
    let wanted = &place[..colons().next().unwrap_or(place.len())];
    Ok((site.find_object(&String::from_utf8_lossy(wanted), at_ns)?, None))
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
        DirectorError::UnknownObject { wanted } => Failure::Other(format!(
            "no object or volume matches {wanted:?}: `capstan objects` and `capstan volumes` list them"
        )),
        other => other.into(),
    })
}
