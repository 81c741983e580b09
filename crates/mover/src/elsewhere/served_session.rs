//! A session of this mover, for whoever decides elsewhere.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_tape::with_causes;

use super::served::{COMES_WITHIN, ServedMover};
use super::words::{Expects, IntakeTerms, MoverLink, SessionCall, SessionOrder, SessionReport, WITH_FAILED_WRITES};
use crate::devices::remote::RemoteCopyHost;
use crate::intake::IntakeWay;
use crate::meters::Meters;
use crate::network::{Expected, NetworkJob};
use crate::session::ClosingSession;
use crate::throttle::ToldRate;
use crate::{CopyHost, Intake, MoverError, Session};

/// A way in for one job.
struct ServedIntake {
    intake: Intake,
    stop: Arc<AtomicBool>,
    rate: ToldRate,
}

/// A session, and what has come of it.
struct Serving<'a> {
    mover: &'a ServedMover,
    session: Option<Session>,
    meters: Arc<Meters>,
    closing: Option<ClosingSession>,
    intakes: HashMap<u32, ServedIntake>,
    /// Counters of jobs, whose blocks may still be on their way when their ways in have ended.
    counted: HashMap<u32, Arc<Meters>>,
    expected: HashMap<u64, (NetworkJob, Expected)>,
    last: u64,
}

impl ServedMover {
    /// Runs a session until its connection ends, for whoever decides in this version of the protocol.
    pub(super) fn serve_session(&self, mut link: MoverLink, call: SessionCall, version: u32) -> io::Result<()> {
        let SessionCall { owner, options, record, copies } = call;
        // Its mounts stay as long as it writes.
        let _owner = self.owner(&owner);
        let (token, hosts) = self.expect_hosts(copies)?;
        link.send(&Expects { hosts: token.clone(), pieces: None }, &[]).inspect_err(|_| self.forget_hosts(&token))?;
        let remote = |stream| -> Box<dyn CopyHost> {
            match version {
                WITH_FAILED_WRITES.. => Box::new(RemoteCopyHost::new(stream)),
                _ => Box::new(RemoteCopyHost::of_older(stream)),
            }
        };
        let hosts = self.hosts(&token, &hosts)?.into_iter().map(remote).collect();
        let session = match Session::start(&options, &record, self.drives(), hosts, Arc::default()) {
            Ok(session) => session,
            Err(error) => return link.send(&SessionReport::Failed(with_causes(&error)), &[]),
        };
        link.send(&SessionReport::Done, &[])?;
        let meters = session.meters();
        let (closing, intakes, counted, expected) = Default::default();
        let session = Some(session);
        let mut serving = Serving { mover: self, session, meters, closing, intakes, counted, expected, last: 0 };
        let served = serving.serve(&mut link);
        serving.close();
        // What its copies have still to say they say on connections of their own.
        if let Some(closing) = serving.closing {
            closing.join();
        }
        match served {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            served => served,
        }
    }
}

impl Serving<'_> {
    fn serve(&mut self, link: &mut MoverLink) -> io::Result<()> {
        loop {
            let (order, _) = link.receive_within(0)?;
            let report = self.carry_out(order)?;
            link.send(&report, &[])?;
        }
    }

    fn carry_out(&mut self, order: SessionOrder) -> io::Result<SessionReport> {
        Ok(match order {
            SessionOrder::Intake => match self.begin_intake() {
                Some(number) => SessionReport::Intake(number),
                None => over(),
            },
            SessionOrder::IntakeEnds(number) => {
                self.intakes.remove(&number);
                SessionReport::Done
            }
            SessionOrder::Begin(intake, record, known) => {
                self.on(intake, |intake| intake.begin_object_again(*record, known))
            }
            SessionOrder::End(intake, object, ended_ns) => self.on(intake, |intake| intake.end(object, ended_ns)),
            SessionOrder::Expect { intake, client, object, streams } => {
                let way_in = self.intakes.get(&intake).and_then(|served| match &served.intake.0 {
                    IntakeWay::Here(here) => Some(Arc::clone(here)),
                    IntakeWay::Elsewhere(_) => None,
                });
                let Some(way_in) = way_in else { return Ok(over()) };
                let job = self.mover.jobs().open(&client, COMES_WITHIN)?;
                let expected = job.expect(&way_in, object, &streams);
                let (token, reading) = (job.token().clone(), expected.reading);
                let number = self.next();
                self.expected.insert(number, (job, expected));
                SessionReport::Expected { token, reading, number }
            }
            SessionOrder::HaveCome(number) => {
                let come = self.expected.remove(&number).map(|(job, expected)| job.have_come(&expected));
                SessionReport::Came(come == Some(true))
            }
            SessionOrder::Watch(terms, counted) => self.watch(&terms, &counted),
            SessionOrder::Close => {
                self.close();
                SessionReport::Done
            }
        })
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn begin_intake(&mut self) -> Option<u32> {
        let stop: Arc<AtomicBool> = Arc::default();
        let rate = ToldRate::new(None);
        let (intake, meters) = self.session.as_ref()?.intake_of(Arc::clone(&stop)).ok()?;
        let intake = intake.throttled(rate.throttle());
        let number = self.next() as u32;
        self.intakes.insert(number, ServedIntake { intake, stop, rate });
        self.counted.insert(number, meters);
        Some(number)
    }

    fn on(&self, intake: u32, act: impl FnOnce(&Intake) -> Result<(), MoverError>) -> SessionReport {
        let Some(served) = self.intakes.get(&intake) else { return over() };
        match act(&served.intake) {
            Ok(()) => SessionReport::Done,
            Err(MoverError::Stopped) => SessionReport::Stopped,
            Err(error) => SessionReport::Failed(with_causes(&error)),
        }
    }

    fn watch(&mut self, terms: &[IntakeTerms], counted: &[u32]) -> SessionReport {
        for IntakeTerms { intake, stops, rate } in terms {
            if let Some(served) = self.intakes.get(intake) {
                served.stop.fetch_or(*stops, Ordering::Relaxed);
                served.rate.tell(*rate);
            }
        }
        self.counted.retain(|number, _| self.intakes.contains_key(number) || counted.contains(number));
        let intakes = self.counted.iter().map(|(number, meters)| (*number, meters.counts())).collect();
        SessionReport::Watched { session: self.meters.counts(), intakes }
    }

    /// Takes nothing more. Streams that have not come to their ends are cut where they are.
    fn close(&mut self) {
        for (_, (job, expected)) in self.expected.drain() {
            job.have_come(&expected);
        }
        for served in self.intakes.values() {
            served.stop.store(true, Ordering::Relaxed);
        }
        self.intakes.clear();
        if let Some(session) = self.session.take() {
            self.closing = Some(session.close());
        }
    }
}

fn over() -> SessionReport {
    SessionReport::Failed("the session is over".to_owned())
}
