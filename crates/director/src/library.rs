//! What an operator has the library do: inventory, moves by hand, import and export.
//!
//! Before a cartridge is moved into or out of a drive, the drive is taken into use: a drive that a job has is left
//! alone, and the message says so. Jobs need none of this: they mount what they need.

use std::fmt;

use capstan_catalog::Volume;
use capstan_format::Volser;
use capstan_mover::devices::{ChangerOrder, DevicesError, LibraryInventory, Loader};
use capstan_tape::{ChangerError, ChangerRequest, DriveDescription, Element, ElementAddress, Finding, FolderRoom};

use crate::DirectorError;
use crate::libraries::LibraryAt;
use crate::library_marker;
use crate::site::{Site, locked};

/// What is where, and what the catalog knows of it.
#[derive(Debug)]
pub struct Inventory {
    /// Every element, with what the catalog knows of the cartridge in it.
    pub places: Vec<LibraryPlace>,
    /// Volumes that the catalog knows and the library has not.
    pub absent: Vec<Volume>,
    /// What a person has to put right.
    pub findings: Vec<Finding>,
    /// The room in the folders of a virtual library that has rules for it.
    pub rooms: Vec<FolderRoom>,
}

/// One element.
#[derive(Debug)]
pub struct LibraryPlace {
    /// Where, and the barcode of what is in it.
    pub element: Element,
    /// What the catalog knows of that volume.
    pub known: Option<Volume>,
}

/// A drive and what is in it.
#[derive(Debug, Clone)]
pub struct DriveRow {
    /// Its number.
    pub number: u32,
    /// What it is.
    pub description: DriveDescription,
    /// The volume in it.
    pub volser: Option<Volser>,
}

/// Where a volume is, as far as the library tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In this place of the library.
    At(ElementAddress),
    /// The library has it not.
    Outside,
    /// Where a person keeps it: there is no robot to tell.
    Shelf,
    /// The library that it was last seen in does not answer.
    Unknown,
}

/// The barcode that a text is, if it is one.
pub fn barcode(text: &str) -> Option<Volser> {
    Volser::new(text).ok()
}

impl Whereabouts {
    /// Whether it is in a slot or a drive of a library. What lies in a mail slot is outside.
    pub fn is_inside(self) -> bool {
        matches!(self, Self::At(address) if !matches!(address, ElementAddress::ImportExport(_)))
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Outside => f.write_str("outside"),
            Self::Shelf => f.write_str("shelf"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl LibraryPlace {
    /// What kind of place it is, in a word, and its number.
    pub fn kind_and_number(&self) -> (&'static str, u32) {
        match self.element.address {
            ElementAddress::Slot(number) => ("slot", number),
            ElementAddress::Drive(number) => ("drive", number),
            ElementAddress::ImportExport(number) => ("mail slot", number),
        }
    }
}

impl Site {
    /// Where volumes are, in their order. Of those in a library it is noted that they are at no vault any more.
    ///
    /// # Errors
    /// The library cannot be asked. A virtual one that is not there has nothing in it.
    pub fn whereabouts(&self, volumes: &[Volume]) -> Result<Vec<Whereabouts>, DirectorError> {
        let asked_ns = self.now_ns();
        let (all, mut found, mut silent) = (self.libraries.all(), Vec::new(), Vec::new());
        for library in all {
            let elements = match self.ask(library) {
                // A library that is not there has nothing in it; `status` says why it is not there.
                Err(DevicesError::Changer(ChangerError::Unusable { .. })) if library.config.is_virtual() => Vec::new(),
                // Nor has one whose mover is away, and the rest of what is known of its volumes is asked for then.
                Err(_) if self.libraries.are_several() || !library.config.mover.is_empty() => {
                    silent.push(&library.name);
                    Vec::new()
                }
                other => other?.elements,
            };
            found.push(elements);
        }
        let place = |volume: &Volume| {
            let mut elements = found.iter().flatten();
            let element = elements.find(|element| element.volser.as_ref() == Some(&volume.volser));
            let own = if all.len() == 1 { all.first() } else { self.libraries.get(&volume.library) };
            let elsewhere = match own.map(|library| library.config.loader()) {
                _ if own.is_some_and(|own| silent.contains(&&own.name)) => Whereabouts::Unknown,
                Some(Loader::Person) => Whereabouts::Shelf,
                Some(Loader::Robot) | None => Whereabouts::Outside,
            };
            element.map_or(elsewhere, |element| Whereabouts::At(element.address))
        };
        let places: Vec<Whereabouts> = volumes.iter().map(place).collect();
        let inside = volumes.iter().zip(&places).filter(|(_, place)| place.is_inside());
        // On a full disk volumes are listed all the same: what is seen in a library counts, whatever is noted.
        let _ = self.note_back(inside.map(|(volume, _)| &volume.volser), asked_ns);
        Ok(places)
    }

    /// Notes that volumes are at no vault any more, which were seen in a library.
    fn note_back<'a>(&self, seen: impl Iterator<Item = &'a Volser>, seen_ns: i64) -> Result<(), DirectorError> {
        let mut catalog = locked(&self.catalog);
        let sent = catalog.sent_volumes()?;
        if sent.is_empty() {
            return Ok(());
        }
        let seen: Vec<Volser> = seen.filter(|seen| sent.iter().any(|sent| sent.volser == **seen)).cloned().collect();
        if !seen.is_empty() {
            catalog.note_back(&seen, seen_ns, self.now_ns())?;
        }
        Ok(())
    }

    /// The library's drives.
    ///
    /// # Errors
    /// The library cannot be asked.
    pub fn drives(&self) -> Result<Vec<DriveRow>, DirectorError> {
        let elements = self.library.devices.inventory()?.elements;
        let drives = self.library.devices.describe_drives()?;
        let rows = (0u32..).zip(drives).map(|(number, description)| {
            let address = ElementAddress::Drive(number);
            let element = elements.iter().find(|element| element.address == address);
            DriveRow { number, description, volser: element.and_then(|element| element.volser.clone()) }
        });
        Ok(rows.collect())
    }

    /// What is where.
    ///
    /// # Errors
    /// The library or the catalog cannot be asked.
    pub fn inventory(&self) -> Result<Inventory, DirectorError> {
        let LibraryInventory { elements, findings, rooms } = self.library.devices.inventory()?;
        let mut volumes = locked(&self.catalog).volumes()?;
        let places = elements.into_iter().map(|element| {
            let known = volumes.iter().find(|volume| Some(&volume.volser) == element.volser.as_ref()).cloned();
            LibraryPlace { element, known }
        });
        let places: Vec<LibraryPlace> = places.collect();
        volumes.retain(|volume| !self.libraries.are_several() || volume.library == self.library.name);
        volumes.retain(|volume| places.iter().all(|place| place.element.volser.as_ref() != Some(&volume.volser)));
        Ok(Inventory { places, absent: volumes, findings, rooms })
    }

    /// Brings a volume into a drive and leaves it there; a cleaning cartridge, too, with which the drive cleans itself.
    ///
    /// # Errors
    /// The library is virtual, or the robot did not do it: the error says whether anything moved.
    pub fn load_drive(&self, volser: &Volser, drive: u32) -> Result<(), DirectorError> {
        self.has_robot("load")?;
        Ok(self.library.devices.change(&ChangerOrder::Load { volser: volser.clone(), drive })?)
    }

    /// Unloads a drive and brings what was in it back to its slot.
    ///
    /// # Errors
    /// As [`Site::load_drive`].
    pub fn unload_drive(&self, drive: u32) -> Result<(), DirectorError> {
        self.has_robot("unload")?;
        Ok(self.library.devices.change(&ChangerOrder::Unload { drive })?)
    }

    /// Brings a volume into a drive in exchange for the one that is there.
    ///
    /// # Errors
    /// As [`Site::load_drive`].
    pub fn exchange_in_drive(&self, volser: &Volser, drive: u32) -> Result<(), DirectorError> {
        self.has_robot("exchange")?;
        self.request(ChangerRequest::Exchange { volser: volser.clone(), drive })
    }

    /// Brings what is in the mail slots to free slots, all or the ones named, and says how many that were.
    ///
    /// # Errors
    /// The robot did not do it for one of them; those before it are in their slots.
    pub fn import(&self, mail_slots: &[u32]) -> Result<usize, DirectorError> {
        let mut mail_slots = mail_slots.to_vec();
        if mail_slots.is_empty() {
            mail_slots = self.full_mail_slots()?;
        }
        // From the last on: where elements are numbered by what is in them, the numbers in front stay as they are.
        mail_slots.sort_unstable();
        for mail_slot in mail_slots.iter().rev() {
            if self.is_to_stop() {
                return Err(DirectorError::Interrupted);
            }
            let request = ChangerRequest::Import { mail_slot: *mail_slot };
            self.request(request)?;
        }
        Ok(mail_slots.len())
    }

    /// Brings a volume to a free mail slot, to be taken out.
    ///
    /// # Errors
    /// The robot did not do it: no mail slot is free, or the volume is not there or in use.
    pub fn export(&self, volser: &Volser) -> Result<(), DirectorError> {
        if self.is_to_stop() {
            return Err(DirectorError::Interrupted);
        }
        self.request(ChangerRequest::Export { volser: volser.clone() })
    }

    /// Why a library cannot be used, if one cannot: the disk below it is not mounted, for one.
    pub fn library_problem(&self) -> Option<String> {
        self.libraries.all().iter().find_map(|library| self.problem_of(library))
    }

    /// Folders of libraries that cannot be used, and why: their disks may not be mounted.
    pub fn folders_away(&self) -> Vec<String> {
        let of_library = |library: &LibraryAt| {
            let found = self.ask(library).map(|found| found.findings).unwrap_or_default();
            let away = found.into_iter().filter(|finding| matches!(finding, Finding::FolderAway { .. }));
            away.map(|finding| format!("library {}: {finding}", library.name)).collect::<Vec<_>>()
        };
        let libraries = self.libraries.all().iter().filter(|library| library.config.is_virtual());
        libraries.flat_map(|library| of_library(library)).collect()
    }

    /// What is where in a library, for whoever looks. With its mover away, each question takes seconds: it is asked
    /// once in a while.
    pub(crate) fn ask(&self, library: &LibraryAt) -> Result<LibraryInventory, DevicesError> {
        let silent = &self.mounts.silent;
        if !library.config.mover.is_empty() && silent.is_silent(&library.name) {
            return Err(DevicesError::Connection(std::io::Error::other("it did not answer a moment ago")));
        }
        let found = library.devices.inventory_at_once();
        if !library.config.mover.is_empty() {
            silent.note(&library.name, found.is_ok());
        }
        found
    }

    fn problem_of(&self, library: &LibraryAt) -> Option<String> {
        let found = match self.ask(library) {
            Err(DevicesError::Changer(error @ ChangerError::Unusable { .. })) => return Some(error.to_string()),
            Err(_) => return None,
            Ok(found) => found.elements,
        };
        if !library.config.is_folder_here() {
            return None;
        }
        let (volumes, sent) = {
            let catalog = locked(&self.catalog);
            (catalog.volumes().ok()?, catalog.sent_volumes().ok()?)
        };
        let is_sent = |volume: &Volume| sent.iter().any(|sent| sent.volser == volume.volser);
        let is_known = |volume: &&Volume| volume.id.is_some() && volume.library == library.name && !is_sent(volume);
        let mut known = volumes.iter().filter(is_known).peekable();
        known.peek()?;
        let is_there = |volser: &Volser| found.iter().any(|element| element.volser.as_ref() == Some(volser));
        if known.clone().any(|volume| is_there(&volume.volser)) {
            return None;
        }
        Some(format!(
            "the library {} holds none of the {} that the catalog knows: if it is on a disk of its own, mount that disk",
            self.work_dir().join(&library.config.path).display(),
            if known.clone().count() == 1 { "cartridge".to_owned() } else { format!("{} cartridges", known.count()) }
        ))
    }

    /// Has the robot look at every element anew. The directory that the settings name becomes the library of this
    /// catalog, if it is not.
    ///
    /// # Errors
    /// The robot did not do it; or, of a virtual library, its directory cannot be marked or is that of another catalog.
    pub fn initialize_library(&self) -> Result<(), DirectorError> {
        if self.library.config.is_folder_here() {
            let _presence = self.presence()?;
            let folders = self.library.config.folders_below(self.work_dir());
            let directory = self.library_dir();
            library_marker::adopt((&directory, &folders), &mut locked(&self.catalog), &self.library.name)?;
            // One that was not to be used until now is opened by the next command.
            if self.problem_of(&self.library).is_some() {
                return Ok(());
            }
        }
        self.request(ChangerRequest::Initialize)
    }

    fn request(&self, request: ChangerRequest) -> Result<(), DirectorError> {
        Ok(self.library.devices.change(&ChangerOrder::Request(request))?)
    }

    /// Mail slots with a cartridge in them, its barcode readable or not.
    fn full_mail_slots(&self) -> Result<Vec<u32>, DirectorError> {
        let inventory = self.inventory()?;
        let strange = |address: ElementAddress| {
            inventory.findings.iter().any(
                |finding| matches!(finding, Finding::NoBarcode { at } | Finding::NoVolser { at, .. } if *at == address),
            )
        };
        let full = |place: &LibraryPlace| match place.element.address {
            ElementAddress::ImportExport(number) => {
                (place.element.volser.is_some() || strange(place.element.address)).then_some(number)
            }
            ElementAddress::Slot(_) | ElementAddress::Drive(_) => None,
        };
        Ok(inventory.places.iter().filter_map(full).collect())
    }

    /// A drive of the virtual library lets go of its cartridge when nobody uses it.
    fn has_robot(&self, what: &str) -> Result<(), DirectorError> {
        if !self.library.config.is_virtual() {
            return Ok(());
        }
        let library = self.library_dir().display().to_string();
        let reason = format!(
            "its drives are of this program, and keep nothing when it ends: a job mounts what it needs, without {what}"
        );
        Err(DirectorError::Changer(ChangerError::Unusable { library, reason }))
    }
}
