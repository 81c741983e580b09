//! Where runs begin: the drives of each library, the sessions that have them, and for whom they are kept.
//!
//! A run of two copies may find one drive free for hours, while the other is at work. If that were kept for it at once,
//! it would stand idle, and nobody might join the run at work. So drives are kept for it only when it is known that
//! enough will be free soon. Whoever is done before that, as far as is known, uses them meanwhile; and so does a
//! restore, for which somebody waits. Estimates are wrong, and runs come without an end. So a run that has waited for
//! half a day has drives kept for it whatever is known, and in the end they are kept from restores, too: then those at
//! work end, and it begins.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use capstan_director::{DriveUse, Lifetime, StorageUnit};

use super::{
    LimitOf, PASSED_FOR, RunDecision, RunTerms, VolumeTaken, WaitingRun, WaitsFor, WorkingRun, since, was_ready_long,
};

/// So many runs more than others a session may have, and still be joined by what is kept for as long as its runs.
const RUNS_MORE_OF_LIKE: usize = 3;

/// Drives are kept for a run of several while enough of them come free within this time: less than a small backup takes
/// is not worth a start, and a drive may stand idle for so long.
const SOON: SignedDuration = SignedDuration::from_hours(2);
/// After so long, drives are kept for it whenever enough come free: most runs end within this time, and a run of every
/// night has its turn before the next one is due.
const KEPT_AFTER: SignedDuration = SignedDuration::from_hours(12);
/// After so long, they are kept from restores, too: only a stream of them that never ends takes longer.
const KEPT_FROM_RESTORES_AFTER: SignedDuration = SignedDuration::from_hours(48);

/// For whom drives are kept, and from whom.
#[derive(Clone, Copy)]
pub(super) struct KeptDrives {
    /// The run that they are kept for.
    pub(super) run: i64,
    /// When it will probably have them, if that can be told.
    until: Option<Timestamp>,
    restores: RestoresPass,
}

/// Whether restores may use drives that are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestoresPass {
    Yes,
    No,
}

impl KeptDrives {
    /// What is kept for a run that waits for so many drives, which are free at a time; none while others may pass it.
    pub(super) fn of(waiting: &WaitingRun, needed: u32, until: Option<Timestamp>, now: Timestamp) -> Option<Self> {
        if !was_ready_long(waiting, now) {
            return None;
        }
        let waited = |long| now.duration_since(since(waiting)) >= long;
        let is_soon = || until.is_some_and(|until| until.duration_since(now) <= SOON);
        let run = waiting.run;
        // One drive goes to it as soon as it is free: none stands idle.
        if needed <= 1 {
            return Some(Self { run, until, restores: RestoresPass::No });
        }
        let restores = if waited(KEPT_FROM_RESTORES_AFTER) { RestoresPass::No } else { RestoresPass::Yes };
        (is_soon() || waited(KEPT_AFTER)).then_some(Self { run, until, restores })
    }

    /// Whether another run may begin there all the same.
    pub(super) fn lets_pass(&self, waiting: &WaitingRun, now: Timestamp) -> bool {
        if waiting.terms.is_restore() && self.restores == RestoresPass::Yes {
            return true;
        }
        let ends = waiting.usual.and_then(|usual| now.checked_add(usual).ok());
        ends.zip(self.until).is_some_and(|(ends, until)| ends <= until)
    }
}

/// The runs of a session, and its drives.
pub(super) struct OpenSession {
    pub(super) number: i64,
    /// One of its runs.
    run: i64,
    terms: RunTerms,
    library: String,
    /// Of each copy.
    pub(super) drives: u32,
    unit: String,
    /// Of its runs, the longest.
    lifetime: Lifetime,
    runs: usize,
    /// When the last of its runs will be done, if that can be told.
    ends: Option<Timestamp>,
    /// When one of them will be done at the latest, as far as that can be told.
    first_ends: Option<Timestamp>,
}

impl OpenSession {
    /// All drives that it has.
    fn all_drives(&self) -> u32 {
        self.terms.drives() * self.drives.max(1)
    }

    /// Those of them that it writes with.
    fn drives_written(&self) -> u32 {
        self.terms.drives_written() * self.drives.max(1)
    }
}

pub(super) fn sessions_of(working: &[WorkingRun], now: Timestamp) -> Vec<OpenSession> {
    let mut sessions: Vec<OpenSession> = Vec::new();
    for run in working {
        match sessions.iter_mut().find(|session| session.number == run.session) {
            Some(session) => {
                session.runs += 1;
                session.lifetime = session.lifetime.max(run.lifetime);
                session.ends = session.ends.zip(run.ends).map(|(one, other)| one.max(other));
                session.first_ends = session.first_ends.into_iter().chain(run.ends.filter(|end| *end > now)).min();
            }
            None => {
                let (number, terms, ends) = (run.session, run.terms.clone(), run.ends);
                let (library, drives, unit) = (run.library.clone(), run.drives, run.unit.clone());
                let (run, lifetime, first_ends) = (run.run, run.lifetime, ends.filter(|end| *end > now));
                let runs = 1;
                sessions.push(OpenSession {
                    number,
                    run,
                    terms,
                    library,
                    drives,
                    unit,
                    lifetime,
                    runs,
                    ends,
                    first_ends,
                });
            }
        }
    }
    sessions
}

/// What a library has left.
pub(super) struct LibraryRoom<'a> {
    pub(super) name: &'a str,
    /// Drives it has.
    drives: u32,
    /// Those that jobs outside the queue use.
    of_others: u32,
    pub(super) free: u32,
    /// What they are, as far as it is known.
    classes: &'a [String],
    /// Whether somebody outside the queue waits for a drive, and that for no longer than others may be kept off: a
    /// session that runs join keeps its drive for longer.
    pub(super) is_waited_for: bool,
    /// Pools of which a volume is waited for.
    closed_pools: Vec<String>,
    /// What is kept here.
    pub(super) kept: Option<KeptDrives>,
}

impl<'a> LibraryRoom<'a> {
    /// None of one that does not say how many drives it has.
    pub(super) fn of(library: &'a DriveUse, sessions: &[OpenSession], now: Timestamp) -> Option<Self> {
        let own = sessions.iter().filter(|session| session.library == library.library);
        let used: u32 = own.map(OpenSession::all_drives).sum();
        let (drives, of_others) = (library.all?, library.by_others);
        let waited_for = library.waited_for_ns.and_then(|ns| Timestamp::from_nanosecond(ns.into()).ok());
        Some(Self {
            name: &library.library,
            drives,
            of_others,
            classes: &library.classes,
            free: drives.saturating_sub(used).saturating_sub(of_others),
            is_waited_for: waited_for.is_some_and(|since| now.duration_since(since) < PASSED_FOR),
            closed_pools: Vec::new(),
            kept: None,
        })
    }

    /// Drives that are free here for a unit, which may have those of some models alone.
    fn free_for(&self, unit: &StorageUnit, sessions: &[OpenSession]) -> u32 {
        let Some(fit) = self.of_models(unit) else { return self.free };
        // Sessions that may have other drives, too, are taken to have those.
        let mut bound: Vec<(&[String], u32)> = Vec::new();
        for session in sessions.iter().filter(|session| session.library == self.name) {
            let read = session.all_drives() - session.drives_written();
            for (of, used) in [(session.terms.models(), session.drives_written()), (&[][..], read)] {
                match bound.iter_mut().find(|(models, _)| *models == of) {
                    Some((_, drives)) => *drives += used,
                    None => bound.push((of, used)),
                }
            }
        }
        let used = bound.into_iter().map(|(models, drives)| {
            let may_have = |class: &&String| models.is_empty() || models.contains(class);
            let others = self.classes.iter().filter(may_have).filter(|class| !unit.models.contains(class)).count();
            drives.saturating_sub(u32::try_from(others).unwrap_or(u32::MAX))
        });
        let used = used.sum();
        fit.saturating_sub(used).min(self.free)
    }

    /// Drives here that a unit of some models may have; none if it may have all, or if it is not known what they are.
    fn of_models(&self, unit: &StorageUnit) -> Option<u32> {
        let is_known = !self.classes.is_empty() && self.classes.iter().all(|class| !class.is_empty());
        let is_bound = is_known && !unit.models.is_empty();
        let fit = || self.classes.iter().filter(|class| unit.models.contains(class)).count();
        is_bound.then(|| u32::try_from(fit()).unwrap_or(u32::MAX))
    }

    /// Drives that there are here for a unit, free or not: one at least, so that a run that can never begin does, and
    /// says why.
    pub(super) fn all_for(&self, unit: &StorageUnit) -> u32 {
        self.of_models(unit).map_or(self.drives, |fit| fit.max(1).min(self.drives))
    }
}

/// Where a run begins that is ready to, or what it waits for.
pub(super) fn place(
    waiting: &WaitingRun,
    rooms: &mut [LibraryRoom<'_>],
    sessions: &mut Vec<OpenSession>,
    now: Timestamp,
) -> RunDecision {
    let unit = &waiting.unit;
    let in_unit = |room: &LibraryRoom<'_>| unit.libraries.iter().any(|library| library == room.name);
    let used: u32 = sessions.iter().filter(|open| open.unit == unit.name).map(OpenSession::drives_written).sum();
    let left = unit.drives.map_or(u32::MAX, |most| most.saturating_sub(used));
    let mut own: Vec<&mut LibraryRoom<'_>> = rooms.iter_mut().filter(|room| in_unit(room)).collect();
    // As the unit names them: the first of equals.
    own.sort_by_key(|room| unit.libraries.iter().position(|library| library == room.name));
    if own.is_empty() {
        return RunDecision::Waits(WaitsFor::Library(unit.libraries.clone()));
    }
    // A run that wants more drives than there are in any of its libraries begins, and says so. One that does not answer
    // may have them.
    let largest = own.iter().map(|room| room.all_for(unit)).max().unwrap_or_default();
    if waiting.terms.drives_written() > largest {
        let answers = |library: &&String| own.iter().any(|room| room.name == **library);
        let silent: Vec<String> = unit.libraries.iter().filter(|library| !answers(library)).cloned().collect();
        if !silent.is_empty() {
            return RunDecision::Waits(WaitsFor::Library(silent));
        }
    }
    // Of its unit's models; and those that are read beside, of any.
    let written = waiting.terms.drives_written().min(largest);
    let read = waiting.terms.drives() - waiting.terms.drives_written();
    let needed = |room: &LibraryRoom<'_>| (written + read).min(room.drives);
    own.retain(|room| written <= room.all_for(unit));
    let is_closed = |room: &LibraryRoom<'_>| room.kept.is_some_and(|kept| !kept.lets_pass(waiting, now));
    // A backup that joined a session would have it end later.
    let is_kept = |room: &LibraryRoom<'_>| match waiting.terms.is_restore() {
        true => is_closed(room),
        false => room.kept.is_some(),
    };
    let is_open =
        |room: &LibraryRoom<'_>| !is_kept(room) && !room.is_waited_for && waiting.terms.is_outside(&room.closed_pools);
    let open: Vec<&str> = own.iter().filter(|room| is_open(room)).map(|room| room.name).collect();
    let may_join = |session: &&mut OpenSession| {
        let has_room = session.runs < usize::from(unit.runs_per_drive);
        session.terms == waiting.terms && has_room && open.contains(&session.library.as_str())
    };
    let join = |sessions: &mut Vec<OpenSession>| {
        let unlike = |session: &OpenSession| !session.lifetime.is_like(waiting.lifetime);
        let session = sessions.iter_mut().filter(may_join).min_by_key(|session| {
            let more = if unlike(session) { RUNS_MORE_OF_LIKE } else { 0 };
            (session.runs + more, more)
        })?;
        session.runs += 1;
        session.lifetime = session.lifetime.max(waiting.lifetime);
        session.ends = None;
        let (library, drives) = (session.library.clone(), session.drives);
        Some(RunDecision::Begins { session: session.number, library, drives })
    };
    if waiting.terms.is_restore() {
        if let Some(begun) = join(sessions) {
            return begun;
        }
        if let (RunTerms::Reads(volume), Some(other)) =
            (&waiting.terms, sessions.iter().find(|session| session.terms == waiting.terms))
        {
            let held = format!("{volume}, which run {} reads", other.run);
            return RunDecision::Waits(WaitsFor::Volume { held, until: other.first_ends });
        }
        if let Some(VolumeTaken { held, pool }) = &waiting.volume_in_use {
            // The session that has the volume comes to its end once nobody joins it. Those of other pools go on.
            if let Some(pool) = pool.as_ref().filter(|_| was_ready_long(waiting, now)) {
                own.iter_mut().for_each(|room| room.closed_pools.push(pool.clone()));
            }
            return RunDecision::Waits(WaitsFor::Volume { held: held.clone(), until: None });
        }
    }
    let free = |room: &LibraryRoom<'_>| room.free_for(unit, sessions);
    let fits =
        |room: &LibraryRoom<'_>| !is_closed(room) && written <= free(room).min(left) && needed(room) <= room.free;
    let best = (0..own.len()).rev().filter(|&at| fits(&*own[at])).max_by_key(|&at| free(&*own[at]));
    if let Some(room) = best.map(|at| &mut own[at]) {
        room.free -= needed(room);
        let number = (waiting.run..).find(|number| sessions.iter().all(|other| other.number != *number));
        let (number, terms) = (number.unwrap_or(waiting.run), waiting.terms.clone());
        let (library, unit) = (room.name.to_owned(), unit.name.clone());
        let run = waiting.run;
        sessions.push(OpenSession {
            number,
            run,
            terms,
            library: library.clone(),
            drives: 1,
            unit,
            lifetime: waiting.lifetime,
            runs: 1,
            ends: None,
            first_ends: None,
        });
        return RunDecision::Begins { session: number, library, drives: 1 };
    }
    if let Some(begun) = join(sessions) {
        return begun;
    }
    if let (Some(kept), true) = (own[0].kept, own.iter().all(|room| is_closed(room))) {
        return RunDecision::Waits(WaitsFor::Turn { behind: kept.run });
    }
    if let Some(room) = own.iter().find(|room| !is_closed(room) && needed(room) <= room.free) {
        return RunDecision::Waits(match unit.drives {
            Some(most) if written > left => {
                let of_unit = sessions.iter().filter(|open| open.unit == unit.name);
                let until = free_at(of_unit.map(|open| (open, open.drives_written())), now, written, left);
                WaitsFor::Limit { of: LimitOf::Unit, at_most: most as usize, until, before: 0 }
            }
            // The others have those of its models.
            _ => {
                let (needed, free) = (needed(room), room.free_for(unit, sessions));
                WaitsFor::Drives { needed, free, until: None, before: 0 }
            }
        });
    }
    // The library that has enough first, as far as that can be told.
    let mut open: Vec<&mut LibraryRoom<'_>> = own.into_iter().filter(|room| !is_closed(room)).collect();
    open.sort_by_key(|room| {
        let until = free_at(in_library(sessions, room.name), now, needed(room), room.free);
        (until.is_none(), until, Reverse(room.free))
    });
    let Some(room) = open.into_iter().next() else { return RunDecision::Waits(WaitsFor::Library(Vec::new())) };
    let (needed, free) = (needed(room), room.free);
    let until = free_at(in_library(sessions, room.name), now, needed, free);
    // Drives that jobs outside the queue use come free whenever they do.
    if needed + room.of_others <= room.drives {
        room.kept = room.kept.or_else(|| KeptDrives::of(waiting, needed, until, now));
    }
    RunDecision::Waits(WaitsFor::Drives { needed, free, until, before: 0 })
}

/// Gives a session that a run begins the drives that are left and that it can use.
pub(super) fn give_more_drives(
    waiting: &WaitingRun,
    session: i64,
    room: &mut LibraryRoom<'_>,
    sessions: &mut [OpenSession],
) {
    let (copies, unit) = (waiting.terms.drives(), &waiting.unit);
    let used: u32 = sessions.iter().filter(|open| open.unit == unit.name).map(OpenSession::drives_written).sum();
    let left = unit.drives.map_or(u32::MAX, |most| most.saturating_sub(used)).min(room.free_for(unit, sessions));
    let more = (left / copies.max(1)).min(waiting.drives.saturating_sub(1));
    room.free -= more * copies;
    sessions.iter_mut().filter(|open| open.number == session).for_each(|open| open.drives += more);
}

/// The sessions in a library, with the drives that they have there.
fn in_library<'a>(sessions: &'a [OpenSession], library: &str) -> impl Iterator<Item = (&'a OpenSession, u32)> {
    let own = sessions.iter().filter(move |session| session.library == library);
    own.map(|session| (session, session.all_drives()))
}

/// When so many drives that these sessions have will probably be free, as far as the runs at work have a usual length.
fn free_at<'a>(
    sessions: impl Iterator<Item = (&'a OpenSession, u32)>,
    now: Timestamp,
    needed: u32,
    mut free: u32,
) -> Option<Timestamp> {
    // One that takes longer than usual ends when it does.
    let known = sessions.filter_map(|(session, drives)| Some((session.ends.filter(|ends| *ends > now)?, drives)));
    let mut ends: Vec<_> = known.collect();
    ends.sort_unstable();
    for (ends, drives) in ends {
        free += drives;
        if free >= needed {
            return Some(ends);
        }
    }
    None
}
