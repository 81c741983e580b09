//! What the tape's ways cost a restore.

use super::geometry::{Geometry, Place};
use super::restore::{Afterwards, Reach, Restore, Standing};
use super::spec::DriveModel;

/// Where the tape stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Bytes from the beginning of tape; none where a cartridge that loads at its middle stands after loading.
    at: Option<u64>,
    pub(super) place: Place,
}

/// A drive and a tape while a restore goes on.
pub(super) struct Course<'a> {
    model: &'a DriveModel,
    begin: Head,
    /// Bytes of the tape that go by in a second while it is read and nobody waits.
    pass_bytes_per_s: f64,
    /// Bytes of the tape that are read in a second.
    read_bytes_per_s: f64,
}

impl<'a> Course<'a> {
    pub(super) fn new(model: &'a DriveModel, restore: &Restore<'_>) -> Self {
        let ratio = restore.ratio.max(1.0);
        let pass = model.native_mb_per_s.value.min(model.ceiling_mb_per_s.value / ratio);
        let read = restore.target_mb_per_s.map_or(pass, |target| pass.min(target / ratio));
        let begin = match restore.standing {
            Standing::Unloaded => {
                let place = model.geometry.load_point();
                Head { at: (!model.geometry.loads_at_middle).then_some(0), place }
            }
            Standing::At(byte) => head(model, byte),
        };
        Self { model, begin, pass_bytes_per_s: pass * 1e6, read_bytes_per_s: read * 1e6 }
    }

    /// Where the tape stands at first.
    pub(super) fn begin(&self) -> Head {
        self.begin
    }

    /// At that byte.
    pub(super) fn head(&self, byte: u64) -> Head {
        head(self.model, byte)
    }

    /// How the tape comes from one place to the other, and in how many seconds.
    pub(super) fn reach(&self, from: &Head, to: &Head) -> (Reach, f64) {
        let locate_s = self.geometry().locate_s(from.place, to.place).max(self.geometry().turn_s.value);
        match self.read_on_s(from, to) {
            Some(0.0) => (Reach::Here, 0.0),
            Some(seconds) if seconds <= locate_s => (Reach::ReadOn, seconds),
            _ => (Reach::Locate, locate_s),
        }
    }

    /// Whether no locate could be quicker than reading on, wherever the two lie.
    pub(super) fn is_near(&self, from: &Head, to: &Head) -> bool {
        self.read_on_s(from, to).is_some_and(|seconds| seconds <= self.geometry().turn_s.value)
    }

    pub(super) fn read_s(&self, len: u64) -> f64 {
        len as f64 / self.read_bytes_per_s
    }

    pub(super) fn load_s(&self, standing: Standing) -> f64 {
        if standing == Standing::Unloaded { self.model.load_s.value } else { 0.0 }
    }

    /// Seconds to rewind and to unload.
    pub(super) fn end_s(&self, from: &Head, afterwards: Afterwards) -> (f64, f64) {
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

fn head(model: &DriveModel, byte: u64) -> Head {
    let share = byte as f64 / (model.capacity_gb.value * 1e9);
    Head { at: Some(byte), place: model.geometry.place(share) }
}
