//! Models of real drives: how fast each takes data, and when it stops.
//!
//! A model is data, one readable file a drive (`models/`), and one engine that all of them share. The engine is a
//! discrete-event machine in virtual time: between two events every rate is constant, so a simulated hour costs as much
//! as the number of times something changes in it, and the same input gives the same output on any machine.
//!
//! ```text
//!  host --offered--> [ceiling] --accepted / ratio--> buffer --speed--> tape
//!                                                      |
//!              full: the host waits        empty: the tape stops, goes back and waits (a backhitch)
//! ```
//! Rejected: a step of fixed length (it is slow where nothing happens and wrong where much does), and a formula for the
//! mean rate (it cannot say what the host sees in the fifth second).
//!
//! The same models say how long a tape takes to get somewhere, and so in which order to restore from it
//! ([`plan_restore`]).
//!
//! ```
//! use capstan_tape::model::{Afterwards, TapeExtent, Restore, StartPosition, built_in, plan_restore};
//! let drive = built_in("LTO-9")?;
//! // The second stands on the wrap behind that of the first, back where the tape is loaded; the third is its neighbour.
//! let wrap = 18_000_000_000_000 / 280;
//! let extents = [wrap - 1_000_000, 2 * wrap - 2_000_000, 1_000_000].map(|begin| TapeExtent { begin, len: 500_000 });
//! let (standing, afterwards) = (StartPosition::Unloaded, Afterwards::Unload);
//! let plan = plan_restore(&drive, &Restore { extents: &extents, ratio: 1.0, target_mb_per_s: None, standing, afterwards });
//! assert_eq!(plan.steps.iter().map(|step| step.extent).collect::<Vec<_>>(), [2, 0, 1]);
//! # Ok::<(), capstan_tape::model::ModelError>(())
//! ```
//!
//! Rates are in MB/s of 10^6 bytes, as data sheets give them; times in seconds.

mod built_in;
mod engine;
mod figure;
mod geometry;
mod restore;
mod spec;

pub(crate) use built_in::{access_to, age_of, drives_for, encrypts, is_model};
pub use built_in::{built_in, built_in_names};
pub use engine::{Conversion, Engine, EngineTotals, Motion};
pub use figure::{Figure, Origin};
pub use geometry::{Geometry, TapePosition};
pub use restore::{
    Afterwards, Reach, Restore, RestoreSchedule, RestoreStep, StartPosition, TapeExtent, front_to_back, in_order,
    plan_restore,
};

pub use spec::{Accelerator, Access, DriveModel, ModelError, Speeds, VirtualBackhitch};
