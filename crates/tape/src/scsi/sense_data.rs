//! Sense data as bytes: fixed format (response codes 70h, 71h) both ways, descriptor format (72h, 73h) as it is read.
//!
//! ```text
//! fixed format (SPC-5, 4.4.3)
//!   0  1  bit 7 VALID, bits 6-0 response code
//!   2  1  bit 7 FILEMARK, bit 6 EOM, bit 5 ILI, bits 3-0 sense key
//!   3  4  information: for READ and SPACE what was asked for less what was done, signed
//!   7  1  additional length: 10
//!  12  2  additional sense code, qualifier
//!  15  3  sense-key specific: bit 7 SKSV, bit 6 C/D, field pointer in bytes 16-17
//! ```

use super::bytes::{be16, be32, be64};
use super::sense::{About, Sense};

/// Sense keys (SPC-5, table 48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's own names")]
pub enum SenseKey {
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    BlankCheck = 0x8,
    AbortedCommand = 0xb,
    VolumeOverflow = 0xd,
    Miscompare = 0xe,
}

/// What a device says of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenseData {
    /// Key, code and qualifier, and what they are about.
    pub sense: Sense,
    /// What was asked for less what was done, where that is said: blocks, filemarks or bytes.
    pub residual: Option<i64>,
    /// A filemark was met.
    pub filemark: bool,
    /// The end or the beginning of the medium was met, or early warning lies behind.
    pub end_of_medium: bool,
    /// The block had another length.
    pub incorrect_length: bool,
    /// The byte of the command (`true`) or of its data (`false`) that is not understood.
    pub field: Option<(bool, u16)>,
}

impl SenseData {
    /// Key, code and qualifier about this command, and nothing more.
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self {
            sense: Sense { about: About::ThisCommand, key: key as u8, asc, ascq },
            residual: None,
            filemark: false,
            end_of_medium: false,
            incorrect_length: false,
            field: None,
        }
    }

    /// The same about an earlier command.
    #[must_use]
    pub fn deferred(mut self) -> Self {
        self.sense.about = About::AnEarlierCommand;
        self
    }

    /// The same with a residual.
    #[must_use]
    pub fn with_residual(self, residual: i64) -> Self {
        Self { residual: Some(residual), ..self }
    }

    /// Key, code and qualifier as one value to match on.
    pub fn codes(&self) -> (u8, u8, u8) {
        (self.sense.key, self.sense.asc, self.sense.ascq)
    }

    /// In fixed format, 18 bytes.
    pub fn to_bytes(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0] = match self.sense.about {
            About::ThisCommand => 0x70,
            About::AnEarlierCommand => 0x71,
        };
        if let Some(residual) = self.residual
            && let Ok(information) = i32::try_from(residual)
        {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        let flag = |set: bool, bit: u8| if set { 1 << bit } else { 0 };
        bytes[2] =
            self.sense.key | flag(self.filemark, 7) | flag(self.end_of_medium, 6) | flag(self.incorrect_length, 5);
        bytes[7] = 10;
        bytes[12] = self.sense.asc;
        bytes[13] = self.sense.ascq;
        if let Some((in_command, field)) = self.field {
            bytes[15] = 0x80 | flag(in_command, 6);
            bytes[16..18].copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// From either format; none if it is neither, or too short to say anything.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let code = bytes.first()? & 0x7f;
        let about = if matches!(code, 0x71 | 0x73) { About::AnEarlierCommand } else { About::ThisCommand };
        match code {
            0x70 | 0x71 if bytes.len() >= 8 => {
                let at = |at: usize| bytes.get(at).copied().unwrap_or(0);
                let valid = bytes[0] & 0x80 != 0;
                Some(Self {
                    sense: Sense { about, key: bytes[2] & 0x0f, asc: at(12), ascq: at(13) },
                    residual: valid.then(|| i64::from(be32(bytes, 3).cast_signed())),
                    filemark: bytes[2] & 0x80 != 0,
                    end_of_medium: bytes[2] & 0x40 != 0,
                    incorrect_length: bytes[2] & 0x20 != 0,
                    field: (at(15) & 0x80 != 0).then(|| (at(15) & 0x40 != 0, be16(bytes, 16))),
                })
            }
            0x72 | 0x73 if bytes.len() >= 8 => {
                let mut data = Self {
                    sense: Sense { about, key: bytes[1] & 0x0f, asc: bytes[2], ascq: bytes[3] },
                    residual: None,
                    filemark: false,
                    end_of_medium: false,
                    incorrect_length: false,
                    field: None,
                };
                data.add_descriptors(&bytes[8..]);
                Some(data)
            }
            _ => None,
        }
    }

    /// Information (00h), sense-key specific (02h) and stream commands (04h) descriptors; others are passed over.
    fn add_descriptors(&mut self, mut left: &[u8]) {
        while let [kind, len, rest @ ..] = left {
            let Some(body) = rest.get(..usize::from(*len)) else { return };
            match kind {
                0x00 if body.len() >= 10 && body[0] & 0x80 != 0 => self.residual = Some(be64(body, 2).cast_signed()),
                0x02 if body.len() >= 5 && body[2] & 0x80 != 0 => {
                    self.field = Some((body[2] & 0x40 != 0, be16(body, 3)));
                }
                0x04 if body.len() >= 2 => {
                    self.filemark = body[1] & 0x80 != 0;
                    self.end_of_medium = body[1] & 0x40 != 0;
                    self.incorrect_length = body[1] & 0x20 != 0;
                }
                _ => {}
            }
            left = &rest[body.len()..];
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn fixed_format_says_what_was_put_in() {
        let met = SenseData {
            filemark: true,
            end_of_medium: true,
            incorrect_length: true,
            field: Some((true, 0x0102)),
            ..SenseData::new(SenseKey::NoSense, 0x00, 0x01).with_residual(-3).deferred()
        };
        assert_eq!(SenseData::of_bytes(&met.to_bytes()), Some(met));
    }

    /// A filemark met by a READ(6) of 1000 bytes, as SSC-5 wants it.
    #[test]
    fn bytes_stand_where_the_standard_has_them() {
        let met = SenseData { filemark: true, ..SenseData::new(SenseKey::NoSense, 0x00, 0x01).with_residual(1000) };
        let expected = [0xf0, 0, 0x80, 0, 0, 0x03, 0xe8, 10, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(met.to_bytes(), expected);
    }

    #[test]
    fn descriptors_are_read() {
        let bytes = [
            0x73, 0x00, 0x00, 0x01, 0, 0, 0, 16, // response, key, codes, length
            0x00, 0x0a, 0x80, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, // information: -2
            0x04, 0x02, 0x00, 0xc0, // filemark, end of medium
        ];
        let data = SenseData::of_bytes(&bytes).unwrap();
        assert_eq!(data.residual, Some(-2));
        assert!(data.filemark && data.end_of_medium && !data.incorrect_length);
        assert_eq!(data.sense.about, About::AnEarlierCommand);
    }

    #[test]
    fn cut_off_data_are_no_panic() {
        let bytes = [0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        for len in 0..bytes.len() {
            let _ = SenseData::of_bytes(&bytes[..len]);
        }
    }
}
