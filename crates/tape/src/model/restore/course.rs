//! What the tape's ways cost a restore.

use super::{Afterwards, Reach, Restore, StartPosition};
use crate::model::geometry::{Geometry, TapePosition};
use crate::model::spec::DriveModel;

/// Where the tape stands.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct Head {
    /// Bytes from the beginning of tape; none where a cartridge that loads at its middle stands after loading.
    at: Option<u64>,
    pub(in crate::model) place: TapePosition,
}

/// A drive and a tape while a restore goes on.
pub(in crate::model) struct Course<'a> {
    model: &'a DriveModel,
    begin: Head,
    /// Bytes of the tape that go by in a second while it is read.
    pass_bytes_per_s: f64,
    /// Bytes of the tape that the target takes in a second.
    target_bytes_per_s: f64,
}

impl<'a> Course<'a> {
    pub(in crate::model) fn new(model: &'a DriveModel, restore: &Restore<'_>) -> Self {
        let ratio = restore.ratio.max(1.0);
        let pass = model.native_mb_per_s.value.min(model.ceiling_mb_per_s.value / ratio);
        let target = restore.target_mb_per_s.map_or(f64::INFINITY, |target| target / ratio);
        let begin = match restore.standing {
            StartPosition::Unloaded => {
                let place = model.geometry.load_point();
                Head { at: (!model.geometry.loads_at_middle).then_some(0), place }
            }
            StartPosition::At(byte) => head(model, byte),
        };
        Self { model, begin, pass_bytes_per_s: pass * 1e6, target_bytes_per_s: target * 1e6 }
    }

    /// Where the tape stands at first.
    pub(in crate::model) fn begin(&self) -> Head {
        self.begin
    }

    /// The target, which has nothing to do yet.
    pub(in crate::model) fn target(&self) -> Target {
        let behind_s_max = self.model.buffer_mb.value * 1e6 / self.target_bytes_per_s;
        Target { bytes_per_s: self.target_bytes_per_s, behind_s: 0.0, behind_s_max }
    }

    /// At that byte.
    pub(in crate::model) fn head(&self, byte: u64) -> Head {
        head(self.model, byte)
    }

    /// How the tape comes from one place to the other, and in how many seconds.
    pub(in crate::model) fn reach(&self, from: &Head, to: &Head) -> (Reach, f64) {
        let locate_s = self.geometry().locate_s(from.place, to.place).max(self.geometry().turn_s.value);
        match self.read_on_s(from, to) {
            Some(0.0) => (Reach::Here, 0.0),
            Some(seconds) if seconds <= locate_s => (Reach::ReadOn, seconds),
            _ => (Reach::Locate, locate_s),
        }
    }

    /// Whether no locate could be quicker than reading on, wherever the two lie.
    pub(in crate::model) fn is_near(&self, from: &Head, to: &Head) -> bool {
        self.read_on_s(from, to).is_some_and(|seconds| seconds <= self.geometry().turn_s.value)
    }

    pub(in crate::model) fn read_s(&self, len: u64) -> f64 {
        len as f64 / self.pass_bytes_per_s
    }

    pub(in crate::model) fn load_s(&self, standing: StartPosition) -> f64 {
        if standing == StartPosition::Unloaded { self.model.load_s.value } else { 0.0 }
    }

    /// Seconds to rewind and to unload.
    pub(in crate::model) fn end_s(&self, from: &Head, afterwards: Afterwards) -> (f64, f64) {
        match afterwards {
            Afterwards::Stay => (0.0, 0.0),
            Afterwards::Unload => (self.geometry().rewind_s(from.place), self.model.unload_s.value),
        }
    }

    fn geometry(&self) -> &Geometry {
        &self.model.geometry
    }

    fn read_on_s(&self, from: &Head, to: &Head) -> Option<f64> {
        let passed = to.at?.checked_sub(from.at?)?;
        Some(passed as f64 / self.pass_bytes_per_s)
    }
}

/// Where what is read goes: it may be behind by what the drive's buffer holds.
pub(in crate::model) struct Target {
    bytes_per_s: f64,
    behind_s: f64,
    behind_s_max: f64,
}

impl Target {
    /// Time in which nothing comes.
    pub(in crate::model) fn pass(&mut self, seconds: f64) {
        self.behind_s = (self.behind_s - seconds).max(0.0);
    }

    /// So many bytes come in so many seconds. Gives the seconds that they wait for room.
    pub(in crate::model) fn take(&mut self, len: u64, seconds: f64) -> f64 {
        let behind_s = (self.behind_s + len as f64 / self.bytes_per_s - seconds).max(0.0);
        self.behind_s = behind_s.min(self.behind_s_max);
        behind_s - self.behind_s
    }

    /// Seconds until it has everything.
    pub(in crate::model) fn behind_s(&self) -> f64 {
        self.behind_s
    }
}

fn head(model: &DriveModel, byte: u64) -> Head {
    let share = byte as f64 / (model.capacity_gb.value * 1e9);
    Head { at: Some(byte), place: model.geometry.place(share) }
}
