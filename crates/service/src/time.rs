//! Times as people and other programs read them.

/// A time in nanoseconds since 1970 in RFC 3339, in UTC and always with nine digits of a second, so that texts sort as
/// times do.
pub fn rfc3339(time_ns: i64) -> String {
    // Every number of nanoseconds in 64 bits is within what the library knows: years 1677 to 2262.
    jiff::Timestamp::from_nanosecond(time_ns.into()).map(|time| format!("{time:.9}")).unwrap_or_default()
}

/// The same for whoever reads answers as types.
pub fn time(ns: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_utc_with_nanoseconds() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(1_790_000_000_000_000_001), "2026-09-21T14:13:20.000000001Z");
        assert_eq!(rfc3339(i64::MIN), "1677-09-21T00:12:43.145224192Z");
        assert_eq!(rfc3339(i64::MAX), "2262-04-11T23:47:16.854775807Z");
    }
}
