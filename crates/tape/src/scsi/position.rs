//! READ POSITION data (SSC-5, 7.7).

use super::bytes::{be32, be64, low24};

/// Where a drive stands, as it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PositionData {
    /// At the beginning of the partition.
    pub beginning: bool,
    /// Behind early warning.
    pub end: bool,
    /// Behind programmable early warning.
    pub programmable_early_warning: bool,
    /// Partition.
    pub partition: u32,
    /// Logical block number; none if the drive does not know it.
    pub lbn: Option<u64>,
    /// Filemarks in front; none if the drive does not know their number, or was not asked.
    pub file: Option<u64>,
}

impl PositionData {
    fn flags(self) -> u8 {
        let flag = |set: bool, at: u8| if set { 1 << at } else { 0 };
        flag(self.beginning, 7) | flag(self.end, 6) | flag(self.programmable_early_warning, 0)
    }

    /// Short form, 20 bytes: block numbers of 32 bits, or unknown. Nothing waits in the buffer.
    pub fn to_short(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[0] = self.flags();
        bytes[1] = self.partition as u8;
        match self.lbn.map(u32::try_from) {
            Some(Ok(lbn)) => {
                bytes[4..8].copy_from_slice(&lbn.to_be_bytes());
                bytes[8..12].copy_from_slice(&lbn.to_be_bytes());
            }
            // Position error: the number does not fit.
            Some(Err(_)) => bytes[0] |= 0x02,
            // Block position unknown.
            None => bytes[0] |= 0x04,
        }
        bytes
    }

    /// Long form, 32 bytes.
    pub fn to_long(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[0] =
            self.flags() | if self.lbn.is_none() { 0x04 } else { 0 } | if self.file.is_none() { 0x08 } else { 0 };
        bytes[4..8].copy_from_slice(&self.partition.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.lbn.unwrap_or(0).to_be_bytes());
        bytes[16..24].copy_from_slice(&self.file.unwrap_or(0).to_be_bytes());
        bytes
    }

    /// Extended form, 32 bytes.
    pub fn to_extended(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[0] = self.flags() | if self.lbn.is_none() { 0x04 } else { 0 };
        bytes[1] = self.partition as u8;
        bytes[2..4].copy_from_slice(&28u16.to_be_bytes());
        bytes[5..8].copy_from_slice(&low24(0));
        let lbn = self.lbn.unwrap_or(0).to_be_bytes();
        bytes[8..16].copy_from_slice(&lbn);
        bytes[16..24].copy_from_slice(&lbn);
        bytes
    }

    /// From the short form.
    pub fn of_short(bytes: &[u8]) -> Option<Self> {
        let flags = *bytes.first()?;
        let known = bytes.len() >= 20 && flags & 0x06 == 0;
        Some(Self {
            beginning: flags & 0x80 != 0,
            end: flags & 0x40 != 0,
            programmable_early_warning: flags & 0x01 != 0,
            partition: u32::from(*bytes.get(1)?),
            lbn: known.then(|| u64::from(be32(bytes, 4))),
            file: None,
        })
    }

    /// From the long form.
    pub fn of_long(bytes: &[u8]) -> Option<Self> {
        let flags = *bytes.first()?;
        let whole = bytes.len() >= 32;
        Some(Self {
            beginning: flags & 0x80 != 0,
            end: flags & 0x40 != 0,
            programmable_early_warning: flags & 0x01 != 0,
            partition: be32(bytes, 4),
            lbn: (whole && flags & 0x04 == 0).then(|| be64(bytes, 8)),
            file: (whole && flags & 0x08 == 0).then(|| be64(bytes, 16)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_were_said() {
        let at = PositionData {
            beginning: false,
            end: true,
            programmable_early_warning: true,
            partition: 0,
            lbn: Some(0x1_0000_0000),
            file: Some(10_000),
        };
        assert_eq!(PositionData::of_long(&at.to_long()), Some(at));
        // A number that does not fit is none; it is never another.
        assert_eq!(PositionData::of_short(&at.to_short()).and_then(|short| short.lbn), None);
        let near = PositionData { lbn: Some(7), file: None, ..at };
        assert_eq!(PositionData::of_short(&near.to_short()), Some(near));
        let lost = PositionData { lbn: None, file: None, ..at };
        assert_eq!(PositionData::of_short(&lost.to_short()), Some(lost));
        assert_eq!(PositionData::of_long(&lost.to_long()), Some(lost));
        assert_eq!(PositionData::of_long(&at.to_long()[..31]).and_then(|cut| cut.lbn), None);
    }
}
