//! What is to be backed up, and how: a request as a person or a schedule gives it.

use std::path::PathBuf;
use std::sync::Arc;

use capstan_format::{TAG_LEN_MAX, TAGS_MAX, is_tag};
use capstan_mover::{StreamInput, TreeOptions};

use crate::DirectorError;
use crate::config::{Bandwidth, JobConfig, NetworkShare};
use crate::pools::DEFAULT_POOL;

/// Everything, or what changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Everything.
    Full,
    /// What changed since the last complete object of the source that can be restored; everything, where complete ones
    /// are and none of them can be.
    Incremental,
}

/// Where blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Volumes of a pool.
    Pool,
    /// Nowhere.
    Null,
}

/// How long what a backup makes is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Retention {
    /// As long as its pool says.
    #[default]
    OfPool,
    /// So long, in nanoseconds.
    For(i64),
    /// As long as the keep rule of its policy keeps it; without the rule for ever.
    ByRule,
}

impl Retention {
    /// As a job or policy says.
    pub fn of_job(job: &JobConfig) -> Self {
        match (job.keep, job.retention_ns()) {
            (Some(_), _) => Self::ByRule,
            (None, Some(ns)) => Self::For(ns),
            (None, None) => Self::OfPool,
        }
    }
}

/// What is to be backed up.
#[derive(Debug, Clone)]
pub struct BackupRequest {
    /// Paths, absolute.
    pub sources: Vec<PathBuf>,
    /// A stream, if that is the source.
    pub stream: Option<StreamInput>,
    /// The pool of the first copy.
    pub pool: String,
    /// The policy's name, for the records.
    pub policy: String,
    /// How long what it makes is kept.
    pub retention: Retention,
    /// Whether nobody may shorten that.
    pub is_locked: bool,
    /// Words by which what it makes is found.
    pub tags: Vec<String>,
    /// Streams that read at the same time.
    pub connections: u16,
    /// Copies written at once.
    pub copies: u8,
    /// Drives for each copy, at most: as many as are free when it begins are used, and one at least.
    pub drives: u8,
    /// Whether fewer are used where its sources had little to write the last time.
    pub drives_by_need: bool,
    /// Everything, or what changed.
    pub level: Level,
    /// How old the last full object may get before an incremental becomes a full one, in nanoseconds; `None` for ever.
    pub full_every_ns: Option<i64>,
    /// What to leave out and where to stop.
    pub tree: TreeOptions,
    /// Where blocks go.
    pub target: Target,
    /// zstd level instead of the one in the settings.
    pub compression: Option<i32>,
    /// Whether files are counted first.
    pub count_first: bool,
    /// What to do when a pool has no volume.
    pub shortfall: Shortfall,
    /// Whether it waits until another job that has one of its sources has ended.
    pub waits_for_writer: bool,
    /// The number of the session that it shares with other jobs of this process on the same terms; none for one of its
    /// own.
    pub session: Option<i64>,
    /// The run of a server's queue that this is an attempt of: what earlier attempts have made is not made again.
    pub run: Option<i64>,
    /// How fast its sources may be read; none for as fast as can be.
    pub bandwidth: Option<Bandwidth>,
    /// Its share of what its client's network takes, if that is bounded.
    pub network: Option<Arc<NetworkShare>>,
}

impl BackupRequest {
    /// All of these paths, over one connection, to the default pool, once.
    pub fn of(sources: Vec<PathBuf>) -> Self {
        Self {
            sources,
            stream: None,
            pool: DEFAULT_POOL.to_owned(),
            policy: String::new(),
            retention: Retention::OfPool,
            is_locked: false,
            tags: Vec::new(),
            connections: 1,
            copies: 1,
            drives: 1,
            drives_by_need: false,
            level: Level::Full,
            full_every_ns: None,
            tree: TreeOptions::default(),
            target: Target::Pool,
            compression: None,
            count_first: false,
            shortfall: Shortfall::Fail,
            waits_for_writer: false,
            session: None,
            run: None,
            bandwidth: None,
            network: None,
        }
    }
}

/// That all of them can be tags.
pub(crate) fn check_tags(tags: &[String]) -> Result<(), DirectorError> {
    let wrong = |tag: &String, reason: String| Err(DirectorError::Tag { tag: tag.clone(), reason });
    for (number, tag) in tags.iter().enumerate() {
        if !is_tag(tag) {
            return wrong(tag, format!("a tag has 1 to {TAG_LEN_MAX} bytes, and no control characters"));
        }
        if tags[..number].contains(tag) {
            return wrong(tag, "it is given twice".to_owned());
        }
        if number >= TAGS_MAX {
            return wrong(tag, format!("an object has {TAGS_MAX} tags at most"));
        }
    }
    Ok(())
}

/// Waits for a volume, or fails, when a pool has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortfall {
    /// The session ends with an error that says what to insert.
    Fail,
    /// The session waits until somebody adds a volume.
    Wait,
}

/// A source of which there is no object, because it was not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingSource {
    /// The source.
    pub source: Vec<u8>,
    /// Why it could not be looked at.
    pub reason: String,
}
