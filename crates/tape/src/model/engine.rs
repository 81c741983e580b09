//! The engine: what a drive does with what the host offers, event by event.
//!
//! ```text
//!            buffer >= high water, or a sync waits
//!   Stopped ----------------------------------------> Streaming(speed)
//!      ^                                                 |   |  another rate for calibration_s
//!      |  backhitch_s                buffer <= low water |   v
//!      +------------------------- Backhitch <------------+--- takes another speed: a backhitch, too
//! ```
//! The buffer holds data as it goes to the tape, behind compression. A host that finds it full waits, and from then on sees the
//! speed of the tape. A sync is answered when the buffer is empty; then nothing is left to write, and the tape must stop, unless
//! the drive has a way to keep it moving ([`Accelerator`], [`VirtualBackhitch`]).
//!
//! Bytes are conserved: what was accepted is on the tape or in the buffer. Between two events all rates are constant.

use std::sync::Arc;

use super::spec::{Accelerator, DriveModel, VirtualBackhitch};

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
    /// It writes, at so many MB/s.
    Streaming {
        /// MB/s.
        speed: f64,
    },
}

/// What happened since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
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
    /// MB on the sparse wraps that are not on their own wrap yet.
    gathered_mb: f64,
    totals: Totals,
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

/// A speed is changed for this share of it and more; less is the buffer's to even out.
const SPEED_SHARE_MIN: f64 = 0.02;
/// Less than this many MB is nothing: a thousandth of a byte.
const NOTHING_MB: f64 = 1e-9;

impl Engine {
    /// A drive that has just been loaded. `ratio`: bytes of the host for each byte on the tape, 1 for what does not compress.
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
            gathered_mb: 0.0,
            totals: Totals::default(),
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
    pub fn totals(&self) -> &Totals {
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

    /// A file sync behind a file of so many MB: the host waits until the file is on the tape. Gives the seconds that it took.
    pub fn file_sync(&mut self, file_mb: f64) -> f64 {
        if self.conversion != Conversion::None {
            return 0.0;
        }
        self.sync(file_mb)
    }

    /// A tape mark that is not buffered, behind a file of so many MB.
    pub fn tape_mark(&mut self, file_mb: f64) -> f64 {
        if self.conversion == Conversion::TapeMarks {
            return 0.0;
        }
        self.sync(file_mb)
    }

    fn sync(&mut self, file_mb: f64) -> f64 {
        let began = self.totals.elapsed_s;
        let model = Arc::clone(&self.model);
        match (self.accelerated, &model.accelerator, &model.virtual_backhitch) {
            (true, Some(accelerator), _) if file_mb < accelerator.small_file_mb.value => {
                self.sync_sparsely(accelerator, file_mb);
            }
            (true, Some(accelerator), _) => self.sync_with_pad(accelerator),
            (true, None, Some(virtual_backhitch)) => self.sync_virtually(virtual_backhitch),
            _ => {
                self.drain();
                self.go_back();
            }
        }
        let took = self.totals.elapsed_s - began;
        self.totals.host_waits_s += took;
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

    /// The last of it: all that is in the buffer, and on the sparse wraps, goes to its place.
    pub fn finish(&mut self) {
        if self.gathered_mb > 0.0 {
            self.drain_moving();
            self.settle_gathered();
        } else {
            self.drain();
        }
    }

    /// Small files: the file and some pad go to a sparse wrap at once, and the tape moves on. What was gathered is written to its
    /// own wrap when there is enough of it, which takes one backhitch.
    fn sync_sparsely(&mut self, accelerator: &Accelerator, file_mb: f64) {
        self.drain_moving();
        // Pad on the sparse wraps takes no capacity: they are written over.
        self.pass(accelerator.pad_s.value);
        self.gathered_mb += file_mb / self.ratio;
        let room_mb = self.model.buffer_mb.value * accelerator.gathered_share.value;
        if self.gathered_mb >= room_mb {
            self.settle_gathered();
        }
    }

    /// Writes what stands on the sparse wraps to its own wrap.
    fn settle_gathered(&mut self) {
        self.go_back();
        self.wait_for_tape();
        self.pass(self.gathered_mb / self.model.native_mb_per_s.value);
        self.gathered_mb = 0.0;
    }

    /// Large files: pad keeps the tape moving until the next file comes, as long as there is room for pad.
    fn sync_with_pad(&mut self, accelerator: &Accelerator) {
        self.drain_moving();
        let room_mb = self.model.capacity_gb.value * 1e3 * accelerator.large_file_pad_share.value;
        let padding_mb = self.speed * accelerator.pad_s.value;
        if self.totals.pad_mb + padding_mb > room_mb {
            self.go_back();
        } else {
            self.pad(accelerator.pad_s.value);
        }
    }

    fn sync_virtually(&mut self, virtual_backhitch: &VirtualBackhitch) {
        self.drain_moving();
        self.pass(virtual_backhitch.sync_s.value);
    }

    /// Drains the buffer and leaves the tape moving.
    fn drain_moving(&mut self) {
        self.drain();
        if let Motion::Backhitch { .. } = self.motion {
            // Running out of data here is what the drive has a way around.
            self.totals.backhitches -= 1;
            self.motion = Motion::Streaming { speed: self.speed };
        }
    }

    fn pad(&mut self, seconds: f64) {
        self.totals.pad_mb += self.speed * seconds;
        self.pass(seconds);
    }

    /// Time in which the tape moves and nothing goes in or out of the buffer.
    fn pass(&mut self, seconds: f64) {
        self.totals.elapsed_s += seconds;
        self.totals.streaming_s += seconds;
    }

    fn wait_for_tape(&mut self) {
        if let Motion::Backhitch { until } = self.motion {
            self.totals.elapsed_s = self.totals.elapsed_s.max(until);
        }
        self.start();
    }

    fn start(&mut self) {
        self.motion = Motion::Streaming { speed: self.speed };
    }

    fn go_back(&mut self) {
        if !matches!(self.motion, Motion::Backhitch { .. }) {
            self.totals.backhitches += 1;
            self.motion = Motion::Backhitch { until: self.totals.elapsed_s + self.model.backhitch_s.value };
        }
        self.other_since = None;
    }

    /// What would come in, MB/s as it goes to the tape, if the buffer had room.
    fn demand(&self, offered: f64) -> f64 {
        offered.min(self.model.ceiling_mb_per_s.value) / self.ratio
    }

    /// Up to the next event, and through it: at most `mb_max` MB of the host, at most until `until`. Gives the MB that it took.
    fn step(&mut self, offered: f64, mb_max: f64, until: f64) -> f64 {
        let capacity = self.model.buffer_mb.value;
        let (low, high) = (self.model.low_water.value * capacity, self.model.high_water.value * capacity);
        let demand = self.demand(offered);
        // With nothing to come, what is in the buffer is written to its end.
        let floor = if offered > 0.0 { low } else { 0.0 };
        self.turn(demand, floor, high);

        let full = self.buffer_mb >= capacity - NOTHING_MB;
        let outgoing = if let Motion::Streaming { speed } = self.motion { speed } else { 0.0 };
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
        // Late in a long simulation a moment may be shorter than time can tell; what it was to bring about has come about.
        let taken = if event == Event::Taken { mb_max } else { incoming * self.ratio * seconds };
        self.totals.host_mb += taken;
        self.totals.tape_mb += outgoing * seconds;
        self.buffer_mb = match event {
            Event::Reaches(level) => level,
            _ => (self.buffer_mb + (incoming - outgoing) * seconds).clamp(0.0, capacity),
        };
        if outgoing > 0.0 {
            self.totals.streaming_s += seconds;
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
            self.choose_speed(demand);
            self.start();
        }
        let Motion::Streaming { speed } = self.motion else { return };
        if speed > demand && self.buffer_mb <= floor + NOTHING_MB {
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
            // A full buffer holds the host back: then what it could give counts.
            let full = self.buffer_mb >= self.model.buffer_mb.value - NOTHING_MB;
            self.choose_speed(if full { demand.max(mean) } else { mean });
            if self.speed != speed {
                self.totals.speed_changes += 1;
                self.go_back();
            }
        }
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
                self.other_since = Some(Since { at_s: self.totals.elapsed_s, incoming_mb: self.incoming_mb() });
            }
            (false, Some(_)) => self.other_since = None,
            _ => {}
        }
    }
}
