//! Backups that have a name: what `[jobs.NAME]` of the settings says, and what a policy says.
//!
//! Both say sources, where they go, how long they are kept, and what runs before and after; the objects that are made
//! bear the name as their policy. A job of the settings is started by a person or a timer. A policy is kept in the
//! catalog, and a server runs it when it is due ([`super::timing`]). A policy names programs that the settings of the
//! client allow, and not their command lines: who may write a policy cannot run anything else there.

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};

use capstan_mover::{PathPatterns, SnapshotUse};
use capstan_tape::with_causes;
use serde::{Deserialize, Serialize};

use super::lists::{copied, looked_after, not_empty, put_as, to_go};
use crate::keep::KeepRule;
use crate::pools::{DEFAULT_POOL, name_of_copy};

/// Longest name of a job, in bytes: it is in every list, and part of a systemd unit's name.
const NAME_LEN_MAX: usize = 64;
/// Most drives that a copy is written to at the same time.
const DRIVES_MAX: u8 = 16;
/// Most incrementals that may stand on a full backup before a full one is made of them.
const CONSOLIDATE_AFTER_MAX: u32 = 1000;
/// The policy of backups that are of no job.
pub const MANUAL: &str = "manual";

/// A backup that has a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobConfig {
    /// Absolute paths of files, directories or block devices.
    pub sources: Vec<PathBuf>,
    /// The name that the output of a program is kept under.
    pub stdin: Option<String>,
    /// That program, with its arguments.
    pub stdin_command: Vec<String>,
    /// Patterns of what is left out.
    pub exclude: Vec<String>,
    /// Absolute paths of files with further patterns, one a line.
    pub exclude_from: Vec<PathBuf>,
    /// Whether directories that a CACHEDIR.TAG calls caches are left out.
    pub exclude_caches: bool,
    /// Whether it stays on the file system of each source.
    pub one_file_system: bool,
    /// Whether a source in which nothing is any more counts as emptied.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_be_empty: bool,
    /// Whether its trees are read from snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotUse>,
    /// The storage unit, or the library, that it writes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The storage unit of disks that a run writes to first whose client is slower than the drives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The pool there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_pool: Option<String>,
    /// Whether it always does, or never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage_when: Option<StageWhen>,
    /// The pool of the first copy.
    pub pool: Option<String>,
    /// Copies written at once.
    pub copies: Option<u8>,
    /// Drives that each copy is written to at the same time, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives: Option<u8>,
    /// Streams that read at the same time.
    pub connections: Option<u16>,
    /// zstd level instead of that of the data path.
    pub compression: Option<i32>,
    /// Everything, or what changed.
    pub level: Option<JobLevel>,
    /// How old the last full backup of a source may get before an incremental becomes a full one.
    pub full_every: Option<String>,
    /// How many incrementals may stand on a full backup: with the last of them, a full one is made of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidate_after: Option<u32>,
    /// How long what it makes is kept, instead of the pool's retention.
    pub retention: Option<String>,
    /// Whether nobody may shorten the retention of what it makes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lock: bool,
    /// Which backups of each source are kept, instead of a retention.
    pub keep: Option<KeepRule>,
    /// Whether it waits for a volume, and for another job that has the source.
    pub wait: bool,
    /// A program that runs before, with its arguments.
    pub before: Vec<String>,
    /// A program that runs after, whatever came of it, with its arguments.
    pub after: Vec<String>,
    /// The machines that a policy backs up; that of the server where it names none.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "not_empty")]
    pub clients: Vec<String>,
    /// It backs up clients that have one of these labels, too.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "not_empty")]
    pub client_labels: Vec<String>,
    /// The clients that have one, as the catalog has it now, and since when, nanoseconds since 1970.
    #[serde(skip)]
    pub labelled: BTreeMap<String, i64>,
    /// Whether a policy comes due by its schedule; it does if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// When a policy is due: a calendar event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The time zone of schedule and window, instead of that of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Over how long the starts of a policy's clients are spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<String>,
    /// What becomes of a run that nobody could begin in time: `never`, `once`, or a duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<String>,
    /// When runs of a policy may begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// The place of a policy in the queue, from 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// How many runs of a policy are at work at the same time, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_at_once: Option<u8>,
    /// Bytes a second that a run takes, at most, and when: the first whose window is open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bandwidth: Vec<String>,
    /// The names of what `capstan put` stores under it, as patterns; it backs up nothing itself then.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "put_as")]
    pub put_names: Vec<String>,
    /// The policies and jobs whose backups a policy copies to its pool; it backs up nothing itself then.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "copied")]
    pub copies_of: Vec<String>,
    /// How long after a backup has ended it is copied at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// How old a backup is when its own copies are forgotten, once the copy of this policy is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrate_after: Option<String>,
    /// Whether they are forgotten only while the disk that they lie on is filled above its mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrate_when_full: Option<bool>,
    /// Whether it runs as soon as there is something to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_owed: Option<bool>,
    /// It runs once the library that it copies from is filled above so many percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_above: Option<u8>,
    /// The pools whose volumes a policy looks after; it backs up nothing then.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "looked_after")]
    pub care_of: Vec<String>,
    /// Enough of what they hold is read back to say that fewer than one block in so many is bad.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrub_one_in: Option<u64>,
    /// Blocks that are read at each place that is drawn for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrub_place: Option<u32>,
    /// Full volumes of which less than so many percent are needed are emptied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_below: Option<u8>,
    /// Whether volumes are emptied that were set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_suspect: Option<bool>,
    /// Volumes that a run empties, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_max: Option<u16>,
    /// Generations whose volumes are emptied, what was written is read back, and that are written no more.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "to_go")]
    pub retire_generations: Vec<String>,
    /// The vault that their volumes go to once they are full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vault: Option<String>,
    /// How old the oldest on a volume is when it goes there before it is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vault_after: Option<String>,
    /// How often a run that failed is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u8>,
    /// How long after a failure it is tried again; twice as long after each further one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
}

/// What a job backs up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobLevel {
    /// Everything.
    Full,
    /// What changed since the last backup of each source.
    Incremental,
}

/// When runs of a policy write to its stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageWhen {
    /// If the client is slower than the drives.
    #[default]
    Slow,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What is wrong with a job: the setting, and why. No setting where it is the job as a whole.
pub(crate) type Wrong = (Option<&'static str>, String);

impl JobConfig {
    /// Whether it backs up what changed, where there is something to stand on.
    pub fn is_incremental(&self) -> bool {
        self.level == Some(JobLevel::Incremental) || self.level.is_none() && self.full_every.is_some()
    }

    /// Whether its schedule is switched off.
    pub fn is_switched_off(&self) -> bool {
        self.enabled == Some(false)
    }

    /// The machines that it backs up, as a server with this name sees it.
    pub fn clients_of<'a>(&'a self, server: &'a str) -> Vec<&'a str> {
        if !self.is_of_clients() {
            return vec![server];
        }
        let labelled = self.labelled.keys().filter(|client| !self.clients.contains(client));
        self.clients.iter().chain(labelled).map(String::as_str).collect()
    }

    /// Whether it backs up machines that it names, by their names or labels, and not that of the server.
    pub fn is_of_clients(&self) -> bool {
        !self.clients.is_empty() || !self.client_labels.is_empty()
    }

    /// The machines that it names, in words.
    pub fn clients_in_words(&self) -> String {
        let labels = self.client_labels.iter().map(|label| format!("clients with label {label}"));
        self.clients.iter().cloned().chain(labels).collect::<Vec<_>>().join(", ")
    }

    /// How old the last full backup may get, in nanoseconds.
    pub fn full_every_ns(&self) -> Option<i64> {
        self.full_every.as_deref().and_then(|text| parse_age(text).ok())
    }

    /// How long what it makes is kept, in nanoseconds.
    pub fn retention_ns(&self) -> Option<i64> {
        self.retention.as_deref().and_then(|text| parse_age(text).ok())
    }

    /// The policy as a run of it is that writes to its stage.
    #[must_use]
    pub fn staged(&self) -> Self {
        Self { unit: self.stage.clone(), pool: self.stage_pool.clone(), drives: None, ..self.clone() }
    }

    /// Whether it copies what others back up, and backs up nothing itself.
    pub fn is_of_copies(&self) -> bool {
        !self.copies_of.is_empty()
    }

    /// How long after its end a backup is copied at the earliest, in nanoseconds.
    pub fn delay_ns(&self) -> i64 {
        self.delay.as_deref().and_then(|text| parse_age(text).ok()).unwrap_or(0)
    }

    /// How old a backup is when this policy's copy of it takes the place of its own ones, in nanoseconds.
    pub fn migrate_after_ns(&self) -> Option<i64> {
        self.migrate_after.as_deref().and_then(|text| parse_age(text).ok())
    }

    /// Whether it migrates only where a disk needs room.
    pub fn migrates_for_room(&self) -> bool {
        self.migrate_when_full == Some(true)
    }

    /// Whether it runs by what there is to copy, beside its schedule.
    pub fn starts_by_what_is_owed(&self) -> bool {
        self.when_owed == Some(true) || self.when_above.is_some()
    }

    /// The pool of the first copy of what it makes, or of the copies that it makes of others.
    pub(crate) fn first_pool(&self) -> &str {
        self.pool.as_deref().unwrap_or(DEFAULT_POOL)
    }

    /// Whether it copies to a pool what a policy backs up.
    pub(crate) fn copies_to(&self, pool: &str, policy: &str) -> bool {
        self.first_pool() == pool && self.copies_of.iter().any(|copied| copied == policy)
    }

    /// The pools that its backups are written to.
    pub(crate) fn own_pools(&self) -> impl Iterator<Item = String> {
        let direct = (1..=self.copies.unwrap_or(1)).map(|copy| name_of_copy(self.first_pool(), copy));
        direct.chain(self.stage_pool.clone())
    }

    /// What is wrong with a job of the settings, if anything is.
    pub(super) fn check_job(&self, name: &str) -> Result<(), Wrong> {
        self.check(name)?;
        match self.timing_keys().find_map(|(key, is_set)| is_set.then_some(key)) {
            Some(key) => {
                let reason = "only policies have it: a job of capstan.toml is started by a person or a timer. To let a \
                              server run it, move the job into a file of policies: capstan policies apply FILE";
                Err((Some(key), reason.to_owned()))
            }
            None => Ok(()),
        }
    }

    /// What is wrong with a policy, if anything is.
    pub(crate) fn check_policy(&self, name: &str) -> Result<(), Wrong> {
        self.check(name)?;
        for (key, script) in self.scripts() {
            if script.len() > 1 || script.iter().any(|name| name.contains('/')) {
                let reason = "a policy names a script of the client, and no command line: add the command line to \
                              [scripts] of its capstan.toml, and write the script's name here, as in [\"quiesce\"]";
                return Err((Some(key), reason.to_owned()));
            }
        }
        for (key, names) in [("clients", &self.clients), ("client_labels", &self.client_labels)] {
            for (number, name) in names.iter().enumerate() {
                let reason = match name.as_str() {
                    "" => "one of them has no name".to_owned(),
                    _ if names[..number].contains(name) => format!("{name} is named twice"),
                    _ => continue,
                };
                return Err((Some(key), reason));
            }
        }
        self.check_paths()?;
        self.timing().map(drop)
    }

    /// What is wrong with a policy's paths and patterns, if anything is. Of a job of the settings, its run says so: the
    /// settings are for other things, too.
    fn check_paths(&self) -> Result<(), Wrong> {
        let has_dots = |path: &&PathBuf| path.components().any(|part| part == Component::ParentDir);
        if let Some(path) = self.sources.iter().find(has_dots) {
            return Err((Some("sources"), format!("{} has .. in it: name the directory itself", path.display())));
        }
        let is_named_twice = |(number, path): &(usize, &PathBuf)| {
            self.sources[..*number].iter().any(|before| before.components().eq(path.components()))
        };
        if let Some((_, path)) = self.sources.iter().enumerate().find(is_named_twice) {
            return Err((Some("sources"), format!("{} is named twice", path.display())));
        }
        if let Err(error) = PathPatterns::new(&self.exclude) {
            return Err((Some("exclude"), with_causes(&error)));
        }
        Ok(())
    }

    /// The settings that name programs, and what they say.
    pub(crate) fn scripts(&self) -> [(&'static str, &Vec<String>); 3] {
        [("stdin_command", &self.stdin_command), ("before", &self.before), ("after", &self.after)]
    }

    /// What is wrong with either, if anything is.
    fn check(&self, name: &str) -> Result<(), Wrong> {
        let wrong = |key: &'static str, reason: &str| Err((Some(key), reason.to_owned()));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(is_plain) || name.starts_with(['-', '.']) {
            let reason =
                "its name has up to 64 letters, digits, '-', '_' and '.', and begins with a letter, a digit or '_'";
            return Err((None, reason.to_owned()));
        }
        if name == MANUAL {
            return Err((None, "backups of no job or policy are called manual: use another name".to_owned()));
        }
        if self.is_of_care() {
            return self.check_care();
        }
        if let Some((key, _)) = self.care_keys().find(|(_, is_set)| *is_set) {
            return wrong(key, "it is for care of volumes: set care_of, or remove it");
        }
        if self.is_of_copies() {
            return self.check_copies(name);
        }
        for (key, is_set) in self.copying_keys() {
            if is_set {
                return wrong(key, "it is for copies of backups: set copies_of, or remove it");
            }
        }
        if self.takes_puts() {
            self.check_put()?;
        }
        match (&self.sources[..], &self.stdin, &self.stdin_command[..]) {
            ([], None, []) if self.takes_puts() => {}
            ([], None, []) => {
                return Err((None, "it backs up nothing: set sources, or stdin and stdin_command".to_owned()));
            }
            ([_, ..], Some(_), _) | ([_, ..], _, [_, ..]) => {
                return wrong("stdin", "it has sources, or stdin and stdin_command: make two of it");
            }
            ([], Some(_), []) => {
                return wrong(
                    "stdin",
                    "nobody pipes anything into it: set stdin_command to the program whose output is meant",
                );
            }
            ([], None, _) => return wrong("stdin_command", "its output needs a name: set stdin"),
            _ => {}
        }
        for (key, paths) in [("sources", &self.sources), ("exclude_from", &self.exclude_from)] {
            if let Some(path) = paths.iter().find(|path| !path.is_absolute()) {
                let reason = format!("{} is not absolute, and it may be started from anywhere", path.display());
                return Err((Some(key), reason));
            }
        }
        self.bandwidth()?;
        if self.stdin.is_some() && (self.level == Some(JobLevel::Incremental) || self.full_every.is_some()) {
            let key = if self.full_every.is_some() { "full_every" } else { "level" };
            return wrong(key, "the output of a program is always backed up in full");
        }
        if self.level == Some(JobLevel::Full) && self.full_every.is_some() {
            return wrong("full_every", "it is for incrementals, and level is \"full\": remove one of them");
        }
        self.check_consolidation()?;
        self.check_stage()?;
        self.check_kept()?;
        if self.copies.is_some_and(|copies| !(1..=4).contains(&copies)) {
            return wrong("copies", "must be between 1 and 4");
        }
        if self.drives.is_some_and(|drives| !(1..=DRIVES_MAX).contains(&drives)) {
            return wrong("drives", &format!("must be between 1 and {DRIVES_MAX}"));
        }
        if self.connections.is_some_and(|connections| !(1..=256).contains(&connections)) {
            return wrong("connections", "must be between 1 and 256");
        }
        if self.compression.is_some_and(|level| !(-7..=19).contains(&level)) {
            return wrong("compression", "must be between -7 and 19");
        }
        for (key, command) in self.scripts() {
            if command.first().is_some_and(String::is_empty) {
                return wrong(key, "its first word is the program, and it is empty");
            }
        }
        Ok(())
    }

    /// What is wrong with how its chains are made full ones, if anything is.
    fn check_consolidation(&self) -> Result<(), Wrong> {
        let Some(after) = self.consolidate_after else { return Ok(()) };
        let wrong = |reason: &str| Err((Some("consolidate_after"), reason.to_owned()));
        if !(1..=CONSOLIDATE_AFTER_MAX).contains(&after) {
            return wrong(&format!("must be between 1 and {CONSOLIDATE_AFTER_MAX}"));
        }
        if self.full_every.is_some() {
            return wrong("chains end by it, and full_every reads everything again: remove one of them");
        }
        if self.level != Some(JobLevel::Incremental) {
            return wrong("its backups are full ones anyway: set level = \"incremental\", or remove it");
        }
        Ok(())
    }

    /// What is wrong with its stage, if anything is.
    fn check_stage(&self) -> Result<(), Wrong> {
        let wrong = |key: &'static str, reason: &str| Err((Some(key), reason.to_owned()));
        match (&self.stage, &self.stage_pool) {
            (None, None) if self.stage_when.is_some() => {
                return wrong("stage_when", "it has no stage: set stage to a storage unit of disks, and stage_pool");
            }
            (None, None) => return Ok(()),
            (Some(_), None) => return wrong("stage", "set stage_pool, too: the pool that is written to there"),
            (None, Some(_)) => return wrong("stage_pool", "set stage, too: the storage unit of disks that it is in"),
            (Some(_), Some(pool)) if pool == self.first_pool() => {
                return wrong("stage_pool", "it is the pool that is written to directly: name another one");
            }
            (Some(_), Some(_)) => {}
        }
        if self.copies.is_some_and(|copies| copies > 1) {
            return wrong("copies", "with a stage it makes one copy, and policies of copies make more: leave it out");
        }
        if self.retention.is_none() && self.keep.is_none() {
            return wrong(
                "stage",
                "set retention or keep: what is staged is to be kept as long as what is not, whatever its pools say",
            );
        }
        Ok(())
    }

    /// What is wrong with how long what it makes is kept, if anything is.
    fn check_kept(&self) -> Result<(), Wrong> {
        let wrong = |key: &'static str, reason: &str| Err((Some(key), reason.to_owned()));
        if self.keep.is_some() && self.retention.is_some() {
            return wrong("keep", "keep takes the place of retention: remove one of them");
        }
        if self.keep.is_some() && self.lock {
            return wrong("lock", "a keep rule has no end that could be locked: use retention");
        }
        if self.keep.is_some_and(|rule| rule.is_empty()) {
            return wrong("keep", "it keeps nothing: set at least last = 1");
        }
        for (key, text) in [("full_every", &self.full_every), ("retention", &self.retention)] {
            match text.as_deref().map(parse_age) {
                Some(Err(reason)) => return Err((Some(key), reason)),
                Some(Ok(ns)) if ns < 3_600_000_000_000 => {
                    return wrong(key, "it is shorter than an hour: m is for minutes, and a month is 30d or 4w");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What is wrong with a policy that copies what others back up, if anything is.
    fn check_copies(&self, name: &str) -> Result<(), Wrong> {
        let wrong = |key: &'static str, reason: &str| Err((Some(key), reason.to_owned()));
        if let Some(key) = self.backup_keys().find_map(|(key, is_set)| is_set.then_some(key)) {
            return wrong(key, "it is for backups, and a policy with copies_of makes none: remove one of them");
        }
        if self.pool.is_none() {
            return wrong("copies_of", "it has no pool: set pool to the one that the copies go to");
        }
        for (number, copied) in self.copies_of.iter().enumerate() {
            if copied == name {
                return wrong("copies_of", "it names itself: name the policies whose backups are copied");
            }
            if self.copies_of[..number].contains(copied) {
                return Err((Some("copies_of"), format!("{copied} is named twice")));
            }
        }
        for (key, text) in [("delay", &self.delay), ("migrate_after", &self.migrate_after)] {
            if let Some(Err(reason)) = text.as_deref().map(parse_age) {
                return Err((Some(key), reason));
            }
        }
        if self.when_above.is_some_and(|percent| !(1..=99).contains(&percent)) {
            return wrong("when_above", "must be between 1 and 99, in percent: how full the library is");
        }
        if self.when_owed == Some(true) && self.when_above.is_some() {
            return wrong("when_above", "with when_owed it runs however full the library is: remove one of them");
        }
        if self.migrate_when_full.is_some() && self.migrate_after.is_none() {
            return wrong("migrate_when_full", "set migrate_after, too: how old a backup is at least when it migrates");
        }
        self.check_kept()
    }

    /// The settings that only copies of backups have, and whether each is set.
    pub(super) fn copying_keys(&self) -> impl Iterator<Item = (&'static str, bool)> {
        [
            ("delay", self.delay.is_some()),
            ("migrate_after", self.migrate_after.is_some()),
            ("migrate_when_full", self.migrate_when_full.is_some()),
            ("when_owed", self.when_owed.is_some()),
            ("when_above", self.when_above.is_some()),
        ]
        .into_iter()
    }

    /// The settings that only backups have, and whether each is set.
    pub(super) fn backup_keys(&self) -> impl Iterator<Item = (&'static str, bool)> {
        [
            ("sources", !self.sources.is_empty()),
            ("stdin", self.stdin.is_some()),
            ("stdin_command", !self.stdin_command.is_empty()),
            ("exclude", !self.exclude.is_empty()),
            ("exclude_from", !self.exclude_from.is_empty()),
            ("exclude_caches", self.exclude_caches),
            ("one_file_system", self.one_file_system),
            ("may_be_empty", self.may_be_empty),
            ("snapshot", self.snapshot.is_some()),
            ("copies", self.copies.is_some()),
            ("drives", self.drives.is_some()),
            ("stage", self.stage.is_some()),
            ("stage_pool", self.stage_pool.is_some()),
            ("stage_when", self.stage_when.is_some()),
            ("connections", self.connections.is_some()),
            ("compression", self.compression.is_some()),
            ("level", self.level.is_some()),
            ("full_every", self.full_every.is_some()),
            ("consolidate_after", self.consolidate_after.is_some()),
            ("lock", self.lock),
            ("wait", self.wait),
            ("before", !self.before.is_empty()),
            ("after", !self.after.is_empty()),
            ("clients", !self.clients.is_empty()),
            ("client_labels", !self.client_labels.is_empty()),
            ("spread", self.spread.is_some()),
            ("runs_at_once", self.runs_at_once.is_some()),
            ("bandwidth", !self.bandwidth.is_empty()),
        ]
        .into_iter()
    }
}

/// A duration such as `12h`, `30d`, `12w` or `10y`, in nanoseconds; a year is 365.25 days.
///
/// # Errors
/// The text is not a duration; the error says how one is written.
pub fn parse_age(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not a duration: write 12h, 30d, 12w or 10y");
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 7.0 * 86_400.0,
        "y" => 365.25 * 86_400.0,
        _ => return Err(wrong()),
    };
    let ns = number * seconds * 1e9;
    if ns.is_finite() && (0.0..9e18).contains(&ns) { Ok(ns as i64) } else { Err(wrong()) }
}
