//! Where cartridges are: slots, mail slot, drives, or outside, kept in `inventory.toml`.
//!
//! A cartridge is a file in `cartridges/`; one that was exported has been moved to `outside/`. The inventory says in
//! which element each stands. It is replaced whole at each move, before the move is reported as done; after a crash a
//! cartridge is where it was or where it went, and one that no line names gets a free slot.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use capstan_format::Volser;
use capstan_tape::{CartridgeSpec, Rewritability};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::layout::Layout;

const INVENTORY: &str = "inventory.toml";
const CARTRIDGES: &str = "cartridges";
const OUTSIDE: &str = "outside";
/// What lies beside a cartridge's data file.
const BESIDE: [&str; 2] = ["index", "attributes"];

/// First element addresses, as libraries commonly have them.
pub(crate) const TRANSPORT: u16 = 1;
pub(crate) const FIRST_MAIL: u16 = 300;
pub(crate) const FIRST_DRIVE: u16 = 500;
pub(crate) const FIRST_SLOT: u16 = 1000;

/// Kind of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Slot(u16),
    Mail(u16),
    Drive(u16),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(number) => write!(f, "slot {number}"),
            Self::Mail(number) => write!(f, "mail {number}"),
            Self::Drive(number) => write!(f, "drive {number}"),
        }
    }
}

impl Place {
    pub(crate) fn address(self) -> u16 {
        match self {
            Self::Slot(number) => FIRST_SLOT + number,
            Self::Mail(number) => FIRST_MAIL + number,
            Self::Drive(number) => FIRST_DRIVE + number,
        }
    }
}

/// A cartridge's line in the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stands {
    /// Element address.
    pub(crate) element: u16,
    /// Element that it came from, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<u16>,
    /// Whether a person put it into the mail slot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_operator: bool,
}

/// Why a cartridge could not be made, brought in or taken out.
#[derive(Debug, Error)]
pub enum ShelfError {
    /// Caller: there is one of this barcode.
    #[error("the library has a cartridge {barcode} already: choose another barcode")]
    Taken {
        /// The barcode.
        barcode: String,
    },
    /// Caller: one of this barcode was taken out.
    #[error(
        "a cartridge {barcode} was taken out and is kept outside: bring it back (vtl import), or move its file away"
    )]
    Outside {
        /// The barcode.
        barcode: String,
    },
    /// Caller: there is none of this barcode.
    #[error("there is no cartridge {barcode} {}", .folder.display())]
    Unknown {
        /// The barcode.
        barcode: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// Caller: all places are taken.
    #[error("the library has no free {what}: move a cartridge out of one first")]
    Full {
        /// Which kind of place.
        what: &'static str,
    },
    /// Caller: a cartridge leaves by the mail slot.
    #[error("cartridge {barcode} is not in the mail slot: have the host move it there first (mtx transfer)")]
    NotInMail {
        /// The barcode.
        barcode: String,
    },
    /// Host: the library's folder.
    #[error("{what}")]
    Host {
        /// What was done to what.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Host: making the cartridge.
    #[error(transparent)]
    Cartridge(#[from] capstan_tape::DriveError),
}

/// The cartridges of a library.
#[derive(Debug)]
pub(crate) struct Shelf {
    folder: PathBuf,
    slots: u16,
    mail_slots: u16,
    drives: u16,
    stands: BTreeMap<Volser, Stands>,
}

impl Shelf {
    /// Opens the library in a folder: finds its cartridges, makes those that the layout names and that never were.
    pub(crate) fn open(folder: &Path, layout: &Layout) -> Result<Self, ShelfError> {
        for part in [CARTRIDGES, OUTSIDE] {
            std::fs::create_dir_all(folder.join(part))
                .map_err(host(format!("{} cannot be made", folder.join(part).display())))?;
        }
        let mut shelf = Self {
            folder: folder.to_owned(),
            slots: layout.library.slots,
            mail_slots: layout.library.mail_slots,
            drives: layout.drives.len() as u16,
            stands: BTreeMap::new(),
        };
        shelf.read_inventory()?;
        for cartridge in &layout.cartridges {
            let Ok(volser) = Volser::new(&cartridge.barcode) else { continue };
            if !shelf.path(&volser).exists() && !shelf.outside(&volser).exists() {
                let generation = Some(&cartridge.generation).filter(|text| !text.is_empty()).cloned();
                shelf.make(
                    &volser,
                    cartridge.capacity_mib << 20,
                    generation.unwrap_or_else(|| layout.generation()),
                    cartridge.rewritability(),
                )?;
            }
        }
        shelf.place_the_rest()?;
        shelf.save()?;
        Ok(shelf)
    }

    fn read_inventory(&mut self) -> Result<(), ShelfError> {
        let path = self.folder.join(INVENTORY);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(host(format!("{} cannot be read", path.display()))(error)),
        };
        // Places can always be given anew: a file that is not understood costs where things stood, and nothing else.
        let read: BTreeMap<String, Stands> = toml::from_str(&text).unwrap_or_default();
        let mut taken = std::collections::BTreeSet::new();
        for (barcode, stands) in read {
            if let Ok(volser) = Volser::new(&barcode)
                && self.path(&volser).exists()
                && self.place_of(stands.element).is_some()
                && taken.insert(stands.element)
            {
                self.stands.insert(volser, stands);
            }
        }
        Ok(())
    }

    /// Cartridges that lie in the folder and in no element: from a crash, or put there by hand.
    fn place_the_rest(&mut self) -> Result<(), ShelfError> {
        let folder = self.folder.join(CARTRIDGES);
        let entries = std::fs::read_dir(&folder).map_err(host(format!("{} cannot be listed", folder.display())))?;
        let mut found: Vec<Volser> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "tape"))
            .filter_map(|path| Volser::new(path.file_stem()?.to_str()?).ok())
            .collect();
        found.sort();
        for volser in found {
            if !self.stands.contains_key(&volser) {
                let slot = self.free_slot().ok_or(ShelfError::Full { what: "slot" })?;
                self.stands.insert(volser, Stands { element: slot.address(), from: None, by_operator: false });
            }
        }
        Ok(())
    }

    fn save(&self) -> Result<(), ShelfError> {
        let path = self.folder.join(INVENTORY);
        let lines: BTreeMap<String, &Stands> =
            self.stands.iter().map(|(volser, stands)| (volser.to_string(), stands)).collect();
        let text = toml::to_string(&lines).unwrap_or_default();
        let text = format!("# Where each cartridge is: kept by the library, by element address.\n\n{text}");
        let new = path.with_extension("new");
        let written = std::fs::File::create(&new)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&new, &path));
        written.map_err(host(format!("{} cannot be written", path.display())))
    }

    pub(crate) fn path(&self, volser: &Volser) -> PathBuf {
        self.folder.join(CARTRIDGES).join(format!("{volser}.tape"))
    }

    fn outside(&self, volser: &Volser) -> PathBuf {
        self.folder.join(OUTSIDE).join(format!("{volser}.tape"))
    }

    /// The place with an element address.
    pub(crate) fn place_of(&self, address: u16) -> Option<Place> {
        let within = |first: u16, count: u16| address.checked_sub(first).filter(|number| *number < count);
        within(FIRST_SLOT, self.slots)
            .map(Place::Slot)
            .or_else(|| within(FIRST_MAIL, self.mail_slots).map(Place::Mail))
            .or_else(|| within(FIRST_DRIVE, self.drives).map(Place::Drive))
    }

    /// How many slots and mail slots there are.
    pub(crate) fn sizes(&self) -> (u16, u16) {
        (self.slots, self.mail_slots)
    }

    /// All places, in order of kind and number: slots, mail slot, drives.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        let slots = (0..self.slots).map(Place::Slot);
        slots.chain((0..self.mail_slots).map(Place::Mail)).chain((0..self.drives).map(Place::Drive))
    }

    /// What stands in a place.
    pub(crate) fn at(&self, place: Place) -> Option<(&Volser, &Stands)> {
        self.stands.iter().find(|(_, stands)| stands.element == place.address())
    }

    /// All cartridges, by element address.
    pub(crate) fn by_address(&self) -> BTreeMap<u16, (&Volser, &Stands)> {
        self.stands.iter().map(|(volser, stands)| (stands.element, (volser, stands))).collect()
    }

    fn free_slot(&self) -> Option<Place> {
        let taken = self.by_address();
        self.places().find(|place| matches!(place, Place::Slot(_)) && !taken.contains_key(&place.address()))
    }

    fn free_mail(&self) -> Option<Place> {
        let taken = self.by_address();
        self.places().find(|place| matches!(place, Place::Mail(_)) && !taken.contains_key(&place.address()))
    }

    /// Notes that a cartridge stands elsewhere now.
    pub(crate) fn moved(&mut self, volser: &Volser, to: Place) -> Result<(), ShelfError> {
        let Some(stands) = self.stands.get_mut(volser) else { return Ok(()) };
        let before = stands.clone();
        let from = if matches!(to, Place::Drive(_) | Place::Mail(_)) { Some(before.element) } else { before.from };
        *stands = Stands { element: to.address(), from, by_operator: false };
        let saved = self.save();
        if saved.is_err()
            && let Some(stands) = self.stands.get_mut(volser)
        {
            *stands = before;
        }
        saved
    }

    fn make(
        &self,
        volser: &Volser,
        capacity_bytes: u64,
        generation: String,
        rewritability: Rewritability,
    ) -> Result<(), ShelfError> {
        let spec = CartridgeSpec {
            volser: volser.clone(),
            capacity_bytes,
            // A hundredth, as drives have it, and room for the longest block at least.
            early_warning_bytes: (capacity_bytes / 100).max(4 << 20).min(capacity_bytes / 4),
            generation,
        };
        Ok(spec.create_as(&self.path(volser), rewritability)?)
    }

    /// A new cartridge, in a free slot.
    pub(crate) fn create(
        &mut self,
        volser: &Volser,
        capacity_bytes: u64,
        generation: String,
        rewritability: Rewritability,
    ) -> Result<Place, ShelfError> {
        self.check_new(volser)?;
        if self.outside(volser).exists() {
            return Err(ShelfError::Outside { barcode: volser.to_string() });
        }
        let slot = self.free_slot().ok_or(ShelfError::Full { what: "slot" })?;
        self.make(volser, capacity_bytes, generation, rewritability)?;
        self.stands.insert(volser.clone(), Stands { element: slot.address(), from: None, by_operator: false });
        self.save()?;
        Ok(slot)
    }

    fn check_new(&self, volser: &Volser) -> Result<(), ShelfError> {
        if self.path(volser).exists() || self.stands.contains_key(volser) {
            return Err(ShelfError::Taken { barcode: volser.to_string() });
        }
        Ok(())
    }

    /// A person takes a cartridge out of the mail slot.
    pub(crate) fn export(&mut self, volser: &Volser) -> Result<PathBuf, ShelfError> {
        let stands = self.stands.get(volser);
        let stands = stands.ok_or_else(|| self.unknown(volser, CARTRIDGES))?;
        if !matches!(self.place_of(stands.element), Some(Place::Mail(_))) {
            return Err(ShelfError::NotInMail { barcode: volser.to_string() });
        }
        let to = self.outside(volser);
        if to.exists() {
            return Err(ShelfError::Outside { barcode: volser.to_string() });
        }
        carry(&self.path(volser), &to)?;
        self.stands.remove(volser);
        self.save()?;
        Ok(to)
    }

    /// A person puts a cartridge that is outside into the mail slot.
    pub(crate) fn import(&mut self, volser: &Volser) -> Result<Place, ShelfError> {
        self.check_new(volser)?;
        let from = self.outside(volser);
        if !from.exists() {
            return Err(self.unknown(volser, OUTSIDE));
        }
        let mail = self.free_mail().ok_or(ShelfError::Full { what: "mail slot" })?;
        carry(&from, &self.path(volser))?;
        self.stands.insert(volser.clone(), Stands { element: mail.address(), from: None, by_operator: true });
        self.save()?;
        Ok(mail)
    }

    fn unknown(&self, volser: &Volser, folder: &str) -> ShelfError {
        ShelfError::Unknown { barcode: volser.to_string(), folder: self.folder.join(folder) }
    }
}

/// Moves a cartridge's files; the data file last, because it is the cartridge.
fn carry(from: &Path, to: &Path) -> Result<(), ShelfError> {
    let unless_missing = |done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(host(format!("{} cannot be moved", from.display()))(error))
        }
        _ => Ok(()),
    };
    for extension in BESIDE {
        // What lies there belonged to another cartridge.
        unless_missing(std::fs::remove_file(to.with_extension(extension)))?;
        unless_missing(std::fs::rename(from.with_extension(extension), to.with_extension(extension)))?;
    }
    std::fs::rename(from, to).map_err(host(format!("{} cannot be moved", from.display())))
}

fn host(what: String) -> impl FnOnce(io::Error) -> ShelfError {
    move |source| ShelfError::Host { what, source }
}
