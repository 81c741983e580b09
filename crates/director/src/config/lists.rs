//! Lists of policies that may not be empty.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Names of machines. Whoever takes the last one out of a list does not mean that of the server.
pub(super) fn not_empty<'de, D: Deserializer<'de>>(names: D) -> Result<Vec<String>, D::Error> {
    some_of(names, "remove the line if the server's own machine is meant")
}

/// Names of policies whose backups are copied.
pub(super) fn copied<'de, D: Deserializer<'de>>(names: D) -> Result<Vec<String>, D::Error> {
    some_of(names, "name the policies whose backups are copied")
}

/// Names of pools that are looked after.
pub(super) fn looked_after<'de, D: Deserializer<'de>>(names: D) -> Result<Vec<String>, D::Error> {
    some_of(names, "name the pools whose volumes are looked after")
}

/// Names that something is stored under.
pub(super) fn put_as<'de, D: Deserializer<'de>>(names: D) -> Result<Vec<String>, D::Error> {
    some_of(names, "name what is stored, as in [\"*.log\"]")
}

/// Generations that are to go.
pub(super) fn to_go<'de, D: Deserializer<'de>>(names: D) -> Result<Vec<String>, D::Error> {
    some_of(names, "name generations as `capstan volumes --json` does, such as LTO-6")
}

/// A list that may not be empty.
fn some_of<'de, D: Deserializer<'de>>(names: D, advice: &str) -> Result<Vec<String>, D::Error> {
    let names = Vec::deserialize(names)?;
    match names.is_empty() {
        true => Err(D::Error::custom(format!("it is empty: {advice}"))),
        false => Ok(names),
    }
}
