//! The parts of a backup's way from files to tape, and what their rates give together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of the way from files to tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "PartOfTheWay")]
pub enum Part {
    /// Reading the files.
    Source,
    /// The network between them and the drive.
    Network,
    /// The processors: reading, compression, encryption.
    Processor,
    /// The block pool: it runs empty while the source, and full while the drive, is held up.
    Buffers,
    /// The disk that data stay on until they go to tape.
    Staging,
    /// The disk that both the source and the virtual drive lie on.
    Disk,
    /// The drive; a virtual one is a disk.
    Drive,
}

impl Part {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Network => "network",
            Self::Processor => "processor",
            Self::Buffers => "buffers",
            Self::Staging => "staging",
            Self::Disk => "disk",
            Self::Drive => "drive",
        }
    }
}

/// What parts give together: nearly what the narrowest gives. Each fluctuates, so that those near the narrowest are it
/// now and then: rates are joined by a power mean, whose power says how little they fluctuate. A disk that source and
/// drive share stands for the drive.
pub(crate) fn together(parts: &[(Part, f64)], steadiness: f64) -> f64 {
    let shared = parts.iter().any(|(part, _)| *part == Part::Disk);
    let apart = parts.iter().filter(|(part, _)| !(shared && *part == Part::Drive));
    let sum: f64 = apart.map(|(_, rate)| rate.max(1e-9).powf(-steadiness)).sum();
    sum.powf(-1.0 / steadiness)
}

/// The narrowest part.
pub(crate) fn least(parts: &[(Part, f64)]) -> (Part, f64) {
    let narrowest = parts.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1));
    narrowest.unwrap_or((Part::Source, 0.0))
}
