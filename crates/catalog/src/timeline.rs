//! When objects were made, as far as the clock can be believed.
//!
//! A machine's clock is evidence, not truth: an empty battery sets it back by years, a slip of the hand sets it ahead.
//! So nothing is ordered by it. An object's id begins with a time in milliseconds (UUID version 7), and that is the
//! clock's only while the clock goes on from what was recorded before; else it is one more than the last id's. So ids
//! stand in the order of recording, and as they are on every volume, a rebuild knows the order, too.
//! [`recency`](crate::recency) ranks by it.
//!
//! What remains for the clock is to say *when*: for `--at`, retention and ages. Objects are taken in the order of
//! recording, and each is held against the newest time that was believed before it:
//!
//! ```text
//!            newest - CLOCK_BACK_MAX      newest        newest + CLOCK_GAP_MAX
//!   behind ----------|----------- believed ------------------|---------- ahead
//! ```
//! One that is in doubt was made at some moment between the believed times around it, whatever its own clock said. It
//! does not move what is believed, so one wrong clock puts nothing else in doubt. Only an operator knows better:
//! [`Catalog::confirm_clock`] says that the clock is right now, after which what was recorded before with a later time
//! is in doubt, and what was doubted without need no more.
//!
//! Confirmations are on no volume. A rebuild takes them from the old catalog; where that cannot be read, what they had
//! settled is in doubt again.

use std::collections::HashMap;
use std::ops::Range;

use capstan_format::ObjectId;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Db, Transaction, params};

/// How far a clock may stand behind the newest record without doubt: time servers set clocks back by seconds, and hosts
/// that share a state directory differ by no more than other software of theirs bears (Kerberos refuses above five
/// minutes).
pub const CLOCK_BACK_MAX_NS: i64 = 5 * 60 * 1_000_000_000;

/// How far a clock may stand ahead of the newest record without doubt: monthly backups, and some days. A clock that is
/// wrong is wrong by years, as a rule; a machine that was off for longer is asked about once.
pub const CLOCK_GAP_MAX_NS: i64 = 35 * 86_400 * 1_000_000_000;

/// Milliseconds that an id has room for.
const ID_MS_MAX: u64 = (1 << 48) - 1;

/// Why a time is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockDoubt {
    /// The clock stood behind what had been recorded before.
    Behind,
    /// It stood ahead of what had been recorded before, by more than backups are apart.
    Ahead,
}

/// When an object was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// Not before this time; `i64::MIN` where nothing is known.
    pub from_ns: i64,
    /// Not after this time.
    pub by_ns: i64,
    /// Why its own clock is not believed; without doubt the two times are the clock's.
    pub doubt: Option<ClockDoubt>,
    /// Whether a time behind it is believed. Without one `by_ns` is only the time of whoever asks.
    pub is_bounded: bool,
}

/// The clock of whoever asks, held against what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// What it says.
    pub now_ns: i64,
    /// The newest time that is believed; `None` while nothing is recorded.
    pub newest_ns: Option<i64>,
    /// Why it is not believed.
    pub doubt: Option<ClockDoubt>,
}

/// An operator's word that the clock was right at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockConfirmed {
    /// What the clock said.
    pub at_ns: i64,
    /// Behind the last object that was recorded before; all zeros for none.
    pub after: ObjectId,
}

/// When each object was begun, and whether the clock is believed now.
#[derive(Debug, Clone)]
pub struct Timeline {
    begun: HashMap<ObjectId, Begun>,
    reading: ClockReading,
}

/// The doubt of a time, held against the newest that is believed.
fn doubt(at_ns: i64, newest_ns: Option<i64>) -> Option<ClockDoubt> {
    let newest_ns = newest_ns?;
    if at_ns < newest_ns.saturating_sub(CLOCK_BACK_MAX_NS) {
        Some(ClockDoubt::Behind)
    } else if at_ns > newest_ns.saturating_add(CLOCK_GAP_MAX_NS) {
        Some(ClockDoubt::Ahead)
    } else {
        None
    }
}

impl Timeline {
    /// Judges objects, each with the time at which its clock says it was begun, in the order of recording;
    /// confirmations in that order, too. A pure function.
    pub fn new(objects: &[(ObjectId, i64)], confirmed: &[ClockConfirmed], now_ns: i64) -> Self {
        let mut doubts: Vec<Option<ClockDoubt>> = Vec::with_capacity(objects.len());
        let mut newest_ns = None;
        let mut confirmed_left = confirmed;
        for &(object, started_ns) in objects {
            while let [first, rest @ ..] = confirmed_left
                && first.after < object
            {
                newest_ns = Some(settle(&objects[..doubts.len()], &mut doubts, first.at_ns));
                confirmed_left = rest;
            }
            let found = doubt(started_ns, newest_ns);
            if found.is_none() {
                newest_ns = newest_ns.max(Some(started_ns));
            }
            doubts.push(found);
        }
        for last in confirmed_left {
            newest_ns = Some(settle(objects, &mut doubts, last.at_ns));
        }
        let reading = ClockReading { now_ns, newest_ns, doubt: doubt(now_ns, newest_ns) };
        Self { begun: bounds(objects, &doubts, confirmed, now_ns), reading }
    }

    /// When an object was begun; `None` for one that is not recorded.
    pub fn begun(&self, object: ObjectId) -> Option<Begun> {
        self.begun.get(&object).copied()
    }

    /// Whether the clock is believed now.
    pub fn reading(&self) -> ClockReading {
        self.reading
    }
}

/// Takes an operator's word: what was believed and is later than the confirmed time is in doubt; what was recorded
/// since the last that is believed, and fits in between, is believed. Gives the newest time that is believed then.
fn settle(objects: &[(ObjectId, i64)], doubts: &mut [Option<ClockDoubt>], at_ns: i64) -> i64 {
    let limit_ns = at_ns.saturating_add(CLOCK_BACK_MAX_NS);
    for ((_, started_ns), doubt) in objects.iter().zip(&mut *doubts) {
        if doubt.is_none() && *started_ns > limit_ns {
            *doubt = Some(ClockDoubt::Ahead);
        }
    }
    let tail: Range<usize> = doubts.iter().rposition(Option::is_none).map_or(0, |at| at + 1)..doubts.len();
    let believed = objects.iter().zip(&*doubts).filter(|(_, doubt)| doubt.is_none());
    let mut newest_ns = believed.map(|((_, started_ns), _)| *started_ns).max().unwrap_or(i64::MIN);
    for at in tail {
        let started_ns = objects[at].1;
        if started_ns >= newest_ns.saturating_sub(CLOCK_BACK_MAX_NS) && started_ns <= limit_ns {
            doubts[at] = None;
            newest_ns = newest_ns.max(started_ns);
        }
    }
    newest_ns.max(at_ns)
}

/// The times between which each object was begun.
fn bounds(
    objects: &[(ObjectId, i64)],
    doubts: &[Option<ClockDoubt>],
    confirmed: &[ClockConfirmed],
    now_ns: i64,
) -> HashMap<ObjectId, Begun> {
    let mut begun = HashMap::with_capacity(objects.len());
    // From the end, so that what is believed behind each object is known.
    let mut next_ns: Option<i64> = None;
    let mut confirmed = confirmed.iter().rev().peekable();
    for (&(object, started_ns), doubt) in objects.iter().zip(doubts).rev() {
        while let Some(word) = confirmed.next_if(|word| word.after >= object) {
            next_ns = Some(next_ns.map_or(word.at_ns, |next| next.min(word.at_ns)));
        }
        let (from_ns, by_ns) = match doubt {
            None => (started_ns, started_ns),
            Some(_) => (i64::MIN, next_ns.unwrap_or(now_ns)),
        };
        let is_bounded = doubt.is_none() || next_ns.is_some();
        begun.insert(object, Begun { from_ns, by_ns, doubt: *doubt, is_bounded });
        if doubt.is_none() {
            next_ns = Some(next_ns.map_or(started_ns, |next| next.min(started_ns)));
        }
    }
    let mut before_ns = i64::MIN;
    for ((object, started_ns), doubt) in objects.iter().zip(doubts) {
        let Some(begun) = begun.get_mut(object) else { continue };
        if doubt.is_none() {
            before_ns = before_ns.max(*started_ns);
        } else {
            begun.from_ns = before_ns;
            begun.by_ns = begun.by_ns.max(before_ns);
        }
    }
    begun
}

/// Milliseconds since 1970 for the id of an object that is begun now, behind the last id that is known: the clock's, or
/// one more than the last id's where the clock did not go on from there.
pub fn id_ms_after(now_ns: i64, last: Option<ObjectId>) -> u64 {
    let now_ms = u64::try_from(now_ns / 1_000_000).unwrap_or(0).min(ID_MS_MAX);
    let last_ms = last.and_then(id_ms).map_or(0, |last_ms| last_ms.saturating_add(1));
    now_ms.max(last_ms).min(ID_MS_MAX)
}

/// The milliseconds that an id begins with; `None` where it is none of version 7.
fn id_ms(object: ObjectId) -> Option<u64> {
    let [a, b, c, d, e, f, version, ..] = object.0;
    (version >> 4 == 7).then(|| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

impl Catalog {
    /// When all objects were begun, expired ones too, and whether the clock is believed now.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn timeline(&self, now_ns: i64) -> Result<Timeline, CatalogError> {
        let objects = "SELECT object, started_ns FROM objects ORDER BY object";
        let objects = self.db.query(objects, &[], |row| Ok((ObjectId(row.get(0)?), row.get(1)?)))?;
        let confirmed = "SELECT at_ns, after FROM clock_confirmed ORDER BY confirmation";
        let confirmed = self
            .db
            .query(confirmed, &[], |row| Ok(ClockConfirmed { at_ns: row.get(0)?, after: ObjectId(row.get(1)?) }))?;
        Ok(Timeline::new(&objects, &confirmed, now_ns))
    }

    /// Notes an operator's word that the clock is right now.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn confirm_clock(&mut self, now_ns: i64) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let after = last_object(&transaction)?.map_or([0; 16], end_of_place);
        put_confirmation(&transaction, now_ns, after)?;
        transaction.commit()
    }

    /// The object that was recorded last, whatever became of it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn last_object(&self) -> Result<Option<ObjectId>, CatalogError> {
        last_object(&self.db)
    }
}

pub(crate) fn last_object(db: &Db) -> Result<Option<ObjectId>, CatalogError> {
    let query = "SELECT object FROM objects ORDER BY object DESC LIMIT 1";
    db.query_first(query, &[], |row| row.get(0).map(ObjectId))
}

/// The last id that may stand in an object's place. One that is made of it later stands there, right behind it.
pub(crate) fn end_of_place(object: ObjectId) -> [u8; 16] {
    let mut end = object.0;
    if id_ms(object).is_some() {
        end[6..].fill(0xff);
    }
    end
}

/// Notes that the clock was right at a time, behind the last object that was recorded then.
pub(crate) fn put_confirmation(db: &Transaction<'_>, at_ns: i64, after: [u8; 16]) -> Result<(), CatalogError> {
    let put = "INSERT INTO clock_confirmed (confirmation, at_ns, after)
               SELECT (SELECT coalesce(max(confirmation), 0) + 1 FROM clock_confirmed), ?1, ?2";
    db.execute(put, params![at_ns, after]).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const DAY: i64 = 86_400 * 1_000_000_000;
    /// 2026-11-22, in days since 1970.
    const TODAY: i64 = 20_779;
    const Y2030: i64 = 21_915;
    const Y2020: i64 = 18_262;

    fn id(number: usize) -> ObjectId {
        ObjectId((number as u128).to_be_bytes())
    }

    /// Objects begun on these days, in the order of recording; `confirmed` after so many of them on a day.
    fn timeline(days: &[i64], confirmed: &[(usize, i64)], now: i64) -> Timeline {
        let objects: Vec<_> = days.iter().enumerate().map(|(at, day)| (id(at + 1), day * DAY)).collect();
        let confirmed: Vec<_> =
            confirmed.iter().map(|&(after, day)| ClockConfirmed { at_ns: day * DAY, after: id(after) }).collect();
        Timeline::new(&objects, &confirmed, now * DAY)
    }

    fn doubts(timeline: &Timeline, count: usize) -> String {
        let letter = |at: usize| match timeline.begun(id(at + 1)).unwrap().doubt {
            None => '.',
            Some(ClockDoubt::Behind) => 'b',
            Some(ClockDoubt::Ahead) => 'a',
        };
        (0..count).map(letter).collect()
    }

    /// Days between which an object was begun.
    fn between(timeline: &Timeline, number: usize) -> (i64, i64) {
        let begun = timeline.begun(id(number)).unwrap();
        (begun.from_ns / DAY, begun.by_ns / DAY)
    }

    #[test]
    fn a_clock_that_runs_on_is_believed() {
        let known = timeline(&[TODAY, TODAY + 1, TODAY + 36], &[], TODAY + 40);
        assert_eq!(doubts(&known, 3), "...");
        assert_eq!(known.reading().doubt, None);
        assert_eq!(between(&known, 2), (TODAY + 1, TODAY + 1));
        assert_eq!(timeline(&[], &[], TODAY).reading().doubt, None, "the first of all is believed");
    }

    #[test]
    fn ahead_and_back_again_puts_only_what_was_ahead_in_doubt() {
        let ahead = timeline(&[TODAY, Y2030], &[], Y2030);
        assert_eq!(doubts(&ahead, 2), ".a");
        assert_eq!(
            ahead.reading(),
            ClockReading { now_ns: Y2030 * DAY, newest_ns: Some(TODAY * DAY), doubt: Some(ClockDoubt::Ahead) }
        );
        assert_eq!(between(&ahead, 2), (TODAY, Y2030), "nothing more is known yet");
        assert!(!ahead.begun(id(2)).unwrap().is_bounded);
        let back = timeline(&[TODAY, Y2030, TODAY + 1], &[], TODAY + 1);
        assert_eq!(doubts(&back, 3), ".a.");
        assert_eq!(back.reading().doubt, None);
        assert_eq!(between(&back, 2), (TODAY, TODAY + 1));
        assert!(back.begun(id(2)).unwrap().is_bounded);
    }

    #[test]
    fn behind_and_forth_again_puts_only_what_was_behind_in_doubt() {
        let behind = timeline(&[TODAY, Y2020], &[], Y2020);
        assert_eq!((doubts(&behind, 2).as_str(), behind.reading().doubt), (".b", Some(ClockDoubt::Behind)));
        assert_eq!(between(&behind, 2), (TODAY, TODAY), "no earlier than what was recorded before it");
        let forth = timeline(&[TODAY, Y2020, Y2020, TODAY + 2], &[], TODAY + 2);
        assert_eq!((doubts(&forth, 4).as_str(), forth.reading().doubt), (".bb.", None));
        assert_eq!(between(&forth, 3), (TODAY, TODAY + 2));
    }

    #[test]
    fn the_bounds_are_what_they_say() {
        let at = |ns: i64| Timeline::new(&[(id(1), TODAY * DAY)], &[], TODAY * DAY + ns).reading().doubt;
        assert_eq!(at(-CLOCK_BACK_MAX_NS), None);
        assert_eq!(at(-CLOCK_BACK_MAX_NS - 1), Some(ClockDoubt::Behind));
        assert_eq!(at(CLOCK_GAP_MAX_NS), None);
        assert_eq!(at(CLOCK_GAP_MAX_NS + 1), Some(ClockDoubt::Ahead));
    }

    #[test]
    fn a_machine_that_was_off_for_months_is_confirmed_once() {
        let off = [TODAY, TODAY + 120];
        assert_eq!(doubts(&timeline(&off, &[], TODAY + 121), 2), ".a");
        let confirmed = timeline(&off, &[(2, TODAY + 121)], TODAY + 122);
        assert_eq!((doubts(&confirmed, 2).as_str(), confirmed.reading().doubt), ("..", None));
        let on = timeline(&[TODAY, TODAY + 120, TODAY + 123], &[(2, TODAY + 121)], TODAY + 123);
        assert_eq!(doubts(&on, 3), "...");
    }

    #[test]
    fn a_small_jump_that_nobody_saw_is_settled_by_a_word() {
        // Twenty days ahead, which is no doubt; then the clock was set right, and what is right seems to be behind.
        let days = [TODAY, TODAY + 20, TODAY + 1];
        assert_eq!(doubts(&timeline(&days, &[], TODAY + 2), 3), "..b");
        let settled = timeline(&days, &[(3, TODAY + 2)], TODAY + 2);
        assert_eq!((doubts(&settled, 3).as_str(), settled.reading().doubt), (".a.", None));
        assert_eq!(between(&settled, 2), (TODAY, TODAY + 1));
        // A wrong word is taken back by a right one.
        let twice = timeline(&[TODAY, Y2030, TODAY + 1], &[(2, Y2030), (3, TODAY + 1)], TODAY + 1);
        assert_eq!((doubts(&twice, 3).as_str(), twice.reading().doubt), (".a.", None));
    }

    #[test]
    fn ids_go_on_from_the_last_whatever_the_clock_says() {
        let of = |ms: u64| {
            let mut bytes = [0; 16];
            bytes[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
            bytes[6] = 0x70;
            Some(ObjectId(bytes))
        };
        assert_eq!(id_ms_after(7_000_000, None), 7);
        assert_eq!(id_ms_after(7_000_000, of(3)), 7, "the clock's");
        assert_eq!(id_ms_after(7_000_000, of(7)), 8, "two of one millisecond");
        assert_eq!(id_ms_after(7_000_000, of(1_893_456_000_000)), 1_893_456_000_001, "behind what a wrong clock left");
        assert_eq!(id_ms_after(-1, of(3)), 4);
        assert_eq!(id_ms_after(7_000_000, of(ID_MS_MAX)), ID_MS_MAX);
        assert_eq!(id_ms_after(7_000_000, Some(ObjectId([0xff; 16]))), 7, "an id of another kind says nothing");
    }
}
