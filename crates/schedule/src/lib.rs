//! When things are due.
//!
//! A [`CalendarEvent`] says at which moments of the local clock something happens, in the grammar of systemd and
//! Proxmox. A [`Schedule`] says which run is due for a target, and what becomes of runs that were missed. A [`Window`]
//! says when something may begin.
//!
//! Everything here is a function of its arguments: nothing reads a clock, keeps a state or starts anything. So the
//! function that shows the next runs is the one that runs them.
//!
//! ```
//! use capstan_schedule::CalendarEvent;
//! use jiff::Timestamp;
//! use jiff::tz::TimeZone;
//!
//! let nightly: CalendarEvent = "mon..fri 22:30".parse()?;
//! let friday: Timestamp = "2026-11-27T23:00:00Z".parse()?;
//! let next = nightly.next_after(friday, &TimeZone::UTC);
//! assert_eq!(next, Some("2026-11-30T22:30:00Z".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Limits: times are whole seconds; years are 1970 to 2199. The room's budget is 1,500 lines.

mod calendar;
mod due;
mod window;

pub use calendar::{CalendarError, CalendarEvent};
pub use due::{CatchUp, Due, Schedule, ScheduledRun};
pub use window::{Window, WindowError};
