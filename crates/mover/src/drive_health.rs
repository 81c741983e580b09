//! How a drive and the volume in it are, as the drive says.

use capstan_tape::{Drive, DriveStatistics, TapeAlert};
use serde::{Deserialize, Serialize};

/// What a drive says of itself and of the volume in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveHealth {
    /// The drive.
    pub drive: String,
    /// TapeAlert flags that are up (SSC-5, annex A). Asking takes them down.
    pub alerts: Vec<u16>,
    /// What it counts.
    pub statistics: DriveStatistics,
}

impl DriveHealth {
    /// Asks a drive, if it offers that.
    pub fn of(drive: &mut dyn Drive) -> Option<Self> {
        let name = drive.identity().name;
        let care = drive.care()?;
        let alerts = care.alerts().iter().map(|alert| alert.flag).collect();
        Some(Self { drive: name, alerts, statistics: care.statistics() })
    }

    /// The flags, with their meaning.
    pub fn tape_alerts(&self) -> impl Iterator<Item = TapeAlert> + '_ {
        self.alerts.iter().map(|flag| TapeAlert::of_flag(*flag))
    }
}
