//! What a client asks of its server about what was backed up of it: words on both sides.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CellOrder, JobId};

/// An object of the client that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnObject {
    /// Its id.
    pub object: String,
    /// What was backed up: a path, or the name of a stream. Bytes that are no UTF-8 are replaced.
    pub source: String,
    /// The policy that asked for it.
    pub policy: String,
    /// Whether it holds everything, and not only what changed.
    pub is_full: bool,
    /// Whether it was backed up to its end.
    pub is_complete: bool,
    /// Words that were given to it when it was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was begun, nanoseconds since 1970.
    pub started_ns: i64,
    /// Files in it, if that is known.
    pub files: Option<u64>,
    /// Bytes of these files.
    pub bytes: Option<u64>,
}

/// `GET /v1/own/objects`: what there is of the client that asks, the latest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectsAnswer {
    /// The objects.
    pub objects: Vec<OwnObject>,
}

/// `POST /v1/own/restores`: what of the client that asks is to be restored to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskRestore {
    /// Objects or sources, each with a path behind a colon where not all of it is meant.
    pub places: Vec<String>,
    /// The state at this time, nanoseconds since 1970; the latest without it.
    #[serde(default)]
    pub at_ns: Option<i64>,
    /// Only what matches.
    #[serde(default)]
    pub include: Vec<String>,
    /// Not what matches.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Leading components that are taken from each path.
    #[serde(default)]
    pub strip: u16,
    /// Only the plan is asked for.
    #[serde(default)]
    pub plan_only: bool,
    /// What can be read of a damaged file is kept, under its name with `.damaged` added.
    #[serde(default)]
    pub keep_damaged: bool,
    /// What is there is restored, though a volume is in no library. Without it, the restore waits for the volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// What a restore will read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreOutlook {
    /// Paths that will be written.
    pub members: u64,
    /// Bytes of files that will be written.
    pub bytes: u64,
    /// Volumes that are read, in this order.
    pub volumes: Vec<String>,
    /// How long it is thought to take, nanoseconds.
    pub estimate_ns: u64,
    /// What the person should know.
    pub notices: Vec<String>,
    /// Whether a part of it cannot be had now.
    #[serde(default)]
    pub lacks_part: bool,
    /// Whether a key of it is not there.
    #[serde(default)]
    pub lacks_key: bool,
}

/// The answer to [`AskRestore`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestorePlanned {
    /// What will be read.
    #[serde(flatten)]
    pub outlook: RestoreOutlook,
    /// Its run in the queue; none where only the plan was asked for.
    pub run: Option<i64>,
    /// What it waits for, in words; none where it begins at once.
    pub waits_for: Option<String>,
}

/// `GET /v1/own/restores`: which restore is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreQuery {
    /// Its run in the queue.
    pub run: i64,
    /// The job of the last order that came of it.
    #[serde(default)]
    pub had: Option<JobId>,
}

/// The answer, once there is something of it within the time that the question stays open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreSeen {
    /// What it waits for, in words, if it waits.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// What to do now, for whoever typed it at a client: its turn has come.
    #[serde(default)]
    pub order: Option<CellOrder>,
    /// How it ended, if it has.
    pub ended: Option<RestoreEnded>,
}

/// `POST /v1/own/restores/stop`: a restore of whoever asks is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRestore {
    /// Its run in the queue.
    pub run: i64,
}

/// A restore that was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreStopping {
    /// Its run in the queue.
    pub run: i64,
}

/// How a restore ended, as the server saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreEnded {
    /// Why it was not carried out to its end, if it was not.
    pub failure: Option<String>,
    /// Paths that were given back.
    pub members: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Blocks read.
    pub blocks: u64,
    /// The first files that were not given back as they were, each with why.
    pub failed: Vec<String>,
    /// How many there were.
    pub failed_count: u64,
    /// What the person should know.
    pub notices: Vec<String>,
    /// Paths that the client left as they were.
    #[serde(default)]
    pub kept: u64,
    /// The first things that the client could not write as they were, each with why.
    #[serde(default)]
    pub problems: Vec<String>,
    /// How many there were.
    #[serde(default)]
    pub problems_count: u64,
}
