//! A look at all that is decided by: the same for the server and for every command that shows the queue.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use capstan_catalog::{
    ActiveRun, Catalog, CatalogError, DoneRun, PeerRow, PendingRun, QueuedRun, RunOutcome, SchedulePosition,
    UnfinishedRuns,
};
use capstan_director::{
    BackupPolicy, DirectorError, DriveUse, JobConfig, Lifetime, NetworkConfig, PolicyTiming, SessionTerms, Site,
    SourceInUse, StorageUnit, VolumeInUse,
};
use capstan_mover::devices::LibraryConfig;
use jiff::{SignedDuration, Timestamp};

use crate::decide::{PeerAway, RunTerms, Situation, VolumeTaken, WaitingRun, WorkingRun};
use crate::due::{DecidedUntil, Scheduled, forecast};
use crate::restore_run::RestoreRun;

/// Ended runs among which the usual length of a run is looked for.
const RUNS_LOOKED_AT: u32 = 500;
/// The kind of the peers that have sources, as their certificates name it.
const CLIENT: &str = "client";
/// The kind of those that have drives.
const MOVER: &str = "mover";
/// The catalog's fact that names peers that do not wait for orders, one a line (`client/tern`), as the server that runs
/// last knew it.
const AWAY_FACT: &str = "peers away";
/// The fact that names those of which two processes wait for orders, and says what to do, one a line.
const TWICE_FACT: &str = "peers there twice";
/// What the first of these says where the server that runs listens for no peers.
const NOBODY_LISTENS: &str = "nobody listens";
/// A peer that waits for orders is seen more often than this.
pub(crate) const SEEN_WITHIN: SignedDuration = SignedDuration::from_secs(150);
/// Restores that read a volume together, at most.
const RESTORES_TOGETHER: u8 = 8;
/// How long a restore waits that could not begin, at most.
const RESTORE_WAITS_MAX: SignedDuration = SignedDuration::from_hours(2);
/// Of how many runs the usual length is the middle one.
const RUNS_OF_LENGTH: usize = 5;

/// Policies, their schedules and the queue at one moment.
#[derive(Debug, Clone)]
pub struct Look {
    /// The policies, by name.
    pub policies: Arc<Vec<BackupPolicy>>,
    /// Those that are due by themselves.
    pub scheduled: Vec<Scheduled>,
    /// Runs that wait.
    pub pending: Vec<PendingRun>,
    /// Runs at work.
    pub active: Vec<ActiveRun>,
    /// Libraries whose movers cannot be told anything, and why.
    pub movers_away: Vec<MoverAway>,
    /// What is decided by.
    pub situation: Situation,
}

/// How far ahead the next run of a policy is looked for.
const NEXT_WITHIN: SignedDuration = SignedDuration::from_hours(10 * 366 * 24);

/// A library whose drives cannot be used, as their mover is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoverAway {
    /// The library.
    pub library: String,
    /// Its mover.
    pub mover: String,
    /// Why it cannot be told anything.
    pub away: PeerAway,
}

impl Look {
    /// When a run that comes at a time may begin: then, or when the window of its policy opens.
    #[must_use]
    pub fn may_begin(&self, policy: &str, at: Timestamp) -> Timestamp {
        let timing = self.policy(policy).and_then(|policy| timing(policy).ok());
        let opens = timing.and_then(|timing| timing.window?.next_open(at, &timing.zone));
        opens.unwrap_or(at)
    }

    /// When the next run of a policy comes that may begin at a time or later; `None` if none comes within ten years.
    #[must_use]
    pub fn next_run(&self, policy: &str, from: Timestamp) -> Option<Timestamp> {
        let scheduled: Vec<_> = self.scheduled.iter().filter(|one| one.policy == policy).cloned().collect();
        let from = from.max(self.situation.now);
        let next = forecast(&scheduled, from, from.checked_add(NEXT_WITHIN).unwrap_or(Timestamp::MAX), 1);
        next.first().map(|run| self.may_begin(policy, run.starts))
    }

    /// The policy of a name.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&BackupPolicy> {
        self.policies.iter().find(|policy| policy.name == name)
    }
}

/// Looks at a site.
///
/// # Errors
/// The catalog cannot be read.
pub fn look(site: &Site) -> Result<Look, DirectorError> {
    let now = moment(site.now_ns());
    let policies = site.policies()?;
    let mut away = site.catalog().fact(AWAY_FACT)?.unwrap_or_default();
    // Nobody knows it of the next server.
    if away == NOBODY_LISTENS && !site.is_served()? {
        away.clear();
    }
    let away: HashSet<&str> = away.lines().collect();
    let catalog = site.catalog();
    let positions = catalog.schedule_positions()?;
    let UnfinishedRuns { mut pending, active } = catalog.unfinished_runs()?;
    let clients =
        pending.iter().map(|pending| &pending.run.client).chain(active.iter().map(|active| &active.run.client));
    let of_movers = || site.config().all_libraries().filter(|(_, library)| !library.mover.is_empty());
    let peers = LookedUpPeers::read(
        &catalog,
        clients
            .map(|client| (CLIENT, client.as_str()))
            .chain(of_movers().map(|(_, library)| (MOVER, &*library.mover)))
            .collect(),
    )?;
    let waits_for_drives = !pending.is_empty() && !active.is_empty();
    let done = if waits_for_drives { catalog.done_runs(RUNS_LOOKED_AT)? } else { Vec::new() };
    let pools = catalog.pools()?;
    drop(catalog);
    let by_name: HashMap<&str, &BackupPolicy> = policies.iter().map(|policy| (policy.name.as_str(), policy)).collect();
    let timings: HashMap<&str, Result<PolicyTiming, String>> =
        policies.iter().map(|policy| (policy.name.as_str(), timing(policy))).collect();
    // A priority that is changed counts for what waits already.
    for PendingRun { run, .. } in pending.iter_mut().filter(|pending| pending.run.restore.is_none()) {
        let timing = timings.get(run.policy.as_str()).and_then(|timing| timing.as_ref().ok());
        run.priority = timing.map_or(run.priority, |timing| timing.priority);
    }
    let positions: HashMap<(&str, &str), &SchedulePosition> =
        positions.iter().map(|position| ((position.policy.as_str(), position.client.as_str()), position)).collect();
    let scheduled = policies
        .iter()
        .flat_map(|policy| policy.config.clients_of(site.client()).into_iter().map(move |client| (policy, client)))
        .filter_map(|(policy, client)| scheduled(policy, &timings, &positions, (client, now)))
        .collect();
    let in_use = if pending.is_empty() { Vec::new() } else { site.sources_in_use()? };
    let waits_to_restore = pending.iter().any(|pending| pending.run.restore.is_some());
    let volumes_in_use = if waits_to_restore { site.volumes_in_use()? } else { Vec::new() };
    // Whether what a policy copies may be in a library. What a policy made that is gone may be anywhere.
    let may_read_in = |job: &JobConfig, library: &String| {
        job.copies_of.iter().any(|copied| {
            let own = by_name.get(copied.as_str()).map(|policy| &policy.config).or(site.config().jobs.get(copied));
            // What is not staged has its copy where this one goes.
            let own = own.map(|own| if own.stage.is_some() { own.staged() } else { own.clone() });
            let unit = own.and_then(|own| site.unit_of(&own).ok());
            unit.is_none_or(|unit| unit.libraries.contains(library))
        })
    };
    let terms_of = |name: &str, job: Option<&JobConfig>, unit: &StorageUnit| {
        let job = job.cloned().unwrap_or_default();
        let terms = SessionTerms::of_job(&job, unit);
        if job.makes_backups() {
            return RunTerms::Writes(terms);
        }
        // What is looked after is moved within its library.
        let reads_beside = job.is_of_care() || unit.libraries.iter().any(|library| may_read_in(&job, library));
        RunTerms::Copies { policy: name.to_owned(), terms, reads_beside }
    };
    let lifetime_of = |job: Option<&JobConfig>| job.map_or(Lifetime::ENDLESS, |job| Lifetime::of_job(job, &pools));
    let unit_of = |job: Option<&JobConfig>| {
        // One that is not set is a fault of the policy.
        let unit = job.and_then(|job| site.unit_of(job).ok());
        let Some(mut unit) = unit else { return site.unit(None) };
        if let Some(job) = job.filter(|job| job.is_of_copies()) {
            // Copies go to another library than what they are made of, where the unit has one.
            let others: Vec<_> = unit.libraries.iter().filter(|library| !may_read_in(job, library)).cloned().collect();
            if !others.is_empty() {
                unit.libraries = others;
            }
        }
        Ok(unit)
    };
    let network_of = |client: &str| {
        let (name, network) = network_of_client(site, peers.named(CLIENT, client), client)?;
        Some((name.to_owned(), network.runs_at_once))
    };
    let away_of = |client: &str| (client != site.client()).then(|| peers.away((CLIENT, client), &away, now)).flatten();
    let restore = |pending: &PendingRun, text: &str| -> Result<WaitingRun, DirectorError> {
        let what = RestoreRun::of(text);
        let (terms, unit) = reads(site, what.as_ref().ok())?;
        let volume = what.as_ref().ok().and_then(RestoreRun::first_volume);
        let held = volumes_in_use.iter().find(|held| Some(held.volser.as_str()) == volume);
        // A restore that was typed at the client is not told to the one that waits for orders.
        let waits_for_client = what.as_ref().is_ok_and(|what| what.into.is_some());
        let client = pending.run.client.as_str();
        let usual = what.as_ref().ok().and_then(thought_length);
        Ok(WaitingRun {
            run: pending.run.run,
            policy: String::new(),
            runs_at_once: None,
            client: client.to_owned(),
            network: None,
            priority: pending.run.priority,
            entered: moment(pending.run.entered_ns),
            not_before: believed(moment(pending.not_before_ns), now, RESTORE_WAITS_MAX),
            keeps_age: pending.keeps_age,
            is_held: pending.is_held,
            terms,
            drives: 1,
            unit,
            lifetime: Lifetime::ENDLESS,
            window: None,
            fault: what.err(),
            source_in_use: None,
            volume_in_use: held.map(|held| volume_in_use(held, &active)),
            lacks_volumes: pending.lacks_volumes.clone(),
            client_away: if waits_for_client { away_of(client) } else { None },
            usual,
        })
    };
    let waiting = |pending: &PendingRun| -> Result<WaitingRun, DirectorError> {
        if let Some(text) = &pending.run.restore {
            return restore(pending, text);
        }
        let timing = timings.get(pending.run.policy.as_str());
        let policy = by_name.get(pending.run.policy.as_str()).copied();
        let client = pending.run.client.as_str();
        let is_named = policy.is_none_or(|policy| policy.config.clients_of(site.client()).contains(&client));
        // As it would begin now: to its stage, or not.
        let job = policy.map(|policy| config_now(site, policy, client));
        let unit = unit_of(job.as_ref())?;
        let terms = terms_of(&pending.run.policy, job.as_ref(), &unit);
        let drives = job.as_ref().map_or(Ok(1), |job| site.drives_needed(job, client))?;
        // What somebody enters runs all the same.
        let is_off = pending.run.due_ns.is_some() && policy.is_some_and(|policy| policy.config.is_switched_off());
        let fault = match timing {
            Some(Err(fault)) => Some(fault.clone()),
            // One that was revoked has no labels: that is said of it below.
            Some(Ok(_)) if !is_named && away_of(client) != Some(PeerAway::Revoked) => {
                Some(format!("it does not name client {client} any more: cancel the run"))
            }
            Some(Ok(_)) if is_off => {
                Some("its policy is switched off (enabled = false): cancel it, or switch it on".to_owned())
            }
            Some(Ok(_)) => None,
            None => Some("there is no such policy any more".to_owned()),
        };
        let timing = timing.and_then(|timing| timing.as_ref().ok());
        // A run that has started goes on, and one that somebody wants now does not wait for the evening.
        let has_window = !pending.run.has_begun && !pending.run.any_time;
        let window =
            timing.filter(|_| has_window).and_then(|timing| Some((timing.window.clone()?, timing.zone.clone())));
        Ok(WaitingRun {
            run: pending.run.run,
            policy: pending.run.policy.clone(),
            runs_at_once: timing.and_then(|timing| timing.runs_at_once),
            client: client.to_owned(),
            network: network_of(client),
            priority: pending.run.priority,
            entered: moment(pending.run.entered_ns),
            not_before: believed(moment(pending.not_before_ns), now, longest_wait(timing)),
            keeps_age: pending.keeps_age,
            is_held: pending.is_held,
            terms,
            drives,
            unit,
            lifetime: lifetime_of(job.as_ref()),
            window,
            fault,
            source_in_use: policy.and_then(|policy| source_in_use(policy, client, &in_use)),
            volume_in_use: None,
            lacks_volumes: Vec::new(),
            client_away: away_of(client),
            usual: usual_length(&done, &pending.run),
        })
    };
    let working = |active: &ActiveRun| -> Result<WorkingRun, DirectorError> {
        let restore = active.run.restore.as_deref().and_then(|text| RestoreRun::of(text).ok());
        let usual = match &restore {
            Some(what) => thought_length(what),
            None => usual_length(&done, &active.run),
        };
        let ends = usual.and_then(|usual| moment(active.started_ns).checked_add(usual).ok());
        let (policy, client) = (active.run.policy.clone(), active.run.client.clone());
        let known = by_name.get(policy.as_str()).copied();
        let job = known.map(|known| site.policy_in(&known.config, &active.place.library));
        let (terms, unit) = match &active.run.restore {
            Some(_) => reads(site, restore.as_ref())?,
            None => {
                let unit = unit_of(job.as_ref())?;
                (terms_of(&policy, job.as_ref(), &unit), unit)
            }
        };
        let (session, library, unit) = (active.place.session, active.place.library.clone(), unit.name);
        let drives = active.place.drives;
        let network = network_of(&client).map(|(name, _)| name);
        let (run, lifetime) = (active.run.run, lifetime_of(job.as_ref()));
        Ok(WorkingRun { run, policy, client, network, session, library, drives, unit, terms, lifetime, ends })
    };
    let mover_away = |(library, config): (&str, &LibraryConfig)| {
        let (library, mover) = (library.to_owned(), config.mover.clone());
        Some(MoverAway { away: peers.away((MOVER, &mover), &away, now)?, library, mover })
    };
    let movers_away: Vec<MoverAway> = of_movers().filter_map(mover_away).collect();
    let mut libraries = site.drive_use()?;
    let is_away = |drives: &&mut DriveUse| movers_away.iter().any(|away| away.library == drives.library);
    // Nobody can use them, however many there were.
    libraries.iter_mut().filter(is_away).for_each(|drives| drives.all = None);
    let mut all_waiting: Vec<WaitingRun> = pending.iter().map(waiting).collect::<Result<_, _>>()?;
    believe_entered(&mut all_waiting, now);
    let situation = Situation {
        now,
        waiting: all_waiting,
        working: active.iter().map(working).collect::<Result<_, _>>()?,
        runs_per_client: Some(site.config().server.runs_per_client.into()).filter(|most| *most > 0),
        libraries,
    };
    Ok(Look { policies, scheduled, pending, active, movers_away, situation })
}

/// The network that a client is in, by its name: by the address at which its server saw it last.
pub fn network_of_client<'a>(site: &'a Site, peers: &[PeerRow], client: &str) -> Option<(&'a str, &'a NetworkConfig)> {
    let is_meant = |peer: &&PeerRow| peer.kind == CLIENT && peer.name == client && peer.revoked_ns.is_none();
    let seen = peers.iter().filter(|peer| is_meant(peer) && client != site.client());
    site.config().network_of(&seen.max_by_key(|peer| peer.seen_ns)?.address)
}

/// What a restore has in common with those that it goes on after, and the drives that it may have: those of the library
/// of the volume that it reads first.
fn reads(site: &Site, what: Option<&RestoreRun>) -> Result<(RunTerms, StorageUnit), DirectorError> {
    let volume = what.and_then(RestoreRun::first_volume);
    let library = volume.map(|volser| site.library_of(volser)).transpose()?;
    let libraries = library.map_or_else(|| site.library_names(), |library| vec![library]);
    // It is no unit that anybody writes to, and has no bound of drives.
    let unit = StorageUnit {
        name: String::new(),
        libraries,
        models: Vec::new(),
        drives: None,
        runs_per_drive: RESTORES_TOGETHER,
    };
    Ok((RunTerms::Reads(volume.unwrap_or_default().to_owned()), unit))
}

/// A time of the catalog.
pub(crate) fn moment(ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A time as the catalog has it.
pub(crate) fn ns(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

/// The certificates of the peers that a look is about. A cell may have thousands of others.
struct LookedUpPeers(HashMap<(String, String), Vec<PeerRow>>);

/// So many peers are looked up one by one; where there are more, all are read.
const LOOKED_UP_MAX: usize = 16;

impl LookedUpPeers {
    /// Those of these kinds and names.
    fn read(catalog: &Catalog, wanted: HashSet<(&str, &str)>) -> Result<Self, CatalogError> {
        let mut found: HashMap<(String, String), Vec<PeerRow>> = HashMap::new();
        if wanted.len() <= LOOKED_UP_MAX {
            for (kind, name) in wanted {
                found.insert((kind.to_owned(), name.to_owned()), catalog.peers_named(kind, name)?);
            }
            return Ok(Self(found));
        }
        for peer in catalog.peers()? {
            if wanted.contains(&(peer.kind.as_str(), peer.name.as_str())) {
                found.entry((peer.kind.clone(), peer.name.clone())).or_default().push(peer);
            }
        }
        Ok(Self(found))
    }

    fn named(&self, kind: &str, name: &str) -> &[PeerRow] {
        self.0.get(&(kind.to_owned(), name.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Why one of them cannot be told anything, if it cannot.
    fn away(&self, (kind, name): (&str, &str), away: &HashSet<&str>, now: Timestamp) -> Option<PeerAway> {
        let certificates = self.named(kind, name);
        if certificates.is_empty() {
            return Some(PeerAway::NotEnrolled);
        }
        let mut not_revoked = certificates.iter().filter(|peer| peer.revoked_ns.is_none()).peekable();
        if not_revoked.peek().is_none() {
            return Some(PeerAway::Revoked);
        }
        if not_revoked.all(|peer| moment(peer.expires_ns) <= now) {
            return Some(PeerAway::Ended);
        }
        if away.contains(NOBODY_LISTENS) {
            return Some(PeerAway::NobodyListens);
        }
        let seen = certificates.iter().filter_map(|peer| peer.seen_ns).max().map(moment);
        match seen {
            Some(at) if now.duration_since(at) < SEEN_WITHIN && !away.contains(&*format!("{kind}/{name}")) => None,
            _ => Some(PeerAway::Silent(seen)),
        }
    }
}

/// Notes which peers do not wait for orders, and of which two processes do.
pub(crate) fn note_peers(site: &Site, away: &[String], twice: &[String]) -> Result<(), DirectorError> {
    let mut catalog = site.catalog();
    for (fact, text) in [(AWAY_FACT, away.join("\n")), (TWICE_FACT, twice.join("\n"))] {
        if catalog.fact(fact)?.as_ref() != Some(&text) {
            catalog.put_fact(fact, &text)?;
        }
    }
    Ok(())
}

/// Notes that the server that begins listens for no peers, so that no client is blamed for it.
///
/// # Errors
/// The catalog cannot be read or written.
pub fn note_nobody_listens(site: &Site) -> Result<(), DirectorError> {
    note_peers(site, &[NOBODY_LISTENS.to_owned()], &[])
}

/// Peers that do not wait for orders (`client/tern`), as the server that runs last knew it.
pub(crate) fn peers_away(site: &Site) -> Result<HashSet<String>, DirectorError> {
    let away = site.catalog().fact(AWAY_FACT)?.unwrap_or_default();
    Ok(away.lines().map(str::to_owned).collect())
}

/// Peers of which two processes wait for orders, as the server that runs last knew it: a line each, which says what to
/// do, and stays the same up to its first `: `.
///
/// # Errors
/// The catalog cannot be read.
pub fn peers_there_twice(site: &Site) -> Result<Vec<String>, DirectorError> {
    Ok(site.catalog().fact(TWICE_FACT)?.unwrap_or_default().lines().map(str::to_owned).collect())
}

/// A volume that another job has, and who, in words.
fn volume_in_use(held: &VolumeInUse, active: &[ActiveRun]) -> VolumeTaken {
    let mut sessions: Vec<i64> = active.iter().map(|active| active.place.session).collect();
    sessions.dedup();
    let holder = match (&held.holder, &sessions[..], active) {
        (Some(holder), ..) => holder.clone(),
        (None, [_], [first, ..]) => format!("run {}", first.run.run),
        (None, ..) => "a run at work".to_owned(),
    };
    let pool = held.holder.is_none().then(|| held.pool.clone()).flatten();
    VolumeTaken { held: format!("{}, which {holder} uses", held.volser), pool }
}

/// A source of a policy that another job has, and who, in words.
fn source_in_use(policy: &BackupPolicy, client: &str, in_use: &[SourceInUse]) -> Option<String> {
    let paths = policy.config.sources.iter().map(|path| path.as_os_str().as_bytes());
    let own: Vec<&[u8]> = paths.chain(policy.config.stdin.as_deref().map(str::as_bytes)).collect();
    let held = in_use.iter().find(|held| held.client == client && own.contains(&held.source.as_slice()))?;
    let process = held.process.map_or_else(String::new, |process| format!(" (process {process})"));
    Some(format!("source {}, which another job{process} is backing up", String::from_utf8_lossy(&held.source)))
}

/// When a run begins at the earliest. A time that is later than any run waits is of a clock that was ahead, perhaps for
/// years: that run waits for no time.
fn believed(not_before: Timestamp, now: Timestamp, longest: SignedDuration) -> Timestamp {
    let latest = now.saturating_add(longest).unwrap_or(now);
    if not_before > latest { Timestamp::UNIX_EPOCH } else { not_before }
}

/// Since when runs wait. One that was entered while the clock was ahead came before those with higher numbers: else it
/// would always have just come, and any other would go before it.
fn believe_entered(waiting: &mut [WaitingRun], now: Timestamp) {
    let mut newest_first: Vec<&mut WaitingRun> = waiting.iter_mut().collect();
    newest_first.sort_by_key(|waiting| Reverse(waiting.run));
    let mut earliest = now;
    for run in newest_first {
        match run.entered > now {
            true => run.entered = earliest,
            false => earliest = earliest.min(run.entered),
        }
    }
}

/// The longest that a run of a policy can have to wait for its time.
fn longest_wait(timing: Option<&PolicyTiming>) -> SignedDuration {
    timing.map_or(SignedDuration::ZERO, PolicyTiming::longest_wait)
}

/// When a policy runs, or why it cannot.
fn timing(policy: &BackupPolicy) -> Result<PolicyTiming, String> {
    match &policy.fault {
        Some(fault) => Err(fault.clone()),
        None => policy.config.timing().map_err(|(_, reason)| reason),
    }
}

fn scheduled(
    policy: &BackupPolicy,
    timings: &HashMap<&str, Result<PolicyTiming, String>>,
    positions: &HashMap<(&str, &str), &SchedulePosition>,
    (client, now): (&str, Timestamp),
) -> Option<Scheduled> {
    if policy.config.is_switched_off() {
        return None;
    }
    // One that cannot be run here comes due all the same, waits, and says why.
    let schedule = match timings.get(policy.name.as_str())? {
        Ok(timing) => timing.schedule.clone()?,
        Err(_) => policy.config.timing().ok()?.schedule?,
    };
    // What was to begin before the policy had these times, or the client its label, is not caught up with.
    let delay_ns = i64::try_from(schedule.delay(client).as_nanos()).unwrap_or(0);
    let begins_after = |since_ns: i64| since_ns.saturating_sub(delay_ns);
    let position = positions.get(&(policy.name.as_str(), client));
    let since_ns =
        policy.config.labelled.get(client).filter(|_| !policy.config.clients.iter().any(|name| name == client));
    let decided_ns = match (position, since_ns) {
        (Some(position), _) => position.decided_ns,
        (None, Some(_)) => begins_after(policy.scheduled_ns),
        // Whoever changes a policy notes whom it names. This one is called so only since then: its machine has another
        // name now.
        (None, None) => begins_after(ns(now)),
    };
    let furthest = moment(since_ns.map_or(decided_ns, |since_ns| decided_ns.max(begins_after(*since_ns))));
    let decided = DecidedUntil { furthest, again: position.and_then(|position| position.again_ns).map(moment) };
    let (policy, scheduled_ns, is_new) = (policy.name.clone(), policy.scheduled_ns, position.is_none());
    Some(Scheduled { policy, client: client.to_owned(), schedule, decided, scheduled_ns, is_new })
}

/// A policy as a run of it for a client would be that begins now: one that writes to its stage, or not.
fn config_now(site: &Site, policy: &BackupPolicy, client: &str) -> JobConfig {
    // A unit that is not there is a fault of the policy.
    let staging = site.stage_choice(&policy.name, &policy.config, client).ok().flatten();
    match staging {
        Some(staging) if staging.is_staged() => policy.config.staged(),
        Some(_) | None => policy.config.clone(),
    }
}

/// How long a restore was thought to take when it was asked for.
fn thought_length(what: &RestoreRun) -> Option<SignedDuration> {
    i64::try_from(what.estimate_ns).ok().map(SignedDuration::from_nanos)
}

/// How long a run of its policy and client usually takes.
fn usual_length(done: &[DoneRun], run: &QueuedRun) -> Option<SignedDuration> {
    let is_alike = |done: &&DoneRun| {
        run.restore.is_none()
            && done.run.policy == run.policy
            && done.run.client == run.client
            && matches!(done.outcome, RunOutcome::Succeeded | RunOutcome::Warned)
    };
    let lengths = done.iter().filter(is_alike).filter_map(|done| Some(done.ended_ns - done.started_ns?));
    let mut lengths: Vec<i64> = lengths.take(RUNS_OF_LENGTH).collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).map(|ns| SignedDuration::from_nanos(*ns))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::decide::decide;

    /// Runs of a clock that was ahead keep their place: what comes later does not always go before them.
    #[test]
    fn a_run_of_a_clock_that_was_ahead_came_before_those_with_higher_numbers() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |seconds: i64| now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        let years = 300_000_000;
        let waiting = |run: i64, entered: i64, not_before: i64| WaitingRun {
            run,
            policy: format!("p{run}"),
            runs_at_once: None,
            client: "tern".into(),
            network: None,
            priority: 50,
            entered: at(entered),
            not_before: believed(at(not_before), now, SignedDuration::from_hours(12)),
            keeps_age: false,
            is_held: false,
            terms: RunTerms::Reads(format!("A0000{run}")),
            drives: 1,
            lifetime: Lifetime::ENDLESS,
            unit: StorageUnit {
                name: "main".into(),
                libraries: vec!["main".into()],
                models: Vec::new(),
                drives: None,
                runs_per_drive: 1,
            },
            window: None,
            fault: None,
            source_in_use: None,
            volume_in_use: None,
            lacks_volumes: Vec::new(),
            client_away: None,
            usual: None,
        };
        let mut all = vec![
            waiting(4, -60, -60),
            waiting(1, -900, -900),
            waiting(3, years, years + 900),
            waiting(2, -600, years),
            waiting(5, years, 0),
        ];
        believe_entered(&mut all, now);
        let entered: Vec<_> = all.iter().map(|waiting| (waiting.run, waiting.entered)).collect();
        assert_eq!(entered, [(4, at(-60)), (1, at(-900)), (3, at(-60)), (2, at(-600)), (5, now)]);
        let libraries = vec![DriveUse {
            library: "main".into(),
            all: Some(1),
            classes: Vec::new(),
            by_others: 0,
            waited_for_ns: None,
        }];
        let situation = Situation { now, waiting: all, working: Vec::new(), runs_per_client: None, libraries };
        let order: Vec<i64> = decide(&situation).into_iter().map(|(run, _)| run).collect();
        assert_eq!(order, [1, 2, 3, 4, 5]);
    }
}
