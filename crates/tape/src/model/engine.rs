//! The engine: what a drive does with what the host offers, event by event.
//!
//! ```text
//!            buffer >= high water, or a sync waits
//!   Stopped ----------------------------------------> Streaming(speed)
//!      ^                                                 |   |  another rate for calibration_s
//!      |  backhitch_s                buffer <= low water |   v
//!      +------------------------- Backhitch <------------+--- takes another speed: a backhitch, too
//! ```
//! The buffer holds data as it goes to the tape, behind compression. A host that finds it full waits, and from then on
//! sees the speed of the tape. A sync is answered when the buffer is empty; then nothing is left to write, and the tape
//! must stop, unless the drive has a way to keep it moving ([`sync`]).
//!
//! Bytes are conserved: what was accepted is on the tape or in the buffer. Between two events all rates are constant.

mod sync;

use std::sync::Arc;

use super::spec::DriveModel;

/// What the Tape Application Accelerator makes of what stops a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conversion {
    /// Nothing: every sync drains the buffer.
    #[default]
    None,
    /// File syncs are answered at once. After a loss of power the buffer is lost, back to the last tape mark.
    FileSyncs,
    /// Tape marks are buffered, and file syncs are answered at once. After a loss of power the buffer is lost.
    TapeMarks,
}

/// What the tape does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Motion {
    /// It stands, ready to write on.
    Stopped,
    /// It goes back to where it stopped writing.
    Backhitch {
        /// When it is there.
        until: f64,
    },
    /// It writes, data or pad, at so many MB/s.
    Streaming {
        /// MB/s.
        speed: f64,
    },
}

/// What happened since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineTotals {
    /// Seconds.
    pub elapsed_s: f64,
    /// MB that the host handed over.
    pub host_mb: f64,
    /// MB that stand on the tape, as they went there.
    pub tape_mb: f64,
    /// MB of pad.
    pub pad_mb: f64,
    /// Times that the tape went back.
    pub backhitches: u64,
    /// Times that it took another speed.
    pub speed_changes: u64,
    /// Seconds in which it wrote.
    pub streaming_s: f64,
    /// Seconds in which the host waited for a full buffer, a sync or the tape.
    pub host_waits_s: f64,
}

/// A drive in virtual time.
#[derive(Debug, Clone)]
pub struct Engine {
    model: Arc<DriveModel>,
    /// Host bytes for each byte on the tape.
    ratio: f64,
    conversion: Conversion,
    accelerated: bool,
    buffer_mb: f64,
    motion: Motion,
    /// The speed that the tape runs at when it runs.
    speed: f64,
    /// Since when what comes in asks for another speed, and what had come in by then.
    other_since: Option<Since>,
    /// What came in for a tape that does not move.
    waiting: Waiting,
    /// Until when what the tape writes is pad.
    pad_until_s: f64,
    /// MB on the sparse wraps that are not on their own wrap yet.
    gathered_mb: f64,
    totals: EngineTotals,
}

/// Why a step ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    /// The time has come: that was asked for, or that something of the drive takes.
    Asked,
    /// The drive took what the host had.
    Taken,
    /// The buffer holds so many MB.
    Reaches(f64),
}

/// A moment, and the MB that had come in by then, as they go to the tape.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Since {
    at_s: f64,
    incoming_mb: f64,
}

/// Seconds in which a host offered something while the tape did not move, and the MB that came, as they go to the tape.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Waiting {
    seconds: f64,
    mb: f64,
}

/// A speed is changed for this share of it and more; less is the buffer's to even out.
const SPEED_SHARE_MIN: f64 = 0.02;
/// Less than this many MB is nothing: a thousandth of a byte.
const NOTHING_MB: f64 = 1e-9;

impl Engine {
    /// A drive that has just been loaded. `ratio`: bytes of the host for each byte on the tape, 1 for what does not
    /// compress.
    pub fn new(model: &DriveModel, ratio: f64) -> Self {
        Self {
            model: Arc::new(model.clone()),
            ratio,
            conversion: Conversion::None,
            accelerated: false,
            buffer_mb: 0.0,
            motion: Motion::Stopped,
            speed: model.speed_for(0.0),
            other_since: None,
            waiting: Waiting::default(),
            pad_until_s: 0.0,
            gathered_mb: 0.0,
            totals: EngineTotals::default(),
        }
    }

    /// The same, with its Tape Application Accelerator in this mode.
    #[must_use]
    pub fn converting(self, conversion: Conversion) -> Self {
        Self { conversion, ..self }
    }

    /// The same, with its File Sync Accelerator or virtual backhitch switched on, if it has one.
    #[must_use]
    pub fn accelerated(self, accelerated: bool) -> Self {
        Self { accelerated, ..self }
    }

    /// What happened so far.
    pub fn totals(&self) -> &EngineTotals {
        &self.totals
    }

    /// Now, in seconds since the beginning.
    pub fn now_s(&self) -> f64 {
        self.totals.elapsed_s
    }

    /// MB in the buffer, as they go to the tape.
    pub fn buffer_mb(&self) -> f64 {
        self.buffer_mb
    }

    /// What the tape does now.
    pub fn motion(&self) -> Motion {
        self.motion
    }

    /// MB of the host on their way that a loss of power would take now, although their sync was answered.
    pub fn at_risk_mb(&self) -> f64 {
        if self.conversion == Conversion::None { 0.0 } else { self.buffer_mb * self.ratio }
    }

    /// The host offers this rate for so many seconds. Gives the MB that the drive took.
    pub fn offer(&mut self, mb_per_s: f64, seconds: f64) -> f64 {
        let until = self.totals.elapsed_s + seconds;
        let before = self.totals.host_mb;
        while self.totals.elapsed_s < until {
            self.step(mb_per_s, f64::INFINITY, until);
        }
        let taken = self.totals.host_mb - before;
        if mb_per_s > 0.0 {
            self.totals.host_waits_s += (seconds - taken / mb_per_s).max(0.0);
        }
        taken
    }

    /// The host hands over so many MB, at this rate if the drive takes it. Gives the seconds that it took.
    pub fn write(&mut self, mb: f64, mb_per_s: f64) -> f64 {
        let began = self.totals.elapsed_s;
        let mut left = mb;
        while left > 0.0 {
            left -= self.step(mb_per_s, left, f64::INFINITY);
        }
        let took = self.totals.elapsed_s - began;
        self.totals.host_waits_s += (took - mb / mb_per_s).max(0.0);
        took
    }

    /// Writes all that is in the buffer.
    pub fn drain(&mut self) {
        while self.buffer_mb > NOTHING_MB {
            if self.motion == Motion::Stopped {
                // It has been told to write what there is, however little, and somebody waits for it.
                self.speed = self.model.speed_for(f64::INFINITY);
                self.start();
            }
            self.step(0.0, f64::INFINITY, f64::INFINITY);
        }
    }

    fn pads(&self) -> bool {
        self.totals.elapsed_s < self.pad_until_s
    }

    fn start(&mut self) {
        self.motion = Motion::Streaming { speed: self.speed };
        self.waiting = Waiting::default();
    }

    fn go_back(&mut self) {
        if !matches!(self.motion, Motion::Backhitch { .. }) {
            self.totals.backhitches += 1;
            self.motion = Motion::Backhitch { until: self.totals.elapsed_s + self.model.backhitch_s.value };
        }
        self.other_since = None;
        self.pad_until_s = self.totals.elapsed_s;
    }

    /// What would come in, MB/s as it goes to the tape, if the buffer had room.
    fn demand(&self, offered: f64) -> f64 {
        offered.min(self.model.ceiling_mb_per_s.value) / self.ratio
    }

    /// Up to the next event, and through it: at most `mb_max` MB of the host, at most until `until`. Gives the MB that
    /// it took.
    fn step(&mut self, offered: f64, mb_max: f64, until: f64) -> f64 {
        let capacity = self.model.buffer_mb.value;
        let (low, high) = (self.model.low_water.value * capacity, self.model.high_water.value * capacity);
        let demand = self.demand(offered);
        // With nothing to come, what is in the buffer is written to its end.
        let floor = if offered > 0.0 { low } else { 0.0 };
        self.turn(demand, floor, high);

        let full = self.buffer_mb >= capacity - NOTHING_MB;
        let (outgoing, moves) = match self.motion {
            Motion::Streaming { .. } if self.pads() => (0.0, true),
            Motion::Streaming { speed } => (speed, true),
            _ => (0.0, false),
        };
        let incoming = if full { demand.min(outgoing) } else { demand };
        let now = self.totals.elapsed_s;
        let (mut next, mut event) = (until, Event::Asked);
        let mut at = |time: f64, what: Event| {
            if time < next {
                (next, event) = (time.max(now), what);
            }
        };
        if incoming > 0.0 {
            at(now + mb_max / (incoming * self.ratio), Event::Taken);
        }
        if incoming > outgoing {
            at(now + (capacity - self.buffer_mb) / (incoming - outgoing), Event::Reaches(capacity));
        }
        if outgoing > incoming {
            at(now + (self.buffer_mb - floor) / (outgoing - incoming), Event::Reaches(floor));
        }
        match self.motion {
            Motion::Stopped if incoming > 0.0 => at(now + (high - self.buffer_mb) / incoming, Event::Reaches(high)),
            Motion::Stopped => {}
            Motion::Backhitch { until } => at(until, Event::Asked),
            Motion::Streaming { .. } => {
                if self.pads() {
                    at(self.pad_until_s, Event::Asked);
                }
                if let Some(since) = self.other_since {
                    at(since.at_s + self.model.calibration_s.value, Event::Asked);
                }
            }
        }
        if next.is_infinite() {
            // Nothing will ever happen: nothing is offered, and the tape stands.
            return 0.0;
        }
        let seconds = next - now;
        self.totals.elapsed_s = next;
        // Late in a long simulation a moment may be shorter than time can tell; what it was to bring about has come
        // about.
        let taken = if event == Event::Taken { mb_max } else { incoming * self.ratio * seconds };
        self.totals.host_mb += taken;
        self.totals.tape_mb += outgoing * seconds;
        self.buffer_mb = match event {
            Event::Reaches(level) => level,
            _ => (self.buffer_mb + (incoming - outgoing) * seconds).clamp(0.0, capacity),
        };
        if moves {
            self.totals.streaming_s += seconds;
        } else if demand > 0.0 {
            // A host that waits for a sync, or has nothing, says nothing of its rate.
            self.waiting.seconds += seconds;
            self.waiting.mb += taken / self.ratio;
        }
        // What became of it counts at once: whoever looks now sees the tape as it is now.
        self.turn(demand, floor, high);
        taken
    }

    /// What the tape does from now on.
    fn turn(&mut self, demand: f64, floor: f64, high: f64) {
        let now = self.totals.elapsed_s;
        if let Motion::Backhitch { until } = self.motion
            && now >= until
        {
            self.motion = Motion::Stopped;
        }
        // What rounding took away must not keep the tape from starting.
        if self.motion == Motion::Stopped && self.buffer_mb >= high - NOTHING_MB {
            let Waiting { seconds, mb } = self.waiting;
            self.choose_speed(if seconds > 0.0 { self.at_least_offered(mb / seconds, demand) } else { demand });
            self.start();
        }
        let Motion::Streaming { speed } = self.motion else { return };
        if speed > demand && self.buffer_mb <= floor + NOTHING_MB && !self.pads() {
            self.go_back();
            return;
        }
        self.watch_speed(demand);
        if let Some(since) = self.other_since
            && now >= since.at_s + self.model.calibration_s.value
        {
            self.other_since = None;
            let seconds = now - since.at_s;
            let mean = if seconds > 0.0 { (self.incoming_mb() - since.incoming_mb) / seconds } else { demand };
            self.choose_speed(self.at_least_offered(mean, demand));
            if self.speed != speed {
                self.totals.speed_changes += 1;
                self.go_back();
            }
        }
    }

    /// The rate that a speed is chosen for, from the mean of what came in.
    fn at_least_offered(&self, mean: f64, demand: f64) -> f64 {
        // A full buffer holds the host back: then what it could give counts.
        let full = self.buffer_mb >= self.model.buffer_mb.value - NOTHING_MB;
        if full { demand.max(mean) } else { mean }
    }

    fn since_now(&self) -> Since {
        Since { at_s: self.totals.elapsed_s, incoming_mb: self.incoming_mb() }
    }

    /// MB that have come in, as they go to the tape.
    fn incoming_mb(&self) -> f64 {
        self.totals.host_mb / self.ratio
    }

    /// The tape keeps its speed while nothing comes in: there is nothing to match.
    fn choose_speed(&mut self, demand: f64) {
        if demand > 0.0 {
            self.speed = self.model.speed_for(demand);
        }
    }

    /// Notices that what comes in asks for another speed, and that it no longer does.
    fn watch_speed(&mut self, demand: f64) {
        let wanted = self.model.speed_for(demand);
        let other = demand > 0.0 && (wanted - self.speed).abs() > SPEED_SHARE_MIN * self.speed;
        match (other, self.other_since) {
            (true, None) => {
                self.other_since = Some(self.since_now());
            }
            (false, Some(_)) => self.other_since = None,
            _ => {}
        }
    }
}
