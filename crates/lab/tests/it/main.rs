//! Forecasts and published measurements, against what the models say.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod grid;
mod published;
