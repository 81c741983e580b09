//! Libraries besides the main one, and storage units: whose drives a backup may use, by a name that jobs and policies
//! say.

use std::collections::BTreeSet;

use capstan_catalog::MAIN_LIBRARY;
use capstan_mover::devices::LibraryConfig;
use capstan_tape::model::built_in;
use serde::{Deserialize, Serialize};

use super::{Config, RUNS_PER_DRIVE_MAX};

/// Longest name of a library or a unit, in bytes.
const NAME_LEN_MAX: usize = 32;

/// What `[units.NAME]` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UnitConfig {
    /// Its libraries, the one that is taken first among equals in front.
    pub libraries: Vec<String>,
    /// Labels of movers whose libraries are its, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mover_labels: Vec<String>,
    /// Models of the drives that it has, as `LTO-9`, where their libraries have others, too; none for all drives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Drives that runs of a server write to at the same time, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives: Option<u32>,
    /// Runs whose blocks take turns at one drive, at most, instead of what `[server]` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_per_drive: Option<u8>,
}

/// A set of libraries whose drives a backup may use. Each library is a unit of its own, too, under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageUnit {
    /// Its name.
    pub name: String,
    /// Its libraries; those of labelled movers once a site has looked who has the labels.
    pub libraries: Vec<String>,
    /// Models of the drives that it has; none for all drives of its libraries.
    pub models: Vec<String>,
    /// Drives that runs of a server write to at the same time, at most; none for all there are.
    pub drives: Option<u32>,
    /// Runs whose blocks take turns at one drive, at most.
    pub runs_per_drive: u8,
}

impl Config {
    /// All libraries with their names, the main one first.
    pub fn all_libraries(&self) -> impl Iterator<Item = (&str, &LibraryConfig)> {
        let others = self.libraries.iter().map(|(name, library)| (name.as_str(), library));
        std::iter::once((MAIN_LIBRARY, &self.library)).chain(others)
    }

    /// The names of all storage units: those that are set, and each library.
    pub fn unit_names(&self) -> Vec<&str> {
        self.units.keys().map(String::as_str).chain(self.all_libraries().map(|(name, _)| name)).collect()
    }

    /// A storage unit; that of the main library where none is named. None if there is no such unit.
    pub fn unit(&self, name: Option<&str>) -> Option<StorageUnit> {
        let name = name.unwrap_or(MAIN_LIBRARY);
        let unit = match self.units.get(name) {
            Some(unit) => unit.clone(),
            None => {
                let (library, _) = self.all_libraries().find(|(library, _)| *library == name)?;
                UnitConfig { libraries: vec![library.to_owned()], ..UnitConfig::default() }
            }
        };
        Some(StorageUnit {
            name: name.to_owned(),
            libraries: unit.libraries,
            models: unit.models,
            drives: unit.drives,
            runs_per_drive: unit.runs_per_drive.unwrap_or(self.server.runs_per_drive),
        })
    }

    /// Why nothing can be written to a unit that is not set.
    pub(crate) fn no_such_unit(&self, name: &str) -> String {
        format!(
            "there is no storage unit or library {name} in capstan.toml: there are {}",
            self.unit_names().join(", ")
        )
    }

    /// What is wrong with libraries and units, if anything is.
    pub(super) fn check_units(&self) -> Result<(), String> {
        let mut places = BTreeSet::new();
        for (name, library) in self.all_libraries() {
            let place = if name == MAIN_LIBRARY { "library".to_owned() } else { format!("libraries.{name}") };
            // Settings of the main one are named as `library. ...` by whoever checks them.
            library.check().map_err(|reason| reason.replace("library.", &format!("{place}.")))?;
            let of = match (&*library.mover, library.is_virtual()) {
                ("", true) => format!("the folder {}", library.path.display()),
                ("", false) => format!("the changer {} with these drives", library.changer.display()),
                (mover, _) => format!("mover {mover}"),
            };
            let by_hand = library.mover.is_empty() && !library.is_virtual();
            let key = if by_hand { format!("{of} {:?}", library.devices) } else { of.clone() };
            if !places.insert(key) {
                return Err(format!("{place}: another library has {of}, too"));
            }
        }
        if self.libraries.contains_key(MAIN_LIBRARY) {
            return Err(format!("libraries.{MAIN_LIBRARY}: that is what [library] is called: use another name"));
        }
        for name in self.libraries.keys() {
            check_name("libraries", name)?;
        }
        for (name, unit) in &self.units {
            check_name("units", name)?;
            if self.all_libraries().any(|(library, _)| library == name) {
                return Err(format!(
                    "units.{name}: a library has that name, and is a unit of its own: use another name"
                ));
            }
            if unit.libraries.is_empty() && unit.mover_labels.is_empty() {
                return Err(format!("units.{name} names no library: set libraries, or mover_labels"));
            }
            for (number, label) in unit.mover_labels.iter().enumerate() {
                if label.is_empty() || unit.mover_labels[..number].contains(label) {
                    return Err(format!("units.{name}.mover_labels: {label:?} is empty, or named twice"));
                }
            }
            for (number, library) in unit.libraries.iter().enumerate() {
                if !self.all_libraries().any(|(known, _)| known == library) {
                    let known = self.all_libraries().map(|(known, _)| known).collect::<Vec<_>>().join(", ");
                    return Err(format!("units.{name}.libraries: there is no library {library}: there are {known}"));
                }
                if unit.libraries[..number].contains(library) {
                    return Err(format!("units.{name}.libraries: {library} is named twice"));
                }
            }
            for model in &unit.models {
                let known = built_in(model).map_err(|error| format!("units.{name}.models: {error}"))?;
                if known.name != *model {
                    return Err(format!("units.{name}.models: {model} is written as {}", known.name));
                }
            }
            if unit.drives == Some(0) {
                return Err(format!("units.{name}.drives must be above 0"));
            }
            if unit.runs_per_drive.is_some_and(|runs| !(1..=RUNS_PER_DRIVE_MAX).contains(&runs)) {
                return Err(format!("units.{name}.runs_per_drive must be between 1 and {RUNS_PER_DRIVE_MAX}"));
            }
        }
        Ok(())
    }
}

fn check_name(table: &str, name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(is_plain) || name.starts_with('-') {
        return Err(format!(
            "{table}.{name}: its name has up to {NAME_LEN_MAX} letters, digits, '-' and '_', and does not begin with '-'"
        ));
    }
    Ok(())
}
