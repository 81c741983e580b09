//! What `--json` prints: each line one object, and each object one of the types below.
//!
//! docs/JSON.md and docs/json.schema.json are made from these types and their comments (`page`, a test), so a field's
//! comment is written for whoever reads that page.

mod backup;
mod care;
mod cell;
mod devices;
mod events;
mod keys;
mod lab;
mod library;
mod lists;
mod media;
#[cfg(test)]
mod page;
mod restore;
mod status;
mod vtl;

use std::io::{Write, stdout};

use capstan_client::files::text_and_bytes;
use capstan_format::ObjectId;
use capstan_tape::without_error_numbers;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use crate::failure::Failure;

pub(crate) use backup::BackupEnd;
pub(crate) use cell::{
    ClientJoinedRow, ClientObjectRow, ClientRestoreEvent, MemberEvent, MoverJoinedRow, ServerEvent, TellRow,
    TellTrialRow, UserJoinedRow,
};
pub(crate) use devices::{ExercisedRow, ScanRow, ScannedChanger, ScannedDevice, ScannedDrive};
pub(crate) use events::{Event, InDrive};
pub(crate) use keys::{
    CartridgeRow, GroupRow, IssuedKeyRow, KeyDriveRow, KeyEvent, KeyRow, KeysStatusRow, NodeRow, PolicyRow, SlotRow,
    VolumeKeysRow,
};
pub(crate) use lab::{
    AdviceRow, AdvisedChange, ComparedConfiguration, ComparisonRow, DataSetRow, GridRow, ModelRow, Neighbour,
    NetworkLine, ReportedRow, SettingAndForecast, SettingRow, SimulatedRow, TriedRow,
};
pub(crate) use library::{DoubtedObject, DriveReportRow, ShownClock};
pub(crate) use lists::{
    ClockRow, CopyKeptRow, CopyRow, CopyWhyRow, DamageRow, ExtentRow, JobRow, KeepRow, ObjectRow, OwedCopyRow,
    ShownObject, ShownVolume,
};
pub(crate) use media::{ExpiredLine, ObjectReason, OverwrittenLine, repaired};
pub(crate) use restore::{DifferenceLine, RestoreEnd, RestoreFinished};
pub(crate) use status::{RunRow, ShownRun, StatusOwed, StatusRow, StatusSource, run_row};
pub(crate) use vtl::VtlEvent;

/// A source, as it can be handed back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Source {
    /// The source: a path, or the name of a stream. Where its bytes are not UTF-8 those that are not are shown as
    /// `\xNN`, and `source_base64` has all of them.
    source: String,
    /// The bytes of a source that is not UTF-8; else left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_base64: Option<String>,
}

impl From<&[u8]> for Source {
    fn from(bytes: &[u8]) -> Self {
        let (source, source_base64) = text_and_bytes(bytes);
        Self { source, source_base64 }
    }
}

/// A reason or a message, without the numbers of system errors.
pub(crate) fn words(text: &(impl ToString + ?Sized)) -> String {
    without_error_numbers(&text.to_string())
}

pub(crate) fn id(object: ObjectId) -> String {
    object.to_string()
}

/// Prints a line. Rows go through a writer of their own ([`Lines`]).
pub(crate) fn print(value: &impl Serialize) -> Result<(), Failure> {
    line(value).map_err(Failure::output)
}

/// The same, for what prints text as well and fails as that does.
pub(crate) fn line(value: &impl Serialize) -> std::io::Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints rows as they come, holding none.
pub(crate) struct Lines {
    out: std::io::BufWriter<std::io::StdoutLock<'static>>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { out: std::io::BufWriter::with_capacity(1 << 16, stdout().lock()) }
    }

    pub(crate) fn row(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.out, value).map_err(|error| Failure::output(error.into()))?;
        self.out.write_all(b"\n").map_err(Failure::output)
    }

    /// A line for people, where a list has both.
    pub(crate) fn text(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(Failure::output)
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::output)
    }
}

#[cfg(test)]
mod tests {
    use capstan_client::files::ShownPath;

    #[test]
    fn paths_can_be_handed_back_whatever_their_bytes() {
        let line = |path: &[u8]| serde_json::to_string(&ShownPath::from(path)).expect("it is plain");
        assert_eq!(line(b"a\nb\\c\xc3\xa9"), r#"{"path":"a\nb\\cé"}"#, "the string itself, as JSON escapes it");
        assert_eq!(line(b"a\xffb"), r#"{"path":"a\\xffb","path_base64":"Yf9i"}"#);
    }
}
