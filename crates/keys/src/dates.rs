//! Times as people read them.

/// A time for people.
pub(crate) fn date(ns: i64) -> String {
    match jiff::Timestamp::from_nanosecond(ns.into()) {
        Ok(time) => format!("{time:.0}"),
        Err(_) => format!("{ns} ns since 1970"),
    }
}
