//! Sources and the safe writer from outside: real trees, hostile streams, faults.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod extract_faults;
mod extract_hostile;
mod extract_round_trip;
mod mounts;
mod seam;
mod source;
mod torture;
