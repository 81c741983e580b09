//! Integers in SCSI data: big-endian, of two, three, four or eight bytes.

/// Two bytes at `at`; zero where the data are shorter.
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |found| u16::from_be_bytes([found[0], found[1]]))
}

/// Three bytes at `at`; zero where the data are shorter.
pub(crate) fn be24(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 3).map_or(0, |found| u32::from_be_bytes([0, found[0], found[1], found[2]]))
}

/// Four bytes at `at`; zero where the data are shorter.
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    let Some(found) = bytes.get(at..at + 4) else { return 0 };
    u32::from_be_bytes([found[0], found[1], found[2], found[3]])
}

/// Eight bytes at `at`; zero where the data are shorter.
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    (u64::from(be32(bytes, at)) << 32) | u64::from(be32(bytes, at + 4))
}

/// The three low bytes of a number.
pub(crate) fn low24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}

/// Text as SCSI has it: ASCII, filled up with spaces.
pub(crate) fn padded<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut field = [b' '; LEN];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = if from.is_ascii_graphic() || from == b' ' { from } else { b'?' };
    }
    field
}

/// Text without what fills it up; what is no ASCII is shown as `?`.
pub(crate) fn trimmed(bytes: &[u8]) -> String {
    let text: String = bytes
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { byte as char } else { '?' })
        .collect();
    text.trim().to_owned()
}
