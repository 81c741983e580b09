//! Spans of time, as people type them.

/// A span of time: a whole number and its unit.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let units = [("min", 60), ("y", 31_557_600), ("d", 86_400), ("h", 3_600), ("s", 1)];
    let split = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let counted = split.and_then(|(number, seconds)| number.trim().parse::<u32>().ok()?.checked_mul(seconds));
    counted
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| format!("{text:?} is no time: give 2y, 90d, 12h, 30min or 45s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        for (text, expected) in [("45s", 45), ("30min", 1800), ("12h", 43_200), ("90d", 7_776_000), ("2y", 63_115_200)]
        {
            assert_eq!(seconds(text), Ok(expected));
        }
        for text in ["", "h", "0h", "-1h", "1.5h", "3 weeks", "137y"] {
            assert!(seconds(text).is_err_and(|error| error.contains("give 2y")), "{text}");
        }
    }
}
