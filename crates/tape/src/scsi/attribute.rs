//! Medium auxiliary memory: the attributes of a cartridge (SPC-5, 7.4), as READ ATTRIBUTE returns and WRITE ATTRIBUTE
//! takes them.

use super::bytes::be16;

/// Medium type of a cartridge that is write-once (SPC-5, attribute 0408h): 00h is data, 01h cleaning.
pub const WRITE_ONCE: u64 = 0x80;

/// The same of a cartridge that cleans.
pub const CLEANING: u64 = 0x01;

/// Medium types by which MODE SENSE of LTO drives tells write-once cartridges of the generations 3 to 9: the
/// generation, and Ch, where others have 8h.
pub const LTO_WRITE_ONCE: [u8; 7] = [0x3c, 0x4c, 0x5c, 0x6c, 0x7c, 0x8c, 0x9c];

/// Attributes that matter here (SPC-5, tables 388 to 394).
pub mod id {
    /// MiB that can still be written.
    pub const REMAINING: u16 = 0x0000;
    /// MiB altogether.
    pub const MAXIMUM: u16 = 0x0001;
    /// TapeAlert flags.
    pub const TAPE_ALERT: u16 = 0x0002;
    /// Loads.
    pub const LOAD_COUNT: u16 = 0x0003;
    /// MiB that are left in the memory itself, in bytes.
    pub const MEMORY_SPACE: u16 = 0x0004;
    /// Who assigned the format.
    pub const ASSIGNING_ORGANIZATION: u16 = 0x0005;
    /// Density code.
    pub const FORMATTED_DENSITY: u16 = 0x0006;
    /// Changes with every life of the volume.
    pub const VOLUME_CHANGE_REFERENCE: u16 = 0x0009;
    /// Maker of the cartridge.
    pub const MEDIUM_MANUFACTURER: u16 = 0x0400;
    /// Serial number of the cartridge.
    pub const MEDIUM_SERIAL: u16 = 0x0401;
    /// Kind of the cartridge: data, cleaning, WORM.
    pub const MEDIUM_TYPE: u16 = 0x0408;
    /// Who wrote it: 8 characters.
    pub const APPLICATION_VENDOR: u16 = 0x0800;
    /// By which program: 32 characters.
    pub const APPLICATION_NAME: u16 = 0x0801;
    /// Of which version: 8 characters.
    pub const APPLICATION_VERSION: u16 = 0x0802;
    /// A label for people: 160 bytes of text.
    pub const USER_LABEL: u16 = 0x0803;
    /// Barcode: 32 characters.
    pub const BARCODE: u16 = 0x0806;
    /// Pool: 160 bytes of text.
    pub const MEDIA_POOL: u16 = 0x0808;
    /// Version of the application's format: 16 characters.
    pub const FORMAT_VERSION: u16 = 0x080b;
    /// Where the volume was whole (SSC-5): 70 bytes.
    pub const COHERENCY: u16 = 0x080c;
}

/// How a value is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeFormat {
    /// A number, or bytes.
    Binary = 0,
    /// ASCII, filled up with spaces.
    Ascii = 1,
    /// Text, as the cartridge's own locale says.
    Text = 2,
}

/// One attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediumAttribute {
    /// Which.
    pub id: u16,
    /// Whether a host may not change it.
    pub read_only: bool,
    /// How to read it.
    pub kind: AttributeFormat,
    /// Its value; an empty one deletes it when it is written.
    pub value: Vec<u8>,
}

impl MediumAttribute {
    /// A number that the drive keeps.
    pub fn number<const LEN: usize>(id: u16, value: [u8; LEN]) -> Self {
        Self { id, read_only: true, kind: AttributeFormat::Binary, value: value.to_vec() }
    }

    /// Characters, filled up to the length that the standard gives the attribute.
    pub fn ascii(id: u16, text: &str, len: usize) -> Self {
        let mut value: Vec<u8> = text.bytes().take(len).collect();
        value.resize(len, b' ');
        Self { id, read_only: false, kind: AttributeFormat::Ascii, value }
    }

    /// Text, filled up with zeroes.
    pub fn text(id: u16, text: &str, len: usize) -> Self {
        let mut value: Vec<u8> = text.bytes().take(len).collect();
        value.resize(len, 0);
        Self { id, read_only: false, kind: AttributeFormat::Text, value }
    }

    /// Its value as a number, if it is one of up to eight bytes.
    pub fn as_number(&self) -> Option<u64> {
        (self.kind == AttributeFormat::Binary && self.value.len() <= 8)
            .then(|| self.value.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// Its value as text.
    pub fn as_text(&self) -> String {
        super::bytes::trimmed(&self.value)
    }
}

/// Attributes one behind the other, as they stand behind the length.
pub fn encode(attributes: &[MediumAttribute]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for attribute in attributes {
        bytes.extend_from_slice(&attribute.id.to_be_bytes());
        bytes.push(attribute.kind as u8 | if attribute.read_only { 0x80 } else { 0 });
        bytes.extend_from_slice(&(attribute.value.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&attribute.value);
    }
    bytes
}

/// The same, read; an attribute that is cut off is left out, as READ ATTRIBUTE cuts its data at the allocation length.
/// The number is that of the first byte that is not understood, if there is one.
pub fn decode(bytes: &[u8]) -> (Vec<MediumAttribute>, Option<usize>) {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let Some(header) = bytes.get(at..at + 5) else { return (found, Some(at)) };
        let kind = match header[2] & 0x03 {
            0 => AttributeFormat::Binary,
            1 => AttributeFormat::Ascii,
            2 => AttributeFormat::Text,
            _ => return (found, Some(at + 2)),
        };
        let Some(value) = bytes.get(at + 5..at + 5 + usize::from(be16(header, 3))) else {
            return (found, Some(at + 3));
        };
        found.push(MediumAttribute {
            id: be16(header, 0),
            read_only: header[2] & 0x80 != 0,
            kind,
            value: value.to_vec(),
        });
        at += 5 + value.len();
    }
    (found, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let attributes = [
            MediumAttribute::number(id::REMAINING, 1234u64.to_be_bytes()),
            MediumAttribute::ascii(id::BARCODE, "A00001L9", 32),
            MediumAttribute::text(id::MEDIA_POOL, "offsite", 160),
        ];
        let bytes = encode(&attributes);
        assert_eq!(&bytes[..13], [0, 0, 0x80, 0, 8, 0, 0, 0, 0, 0, 0, 0x04, 0xd2]);
        assert_eq!(decode(&bytes), (attributes.to_vec(), None));
        assert_eq!(attributes[0].as_number(), Some(1234));
        assert_eq!(attributes[1].as_text(), "A00001L9");
        let (whole, cut) = decode(&bytes[..bytes.len() - 1]);
        assert_eq!((whole.len(), cut.is_some()), (2, true));
        for len in 0..bytes.len() {
            let _ = decode(&bytes[..len]);
        }
    }
}
