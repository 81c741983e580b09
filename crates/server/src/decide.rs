//! Which runs begin, and what each of the others waits for.

mod rooms;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use capstan_director::{DriveUse, Lifetime, SessionTerms, StorageUnit};
use capstan_schedule::Window;
use rooms::{KeptDrives, LibraryRoom, give_more_drives, place, sessions_of};

/// What a point of priority is worth: so much of waiting. A run of the lowest priority passes new ones of the highest
/// after ten hours.
const POINT: SignedDuration = SignedDuration::from_mins(6);
/// How long others may use the drives that the first run in the queue has too few of; then they are kept for it.
const PASSED_FOR: SignedDuration = SignedDuration::from_mins(30);
/// For how long back the last opening of a window is looked for.
const OPENINGS_LOOKED_FOR: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Restores of one client that are at work at the same time, at most.
const RESTORES_PER_CLIENT: usize = 2;

/// What runs that share drives have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunTerms {
    /// They write on these terms. Each needs as many drives as copies.
    Writes(SessionTerms),
    /// They are restores that read this volume first: together, with one drive.
    Reads(String),
    /// They copy what others have backed up. One run of a policy does at a time, so nobody shares its session.
    Copies {
        /// The policy.
        policy: String,
        /// On which terms the copies are written.
        terms: SessionTerms,
        /// Whether what they read may be in the library that they write in: they need a drive for each then.
        reads_beside: bool,
    },
}

impl RunTerms {
    /// Drives that are needed at the same time.
    fn drives(&self) -> u32 {
        match self {
            Self::Writes(terms) => terms.copies.into(),
            Self::Reads(_) => 1,
            Self::Copies { reads_beside, .. } => 1 + u32::from(*reads_beside),
        }
    }

    /// Those of them that count for the bound of their storage unit: it is one of drives that are written.
    fn drives_written(&self) -> u32 {
        match self {
            Self::Copies { .. } => 1,
            Self::Writes(_) | Self::Reads(_) => self.drives(),
        }
    }

    /// Models of drives that they are bound to; none for all.
    fn models(&self) -> &[String] {
        match self {
            Self::Writes(terms) | Self::Copies { terms, .. } => &terms.models,
            Self::Reads(_) => &[],
        }
    }

    /// Whether they can have no volume of these pools.
    fn is_outside(&self, pools: &[String]) -> bool {
        match self {
            Self::Writes(terms) => !pools.iter().any(|pool| terms.writes_to(pool)),
            // They read volumes of any pool.
            Self::Reads(_) | Self::Copies { .. } => pools.is_empty(),
        }
    }

    fn is_restore(&self) -> bool {
        matches!(self, Self::Reads(_))
    }
}

/// A run that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRun {
    /// Its number.
    pub run: i64,
    /// Its policy; empty for a restore.
    pub policy: String,
    /// How many runs of that are at work at the same time, at most.
    pub runs_at_once: Option<usize>,
    /// Its client.
    pub client: String,
    /// The network that its client is in, and how many runs of that are at work at the same time, at most.
    pub network: Option<(String, Option<usize>)>,
    /// The higher, the sooner.
    pub priority: i64,
    /// Since when it waits.
    pub entered: Timestamp,
    /// It does not begin before.
    pub not_before: Timestamp,
    /// Whether it ranks by when it was entered, and not by when it may begin.
    pub keeps_age: bool,
    /// Whether an operator keeps it from beginning.
    pub is_held: bool,
    /// What it has in common with those whose session it may share.
    pub terms: RunTerms,
    /// Drives that each copy can use, if they are free.
    pub drives: u32,
    /// The libraries whose drives it may have.
    pub unit: StorageUnit,
    /// How long what it writes will be kept.
    pub lifetime: Lifetime,
    /// When it may begin, if that is limited.
    pub window: Option<(Window, TimeZone)>,
    /// Why its policy cannot be run, if it cannot.
    pub fault: Option<String>,
    /// A source of it that another job has, and who, in words.
    pub source_in_use: Option<String>,
    /// The volume that it reads first, if anybody has it.
    pub volume_in_use: Option<VolumeTaken>,
    /// Volumes that its last try found to be in no library.
    pub lacks_volumes: Vec<String>,
    /// Why its client cannot be told to begin, if it cannot.
    pub client_away: Option<PeerAway>,
    /// How long it usually takes, if that is known.
    pub usual: Option<SignedDuration>,
}

impl WaitingRun {
    /// Whether its window has closed since it could have begun; it may be open again.
    #[must_use]
    pub fn has_missed_window(&self, now: Timestamp) -> bool {
        let Some((window, zone)) = &self.window else { return false };
        let closed = self.could_begin().and_then(|opened| window.closes(opened, zone));
        closed.is_some_and(|closed| closed <= now)
    }

    /// Why its client cannot be told to begin, if that is what it has waited for since it could have begun. The client
    /// is not there any sooner because the window has closed meanwhile.
    #[must_use]
    pub fn lacks_client(&self, now: Timestamp) -> Option<PeerAway> {
        let may_begin = !self.is_held && self.fault.is_none() && self.could_begin().is_some_and(|first| first <= now);
        self.client_away.filter(|_| may_begin)
    }

    /// Since when it could have begun without a break: since its time, or since its window opened last. Of a window
    /// that is open for long, it is no longer than some days ago.
    #[must_use]
    pub fn ready_since(&self, now: Timestamp) -> Timestamp {
        let Some((window, zone)) = &self.window else { return since(self) };
        let mut from = now.checked_sub(OPENINGS_LOOKED_FOR).map_or(since(self), |then| then.max(since(self)));
        while let Some(opened) = window.next_open(from, zone).filter(|opened| *opened <= now) {
            match window.closes(opened, zone).filter(|closed| *closed <= now) {
                Some(closed) => from = closed,
                None => return opened,
            }
        }
        from
    }

    /// For how long it could have begun: the time since it waits, and of that what its window was open. Of a window, no
    /// more than some days count.
    fn could_begin_for(&self, now: Timestamp) -> SignedDuration {
        let Some((window, zone)) = &self.window else { return now.duration_since(since(self)) };
        let mut from = now.checked_sub(OPENINGS_LOOKED_FOR).map_or(since(self), |then| then.max(since(self)));
        let mut all = SignedDuration::ZERO;
        while let Some(opened) = window.next_open(from, zone).filter(|opened| *opened < now) {
            let closed = window.closes(opened, zone).filter(|closed| *closed < now);
            all = all.saturating_add(closed.unwrap_or(now).duration_since(opened));
            let Some(closed) = closed else { break };
            from = closed;
        }
        all
    }

    /// When it could begin first: at its time, or when its window opened then. None if that does not within a year.
    fn could_begin(&self) -> Option<Timestamp> {
        match &self.window {
            Some((window, zone)) => window.next_open(since(self), zone),
            None => Some(since(self)),
        }
    }
}

/// A volume that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeTaken {
    /// Which it is and who has it, in words.
    pub held: String,
    /// Its pool, if a run has it: a session that writes to that pool, or reads, may be the one.
    pub pool: Option<String>,
}

/// Why a client, or a mover, cannot be told to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAway {
    /// No machine of that name has joined.
    NotEnrolled,
    /// It was revoked.
    Revoked,
    /// Its certificate has ended.
    Ended,
    /// The server that runs listens for no peers.
    NobodyListens,
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
    /// The network that its client is in.
    pub network: Option<String>,
    /// The session that it writes into.
    pub session: i64,
    /// The library whose drives that has.
    pub library: String,
    /// How many of them each copy has.
    pub drives: u32,
    /// The storage unit of its policy.
    pub unit: String,
    /// What all runs of that have in common.
    pub terms: RunTerms,
    /// How long what it writes will be kept.
    pub lifetime: Lifetime,
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
    /// Another job to be done with the volume that it reads first.
    Volume {
        /// Which volume, and who has it, in words.
        held: String,
        /// When that one will probably be done, if that can be told.
        until: Option<Timestamp>,
    },
    /// A person to insert these volumes. It looks whether they are there every now and then.
    Insertion(Vec<String>),
    /// Its client to wait for orders.
    Client(PeerAway),
    /// Another run to end: so many of its policy or its client, or restores of that, are at work.
    Limit {
        /// What the bound is of.
        of: LimitOf,
        /// How many may be at work.
        at_most: usize,
        /// When fewer will probably be, if that can be told.
        until: Option<Timestamp>,
        /// How many runs that rank before it wait for the same. When it has its turn is not told then.
        before: usize,
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
        /// How many runs that rank before it wait for drives of the same libraries. When it has its turn is not told
        /// then.
        before: usize,
    },
    /// A run that ranks before it and for which drives are kept.
    Turn {
        /// That run.
        behind: i64,
    },
}

/// What has a bound of runs at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitOf {
    /// The policy.
    Policy,
    /// The client.
    Client,
    /// The network that the client is in.
    Network,
    /// Restores of the client.
    Restores,
    /// The storage unit, whose bound is of drives.
    Unit,
}

/// Who is at work.
struct AtWork<'a> {
    backups: Vec<RunAtWork<'a>>,
    restores: Vec<RunAtWork<'a>>,
    copies: Vec<RunAtWork<'a>>,
}

struct RunAtWork<'a> {
    policy: &'a str,
    client: &'a str,
    network: Option<&'a str>,
    /// When it will be done, if that can be told.
    ends: Option<Timestamp>,
}

/// What runs wait for of which so many may be at work and no more, if as many are.
fn limit(
    of: LimitOf,
    at_most: usize,
    now: Timestamp,
    ends: impl Iterator<Item = Option<Timestamp>>,
) -> Option<WaitsFor> {
    let ends: Vec<_> = ends.collect();
    let too_many = ends.len().checked_sub(at_most)?;
    // One that takes longer than usual ends when it does.
    let mut known: Vec<_> = ends.into_iter().flatten().filter(|end| *end > now).collect();
    known.sort_unstable();
    let until = known.get(too_many).copied();
    Some(WaitsFor::Limit { of, at_most, until, before: 0 })
}

impl<'a> AtWork<'a> {
    /// The bound that a run meets, if it meets one.
    fn limit(&self, waiting: &WaitingRun, per_client: Option<usize>, now: Timestamp) -> Option<WaitsFor> {
        match waiting.terms {
            RunTerms::Reads(_) => {
                let of_client = self.restores.iter().filter(|run| run.client == waiting.client);
                return limit(LimitOf::Restores, RESTORES_PER_CLIENT, now, of_client.map(|run| run.ends));
            }
            // No client has to do with it.
            RunTerms::Copies { .. } => {
                let of_policy = self.copies.iter().filter(|run| run.policy == waiting.policy);
                return limit(LimitOf::Policy, 1, now, of_policy.map(|run| run.ends));
            }
            RunTerms::Writes(_) => {}
        }
        let network = waiting.network.as_ref().map(|(network, _)| network.as_str());
        let of_network = waiting.network.as_ref().and_then(|(_, most)| *most);
        let met = |of, most: Option<usize>, is_alike: &dyn Fn(&&RunAtWork<'_>) -> bool| {
            limit(of, most?, now, self.backups.iter().filter(is_alike).map(|run| run.ends))
        };
        met(LimitOf::Policy, waiting.runs_at_once, &|run| run.policy == waiting.policy)
            .or_else(|| met(LimitOf::Client, per_client, &|run| run.client == waiting.client))
            .or_else(|| met(LimitOf::Network, of_network, &|run| run.network.is_some() && run.network == network))
    }

    fn begins(&mut self, terms: &RunTerms, run: RunAtWork<'a>) {
        match terms {
            RunTerms::Writes(_) => self.backups.push(run),
            RunTerms::Reads(_) => self.restores.push(run),
            RunTerms::Copies { .. } => self.copies.push(run),
        }
    }
}

/// What becomes of each run that waits, the first in the queue first.
///
/// A run that begins gets drives of its own while some are free, in the library of its storage unit that has most of
/// them. Where none are, it joins the session on its terms that has the fewest runs, if that has room; a session whose
/// runs are kept for about as long may have a few more, since they share a volume. A restore joins those that read the
/// same volume first, whatever drives are free: one pass over the volume gives all of them theirs.
///
/// The queue's order is that of how long runs could have begun, each point of priority being worth some minutes: so
/// priorities age, and the order of two runs never changes while both may begin. A run that needs more drives than are
/// free lets others pass until enough are free soon, or it has waited for long. Drives that are left when all have
/// their turn are given to runs that begin and can use them.
#[must_use]
pub fn decide(situation: &Situation) -> Vec<(i64, RunDecision)> {
    let now = situation.now;
    let mut order: Vec<&WaitingRun> = situation.waiting.iter().collect();
    order.sort_by_cached_key(|waiting| (rank(waiting, now), waiting.run));
    let mut at_work = AtWork { backups: Vec::new(), restores: Vec::new(), copies: Vec::new() };
    for run in &situation.working {
        let (policy, client, network) = (&*run.policy, &*run.client, run.network.as_deref());
        at_work.begins(&run.terms, RunAtWork { policy, client, network, ends: run.ends });
    }
    let mut sessions = sessions_of(&situation.working, now);
    let mut rooms: Vec<LibraryRoom<'_>> =
        situation.libraries.iter().filter_map(|library| LibraryRoom::of(library, &sessions, now)).collect();
    let (mut kept_units, mut is_short) = (HashMap::new(), HashSet::new());
    let mut before = RunsBefore::default();
    let mut decisions = Vec::with_capacity(order.len());
    for &waiting in &order {
        let not_yet = not_ready(waiting, now).or_else(|| at_work.limit(waiting, situation.runs_per_client, now));
        let mut decision = match (not_yet, kept_units.get(waiting.unit.name.as_str())) {
            (Some(waits_for), _) => RunDecision::Waits(waits_for),
            (None, Some(behind)) => RunDecision::Waits(WaitsFor::Turn { behind: *behind }),
            (None, None) => place(waiting, &mut rooms, &mut sessions, now),
        };
        // A bound of drives is kept for a run as drives are, and so are those of its models where others are free.
        let bound = match &decision {
            RunDecision::Waits(WaitsFor::Limit { of: LimitOf::Unit, until, .. }) => {
                Some((waiting.terms.drives_written(), *until))
            }
            RunDecision::Waits(WaitsFor::Drives { needed, until, .. }) => {
                let in_unit =
                    |room: &&LibraryRoom<'_>| waiting.unit.libraries.iter().any(|library| library == room.name);
                let has_enough = |room: &LibraryRoom<'_>| *needed <= room.free.min(room.all_for(&waiting.unit));
                let is_bound = rooms.iter().filter(in_unit).any(|room| room.kept.is_none() && has_enough(room));
                is_bound.then_some((*needed, *until))
            }
            _ => None,
        };
        if let Some(kept) = bound.and_then(|(needed, until)| KeptDrives::of(waiting, needed, until, now)) {
            kept_units.insert(waiting.unit.name.as_str(), kept.run);
        }
        if let RunDecision::Waits(waits_for) = &mut decision {
            before.count(waiting, waits_for);
        }
        match decision {
            RunDecision::Begins { .. } => {
                let network = waiting.network.as_ref().map(|(network, _)| network.as_str());
                let (policy, client) = (&*waiting.policy, &*waiting.client);
                at_work.begins(&waiting.terms, RunAtWork { policy, client, network, ends: None });
            }
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

/// How many runs wait for the same, in the order of the queue. When that will be free is when the first of them has it.
#[derive(Default)]
struct RunsBefore<'a> {
    limits: HashMap<(LimitOf, &'a str), usize>,
    libraries: HashMap<&'a str, usize>,
}

impl<'a> RunsBefore<'a> {
    /// Counts a run, and says how many are before it.
    fn count(&mut self, waiting: &'a WaitingRun, waits_for: &mut WaitsFor) {
        let (before, until) = match waits_for {
            WaitsFor::Limit { of, before, until, .. } => {
                let whose = match of {
                    LimitOf::Policy => waiting.policy.as_str(),
                    LimitOf::Client | LimitOf::Restores => waiting.client.as_str(),
                    LimitOf::Network => waiting.network.as_ref().map_or("", |(network, _)| network.as_str()),
                    LimitOf::Unit => waiting.unit.name.as_str(),
                };
                let count = self.limits.entry((*of, whose)).or_default();
                *before = *count;
                *count += 1;
                (*before, until)
            }
            WaitsFor::Drives { before, until, .. } => {
                for library in &waiting.unit.libraries {
                    let count = self.libraries.entry(library.as_str()).or_default();
                    *before = (*before).max(*count);
                    *count += 1;
                }
                (*before, until)
            }
            _ => return,
        };
        if before > 0 {
            *until = None;
        }
    }
}

/// Since when a run could have begun, as far as it is up to its time.
fn since(waiting: &WaitingRun) -> Timestamp {
    if waiting.keeps_age { waiting.entered } else { waiting.entered.max(waiting.not_before) }
}

/// Whether it has been only for want of drives for as long as others may pass it.
fn was_ready_long(waiting: &WaitingRun, now: Timestamp) -> bool {
    let Ok(then) = now.checked_sub(PASSED_FOR) else { return false };
    let was_open = |(window, zone): &(Window, TimeZone)| {
        window.is_open(then, zone) && window.closes(then, zone).is_none_or(|closes| closes > now)
    };
    // One that was busy before keeps its age, and was not ready meanwhile.
    waiting.entered.max(waiting.not_before) <= then && waiting.window.as_ref().is_none_or(was_open)
}

/// The longest first. Time in which it could not begin is no time that it has waited for others.
fn rank(waiting: &WaitingRun, now: Timestamp) -> Reverse<SignedDuration> {
    let worth = POINT.saturating_mul(i32::try_from(waiting.priority).unwrap_or(0));
    Reverse(waiting.could_begin_for(now).saturating_add(worth))
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
        return Some(match &waiting.lacks_volumes[..] {
            [] => WaitsFor::Time(waiting.not_before),
            lacks => WaitsFor::Insertion(lacks.to_vec()),
        });
    }
    if let Some((window, zone)) = waiting.window.as_ref().filter(|(window, zone)| !window.is_open(now, zone)) {
        return Some(WaitsFor::Window(window.next_open(now, zone)));
    }
    if let Some(away) = waiting.client_away {
        return Some(WaitsFor::Client(away));
    }
    waiting.source_in_use.clone().map(WaitsFor::Source)
}

#[cfg(test)]
mod tests;
