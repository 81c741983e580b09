//! Tests of the calendar, with the zones of the zone database.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod calendar;
mod oracle;
