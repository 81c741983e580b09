//! A line to one device: commands with their time-outs, BUSY tried again, waiting announced.
//!
//! What drive and changer have in common in asking. What an answer means is not known here, except that a command which
//! ended with NO SENSE or RECOVERED ERROR was carried out, and one that ended otherwise was not.

use std::time::Duration;

use crate::hardware::timeouts::Timeouts;
use crate::scsi::sense::{About, Action, Sense};
use crate::scsi::{Command, DataPhase, Reply, ScsiStatus, SenseData, Transport, TransportError};
use crate::{MonotonicClock, PaceClock};

/// A device that is waited for. Printed, it tells the operator what goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Which device.
    pub device: String,
    /// What it says; none of one that answers BUSY.
    pub sense: Option<Sense>,
    /// How long it has been waited for.
    pub waited: Duration,
}

impl Waiting {
    /// What the device says, and what that means after so long.
    pub fn said(&self) -> String {
        let Some(sense) = self.sense else { return "it answers BUSY".to_owned() };
        if self.waited.as_secs() >= CALIBRATION_AFTER_S && (sense.asc, sense.ascq) == (0x04, 0x01) {
            return format!(
                "{sense}; the first load of an LTO-9 cartridge calibrates it for up to two hours: do not interrupt it"
            );
        }
        sense.to_string()
    }
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is not ready yet, {} s so far ({})", self.device, self.waited.as_secs(), self.said())
    }
}

/// No load without calibration takes longer (LTO-9: 17 s, and a search for the end of data of minutes at worst).
const CALIBRATION_AFTER_S: u64 = 180;

/// How long a device may answer BUSY.
const BUSY_WITHIN: Duration = Duration::from_secs(60);

/// What a caller does about waiting: it is told, and may print it.
pub type OnWait = Box<dyn FnMut(&Waiting) + Send>;

/// A command that was carried out.
#[derive(Debug)]
pub(super) struct Done {
    /// Bytes that were moved.
    pub(super) moved: usize,
    /// What the device said besides: a filemark, another length, early warning, something it recovered from.
    pub(super) sense: Option<SenseData>,
}

/// A command that was not, or of which that is not known.
#[derive(Debug)]
pub(super) enum Failure {
    /// The device says why.
    Check(SenseData),
    /// RESERVATION CONFLICT.
    Conflict,
    /// BUSY for too long.
    Busy(Duration),
    /// Another status, or CHECK CONDITION without a word.
    Status(ScsiStatus),
    /// No answer.
    Transport(TransportError),
}

impl Failure {
    /// Whether the device says in so many words that it does not know the command or a field in it.
    pub(super) fn is_not_known(&self) -> bool {
        matches!(self, Self::Check(data) if matches!(data.codes(), (0x5, 0x20 | 0x24, 0x00)) && data.sense.about == About::ThisCommand)
    }

    /// What the sense table says.
    pub(super) fn action(&self) -> Option<Action> {
        match self {
            Self::Check(data) => data.sense.action(),
            _ => None,
        }
    }

    /// Key, code and qualifier, if it is about this command.
    pub(super) fn codes(&self) -> Option<(u8, u8, u8)> {
        match self {
            Self::Check(data) if data.sense.about == About::ThisCommand => Some(data.codes()),
            _ => None,
        }
    }
}

/// The line.
pub(super) struct Line<T> {
    pub(super) transport: T,
    pub(super) name: String,
    pub(super) timeouts: Timeouts,
    /// Commands sent so far.
    pub(super) sent: u64,
    clock: Box<dyn PaceClock>,
    on_wait: OnWait,
}

impl<T: Transport> Line<T> {
    pub(super) fn new(transport: T, name: String, timeouts: Timeouts) -> Self {
        let clock = Box::new(MonotonicClock::start());
        Self { transport, name, timeouts, sent: 0, clock, on_wait: Box::new(|_| {}) }
    }

    pub(super) fn set_clock(&mut self, clock: Box<dyn PaceClock>) {
        self.clock = clock;
    }

    pub(super) fn set_on_wait(&mut self, on_wait: OnWait) {
        self.on_wait = on_wait;
    }

    pub(super) fn now_s(&self) -> f64 {
        self.clock.now_s()
    }

    pub(super) fn pause(&mut self, pause: Duration) {
        let until = self.clock.now_s() + pause.as_secs_f64();
        self.clock.wait_until(until);
    }

    /// Tells the caller that the device is waited for, and waits a little.
    pub(super) fn announce(&mut self, sense: Sense, since_s: f64) {
        let waited = Duration::from_secs_f64((self.now_s() - since_s).max(0.0));
        (self.on_wait)(&Waiting { device: self.name.clone(), sense: Some(sense), waited });
        // Often at first: most drives are ready within seconds.
        self.pause(Duration::from_secs(if waited.as_secs() < 20 { 1 } else { 5 }));
    }

    /// Sends a command. BUSY says that it was not begun, so it is sent again.
    pub(super) fn run(&mut self, command: &Command, mut data: DataPhase<'_>) -> Result<Done, Failure> {
        let cdb = command.to_cdb();
        self.run_cdb(&cdb, &mut data)
    }

    /// The same with bytes.
    pub(super) fn run_cdb(&mut self, cdb: &[u8], data: &mut DataPhase<'_>) -> Result<Done, Failure> {
        let timeout = self.timeouts.of(cdb);
        let since_s = self.now_s();
        let mut pause = Duration::from_millis(100);
        loop {
            self.sent = self.sent.wrapping_add(1);
            let data = match data {
                DataPhase::None => DataPhase::None,
                DataPhase::Out(bytes) => DataPhase::Out(bytes),
                DataPhase::In(room) => DataPhase::In(room),
            };
            let reply = self.transport.execute(cdb, data, timeout).map_err(Failure::Transport)?;
            let waited = Duration::from_secs_f64((self.now_s() - since_s).max(0.0));
            match reply.status {
                ScsiStatus::Busy if waited < BUSY_WITHIN => {
                    (self.on_wait)(&Waiting { device: self.name.clone(), sense: None, waited });
                    self.pause(pause);
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
                ScsiStatus::Busy => return Err(Failure::Busy(waited)),
                _ => return done(&reply),
            }
        }
    }
}

fn done(reply: &Reply) -> Result<Done, Failure> {
    let Reply { status, sense, moved } = *reply;
    match (status, sense) {
        (ScsiStatus::Good, sense) => match sense {
            // Some adapters pass sense data with GOOD: only what is about an earlier command is a failure.
            Some(data) if data.sense.about == About::AnEarlierCommand => Err(Failure::Check(data)),
            sense => Ok(Done { moved, sense }),
        },
        (ScsiStatus::CheckCondition, Some(data)) => {
            let carried_out = data.sense.about == About::ThisCommand && matches!(data.sense.key, 0x0 | 0x1);
            if carried_out { Ok(Done { moved, sense: Some(data) }) } else { Err(Failure::Check(data)) }
        }
        (ScsiStatus::ReservationConflict, _) => Err(Failure::Conflict),
        (status, _) => Err(Failure::Status(status)),
    }
}
