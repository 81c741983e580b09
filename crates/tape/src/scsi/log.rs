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

/// TapeAlert flags that matter here (SSC-5, annex A), by number.
pub const TAPE_ALERTS: &[(u16, &str)] = &[
    (1, "read warning: the drive has trouble reading"),
    (2, "write warning: the drive has trouble writing"),
    (3, "hard error: data could not be read or written"),
    (4, "the medium can no longer be written or read: copy what is on it to another one"),
    (5, "the tape is damaged, or the drive is: the read failed"),
    (6, "the tape is damaged, or the drive is: the write failed"),
    (7, "the medium has reached the end of its life: copy it to a new one"),
    (8, "not of data grade: use another medium"),
    (9, "the medium is write-protected"),
    (10, "removal of the medium is prevented"),
    (11, "a cleaning cartridge is in the drive"),
    (15, "the cartridge's memory has failed"),
    (16, "the medium was ejected by force in mid-operation"),
    (17, "the medium is of a format that the drive only reads"),
    (18, "the tape directory is damaged: searching is slow until it is read to its end"),
    (19, "the medium is nearly worn out"),
    (20, "the drive must be cleaned now"),
    (21, "the drive is due for its periodic cleaning"),
    (22, "the cleaning cartridge is used up"),
    (23, "not a cleaning cartridge that this drive takes"),
    (30, "the drive's hardware failed: it must be reset"),
    (31, "the drive's hardware failed: it must be repaired"),
    (32, "the host interface has trouble"),
    (36, "the drive is too hot"),
    (50, "statistics of the medium were lost"),
    (51, "the tape directory is wrong: it is made anew while the tape is read"),
    (52, "the tape could not write its system area"),
    (53, "the tape could not read its system area"),
    (54, "the start of data was not found"),
    (55, "the tape could not be loaded"),
    (59, "the medium is not a genuine WORM cartridge"),
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
}
