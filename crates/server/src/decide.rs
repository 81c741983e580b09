//! Which runs begin, and what each of the others waits for.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use capstan_director::{DriveUse, SessionTerms, StorageUnit};
use capstan_schedule::Window;

/// What a point of priority is worth: so much of waiting. A run of the lowest priority passes new ones of the highest
/// after ten hours.
const POINT: SignedDuration = SignedDuration::from_mins(6);
/// How long others may use the drives that the first run in the queue has too few of; then they are kept for it.
const PASSED_FOR: SignedDuration = SignedDuration::from_mins(30);

/// A run that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRun {
    /// Its number.
    pub run: i64,
    /// Its policy.
    pub policy: String,
    /// How many runs of that are at work at the same time, at most.
    pub runs_at_once: Option<usize>,
    /// Its client.
    pub client: String,
    /// The higher, the sooner.
    pub priority: i64,
    /// Since when it waits.
    pub entered: Timestamp,
    /// It does not begin before.
    pub not_before: Timestamp,
    /// Whether an operator keeps it from beginning.
    pub is_held: bool,
    /// What it has in common with those whose session it may share. It needs as many drives as copies.
    pub terms: SessionTerms,
    /// Drives that each copy can use, if they are free.
    pub drives: u32,
    /// The libraries whose drives it may have.
    pub unit: StorageUnit,
    /// When it may begin, if that is limited.
    pub window: Option<(Window, TimeZone)>,
    /// Why its policy cannot be run, if it cannot.
    pub fault: Option<String>,
    /// A source of it that another job has, and who, in words.
    pub source_in_use: Option<String>,
    /// Why its client cannot be told to begin, if it cannot.
    pub client_away: Option<PeerAway>,
}

/// Why a client, or a mover, cannot be told to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAway {
    /// No machine of that name has joined.
    NotEnrolled,
    /// It was revoked, or its certificate has ended.
    ShutOut,
    /// It does not wait for orders, and was last seen then, if it ever was.
    Silent(Option<Timestamp>),
}

/// A run at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingRun {
    /// Its number.
    pub run: i64,
    /// Its policy.
    pub policy: String,
    /// Its client.
    pub client: String,
    /// The session that it writes into.
    pub session: i64,
    /// The library whose drives that has.
    pub library: String,
    /// How many of them each copy has.
    pub drives: u32,
    /// The storage unit of its policy.
    pub unit: String,
    /// What all runs of that have in common.
    pub terms: SessionTerms,
    /// When it will be done, if that can be told.
    pub ends: Option<Timestamp>,
}

/// All that is looked at to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// The time.
    pub now: Timestamp,
    /// Runs that wait.
    pub waiting: Vec<WaitingRun>,
    /// Runs at work.
    pub working: Vec<WorkingRun>,
    /// Most runs of one client; none for no bound.
    pub runs_per_client: Option<usize>,
    /// The libraries and their drives.
    pub libraries: Vec<DriveUse>,
}

/// What becomes of a run that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunDecision {
    /// It begins, in a session.
    Begins {
        /// Its number: one of its own, or that of the session which it joins.
        session: i64,
        /// The library whose drives that has.
        library: String,
        /// How many of them each copy has.
        drives: u32,
    },
    /// It waits for this.
    Waits(WaitsFor),
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// An operator holds it.
    Release,
    /// Its policy cannot be run.
    Repair(String),
    /// Its time: its start is spread, or it failed and is tried again.
    Time(Timestamp),
    /// Its window to open; never, if that is not within a year.
    Window(Option<Timestamp>),
    /// Another job to be done with one of its sources.
    Source(String),
    /// Its client to wait for orders.
    Client(PeerAway),
    /// Another run to end: so many of its policy or its client are at work.
    Limit {
        /// What the bound is of.
        of: LimitOf,
        /// How many may be at work.
        at_most: usize,
    },
    /// One of these libraries, to say how many drives it has.
    Library(Vec<String>),
    /// Drives.
    Drives {
        /// How many it needs.
        needed: u32,
        /// How many are free.
        free: u32,
        /// When enough will probably be free, if that can be told.
        until: Option<Timestamp>,
    },
    /// A run that ranks before it and for which drives are kept.
    Turn {
        /// That run.
        behind: i64,
        /// When that one will probably begin, if that can be told.
        until: Option<Timestamp>,
    },
}

/// What has a bound of runs at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOf {
    /// The policy.
    Policy,
    /// The client.
    Client,
    /// The storage unit, whose bound is of drives.
    Unit,
}

/// Who is at work.
struct AtWork<'a>(Vec<(&'a str, &'a str)>);

impl AtWork<'_> {
    /// The bound that a run meets, if it meets one.
    fn limit(&self, waiting: &WaitingRun, per_client: Option<usize>) -> Option<WaitsFor> {
        let of_policy = self.0.iter().filter(|(policy, _)| *policy == waiting.policy).count();
        let of_client = self.0.iter().filter(|(_, client)| *client == waiting.client).count();
        let met = |of, count: usize, most: Option<usize>| {
            most.filter(|most| count >= *most).map(|at_most| WaitsFor::Limit { of, at_most })
        };
        met(LimitOf::Policy, of_policy, waiting.runs_at_once).or_else(|| met(LimitOf::Client, of_client, per_client))
    }
}

/// The runs of a session, and its drives.
struct OpenSession {
    number: i64,
    terms: SessionTerms,
    library: String,
    /// Of each copy.
    drives: u32,
    unit: String,
    runs: usize,
    /// When the last of its runs will be done, if that can be told.
    ends: Option<Timestamp>,
}

impl OpenSession {
    /// All drives that it has.
    fn all_drives(&self) -> u32 {
        u32::from(self.terms.copies) * self.drives.max(1)
    }
}

fn sessions_of(working: &[WorkingRun]) -> Vec<OpenSession> {
    let mut sessions: Vec<OpenSession> = Vec::new();
    for run in working {
        match sessions.iter_mut().find(|session| session.number == run.session) {
            Some(session) => {
                session.runs += 1;
                session.ends = session.ends.zip(run.ends).map(|(one, other)| one.max(other));
            }
            None => {
                let (number, terms, ends) = (run.session, run.terms.clone(), run.ends);
                let (library, drives, unit) = (run.library.clone(), run.drives, run.unit.clone());
                sessions.push(OpenSession { number, terms, library, drives, unit, runs: 1, ends });
            }
        }
    }
    sessions
}

/// What becomes of each run that waits, the first in the queue first.
///
/// A run that begins gets drives of its own while some are free, in the library of its storage unit that has most of
/// them. Where none are, it joins the session on its terms that has the fewest runs, if that has room.
///
/// The queue's order is that of when runs could have begun, each point of priority being worth some minutes: so
/// priorities age, and the order of two runs never changes while they wait. A run that needs more drives than are free
/// lets others pass for a while, and then no more. Drives that are left when all have their turn are given to runs that
/// begin and can use them.
#[must_use]
pub fn decide(situation: &Situation) -> Vec<(i64, RunDecision)> {
    let now = situation.now;
    let mut order: Vec<&WaitingRun> = situation.waiting.iter().collect();
    order.sort_by_key(|waiting| (rank(waiting), waiting.run));
    let working = situation.working.iter().map(|working| (working.policy.as_str(), working.client.as_str()));
    let mut at_work = AtWork(working.collect());
    let mut sessions = sessions_of(&situation.working);
    let mut rooms: Vec<LibraryRoom<'_>> =
        situation.libraries.iter().filter_map(|library| LibraryRoom::of(library, &sessions, now)).collect();
    let (mut kept_units, mut is_short) = (HashMap::new(), HashSet::new());
    let mut decisions = Vec::with_capacity(order.len());
    for &waiting in &order {
        let not_yet = not_ready(waiting, now).or_else(|| at_work.limit(waiting, situation.runs_per_client));
        let decision = match (not_yet, kept_units.get(waiting.unit.name.as_str())) {
            (Some(waits_for), _) => RunDecision::Waits(waits_for),
            (None, Some(behind)) => RunDecision::Waits(WaitsFor::Turn { behind: *behind, until: None }),
            (None, None) => place(waiting, &mut rooms, &mut sessions, now),
        };
        // A bound of drives is kept for a run as drives are.
        if matches!(decision, RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Unit, .. }))
            && was_ready_long(waiting, now)
        {
            kept_units.insert(waiting.unit.name.as_str(), waiting.run);
        }
        match decision {
            RunDecision::Begins { .. } => at_work.0.push((&waiting.policy, &waiting.client)),
            RunDecision::Waits(WaitsFor::Drives { .. }) => is_short.extend(waiting.unit.libraries.iter()),
            RunDecision::Waits(_) => {}
        }
        decisions.push((waiting.run, decision));
    }
    // Whoever waits for a drive outside the queue, or in it, has it before one that writes already.
    let mut open: Vec<_> = rooms
        .into_iter()
        .filter(|room| room.kept.is_none() && !room.is_waited_for && is_short.iter().all(|short| *short != room.name))
        .collect();
    let mut begun_sessions: HashSet<i64> = situation.working.iter().map(|working| working.session).collect();
    for (waiting, (_, decision)) in order.into_iter().zip(&mut decisions) {
        let RunDecision::Begins { session, library, drives } = decision else { continue };
        if begun_sessions.insert(*session)
            && let Some(room) = open.iter_mut().find(|room| room.name == library)
        {
            give_more_drives(waiting, *session, room, &mut sessions);
        }
        *drives = sessions.iter().find(|open| open.number == *session).map_or(1, |open| open.drives);
    }
    decisions
}

/// Gives a session that a run begins the drives that are left and that it can use.
fn give_more_drives(waiting: &WaitingRun, session: i64, room: &mut LibraryRoom<'_>, sessions: &mut [OpenSession]) {
    let (copies, unit) = (u32::from(waiting.terms.copies), &waiting.unit);
    let used: u32 = sessions.iter().filter(|open| open.unit == unit.name).map(OpenSession::all_drives).sum();
    let left = unit.drives.map_or(u32::MAX, |most| most.saturating_sub(used)).min(room.free);
    let more = (left / copies.max(1)).min(waiting.drives.saturating_sub(1));
    room.free -= more * copies;
    sessions.iter_mut().filter(|open| open.number == session).for_each(|open| open.drives += more);
}

/// What a library has left.
struct LibraryRoom<'a> {
    name: &'a str,
    /// Drives it has.
    drives: u32,
    /// Those that jobs outside the queue use.
    of_others: u32,
    free: u32,
    /// Whether somebody outside the queue waits for a drive, and that for no longer than others may be kept off: a
    /// session that runs join keeps its drive for longer.
    is_waited_for: bool,
    /// The run that drives are kept for, and when it will probably have them.
    kept: Option<(i64, Option<Timestamp>)>,
}

impl<'a> LibraryRoom<'a> {
    /// None of one that does not say how many drives it has.
    fn of(library: &'a DriveUse, sessions: &[OpenSession], now: Timestamp) -> Option<Self> {
        let own = sessions.iter().filter(|session| session.library == library.library);
        let used: u32 = own.map(OpenSession::all_drives).sum();
        let (drives, of_others) = (library.all?, library.by_others);
        let waited_for = library.waited_for_ns.and_then(|ns| Timestamp::from_nanosecond(ns.into()).ok());
        Some(Self {
            name: &library.library,
            drives,
            of_others,
            free: drives.saturating_sub(used).saturating_sub(of_others),
            is_waited_for: waited_for.is_some_and(|since| now.duration_since(since) < PASSED_FOR),
            kept: None,
        })
    }

    /// Drives that a run needs here: one that wants more than there are begins, and says so.
    fn needed(&self, waiting: &WaitingRun) -> u32 {
        u32::from(waiting.terms.copies).min(self.drives)
    }
}

/// Where a run begins that is ready to, or what it waits for.
fn place(
    waiting: &WaitingRun,
    rooms: &mut [LibraryRoom<'_>],
    sessions: &mut Vec<OpenSession>,
    now: Timestamp,
) -> RunDecision {
    let unit = &waiting.unit;
    let in_unit = |room: &LibraryRoom<'_>| unit.libraries.iter().any(|library| library == room.name);
    let used: u32 = sessions.iter().filter(|open| open.unit == unit.name).map(OpenSession::all_drives).sum();
    let left = unit.drives.map_or(u32::MAX, |most| most.saturating_sub(used));
    let mut own: Vec<&mut LibraryRoom<'_>> = rooms.iter_mut().filter(|room| in_unit(room)).collect();
    // As the unit names them: the first of equals.
    own.sort_by_key(|room| unit.libraries.iter().position(|library| library == room.name));
    if own.is_empty() {
        return RunDecision::Waits(WaitsFor::Library(unit.libraries.clone()));
    }
    let fits = |room: &LibraryRoom<'_>| room.kept.is_none() && room.needed(waiting) <= room.free.min(left);
    let best = (0..own.len()).rev().filter(|&at| fits(&*own[at])).max_by_key(|&at| own[at].free);
    if let Some(room) = best.map(|at| &mut own[at]) {
        room.free -= room.needed(waiting);
        let number = (waiting.run..).find(|number| sessions.iter().all(|other| other.number != *number));
        let (number, terms) = (number.unwrap_or(waiting.run), waiting.terms.clone());
        let (library, unit) = (room.name.to_owned(), unit.name.clone());
        sessions.push(OpenSession { number, terms, library: library.clone(), drives: 1, unit, runs: 1, ends: None });
        return RunDecision::Begins { session: number, library, drives: 1 };
    }
    let open: Vec<&str> =
        own.iter().filter(|room| room.kept.is_none() && !room.is_waited_for).map(|room| room.name).collect();
    let may_join = |session: &&mut OpenSession| {
        let has_room = session.runs < usize::from(unit.runs_per_drive);
        session.terms == waiting.terms && has_room && open.contains(&session.library.as_str())
    };
    if let Some(session) = sessions.iter_mut().filter(may_join).min_by_key(|session| session.runs) {
        session.runs += 1;
        session.ends = None;
        let (library, drives) = (session.library.clone(), session.drives);
        return RunDecision::Begins { session: session.number, library, drives };
    }
    if let (Some((behind, until)), true) = (own[0].kept, own.iter().all(|room| room.kept.is_some())) {
        return RunDecision::Waits(WaitsFor::Turn { behind, until });
    }
    if own.iter().any(|room| room.kept.is_none() && room.needed(waiting) <= room.free) {
        let at_most = unit.drives.unwrap_or_default() as usize;
        return RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Unit, at_most });
    }
    // The library that has enough first, as far as that can be told.
    let mut open: Vec<&mut LibraryRoom<'_>> = own.into_iter().filter(|room| room.kept.is_none()).collect();
    open.sort_by_key(|room| {
        let until = free_at(sessions, room.name, now, room.needed(waiting), room.free);
        (until.is_none(), until, Reverse(room.free))
    });
    let Some(room) = open.into_iter().next() else { return RunDecision::Waits(WaitsFor::Library(Vec::new())) };
    let (needed, free) = (room.needed(waiting), room.free);
    let until = free_at(sessions, room.name, now, needed, free);
    // Drives that jobs outside the queue use come free whenever they do.
    if needed + room.of_others <= room.drives && was_ready_long(waiting, now) {
        room.kept = Some((waiting.run, until));
    }
    RunDecision::Waits(WaitsFor::Drives { needed, free, until })
}

/// Since when a run could have begun, as far as it is up to its time.
fn since(waiting: &WaitingRun) -> Timestamp {
    waiting.entered.max(waiting.not_before)
}

/// Whether it has been only for want of drives for as long as others may pass it.
fn was_ready_long(waiting: &WaitingRun, now: Timestamp) -> bool {
    let Ok(then) = now.checked_sub(PASSED_FOR) else { return false };
    let was_open = |(window, zone): &(Window, TimeZone)| {
        window.is_open(then, zone) && window.closes(then, zone).is_none_or(|closes| closes > now)
    };
    since(waiting) <= then && waiting.window.as_ref().is_none_or(was_open)
}

fn rank(waiting: &WaitingRun) -> Timestamp {
    let worth = POINT.saturating_mul(i32::try_from(waiting.priority).unwrap_or(0));
    since(waiting).saturating_sub(worth).unwrap_or(since(waiting))
}

/// What a run waits for that no drive helps with.
fn not_ready(waiting: &WaitingRun, now: Timestamp) -> Option<WaitsFor> {
    if waiting.is_held {
        return Some(WaitsFor::Release);
    }
    if let Some(fault) = &waiting.fault {
        return Some(WaitsFor::Repair(fault.clone()));
    }
    if waiting.not_before > now {
        return Some(WaitsFor::Time(waiting.not_before));
    }
    if let Some((window, zone)) = waiting.window.as_ref().filter(|(window, zone)| !window.is_open(now, zone)) {
        return Some(WaitsFor::Window(window.next_open(now, zone)));
    }
    if let Some(away) = waiting.client_away {
        return Some(WaitsFor::Client(away));
    }
    waiting.source_in_use.clone().map(WaitsFor::Source)
}

/// When so many drives of a library will probably be free, as far as the runs at work have a usual length.
fn free_at(sessions: &[OpenSession], library: &str, now: Timestamp, needed: u32, mut free: u32) -> Option<Timestamp> {
    let own = sessions.iter().filter(|session| session.library == library);
    let mut ends: Vec<_> = own.filter_map(|session| Some((session.ends?, session.all_drives()))).collect();
    ends.sort_unstable();
    for (ends, drives) in ends {
        free += drives;
        if free >= needed {
            return (ends > now).then_some(ends);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_director::Shortfall;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(NOW + seconds).unwrap()
    }

    /// No two of so many copies share a session unless they are told so.
    fn terms(copies: u8) -> SessionTerms {
        SessionTerms { pool: "p".into(), copies, compression: None, shortfall: Shortfall::Fail }
    }

    const MAIN: &str = "main";

    fn begins(session: i64) -> RunDecision {
        begins_in(session, MAIN)
    }

    fn begins_in(session: i64, library: &str) -> RunDecision {
        RunDecision::Begins { session, library: library.into(), drives: 1 }
    }

    fn unit(name: &str, libraries: &[&str], runs_per_drive: u8) -> StorageUnit {
        let libraries = libraries.iter().map(|library| (*library).to_owned()).collect();
        StorageUnit { name: name.into(), libraries, drives: None, runs_per_drive }
    }

    fn library(name: &str, all: Option<u32>, by_others: u32) -> DriveUse {
        DriveUse { library: name.into(), all, by_others, waited_for_ns: None }
    }

    fn waiting(run: i64, priority: i64, entered: i64) -> WaitingRun {
        WaitingRun {
            run,
            policy: format!("policy {run}"),
            runs_at_once: None,
            client: "tern".into(),
            priority,
            entered: at(entered),
            not_before: Timestamp::UNIX_EPOCH,
            is_held: false,
            terms: terms(1),
            drives: 1,
            unit: unit(MAIN, &[MAIN], 1),
            window: None,
            fault: None,
            source_in_use: None,
            client_away: None,
        }
    }

    fn working(run: i64, drives: u8, ends: Option<i64>) -> WorkingRun {
        let (policy, client) = (format!("policy {run}"), "tern".to_owned());
        let (library, unit) = (MAIN.to_owned(), MAIN.to_owned());
        let terms = terms(drives);
        WorkingRun { run, policy, client, session: run, library, drives: 1, unit, terms, ends: ends.map(at) }
    }

    fn situation(waiting: Vec<WaitingRun>, working: Vec<WorkingRun>, drives: u32) -> Situation {
        Situation {
            now: at(0),
            waiting,
            working,
            runs_per_client: None,
            libraries: vec![library(MAIN, Some(drives), 0)],
        }
    }

    fn drives(needed: u32, free: u32, until: Option<i64>) -> RunDecision {
        RunDecision::Waits(WaitsFor::Drives { needed, free, until: until.map(at) })
    }

    #[test]
    fn the_first_in_the_queue_begins_while_drives_last() {
        let queue = vec![waiting(1, 50, -60), waiting(2, 90, -30), waiting(3, 50, -90)];
        let decisions = decide(&situation(queue, vec![working(9, 1, Some(300))], 3));
        let waits = drives(1, 0, Some(300));
        assert_eq!(decisions, [(2, begins(2)), (3, begins(3)), (1, waits)]);
    }

    #[test]
    fn runs_share_a_session_where_no_drive_is_free_for_them() {
        let of_pool = |run: i64, pool: &str, since: i64| {
            let terms = SessionTerms { pool: pool.into(), ..terms(1) };
            WaitingRun { terms, unit: unit(MAIN, &[MAIN], 3), ..waiting(run, 50, since) }
        };
        let at_work = |run: i64, session: i64| WorkingRun { session, ..working(run, 1, Some(300)) };
        let queue = vec![of_pool(4, "p", -60), of_pool(5, "p", -50), of_pool(6, "other", -40), of_pool(7, "p", -30)];
        let two = situation(queue.clone(), vec![at_work(1, 1), at_work(2, 1)], 2);
        // One is free, then the session with fewer runs has room for two, and the other one for one.
        assert_eq!(decide(&two), [(4, begins(4)), (5, begins(4)), (6, drives(1, 0, Some(300))), (7, begins(1))]);
        // While somebody outside the queue waits, for half an hour, nobody joins.
        let of_restore = |since| {
            let waited_for =
                DriveUse { waited_for_ns: Some((NOW + since) * 1_000_000_000), ..library(MAIN, Some(2), 0) };
            decide(&Situation { libraries: vec![waited_for], ..two.clone() })
        };
        assert_eq!(of_restore(-60)[1], (5, drives(1, 0, Some(300))));
        assert_eq!(of_restore(-1800)[1], (5, begins(4)));
        // Who waited long for a drive is passed by nobody, though there is room for others.
        let early = WaitingRun { entered: at(-7200), ..of_pool(6, "other", 0) };
        let full = Situation { waiting: vec![early, of_pool(7, "p", -30)], ..two.clone() };
        let full = Situation { libraries: vec![library(MAIN, Some(1), 0)], ..full };
        let until = Some(at(300));
        let turn = RunDecision::Waits(WaitsFor::Turn { behind: 6, until });
        assert_eq!(decide(&full), [(6, drives(1, 0, Some(300))), (7, turn)]);
        // A session is over when its last run is.
        let longer = WorkingRun { ends: Some(at(900)), ..at_work(2, 1) };
        let last = Situation { working: vec![at_work(1, 1), longer], ..full };
        assert_eq!(decide(&last)[0].1, drives(1, 0, Some(900)));
    }

    #[test]
    fn drives_that_are_left_go_to_runs_that_can_use_them() {
        let wants =
            |run: i64, copies: u8, drives: u32| WaitingRun { terms: terms(copies), drives, ..waiting(run, 50, -60) };
        let with = |session: i64, drives: u32| RunDecision::Begins { session, library: MAIN.into(), drives };
        // Each has its own first; what is left the first can use, and the other then.
        let two = situation(vec![wants(1, 1, 3), wants(2, 1, 3)], vec![], 5);
        assert_eq!(decide(&two), [(1, with(1, 3)), (2, with(2, 2))]);
        // Twins need two each.
        let twins = situation(vec![wants(1, 2, 3)], vec![], 5);
        assert_eq!(decide(&twins), [(1, with(1, 2))]);
        // They count as in use, and their session may be joined.
        let at_work = WorkingRun { drives: 3, ..working(9, 1, Some(300)) };
        let full = situation(vec![wants(1, 1, 1)], vec![at_work.clone()], 3);
        assert_eq!(decide(&full), [(1, drives(1, 0, Some(300)))]);
        let joins = WaitingRun { unit: unit(MAIN, &[MAIN], 2), ..wants(1, 1, 2) };
        assert_eq!(decide(&situation(vec![joins], vec![at_work], 3)), [(1, with(9, 3))]);
        // The bound of the unit is of drives.
        let bounded = WaitingRun { unit: StorageUnit { drives: Some(2), ..unit("u", &[MAIN], 1) }, ..wants(1, 1, 3) };
        assert_eq!(decide(&situation(vec![bounded], vec![], 5)), [(1, with(1, 2))]);
        // Nobody has two while another one waits for its only one, in the queue or outside it.
        let waits = vec![wants(1, 1, 3), wants(2, 3, 1)];
        assert_eq!(decide(&situation(waits, vec![], 3))[0], (1, with(1, 1)));
        let waited_for = DriveUse { waited_for_ns: Some((NOW - 60) * 1_000_000_000), ..library(MAIN, Some(3), 0) };
        let outside = Situation { libraries: vec![waited_for], ..situation(vec![wants(1, 1, 3)], vec![], 3) };
        assert_eq!(decide(&outside), [(1, with(1, 1))]);
    }

    #[test]
    fn bounds_of_policies_and_clients_are_kept() {
        let of = |run: i64, policy: &str, client: &str, runs_at_once| {
            let (policy, client) = (policy.to_owned(), client.to_owned());
            WaitingRun { policy, client, runs_at_once, ..waiting(run, 50, -100 + run) }
        };
        let queue = vec![
            of(1, "web", "a", Some(2)),
            of(2, "web", "b", Some(2)),
            of(3, "db", "b", None),
            of(4, "db", "c", None),
        ];
        let busy = WorkingRun { policy: "web".into(), client: "c".into(), ..working(9, 1, None) };
        let bounded = Situation { runs_per_client: Some(1), ..situation(queue, vec![busy], 9) };
        let limit = |of, at_most| RunDecision::Waits(WaitsFor::Limit { of, at_most });
        let (of_policy, of_client) = (limit(LimitOf::Policy, 2), limit(LimitOf::Client, 1));
        assert_eq!(decide(&bounded), [(1, begins(1)), (2, of_policy), (3, begins(3)), (4, of_client)]);
    }

    #[test]
    fn a_run_that_is_begun_again_takes_no_number_that_is_in_use() {
        let at_work = WorkingRun { session: 1, ..working(2, 1, None) };
        let again = situation(vec![waiting(1, 50, -60)], vec![at_work], 2);
        assert_eq!(decide(&again), [(1, begins(2))]);
    }

    #[test]
    fn what_waited_long_passes_a_new_run_of_higher_priority() {
        let first = |waited: i64| {
            let queue = vec![waiting(1, 0, -waited), waiting(2, 100, -60)];
            decide(&situation(queue, vec![], 1))[0].0
        };
        assert_eq!(first(9 * 3600), 2);
        assert_eq!(first(11 * 3600), 1);
    }

    #[test]
    fn a_run_says_what_it_waits_for() {
        let held = WaitingRun { is_held: true, ..waiting(1, 50, -60) };
        let faulty = WaitingRun { fault: Some("no script".into()), ..waiting(2, 50, -60) };
        let later = WaitingRun { not_before: at(600), ..waiting(3, 50, -60) };
        // It is a Friday, 8:00 UTC.
        let window = Some(("sat,sun".parse().unwrap(), TimeZone::UTC));
        let weekend = WaitingRun { window, ..waiting(4, 50, -60) };
        let in_use = WaitingRun { source_in_use: Some("by hand".into()), ..waiting(5, 50, -60) };
        let decisions = decide(&situation(vec![held, faulty, later, weekend, in_use], vec![], 4));
        let of = |run: i64| decisions.iter().find(|(of, _)| *of == run).unwrap().1.clone();
        assert_eq!(of(1), RunDecision::Waits(WaitsFor::Release));
        assert_eq!(of(2), RunDecision::Waits(WaitsFor::Repair("no script".into())));
        assert_eq!(of(3), RunDecision::Waits(WaitsFor::Time(at(600))));
        assert_eq!(of(5), RunDecision::Waits(WaitsFor::Source("by hand".into())));
        assert_eq!(of(4), RunDecision::Waits(WaitsFor::Window(Some("2027-01-16T00:00:00Z".parse().unwrap()))));
    }

    #[test]
    fn small_runs_pass_a_large_one_for_a_while_and_then_drives_are_kept_for_it() {
        let decisions = |waited: i64| {
            let large = WaitingRun { terms: terms(2), ..waiting(1, 50, -waited) };
            let at_work = vec![working(9, 1, Some(900))];
            decide(&situation(vec![large, waiting(2, 50, -10)], at_work, 2))
        };
        assert_eq!(decisions(60), [(1, drives(2, 1, Some(900))), (2, begins(2))]);
        let turn = RunDecision::Waits(WaitsFor::Turn { behind: 1, until: Some(at(900)) });
        assert_eq!(decisions(1800), [(1, drives(2, 1, Some(900))), (2, turn)]);
    }

    #[test]
    fn when_drives_come_free_is_said_only_where_it_can_be_told() {
        let of = |at_work: Vec<WorkingRun>| {
            let two = WaitingRun { terms: terms(2), ..waiting(1, 50, -60) };
            decide(&situation(vec![two], at_work, 3)).remove(0).1
        };
        assert_eq!(of(vec![working(8, 1, Some(300)), working(9, 2, Some(600))]), drives(2, 0, Some(600)));
        assert_eq!(of(vec![working(8, 1, Some(300)), working(9, 2, None)]), drives(2, 0, None));
        assert_eq!(of(vec![working(9, 3, Some(-5))]), drives(2, 0, None), "it takes longer than usual");
    }

    #[test]
    fn drives_of_others_are_not_given_and_more_than_there_are_is_nobodys_wait() {
        let queue = vec![WaitingRun { terms: terms(3), ..waiting(1, 50, -60) }];
        let mut others = situation(queue, vec![], 2);
        assert_eq!(decide(&others), [(1, begins(1))], "the job itself says what it lacks");
        others.libraries = vec![library(MAIN, Some(2), 1)];
        assert_eq!(decide(&others), [(1, drives(2, 1, None))]);
    }

    #[test]
    fn drives_are_kept_for_nobody_who_waits_for_others_or_for_a_window() {
        let large = WaitingRun { terms: terms(2), ..waiting(1, 50, -7200) };
        let pinned = situation(vec![large.clone(), waiting(2, 50, -10)], vec![], 2);
        let pinned = Situation { libraries: vec![library(MAIN, Some(2), 1)], ..pinned };
        assert_eq!(decide(&pinned), [(1, drives(2, 1, None)), (2, begins(2))]);
        // It is 8:00 UTC: the window has been open for ten minutes.
        let window = |text: &str| Some((text.parse().unwrap(), TimeZone::UTC));
        let second = |window| {
            let large = WaitingRun { window, ..large.clone() };
            decide(&situation(vec![large, waiting(2, 50, -10)], vec![working(9, 1, None)], 2)).remove(1).1
        };
        assert_eq!(second(window("07:50-09:00")), begins(2));
        assert_eq!(second(window("07:20-09:00")), RunDecision::Waits(WaitsFor::Turn { behind: 1, until: None }));
    }

    #[test]
    fn nothing_begins_before_the_library_says_what_it_has() {
        let unknown =
            Situation { libraries: vec![library(MAIN, None, 0)], ..situation(vec![waiting(1, 50, -60)], vec![], 0) };
        assert_eq!(decide(&unknown), [(1, RunDecision::Waits(WaitsFor::Library(vec![MAIN.into()])))]);
    }

    #[test]
    fn a_run_goes_to_the_library_of_its_unit_that_has_most_drives_free() {
        let of_unit = |run: i64, unit: StorageUnit| WaitingRun { unit, ..waiting(run, 50, -run) };
        let both = || unit("tape", &["east", "west"], 2);
        let libraries =
            |east, west| vec![library(MAIN, Some(1), 0), library("west", west, 0), library("east", east, 0)];
        let queue = (1..=6).rev().map(|run| of_unit(run, both())).collect();
        let three = Situation { libraries: libraries(Some(1), Some(2)), ..situation(queue, vec![], 0) };
        // Two are free in the west, then one in each, of which the unit names the east first; then sessions are shared.
        let west = |run, session| (run, begins_in(session, "west"));
        let east = |run, session| (run, begins_in(session, "east"));
        assert_eq!(decide(&three), [west(6, 6), east(5, 5), west(4, 4), west(3, 6), east(2, 5), west(1, 4)]);
        // One that is away is nobody's, and what is written elsewhere waits for that alone.
        let queue = vec![of_unit(1, both()), of_unit(2, unit("west", &["west"], 2))];
        let away = Situation { libraries: libraries(Some(1), None), ..situation(queue, vec![], 0) };
        let waits = RunDecision::Waits(WaitsFor::Library(vec!["west".into()]));
        assert_eq!(decide(&away), [(2, waits), (1, begins_in(1, "east"))]);
    }

    #[test]
    fn a_unit_has_a_bound_of_drives_and_keeps_them_in_its_libraries_alone() {
        let bounded = StorageUnit { drives: Some(1), ..unit("tape", &["east", "west"], 1) };
        let of_unit = |run: i64, unit: &StorageUnit| WaitingRun { unit: unit.clone(), ..waiting(run, 50, -7200 - run) };
        let libraries = vec![library("east", Some(1), 0), library("west", Some(1), 0)];
        let queue = vec![of_unit(2, &bounded), of_unit(1, &bounded)];
        let limit = RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Unit, at_most: 1 });
        let both = Situation { libraries: libraries.clone(), ..situation(queue, vec![], 0) };
        assert_eq!(decide(&both), [(2, begins_in(2, "east")), (1, limit.clone())]);
        // The bound is kept for a run that waits long, too.
        let two = StorageUnit { drives: Some(2), ..bounded.clone() };
        let large = WaitingRun { terms: terms(2), ..of_unit(2, &two) };
        let at_work = WorkingRun { library: "east".into(), unit: "tape".into(), ..working(9, 1, None) };
        let wide = vec![library("east", Some(1), 0), library("west", Some(2), 0)];
        let queue = vec![large, of_unit(1, &two)];
        let kept = Situation { libraries: wide, ..situation(queue, vec![at_work], 0) };
        let limit = RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Unit, at_most: 2 });
        let turn = RunDecision::Waits(WaitsFor::Turn { behind: 2, until: None });
        assert_eq!(decide(&kept), [(2, limit), (1, turn)]);
        // Drives of the east are kept for a run that waits long; the west goes on.
        let (east, west) = (unit("east", &["east"], 1), unit("any", &["east", "west"], 1));
        let at_work = WorkingRun { library: "east".into(), unit: "east".into(), ..working(9, 1, Some(300)) };
        let queue = vec![of_unit(2, &east), of_unit(1, &east), WaitingRun { unit: west, ..waiting(3, 50, 0) }];
        let kept = Situation { libraries, ..situation(queue, vec![at_work], 0) };
        let turn = RunDecision::Waits(WaitsFor::Turn { behind: 2, until: Some(at(300)) });
        assert_eq!(decide(&kept), [(2, drives(1, 0, Some(300))), (1, turn), (3, begins_in(3, "west"))]);
    }

    /// Whatever comes, a run that could begin does so after all that ranked before it: nothing starves.
    #[test]
    fn nothing_starves_under_a_stream_of_better_runs() {
        let mut now = 0;
        let mut queue = vec![WaitingRun { terms: terms(2), ..waiting(1, 0, 0) }];
        let mut at_work: Vec<WorkingRun> = Vec::new();
        for next in 2.. {
            now += 300;
            queue.push(waiting(next, 100, now));
            at_work.retain(|working| working.ends > Some(at(now)));
            let situation = Situation { now: at(now), ..situation(queue.clone(), at_work.clone(), 2) };
            for (run, decision) in decide(&situation) {
                if let RunDecision::Begins { session, .. } = decision {
                    let terms = queue.iter().find(|waiting| waiting.run == run).unwrap().terms.clone();
                    queue.retain(|waiting| waiting.run != run);
                    at_work.push(WorkingRun { session, terms, ..working(run, 1, Some(now + 500)) });
                }
            }
            if queue.iter().all(|waiting| waiting.run != 1) {
                break;
            }
            assert!(now < 16 * 3600, "it waits for {now} s");
        }
    }
}
