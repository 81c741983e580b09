//! What drives of libraries can do, as a server found it: for those who ask no library, and for storage units of some
//! models.

use std::collections::HashSet;

use capstan_catalog::Volume;
use capstan_format::Volser;
use capstan_tape::{DriveDescription, DriveNeeds, WriteFit};

use crate::libraries::LibraryAt;
use crate::mounter::generation_of;
use crate::site::locked;
use crate::{DirectorError, Site, StorageUnit};

/// The catalog's fact that says of which models the drives of a library are, one of each drive.
pub(crate) fn classes_fact(library: &str) -> String {
    format!("models of the drives: {library}")
}

/// What that says of a library; one that cannot tell is not known.
pub(crate) fn classes_of(library: &LibraryAt) -> Option<String> {
    let described = library.devices.describe_drives().ok()?;
    let classes: Vec<String> = described.into_iter().map(|drive| drive.class.unwrap_or_default()).collect();
    Some(classes.join(","))
}

/// The drives of which that was said.
fn drives_of(classes: &str) -> Vec<DriveDescription> {
    let drive = |class: &str| DriveDescription {
        class: (!class.is_empty()).then(|| class.to_owned()),
        ..DriveDescription::default()
    };
    classes.split(',').map(drive).collect()
}

impl Site {
    /// How many drives of its models the libraries of a unit have; none if one of them was not asked, or has a drive of
    /// which it is not known.
    pub(crate) fn drives_of_models(&self, unit: &StorageUnit) -> Result<Option<u32>, DirectorError> {
        let catalog = locked(&self.catalog);
        let mut count = 0;
        for library in &unit.libraries {
            let classes = catalog.fact(&classes_fact(library))?.unwrap_or_default();
            if classes.split(',').any(str::is_empty) {
                return Ok(None);
            }
            count += classes.split(',').filter(|class| unit.models.iter().any(|model| model == class)).count();
        }
        Ok(Some(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Those of some volumes that no drive of their library writes, as far as a server has asked it.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn volumes_that_no_drive_writes(&self, volumes: &[Volume]) -> Result<HashSet<Volser>, DirectorError> {
        let mut found = HashSet::new();
        for library in self.library_names() {
            let classes = locked(&self.catalog).fact(&classes_fact(&library))?;
            let Some(drives) = classes.as_deref().map(drives_of) else { continue };
            let is_unfit = |volume: &&Volume| {
                let needs = DriveNeeds { generation: generation_of(volume), writes: true, ..DriveNeeds::default() };
                volume.library == library && needs.write_fit(&drives) == WriteFit::None
            };
            found.extend(volumes.iter().filter(is_unfit).map(|volume| volume.volser.clone()));
        }
        Ok(found)
    }
}
