//! Where the tables of a catalog are: beside the indexes, or in a database that a file beside them names.
//!
//! The file names a schema of that database, which is this catalog's alone. So a catalog is one directory, whatever
//! holds its tables: to move a directory aside and put another in its place is to change the tables with the indexes.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::CatalogError;

/// What holds the tables of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Database {
    /// A file beside the indexes.
    #[default]
    Sqlite,
    /// A database of PostgreSQL, 15 or later.
    Postgres {
        /// Where it is, as `postgres://user:password@host:port/database`.
        url: String,
    },
}

impl FromStr for Database {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "sqlite" {
            return Ok(Self::Sqlite);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres { url: text.to_owned() });
        }
        Err("a database is `sqlite`, or an address such as postgres://user@127.0.0.1:5432/capstan".to_owned())
    }
}

impl Database {
    /// The file beside the indexes that names another database.
    pub(crate) const FILE: &str = "database.json";

    /// What holds the tables of the catalog in a directory.
    ///
    /// # Errors
    /// The file that says it cannot be read.
    pub fn of(dir: &Path) -> Result<Self, CatalogError> {
        Ok(read(dir)?.map_or(Self::Sqlite, |place| Self::Postgres { url: place.url }))
    }

    /// Where it is, as it may be shown to anybody.
    pub fn told(&self) -> String {
        match self {
            Self::Sqlite => "catalog.db".to_owned(),
            Self::Postgres { url } => without_password(url),
        }
    }
}

/// A schema of a database.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    pub(super) url: String,
    pub(super) schema: String,
    /// The directory that the catalog was made in: a copy of it names the same tables, and they are not the copy's.
    home: PathBuf,
}

impl Place {
    /// A schema for the catalog in a directory.
    pub(super) fn new(url: String, schema: String, dir: &Path) -> Result<Self, CatalogError> {
        Ok(Self { url, schema, home: home_of(dir)? })
    }

    /// Refuses to take tables away that another catalog may use.
    pub(super) fn check_own(&self, dir: &Path) -> Result<(), CatalogError> {
        if self.home == home_of(dir)? {
            return Ok(());
        }
        let reason = format!("the tables that it names belong to the catalog in {}", self.home.display());
        Err(CatalogError::DatabaseRefused { database: without_password(&self.url), reason })
    }
}

/// Where the catalogs of a state directory are, those that are old or not finished with it.
fn home_of(dir: &Path) -> Result<PathBuf, CatalogError> {
    let dir = dir.canonicalize().map_err(|source| CatalogError::io("find", dir, source))?;
    Ok(dir.parent().map(Path::to_owned).unwrap_or(dir))
}

/// The place that a directory names, if it names one.
pub(super) fn read(dir: &Path) -> Result<Option<Place>, CatalogError> {
    let path = dir.join(Database::FILE);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(CatalogError::io("read", &path, source)),
        Ok(text) => text,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| CatalogError::corrupt(path.display(), error))
}

/// Has a directory name the place of its tables.
pub(super) fn write(dir: &Path, place: &Place) -> Result<(), CatalogError> {
    let path = dir.join(Database::FILE);
    let failed = |what: &'static str| {
        let path = path.clone();
        move |source| CatalogError::io(what, &path, source)
    };
    let text = serde_json::to_vec(place).map_err(|error| CatalogError::Database { source: Box::new(error) })?;
    // There is a password in it, perhaps.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut file = file.map_err(failed("create"))?;
    file.write_all(&text).map_err(failed("write"))?;
    file.sync_all().map_err(failed("sync"))
}

/// An address as it may be shown to anybody.
pub(super) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "(no address)".to_owned() };
    let (address, parameters) = rest.split_once('?').map_or((rest, ""), |(address, rest)| (address, rest));
    let shown = match address.rsplit_once('@') {
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
        None => address.to_owned(),
    };
    let open = parameters.split('&').filter(|parameter| !parameter.is_empty() && !parameter.starts_with("password="));
    let open: Vec<&str> = open.collect();
    let question = if open.is_empty() { "" } else { "?" };
    format!("{scheme}://{shown}{question}{}", open.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let shown = |url| without_password(url);
        assert_eq!(shown("postgres://me:s3cret@127.0.0.1:5432/capstan"), "postgres://me@127.0.0.1:5432/capstan");
        assert_eq!(shown("postgres://me:a@b@127.0.0.1/c"), "postgres://me@127.0.0.1/c");
        assert_eq!(shown("postgres:///c?host=/run&password=s3cret&user=me"), "postgres:///c?host=/run&user=me");
        assert_eq!(shown("s3cret"), "(no address)");
    }
}
