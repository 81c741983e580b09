//! What `simulate`, `models` and `lab` print. What the laboratory measured has its types there; these are the others.

use capstan_lab::{
    Cell, Disagreement, Fit, Forecast, HEADS, Lever, Misses, NetworkEvent, Part, Prediction, Route, Sample, Setting,
    SettingChange, Trial,
};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::words;
use capstan_client::files::ShownPath;

/// `simulate`: how a drive did under a load, on one line.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SimulatedRow<'a> {
    /// The drive.
    pub(crate) drive: &'a str,
    /// How long it took, in seconds of the simulation.
    pub(crate) elapsed_s: f64,
    /// MB that the drive took from the host.
    pub(crate) host_mb: f64,
    /// The same for each second.
    pub(crate) host_mb_per_s: f64,
    /// MB that went to the tape.
    pub(crate) tape_mb: f64,
    /// MB of these that are only there to keep the tape moving.
    pub(crate) pad_mb: f64,
    /// Times that the tape went back.
    pub(crate) backhitches: u64,
    /// Times that the drive chose another speed.
    pub(crate) speed_changes: u64,
    /// Seconds in which the tape moved and was written.
    pub(crate) streaming_s: f64,
    /// Seconds in which the host waited for the drive.
    pub(crate) host_waits_s: f64,
    /// MB of answered data that a loss of power at the end of the worst interval would have taken.
    pub(crate) at_risk_mb: f64,
    /// Interval by interval.
    pub(crate) samples: &'a [Sample],
}

/// `models`: a drive that has a model, a line each.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ModelRow<'a> {
    /// Its name, as `--drive` takes it.
    pub(crate) name: &'a str,
    /// What it writes of data that do not compress, MB/s.
    pub(crate) native_mb_per_s: f64,
    /// What it takes at most, however far the data compress, MB/s.
    pub(crate) ceiling_mb_per_s: f64,
    /// MB that its buffer holds.
    pub(crate) buffer_mb: f64,
    /// Seconds that going back takes.
    pub(crate) backhitch_s: f64,
    /// GB of a cartridge.
    pub(crate) capacity_gb: f64,
    /// Bytes of the longest block that it writes.
    pub(crate) block_len_max: u32,
}

/// `lab create-data`: what was made, or with `--check` what was read and how it differs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DataSetRow {
    /// Files.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// How long it took, in seconds.
    pub(crate) seconds: f64,
    /// MB in each second.
    pub(crate) mb_per_s: f64,
    /// Paths that differ, in any way; all these paths are seen from the folder.
    pub(crate) differing: Vec<ShownPath>,
    /// Those of another content, or another length.
    pub(crate) changed: Vec<ShownPath>,
    /// Those that are not there.
    pub(crate) missing: Vec<ShownPath>,
    /// Those that cannot be read.
    pub(crate) unreadable: Vec<ShownPath>,
    /// Those that were not made.
    pub(crate) extra: Vec<ShownPath>,
    /// How far the data were to compress; null where that was not looked at.
    pub(crate) asked_ratio: Option<f64>,
    /// How far they do.
    pub(crate) found_ratio: Option<f64>,
    /// Bytes that were compressed to see that.
    pub(crate) compressed_bytes: Option<u64>,
}

/// `lab characterize`: a row of the table, a line each. The first six fields are as the table has them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct GridRow<'a> {
    /// The drive.
    pub(crate) drive: &'a str,
    /// Buffers.
    pub(crate) data_buffers: &'a str,
    /// Bytes of a buffer: `256KB`.
    pub(crate) buffer_size: &'a str,
    /// `1` where the drive encrypts, else `0`.
    pub(crate) encrypted: &'a str,
    /// Bytes of a file: `32KB`.
    pub(crate) file_size: &'a str,
    /// How far the data compress.
    pub(crate) compression_ratio: &'a str,
    /// What was measured, MB/s; null where nothing was.
    pub(crate) mb_per_s: Option<f64>,
    /// What is predicted, MB/s.
    pub(crate) predicted_mb_per_s: f64,
    /// What is the narrowest.
    pub(crate) bottleneck: &'static str,
}

impl<'a> GridRow<'a> {
    pub(crate) fn new(cell: &'a Cell, prediction: &Prediction) -> Self {
        let column = |name: &str| {
            let at = HEADS.iter().position(|head| *head == name);
            at.and_then(|at| cell.columns.get(at)).map_or("", String::as_str)
        };
        Self {
            drive: column("drive"),
            data_buffers: column("data_buffers"),
            buffer_size: column("buffer_size"),
            encrypted: column("encrypted"),
            file_size: column("file_size"),
            compression_ratio: column("compression_ratio"),
            mb_per_s: cell.measured_mb_per_s,
            predicted_mb_per_s: prediction.mb_per_s,
            bottleneck: prediction.bottleneck().name(),
        }
    }
}

/// `lab compare`: the models against this machine, on one line.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ComparisonRow<'a> {
    /// How far half of the predictions are off at most, as a share of what was measured.
    pub(crate) median_error: f64,
    /// Each configuration.
    pub(crate) rows: Vec<ComparedConfiguration<'a>>,
}

/// A configuration, predicted and measured.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ComparedConfiguration<'a> {
    /// What was done.
    pub(crate) what: &'a str,
    /// Whether the virtual drive took the time of a real one.
    pub(crate) paced: bool,
    /// MB/s.
    pub(crate) predicted_mb_per_s: f64,
    /// MB/s.
    pub(crate) measured_mb_per_s: f64,
    /// How far the prediction is off, as a share of what was measured.
    pub(crate) error: f64,
}

/// `lab report`: what was predicted and what was measured, a line each. The page is in the file that was named.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ReportedRow<'a> {
    /// Where it is from.
    pub(crate) kind: &'a str,
    /// What was done.
    pub(crate) what: &'a str,
    /// MB/s.
    pub(crate) predicted_mb_per_s: f64,
    /// MB/s; null where nothing was measured.
    pub(crate) measured_mb_per_s: Option<f64>,
    /// What is the narrowest.
    pub(crate) bottleneck: &'a str,
}

/// What happens while `lab network --listen` waits, one object a line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) enum NetworkLine {
    /// It listens.
    Listening {
        /// Where: an address and a port.
        address: String,
    },
    /// Somebody began to measure.
    Began {
        /// Who.
        peer: String,
    },
    /// Somebody is done.
    Done {
        /// Who.
        peer: String,
        /// MB that came.
        received_mb: f64,
        /// MB that went.
        sent_mb: f64,
    },
    /// A connection was lost.
    Lost {
        /// Why.
        reason: String,
    },
    /// Somebody was turned away.
    TurnedAway {
        /// Who.
        peer: String,
        /// Why.
        reason: String,
    },
}

impl From<&NetworkEvent> for NetworkLine {
    fn from(event: &NetworkEvent) -> Self {
        match event {
            NetworkEvent::Began { peer } => Self::Began { peer: peer.to_string() },
            NetworkEvent::Done { peer, received_mb, sent_mb } => {
                Self::Done { peer: peer.to_string(), received_mb: *received_mb, sent_mb: *sent_mb }
            }
            NetworkEvent::Lost { error } => Self::Lost { reason: words(error) },
            NetworkEvent::TurnedAway { peer, reason } => {
                Self::TurnedAway { peer: peer.to_string(), reason: reason.to_string() }
            }
        }
    }
}

/// `lab advise`: what each configuration would give, and what to change, on one line.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct AdviceRow<'a> {
    /// The source.
    pub(crate) source: String,
    /// MB to back up.
    pub(crate) source_mb: f64,
    /// The time that a backup may take, in seconds; null where none was named.
    pub(crate) window_s: Option<f64>,
    /// What there is, and what it gives.
    pub(crate) now: SettingAndForecast<'a>,
    /// What to change, the most useful first, each on top of those before it.
    pub(crate) changes: Vec<AdvisedChange<'a>>,
    /// What there would be then.
    pub(crate) advised: SettingAndForecast<'a>,
    /// Half of the width of `interval_mb_per_s`, as a share of the forecast.
    pub(crate) uncertainty: f64,
    /// From where to where what is advised is expected, MB/s.
    pub(crate) interval_mb_per_s: [f64; 2],
    /// How far what was tried here was from its forecast; null if nothing was.
    pub(crate) misses: Option<Misses>,
    /// Each setting that differs from the present one in one thing.
    pub(crate) configurations: Vec<Neighbour<'a>>,
    /// Two copies at once instead of one; null where that was not asked.
    pub(crate) twin: Option<&'a Forecast>,
    /// By way of a disk, with the best depot; null where no disk was measured.
    pub(crate) staged: Option<SettingAndForecast<'a>>,
    /// What each drive that has a model would make of it.
    pub(crate) drives: &'a [Fit],
    /// Of the drives that give what is needed, the one whose tape moves most of the time.
    pub(crate) fitting: Option<&'a str>,
    /// The source and the virtual drive on two disks; null where they do not share one.
    pub(crate) apart: Option<&'a Forecast>,
    /// What bare readers and the data path got, where that cannot both be so: then no change is advised.
    pub(crate) disagreement: Option<Disagreement>,
    /// What was tried.
    pub(crate) trials: Vec<TriedRow<'a>>,
}

/// A setting, and what it gives.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SettingAndForecast<'a> {
    /// The setting.
    pub(crate) setting: SettingRow,
    /// What it gives.
    pub(crate) forecast: &'a Forecast,
}

/// How a backup is done.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SettingRow {
    /// Streams that read at the same time.
    connections: u32,
    /// Payload bytes of a block.
    block_bytes: usize,
    /// Bytes of the block pool.
    pool_bytes: u64,
    /// A checkpoint after so many bytes.
    checkpoint_bytes: u64,
    /// A checkpoint after so many seconds, if they are over first.
    checkpoint_seconds: u64,
    /// zstd level; 0 for none.
    compression_level: i32,
    /// Copies that are written at once.
    copies: u32,
    /// The way to the drive.
    route: Route,
    /// The drive; `virtual` for virtual cartridges.
    drive: String,
}

impl SettingRow {
    pub(crate) fn new(setting: &Setting, drive: String) -> Self {
        let Setting {
            connections,
            block_len,
            pool_bytes,
            checkpoint_bytes,
            checkpoint_seconds,
            compression_level,
            copies,
            route,
            ..
        } = setting;
        Self {
            connections: *connections,
            block_bytes: *block_len,
            pool_bytes: *pool_bytes,
            checkpoint_bytes: *checkpoint_bytes,
            checkpoint_seconds: *checkpoint_seconds,
            compression_level: *compression_level,
            copies: *copies,
            route: *route,
            drive,
        }
    }
}

/// One change of a setting.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct AdvisedChange<'a> {
    /// What is changed.
    lever: Lever,
    /// From.
    from: &'a str,
    /// To.
    to: &'a str,
    /// The option or the line of capstan.toml that does it.
    how: String,
    /// What was the narrowest before.
    relieves: Part,
    /// How much more it gives, as a share.
    gain: f64,
    /// What it gives then.
    forecast: &'a Forecast,
}

impl<'a> From<&'a SettingChange> for AdvisedChange<'a> {
    fn from(change: &'a SettingChange) -> Self {
        Self {
            lever: change.lever,
            from: &change.from,
            to: &change.to,
            how: change.lever.how(&change.setting),
            relieves: change.relieves,
            gain: change.gain(),
            forecast: &change.after,
        }
    }
}

/// A setting that differs in one thing.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Neighbour<'a> {
    /// What differs.
    pub(crate) lever: Lever,
    /// How it is set.
    pub(crate) value: String,
    /// What that gives.
    pub(crate) forecast: &'a Forecast,
}

/// A setting that was tried.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct TriedRow<'a> {
    /// `now` or `advised`.
    pub(crate) what: &'a str,
    /// What was predicted, and what it gave.
    pub(crate) trial: &'a Trial,
    /// How far the prediction is off, as a share of what was measured.
    pub(crate) error: f64,
}
