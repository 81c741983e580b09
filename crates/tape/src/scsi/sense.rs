//! What a drive's or changer's sense data ask us to do: one table for all kinds, first match counts.
//!
//! Key, additional sense code and qualifier as in SPC-5 and SSC-5. The rule above all of them: no write ever goes to a
//! position that was not verified after a reset, a timeout or a unit attention.

/// Sense data of a failed command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// Whether it reports this command or an earlier one.
    pub about: About,
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
}

/// Qualifier of 2/04: somebody has switched the unit off at its panel, and no waiting helps.
pub(crate) const OFFLINE: u8 = 0x12;

/// Which command sense data are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The command just given (response codes 70h and 72h).
    ThisCommand,
    /// One that was acknowledged earlier (71h and 73h).
    AnEarlierCommand,
}

/// What is to be done. Of a medium error (3/xx, [`Sense::is_medium_error`]) the command has the last word: drives have
/// many codes for it, and some have the same ones for a write, a read and the way to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Everything since the last synchronous flush is uncommitted: roll back to it; the position is unknown.
    RollBack,
    /// A filemark was read.
    TakeFilemark,
    /// Programmable early warning: stop data.
    StopData,
    /// Early warning: write the trailer.
    WriteTrailer,
    /// The block was not written: go on on the next volume.
    NextVolume,
    /// End of data.
    EndOfData,
    /// The end of data is lost: recover by reading only.
    RecoverReadOnly,
    /// Recovered by the drive: count it; the trend retires the medium.
    CountRecovered,
    /// Close the volume at the last flush and copy it off.
    CloseVolume,
    /// Read in another drive, then from another copy.
    ReadElsewhere,
    /// Incompatible medium: eject, nothing was written.
    Eject,
    /// Take the drive down.
    DriveDown,
    /// Logical block protection: send once more, then take the path down.
    ResendOnce,
    /// Check label and volume change reference, locate again, load the key again, go on at the last flush.
    Reverify,
    /// The reservation is another's: stop, and never take it back unasked.
    Stop,
    /// Load the key again and check the nexus.
    ReloadKey,
    /// Write-protected: mark it and take another volume.
    AnotherVolume,
    /// Fetch the key that the block names.
    FetchKey,
    /// The block was altered: raise the alarm.
    TamperAlarm,
    /// Not ready: poll with a deadline.
    Poll,
    /// Synchronise, clean, resume.
    Clean,
    /// Take the inventory again and try once more.
    Inventory,
    /// Aborted: read the position before anything is tried again.
    ReadPosition,
}

/// One row; `None` stands for any value.
struct Row(u8, Option<u8>, Option<(u8, u8)>, Action);

const fn exactly(key: u8, asc: u8, ascq: u8, action: Action) -> Row {
    Row(key, Some(asc), Some((ascq, ascq)), action)
}

const fn between(key: u8, asc: u8, ascq: (u8, u8), action: Action) -> Row {
    Row(key, Some(asc), Some(ascq), action)
}

const fn any_qualifier(key: u8, asc: u8, action: Action) -> Row {
    Row(key, Some(asc), None, action)
}

const fn any_code(key: u8, action: Action) -> Row {
    Row(key, None, None, action)
}

const TABLE: &[Row] = &[
    exactly(0x0, 0x00, 0x01, Action::TakeFilemark),
    exactly(0x0, 0x00, 0x02, Action::WriteTrailer),
    exactly(0x0, 0x00, 0x07, Action::StopData),
    exactly(0x0, 0x00, 0x17, Action::Clean),
    exactly(0x1, 0x00, 0x17, Action::Clean),
    any_code(0x1, Action::CountRecovered),
    exactly(0x2, 0x04, 0x01, Action::Poll),
    exactly(0x2, 0x04, 0x07, Action::Poll),
    exactly(0x2, 0x30, 0x03, Action::Clean),
    any_qualifier(0x2, 0x3a, Action::Poll),
    exactly(0x3, 0x09, 0x00, Action::CloseVolume),
    exactly(0x3, 0x0c, 0x00, Action::CloseVolume),
    any_qualifier(0x3, 0x11, Action::ReadElsewhere),
    any_qualifier(0x3, 0x14, Action::ReadElsewhere),
    any_qualifier(0x3, 0x30, Action::Eject),
    exactly(0x3, 0x31, 0x00, Action::ReadElsewhere),
    exactly(0x3, 0x50, 0x00, Action::CloseVolume),
    exactly(0x4, 0x10, 0x01, Action::ResendOnce),
    between(0x4, 0x3b, (0x0d, 0x0e), Action::Inventory),
    any_code(0x4, Action::DriveDown),
    exactly(0x5, 0x30, 0x00, Action::Eject),
    between(0x5, 0x3b, (0x0d, 0x0e), Action::Inventory),
    exactly(0x5, 0x53, 0x02, Action::Inventory),
    exactly(0x6, 0x28, 0x00, Action::Reverify),
    exactly(0x6, 0x28, 0x01, Action::Inventory),
    any_qualifier(0x6, 0x29, Action::Reverify),
    between(0x6, 0x2a, (0x03, 0x05), Action::Stop),
    between(0x6, 0x2a, (0x11, 0x12), Action::ReloadKey),
    exactly(0x7, 0x26, 0x10, Action::FetchKey),
    exactly(0x7, 0x27, 0x00, Action::AnotherVolume),
    exactly(0x7, 0x2a, 0x13, Action::ReloadKey),
    exactly(0x7, 0x30, 0x05, Action::Eject),
    exactly(0x7, 0x30, 0x0c, Action::AnotherVolume),
    exactly(0x7, 0x74, 0x04, Action::TamperAlarm),
    between(0x7, 0x74, (0x01, 0x05), Action::FetchKey),
    exactly(0x8, 0x00, 0x05, Action::EndOfData),
    exactly(0x8, 0x14, 0x03, Action::RecoverReadOnly),
    any_code(0xb, Action::ReadPosition),
    exactly(0xd, 0x00, 0x02, Action::NextVolume),
];

impl Sense {
    /// What is to be done; none for a condition that the table does not know, which fails the command and nothing more.
    pub fn action(self) -> Option<Action> {
        if self.about == About::AnEarlierCommand {
            return Some(Action::RollBack);
        }
        let matches = |Row(key, asc, ascq, _): &&Row| {
            *key == self.key
                && asc.is_none_or(|asc| asc == self.asc)
                && ascq.is_none_or(|(first, last)| (first..=last).contains(&self.ascq))
        };
        TABLE.iter().find(matches).map(|Row(.., action)| *action)
    }

    /// Whether the medium failed this command where it stood. 3/30 says that the whole of it is of the wrong kind.
    pub fn is_medium_error(self) -> bool {
        self.about == About::ThisCommand && self.key == 0x3 && self.asc != 0x30
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row of the reference table "Sense to action", as it is written there.
    #[test]
    fn the_reference_table_is_covered() {
        type Codes = &'static [(u8, u8, u8)];
        let rows: &[(Codes, Action)] = &[
            (&[(0, 0, 1)], Action::TakeFilemark),
            (&[(0, 0, 2)], Action::WriteTrailer),
            (&[(0, 0, 7)], Action::StopData),
            (&[(0xd, 0, 2)], Action::NextVolume),
            (&[(8, 0, 5)], Action::EndOfData),
            (&[(8, 0x14, 3)], Action::RecoverReadOnly),
            (&[(1, 0x11, 0), (1, 0x17, 1), (1, 0xff, 0xff)], Action::CountRecovered),
            (&[(3, 0xc, 0), (3, 0x50, 0), (3, 9, 0)], Action::CloseVolume),
            (&[(3, 0x11, 0), (3, 0x11, 8), (3, 0x14, 0), (3, 0x14, 1), (3, 0x31, 0)], Action::ReadElsewhere),
            (&[(3, 0x30, 0), (3, 0x30, 2), (5, 0x30, 0), (7, 0x30, 5)], Action::Eject),
            (&[(4, 0x44, 0), (4, 0x15, 1)], Action::DriveDown),
            (&[(4, 0x10, 1)], Action::ResendOnce),
            (&[(6, 0x28, 0), (6, 0x29, 0), (6, 0x29, 4)], Action::Reverify),
            (&[(6, 0x2a, 3), (6, 0x2a, 4), (6, 0x2a, 5)], Action::Stop),
            (&[(6, 0x2a, 0x11), (6, 0x2a, 0x12), (7, 0x2a, 0x13)], Action::ReloadKey),
            (&[(7, 0x27, 0), (7, 0x30, 0xc)], Action::AnotherVolume),
            (&[(7, 0x74, 1), (7, 0x74, 2), (7, 0x74, 3), (7, 0x74, 5), (7, 0x26, 0x10)], Action::FetchKey),
            (&[(7, 0x74, 4)], Action::TamperAlarm),
            (&[(2, 4, 1), (2, 4, 7), (2, 0x3a, 0)], Action::Poll),
            (&[(0, 0, 0x17), (1, 0, 0x17), (2, 0x30, 3)], Action::Clean),
            (
                &[(4, 0x3b, 0xd), (4, 0x3b, 0xe), (5, 0x3b, 0xd), (5, 0x3b, 0xe), (5, 0x53, 2), (6, 0x28, 1)],
                Action::Inventory,
            ),
            (&[(0xb, 0, 0), (0xb, 0x44, 0)], Action::ReadPosition),
        ];
        for (senses, action) in rows {
            for (key, asc, ascq) in *senses {
                let sense = Sense { about: About::ThisCommand, key: *key, asc: *asc, ascq: *ascq };
                assert_eq!(sense.action(), Some(*action), "{key:x}/{asc:02x}/{ascq:02x}");
                let deferred = Sense { about: About::AnEarlierCommand, ..sense };
                assert_eq!(deferred.action(), Some(Action::RollBack));
            }
        }
        let unknown = Sense { about: About::ThisCommand, key: 5, asc: 0x24, ascq: 0 };
        assert_eq!(unknown.action(), None);
        let of_medium = |about, key, asc| Sense { about, key, asc, ascq: 0 }.is_medium_error();
        assert!(of_medium(About::ThisCommand, 3, 0x52) && of_medium(About::ThisCommand, 3, 0x11));
        assert!(!of_medium(About::ThisCommand, 3, 0x30) && !of_medium(About::ThisCommand, 4, 0x11));
        assert!(!of_medium(About::AnEarlierCommand, 3, 0x0c));
    }
}
