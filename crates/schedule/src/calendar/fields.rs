//! Sets of numbers: the minutes of an hour, the days of a month.

use std::fmt::{self, Write};

/// A part of a date or of a time, with the numbers that it can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// As in messages: `hour`.
    pub(super) name: &'static str,
    pub(super) first: u8,
    pub(super) last: u8,
}

pub(super) const MONTH: Field = Field { name: "month", first: 1, last: 12 };
pub(super) const DAY: Field = Field { name: "day", first: 1, last: 31 };
pub(super) const HOUR: Field = Field { name: "hour", first: 0, last: 23 };
pub(super) const MINUTE: Field = Field { name: "minute", first: 0, last: 59 };
pub(super) const SECOND: Field = Field { name: "second", first: 0, last: 59 };

/// A set of the numbers of a field: bit n stands for the number n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) const NONE: Self = Self(0);

    /// All numbers of a field.
    pub(super) const fn all(field: Field) -> Self {
        let mut bits = 0;
        let mut number = field.first;
        while number <= field.last {
            bits |= 1 << number;
            number += 1;
        }
        Self(bits)
    }

    /// One number.
    pub(super) const fn one(number: u8) -> Self {
        Self(1 << number)
    }

    pub(super) fn insert(&mut self, number: u8) {
        self.0 |= 1 << number;
    }

    pub(super) fn contains(self, number: u8) -> bool {
        number < 64 && self.0 & (1 << number) != 0
    }

    /// The smallest number of the set that is at least this.
    pub(super) fn at_least(self, number: u8) -> Option<u8> {
        let rest = self.0.checked_shr(u32::from(number)).unwrap_or(0);
        // At most 63, because the set has 64 bits.
        (rest != 0).then(|| number + u8::try_from(rest.trailing_zeros()).unwrap_or_default())
    }

    fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |number| self.contains(*number))
    }

    /// Writes the numbers, with commas.
    pub(super) fn write_plain(self, to: &mut impl Write) -> fmt::Result {
        let mut comma = "";
        for number in self.iter() {
            write!(to, "{comma}{number:02}")?;
            comma = ",";
        }
        Ok(())
    }

    /// Writes the set as it would be typed: `*`, or `01,05..07`, or `00/15` if the numbers go on in steps to the end.
    pub(super) fn write(self, field: Field, to: &mut impl Write) -> fmt::Result {
        if self == Self::all(field) {
            return to.write_char('*');
        }
        let numbers: Vec<u8> = self.iter().collect();
        if let [first, second, third, ..] = numbers[..] {
            let step = second - first;
            let is_steady = numbers.windows(2).all(|pair| pair[1] - pair[0] == step);
            let reaches_end = numbers.last().is_some_and(|last| field.last - last < step);
            if step > 1 && third - second == step && is_steady && reaches_end {
                return write!(to, "{first:02}/{step}");
            }
        }
        let mut rest = &numbers[..];
        let mut comma = "";
        while let Some(&first) = rest.first() {
            let in_line = rest.windows(2).take_while(|pair| pair[1] == pair[0] + 1).count() + 1;
            let taken = if in_line >= 3 { in_line } else { 1 };
            match taken {
                1 => write!(to, "{comma}{first:02}")?,
                _ => write!(to, "{comma}{first:02}..{:02}", rest[taken - 1])?,
            }
            (rest, comma) = (&rest[taken..], ",");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(numbers: &[u8], field: Field) -> String {
        let mut set = Numbers::NONE;
        numbers.iter().for_each(|number| set.insert(*number));
        let mut text = String::new();
        set.write(field, &mut text).unwrap_or_default();
        text
    }

    #[test]
    fn a_set_is_written_as_it_would_be_typed() {
        assert_eq!(written(&[5], HOUR), "05");
        assert_eq!(written(&[1, 2], HOUR), "01,02");
        assert_eq!(written(&[1, 2, 3, 7, 9, 10, 11], HOUR), "01..03,07,09..11");
        assert_eq!(written(&[0, 15, 30, 45], MINUTE), "00/15");
        assert_eq!(written(&[0, 15, 30], MINUTE), "00,15,30");
        assert_eq!(written(&(0..24).collect::<Vec<_>>(), HOUR), "*");
    }

    #[test]
    fn the_next_number_is_found() {
        let mut set = Numbers::one(3);
        set.insert(63);
        assert_eq!([0, 3, 4, 63, 64].map(|number| set.at_least(number)), [Some(3), Some(3), Some(63), Some(63), None]);
    }
}
