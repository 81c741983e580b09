//! Models of real drives: how fast each takes data, and when it stops.
//!
//! A model is data, one readable file a drive (`models/`), and one engine that all of them share. The engine is a
//! discrete-event machine in virtual time: between two events every rate is constant, so a simulated hour costs as much as the
//! number of times something changes in it, and the same input gives the same output on any machine.
//!
//! ```text
//!  host --offered--> [ceiling] --accepted / ratio--> buffer --speed--> tape
//!                                                      |
//!              full: the host waits        empty: the tape stops, goes back and waits (a backhitch)
//! ```
//! Rejected: a step of fixed length (it is slow where nothing happens and wrong where much does), and a formula for the mean
//! rate (it cannot say what the host sees in the fifth second).
//!
//! The same models say how long a tape takes to get somewhere, and so in which order to restore from it ([`plan_restore`]).
//!
//! Rates are in MB/s of 10^6 bytes, as data sheets give them; times in seconds.

mod built_in;
mod course;
mod engine;
mod figure;
mod geometry;
mod restore;
mod spec;

pub(crate) use built_in::drives_for;
pub use built_in::{built_in, built_in_names};
pub use engine::{Conversion, Engine, Motion, Totals};
pub use figure::{Figure, Origin};
pub use geometry::{Geometry, Place};
pub use restore::{
    Afterwards, Extent, Reach, Restore, RestorePlan, RestoreStep, Standing, front_to_back, plan_restore,
};
pub(crate) use spec::Access;
pub use spec::{Accelerator, DriveModel, ModelError, Speeds, VirtualBackhitch};
