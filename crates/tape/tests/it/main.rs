//! Drives, cartridges and libraries from outside.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod conformance;
mod damage;
mod folders;
mod golden;
mod keyed;
mod kill;
mod library;
mod model;
mod model_engine;
mod paced;
mod restore_plan;
mod scsi;
mod scsi_device;
mod several_keys;
