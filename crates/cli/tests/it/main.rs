//! The command from outside, and whole jobs on drives and libraries in this process.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod access_order;
mod cartridge_serial;
mod cli;
mod laboratory;
mod local;
mod tape_faults;
mod worm;
