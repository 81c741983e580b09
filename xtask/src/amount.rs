//! Amounts of bytes and of other things, as people write and read them.

use std::time::Duration;

/// Reads `4096`, `64K`, `64KB`, `4G` or `4GiB`: all of them powers of 1024, as tape and disk tools have it.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let shift = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("{unit:?} is no unit; use K, M, G or T")),
    };
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number).ok_or_else(|| format!("{text:?} is too much"))
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the unit that leaves one to three digits before the point; powers of 1000, as drives are rated.
pub(crate) fn shown_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// A duration in the unit that suits it.
pub(crate) fn shown_time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..0.001 => format!("{:.0} µs", seconds * 1e6),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..100.0 => format!("{seconds:.2} s"),
        _ => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn bytes_are_read_in_powers_of_1024() {
        assert_eq!(parse_bytes("0").unwrap(), 0);
        assert_eq!(parse_bytes("4096").unwrap(), 4096);
        assert_eq!(parse_bytes("64K").unwrap(), 64 << 10);
        assert_eq!(parse_bytes("64kb").unwrap(), 64 << 10);
        assert_eq!(parse_bytes("4GiB").unwrap(), 4 << 30);
        for wrong in ["", "G", "4X", "-1", "99999999T"] {
            parse_bytes(wrong).unwrap_err();
        }
    }

    #[test]
    fn numbers_are_shown_in_groups_and_fitting_units() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(shown_bytes(999), "999 B");
        assert_eq!(shown_bytes(4_294_967_296), "4.3 GB");
        assert_eq!(shown_time(Duration::from_millis(50)), "50 ms");
    }
}
