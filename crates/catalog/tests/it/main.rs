//! The catalog from outside: recorded in any order, damaged, read by others, on both databases.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod any_order;
mod columns;
mod connection;
mod consolidated;
mod damage;
mod main_path;
mod tape;
mod volumes;
