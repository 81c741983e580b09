//! What users see of volumes, pools, drives and libraries.

use std::collections::HashMap;

use super::acts::CellActs;
use super::media_words::{
    DriveLine, DrivesAnswer, InventoryRow, LibraryQuery, PoolRow, PoolsAnswer, SilentLibrary, VaultAnswer, VaultRow,
    VolumeRow, VolumesAnswer, VolumesQuery,
};
use super::rights::CellAct;
use crate::cell::CellError;
use crate::cell::error::in_words;

impl CellActs {
    /// The volumes, and where they are.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be read, or the only library does not answer.
    pub fn volumes(&self, asked: &VolumesQuery) -> Result<VolumesAnswer, CellError> {
        self.permitted(CellAct::ListMedia)?;
        let mut volumes = self.site.catalog().volumes()?;
        volumes.retain(|volume| asked.pool.is_none() || volume.pool == asked.pool);
        let places = self.site.whereabouts(&volumes)?;
        let vaults = self.site.vaults_of_sent()?;
        let catalog = self.site.catalog();
        let mut damaged: HashMap<_, u64> = HashMap::new();
        for damage in catalog.damage()? {
            *damaged.entry(damage.volser).or_default() += damage.blocks.blocks;
        }
        let mut rows = Vec::new();
        for (volume, place) in volumes.iter().zip(places) {
            let verified = catalog.volume_verified(&volume.volser)?.map(|verified| verified.at_ns);
            let damaged_blocks = damaged.get(&volume.volser).copied().unwrap_or_default();
            rows.push(VolumeRow::new(volume, (place, vaults.get(&volume.volser)), damaged_blocks, verified));
        }
        Ok(VolumesAnswer { volumes: rows, libraries: self.site.library_names().len() })
    }

    /// Volumes that are at vaults, are to go there, or are to be fetched.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be read, or the only library does not answer.
    pub fn vault(&self) -> Result<VaultAnswer, CellError> {
        self.permitted(CellAct::ListMedia)?;
        Ok(VaultAnswer { volumes: self.site.vault_volumes()?.into_iter().map(VaultRow::from).collect() })
    }

    /// The pools.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the catalog cannot be read.
    pub fn pools(&self) -> Result<PoolsAnswer, CellError> {
        self.permitted(CellAct::ListMedia)?;
        let catalog = self.site.catalog();
        let volumes = catalog.volumes()?;
        let scratch = volumes.iter().filter(|volume| volume.pool.is_none()).count();
        let pools = catalog.pools()?.iter().map(|pool| PoolRow::new(pool, &volumes)).collect();
        Ok(PoolsAnswer { pools, scratch })
    }

    /// The drives of all libraries that answer.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise the only library does not answer.
    pub fn drives(&self) -> Result<DrivesAnswer, CellError> {
        self.permitted(CellAct::ListMedia)?;
        let libraries = self.site.library_names();
        let mut answer = DrivesAnswer { libraries: libraries.len(), ..DrivesAnswer::default() };
        for library in libraries {
            match self.site.clone().in_library(&library)?.drives() {
                Ok(found) => answer.drives.extend(found.iter().map(|drive| DriveLine::new(&library, drive))),
                Err(error) if answer.libraries == 1 => return Err(error.into()),
                Err(error) => answer.silent.push(SilentLibrary { library, reason: in_words(&error) }),
            }
        }
        Ok(answer)
    }

    /// What is in a library.
    ///
    /// # Errors
    /// [`CellError::Denied`]; otherwise there is no such library, or it does not answer.
    pub fn inventory(&self, asked: &LibraryQuery) -> Result<InventoryRow, CellError> {
        self.permitted(CellAct::ListMedia)?;
        let site = match &asked.library {
            Some(library) => self.site.clone().in_library(library)?,
            None => self.site.clone(),
        };
        Ok(InventoryRow::from(&site.inventory()?))
    }
}
