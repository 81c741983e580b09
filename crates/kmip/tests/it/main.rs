//! KMIP messages and the engine behind them, as clients meet them.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod client;
mod engine;
mod generations;
mod hostile;
mod million;
mod oasis;
