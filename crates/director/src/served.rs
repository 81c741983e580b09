//! What a server needs of a site beside its jobs: the right to move runs through the queue, and which drives others
//! use.

use capstan_catalog::{Resource, Wish};

use crate::DirectorError;
use crate::hold::Hold;
use crate::process;
use crate::site::Site;

/// The right to move runs through the queue, until it is dropped.
#[derive(Debug)]
pub struct ServerTerm {
    hold: Hold,
}

impl ServerTerm {
    /// Higher than that of every server before.
    pub fn number(&self) -> u64 {
        self.hold.generation()
    }
}

/// How the drives of a site are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveUse {
    /// Drives there are.
    pub all: u32,
    /// Of these, drives that jobs of other processes use.
    pub by_others: u32,
}

impl Site {
    /// Begins to serve this site: nobody else moves runs through its queue until the term is dropped.
    ///
    /// # Errors
    /// [`DirectorError::ServerRuns`] if another server does. Otherwise the catalog cannot be written.
    pub fn begin_term(&self) -> Result<ServerTerm, DirectorError> {
        match self.holds.reserve(&Wish::alone(Resource::Server))? {
            Ok(hold) => Ok(ServerTerm { hold }),
            Err(held) => Err(DirectorError::ServerRuns { process: process::number_of(&held.owner) }),
        }
    }

    /// Whether a server moves runs through the queue.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn is_served(&self) -> Result<bool, DirectorError> {
        Ok(self.holds.living()?.iter().any(|held| held.resource == Resource::Server))
    }

    /// How the drives are used.
    ///
    /// # Errors
    /// The catalog or the library cannot be read.
    pub fn drive_use(&self) -> Result<DriveUse, DirectorError> {
        let this = process::this();
        let is_of_others = |resource: &Resource, owner: &str| matches!(resource, Resource::Seat(_)) && owner != this;
        let held = self.holds.living()?;
        let by_others = held.iter().filter(|held| is_of_others(&held.resource, &held.owner)).count();
        Ok(DriveUse { all: self.devices.drives()?, by_others: u32::try_from(by_others).unwrap_or(u32::MAX) })
    }
}
