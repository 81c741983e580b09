//! How long commands may take: as the device reports it (SPC-5, 6.35), or as the table says.
//!
//! A command that is given up while the drive still works on it costs the session, so the table is generous.

use std::collections::HashMap;
use std::time::Duration;

use crate::scsi::bytes::{be16, be32};
use crate::scsi::command::cdb_len;

/// Commands whose time-out the device did not tell: operation codes and seconds. Of the rest of the mount that an LTO-9
/// drive takes longest for: its vendors' tables. LOAD calibrates an LTO-9 cartridge for up to two hours.
const DRIVE_TABLE: &[(&[u8], u64)] = &[
    (&[0x08, 0x88], 2340),                   // READ
    (&[0x0a, 0x8a], 1500),                   // WRITE
    (&[0x10, 0x80], 1620),                   // WRITE FILEMARKS
    (&[0x11, 0x91, 0x2b, 0x92, 0x01], 2940), // SPACE, LOCATE, REWIND
    (&[0x1b], 7800),                         // LOAD UNLOAD
    (&[0x19, 0x93], 28_800),                 // ERASE
    (&[0x13], 19_500),                       // VERIFY
];

const CHANGER_TABLE: &[(&[u8], u64)] = &[
    (&[0xa5, 0xa6, 0x2b], 1800), // MOVE MEDIUM, EXCHANGE MEDIUM, POSITION TO ELEMENT
    (&[0x07, 0x37, 0xe7], 7200), // INITIALIZE ELEMENT STATUS
    (&[0xb8], 600),              // READ ELEMENT STATUS
];

/// For every other command.
const OTHERS_S: u64 = 300;

/// Nothing is given up sooner, whatever a device recommends: its path may have to recover first.
const SHORTEST: Duration = Duration::from_secs(30);

/// Time-outs of one device.
#[derive(Debug, Clone)]
pub(super) struct Timeouts {
    reported: HashMap<(u8, u16), Duration>,
    table: &'static [(&'static [u8], u64)],
}

impl Timeouts {
    /// Of a drive that has reported none.
    pub(super) fn of_drive() -> Self {
        Self { reported: HashMap::new(), table: DRIVE_TABLE }
    }

    /// Of a changer.
    pub(super) fn of_changer() -> Self {
        Self { reported: HashMap::new(), table: CHANGER_TABLE }
    }

    /// Takes what the device reports: REPORT SUPPORTED OPERATION CODES data of all commands with their time-outs.
    ///
    /// ```text
    ///   0  4  length of what follows        each command:  0  1  operation code
    ///                                                      2  2  service action
    ///                                                      5  1  bit 1 CTDP, bit 0 SERVACTV
    ///                                                      6  2  length of the CDB
    ///                                          with CTDP:  8  2  0Ah
    ///                                                     12  4  nominal, seconds
    ///                                                     16  4  recommended, seconds
    /// ```
    pub(super) fn take_reported(&mut self, bytes: &[u8]) {
        let end = (4 + be32(bytes, 0) as usize).min(bytes.len());
        let mut left = bytes.get(4..end).unwrap_or_default();
        while left.len() >= 8 {
            let has_timeout = left[5] & 0x02 != 0;
            let len = if has_timeout { 10 + usize::from(be16(left, 8)) } else { 8 };
            let action = if left[5] & 0x01 != 0 { be16(left, 2) } else { 0 };
            let seconds = if has_timeout && len >= 20 { be32(left, 12).max(be32(left, 16)) } else { 0 };
            if seconds > 0 {
                self.reported.insert((left[0], action), Duration::from_secs(u64::from(seconds)).max(SHORTEST));
            }
            left = left.get(len..).unwrap_or_default();
        }
    }

    /// Of this command.
    pub(super) fn of(&self, cdb: &[u8]) -> Duration {
        let opcode = cdb.first().copied().unwrap_or(0);
        let action = if cdb_len(opcode) == Some(12) { u16::from(cdb.get(1).copied().unwrap_or(0) & 0x1f) } else { 0 };
        let reported = self.reported.get(&(opcode, action)).or_else(|| self.reported.get(&(opcode, 0)));
        let listed = self.table.iter().find(|(opcodes, _)| opcodes.contains(&opcode)).map_or(OTHERS_S, |(_, s)| *s);
        reported.copied().unwrap_or(Duration::from_secs(listed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_reports_goes_before_the_table() {
        let mut timeouts = Timeouts::of_drive();
        let mut bytes = vec![0, 0, 0, 48];
        bytes.extend_from_slice(&[0x0a, 0, 0, 0, 0, 0x02, 0, 6, 0, 10, 0, 0, 0, 0, 0, 20, 0, 0, 0x05, 0xdd]);
        bytes.extend_from_slice(&[0x08, 0, 0, 0, 0, 0x00, 0, 6]);
        bytes.extend_from_slice(&[0x10, 0, 0, 0, 0, 0x02, 0, 6, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        timeouts.take_reported(&bytes);
        assert_eq!(timeouts.of(&[0x0a, 0, 0, 0, 1, 0]).as_secs(), 1501);
        assert_eq!(timeouts.of(&[0x08, 0, 0, 0, 1, 0]).as_secs(), 2340, "reported without a time-out");
        assert_eq!(timeouts.of(&[0x10, 0, 0, 0, 1, 0]).as_secs(), 1620, "reported as zero");
        assert_eq!(timeouts.of(&[0x12, 0, 0, 0, 1, 0]).as_secs(), OTHERS_S);
        for len in 0..bytes.len() {
            Timeouts::of_drive().take_reported(&bytes[..len]);
        }
    }
}
