//! Room in the ledger: how much there is, and who may still take of it.
//!
//! etcd takes so much and no more ([`crate::ledger::Room`]). When it has met its quota nothing can be changed, and that
//! no client can be revoked either. So clients stop before people do:
//! ```text
//!  of the quota   1/2            3/4                          9/10                       all
//!   Plenty         | Low: said    | Reserved: KMIP clients     | Closed: KMIP clients     | Full: nothing
//!                  |              | destroy and revoke, no more | change nothing           |
//! ```
//! Members are asked every [`LOOK_EVERY`]; what KMIP clients were let write since then is counted as written, twice,
//! since etcd keeps more than a record's bytes of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use capstan_keys::api::Problem;
use capstan_service::housekeeping::NextCheck;
use serde_json::{Value, json};

use super::{Service, problem};
use crate::ledger::{QUOTA_BYTES, Room};

/// How often members are asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much room is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Level {
    /// Enough.
    #[default]
    Plenty,
    /// Somebody should hear of it.
    Low,
    /// KMIP clients may give room back, and take none.
    Reserved,
    /// What is left is for people.
    Closed,
    /// None: nothing is committed.
    Full,
}

impl Level {
    /// Of a room of which this much more may have been taken since.
    fn of(room: Room, since_bytes: u64) -> Self {
        let used = u128::from(room.used_bytes.saturating_add(since_bytes));
        let quota = u128::from(room.quota_bytes);
        match room {
            Room { is_full: true, .. } => Self::Full,
            _ if used * 10 >= quota * 9 => Self::Closed,
            _ if used * 4 >= quota * 3 => Self::Reserved,
            _ if used * 2 >= quota => Self::Low,
            _ => Self::Plenty,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plenty => "plenty",
            Self::Low => "low",
            Self::Reserved => "reserved",
            Self::Closed => "closed",
            Self::Full => "full",
        }
    }
}

/// What was seen of the ledger's room.
#[derive(Default)]
pub(super) struct RoomSeen {
    room: Mutex<Option<Room>>,
    /// What was written since, about.
    since_bytes: AtomicU64,
}

impl RoomSeen {
    pub(super) fn last(&self) -> Option<Room> {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much room is left, as far as it was ever seen.
    pub(super) fn level(&self) -> Level {
        self.last().map_or(Level::Plenty, |room| Level::of(room, self.since_bytes.load(Ordering::Relaxed)))
    }

    /// What a member takes at most.
    pub(super) fn quota_bytes(&self, configured: Option<u64>) -> u64 {
        self.last().map_or(configured.unwrap_or(QUOTA_BYTES), |room| room.quota_bytes)
    }

    /// A client was let write so many bytes.
    pub(super) fn wrote(&self, bytes: u64) {
        self.since_bytes.fetch_add(bytes.saturating_mul(2), Ordering::Relaxed);
    }

    fn saw(&self, room: Room, counted_before: u64) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
        self.since_bytes.fetch_sub(counted_before, Ordering::Relaxed);
    }
}

/// Which level was said in the log last.
pub(super) struct RoomWatch {
    told: Level,
}

impl Default for RoomWatch {
    fn default() -> Self {
        Self { told: Level::Plenty }
    }
}

impl RoomWatch {
    /// Looks, and says in the log when a level is passed.
    pub(super) async fn check(&mut self, service: &Service) -> NextCheck<'static> {
        let seen = &service.room;
        let counted = seen.since_bytes.load(Ordering::Relaxed);
        match service.opening.ledger.room().await {
            Ok(Some(room)) => seen.saw(room, counted),
            // A ledger without a bound.
            Ok(None) => return NextCheck::never(),
            Err(error) => tracing::debug!(%error, "no member of etcd says how much room it has"),
        }
        let level = seen.level();
        if level != self.told
            && let Some(room) = seen.last()
        {
            let words = said(room, level);
            match level {
                Level::Plenty => tracing::info!("{words}"),
                Level::Low => tracing::warn!("{words}"),
                Level::Reserved | Level::Closed | Level::Full => tracing::error!("{words}"),
            }
            self.told = level;
        }
        NextCheck::after(LOOK_EVERY)
    }
}

/// How to make room.
const MAKE_ROOM: &str =
    "make room in etcd: compact it, defragment each member, or raise its quota (docs/KEYS.md, \"Room in etcd\")";

fn said(room: Room, level: Level) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let used = format!("{} of {} MiB", mib(room.used_bytes), mib(room.quota_bytes));
    match level {
        Level::Plenty => format!("the ledger has room: {used} are used"),
        Level::Low => format!(
            "the ledger fills: {used} are used. Find out what fills it (`keyd kmip-clients list`), and {MAKE_ROOM}"
        ),
        Level::Reserved => {
            format!(
                "the ledger is nearly full: {used} are used; KMIP clients destroy and revoke objects, and make none. {}",
                sentence(MAKE_ROOM)
            )
        }
        Level::Closed => {
            format!(
                "the ledger is nearly full: {used} are used; the rest is for people, and KMIP clients change nothing. {}",
                sentence(MAKE_ROOM)
            )
        }
        Level::Full => format!(
            "the ledger is FULL ({used}): nothing is changed, keys that were issued are read. {}; then disarm its alarm (`etcdctl alarm disarm`)",
            sentence(MAKE_ROOM)
        ),
    }
}

fn sentence(words: &str) -> String {
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

impl Service {
    /// The ledger's room, for `status`.
    pub(super) fn room_said(&self) -> Option<Value> {
        let (room, level) = (self.room.last()?, self.room.level());
        Some(json!({
            "used_bytes": room.used_bytes, "quota_bytes": room.quota_bytes, "level": level.name(), "says": said(room, level)
        }))
    }

    /// That the ledger takes no more, if it does not.
    pub(super) fn check_room(&self) -> Result<(), Problem> {
        match (self.room.last(), self.room.level()) {
            (Some(room), level @ Level::Full) => {
                Err(Problem::new(503, problem::LEDGER_FULL, "The ledger is full", sentence(&said(room, level)) + "."))
            }
            _ => Ok(()),
        }
    }

    /// The ledger's room, for those who watch.
    pub(super) fn look_at_room(&self) {
        let Some(room) = self.room.last() else { return };
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.metrics.ledger_room(bytes(room.used_bytes), bytes(room.quota_bytes), self.room.level() == Level::Full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_stop_before_people_do_and_what_was_written_since_counts() {
        let of = |used_bytes, since| Level::of(Room { used_bytes, quota_bytes: 1000, is_full: false }, since);
        let levels = [(0, 0), (499, 0), (500, 0), (749, 0), (750, 0), (899, 0), (900, 0), (5000, 0), (100, 700)];
        let levels = levels.map(|(used, since)| of(used, since));
        use Level::{Closed, Low, Plenty, Reserved};
        assert_eq!(levels, [Plenty, Plenty, Low, Low, Reserved, Reserved, Closed, Closed, Reserved]);
        assert_eq!(Level::of(Room { used_bytes: 1, quota_bytes: 1000, is_full: true }, 0), Level::Full);
        let seen = RoomSeen::default();
        assert_eq!(seen.level(), Plenty, "nothing was seen yet");
        seen.wrote(400);
        let counted = seen.since_bytes.load(Ordering::Relaxed);
        seen.wrote(300);
        seen.saw(Room { used_bytes: 200, quota_bytes: 1000, is_full: false }, counted);
        assert_eq!(seen.level(), Reserved, "what was written while it was asked still counts");
    }
}
