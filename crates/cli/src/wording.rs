//! Words and sentences that several commands say alike.

use capstan_catalog::{ClockDoubt, ClockReading, Object};
use capstan_director::{ExpiryPlan, HistoryEntry};
use capstan_format::ObjectId;
use capstan_server::PeerAway;
use capstan_server::cell::users::peer_away_in_words;

pub(crate) use capstan_server::cell::users::media_words::volume_state_word as state_name;

use crate::failure::outcome_word;
use crate::table::path_text;
use crate::units;

/// What is forgotten: `3 objects`, `2 copies`, `3 objects and 2 copies of others`.
pub(crate) fn forgotten_text(objects: usize, copies: usize) -> String {
    let (of_objects, of_copies) = (units::counted(objects as u64, "object"), units::counted(copies as u64, "copy"));
    match (objects, copies) {
        (_, 0) => of_objects,
        (0, _) => of_copies,
        _ => format!("{of_objects} and {of_copies} of others"),
    }
}

/// The word for a doubt in JSON.
pub(crate) fn doubt_name(doubt: Option<ClockDoubt>) -> Option<&'static str> {
    doubt.map(|doubt| match doubt {
        ClockDoubt::Behind => "behind",
        ClockDoubt::Ahead => "ahead",
    })
}

/// What is wrong with the clock, and what to do; `None` where it is believed.
pub(crate) fn doubt_text(reading: &ClockReading) -> Option<String> {
    let newest_ns = reading.newest_ns?;
    let side = match reading.doubt? {
        ClockDoubt::Behind => "before",
        ClockDoubt::Ahead => "after",
    };
    let days = reading.now_ns.abs_diff(newest_ns) / 86_400_000_000_000;
    let apart = if days < 2 { String::new() } else { format!("{days} days ") };
    Some(format!(
        "the clock says {}, {apart}{side} the newest record ({}). If it is wrong, set it; if it is right, run \
         `capstan clock --confirm` once. Until then, new objects are marked as doubtful, and nothing expires",
        units::time(reading.now_ns),
        units::time(newest_ns)
    ))
}

/// How a run ended, in a word.
pub(crate) fn outcome_name(row: &HistoryEntry) -> &'static str {
    match &row.job.end {
        Some(end) => outcome_word(end.exit_code),
        None if row.runs => "running",
        None => "killed",
    }
}

/// What to say of objects that are kept only because younger ones stand on them.
pub(crate) fn bases_line(plan: &ExpiryPlan) -> Option<String> {
    let mut sources: Vec<_> = plan.kept_as_bases().map(|object| path_text(&object.source)).collect();
    let count = sources.len();
    sources.dedup();
    let first = sources.first()?;
    let others = if sources.len() > 1 { format!(" and {} more", sources.len() - 1) } else { String::new() };
    Some(format!(
        "{} of {first}{others}: past the retention, and kept only because newer incrementals are based on them. To let \
         them expire, make a full backup (backup --full, or --full-every 30d with each incremental): they expire with \
         the last of those incrementals",
        units::counted(count as u64, "object")
    ))
}

/// Why a client or a mover cannot be told to begin, and what to do about it.
pub(crate) fn peer_away(away: PeerAway, kind: &str, name: &str) -> String {
    let text = peer_away_in_words(away, kind, name);
    match away {
        PeerAway::Silent(Some(seen)) => {
            format!("{text}, last seen {}", units::time(i64::try_from(seen.as_nanosecond()).unwrap_or(i64::MAX)))
        }
        _ => text,
    }
}

pub(crate) fn short(object: &Object) -> String {
    short_id(object.id)
}

/// An object's id as lists show it.
pub(crate) fn short_id(object: ObjectId) -> String {
    let id = object.to_string();
    id[id.len() - 8..].to_owned()
}
