//! Faults that wait in a unit.

use std::path::PathBuf;

use capstan_format::Volser;
use capstan_tape::scsi::Command;

use crate::fault::{CommandClass, DeviceFault};

/// A fault that waits.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) at: CommandClass,
    pub(crate) passing: u32,
    pub(crate) fault: DeviceFault,
    /// The cartridge that it is about.
    pub(crate) cartridge: Option<(Volser, PathBuf)>,
}

/// Faults that wait in a unit, in the order in which they were ordered.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    waiting: Vec<Waiting>,
    happened: u64,
}

impl Faults {
    pub(crate) fn order(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    /// Nothing waits any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// How many have happened.
    pub(crate) fn happened(&self) -> u64 {
        self.happened
    }

    /// The fault that happens at this command, if one does.
    pub(crate) fn due(&mut self, command: &Command) -> Option<Waiting> {
        let mut due = None;
        for (number, waiting) in self.waiting.iter_mut().enumerate() {
            if !waiting.at.holds(command) {
                continue;
            }
            if waiting.passing > 0 {
                waiting.passing -= 1;
            } else if due.is_none() {
                due = Some(number);
            }
        }
        let due = due.map(|number| self.waiting.remove(number))?;
        self.happened += 1;
        Some(due)
    }
}
