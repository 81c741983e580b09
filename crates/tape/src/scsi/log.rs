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
