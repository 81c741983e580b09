//! One stream from files to a drive: what the source gives, what the buffers between carry, what the drive takes.
//!
//! ```text
//!  files --read requests--> N buffers of B bytes --one at a time--> drive
//!   |                         |                                      |
//!   open, then requests       a buffer is free again                 native rate x compression,
//!   that double, up to a      after a cycle and its copying          up to its ceiling
//!   window                    N x B at most in a cycle
//! ```
//! Each of the three has a rate of its own, and the smallest is nearly what comes out. Nearly, because each of them
//! fluctuates and those near the smallest are the bottleneck now and then: rates are joined by a power mean, whose
//! power says how little they fluctuate.
//!
//! Rejected: simulating every buffer. It gives the same rates from the same figures, a thousand times slower, and the
//! papers publish means.

use capstan_tape::model::{DriveModel, ModelError};
use serde::Deserialize;

/// The first read request of a file, bytes: the first read-ahead window of the file systems of the papers.
const FIRST_REQUEST_BYTES: f64 = 32.0 * 1024.0;

/// A host: how it reads files and hands buffers on. A handful of figures with a physical meaning; [`super::calibrate`]
/// finds them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostModel {
    /// Its name.
    pub name: String,
    /// Seconds to find and open a file, and for its first request.
    pub open_s: f64,
    /// Seconds for each further request. Requests double from 32 KiB on.
    pub request_s: f64,
    /// The longest request, KB.
    pub window_kb: f64,
    /// What the disk gives behind the last doubling, MB/s.
    pub stream_mb_per_s: f64,
    /// Seconds for each border of a buffer that lies within a file: the request is cut in two.
    pub border_s: f64,
    /// Seconds until a buffer that was handed over is noticed to be free.
    pub cycle_s: f64,
    /// How fast a buffer is copied, MB/s.
    pub copy_mb_per_s: f64,
    /// How little rates fluctuate: the power that joins them.
    pub steadiness: f64,
}

/// What is to be moved, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PipelineJob {
    /// Bytes of a file.
    pub file_bytes: f64,
    /// Bytes of a buffer, which is a block on the tape.
    pub buffer_bytes: u64,
    /// How many buffers.
    pub buffers: u32,
    /// Bytes of the host for each byte on the tape.
    pub ratio: f64,
    /// Whether the drive encrypts.
    pub encrypted: bool,
}

/// Where a stream is narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelineBottleneck {
    /// Reading the files.
    Source,
    /// The buffers between: too few, too small, or noticed too late.
    Buffers,
    /// The drive.
    Drive,
}

impl PipelineBottleneck {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Buffers => "buffers",
            Self::Drive => "drive",
        }
    }
}

/// What comes of a job, MB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// All together.
    pub mb_per_s: f64,
    /// What the source would give by itself.
    pub source_mb_per_s: f64,
    /// What the buffers would carry.
    pub buffers_mb_per_s: f64,
    /// What the drive would take.
    pub drive_mb_per_s: f64,
}

impl Prediction {
    /// Where it is narrowest.
    pub fn bottleneck(&self) -> PipelineBottleneck {
        let Self { source_mb_per_s: source, buffers_mb_per_s: buffers, drive_mb_per_s: drive, .. } = *self;
        if source <= buffers && source <= drive {
            PipelineBottleneck::Source
        } else if buffers <= drive {
            PipelineBottleneck::Buffers
        } else {
            PipelineBottleneck::Drive
        }
    }
}

impl HostModel {
    /// Reads a host from the text of its file.
    ///
    /// # Errors
    /// [`ModelError::Unreadable`] if it is no host; [`ModelError::Figure`] if a figure in it cannot be.
    pub fn from_toml(text: &str) -> Result<Self, ModelError> {
        let host: Self = toml::from_str(text).map_err(|error| ModelError::Unreadable { reason: error.to_string() })?;
        let figures = [
            ("open_s", host.open_s),
            ("request_s", host.request_s),
            ("window_kb", host.window_kb),
            ("stream_mb_per_s", host.stream_mb_per_s),
            ("border_s", host.border_s),
            ("cycle_s", host.cycle_s),
            ("copy_mb_per_s", host.copy_mb_per_s),
            ("steadiness", host.steadiness),
        ];
        match figures.into_iter().find(|(_, value)| !value.is_finite() || *value <= 0.0) {
            None => Ok(host),
            Some((figure, value)) => {
                Err(ModelError::Figure { model: host.name, figure, value: value.to_string(), must: "more than 0" })
            }
        }
    }

    /// What it gives of files of that length, in buffers of that length, MB/s.
    pub fn source_mb_per_s(&self, file_bytes: f64, buffer_bytes: f64) -> f64 {
        let window = self.window_kb * 1e3;
        let doubled = file_bytes.min(window) / FIRST_REQUEST_BYTES;
        let requests = doubled.max(1.0).log2();
        let streamed_s = (file_bytes - window).max(0.0) / (self.stream_mb_per_s * 1e6);
        // Behind the window requests are as long as the disk likes them, whatever the buffers.
        let borders = file_bytes.min(window) / buffer_bytes;
        let file_s = self.open_s + self.request_s * requests + self.border_s * borders + streamed_s;
        file_bytes / file_s / 1e6
    }

    /// What its buffers carry, MB/s.
    pub fn buffers_mb_per_s(&self, buffer_bytes: f64, buffers: u32) -> f64 {
        let cycle_s = self.cycle_s + buffer_bytes / (self.copy_mb_per_s * 1e6);
        f64::from(buffers) * buffer_bytes / cycle_s / 1e6
    }

    /// What comes of a job with a drive.
    ///
    /// # Errors
    /// [`ModelError::BlockLength`] if the drive does not write blocks of that length; [`ModelError::Figure`] if a
    /// figure of the job cannot be.
    pub fn predict(&self, drive: &DriveModel, job: &PipelineJob) -> Result<Prediction, ModelError> {
        if job.encrypted && !drive.encrypts() {
            return Err(ModelError::NoEncryption { model: drive.name.clone() });
        }
        let share = drive.tape_share(job.buffer_bytes, job.encrypted, job.ratio)?;
        let buffer_bytes = job.buffer_bytes as f64;
        let sustained = drive.sustained_mb_per_s.as_ref().unwrap_or(&drive.native_mb_per_s).value;
        let source = self.source_mb_per_s(job.file_bytes, buffer_bytes);
        let buffers = self.buffers_mb_per_s(buffer_bytes, job.buffers);
        let taken = (sustained * job.ratio / share).min(drive.ceiling_mb_per_s.value);
        let power = -self.steadiness;
        let joined = source.powf(power) + buffers.powf(power) + taken.powf(power);
        Ok(Prediction {
            mb_per_s: joined.powf(1.0 / power),
            source_mb_per_s: source,
            buffers_mb_per_s: buffers,
            drive_mb_per_s: taken,
        })
    }
}
