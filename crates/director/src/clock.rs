//! The clock, held against what is recorded: what is said of it, and the word of an operator. [`Timeline`] has the
//! rules.

use capstan_catalog::{Begun, ClockDoubt, ClockReading, Object, ObjectFilter, Timeline};

use crate::site::{Site, locked};
use crate::{DirectorError, Event};

impl Site {
    /// When all objects were begun, and whether the clock is believed now.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn timeline(&self) -> Result<Timeline, DirectorError> {
        Ok(locked(&self.catalog).timeline(self.now_ns())?)
    }

    /// Notes that the clock is right now, whatever is recorded; gives what was thought of it before.
    ///
    /// # Errors
    /// The catalog cannot be written, or the state directory is read-only.
    pub fn confirm_clock(&self) -> Result<ClockReading, DirectorError> {
        let _presence = self.presence()?;
        let now_ns = self.now_ns();
        let mut catalog = locked(&self.catalog);
        let before = catalog.timeline(now_ns)?.reading();
        catalog.confirm_clock(now_ns)?;
        Ok(before)
    }

    /// Says that the clock is in doubt, if it is: what is made now is marked by that.
    pub(crate) fn say_clock(&self) -> Result<(), DirectorError> {
        let reading = self.timeline()?.reading();
        if reading.doubt.is_some() {
            (self.events)(Event::ClockDoubted { reading });
        }
        Ok(())
    }

    /// Objects of the same source as one that may have been made by `at_ns` or not: their clock was in doubt.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn undated_at(&self, object: &Object, at_ns: i64) -> Result<Vec<(Object, Begun)>, DirectorError> {
        let catalog = locked(&self.catalog);
        let timeline = catalog.timeline(self.now_ns())?;
        let (source, client) = (Some(object.source.clone()), Some(object.client.clone()));
        let of_source = catalog.objects(&ObjectFilter { source, client, ..ObjectFilter::default() })?;
        let undated = of_source.into_iter().filter_map(|object| Some((timeline.begun(object.id)?, object)));
        let undated = undated.filter(|(begun, _)| begun.from_ns <= at_ns && at_ns < begun.by_ns);
        Ok(undated.map(|(begun, object)| (object, begun)).collect())
    }
}

/// A clock in doubt, in words for an error: how far it is from the newest record, and on which side.
pub(crate) fn distance(reading: &ClockReading) -> String {
    let apart_ns = reading.newest_ns.map_or(0, |newest_ns| reading.now_ns.abs_diff(newest_ns));
    let hours = apart_ns / 3_600_000_000_000;
    let apart = match hours {
        0..2 => format!("{} minutes", apart_ns / 60_000_000_000),
        2..48 => format!("{hours} hours"),
        _ => format!("{} days", hours / 24),
    };
    match reading.doubt {
        Some(ClockDoubt::Behind) => format!("{apart} behind the newest record"),
        _ => format!("{apart} ahead of the newest record"),
    }
}
