//! Elements of a library: READ ELEMENT STATUS data (SMC-3, 6.14) and element address assignments (mode page 1Dh).
//!
//! ```text
//! header                          page                                descriptor
//!  0  2  first element             0  1  type of element               0  2  address
//!  2  2  number of elements        1  1  bit 7 PVOLTAG, bit 6 AVOLTAG  2  1  ACCESS 3, EXCEPT 2, IMPEXP 1, FULL 0
//!  5  3  bytes that follow         2  2  length of a descriptor        4  2  additional sense code and qualifier
//!                                  5  3  bytes that follow             9  1  bit 7 SVALID, bit 3 ED, bits 2-0 medium type
//!                                                                     10  2  source element
//!                                                                     12 36  volume tag, if PVOLTAG
//!                                                                         4  identifier's code set, type, 0, length
//!                                                                            identifier
//! ```

use super::bytes::{be16, be24, low24, padded, trimmed};
use super::inquiry::serial_of_designator;

/// Types of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElementType {
    /// The robot.
    Transport = 1,
    /// A slot.
    Storage = 2,
    /// A slot of the mail slot.
    ImportExport = 3,
    /// A drive.
    DataTransfer = 4,
}

impl ElementType {
    /// By its code.
    pub fn of_code(code: u8) -> Option<Self> {
        [Self::Transport, Self::Storage, Self::ImportExport, Self::DataTransfer]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// Kinds of cartridges that libraries tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediumType {
    /// For data.
    Data = 1,
    /// It cleans drives.
    Cleaning = 2,
    /// For data, and write-once.
    WriteOnce = 4,
}

impl MediumType {
    fn of_code(code: u8) -> Option<Self> {
        [Self::Data, Self::Cleaning, Self::WriteOnce].into_iter().find(|kind| *kind as u8 == code)
    }
}

/// One element's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementStatus {
    /// Its kind.
    pub kind: ElementType,
    /// Its address in the library.
    pub address: u16,
    /// Whether a cartridge is in it.
    pub full: bool,
    /// Whether the robot can reach it: of a drive, whether it has let go.
    pub accessible: bool,
    /// Whether a person put the cartridge into the mail slot, and not the robot.
    pub by_operator: bool,
    /// Code and qualifier of what is wrong with it.
    pub exception: Option<(u8, u8)>,
    /// Where its cartridge came from.
    pub source: Option<u16>,
    /// What kind of cartridge it is, if the library tells.
    pub medium_type: Option<MediumType>,
    /// Barcode.
    pub volume_tag: Option<String>,
    /// Of a drive: "vendor, product, serial", as the drive itself says.
    pub device_identifier: Option<Vec<u8>>,
}

impl ElementStatus {
    /// Serial number of the drive in this element.
    pub fn drive_serial(&self) -> Option<String> {
        let identifier = self.device_identifier.as_ref()?;
        // Some libraries give the serial number alone.
        serial_of_designator(identifier).or_else(|| Some(trimmed(identifier)).filter(|serial| !serial.is_empty()))
    }
}

/// What READ ELEMENT STATUS is asked to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Barcodes.
    pub volume_tags: bool,
    /// Identifiers of drives.
    pub device_identifiers: bool,
}

const TAG_LEN: usize = 36;

/// The data for these elements, which are in order of kind.
pub fn encode(elements: &[ElementStatus], told: Told) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    if let Some(first) = elements.iter().map(|element| element.address).min() {
        bytes[..2].copy_from_slice(&first.to_be_bytes());
    }
    bytes[2..4].copy_from_slice(&(elements.len() as u16).to_be_bytes());
    for page in elements.chunk_by(|one, other| one.kind == other.kind) {
        let identifier_of = |element: &ElementStatus| match &element.device_identifier {
            Some(identifier) if told.device_identifiers => identifier.clone(),
            _ => Vec::new(),
        };
        // All descriptors of a page are of one length.
        let identifier_len = page.iter().map(|element| identifier_of(element).len()).max().unwrap_or(0);
        let len = 12 + if told.volume_tags { TAG_LEN } else { 0 } + 4 + identifier_len;
        bytes.extend_from_slice(&[page[0].kind as u8, if told.volume_tags { 0x80 } else { 0 }]);
        bytes.extend_from_slice(&(len as u16).to_be_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&low24((len * page.len()) as u32));
        for element in page {
            let start = bytes.len();
            bytes.extend_from_slice(&descriptor(element));
            if told.volume_tags {
                let tag = element.volume_tag.as_ref().map_or([0; 32], |tag| padded::<32>(tag));
                bytes.extend_from_slice(&tag);
                bytes.extend_from_slice(&[0; TAG_LEN - 32]);
            }
            let identifier = identifier_of(element);
            // ASCII; vendor identification.
            let kind = if identifier.is_empty() { [0, 0] } else { [2, 1] };
            bytes.extend_from_slice(&[kind[0], kind[1], 0, identifier.len() as u8]);
            bytes.extend_from_slice(&identifier);
            bytes.resize(start + len, 0);
        }
    }
    let follows = (bytes.len() - 8) as u32;
    bytes[5..8].copy_from_slice(&low24(follows));
    bytes
}

fn descriptor(element: &ElementStatus) -> [u8; 12] {
    let flag = |set: bool, at: u8| if set { 1u8 << at } else { 0 };
    let mut bytes = [0; 12];
    bytes[..2].copy_from_slice(&element.address.to_be_bytes());
    bytes[2] = flag(element.full, 0) | flag(element.exception.is_some(), 2);
    if element.kind != ElementType::Transport {
        bytes[2] |= flag(element.accessible, 3);
    }
    if element.kind == ElementType::ImportExport {
        // Import and export are enabled.
        bytes[2] |= flag(element.by_operator, 1) | 0x30;
    }
    if let Some((code, qualifier)) = element.exception {
        (bytes[4], bytes[5]) = (code, qualifier);
    }
    bytes[9] = element.medium_type.map_or(0, |kind| kind as u8);
    if let Some(source) = element.source {
        bytes[9] |= 0x80;
        bytes[10..12].copy_from_slice(&source.to_be_bytes());
    }
    bytes
}

/// The elements in what a library returned. What is cut off is left out: ask again with more room ([`needed`]).
pub fn decode(bytes: &[u8]) -> Vec<ElementStatus> {
    let mut found = Vec::new();
    let end = needed(bytes).min(bytes.len());
    let mut left = bytes.get(8..end).unwrap_or_default();
    while left.len() >= 8 {
        let kind = ElementType::of_code(left[0]);
        let has_tag = left[1] & 0x80 != 0;
        let alternate_len = if left[1] & 0x40 != 0 { TAG_LEN } else { 0 };
        let len = usize::from(be16(left, 2));
        let page_len = (be24(left, 5) as usize).min(left.len() - 8);
        let (page, rest) = left[8..].split_at(page_len);
        if let Some(kind) = kind
            && len >= 12
        {
            let element = |descriptor: &[u8]| one(kind, descriptor, has_tag, alternate_len);
            found.extend(page.chunks_exact(len).map(element));
        }
        left = rest;
    }
    found
}

/// Bytes that all elements together take.
pub fn needed(bytes: &[u8]) -> usize {
    8 + be24(bytes, 5) as usize
}

fn one(kind: ElementType, bytes: &[u8], has_tag: bool, alternate_len: usize) -> ElementStatus {
    let bit = |byte: u8, at: u8| byte >> at & 1 == 1;
    let full = bit(bytes[2], 0);
    let tag_end = if has_tag { 12 + TAG_LEN } else { 12 };
    let tag = if has_tag { bytes.get(12..12 + 32).map(trimmed) } else { None };
    let identifier_at = tag_end + alternate_len;
    let identifier = bytes.get(identifier_at + 3).map_or(0, |len| usize::from(*len));
    let identifier = bytes.get(identifier_at + 4..identifier_at + 4 + identifier).filter(|found| !found.is_empty());
    ElementStatus {
        kind,
        address: be16(bytes, 0),
        full,
        accessible: kind == ElementType::Transport || bit(bytes[2], 3),
        by_operator: kind == ElementType::ImportExport && bit(bytes[2], 1),
        exception: bit(bytes[2], 2).then(|| (bytes[4], bytes[5])),
        source: bit(bytes[9], 7).then(|| be16(bytes, 10)),
        medium_type: MediumType::of_code(bytes[9] & 7).filter(|_| full),
        // Some libraries leave the tag of what was in it before.
        volume_tag: tag.filter(|tag| full && !tag.is_empty()),
        device_identifier: identifier.map(<[u8]>::to_vec),
    }
}

/// Where elements begin and how many there are, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignments {
    /// Address of the robot.
    pub transport: (u16, u16),
    /// First slot, and how many.
    pub storage: (u16, u16),
    /// First element of the mail slot, and how many.
    pub import_export: (u16, u16),
    /// First drive, and how many.
    pub data_transfer: (u16, u16),
}

impl Assignments {
    /// Mode page.
    pub const PAGE: u8 = 0x1d;

    /// As the mode page, 20 bytes.
    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        (bytes[0], bytes[1]) = (Self::PAGE, 18);
        for (field, (first, count)) in
            bytes[2..18].chunks_exact_mut(4).zip([self.transport, self.storage, self.import_export, self.data_transfer])
        {
            field[..2].copy_from_slice(&first.to_be_bytes());
            field[2..].copy_from_slice(&count.to_be_bytes());
        }
        bytes
    }

    /// Out of the mode page.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < 18 || bytes[0] & 0x3f != Self::PAGE {
            return None;
        }
        let pair = |at: usize| (be16(bytes, at), be16(bytes, at + 2));
        Some(Self { transport: pair(2), storage: pair(6), import_export: pair(10), data_transfer: pair(14) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(kind: ElementType, address: u16, tag: Option<&str>) -> ElementStatus {
        ElementStatus {
            kind,
            address,
            full: tag.is_some(),
            accessible: true,
            by_operator: false,
            exception: None,
            source: None,
            medium_type: None,
            volume_tag: tag.map(str::to_owned),
            device_identifier: None,
        }
    }

    #[test]
    fn elements_are_read_as_they_were_told() {
        let mut drive = element(ElementType::DataTransfer, 500, Some("A00002L9"));
        drive.source = Some(1001);
        drive.medium_type = Some(MediumType::Data);
        drive.accessible = false;
        drive.device_identifier = Some(b"CAPSTAN ULTRIUM-TD9     CPT0001".to_vec());
        let mut mail = element(ElementType::ImportExport, 200, None);
        mail.exception = Some((0x30, 0x00));
        let elements = [
            element(ElementType::Transport, 1, None),
            element(ElementType::Storage, 1000, Some("A00001L9")),
            element(ElementType::Storage, 1001, None),
            mail,
            drive,
            element(ElementType::DataTransfer, 501, None),
        ];
        let told = Told { volume_tags: true, device_identifiers: true };
        let bytes = encode(&elements, told);
        assert_eq!(&bytes[..8], [0, 1, 0, 6, 0, 0, 0x01, 0x96]);
        assert_eq!(needed(&bytes), bytes.len());
        assert_eq!(decode(&bytes), elements);
        assert_eq!(decode(&bytes)[4].drive_serial().as_deref(), Some("CPT0001"));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).len() <= elements.len());
        }
    }

    #[test]
    fn assignments_are_a_mode_page() {
        let assignments =
            Assignments { transport: (1, 1), storage: (1000, 20), import_export: (200, 2), data_transfer: (500, 2) };
        assert_eq!(Assignments::of_bytes(&assignments.to_bytes()), Some(assignments));
    }
}
