//! What is where: READ ELEMENT STATUS, however many elements there are.

use std::collections::HashMap;

use super::{ScsiChanger, volser_of};
use crate::scsi::element::{self, ElementStatus, ElementType};
use crate::scsi::{Command, DataPhase, Transport};
use crate::{ChangerError, Finding};

/// Room that the first try gives.
const ROOM_FIRST: usize = 64 << 10;

/// More is never asked for at once.
const ROOM_MAX: usize = 4 << 20;

impl<T: Transport> ScsiChanger<T> {
    /// Asks the library for every element.
    pub(super) fn take_inventory(&mut self) -> Result<(), ChangerError> {
        let assignments = self.assignments;
        let mut elements = Vec::new();
        for (kind, (first, count)) in [
            (ElementType::Storage, assignments.storage),
            (ElementType::ImportExport, assignments.import_export),
            (ElementType::DataTransfer, assignments.data_transfer),
        ] {
            if count > 0 {
                self.read_elements(kind, first, count, &mut elements)?;
            }
        }
        elements.sort_by_key(|element| (element.kind, element.address));
        elements.dedup_by_key(|element| element.address);
        self.findings = self.find(&elements);
        self.elements = elements;
        Ok(())
    }

    /// The elements of a kind in a range. What does not fit into one answer is asked for in halves.
    fn read_elements(
        &mut self,
        kind: ElementType,
        first: u16,
        count: u16,
        elements: &mut Vec<ElementStatus>,
    ) -> Result<(), ChangerError> {
        let room_max = self.line.transport.data_max().min(ROOM_MAX);
        let mut room = ROOM_FIRST.min(room_max);
        loop {
            let bytes = self.element_status(kind, first, count, room)?;
            let needed = element::needed(&bytes);
            if needed > room && needed <= room_max {
                room = needed;
                continue;
            }
            // Some of it did not come.
            let is_cut = needed > room || bytes.len() < needed;
            if is_cut && count > 1 {
                let half = count / 2;
                self.read_elements(kind, first, half, elements)?;
                return self.read_elements(kind, first + half, count - half, elements);
            }
            if bytes.len() < needed.min(room) {
                let reason = format!("it tells {needed} bytes of {kind:?} {first}, and {} come", bytes.len());
                return Err(self.unusable(reason));
            }
            // A library may tell more than it was asked for.
            let range = u32::from(first)..u32::from(first) + u32::from(count);
            let asked = |element: &ElementStatus| element.kind == kind && range.contains(&u32::from(element.address));
            elements.extend(element::decode(&bytes).into_iter().filter(asked));
            return Ok(());
        }
    }

    fn element_status(
        &mut self,
        kind: ElementType,
        start: u16,
        count: u16,
        room: usize,
    ) -> Result<Vec<u8>, ChangerError> {
        let mut bytes = vec![0; room];
        let mut command = Command::ReadElementStatus {
            volume_tags: true,
            kind: kind as u8,
            start,
            count,
            no_motion: true,
            // Asked of drives alone: some libraries refuse it for other elements.
            device_identifiers: kind == ElementType::DataTransfer,
            allocation: room as u32,
        };
        // What a library may not know, in the order in which it is left out.
        for leave_out in [LeaveOut::NoMotion, LeaveOut::DeviceIdentifiers] {
            match self.command("READ ELEMENT STATUS", &command, DataPhase::In(&mut bytes)) {
                Err(ChangerError::Refused { sense, .. }) if (sense.key, sense.asc) == (0x5, 0x24) => {
                    leave_out.of(&mut command);
                }
                done => {
                    bytes.truncate(done?.moved);
                    return Ok(bytes);
                }
            }
        }
        let done = self.command("READ ELEMENT STATUS", &command, DataPhase::In(&mut bytes))?;
        bytes.truncate(done.moved);
        Ok(bytes)
    }

    fn find(&self, elements: &[ElementStatus]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut seen = HashMap::new();
        for element in elements {
            let Some(at) = self.place_of(element.address) else { continue };
            if let Some(codes) = element.exception {
                findings.push(Finding::Exception { at, codes });
            }
            if !element.full {
                continue;
            }
            match (volser_of(element), element.volume_tag.clone()) {
                (Some(volser), _) => {
                    if let Some(one) = seen.insert(volser.clone(), at) {
                        findings.push(Finding::Duplicate { volser, one, other: at });
                    }
                }
                (None, Some(barcode)) => findings.push(Finding::NoVolser { at, barcode }),
                (None, None) => findings.push(Finding::NoBarcode { at }),
            }
        }
        findings
    }
}

#[derive(Clone, Copy)]
enum LeaveOut {
    NoMotion,
    DeviceIdentifiers,
}

impl LeaveOut {
    fn of(self, command: &mut Command) {
        if let Command::ReadElementStatus { no_motion, device_identifiers, .. } = command {
            match self {
                Self::NoMotion => *no_motion = false,
                Self::DeviceIdentifiers => *device_identifiers = false,
            }
        }
    }
}
