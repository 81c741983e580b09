//! Log pages: what a drive has counted, and what it complains of.

use super::{Asker, Fact, Privacy, ROOM, Section, hex};
use crate::scsi::command::PageControl;
use crate::scsi::{Command, log};

impl Asker<'_> {
    /// Every page that it has. TapeAlert flags are taken down by being read.
    pub(super) fn logs(&mut self) -> Vec<Section> {
        let sense = |page: u8, subpage: u8| Command::LogSense {
            save: false,
            control: PageControl::Changeable,
            page,
            subpage,
            from_parameter: 0,
            allocation: ROOM as u16,
        };
        let mut overview = Section::new("Log pages");
        let pages = match self.ask(&sense(log::page::SUPPORTED, 0), ROOM) {
            Ok(bytes) => bytes.get(4..).unwrap_or_default().to_vec(),
            Err(reason) => {
                overview.tell("LOG SENSE", reason);
                Vec::new()
            }
        };
        overview.tell("pages", pages.iter().map(|page| format!("{page:02X}h")).collect::<Vec<_>>().join(" "));
        let mut sections = vec![overview];
        for page in pages.into_iter().filter(|page| *page != log::page::SUPPORTED) {
            let mut section = Section::new(&format!("Log page {page:02X}h{}", page_name(page)));
            match self.ask(&sense(page, 0), ROOM) {
                Err(reason) => section.tell("LOG SENSE", reason),
                Ok(bytes) => parameters(page, &bytes, &mut section),
            }
            sections.push(section);
        }
        sections
    }
}

fn parameters(page: u8, bytes: &[u8], section: &mut Section) {
    let parameters = log::decode(page, bytes).unwrap_or_default();
    if page == log::page::TAPE_ALERT {
        let up = |parameter: &&log::Parameter| parameter.value.last().is_some_and(|value| value & 1 == 1);
        for flag in parameters.iter().filter(up) {
            let meaning = crate::TapeAlert::of_flag(flag.number).meaning;
            section.tell(format!("flag {} is up", flag.number), meaning.unwrap_or("of the maker"));
        }
        section.tell("flags it has", parameters.len().to_string());
        return;
    }
    for parameter in parameters {
        let name = format!("{:04X}h", parameter.number);
        match parameter.as_number() {
            Some(number) => section.tell(name, number.to_string()),
            // What is longer than a number may be a name.
            None => {
                section.facts.push(Fact::open(name, hex(&parameter.value)).with(Privacy::Identifying));
            }
        }
    }
}

fn page_name(page: u8) -> &'static str {
    match page {
        log::page::WRITE_ERRORS => ": errors of writing",
        log::page::READ_ERRORS => ": errors of reading",
        log::page::SEQUENTIAL => ": sequential access",
        log::page::DEVICE_STATUS => ": device status",
        log::page::DEVICE_STATISTICS => ": device statistics",
        log::page::VOLUME_STATISTICS => ": volume statistics",
        log::page::COMPRESSION => ": compression",
        log::page::TAPE_ALERT => ": TapeAlert",
        log::page::CAPACITY => ": capacity",
        _ => "",
    }
}
