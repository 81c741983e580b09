//! What `drives scan` and `drives exercise` print.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// `drives scan`: the drives and libraries that the kernel knows, on one line.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ScanRow {
    /// Libraries.
    pub(crate) changers: Vec<ScannedChanger>,
    /// Drives.
    pub(crate) drives: Vec<ScannedDrive>,
}

/// A device as the kernel names it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ScannedDevice {
    /// Its SCSI address: host, channel, target, unit.
    pub(crate) address: String,
    /// Its maker.
    pub(crate) vendor: String,
    /// Its product.
    pub(crate) product: String,
    /// The revision of its firmware.
    pub(crate) revision: String,
    /// Its serial number; null if it tells none.
    pub(crate) serial: Option<String>,
    /// Its node of `sg`.
    pub(crate) sg: Option<String>,
    /// Names that stay whatever order devices are found in.
    pub(crate) by_id: Vec<String>,
    /// Whether this user may use it.
    pub(crate) access: bool,
}

/// A library.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ScannedChanger {
    /// The device.
    #[serde(flatten)]
    pub(crate) device: ScannedDevice,
    /// Its node of `ch`.
    pub(crate) sch: Option<String>,
    /// Serial numbers of its drives, null for one that is not told; null if the library could not be asked.
    pub(crate) drive_serials: Option<Vec<Option<String>>>,
    /// Why it could not be asked.
    pub(crate) problem: Option<String>,
}

/// A drive.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ScannedDrive {
    /// The device.
    #[serde(flatten)]
    pub(crate) device: ScannedDevice,
    /// Its node of `st` that does not rewind.
    pub(crate) nst: Option<String>,
    /// Which of the libraries of this line it is in, counted from 0; null for none.
    pub(crate) changer: Option<usize>,
    /// Which drive of that it is, counted from 0.
    pub(crate) drive: Option<u32>,
}

/// `drives exercise`: how it ended. The report has the rest.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ExercisedRow {
    /// The drive's model, as it tells it.
    pub(crate) model: String,
    /// Rules that it kept.
    pub(crate) kept: usize,
    /// Rules that it broke.
    pub(crate) broken: Vec<String>,
    /// Rules that drives of its kind break by design.
    pub(crate) broken_by_design: usize,
    /// Measurements that failed, and why.
    pub(crate) problems: Vec<String>,
    /// The file with the report; null where none was asked for.
    pub(crate) report: Option<String>,
}
