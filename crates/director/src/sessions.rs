//! Sessions of this process. Jobs of a server that have the same terms write into one session: they come and go while
//! it runs, their blocks take turns at its drives, and the last one closes it.
//!
//! ```text
//! first job: seats at the drives --> open --> others come, and leave --> last job: closed, seats given back
//! ```
//! Each job stops by itself. What it has made counts once every copy has recorded it, and a job that leaves waits for
//! that. A job that is stopped does not wait. What it has reserved is kept for it until then, so that nobody goes on
//! with an object of which blocks are still on their way.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use capstan_format::{ObjectId, Volser};
use capstan_mover::{Intake, Meters, MoverError, Session};
use capstan_tape::with_causes;

use crate::config::{JobConfig, StorageUnit};
use crate::hold::Hold;
use crate::pools::{DEFAULT_POOL, is_copy_pool};
use crate::request::{BackupRequest, Shortfall};
use crate::shared::locked;
use crate::{DirectorError, Event, Events};

/// How often whoever waits in a session looks whether to stop.
const LOOKS: Duration = Duration::from_millis(100);

/// What jobs of one session have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTerms {
    /// The pool of the first copy.
    pub pool: String,
    /// Copies, each in a drive of its own.
    pub copies: u8,
    /// zstd level instead of the one in the settings.
    pub compression: Option<i32>,
    /// What is done when a pool has no volume.
    pub shortfall: Shortfall,
    /// Models of drives that are written with; none for all.
    pub models: Vec<String>,
}

impl SessionTerms {
    /// Whether a session on these terms writes to volumes of a pool: of the first copy's, or of a further one's.
    pub fn writes_to(&self, pool: &str) -> bool {
        is_copy_pool(&self.pool, pool)
    }

    /// The terms of a policy that writes to a storage unit.
    pub fn of_job(job: &JobConfig, unit: &StorageUnit) -> Self {
        Self {
            pool: job.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned()),
            copies: job.copies.unwrap_or(1),
            compression: job.compression,
            shortfall: if job.wait { Shortfall::Wait } else { Shortfall::Fail },
            models: unit.models.clone(),
        }
    }

    fn of_request(request: &BackupRequest, models: &[String]) -> Self {
        Self {
            pool: request.pool.clone(),
            copies: request.copies,
            compression: request.compression,
            shortfall: request.shortfall,
            models: models.to_vec(),
        }
    }
}

/// The sessions that jobs may come to.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<Vec<Arc<RunningSession>>>,
    last_place: AtomicU64,
}

/// One session, from its first job to its last.
pub(crate) struct RunningSession {
    /// Its number and terms; none where a job has it for itself.
    shared: Option<(i64, SessionTerms)>,
    /// Set when all its jobs are to stop.
    stop: Arc<AtomicBool>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The place of the job that begins it.
    opener: u64,
    places: Vec<PlaceRow>,
    /// Copies, set by set.
    writers: Vec<WriterStanding>,
    sets: usize,
    session: Option<Session>,
    seats: Option<Hold>,
    /// Volumes that were to be gone on with and are not any more.
    passed_over: Arc<Mutex<Vec<(Volser, String)>>>,
    kept: Vec<KeptFor>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Its first job waits for drives.
    #[default]
    Opening,
    Open,
    /// It takes nothing more, or was never opened.
    Over,
}

/// A job of the session.
struct PlaceRow {
    number: u64,
    events: Events,
    objects: Vec<ObjectId>,
    /// What it has reserved for them.
    claims: Option<Box<dyn Send>>,
    meters: Option<Arc<Meters>>,
}

/// How a copy of a drive set stands.
#[derive(Default)]
struct WriterStanding {
    /// Objects of jobs that are here or have left something to wait for, and of which all is recorded.
    settled: HashSet<ObjectId>,
    /// How it ended, if it has.
    end: Option<Result<(), ToldFailure>>,
}

/// Why a copy failed, for all jobs of the session.
#[derive(Debug, Clone)]
pub(crate) struct ToldFailure {
    pub(crate) reason: String,
    /// Whether its pool had no volume.
    pub(crate) lacks_volume: bool,
}

impl WriterStanding {
    fn has(&self, objects: &[ObjectId]) -> bool {
        objects.iter().all(|object| self.settled.contains(object))
    }
}

/// What a job that was stopped has reserved, until its objects are settled.
struct KeptFor {
    objects: Vec<ObjectId>,
    _claims: Box<dyn Send>,
}

impl State {
    /// Whether nothing more is to be waited for of these objects.
    fn is_settled(&self, objects: &[ObjectId]) -> bool {
        self.writers.iter().all(|writer| writer.end.is_some() || writer.has(objects))
    }

    /// What is kept and need not be any more; for the caller to drop when it has let go of the state.
    fn settled_claims(&mut self) -> Vec<KeptFor> {
        let mut kept = std::mem::take(&mut self.kept);
        let settled: Vec<_> = kept.extract_if(.., |kept| self.is_settled(&kept.objects)).collect();
        self.kept = kept;
        settled.iter().for_each(|kept| self.forget(&kept.objects));
        settled
    }

    fn forget(&mut self, objects: &[ObjectId]) {
        for writer in &mut self.writers {
            writer.settled.retain(|object| !objects.contains(object));
        }
    }
}

/// Why a copy failed.
#[derive(Debug)]
pub(crate) enum CopyFailure {
    /// As the copy says it.
    Known(MoverError),
    /// As the others of the session were told.
    Told(ToldFailure),
}

impl CopyFailure {
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Known(error) => with_causes(error),
            Self::Told(failure) => failure.reason.clone(),
        }
    }
}

/// What a job finds when it has left.
pub(crate) struct LeftSession {
    /// How each copy ended for this job.
    pub(crate) copies: Vec<Result<(), CopyFailure>>,
    /// What it has reserved; none where that is kept for what is on its way.
    pub(crate) claims: Option<Box<dyn Send>>,
    /// Whether each copy has recorded all, or has failed. Not so for a job that was stopped while others go on.
    pub(crate) is_settled: bool,
    /// Volumes that were to be gone on with and were not.
    pub(crate) passed_over: Vec<(Volser, String)>,
}

/// A job's place in a session; left when it is dropped.
pub(crate) struct SessionPlace {
    sessions: Arc<Sessions>,
    running: Arc<RunningSession>,
    number: u64,
    stop: Arc<AtomicBool>,
    has_left: bool,
}

impl Sessions {
    /// Comes to the session that the request names, or begins it; whether it begins it. Who does opens it, or drops the
    /// place.
    pub(crate) fn enter(
        self: &Arc<Self>,
        (request, models): (&BackupRequest, &[String]),
        events: &Events,
        stop: &Arc<AtomicBool>,
    ) -> (SessionPlace, bool) {
        let shared = request.session.map(|number| (number, SessionTerms::of_request(request, models)));
        let number = self.last_place.fetch_add(1, Ordering::Relaxed);
        let row = PlaceRow { number, events: Arc::clone(events), objects: Vec::new(), claims: None, meters: None };
        let mut open = locked(&self.open);
        let is_meant =
            |running: &&Arc<RunningSession>| shared.is_some() && running.shared == shared && running.is_sound();
        let there = open.iter().find(is_meant).map(Arc::clone);
        let is_first = there.is_none();
        let running = there.unwrap_or_else(|| {
            let stop = if shared.is_some() { Arc::default() } else { Arc::clone(stop) };
            let state = Mutex::new(State { opener: number, ..State::default() });
            Arc::new(RunningSession { shared, stop, state, changed: Condvar::new() })
        });
        locked(&running.state).places.push(row);
        if is_first && running.shared.is_some() {
            open.push(Arc::clone(&running));
        }
        drop(open);
        let (sessions, stop) = (Arc::clone(self), Arc::clone(stop));
        (SessionPlace { sessions, running, number, stop, has_left: false }, is_first)
    }
}

impl RunningSession {
    /// Tells all jobs; of a checkpoint those whose objects it has something of.
    fn tell(&self, event: &Event) {
        let told: Vec<(Events, Event)> = {
            let state = locked(&self.state);
            let of_place = |place: &PlaceRow| match event {
                Event::Checkpoint { objects, copy, volser, bytes } => {
                    let own = objects.iter().filter(|object| place.objects.contains(object));
                    let objects: Vec<_> = own.copied().collect();
                    let (copy, volser, bytes) = (*copy, volser.clone(), *bytes);
                    let own = Event::Checkpoint { objects, copy, volser, bytes };
                    matches!(&own, Event::Checkpoint { objects, .. } if !objects.is_empty()).then_some(own)
                }
                other => Some(other.clone()),
            };
            state.places.iter().filter_map(|place| Some((Arc::clone(&place.events), of_place(place)?))).collect()
        };
        told.into_iter().for_each(|(events, event)| events(event));
    }

    /// So many bytes of objects are flushed.
    pub(crate) fn flushed(&self, bytes: impl Iterator<Item = (ObjectId, u64)>) {
        let state = locked(&self.state);
        for (object, bytes) in bytes {
            let place = state.places.iter().find(|place| place.objects.contains(&object));
            if let Some(meters) = place.and_then(|place| place.meters.as_ref()) {
                meters.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    /// How many drives each copy has, before any of them is used.
    pub(crate) fn has_sets(&self, sets: usize, writers: usize) {
        let mut state = locked(&self.state);
        state.sets = sets;
        state.writers = (0..writers).map(|_| WriterStanding::default()).collect();
    }

    /// All of these objects is recorded that came to a writer.
    pub(crate) fn settled(&self, writer: usize, objects: &[ObjectId]) {
        self.note(writer, |writer| writer.settled.extend(objects));
    }

    /// A writer has ended. Where all have, the drives are free, whoever is still here.
    pub(crate) fn ended(&self, writer: usize, end: Result<(), ToldFailure>) {
        self.note(writer, |writer| writer.end = Some(end));
        let seats = {
            let mut state = locked(&self.state);
            let is_over = state.writers.iter().all(|writer| writer.end.is_some());
            is_over.then(|| state.seats.take())
        };
        drop(seats);
    }

    /// Whether jobs may come to it: no copy has failed.
    fn is_sound(&self) -> bool {
        locked(&self.state).writers.iter().all(|writer| !matches!(writer.end, Some(Err(_))))
    }

    fn note(&self, writer: usize, change: impl FnOnce(&mut WriterStanding)) {
        let mut state = locked(&self.state);
        if let Some(writer) = state.writers.get_mut(writer) {
            change(writer);
        }
        let settled = state.settled_claims();
        drop(state);
        self.changed.notify_all();
        drop(settled);
    }
}

impl SessionPlace {
    /// The session.
    pub(crate) fn running(&self) -> &Arc<RunningSession> {
        &self.running
    }

    /// Where what happens to the session as a whole is told.
    pub(crate) fn events(&self) -> Events {
        let running = Arc::clone(&self.running);
        Arc::new(move |event| running.tell(&event))
    }

    /// Set when all jobs of the session are to stop.
    pub(crate) fn session_stop(&self) -> &Arc<AtomicBool> {
        &self.running.stop
    }

    /// Opens the session, by whoever begins it.
    pub(crate) fn open(&self, session: Session, seats: Option<Hold>, passed_over: Arc<Mutex<Vec<(Volser, String)>>>) {
        let mut state = locked(&self.running.state);
        (state.session, state.seats, state.passed_over) = (Some(session), seats, passed_over);
        state.phase = Phase::Open;
        drop(state);
        self.running.changed.notify_all();
    }

    /// Waits until whoever begins the session has opened it; whether it has.
    ///
    /// # Errors
    /// [`DirectorError::Interrupted`].
    pub(crate) fn wait_until_open(&self) -> Result<bool, DirectorError> {
        let mut state = locked(&self.running.state);
        while state.phase == Phase::Opening {
            if self.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            let waited = self.running.changed.wait_timeout(state, LOOKS);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state.phase == Phase::Open)
    }

    /// How many drives each copy has, once it is open.
    pub(crate) fn drive_sets(&self) -> usize {
        locked(&self.running.state).sets
    }

    /// The way in, and what is counted of this job; none where the session is over.
    ///
    /// # Errors
    /// The mover of the session is gone.
    pub(crate) fn intake(&self) -> Result<Option<(Intake, Arc<Meters>)>, DirectorError> {
        let mut state = locked(&self.running.state);
        let Some(session) = state.session.as_ref() else { return Ok(None) };
        let (intake, own) = session.intake_of(Arc::clone(&self.stop))?;
        let meters = if self.running.shared.is_some() { own } else { session.meters() };
        if let Some(place) = state.places.iter_mut().find(|place| place.number == self.number) {
            place.meters = self.running.shared.is_some().then(|| Arc::clone(&meters));
        }
        Ok(Some((intake, meters)))
    }

    /// Notes what this job makes, before anything of it comes, and keeps what it has reserved for that.
    pub(crate) fn makes(&self, objects: Vec<ObjectId>, claims: Box<dyn Send>) {
        let mut state = locked(&self.running.state);
        // One that was left here before may be gone on with.
        state.forget(&objects);
        if let Some(place) = state.places.iter_mut().find(|place| place.number == self.number) {
            (place.objects, place.claims) = (objects, Some(claims));
        }
    }

    /// Leaves the session when all that this job has made is recorded, or it is told to stop. The last one closes it.
    /// Its way in must be gone.
    pub(crate) fn leave(mut self) -> LeftSession {
        self.has_left = true;
        self.end(true)
    }

    fn end(&self, waits: bool) -> LeftSession {
        let running = &self.running;
        loop {
            let mut open = locked(&self.sessions.open);
            let mut state = locked(&running.state);
            let never_opened = state.phase == Phase::Opening && state.opener == self.number;
            if never_opened || (state.phase != Phase::Over && state.places.len() == 1) {
                open.retain(|other| !Arc::ptr_eq(other, running));
                state.phase = Phase::Over;
                let session = state.session.take();
                drop((state, open));
                // Others that wait for it to be opened begin another one.
                running.changed.notify_all();
                return self.close(session);
            }
            drop(open);
            let own = state.places.iter().find(|place| place.number == self.number);
            let objects = own.map(|own| own.objects.clone()).unwrap_or_default();
            let is_settled = state.is_settled(&objects);
            if is_settled || !waits || self.stop.load(Ordering::Relaxed) {
                return self.go(&mut state, objects, is_settled);
            }
            let waited = running.changed.wait_timeout(state, LOOKS);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Goes while others stay.
    fn go(&self, state: &mut State, objects: Vec<ObjectId>, is_settled: bool) -> LeftSession {
        state.session.iter().for_each(Session::look);
        let own = state.places.extract_if(.., |place| place.number == self.number).next();
        let claims = own.and_then(|own| own.claims);
        let of_writer = |writer: &WriterStanding| match &writer.end {
            Some(Err(failure)) if !writer.has(&objects) => Err(CopyFailure::Told(failure.clone())),
            _ => Ok(()),
        };
        let copies = by_copy(state.writers.iter().map(of_writer), state.sets);
        let passed_over = locked(&state.passed_over).clone();
        if is_settled {
            state.forget(&objects);
            return LeftSession { copies, claims, is_settled, passed_over };
        }
        state.kept.extend(claims.map(|claims| KeptFor { objects, _claims: claims }));
        LeftSession { copies, claims: None, is_settled, passed_over }
    }

    /// Closes the session, and gives its drives back.
    fn close(&self, session: Option<Session>) -> LeftSession {
        let running = &self.running;
        let mut writers: Vec<Result<(), CopyFailure>> = Vec::new();
        if let Some(session) = session {
            let closing = session.close();
            let mut state = locked(&running.state);
            while state.writers.iter().any(|writer| writer.end.is_none()) && !closing.is_over() {
                if self.stop.load(Ordering::Relaxed) {
                    running.stop.store(true, Ordering::Relaxed);
                }
                let waited = running.changed.wait_timeout(state, LOOKS);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let ended = closing.join().writers.into_iter();
            writers = ended.map(|writer| writer.map_err(CopyFailure::Known)).collect();
        }
        let mut state = locked(&running.state);
        let own = state.places.iter_mut().find(|place| place.number == self.number);
        let (claims, objects) = own.map(|own| (own.claims.take(), own.objects.clone())).unwrap_or_default();
        if running.shared.is_some() {
            // As for those who went before: what is recorded is made, whatever became of the session behind it.
            let recorded = writers.iter_mut().zip(&state.writers).filter(|(_, writer)| writer.has(&objects));
            for (end, _) in recorded {
                *end = Ok(());
            }
        }
        let copies = by_copy(writers.into_iter(), state.sets);
        state.places.clear();
        let (seats, kept) = (state.seats.take(), std::mem::take(&mut state.kept));
        let passed_over = std::mem::take(&mut *locked(&state.passed_over));
        drop(state);
        drop((seats, kept));
        LeftSession { copies, claims, is_settled: true, passed_over }
    }
}

/// How each copy ended, of how its writers did, set by set: well, if all of them did.
fn by_copy(
    writers: impl ExactSizeIterator<Item = Result<(), CopyFailure>>,
    sets: usize,
) -> Vec<Result<(), CopyFailure>> {
    let count = writers.len() / sets.max(1);
    let mut copies: Vec<Result<(), CopyFailure>> = Vec::new();
    for (number, writer) in writers.enumerate() {
        match copies.get_mut(number.checked_rem(count).unwrap_or_default()) {
            Some(copy) if copy.is_ok() => *copy = writer,
            Some(_) => {}
            None => copies.push(writer),
        }
    }
    copies
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        if !self.has_left {
            drop(self.end(false));
        }
    }
}
