//! Logical units: what INQUIRY, reservations and unit attentions are for each, and the drives and the robot themselves.
//!
//! A unit orders its own commands by one lock; no unit waits for another but the robot for a drive, never the other way
//! round.

pub(crate) mod answer;
pub(crate) mod changer;
pub(crate) mod faults;
pub(crate) mod nexuses;
pub(crate) mod primary;
pub(crate) mod reservation;
pub(crate) mod tape;
