//! `vtl.toml`: how a library is laid out, in one file that people write and read.
//!
//! Where each cartridge is now the program keeps beside it, in `inventory.toml`: a robot moves them, and a file that
//! people write is not written by a robot.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use capstan_format::Volser;
use capstan_tape::Rewritability;
use capstan_tape::model::{DriveModel, built_in};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name of the file in a library's folder.
pub const LAYOUT_FILE: &str = "vtl.toml";

/// What `vtl.toml` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The iSCSI target.
    #[serde(default)]
    pub target: TargetLayout,
    /// The robot and its places.
    #[serde(default)]
    pub library: LibraryLayout,
    /// The drives, in order of their numbers from 0.
    #[serde(default, rename = "drive")]
    pub drives: Vec<DriveLayout>,
    /// Cartridges that are made if they are not there.
    #[serde(default, rename = "cartridge")]
    pub cartridges: Vec<CartridgeLayout>,
}

/// The iSCSI target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetLayout {
    /// Its iSCSI name.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Names of initiators that may log in; nobody named means all.
    pub initiators: Vec<String>,
    /// Name that initiators must give themselves (CHAP); empty for none.
    pub chap_user: String,
    /// File with the secret that goes with it, relative to the library's folder; nobody else may be able to read it.
    pub chap_secret_file: PathBuf,
    /// Whether everyone is served who reaches it, when it listens to more than this host and knows neither names nor
    /// secrets.
    pub anyone: bool,
}

/// The robot and its places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LibraryLayout {
    /// Its serial number.
    pub serial: String,
    /// Slots.
    pub slots: u16,
    /// Elements of the mail slot.
    pub mail_slots: u16,
}

/// Whether a drive encrypts, and who gives it keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// It cannot.
    None,
    /// The host sets keys, as it likes.
    Host,
    /// The drive fetches the key of each volume itself; hosts know nothing of it.
    Agent,
}

/// How long a drive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// As long as the disk.
    Disk,
    /// As long as a real one, by its model.
    Model,
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveLayout {
    /// Its model, as `capstan models` lists them.
    pub model: String,
    /// Who gives it keys.
    #[serde(default = "host_keys")]
    pub encryption: Encryption,
    /// How long it takes.
    #[serde(default = "disk_pace")]
    pub pace: Pace,
    /// Its serial number; one is made from its number if it is empty.
    #[serde(default)]
    pub serial: String,
}

fn host_keys() -> Encryption {
    Encryption::Host
}

fn disk_pace() -> Pace {
    Pace::Disk
}

/// A cartridge that is made if it is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CartridgeLayout {
    /// Its barcode.
    pub barcode: String,
    /// Its capacity, MiB.
    pub capacity_mib: u64,
    /// Its generation, as a model's `reads` and `writes` have it; that of the first drive if it is empty.
    #[serde(default)]
    pub generation: String,
    /// Whether it is made write-once; what it was made as it stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worm: bool,
}

impl CartridgeLayout {
    /// What it is made as.
    pub(crate) fn rewritability(&self) -> Rewritability {
        if self.worm { Rewritability::WriteOnce } else { Rewritability::Rewritable }
    }
}

impl Default for TargetLayout {
    fn default() -> Self {
        Self {
            name: "iqn.2026-01.org.capstan:vtl".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 3260)),
            initiators: Vec::new(),
            chap_user: String::new(),
            chap_secret_file: PathBuf::new(),
            anyone: false,
        }
    }
}

impl Default for LibraryLayout {
    fn default() -> Self {
        Self { serial: "CPL0000001".to_owned(), slots: 20, mail_slots: 2 }
    }
}

/// Why a layout cannot be used.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// Host: it cannot be read.
    #[error("{} cannot be read: make one with `capstan vtl init`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Caller: it is not what it should be.
    #[error("{} is not understood", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// Caller: what it says cannot be.
    #[error("{}: {reason}", .path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// What, and what to do.
        reason: String,
    },
}

/// As many drives as element addresses are kept for.
const DRIVES_MAX: usize = 100;
/// As many slots as element addresses are left for.
const SLOTS_MAX: u16 = 50_000;
/// As many elements of the mail slot as element addresses are kept for.
const MAIL_SLOTS_MAX: u16 = 100;

impl Layout {
    /// Two LTO-9 drives, twenty slots, four cartridges.
    pub fn example() -> Self {
        let drive = DriveLayout {
            model: "LTO-9".to_owned(),
            encryption: Encryption::Host,
            pace: Pace::Disk,
            serial: String::new(),
        };
        let cartridge = |number: u32| CartridgeLayout {
            barcode: format!("A{number:05}L9"),
            capacity_mib: 10 * 1024,
            generation: String::new(),
            worm: false,
        };
        Self {
            target: TargetLayout::default(),
            library: LibraryLayout::default(),
            drives: vec![drive.clone(), drive],
            cartridges: (1..=4).map(cartridge).collect(),
        }
    }

    /// Reads the layout of the library in a folder, and checks it.
    ///
    /// # Errors
    /// [`LayoutError::Read`] if there is no such file or it cannot be read; [`LayoutError::Syntax`] if it is no TOML of
    /// a layout; [`LayoutError::Value`] if a value in it cannot be.
    pub fn read(folder: &Path) -> Result<Self, LayoutError> {
        let path = folder.join(LAYOUT_FILE);
        let text = std::fs::read_to_string(&path).map_err(|source| LayoutError::Read { path: path.clone(), source })?;
        let layout: Self = toml::from_str(&text)
            .map_err(|source| LayoutError::Syntax { path: path.clone(), source: source.into() })?;
        match layout.fault() {
            Some(reason) => Err(LayoutError::Value { path, reason }),
            None => Ok(layout),
        }
    }

    /// As a file that explains itself.
    pub fn to_text(&self) -> String {
        let settings = toml::to_string(self).unwrap_or_default();
        format!(
            "# A virtual tape library: what it is made of. `capstan vtl serve` reads this when it starts.\n\
             # drive.encryption: none; host (programs set keys); agent (the drive fetches keys, programs know nothing of it)\n\
             # drive.pace: disk (as fast as the disk is); model (as long as a real drive takes)\n\
             # Where cartridges are now stands in inventory.toml.\n\n{settings}"
        )
    }

    /// What cannot be, if there is something.
    fn fault(&self) -> Option<String> {
        if self.drives.is_empty() || self.drives.len() > DRIVES_MAX {
            return Some(format!("a library has 1 to {DRIVES_MAX} drives: this has {}", self.drives.len()));
        }
        if self.library.slots == 0 || self.library.slots > SLOTS_MAX || self.library.mail_slots > MAIL_SLOTS_MAX {
            return Some(format!("a library has 1 to {SLOTS_MAX} slots and up to {MAIL_SLOTS_MAX} mail slots"));
        }
        if !self.target.name.starts_with("iqn.")
            && !self.target.name.starts_with("eui.")
            && !self.target.name.starts_with("naa.")
        {
            return Some(format!("{} is no iSCSI name: take one like iqn.2026-01.org.example:tape", self.target.name));
        }
        if !self.target.chap_user.is_empty() && self.target.chap_secret_file.as_os_str().is_empty() {
            return Some("target.chap_user needs target.chap_secret_file".to_owned());
        }
        let mut serials = BTreeSet::from([self.library.serial.clone()]);
        for (number, drive) in self.drives.iter().enumerate() {
            if let Err(error) = drive.drive_model() {
                return Some(error.to_string());
            }
            let serial = drive.serial(number);
            let fits = (1..=10).contains(&serial.len()) && serial.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if !fits {
                return Some(format!("drive {number}: a serial number has 1 to 10 letters and digits, not {serial:?}"));
            }
            if !serials.insert(serial.clone()) {
                return Some(format!("serial number {serial} is there twice: hosts would take two devices for one"));
            }
        }
        let mut barcodes = BTreeSet::new();
        for cartridge in &self.cartridges {
            if Volser::new(&cartridge.barcode).is_err() {
                return Some(format!("barcode {:?}: 1 to 8 of A-Z and 0-9", cartridge.barcode));
            }
            if !barcodes.insert(&cartridge.barcode) {
                return Some(format!("barcode {} is there twice", cartridge.barcode));
            }
            if cartridge.capacity_mib == 0 {
                return Some(format!("cartridge {} has no capacity", cartridge.barcode));
            }
        }
        None
    }

    /// The generation that a new cartridge has, if nothing else is said: what the first drive writes.
    pub fn generation(&self) -> String {
        let model = self.drives.first().and_then(|drive| drive.drive_model().ok());
        model.and_then(|model| model.writes.value.first().cloned()).unwrap_or_default()
    }
}

impl DriveLayout {
    /// Its model's figures.
    ///
    /// # Errors
    /// There is no model of the name in the layout.
    pub fn drive_model(&self) -> Result<DriveModel, capstan_tape::model::ModelError> {
        built_in(&self.model)
    }

    /// Its serial number.
    pub fn serial(&self, number: usize) -> String {
        if self.serial.is_empty() { format!("CPT{:07}", number + 1) } else { self.serial.clone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn the_example_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LAYOUT_FILE), Layout::example().to_text()).unwrap();
        assert_eq!(Layout::read(folder.path()).unwrap(), Layout::example());
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (change, word) in [
            ("[[drive]]\nmodel = \"LTO-99\"\n", "LTO-99"),
            ("[library]\nslots = 0\n[[drive]]\nmodel = \"LTO-9\"\n", "slots"),
            ("[[drive]]\nmodel = \"LTO-9\"\nserial = \"X1\"\n[[drive]]\nmodel = \"LTO-9\"\nserial = \"X1\"\n", "X1"),
            ("[[drive]]\nmodel = \"LTO-9\"\n[[cartridge]]\nbarcode = \"a b\"\ncapacity_mib = 1\n", "barcode"),
            ("", "drives"),
            ("[target]\nname = \"tape\"\n[[drive]]\nmodel = \"LTO-9\"\n", "iSCSI name"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(LAYOUT_FILE), change).unwrap();
            let error = Layout::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains(word), "{change}: {error}");
        }
    }
}
