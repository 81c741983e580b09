//! The target that sessions belong to: its configuration, the device behind it, and who else is in.

use std::sync::Arc;

use super::registry::Registry;
use crate::device::DeviceServer;
use crate::events::{TargetEvent, TargetEvents};
use crate::iscsi::config::TargetConfig;
use crate::iscsi::faults::{Passage, WireFaults, WirePoint};

/// What all sessions of a target share.
pub(crate) struct Target {
    pub(crate) config: TargetConfig,
    pub(crate) device: Arc<dyn DeviceServer>,
    pub(crate) faults: Arc<WireFaults>,
    pub(crate) events: TargetEvents,
    pub(crate) sessions: Registry,
}

impl Target {
    /// A connection comes by a point at which a script may cut it.
    pub(crate) fn pass(&self, point: WirePoint) -> Passage {
        let passage = self.faults.pass(point);
        if passage == Passage::Cut {
            (self.events)(TargetEvent::FaultHappened { unit: "wire".to_owned(), fault: point.to_string() });
        }
        passage
    }
}
