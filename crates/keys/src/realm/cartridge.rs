//! Cartridges by their serial numbers: which one a barcode stands on, and which others it was seen on.
//!
//! A label can be stuck on another cartridge, and the memory of a cartridge can be copied; so that the barcode is the
//! same does not mean that the tape is. A serial number is what a drive's host says that the cartridge's memory says:
//! it is no proof either, and nothing is refused for it. What does not fit is said to people.
//!
//! ```text
//! begun on it         its own, and from then on the volume's cartridge; what was seen before is history
//! appended to, read   none was known: its own, for the first block names the volume's key
//!                     another is known: noted as another, once, until the volume is begun anew
//! ```

use capstan_format::{MediumSerial, Volser};

/// Cartridges that are remembered of one barcode: the oldest are forgotten for new ones.
const SEEN_MAX: usize = 32;

/// A cartridge as a drive names it: by its barcode, and by its serial number where its memory tells that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cartridge<'a> {
    /// Its barcode.
    pub volser: &'a Volser,
    /// Its serial number.
    pub serial: Option<&'a MediumSerial>,
}

impl<'a> From<&'a Volser> for Cartridge<'a> {
    fn from(volser: &'a Volser) -> Self {
        Self { volser, serial: None }
    }
}

/// A cartridge that was seen under a barcode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenCartridge {
    /// Its serial number; none where the volume was begun on one that did not tell it.
    pub serial: Option<MediumSerial>,
    /// When it was first seen as that.
    pub since_ns: i64,
    /// As what.
    pub seen_as: SeenAs,
}

/// As what a cartridge was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenAs {
    /// The one that the volume is on.
    Own,
    /// Another one, under the same barcode.
    Another,
}

/// The cartridges that were seen under one barcode, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenCartridges(Vec<SeenCartridge>);

impl SeenCartridges {
    /// Those that were seen, in order.
    pub fn from_history(history: Vec<SeenCartridge>) -> Self {
        Self(history)
    }

    /// All of them, those that were seen first in front.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &SeenCartridge> {
        self.0.iter()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The serial number of the one that the volume is on, if that is known.
    pub fn own(&self) -> Option<&MediumSerial> {
        self.0.iter().rev().find(|seen| seen.seen_as == SeenAs::Own)?.serial.as_ref()
    }

    /// Others that were seen since the volume was begun.
    pub fn others(&self) -> impl Iterator<Item = &SeenCartridge> {
        let begun = self.0.iter().rposition(|seen| seen.seen_as == SeenAs::Own).map_or(0, |own| own + 1);
        self.0[begun..].iter()
    }

    /// The volume's own cartridge, where this is another one.
    pub fn differs(&self, serial: Option<&MediumSerial>) -> Option<&MediumSerial> {
        self.own().filter(|own| serial.is_some_and(|serial| serial != *own))
    }

    /// Whether what a life of the volume wrote is known to be gone: the cartridge that the life was begun on was begun
    /// anew, or erased, when the life ended or later. A label that moved to another cartridge says nothing of what the
    /// first one holds; nor does a cartridge that never told its serial number.
    pub fn is_overwritten(&self, begun_ns: i64, ended_ns: i64) -> bool {
        let own = || self.0.iter().filter(|seen| seen.seen_as == SeenAs::Own);
        let at = |ns: i64| own().rfind(|seen| seen.since_ns <= ns).and_then(|seen| seen.serial);
        let Some(cartridge) = at(begun_ns) else { return false };
        at(ended_ns) == Some(cartridge) || own().any(|seen| seen.since_ns > ended_ns && seen.serial == Some(cartridge))
    }

    /// Whether that the volume is seen on this one says nothing new.
    pub fn knows(&self, serial: &MediumSerial) -> bool {
        self.own() == Some(serial)
            || self.own().is_some() && self.others().any(|other| other.serial.as_ref() == Some(serial))
    }

    /// The volume was begun on this one.
    pub(crate) fn begun_on(&mut self, serial: Option<&MediumSerial>, now_ns: i64) {
        // Of one that nobody ever told anything of, nothing is noted.
        let is_known = self.own() == serial && self.others().next().is_none();
        if !is_known {
            self.push(serial.copied(), SeenAs::Own, now_ns);
        }
    }

    /// The volume was seen on this one: what it holds was read.
    pub(crate) fn seen_on(&mut self, serial: &MediumSerial, now_ns: i64) {
        if !self.knows(serial) {
            let seen_as = if self.own().is_none() { SeenAs::Own } else { SeenAs::Another };
            self.push(Some(*serial), seen_as, now_ns);
        }
    }

    fn push(&mut self, serial: Option<MediumSerial>, seen_as: SeenAs, since_ns: i64) {
        if self.0.len() >= SEEN_MAX {
            // Whose the volume is must be known, however many others come.
            let own = self.0.iter().rposition(|seen| seen.seen_as == SeenAs::Own);
            self.0.remove(usize::from(own == Some(0) && seen_as == SeenAs::Another));
        }
        self.0.push(SeenCartridge { serial, since_ns, seen_as });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn serial(text: &str) -> MediumSerial {
        text.parse().unwrap()
    }

    fn others(seen: &SeenCartridges) -> Vec<&str> {
        seen.others().filter_map(|other| other.serial.as_ref()).map(MediumSerial::as_str).collect()
    }

    #[test]
    fn another_cartridge_is_noted_once_until_the_volume_is_begun_anew() {
        let mut seen = SeenCartridges::default();
        seen.begun_on(Some(&serial("one")), 1);
        for now_ns in 2..5 {
            seen.seen_on(&serial("one"), now_ns);
            seen.seen_on(&serial("two"), now_ns);
        }
        assert_eq!((seen.own(), others(&seen), seen.len()), (Some(&serial("one")), vec!["two"], 2));
        assert_eq!(seen.differs(Some(&serial("two"))), Some(&serial("one")));
        assert!(seen.differs(Some(&serial("one"))).is_none() && seen.differs(None).is_none());

        seen.begun_on(Some(&serial("two")), 5);
        assert_eq!((seen.own(), others(&seen)), (Some(&serial("two")), vec![]));
        // The old one comes back out of a drawer.
        seen.seen_on(&serial("one"), 6);
        assert_eq!((seen.own(), others(&seen)), (Some(&serial("two")), vec!["one"]));
        let history: Vec<_> = seen.iter().map(|seen| (seen.since_ns, seen.seen_as)).collect();
        assert_eq!(history, [(1, SeenAs::Own), (2, SeenAs::Another), (5, SeenAs::Own), (6, SeenAs::Another)]);
    }

    #[test]
    fn what_was_written_is_gone_once_its_own_cartridge_was_begun_anew() {
        let mut seen = SeenCartridges::default();
        seen.begun_on(Some(&serial("one")), 1);
        // Begun anew on the same one, at 2; then under the same label on another, at 3; then the first one again, at 4.
        seen.begun_on(Some(&serial("one")), 2);
        assert!(seen.is_overwritten(1, 2));
        seen.begun_on(Some(&serial("two")), 3);
        assert!(!seen.is_overwritten(2, 3), "the first cartridge lies in a drawer as it was");
        // Somebody reads it there, and the volume that goes on on the other one is erased: that ends both by the
        // records.
        seen.seen_on(&serial("one"), 4);
        assert!(!seen.is_overwritten(2, 5) && seen.is_overwritten(3, 5));
        seen.begun_on(Some(&serial("one")), 6);
        assert!(seen.is_overwritten(2, 3) && !seen.is_overwritten(3, 6));
        // What told nothing is not known.
        seen.begun_on(None, 7);
        seen.begun_on(Some(&serial("one")), 8);
        assert!(!seen.is_overwritten(7, 8) && !seen.is_overwritten(0, 2));
        assert!(!SeenCartridges::default().is_overwritten(1, 2));
    }

    /// Movers of before tell no serial number: that the volume is on the cartridge of before is not known any more.
    #[test]
    fn what_nobody_told_is_not_known() {
        let mut seen = SeenCartridges::default();
        seen.begun_on(None, 1);
        assert_eq!(seen, SeenCartridges::default());
        seen.seen_on(&serial("one"), 2);
        seen.begun_on(None, 3);
        seen.begun_on(None, 4);
        assert_eq!((seen.own(), seen.len()), (None, 2));
        seen.seen_on(&serial("two"), 5);
        assert_eq!((seen.own(), others(&seen)), (Some(&serial("two")), vec![]));
    }

    #[test]
    fn the_own_one_is_kept_however_many_others_come() {
        let mut seen = SeenCartridges::default();
        seen.begun_on(Some(&serial("own")), 0);
        for number in 1..100 {
            seen.seen_on(&serial(&number.to_string()), number);
        }
        assert_eq!((seen.own(), seen.len()), (Some(&serial("own")), SEEN_MAX));
        assert_eq!(others(&seen).last(), Some(&"99"));
        for number in 0..100 {
            seen.begun_on(Some(&serial(&number.to_string())), number);
            assert_eq!((seen.own(), others(&seen)), (Some(&serial(&number.to_string())), vec![]));
        }
        assert_eq!(seen.len(), SEEN_MAX);
    }
}
