//! Rows of lists, a line each. They have no `event`.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use capstan_catalog::{ClockReading, DamageRecord as DamageOnRecord};

use super::{Source, words};
use crate::wording::doubt_name;

/// A copy of an object.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct CopyRow {
    /// Its number, from 1.
    pub(crate) copy: u8,
    /// Volumes that it stands on; none, if it was promised and nothing of it is there.
    pub(crate) volumes: Vec<String>,
    /// Whether all of the object is on it.
    pub(crate) whole: bool,
    /// Whether a key of its volumes is not in the key store or was destroyed, so that it cannot be read.
    pub(crate) key_missing: bool,
    /// When all of it was last read back, nanoseconds since 1970; null if it never was.
    pub(crate) verified_ns: Option<i64>,
    /// Blocks of it that could not be read then.
    pub(crate) verified_bad_blocks: Option<u64>,
    /// The pool that it was promised in, if it is known.
    pub(crate) pool: Option<String>,
}

/// An object: a line of `objects`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ObjectRow {
    /// Its id.
    pub(crate) object: String,
    /// What was backed up.
    #[serde(flatten)]
    pub(crate) source: Source,
    /// The host.
    pub(crate) client: String,
    /// The policy's name.
    pub(crate) policy: String,
    /// `full` or `incr`.
    pub(crate) level: &'static str,
    /// `complete`, `running`, `interrupted` or `expired`.
    pub(crate) status: &'static str,
    /// The object that an incremental stands on.
    pub(crate) base: Option<String>,
    /// The incremental that a full object stands for which was made of it and of what it is based on; else null.
    pub(crate) consolidates: Option<String>,
    /// When it was begun, nanoseconds since 1970.
    pub(crate) started_ns: i64,
    /// When it was complete; 0 before.
    pub(crate) ended_ns: i64,
    /// When it may be forgotten, with the last of its copies; 0 for never, and where a keep rule decides on one.
    pub(crate) expires_ns: i64,
    /// Whether nobody can have it forgotten before.
    pub(crate) locked: bool,
    /// Words that were given to it when it was made.
    pub(crate) tags: Vec<String>,
    /// `behind` or `ahead` where the clock was in doubt when it was begun; else null.
    pub(crate) clock_doubt: Option<&'static str>,
    /// Where the clock was in doubt: not before this it was begun, nanoseconds since 1970.
    pub(crate) begun_from_ns: Option<i64>,
    /// Where the clock was in doubt: by then it was begun.
    pub(crate) begun_by_ns: Option<i64>,
    /// Bytes of it that can be read in no copy any more, as far as is known.
    pub(crate) lost_bytes: u64,
    /// Paths of every kind; like all counts, of an incremental what it holds itself.
    pub(crate) entries: u64,
    /// Regular files.
    pub(crate) files: u64,
    /// Bytes of their content.
    pub(crate) bytes: u64,
    /// Paths that the base has and the source no longer has.
    pub(crate) deleted: u64,
    /// Files that grew, shrank or changed while they were read.
    pub(crate) changed: u64,
    /// Paths that vanished, or could not be read in full.
    pub(crate) problems: u64,
    /// Its copies.
    pub(crate) copies: Vec<CopyRow>,
}

/// A job of the settings: a line of `jobs`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct JobRow {
    /// Its name, which is the policy of its objects.
    pub(crate) job: String,
    /// What it backs up: paths, or the name of a program's output.
    pub(crate) sources: Vec<String>,
    /// The pool of the first copy.
    pub(crate) pool: String,
    /// Copies written at once.
    pub(crate) copies: u8,
    /// `full` or `incremental`.
    pub(crate) level: &'static str,
    /// How old the last full backup of a source may get before an incremental becomes a full one, in nanoseconds; null
    /// for ever.
    pub(crate) full_every_ns: Option<i64>,
    /// How long what it makes is kept, in nanoseconds; null for as long as the pool says, or as `keep` does.
    pub(crate) retention_ns: Option<i64>,
    /// What is kept of the backups of each source; null where a retention decides.
    pub(crate) keep: Option<KeepRow>,
    /// When its last run was begun, nanoseconds since 1970; null if there is none.
    pub(crate) last_ns: Option<i64>,
    /// How that ended: `done`, `problems` (exit code 3), `busy` (6: it did not begin, because another job had what it
    /// needs), `failed`, `stopped`, `killed`, or `running`; `never` if there is none.
    pub(crate) outcome: &'static str,
    /// Sources of which there is no object.
    pub(crate) sources_never: usize,
    /// Paths that could not be read in the last object of each source.
    pub(crate) problems: u64,
    /// What it does next: `full`, `incremental`, or `mixed`, where some sources are due for a full one.
    pub(crate) next: &'static str,
    /// What keeps the next run from doing all of its work: sources that are not there, files of patterns that cannot be
    /// read.
    pub(crate) faults: Vec<String>,
}

/// How many backups of a source are kept.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct KeepRow {
    /// So many of the last ones.
    pub(crate) last: u32,
    /// The last one of each of so many days.
    pub(crate) daily: u32,
    /// The last one of each of so many weeks.
    pub(crate) weekly: u32,
    /// The last one of each of so many months.
    pub(crate) monthly: u32,
    /// The last one of each of so many years.
    pub(crate) yearly: u32,
}

/// Blocks that could not be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DamageRow {
    /// The volume.
    pub(crate) volume: String,
    /// The first logical block.
    pub(crate) first_lbn: u64,
    /// How many; 0 where something is wrong with the volume and no block of it is known to be bad.
    pub(crate) blocks: u64,
    /// When it was found first, nanoseconds since 1970.
    pub(crate) since_ns: i64,
    /// What found it: `verify`, `restore`, `copy`, `repair`, `cat` or `mount`.
    pub(crate) found_by: String,
    /// What was found.
    pub(crate) reason: String,
}

impl From<&DamageOnRecord> for DamageRow {
    fn from(damage: &DamageOnRecord) -> Self {
        Self {
            volume: damage.volser.to_string(),
            first_lbn: damage.blocks.first_lbn,
            blocks: damage.blocks.blocks,
            since_ns: damage.since_ns,
            found_by: damage.found_by.clone(),
            reason: words(&damage.blocks.reason),
        }
    }
}

/// What the clock says.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ClockRow {
    /// What it says, nanoseconds since 1970.
    pub(crate) now_ns: i64,
    /// The newest record that is believed.
    pub(crate) newest_ns: Option<i64>,
    /// `behind` or `ahead` where it is in doubt; else null.
    pub(crate) doubt: Option<&'static str>,
}

impl From<&ClockReading> for ClockRow {
    fn from(reading: &ClockReading) -> Self {
        Self { now_ns: reading.now_ns, newest_ns: reading.newest_ns, doubt: doubt_name(reading.doubt) }
    }
}

/// Consecutive blocks of one stream on one volume.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ExtentRow {
    /// The copy.
    pub(crate) copy: u8,
    /// The volume.
    pub(crate) volume: String,
    /// The stream.
    pub(crate) connection: u16,
    /// The first logical block.
    pub(crate) first_lbn: u64,
    /// How many blocks.
    pub(crate) blocks: u32,
    /// Where they begin in the stream.
    pub(crate) offset: u64,
    /// Bytes of the stream.
    pub(crate) plain_len: u64,
    /// Bytes on the volume.
    pub(crate) stored_len: u64,
}

/// `show OBJECT`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ShownObject {
    /// As in `objects`.
    #[serde(flatten)]
    pub(crate) object: ObjectRow,
    /// It and the objects that it stands on, the latest first.
    pub(crate) chain: Vec<String>,
    /// What the backup was told to leave out, as options of `backup` and their patterns; null where nobody noted it.
    pub(crate) left_out: Option<Vec<String>>,
    /// How long its copies are kept.
    pub(crate) copies_kept: Vec<CopyKeptRow>,
    /// Copies that policies have yet to make of it.
    pub(crate) copies_owed: Vec<OwedCopyRow>,
    /// Where its streams stand.
    pub(crate) extents: Vec<ExtentRow>,
}

/// How long a copy of an object is kept.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct CopyKeptRow {
    /// Its number, from 1.
    pub(crate) copy: u8,
    /// Until when, nanoseconds since 1970; null for ever, and where a keep rule decides.
    pub(crate) until_ns: Option<i64>,
    /// The policy whose keep rule decides.
    pub(crate) by_rule_of: Option<String>,
    /// The policy of copies that takes its place sooner, once its own copy is whole.
    pub(crate) migrated_by: Option<String>,
    /// From when on it does, nanoseconds since 1970.
    pub(crate) migrates_from_ns: Option<i64>,
    /// Whether it does so only while the copy's disk is filled above its mark; null where none does.
    pub(crate) migrates_when_full: Option<bool>,
}

/// A copy that a policy has yet to make of an object.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct OwedCopyRow {
    /// The policy whose run makes it.
    pub(crate) policy: String,
    /// The pool that it goes to.
    pub(crate) pool: String,
    /// It is not made before, nanoseconds since 1970.
    pub(crate) from_ns: i64,
}

/// A copy that an object has, or should have: a line of `object why`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct CopyWhyRow {
    /// The object.
    pub(crate) object: String,
    /// The copy's number, from 1; null if nothing of it was begun.
    pub(crate) copy: Option<u8>,
    /// The pool that it is in, or goes to.
    pub(crate) pool: String,
    /// `whole`, `part`, `promised`, `whole, no key`, `part, no key`, or `to come`.
    pub(crate) state: &'static str,
    /// The policy that makes it; null if none does now.
    pub(crate) policy: Option<String>,
    /// How long it is kept; null before it is there.
    pub(crate) kept: Option<CopyKeptRow>,
    /// When the run begins that makes or completes it, nanoseconds since 1970; null if it is whole, if that run is in
    /// the queue, or if nothing but a person begins one.
    pub(crate) comes_ns: Option<i64>,
    /// The same for people: who makes it, and what comes next.
    pub(crate) why: String,
}

/// `show VOLUME`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ShownVolume {
    /// Its barcode.
    pub(crate) volume: String,
    /// Its pool; null for scratch.
    pub(crate) pool: Option<String>,
    /// As in `volumes`.
    pub(crate) state: &'static str,
    /// The id of its life.
    pub(crate) id: Option<String>,
    /// The tag of its key.
    pub(crate) key: Option<String>,
    /// The logical block number of the end of data.
    pub(crate) end_of_data_lbn: u64,
    /// That of the last checkpoint.
    pub(crate) last_checkpoint_lbn: u64,
    /// When all of it was last read back, nanoseconds since 1970; null if it never was.
    pub(crate) verified_ns: Option<i64>,
    /// What is on record as damaged.
    pub(crate) damage: Vec<DamageRow>,
    /// What is on it, as in `objects`.
    pub(crate) objects: Vec<ObjectRow>,
}
