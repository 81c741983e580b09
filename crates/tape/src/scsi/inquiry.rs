//! Who a device is: standard INQUIRY data and vital product data pages (SPC-5, 6.7 and 7.7).

use super::bytes::{be16, padded, trimmed};

/// Kinds of devices that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceType {
    /// Sequential access (SSC).
    Tape = 0x01,
    /// Media changer (SMC).
    Changer = 0x08,
}

/// Vital product data pages.
pub mod page {
    /// Which pages there are.
    pub const SUPPORTED: u8 = 0x00;
    /// Serial number.
    pub const SERIAL: u8 = 0x80;
    /// Designators: names that other devices know it by.
    pub const IDENTIFICATION: u8 = 0x83;
    /// What commands with many data may be asked.
    pub const EXTENDED: u8 = 0x86;
    /// Sequential access: whether it is WORM-capable.
    pub const SEQUENTIAL: u8 = 0xb0;
    /// Serial number that the maker gave, which TapeAlert and libraries show.
    pub const MANUFACTURER_SERIAL: u8 = 0xb1;
    /// TapeAlert flags that it knows.
    pub const TAPE_ALERT: u8 = 0xb2;
    /// Serial numbers of the parts of a library or drive, from automation.
    pub const AUTOMATION_SERIAL: u8 = 0xb3;
    /// Which encryption algorithms the data transfer device has.
    pub const DATA_TRANSFER_ELEMENT: u8 = 0xb4;
    /// Logical block protection methods.
    pub const BLOCK_PROTECTION: u8 = 0xb5;
}

/// Standard INQUIRY data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// Kind of device, as its code: it may be one that is none of [`DeviceType`].
    pub device_type: u8,
    /// Maker, up to 8 characters.
    pub vendor: String,
    /// Product, up to 16 characters.
    pub product: String,
    /// Revision of its firmware, up to 4 characters.
    pub revision: String,
}

/// Bytes of standard INQUIRY data that [`Inquiry`] makes.
const LEN: usize = 96;

impl Inquiry {
    /// As the device returns them, with the standards it follows.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = self.device_type;
        // Removable medium; SPC-4; response format 2; commands are queued.
        (bytes[1], bytes[2], bytes[3]) = (0x80, 0x06, 0x02);
        bytes[4] = (LEN - 5) as u8;
        bytes[7] = 0x02;
        bytes[8..16].copy_from_slice(&padded::<8>(&self.vendor));
        bytes[16..32].copy_from_slice(&padded::<16>(&self.product));
        bytes[32..36].copy_from_slice(&padded::<4>(&self.revision));
        // SAM-5, SPC-4, and SSC-4 or SMC-3 (SPC-5, table 149); iSCSI.
        let own: u16 = if self.device_type == DeviceType::Tape as u8 { 0x0520 } else { 0x0480 };
        for (at, standard) in [(58, 0x00a0), (60, 0x0460), (62, own), (64, 0x0960)] {
            bytes[at..at + 2].copy_from_slice(&standard.to_be_bytes());
        }
        bytes
    }

    /// From what a device returned; none if it is too short, or if there is no device.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        // The upper bits say whether something is there at this number.
        if bytes.len() < 36 || bytes[0] >> 5 != 0 {
            return None;
        }
        Some(Self {
            device_type: bytes[0] & 0x1f,
            vendor: trimmed(&bytes[8..16]),
            product: trimmed(&bytes[16..32]),
            revision: trimmed(&bytes[32..36]),
        })
    }
}

/// A vital product data page with its body.
pub fn vital_product_data(device: DeviceType, page: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![device as u8, page];
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The body of a page that a device returned; none if it is another page.
pub fn page_body(bytes: &[u8], page: u8) -> Option<&[u8]> {
    if *bytes.get(1)? != page {
        return None;
    }
    let len = usize::from(be16(bytes, 2));
    bytes.get(4..(4 + len).min(bytes.len()))
}

/// The serial number in a page of that kind (80h, B1h).
pub fn serial_of(bytes: &[u8], page: u8) -> Option<String> {
    page_body(bytes, page).map(trimmed).filter(|serial| !serial.is_empty())
}

/// The body of a device identification page (83h): "vendor, product, serial" in one designator of type 1, as drives
/// give it and libraries repeat it in their element status, and a name of type 8 for iSCSI where there is one.
pub fn identification(inquiry: &Inquiry, serial: &str, port: Option<&str>) -> Vec<u8> {
    let mut text = Vec::new();
    text.extend_from_slice(&padded::<8>(&inquiry.vendor));
    text.extend_from_slice(&padded::<16>(&inquiry.product));
    text.extend_from_slice(serial.as_bytes());
    let mut body = vec![0x02, 0x01, 0, text.len() as u8];
    body.extend_from_slice(&text);
    if let Some(port) = port {
        // NUL-terminated UTF-8, in multiples of four; of the target port; protocol iSCSI.
        let mut name = port.as_bytes().to_vec();
        name.resize((name.len() / 4 + 1) * 4, 0);
        body.extend_from_slice(&[0x53, 0x98, 0, name.len() as u8]);
        body.extend_from_slice(&name);
    }
    body
}

/// The serial number out of a "vendor, product, serial" designator.
pub fn serial_of_designator(text: &[u8]) -> Option<String> {
    text.get(24..).map(trimmed).filter(|serial| !serial.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_who_it_said() {
        let inquiry = Inquiry {
            device_type: DeviceType::Tape as u8,
            vendor: "CAPSTAN".to_owned(),
            product: "ULTRIUM-TD9".to_owned(),
            revision: "0001".to_owned(),
        };
        let bytes = inquiry.to_bytes();
        assert_eq!(Inquiry::of_bytes(&bytes), Some(inquiry.clone()));
        assert_eq!(&bytes[8..36], b"CAPSTAN ULTRIUM-TD9     0001");
        let body = identification(&inquiry, "CPT0001", None);
        assert_eq!(serial_of_designator(&body[4..]).as_deref(), Some("CPT0001"));
        let page = vital_product_data(DeviceType::Tape, page::SERIAL, b"CPT0001   ");
        assert_eq!(serial_of(&page, page::SERIAL).as_deref(), Some("CPT0001"));
        assert_eq!(serial_of(&page, page::IDENTIFICATION), None);
    }
}
