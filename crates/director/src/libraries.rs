//! The libraries of a site, their drives, and which of them volumes are in.
//!
//! `[library]` of the settings is the main one, and each `[libraries.NAME]` is another: of this host, or of a mover. A
//! job writes in one library, at one mover; it reads from whichever has the volume.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use capstan_catalog::{Catalog, MAIN_LIBRARY};
use capstan_format::Volser;
use capstan_mover::devices::{Devices, DevicesError, LibraryConfig};
use capstan_mover::{
    DrivesAt, MountedDrives, MoverAt, ReadPlan, ReadRoutes, VolumePlace, Wanted, plans_by_library, split_by_library,
    without_torn,
};
use capstan_tape::{DriveDescription, DriveNeeds, Library};

use crate::drive_keys::BlockKeys;
use crate::library_marker::{self, AbsentLibrary};
use crate::{DirectorError, Event, Events};

/// The library of this process's devices.
pub(crate) type SharedLibrary = Arc<Mutex<dyn Library>>;

/// One library, and what touches it.
#[derive(Clone)]
pub(crate) struct LibraryAt {
    pub(crate) name: String,
    pub(crate) config: LibraryConfig,
    pub(crate) library: SharedLibrary,
    /// What mounts its volumes.
    pub(crate) devices: Arc<dyn Devices>,
    /// Where blocks are written and read with its drives.
    pub(crate) data_path: MoverAt,
}

impl LibraryAt {
    /// Opens the library of some settings. That of a mover is nowhere here.
    pub(crate) fn open(
        dir: &Path,
        (name, config): (&str, &LibraryConfig),
        all: &[&str],
        catalog: &mut Catalog,
        keys: BlockKeys,
        events: &Events,
    ) -> Result<Self, DirectorError> {
        let library = open_library(dir, (name, config), all, catalog, events)?;
        let (devices, data_path) = local_devices(&library, config, keys);
        Ok(Self { name: name.to_owned(), config: config.clone(), library, devices, data_path })
    }

    /// The same library, whose drives get keys from elsewhere.
    pub(crate) fn with_keys(&self, keys: BlockKeys) -> Self {
        let (devices, data_path) = local_devices(&self.library, &self.config, keys);
        Self { devices, data_path, ..self.clone() }
    }
}

impl LibraryAt {
    /// How many of its drives can be used so.
    pub(crate) fn drives_fit(&self, needs: &DriveNeeds) -> Result<u32, DevicesError> {
        let described = self.devices.describe_drives()?;
        let is_fit = |(number, drive): &(usize, &DriveDescription)| match drive.class {
            None => needs.models.is_empty(),
            Some(_) => needs.refusal_of(*number, drive).is_none(),
        };
        Ok(u32::try_from(described.iter().enumerate().filter(is_fit).count()).unwrap_or(u32::MAX))
    }

    /// Whether its drives differ in what they can do.
    pub(crate) fn has_unlike_drives(&self) -> bool {
        let described = self.devices.describe_drives().unwrap_or_default();
        described.windows(2).any(|pair| pair[0].class != pair[1].class)
    }
}

/// How messages name a library.
pub(crate) fn in_words(name: &str) -> String {
    if name == MAIN_LIBRARY { "the main library".to_owned() } else { format!("library {name}") }
}

/// All libraries, the main one first.
#[derive(Clone)]
pub(crate) struct Libraries(Arc<Vec<Arc<LibraryAt>>>);

impl Libraries {
    pub(crate) fn new(libraries: Vec<LibraryAt>) -> Self {
        Self(Arc::new(libraries.into_iter().map(Arc::new).collect()))
    }

    pub(crate) fn all(&self) -> &[Arc<LibraryAt>] {
        &self.0
    }

    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<LibraryAt>> {
        self.0.iter().find(|library| library.name == name)
    }

    /// The same, each as it is changed.
    pub(crate) fn changed(&self, change: impl Fn(&LibraryAt) -> LibraryAt) -> Self {
        Self::new(self.0.iter().map(|library| change(library)).collect())
    }

    /// The library that the catalog says a volume is in; `other` for one that it does not know.
    pub(crate) fn of_volume<'a>(
        &'a self,
        catalog: &Mutex<Catalog>,
        volser: &Volser,
        other: &'a Arc<LibraryAt>,
    ) -> Result<&'a Arc<LibraryAt>, DirectorError> {
        if !self.are_several() {
            return Ok(other);
        }
        let known = crate::shared::locked(catalog).volume(volser)?;
        Ok(known.and_then(|known| self.get(&known.library)).unwrap_or(other))
    }

    /// The library in which jobs write to a pool: `own` if volumes of the pool are there, else the one that has most of
    /// them; `own` if none has any.
    pub(crate) fn of_pool(
        &self,
        catalog: &Mutex<Catalog>,
        pool: &str,
        own: &Arc<LibraryAt>,
    ) -> Result<Arc<LibraryAt>, DirectorError> {
        if !self.are_several() {
            return Ok(Arc::clone(own));
        }
        let mut volumes = crate::shared::locked(catalog).volumes()?;
        volumes.retain(|volume| volume.pool.as_deref() == Some(pool));
        let count = |library: &LibraryAt| volumes.iter().filter(|volume| volume.library == library.name).count();
        let most = self.all().iter().rev().max_by_key(|library| count(library)).filter(|library| count(library) > 0);
        Ok(Arc::clone(most.filter(|_| count(own) == 0).unwrap_or(own)))
    }
}

/// Where each volume is read.
pub(crate) struct VolumeRoutes {
    libraries: Libraries,
    /// Volumes that are not in the first library.
    of: HashMap<Volser, usize>,
}

impl VolumeRoutes {
    pub(crate) fn new(libraries: &Libraries, catalog: &Mutex<Catalog>) -> Result<Self, DirectorError> {
        let mut of = HashMap::new();
        if libraries.are_several() {
            for volume in crate::shared::locked(catalog).volumes()? {
                let at = libraries.all().iter().position(|library| library.name == volume.library);
                of.extend(at.filter(|at| *at > 0).map(|at| (volume.volser, at)));
            }
        }
        Ok(Self { libraries: libraries.clone(), of })
    }

    /// What can be read at the same time, a plan for each library.
    pub(crate) fn plans(&self, wanted: &Wanted, plan: &ReadPlan) -> Vec<ReadPlan> {
        if self.libraries.are_several() { plans_by_library(wanted, plan, self) } else { vec![plan.clone()] }
    }

    /// A plan without the streams that no one library can give from begin to end, and these.
    pub(crate) fn without_torn(&self, wanted: &Wanted, plan: &ReadPlan) -> (ReadPlan, Vec<usize>) {
        without_torn(self, wanted, plan)
    }

    /// Takes streams apart by the libraries that they can be read in.
    pub(crate) fn split(&self, wanted: Wanted) -> Wanted {
        if self.libraries.are_several() { split_by_library(wanted, self) } else { wanted }
    }

    /// The drives that volumes are read with.
    pub(crate) fn drives(&self) -> DrivesAt<'_> {
        match self.libraries.all() {
            [only] => only.data_path.drives(),
            _ => DrivesAt::from(self as &dyn ReadRoutes),
        }
    }
}

impl ReadRoutes for VolumeRoutes {
    fn library_of(&self, place: &VolumePlace) -> usize {
        self.of.get(&place.volser).copied().unwrap_or_default()
    }

    fn drives(&self, library: usize) -> DrivesAt<'_> {
        self.libraries.all()[library].data_path.drives()
    }

    fn cost_of(&self, library: usize) -> u8 {
        let config = &self.libraries.all()[library].config;
        // One at the pace of a tape drive is no quicker than that. Of a library at a mover it is not known here what it
        // is: it may be a disk.
        u8::from(!config.is_folder_here() || !config.pace.is_empty())
    }
}

fn open_library(
    dir: &Path,
    (name, config): (&str, &LibraryConfig),
    all: &[&str],
    catalog: &mut Catalog,
    events: &Events,
) -> Result<SharedLibrary, DirectorError> {
    let absent = |library, reason| -> SharedLibrary { Arc::new(Mutex::new(AbsentLibrary { library, reason })) };
    if !config.mover.is_empty() {
        let reason = "its mover is asked, and not this host".to_owned();
        return Ok(absent(format!("of mover {}", config.mover), reason));
    }
    if config.is_virtual() {
        let path = dir.join(&config.path);
        if let Err(reason) = library_marker::check(&path, catalog, (name, all))? {
            return Ok(absent(path.display().to_string(), reason));
        }
    }
    let events = Arc::clone(events);
    let on_wait = Arc::new(move |message| events(Event::Waiting { message }));
    config.open(dir, on_wait).map_err(DirectorError::Changer)
}

/// The devices of this process, and its data path.
fn local_devices(library: &SharedLibrary, config: &LibraryConfig, keys: BlockKeys) -> (Arc<dyn Devices>, MoverAt) {
    let drives: Arc<MountedDrives> = Arc::default();
    let devices = config.devices(library, Arc::new(keys), &drives);
    (Arc::new(devices), MoverAt::Here(drives))
}
