//! Syncs: what each kind of drive does when the host waits for its data to be on the tape.
//!
//! A sync is answered as soon as the buffer is empty. A drive without a way around it goes back then. One that has a
//! way writes pad, and the next file gathers in the buffer meanwhile: so it has a lead over the tape, and a host that
//! wavers does not run it dry.

use std::sync::Arc;

use super::{Conversion, Engine, Motion};
use crate::model::spec::{Accelerator, VirtualBackhitch};

impl Engine {
    /// A file sync behind a file of so many MB: the host waits until the file is on the tape. Gives the seconds that it
    /// took.
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

    /// The last of it: all that is in the buffer, and on the sparse wraps, goes to its place.
    pub fn finish(&mut self) {
        if self.gathered_mb > 0.0 {
            self.drain_moving();
            self.settle_gathered();
        } else {
            self.drain();
        }
    }

    /// Small files: the file and some pad go to a sparse wrap at once, and the tape moves on while the next file comes.
    /// What was gathered is written to its own wrap when there is enough of it, which takes one backhitch.
    fn sync_sparsely(&mut self, accelerator: &Accelerator, file_mb: f64) {
        self.drain_moving();
        // Pad on the sparse wraps takes no capacity: they are written over.
        self.pad_for(accelerator.pad_s.value);
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
        let seconds = self.gathered_mb / self.model.native_mb_per_s.value;
        self.totals.elapsed_s += seconds;
        self.totals.streaming_s += seconds;
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
            self.totals.pad_mb += padding_mb;
            self.pad_for(accelerator.pad_s.value);
        }
    }

    fn sync_virtually(&mut self, virtual_backhitch: &VirtualBackhitch) {
        self.drain_moving();
        self.pad_for(virtual_backhitch.sync_s.value);
    }

    /// Drains the buffer and leaves the tape moving.
    fn drain_moving(&mut self) {
        self.step_over_pad();
        self.drain();
        if let Motion::Backhitch { .. } = self.motion {
            // Running out of data here is what the drive has a way around.
            self.totals.backhitches -= 1;
            self.motion = Motion::Streaming { speed: self.speed };
        }
    }

    /// The tape moves on and takes no data. What the host hands over meanwhile gathers in the buffer, so that a host
    /// that wavers does not run it dry at once.
    fn pad_for(&mut self, seconds: f64) {
        self.pad_until_s = self.totals.elapsed_s + seconds;
    }

    /// Pad that is being written is written to its end, although nothing comes.
    fn step_over_pad(&mut self) {
        while self.pads() {
            self.step(0.0, f64::INFINITY, self.pad_until_s);
        }
    }

    fn wait_for_tape(&mut self) {
        if let Motion::Backhitch { until } = self.motion {
            self.totals.elapsed_s = self.totals.elapsed_s.max(until);
        }
        self.start();
    }
}
