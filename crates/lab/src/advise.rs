//! Advice: what each configuration would give at this site, where each is narrowest, and what to change.
//!
//! ```text
//!             what was measured here                          a drive's model, or a drive measured here
//!                      |                                                     |
//!   source(connections)   processors / cost of a MB   network        the engine in virtual time
//!                      \            |                  /                     |
//!                       `------ what comes in -------'  --> block pool --> drive (or disk, then drive)
//! ```
//! [`SiteFigures`] holds what was measured of one source. [`SiteFigures::forecast`] predicts a [`Setting`]: three
//! times, with the least, the middle and the most that each part gave, so that a forecast is as sure as the
//! measurements it stands on. [`advise`] looks for the setting that gives most and says which changes lead there, the
//! most useful first. No rule of thumb is typed in: that 8 connections are enough, or that a pool is too small, comes
//! out of forecasts.

mod advice;
mod doubt;
mod error;
mod figures;
mod forecast;
mod learned;
mod setting;
mod stream;
mod trial;

pub use advice::{Advice, Fit, Lever, SettingChange, advise, interval};
pub use doubt::Disagreement;
pub use error::AdviseError;
pub use figures::SiteFigures;
pub use forecast::Forecast;
pub use learned::{Learned, Misses};
pub use setting::{Route, Setting, TapeDrive};
pub use trial::{Trial, TrialError, try_setting};
