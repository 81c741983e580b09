//! A library whose elements are a list: what it says is made by the words of the other side.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use capstan_tape::scsi::element::{Assignments, ElementStatus, ElementType, Told, encode};
use capstan_tape::scsi::inquiry::{DeviceType, Inquiry};
use capstan_tape::scsi::{Command, DataPhase, Reply, ScsiStatus, SenseData, SenseKey, Transport, TransportError};

/// What a library is made of.
pub(crate) struct Shelves {
    pub(crate) assignments: Assignments,
    pub(crate) elements: Vec<ElementStatus>,
    /// What the next moves fail with.
    pub(crate) upsets: VecDeque<SenseData>,
    /// What any next commands fail with.
    pub(crate) attentions: VecDeque<SenseData>,
    pub(crate) moves: Vec<(u16, u16)>,
    pub(crate) commands: Vec<Vec<u8>>,
    /// Most bytes of one answer.
    pub(crate) data_max: usize,
}

#[derive(Clone)]
pub(crate) struct Library(pub(crate) Arc<Mutex<Shelves>>);

impl Library {
    /// So many slots, two mail slots, two drives; all are empty.
    pub(crate) fn new(slots: u16) -> Self {
        let assignments =
            Assignments { transport: (1, 1), storage: (1000, slots), import_export: (200, 2), data_transfer: (500, 2) };
        let element = |kind: ElementType, address: u16| ElementStatus {
            kind,
            address,
            full: false,
            accessible: true,
            by_operator: false,
            exception: None,
            source: None,
            medium_type: None,
            volume_tag: None,
            device_identifier: (kind == ElementType::DataTransfer)
                .then(|| format!("CAPSTAN ULTRIUM-TD9     SERIAL{address}").into_bytes()),
        };
        let mut elements: Vec<_> = (1000..1000 + slots).map(|at| element(ElementType::Storage, at)).collect();
        elements.extend([200, 201].map(|at| element(ElementType::ImportExport, at)));
        elements.extend([500, 501].map(|at| element(ElementType::DataTransfer, at)));
        let shelves = Shelves {
            assignments,
            elements,
            upsets: VecDeque::new(),
            attentions: VecDeque::new(),
            moves: Vec::new(),
            commands: Vec::new(),
            data_max: 1 << 20,
        };
        Self(Arc::new(Mutex::new(shelves)))
    }

    pub(crate) fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.0.lock().unwrap()
    }

    /// Puts a cartridge somewhere.
    pub(crate) fn put(&self, address: u16, barcode: Option<&str>) {
        let mut shelves = self.shelves();
        let element = shelves.at(address);
        element.full = true;
        element.volume_tag = barcode.map(str::to_owned);
    }
}

impl Shelves {
    pub(crate) fn at(&mut self, address: u16) -> &mut ElementStatus {
        self.elements.iter_mut().find(|element| element.address == address).unwrap()
    }

    fn carry(&mut self, from: u16, to: u16) -> Result<(), SenseData> {
        if !self.at(from).full {
            return Err(SenseData::new(SenseKey::IllegalRequest, 0x3b, 0x0e));
        }
        if self.at(to).full {
            return Err(SenseData::new(SenseKey::IllegalRequest, 0x3b, 0x0d));
        }
        let tag = self.at(from).volume_tag.take();
        self.at(from).full = false;
        self.moves.push((from, to));
        let to = self.at(to);
        (to.full, to.volume_tag, to.source) = (true, tag, Some(from));
        Ok(())
    }

    fn answer(&mut self, cdb: &[u8]) -> Result<Vec<u8>, SenseData> {
        self.commands.push(cdb.to_vec());
        let command = Command::of_cdb(DeviceType::Changer, cdb).unwrap();
        if !matches!(command, Command::Inquiry { .. })
            && let Some(attention) = self.attentions.pop_front()
        {
            return Err(attention);
        }
        match command {
            Command::Inquiry { vital_product_data: None, .. } => {
                let inquiry = Inquiry {
                    device_type: DeviceType::Changer as u8,
                    vendor: "CAPSTAN".to_owned(),
                    product: "SHELVES".to_owned(),
                    revision: "0001".to_owned(),
                };
                Ok(inquiry.to_bytes().to_vec())
            }
            Command::Inquiry { .. } => Ok(b"\x08\x80\x00\x04LIB1".to_vec()),
            Command::ModeSense { .. } => {
                let mut bytes = vec![23, 0, 0, 0];
                bytes.extend_from_slice(&self.assignments.to_bytes());
                Ok(bytes)
            }
            Command::ReadElementStatus { kind, start, count, volume_tags, device_identifiers, .. } => {
                let elements: Vec<_> = self
                    .elements
                    .iter()
                    .filter(|element| (kind == 0 || element.kind as u8 == kind) && element.address >= start)
                    .take(usize::from(count))
                    .cloned()
                    .collect();
                Ok(encode(&elements, Told { volume_tags, device_identifiers }))
            }
            Command::MoveMedium { from, to, .. } => match self.upsets.pop_front() {
                Some(upset) => Err(upset),
                None => self.carry(from, to).map(|()| Vec::new()),
            },
            _ => Err(SenseData::new(SenseKey::IllegalRequest, 0x20, 0x00)),
        }
    }
}

impl Transport for Library {
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, _timeout: Duration) -> Result<Reply, TransportError> {
        match self.shelves().answer(cdb) {
            Err(sense) => Ok(Reply { status: ScsiStatus::CheckCondition, sense: Some(sense), moved: 0 }),
            Ok(bytes) => {
                let mut moved = 0;
                if let DataPhase::In(room) = data {
                    moved = bytes.len().min(room.len());
                    room[..moved].copy_from_slice(&bytes[..moved]);
                }
                Ok(Reply { status: ScsiStatus::Good, sense: None, moved })
            }
        }
    }

    fn data_max(&self) -> usize {
        self.shelves().data_max
    }
}
