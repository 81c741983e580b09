//! A session of a mover elsewhere, as whoever decides has it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use capstan_format::{ObjectId, ObjectRecord, SessionRecord, Volser};
use capstan_tape::with_causes;

use super::RemoteMover;
use super::remote::{gone, locked};
use super::sending::Sending;
use super::words::{
    Expects, IntakeTerms, MoverCall, MoverLink, OWN, SessionCall, SessionOrder, SessionReport, other_answer,
};
use crate::devices::remote::serve_copy_host_until;
use crate::intake::{ExpectedStreams, Intake, IntakeElsewhere, IntakeWay, StreamStart};
use crate::meters::Meters;
use crate::pack::PackOptions;
use crate::session::{ClosingElsewhere, SessionElsewhere};
use crate::throttle::Throttle;
use crate::{
    Commit, Connection, CopyHost, DriveHealth, HostError, MountId, Mounted, MoverError, Session, SessionOptions,
    SessionOutcome, VolumeEnd,
};

/// How often the mover hears what is to stop, and says how far it is.
const WATCHES: Duration = Duration::from_millis(200);
/// How long the mover may take for a word.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Begins a session at a mover. Each copy asks its host on a connection of its own.
pub(super) fn start(
    mover: &RemoteMover,
    options: &SessionOptions,
    record: &SessionRecord,
    hosts: Vec<Box<dyn CopyHost>>,
    stop: Arc<AtomicBool>,
) -> Result<Session, MoverError> {
    let (owner, copies) = (mover.owner(), hosts.len() as u8);
    let call = SessionCall { owner, options: *options, record: record.clone(), copies };
    let lost = |error: io::Error| gone(&error);
    let mut link = mover.call(MoverCall::Session(Box::new(call)), &[]).map_err(lost)?;
    link.0.set_timeout(Some(ANSWERS_WITHIN)).map_err(lost)?;
    let (Expects { hosts: of, .. }, _) = link.receive_within(0).map_err(lost)?;
    let is_over: Arc<AtomicBool> = Arc::default();
    let over = OverAtLast(Arc::clone(&is_over));
    let mut copies = Vec::new();
    for (number, host) in (0..).zip(hosts) {
        let stream = mover.call(MoverCall::Host { of: of.clone(), number }, &[]).map_err(lost)?.0;
        let heard: Arc<Mutex<CopyHeard>> = Arc::default();
        let (mut host, is_over) = (HeardHost { host, heard: Arc::clone(&heard) }, Arc::clone(&is_over));
        // A connection that breaks ends the copy, and so does a host that is dropped before it has heard of its end.
        let serve = move || drop(serve_copy_host_until(&mut host, stream, &is_over));
        let thread = thread::Builder::new().name(format!("host-{number}")).spawn(serve).map_err(MoverError::Thread)?;
        copies.push(RemoteCopy { thread, heard });
    }
    match link.receive_within(0).map_err(lost)?.0 {
        SessionReport::Done => {}
        SessionReport::Failed(reason) => return Err(MoverError::Elsewhere { reason }),
        _ => return Err(gone(&other_answer())),
    }
    let shared = Arc::new(SessionLink {
        mover: mover.clone(),
        link: Mutex::new(Ok(link)),
        is_over,
        meters: Arc::default(),
        intakes: Mutex::default(),
        counted: Mutex::default(),
        looks: Mutex::default(),
        options: *options,
    });
    let intake = shared.intake(stop, None)?;
    let watched = Arc::clone(&shared);
    let watch = move || watched.watch();
    let watch = thread::Builder::new().name("session".to_owned()).spawn(watch).map_err(MoverError::Thread)?;
    Ok(Session::elsewhere(Box::new(RemoteSession { shared, intake, copies, watch, over })))
}

/// What the host of a copy has said and heard.
#[derive(Default)]
struct CopyHeard {
    /// How the copy ended.
    end: Option<Result<(), String>>,
    /// Why the host did not do its part: the mover has the words alone.
    cause: Option<HostError>,
}

impl CopyHeard {
    fn into_end(self) -> Option<Result<(), MoverError>> {
        let Self { end, cause } = self;
        let failure = |reason| cause.map_or(MoverError::Elsewhere { reason }, MoverError::Host);
        end.map(|end| end.map_err(failure))
    }
}

/// A copy's host, and the thread that answers for it.
struct RemoteCopy {
    thread: JoinHandle<()>,
    heard: Arc<Mutex<CopyHeard>>,
}

struct RemoteSession {
    shared: Arc<SessionLink>,
    intake: Intake,
    copies: Vec<RemoteCopy>,
    watch: JoinHandle<()>,
    over: OverAtLast,
}

/// Ends the threads of a session, however it is given up.
struct OverAtLast(Arc<AtomicBool>);

impl Drop for OverAtLast {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct RemoteClosing {
    shared: Arc<SessionLink>,
    copies: Vec<RemoteCopy>,
    watch: JoinHandle<()>,
    over: OverAtLast,
}

/// The connection of a session, and what is known of it.
pub(super) struct SessionLink {
    pub(super) mover: RemoteMover,
    /// Or why it broke.
    link: Mutex<Result<MoverLink, String>>,
    /// Set when nothing more is asked.
    is_over: Arc<AtomicBool>,
    meters: Arc<Meters>,
    intakes: Mutex<Vec<Weak<RemoteIntake>>>,
    /// Counters of jobs, as long as anybody looks at them.
    counted: Mutex<Vec<(u32, Weak<Meters>)>>,
    /// Held for a look: what is told and what is heard must not overtake what came later.
    looks: Mutex<()>,
    options: SessionOptions,
}

impl SessionLink {
    fn ask(&self, order: &SessionOrder) -> Result<SessionReport, MoverError> {
        let mut place = locked(&self.link);
        let link = place.as_mut().map_err(|reason| MoverError::Elsewhere { reason: reason.clone() })?;
        match link.send(order, &[]).and_then(|()| link.receive_within(0)) {
            Ok((SessionReport::Stopped, _)) => Err(MoverError::Stopped),
            Ok((SessionReport::Failed(reason), _)) => Err(MoverError::Elsewhere { reason }),
            Ok((report, _)) => Ok(report),
            Err(error) => {
                let error = gone(&error);
                // The mover sees the connection end, and ends the session.
                *place = Err(error.to_string());
                self.is_over.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn done(&self, order: &SessionOrder) -> Result<(), MoverError> {
        match self.ask(order)? {
            SessionReport::Done => Ok(()),
            _ => Err(gone(&other_answer())),
        }
    }

    /// A way in; and what is counted for its job alone, where it has counters of its own.
    fn intake(self: &Arc<Self>, stop: Arc<AtomicBool>, meters: Option<Arc<Meters>>) -> Result<Intake, MoverError> {
        let SessionReport::Intake(number) = self.ask(&SessionOrder::Intake)? else {
            return Err(gone(&other_answer()));
        };
        let (throttle, sending) = Default::default();
        locked(&self.counted).extend(meters.map(|meters| (number, Arc::downgrade(&meters))));
        let intake = Arc::new(RemoteIntake { session: Arc::clone(self), number, stop, throttle, sending });
        locked(&self.intakes).push(Arc::downgrade(&intake));
        Ok(Intake(IntakeWay::Elsewhere(intake)))
    }

    fn watch(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            // What is wrong with the connection whoever asks next hears.
            let _ = self.look();
            thread::sleep(WATCHES);
        }
        self.intakes().iter().for_each(|intake| intake.sending.stop());
    }

    fn intakes(&self) -> Vec<Arc<RemoteIntake>> {
        let mut intakes = locked(&self.intakes);
        intakes.retain(|intake| intake.strong_count() > 0);
        intakes.iter().filter_map(Weak::upgrade).collect()
    }

    /// Tells the mover what is to stop, and how fast what may come; hears how far it is.
    fn look(&self) -> Result<(), MoverError> {
        let _alone = locked(&self.looks);
        let intakes = self.intakes();
        let terms = |intake: &Arc<RemoteIntake>| {
            let stops = intake.stop.load(Ordering::Relaxed);
            if stops {
                intake.sending.stop();
            }
            let rate = locked(&intake.throttle).as_ref().and_then(Throttle::rate);
            IntakeTerms { intake: intake.number, stops, rate }
        };
        let terms = intakes.iter().map(terms).collect();
        let counted: Vec<(u32, Arc<Meters>)> = {
            let mut counted = locked(&self.counted);
            counted.retain(|(_, meters)| meters.strong_count() > 0);
            counted.iter().filter_map(|(number, meters)| Some((*number, meters.upgrade()?))).collect()
        };
        let numbers = counted.iter().map(|(number, _)| *number).collect();
        let report = self.ask(&SessionOrder::Watch(terms, numbers))?;
        let SessionReport::Watched { session, intakes: counts } = report else { return Err(gone(&other_answer())) };
        self.meters.follow(&session);
        for (number, meters) in &counted {
            if let Some((_, counts)) = counts.iter().find(|(of, _)| of == number) {
                meters.follow(counts);
            }
        }
        Ok(())
    }

    fn have_come(&self, number: u64) -> bool {
        matches!(self.ask(&SessionOrder::HaveCome(number)), Ok(SessionReport::Came(true)))
    }
}

impl SessionElsewhere for RemoteSession {
    fn intake(&self) -> &Intake {
        &self.intake
    }

    fn intake_of(&self, stop: Arc<AtomicBool>) -> Result<(Intake, Arc<Meters>), MoverError> {
        let meters = Arc::new(Meters::of_job(&self.shared.meters));
        Ok((self.shared.intake(stop, Some(Arc::clone(&meters)))?, meters))
    }

    fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.shared.meters)
    }

    fn look(&self) {
        // What is wrong with the connection whoever asks next hears.
        let _ = self.shared.look();
    }

    fn close(self: Box<Self>) -> Box<dyn ClosingElsewhere> {
        let Self { shared, intake, copies, watch, over } = *self;
        drop(intake);
        // If it is not heard, the mover sees the connection end.
        let _ = shared.done(&SessionOrder::Close);
        Box::new(RemoteClosing { shared, copies, watch, over })
    }
}

impl ClosingElsewhere for RemoteClosing {
    fn is_over(&self) -> bool {
        self.copies.iter().all(|copy| copy.thread.is_finished())
    }

    fn join(self: Box<Self>) -> SessionOutcome {
        let Self { shared, copies, watch, over } = *self;
        let ended = copies.into_iter().map(|copy| {
            if let Err(panic) = copy.thread.join() {
                std::panic::resume_unwind(panic);
            }
            let heard = std::mem::take(&mut *locked(&copy.heard));
            heard.into_end().unwrap_or_else(|| Err(MoverError::Elsewhere { reason: shared.why_broken() }))
        });
        let outcome = SessionOutcome { writers: ended.collect() };
        // The last counts.
        let _ = shared.look();
        drop(over);
        if let Err(panic) = watch.join() {
            std::panic::resume_unwind(panic);
        }
        outcome
    }
}

impl SessionLink {
    fn why_broken(&self) -> String {
        match &*locked(&self.link) {
            Err(reason) => reason.clone(),
            Ok(_) => "the mover has ended a copy without a word".to_owned(),
        }
    }
}

/// The way in for one job.
pub(super) struct RemoteIntake {
    session: Arc<SessionLink>,
    number: u32,
    stop: Arc<AtomicBool>,
    throttle: Mutex<Option<Throttle>>,
    /// What this process itself sends.
    sending: Sending,
}

impl RemoteIntake {
    fn expect_streams(
        &self,
        client: &str,
        object: ObjectId,
        streams: &[StreamStart],
    ) -> Result<ExpectedStreams, MoverError> {
        let order =
            SessionOrder::Expect { intake: self.number, client: client.to_owned(), object, streams: streams.to_vec() };
        match self.session.ask(&order)? {
            SessionReport::Expected { token, reading, number } => {
                Ok(ExpectedStreams { address: String::new(), token, reading, number })
            }
            _ => Err(gone(&other_answer())),
        }
    }
}

impl IntakeElsewhere for RemoteIntake {
    fn begin_object(&self, record: ObjectRecord, known: Vec<(u16, u64)>) -> Result<(), MoverError> {
        if record.consolidates.is_some() && !self.session.mover.writes_consolidations() {
            let reason = "its mover is too old to make full backups of others: install a newer capstan there";
            return Err(MoverError::Elsewhere { reason: reason.to_owned() });
        }
        if !record.tags.is_empty() && !self.session.mover.writes_tags() {
            let reason = "its mover is too old to write tags: install a newer capstan there, or leave them out";
            return Err(MoverError::Elsewhere { reason: reason.to_owned() });
        }
        self.session.done(&SessionOrder::Begin(self.number, Box::new(record), known))
    }

    fn end_object(&self, object: ObjectId, ended_ns: Option<i64>) -> Result<(), MoverError> {
        self.session.done(&SessionOrder::End(self.number, object, ended_ns))
    }

    fn connection(&self, object: ObjectId, start: StreamStart) -> Connection {
        let expected = self.expect_streams(OWN, object, &[start]);
        let session = Arc::clone(&self.session);
        let have_come = move |number| session.have_come(number);
        let (mover, options) = (&self.session.mover, &self.session.options);
        self.sending
            .connection((mover, options), (object, start), expected, have_come)
            .taking_fragments(self.takes_fragments())
    }

    fn expect(&self, client: &str, object: ObjectId, streams: &[StreamStart]) -> Result<ExpectedStreams, MoverError> {
        let address = self.session.mover.data_address().map_err(|error| gone(&error))?;
        Ok(ExpectedStreams { address, ..self.expect_streams(client, object, streams)? })
    }

    fn have_come(&self, expected: &ExpectedStreams) -> bool {
        self.session.have_come(expected.number)
    }

    fn chunk_len(&self) -> usize {
        self.session.options.chunk_len
    }

    fn pack(&self) -> PackOptions {
        self.session.options.pack
    }

    fn stop(&self) -> &AtomicBool {
        // Where the job is stopped, or the session is over.
        self.sending.is_over()
    }

    fn throttle(&self, throttle: Throttle) {
        *locked(&self.throttle) = Some(throttle);
        // Before anything comes. What is wrong with the connection whoever begins an object hears.
        let _ = self.session.look();
    }

    fn takes_fragments(&self) -> bool {
        self.session.mover.takes_fragments()
    }

    fn why_lost(&self) -> Option<String> {
        let broken = locked(&self.session.link).as_ref().err().cloned();
        broken.or_else(|| self.sending.why_lost())
    }
}

impl Drop for RemoteIntake {
    fn drop(&mut self) {
        // A mover that is gone has nothing left of it.
        let _ = self.session.done(&SessionOrder::IntakeEnds(self.number));
    }
}

/// A copy's host, of which is kept what it said and heard.
struct HeardHost {
    host: Box<dyn CopyHost>,
    heard: Arc<Mutex<CopyHeard>>,
}

impl HeardHost {
    /// The words of an error, which is kept.
    fn keep(&self, error: HostError) -> HostError {
        let words = with_causes(error.as_ref());
        locked(&self.heard).cause = Some(error);
        words.into()
    }
}

impl CopyHost for HeardHost {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        self.host.mount().map_err(|error| self.keep(error))
    }

    fn committed(&mut self, commit: &Commit) -> Result<(), HostError> {
        self.host.committed(commit).map_err(|error| self.keep(error))
    }

    fn health(&mut self, volser: &Volser, health: &DriveHealth) {
        self.host.health(volser, health);
    }

    fn release(&mut self, mount: MountId, volser: &Volser, end: VolumeEnd) {
        self.host.release(mount, volser, end);
    }

    fn settled(&mut self, objects: &[ObjectId]) {
        self.host.settled(objects);
    }

    fn ended(&mut self, failure: Option<&str>) {
        locked(&self.heard).end = Some(failure.map_or(Ok(()), |reason| Err(reason.to_owned())));
        self.host.ended(failure);
    }

    fn now_ns(&self) -> i64 {
        self.host.now_ns()
    }
}
