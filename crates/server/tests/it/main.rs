//! A server over a site on a virtual library, by a clock of the tests' own.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cell;
mod files;
mod going_on;
mod openapi;
mod own_objects;
mod place;
mod restore_queue;
mod serving;
mod tasks;
mod telling;
mod upkeep;
mod users;
