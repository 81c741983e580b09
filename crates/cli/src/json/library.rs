//! Libraries and drives.

use capstan_director::{DriveHistory, Fare, Rise, Stay};
use capstan_tape::TapeAlert;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// `drives report`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DriveReportRow {
    /// How drives fared.
    drives: Vec<FareRow>,
    /// How volumes fared.
    volumes: Vec<FareRow>,
    /// Stays of volumes in drives, the latest first.
    stays: Vec<StayRow>,
    /// What a person should do.
    concerns: Vec<String>,
}

/// How a drive or a volume fared.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct FareRow {
    /// The drive or the volume.
    name: String,
    /// Stays in drives.
    stays: usize,
    /// What was written.
    written_bytes: u64,
    /// What was read.
    read_bytes: u64,
    /// Errors that the drive corrected.
    corrected: u64,
    /// Errors that it could not correct.
    uncorrected: u64,
    /// Loads in its life, as it counts them.
    loads: Option<u64>,
    /// Metres of tape in its life, as it counts them.
    metres: Option<u64>,
    /// Where it corrects more than it did.
    rise: Option<RiseRow>,
}

/// Errors that rose.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RiseRow {
    /// Corrected errors for each gigabyte before.
    before_per_gb: f64,
    /// The same now.
    now_per_gb: f64,
}

/// A stay of a volume in a drive.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct StayRow {
    /// When it was mounted, nanoseconds since 1970.
    since_ns: i64,
    /// When it left; null where nobody saw it.
    left_ns: Option<i64>,
    /// The drive.
    drive: String,
    /// The volume.
    volume: String,
    /// What was written.
    written_bytes: Option<u64>,
    /// What was read.
    read_bytes: Option<u64>,
    /// Errors that the drive corrected.
    corrected: Option<u64>,
    /// Errors that it could not correct.
    uncorrected: Option<u64>,
    /// What the drive's compression made of a hundred bytes, in percent.
    compression_percent: Option<u64>,
    /// Whether the drive asked to be cleaned.
    cleaning: bool,
    /// Its TapeAlert flags.
    alerts: Vec<AlertRow>,
}

/// A TapeAlert flag.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct AlertRow {
    /// Its number.
    flag: u16,
    /// What the standard says of it; null for flags of the drive's maker.
    meaning: Option<&'static str>,
}

fn megabytes(mb: u64) -> u64 {
    mb.saturating_mul(1_000_000)
}

impl From<&Fare> for FareRow {
    fn from(fare: &Fare) -> Self {
        let rise = |rise: &Rise| RiseRow { before_per_gb: rise.before_per_gb, now_per_gb: rise.now_per_gb };
        Self {
            name: fare.name.clone(),
            stays: fare.stays,
            written_bytes: megabytes(fare.written_mb),
            read_bytes: megabytes(fare.read_mb),
            corrected: fare.corrected,
            uncorrected: fare.uncorrected,
            loads: fare.loads,
            metres: fare.metres,
            rise: fare.rise.as_ref().map(rise),
        }
    }
}

impl From<&Stay> for StayRow {
    fn from(stay: &Stay) -> Self {
        let alert = |alert: &TapeAlert| AlertRow { flag: alert.flag, meaning: alert.meaning };
        Self {
            since_ns: stay.since_ns,
            left_ns: stay.left_ns,
            drive: stay.drive.clone(),
            volume: stay.volser.to_string(),
            written_bytes: stay.written_mb.map(megabytes),
            read_bytes: stay.read_mb.map(megabytes),
            corrected: stay.corrected,
            uncorrected: stay.uncorrected,
            compression_percent: stay.compression_percent,
            cleaning: stay.cleaning,
            alerts: stay.alerts.iter().map(alert).collect(),
        }
    }
}

impl From<&DriveHistory> for DriveReportRow {
    fn from(history: &DriveHistory) -> Self {
        Self {
            drives: history.drives.iter().map(FareRow::from).collect(),
            volumes: history.volumes.iter().map(FareRow::from).collect(),
            stays: history.stays.iter().map(StayRow::from).collect(),
            concerns: history.concerns.iter().map(ToString::to_string).collect(),
        }
    }
}

/// `clock`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ShownClock {
    /// What the clock says.
    pub(crate) clock: super::ClockRow,
    /// Objects that were begun while it was in doubt.
    pub(crate) objects: Vec<DoubtedObject>,
}

/// An object that was begun while the clock was in doubt.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DoubtedObject {
    /// The object.
    pub(crate) object: String,
    /// When it was begun by the clock, nanoseconds since 1970.
    pub(crate) started_ns: i64,
    /// `behind` or `ahead`.
    pub(crate) doubt: Option<&'static str>,
    /// Not before this it was begun.
    pub(crate) begun_from_ns: i64,
    /// By then it was begun.
    pub(crate) begun_by_ns: i64,
}
