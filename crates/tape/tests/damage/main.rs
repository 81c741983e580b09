//! Whatever happens to the files of a virtual cartridge: exact data or a typed error, and nothing else is lost.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod flips;
mod forgeries;
mod survey;
mod truncations;
