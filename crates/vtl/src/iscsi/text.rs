//! `key=value` pairs, each ended by a zero byte (RFC 7143, section 6.1).

use thiserror::Error;

/// Longest text of one exchange, over all its PDUs.
pub(crate) const TEXT_LEN_MAX: usize = 64 * 1024;
/// Most keys of one exchange: answers to all of them, each `NotUnderstood`, fit into the 8192 bytes of a login PDU.
pub(crate) const KEYS_MAX: usize = 64;
/// Longest name of a key (RFC 7143, 6.1).
const KEY_LEN_MAX: usize = 63;
/// Longest name of an initiator or target (RFC 7143, 4.2.7.1).
pub(crate) const NAME_LEN_MAX: usize = 223;

/// What is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum TextError {
    #[error("the text is longer than {TEXT_LEN_MAX} bytes")]
    TooLong,
    #[error("the text has more than {KEYS_MAX} keys")]
    TooManyKeys,
    #[error("the text is not key=value")]
    Malformed,
}

/// The pairs of a text, in order.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    if text.len() > TEXT_LEN_MAX {
        return Err(TextError::TooLong);
    }
    let mut pairs = Vec::new();
    for pair in text.split(|&byte| byte == 0).filter(|pair| !pair.is_empty()) {
        if pairs.len() == KEYS_MAX {
            return Err(TextError::TooManyKeys);
        }
        let pair = std::str::from_utf8(pair).map_err(|_| TextError::Malformed)?;
        let (key, value) = pair.split_once('=').ok_or(TextError::Malformed)?;
        let named = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte));
        if key.is_empty() || key.len() > KEY_LEN_MAX || !named || value.chars().any(char::is_control) {
            return Err(TextError::Malformed);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Appends a pair.
pub(crate) fn put(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend_from_slice(key.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    text.push(0);
}

/// A number as RFC 7143 writes it: decimal, or hexadecimal behind `0x`.
pub(crate) fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok(),
        None if !value.starts_with('+') => value.parse().ok(),
        _ => None,
    }
}

/// Bytes as a large binary value, in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// A large binary value: hexadecimal behind `0x`, base64 behind `0b`.
pub(crate) fn binary(value: &str) -> Option<Vec<u8>> {
    let (prefix, digits) = value.split_at_checked(2)?;
    match prefix {
        "0x" | "0X" => from_hex(digits.as_bytes()),
        "0b" | "0B" => from_base64(digits.as_bytes()),
        _ => None,
    }
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    // An odd number of digits has lost its leading zero.
    let (odd, pairs) = digits.split_at(digits.len() % 2);
    let mut bytes: Vec<u8> = odd.iter().map(|&digit| nibble(digit)).collect::<Option<_>>()?;
    for pair in pairs.chunks_exact(2) {
        bytes.push(nibble(pair[0])? << 4 | nibble(pair[1])?);
    }
    Some(bytes)
}

fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = digits.strip_suffix(b"==").or_else(|| digits.strip_suffix(b"=")).unwrap_or(digits);
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(digits.len() * 3 / 4), 0u32, 0);
    for digit in digits {
        let value = ALPHABET.iter().position(|letter| letter == digit)?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    // Six bits alone are no byte.
    (count != 6).then_some(bytes)
}

/// Whether this can name an initiator or a target: `iqn.`, `eui.` or `naa.`, of a length that the standard allows.
pub(crate) fn is_name(name: &str) -> bool {
    let kinds = ["iqn.", "eui.", "naa."];
    name.len() <= NAME_LEN_MAX
        && kinds
            .iter()
            .any(|kind| name.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(kind)) && name.len() > 4)
        && name.chars().all(|letter| letter.is_alphanumeric() || ".-:_".contains(letter))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn text_is_written_and_read() {
        let mut text = Vec::new();
        put(&mut text, "InitiatorName", "iqn.2026-01.example:a");
        put(&mut text, "X-odd", "a=b");
        put(&mut text, "SendTargets", "");
        let pairs = [("InitiatorName", "iqn.2026-01.example:a"), ("X-odd", "a=b"), ("SendTargets", "")];
        assert_eq!(parse(&text).unwrap(), pairs);
    }

    #[test]
    fn text_that_is_none_is_refused() {
        assert_eq!(parse(b"no sign\0"), Err(TextError::Malformed));
        assert_eq!(parse(b"=value\0"), Err(TextError::Malformed));
        assert_eq!(parse(b"key=\xff\0"), Err(TextError::Malformed));
        assert_eq!(parse(b"key=a\nb\0"), Err(TextError::Malformed));
        assert_eq!(parse(&[b'a'; 70].map(|letter| letter)), Err(TextError::Malformed));
        assert_eq!(parse(&vec![b'a'; TEXT_LEN_MAX + 1]), Err(TextError::TooLong));
        assert_eq!(parse(&b"a=b\0".repeat(KEYS_MAX + 1)), Err(TextError::TooManyKeys));
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!((number("262144"), number("0x40000"), number("0X1f")), (Some(262_144), Some(262_144), Some(31)));
        assert_eq!(
            (number("4294967296"), number("-1"), number("+1"), number("0x+1"), number("")),
            (None, None, None, None, None)
        );
    }

    #[test]
    fn binary_values_are_hexadecimal_or_base64() {
        assert_eq!(binary(&hex(&[0, 0xab, 255])), Some(vec![0, 0xab, 255]));
        assert_eq!(binary("0xabc"), Some(vec![0x0a, 0xbc]));
        assert_eq!(binary("0bTWFu"), Some(b"Man".to_vec()));
        assert_eq!(binary("0bTWE="), Some(b"Ma".to_vec()));
        assert_eq!(binary("0bTQ=="), Some(b"M".to_vec()));
        assert_eq!((binary("0bT"), binary("0x0g"), binary("abc"), binary("0")), (None, None, None, None));
    }

    #[test]
    fn names_are_checked() {
        assert!(is_name("iqn.2026-01.example:a_b") && is_name("eui.02004567A425678D"));
        assert!(!is_name("iqn.") && !is_name("disk") && !is_name("iqn.2026-01.example:a b"));
        assert!(!is_name(&format!("iqn.{}", "a".repeat(NAME_LEN_MAX))));
    }
}
