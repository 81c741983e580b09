//! Log pages (SPC-5, 7.3; SSC-5, 8.2): parameters by number.
//!
//! ```text
//!   0  1  bit 6 SPF, bits 5-0 page code      each parameter:  0  2  number
//!   1  1  subpage                                             2  1  control
//!   2  2  length of what follows                              3  1  length
//!   4     parameters                                          4     value
//! ```

use super::bytes::be16;

/// Pages that matter here.
pub mod page {
    /// Which pages there are.
    pub const SUPPORTED: u8 = 0x00;
    /// Errors of writing, corrected and not.
    pub const WRITE_ERRORS: u8 = 0x02;
    /// Errors of reading, corrected and not.
    pub const READ_ERRORS: u8 = 0x03;
    /// Bytes from and to hosts and the medium; cleaning.
    pub const SEQUENTIAL: u8 = 0x0c;
    /// Status of the data transfer device.
    pub const DEVICE_STATUS: u8 = 0x11;
    /// TapeAlert flags, as bits.
    pub const TAPE_ALERT_RESPONSE: u8 = 0x12;
    /// Lifetime of the drive: loads, hours, metres of tape.
    pub const DEVICE_STATISTICS: u8 = 0x14;
    /// The loaded volume.
    pub const VOLUME_STATISTICS: u8 = 0x17;
    /// Compression.
    pub const COMPRESSION: u8 = 0x1b;
    /// TapeAlert flags, one parameter each. Reading it clears them.
    pub const TAPE_ALERT: u8 = 0x2e;
    /// Capacity in MiB, of older drives.
    pub const CAPACITY: u8 = 0x31;
}

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its number.
    pub number: u16,
    /// Its value, big-endian where it is a number.
    pub value: Vec<u8>,
}

impl Parameter {
    /// A number in as few bytes as its type has.
    pub fn new<const LEN: usize>(number: u16, value: [u8; LEN]) -> Self {
        Self { number, value: value.to_vec() }
    }

    /// Its value as a number; more than eight bytes are none.
    pub fn as_number(&self) -> Option<u64> {
        (self.value.len() <= 8).then(|| self.value.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }
}

/// A page as the device returns it, from the parameter `from` on.
pub fn encode(page: u8, parameters: &[Parameter], from: u16) -> Vec<u8> {
    let mut bytes = vec![page, 0, 0, 0];
    for parameter in parameters.iter().filter(|parameter| parameter.number >= from) {
        bytes.extend_from_slice(&parameter.number.to_be_bytes());
        // A binary number that is not saved.
        bytes.extend_from_slice(&[0x23, parameter.value.len() as u8]);
        bytes.extend_from_slice(&parameter.value);
    }
    let len = (bytes.len() - 4) as u16;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// The parameters of a page; none if it is another page. What is cut off is left out.
pub fn decode(page: u8, bytes: &[u8]) -> Option<Vec<Parameter>> {
    if bytes.first()? & 0x3f != page {
        return None;
    }
    let end = (4 + usize::from(be16(bytes, 2))).min(bytes.len());
    let mut left = bytes.get(4..end)?;
    let mut found = Vec::new();
    while left.len() >= 4 {
        let Some(value) = left.get(4..4 + usize::from(left[3])) else { break };
        found.push(Parameter { number: be16(left, 0), value: value.to_vec() });
        left = &left[4 + value.len()..];
    }
    Some(found)
}

/// What an operator is to do about an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertDemand {
    /// To know of it: drive or medium may be to blame, or nobody.
    Attention,
    /// To write on another medium: this one is worn, damaged, or not what it should be.
    OtherMedium,
    /// To clean the drive.
    Cleaning,
    /// To have the drive repaired.
    Repair,
}

/// A flag that a drive has raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapeAlert {
    /// Its number (SSC-5, annex A).
    pub flag: u16,
    /// What it means and what to do; none for flags of the vendor.
    pub meaning: Option<&'static str>,
    /// What is to be done.
    pub demand: AlertDemand,
}

impl TapeAlert {
    /// The flag of a number, as it is kept.
    pub fn of_flag(flag: u16) -> Self {
        match TAPE_ALERTS.iter().find(|(number, ..)| *number == flag) {
            Some((_, demand, text)) => Self { flag, meaning: Some(text), demand: *demand },
            None => Self { flag, meaning: None, demand: AlertDemand::Attention },
        }
    }
}

/// TapeAlert flags (SSC-5, annex A), by number; those that are missing are obsolete or reserved.
const TAPE_ALERTS: &[(u16, AlertDemand, &str)] = &[
    (1, AlertDemand::Attention, "read warning: the drive has trouble reading"),
    (2, AlertDemand::Attention, "write warning: the drive has trouble writing"),
    (3, AlertDemand::Attention, "hard error: data could not be read or written"),
    (4, AlertDemand::OtherMedium, "the medium can no longer be written or read: copy what is on it to another one"),
    (5, AlertDemand::Attention, "the tape is damaged, or the drive is: the read failed"),
    (6, AlertDemand::Attention, "the tape is damaged, or the drive is: the write failed"),
    (7, AlertDemand::OtherMedium, "the medium has reached the end of its life: copy it to a new one"),
    (8, AlertDemand::OtherMedium, "not of data grade: use another medium"),
    (9, AlertDemand::Attention, "the medium is write-protected"),
    (10, AlertDemand::Attention, "removal of the medium is prevented"),
    (11, AlertDemand::Attention, "a cleaning cartridge is in the drive"),
    (12, AlertDemand::Attention, "the cartridge is of a kind that this drive does not take"),
    (
        13,
        AlertDemand::OtherMedium,
        "the tape has broken, or the cartridge is damaged: it can be taken out, not used again",
    ),
    (
        14,
        AlertDemand::Repair,
        "the tape has broken in the drive, or the cartridge is damaged and stuck: call the drive's service",
    ),
    (15, AlertDemand::OtherMedium, "the cartridge's memory has failed"),
    (16, AlertDemand::Attention, "the medium was ejected by force in mid-operation"),
    (17, AlertDemand::Attention, "the medium is of a format that the drive only reads"),
    (18, AlertDemand::Attention, "the tape directory is damaged: searching is slow until it is read to its end"),
    (19, AlertDemand::OtherMedium, "the medium is nearly worn out"),
    (20, AlertDemand::Cleaning, "the drive must be cleaned now"),
    (21, AlertDemand::Cleaning, "the drive is due for its periodic cleaning"),
    (22, AlertDemand::Attention, "the cleaning cartridge is used up"),
    (23, AlertDemand::Attention, "not a cleaning cartridge that this drive takes"),
    (24, AlertDemand::Attention, "the tape should be retensioned: wind it to its end and back"),
    (25, AlertDemand::Attention, "an interface of the drive has trouble, or only one of two works: look at its cables"),
    (26, AlertDemand::Repair, "a fan in the drive or its enclosure has failed"),
    (
        27,
        AlertDemand::Repair,
        "a power supply of the drive or its enclosure has failed: replace it while the other one works",
    ),
    (28, AlertDemand::Attention, "the drive takes more power than it should"),
    (29, AlertDemand::Attention, "the drive is due for preventive maintenance"),
    (30, AlertDemand::Repair, "the drive's hardware failed: it must be reset"),
    (31, AlertDemand::Repair, "the drive's hardware failed: it must be repaired"),
    (32, AlertDemand::Attention, "the host interface has trouble"),
    (33, AlertDemand::Attention, "the operation failed: take the cartridge out, put it in again, and try once more"),
    (34, AlertDemand::Attention, "new firmware was not taken: it is the wrong one, or came damaged"),
    (35, AlertDemand::Attention, "the air in the drive is too humid or too dry"),
    (36, AlertDemand::Attention, "the drive is too hot, or too cold"),
    (37, AlertDemand::Attention, "the drive's supply voltage is out of its limits"),
    (38, AlertDemand::Repair, "the drive expects its hardware to fail: have it looked at before it does"),
    (39, AlertDemand::Repair, "the drive may have failed: run its diagnostics"),
    (50, AlertDemand::Attention, "statistics of the medium were lost"),
    (51, AlertDemand::Attention, "the tape directory is wrong: it is made anew while the tape is read"),
    (52, AlertDemand::OtherMedium, "the tape could not write its system area"),
    (53, AlertDemand::OtherMedium, "the tape could not read its system area"),
    (54, AlertDemand::OtherMedium, "the start of data was not found"),
    (55, AlertDemand::Attention, "the tape could not be loaded"),
    (56, AlertDemand::Repair, "the cartridge cannot be unloaded: it is stuck in the drive; call its service"),
    (57, AlertDemand::Attention, "drive and library do not understand each other: look at the connection between them"),
    (58, AlertDemand::Attention, "the drive's firmware has failed: reset the drive, and update the firmware"),
    (59, AlertDemand::OtherMedium, "the medium is not a genuine WORM cartridge"),
    (60, AlertDemand::Attention, "a write over what is on a WORM cartridge was tried, and refused"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_as_they_were_made() {
        let parameters = [Parameter::new(0x0000, 5u64.to_be_bytes()), Parameter::new(0x0100, [1])];
        let bytes = encode(page::SEQUENTIAL, &parameters, 0);
        assert_eq!(&bytes[..8], [0x0c, 0, 0, 17, 0, 0, 0x23, 8]);
        assert_eq!(decode(page::SEQUENTIAL, &bytes), Some(parameters.to_vec()));
        assert_eq!(decode(page::SEQUENTIAL, &encode(page::SEQUENTIAL, &parameters, 1)), Some(parameters[1..].to_vec()));
        assert_eq!(decode(page::TAPE_ALERT, &bytes), None);
        for len in 0..bytes.len() {
            let _ = decode(page::SEQUENTIAL, &bytes[..len]);
        }
    }

    #[test]
    fn an_alert_says_what_is_to_be_done() {
        assert_eq!(TapeAlert::of_flag(7).demand, AlertDemand::OtherMedium);
        assert_eq!(TapeAlert::of_flag(20).demand, AlertDemand::Cleaning);
        assert_eq!(TapeAlert::of_flag(31).demand, AlertDemand::Repair);
        let unknown = TapeAlert { flag: 64, meaning: None, demand: AlertDemand::Attention };
        assert_eq!(TapeAlert::of_flag(64), unknown);
        let unnamed: Vec<u16> = (1..=60).filter(|flag| TapeAlert::of_flag(*flag).meaning.is_none()).collect();
        assert_eq!(unnamed, (40..=49).collect::<Vec<_>>(), "obsolete or reserved in the standard");
        assert!(TAPE_ALERTS.is_sorted_by_key(|(number, ..)| *number));
    }
}
