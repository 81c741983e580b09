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
//! Rates are in MB/s of 10^6 bytes, as data sheets give them; times in seconds.

mod built_in;
mod engine;
mod figure;
mod geometry;
mod spec;

pub use built_in::{built_in, built_in_names};
pub use engine::{Conversion, Engine, Motion, Totals};
pub use figure::{Figure, Origin};
pub use geometry::{Geometry, Place};
pub use spec::{Accelerator, DriveModel, ModelError, Speeds, VirtualBackhitch};
