//! What a drive says of itself, question by question. A question that it does not answer is a fact, too.

use std::fmt::Write;
use std::time::Duration;

use crate::scsi::attribute::{self, id};
use crate::scsi::command::{Form, PageControl, PositionForm};
use crate::scsi::encryption;
use crate::scsi::inquiry::{self, Inquiry, page};
use crate::scsi::position::PositionData;
use crate::scsi::{Command, DataPhase, ScsiStatus, SenseKey, Transport};

mod logs;

/// Unit attentions in a row that are taken for news: those that wait for who opens the drive.
const UNIT_ATTENTIONS_MAX: usize = 16;

/// No question takes longer, unless the drive recovers from something.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What a drive without a limit of its own is asked for.
const ROOM: usize = 16_384;

/// Bytes of a page that a report shows.
const BYTES_SHOWN: usize = 128;

/// A heading and what belongs below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// One for each line.
    pub facts: Vec<Fact>,
}

/// One thing that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What it is about.
    pub name: String,
    /// What was said.
    pub value: String,
    /// Whether it tells this very drive or cartridge from others.
    pub privacy: Privacy,
}

/// Whether a fact tells who somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privacy {
    /// It may be told.
    Open,
    /// It has, or may have, a serial number or a barcode in it.
    Identifying,
}

impl Fact {
    pub(super) fn open(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), privacy: Privacy::Open }
    }

    fn with(self, privacy: Privacy) -> Self {
        Self { privacy, ..self }
    }
}

impl Section {
    pub(super) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), facts: Vec::new() }
    }

    pub(super) fn not_asked(why: &str) -> Self {
        let facts = vec![Fact::open("not asked", why)];
        Self { title: "What the drive says of itself".to_owned(), facts }
    }

    fn tell(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.facts.push(Fact::open(name, value));
    }
}

/// Everything. The tape is loaded; nothing is changed but TapeAlert flags, which are taken down by being read.
pub(super) fn all(transport: &mut dyn Transport) -> Vec<Section> {
    let mut asker = Asker { transport };
    let mut sections = vec![
        asker.identity(),
        asker.limits(),
        asker.densities(),
        asker.modes(),
        asker.positions(),
        asker.ciphers(),
        asker.attributes(),
        asker.operations(),
    ];
    sections.extend(asker.logs());
    sections
}

/// The log pages alone.
pub(super) fn logs(transport: &mut dyn Transport) -> Vec<Section> {
    Asker { transport }.logs()
}

struct Asker<'a> {
    transport: &'a mut dyn Transport,
}

impl Asker<'_> {
    /// What the drive returns, or why it returns nothing.
    fn ask(&mut self, command: &Command, room: usize) -> Result<Vec<u8>, String> {
        let cdb = command.to_cdb();
        let mut bytes = vec![0; room];
        for _ in 0..=UNIT_ATTENTIONS_MAX {
            let reply =
                self.transport.execute(&cdb, DataPhase::In(&mut bytes), TIMEOUT).map_err(|error| error.to_string())?;
            match (reply.status, reply.sense) {
                (ScsiStatus::CheckCondition, Some(data)) if data.sense.key == SenseKey::UnitAttention as u8 => {}
                (ScsiStatus::CheckCondition, Some(data)) if data.sense.key > SenseKey::RecoveredError as u8 => {
                    return Err(data.sense.to_string());
                }
                (ScsiStatus::Good | ScsiStatus::CheckCondition, _) => {
                    bytes.truncate(reply.moved);
                    return Ok(bytes);
                }
                (status, _) => return Err(format!("status {status:?}")),
            }
        }
        Err("one unit attention after the other".to_owned())
    }

    fn vital_page(&mut self, page: u8) -> Result<Vec<u8>, String> {
        self.ask(&Command::Inquiry { vital_product_data: Some(page), allocation: 252 }, 252)
    }

    fn identity(&mut self) -> Section {
        let mut section = Section::new("Identity");
        match self.ask(&Command::Inquiry { vital_product_data: None, allocation: 96 }, 96) {
            Err(reason) => section.tell("INQUIRY", reason),
            Ok(bytes) => {
                if let Some(Inquiry { vendor, product, revision, .. }) = Inquiry::of_bytes(&bytes) {
                    section.tell("maker", vendor);
                    section.tell("product", product);
                    section.tell("firmware", revision);
                }
                // Behind these, makers put what they like.
                section.tell("INQUIRY data, 36 bytes", hex(bytes.get(..36).unwrap_or(&bytes)));
                let versions = bytes.get(58..74).unwrap_or_default().chunks_exact(2);
                let versions: Vec<String> = versions.filter(|pair| **pair != [0, 0]).map(hex_joined).collect();
                section.tell("standards, by their codes", versions.join(" "));
            }
        }
        let pages = match self.vital_page(page::SUPPORTED) {
            Ok(bytes) => inquiry::page_body(&bytes, page::SUPPORTED).unwrap_or_default().to_vec(),
            Err(reason) => {
                section.tell("vital product data pages", reason);
                Vec::new()
            }
        };
        let serial = self.vital_page(page::SERIAL).ok().and_then(|bytes| inquiry::serial_of(&bytes, page::SERIAL));
        if let Some(serial) = serial {
            section.facts.push(Fact::open("serial number", serial).with(Privacy::Identifying));
        }
        for page in pages.into_iter().filter(|page| *page != page::SUPPORTED) {
            let value = self.vital_page(page).map_or_else(|reason| reason, |bytes| hex(&bytes));
            let open = [page::EXTENDED, page::SEQUENTIAL, page::TAPE_ALERT, page::DATA_TRANSFER_ELEMENT];
            let privacy = if open.contains(&page) || page == page::BLOCK_PROTECTION {
                Privacy::Open
            } else {
                Privacy::Identifying
            };
            section.facts.push(Fact::open(format!("vital product data page {page:02X}h"), value).with(privacy));
        }
        section
    }

    fn limits(&mut self) -> Section {
        let mut section = Section::new("Blocks");
        match self.ask(&Command::ReadBlockLimits { object_identifier: false }, 6) {
            Ok(bytes) if bytes.len() == 6 => {
                let max = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]);
                section.tell("shortest block, bytes", u16::from_be_bytes([bytes[4], bytes[5]]).to_string());
                section.tell("longest block, bytes", if max == 0 { "no limit".to_owned() } else { max.to_string() });
                section.tell("granularity, as a power of 2", (bytes[0] & 0x1f).to_string());
            }
            Ok(bytes) => section.tell("READ BLOCK LIMITS", hex(&bytes)),
            Err(reason) => section.tell("READ BLOCK LIMITS", reason),
        }
        section.tell("longest command the host takes, bytes", self.transport.data_max().to_string());
        section
    }

    /// REPORT DENSITY SUPPORT (SSC-5, 7.10): descriptors of 52 bytes behind a header of 4.
    fn densities(&mut self) -> Section {
        let mut section = Section::new("Densities");
        for (what, of_medium) in [("the drive", false), ("the cartridge", true)] {
            let command = Command::ReportDensity { of_medium, medium_type: false, allocation: ROOM as u16 };
            match self.ask(&command, ROOM) {
                Err(reason) => section.tell(what, reason),
                Ok(bytes) => {
                    for one in bytes.get(4..).unwrap_or_default().chunks_exact(52) {
                        section.tell(what, density(one));
                    }
                }
            }
        }
        section
    }

    fn modes(&mut self) -> Section {
        let mut section = Section::new("Mode pages");
        for (page, subpage) in [(0x0f, 0), (0x10, 0), (0x10, 1), (0x11, 0), (0x0a, 0xf0), (0x1c, 0), (0x02, 0)] {
            let command = Command::ModeSense {
                form: Form::Ten,
                no_block_descriptor: false,
                control: PageControl::Current,
                page,
                subpage,
                allocation: 512,
            };
            let value = self.ask(&command, 512).map_or_else(|reason| reason, |bytes| hex(&bytes));
            section.tell(format!("page {page:02X}h, subpage {subpage:02X}h"), value);
        }
        section
    }

    fn positions(&mut self) -> Section {
        let mut section = Section::new("READ POSITION");
        let forms = [
            ("short form", PositionForm::Short, 20),
            ("long form", PositionForm::Long, 32),
            ("extended form", PositionForm::Extended { allocation: 32 }, 32),
        ];
        for (name, form, room) in forms {
            let value = match self.ask(&Command::ReadPosition { form }, room) {
                Err(reason) => reason,
                Ok(bytes) => {
                    let read = match form {
                        PositionForm::Short => PositionData::of_short(&bytes),
                        PositionForm::Long => PositionData::of_long(&bytes),
                        PositionForm::Extended { .. } => None,
                    };
                    let block = read.and_then(|read| read.lbn).map(|lbn| format!("block {lbn}; ")).unwrap_or_default();
                    format!("{block}{}", hex(&bytes))
                }
            };
            section.tell(name, value);
        }
        section
    }

    fn ciphers(&mut self) -> Section {
        let mut section = Section::new("Encryption");
        for (name, specific) in [
            ("pages it gives", encryption::page::IN_SUPPORT),
            ("pages it takes", encryption::page::OUT_SUPPORT),
            ("capabilities", encryption::page::CAPABILITIES),
            ("key formats", encryption::page::KEY_FORMATS),
            ("key management", encryption::page::MANAGEMENT_CAPABILITIES),
        ] {
            let command =
                Command::SecurityProtocolIn { protocol: encryption::PROTOCOL, specific, allocation: ROOM as u32 };
            let answer = self.ask(&command, ROOM);
            if let (Ok(bytes), encryption::page::CAPABILITIES) = (&answer, specific) {
                for entry in encryption::algorithms_of(bytes) {
                    section.tell("cipher", format!("{}, index {}", entry.algorithm.name(), entry.index));
                }
            }
            section.tell(name, answer.map_or_else(|reason| reason, |bytes| hex(&bytes)));
        }
        section
    }

    fn attributes(&mut self) -> Section {
        let mut section = Section::new("The cartridge's memory");
        let command = Command::ReadAttribute { action: 0, volume: 0, partition: 0, first: 0, allocation: ROOM as u32 };
        let bytes = match self.ask(&command, ROOM) {
            Ok(bytes) => bytes,
            Err(reason) => {
                section.tell("READ ATTRIBUTE", reason);
                return section;
            }
        };
        // Makers and programs, and no names of cartridges.
        let told = [
            id::ASSIGNING_ORGANIZATION,
            id::MEDIUM_MANUFACTURER,
            id::APPLICATION_VENDOR,
            id::APPLICATION_NAME,
            id::APPLICATION_VERSION,
        ];
        for attribute in attribute::decode(bytes.get(4..).unwrap_or_default()).0 {
            let value = match (attribute.as_number(), attribute.kind) {
                (Some(number), _) => number.to_string(),
                (None, attribute::AttributeFormat::Binary) => hex(&attribute.value),
                (None, attribute::AttributeFormat::Ascii | attribute::AttributeFormat::Text) => attribute.as_text(),
            };
            let is_number = attribute.as_number().is_some() && attribute.id != id::MEDIUM_SERIAL;
            let privacy = if is_number || told.contains(&attribute.id) || value.is_empty() {
                Privacy::Open
            } else {
                Privacy::Identifying
            };
            section.facts.push(Fact::open(format!("attribute {:04X}h", attribute.id), value).with(privacy));
        }
        section
    }

    /// REPORT SUPPORTED OPERATION CODES, all of them, with their time-outs (SPC-5, 6.35).
    fn operations(&mut self) -> Section {
        let mut section = Section::new("Commands it knows");
        let command = Command::ReportSupportedOperationCodes {
            options: 0,
            opcode: 0,
            action: 0,
            timeouts: true,
            allocation: ROOM as u32,
        };
        let bytes = match self.ask(&command, ROOM) {
            Ok(bytes) => bytes,
            Err(reason) => {
                section.tell("REPORT SUPPORTED OPERATION CODES", reason);
                return section;
            }
        };
        let mut left = bytes.get(4..).unwrap_or_default();
        while let [opcode, _, high, low, _, flags, _, cdb_len, rest @ ..] = left {
            let mut name = format!("{opcode:02X}h");
            if flags & 0x01 != 0 {
                let _ = write!(name, "/{:02X}h", u16::from_be_bytes([*high, *low]));
            }
            let mut value = format!("{cdb_len} bytes");
            left = rest;
            if flags & 0x02 != 0 {
                let [len_high, len_low, descriptor @ ..] = rest else { break };
                let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
                if let Some([_, _, a, b, c, d, e, f, g, h]) = descriptor.get(..10) {
                    let (nominal, recommended) =
                        (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]));
                    let _ = write!(value, ", nominal {nominal} s, recommended {recommended} s");
                }
                left = descriptor.get(len..).unwrap_or_default();
            }
            section.tell(name, value);
        }
        section
    }
}

fn density(bytes: &[u8]) -> String {
    let text = |from: usize, to: usize| {
        let ascii = bytes.get(from..to).unwrap_or_default().iter();
        ascii
            .map(|byte| if byte.is_ascii_graphic() { *byte as char } else { ' ' })
            .collect::<String>()
            .trim()
            .to_owned()
    };
    let number = |at: usize, len: usize| {
        bytes.get(at..at + len).unwrap_or_default().iter().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    format!(
        "{:02X}h {} ({}, {}): {} MB, {} tracks, {} bits/mm{}{}",
        number(0, 1),
        text(24, 32),
        text(16, 24),
        text(32, 52),
        number(12, 4),
        number(10, 2),
        number(5, 3),
        if number(2, 1) & 0x80 != 0 { ", writes" } else { ", reads" },
        if number(2, 1) & 0x20 != 0 { ", default" } else { "" },
    )
}

/// Bytes in pairs of digits; the end of many is left out.
fn hex(bytes: &[u8]) -> String {
    let shown = bytes.get(..BYTES_SHOWN).unwrap_or(bytes);
    let text = shown.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    if bytes.len() > shown.len() { format!("{text} ... ({} bytes)", bytes.len()) } else { text }
}

fn hex_joined(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
