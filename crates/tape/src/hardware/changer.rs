//! A real library, driven by SCSI commands over any transport.
//!
//! Elements are numbered by kind from 0, in the order of their addresses in the library. The library is asked what is
//! where before each move, as people open doors and other hosts move cartridges; a move that meets an element which is
//! full or empty against what was told (5/3B/0D, 0E), or a door that was opened (6/28/01), takes the inventory again
//! and is tried once more.
//!
//! A cartridge whose barcode is missing, is no volser, or is there twice is a [`Finding`]: it is left where it is, its
//! slot is never taken for a free one, and the operator is told.

use std::time::Duration;

use capstan_format::Volser;

use crate::hardware::OnWait;
use crate::hardware::line::{Done, Failure, Line};
use crate::scsi::element::{Assignments, ElementStatus, ElementType};
use crate::scsi::sense::{Action, OFFLINE, Sense};
use crate::scsi::{Command, DataPhase, ScsiStatus, Transport};
use crate::{Changer, ChangerError, ChangerRequest, Element, ElementAddress, Finding, PaceClock};

mod inventory;
mod moves;
mod open;

use moves::Purpose;

/// How long a library may be busy: it takes its whole inventory when a door was closed.
const READY_WITHIN: Duration = Duration::from_secs(1800);

/// Unit attentions in a row that are taken for news.
const UNIT_ATTENTIONS_MAX: usize = 16;

/// A library at the other end of a [`Transport`].
pub struct ScsiChanger<T> {
    line: Line<T>,
    serial: Option<String>,
    assignments: Assignments,
    /// As the library told last.
    elements: Vec<ElementStatus>,
    findings: Vec<Finding>,
}

/// What a command came to, where taking the inventory again may help.
enum Met {
    Done(Done),
    /// Something was not as the inventory had it.
    OtherThanTold(Failure),
}

impl<T: Transport> ScsiChanger<T> {
    /// Takes another clock, for tests: all waiting goes by it.
    #[must_use]
    pub fn with_clock(mut self, clock: Box<dyn PaceClock>) -> Self {
        self.line.set_clock(clock);
        self
    }

    /// Is told while the library is waited for.
    #[must_use]
    pub fn with_on_wait(mut self, on_wait: OnWait) -> Self {
        self.line.set_on_wait(on_wait);
        self
    }

    /// Serial number of the library.
    pub fn serial(&self) -> Option<&str> {
        self.serial.as_deref()
    }

    /// How many drives it has.
    pub fn drives(&self) -> u32 {
        u32::from(self.assignments.data_transfer.1)
    }

    /// Serial numbers of the drives, by element: by these a drive of the host is found again in the library. None where
    /// the library does not tell.
    ///
    /// # Errors
    /// The library cannot be asked.
    pub fn drive_serials(&mut self) -> Result<Vec<Option<String>>, ChangerError> {
        self.take_inventory()?;
        Ok(self.told_drive_serials())
    }

    /// The same, as the last inventory told them.
    pub(crate) fn told_drive_serials(&self) -> Vec<Option<String>> {
        let (first, count) = self.assignments.data_transfer;
        let mut serials = vec![None; usize::from(count)];
        // A library may leave elements out, or tell them in another order.
        for drive in self.elements.iter().filter(|element| element.kind == ElementType::DataTransfer) {
            let number = drive.address.checked_sub(first).map(usize::from);
            if let Some(serial) = number.and_then(|number| serials.get_mut(number)) {
                *serial = drive.drive_serial();
            }
        }
        serials
    }

    /// Has the robot look at every element anew: minutes.
    ///
    /// # Errors
    /// The library cannot be asked, or does not do it in time.
    pub fn initialize(&mut self) -> Result<(), ChangerError> {
        self.command("INITIALIZE ELEMENT STATUS", &Command::InitializeElementStatus, DataPhase::None).map(drop)
    }

    /// Runs a command; unit attentions are passed over, and a library that is busy is waited for.
    fn command(&mut self, what: &'static str, command: &Command, data: DataPhase<'_>) -> Result<Done, ChangerError> {
        match self.try_command(what, command, data)? {
            Met::Done(done) => Ok(done),
            Met::OtherThanTold(failure) => Err(self.failed(what, failure)),
        }
    }

    fn try_command(
        &mut self,
        what: &'static str,
        command: &Command,
        mut data: DataPhase<'_>,
    ) -> Result<Met, ChangerError> {
        let since_s = self.line.now_s();
        let mut attentions = 0;
        let cdb = command.to_cdb();
        loop {
            let failure = match self.line.run_cdb(&cdb, &mut data) {
                Ok(done) => return Ok(Met::Done(done)),
                Err(failure) => failure,
            };
            let Failure::Check(sense) = &failure else { return Err(self.failed(what, failure)) };
            let waited = Duration::from_secs_f64((self.line.now_s() - since_s).max(0.0));
            match (sense.sense.action(), sense.codes()) {
                (Some(Action::Stop), _) => return Err(self.failed(what, failure)),
                (Some(Action::Inventory), (0x6, ..)) if moves_something(command) => {
                    return Ok(Met::OtherThanTold(failure));
                }
                (_, (0x6, ..)) if attentions < UNIT_ATTENTIONS_MAX => attentions += 1,
                // An open door is for a person to close, and what is offline for one to switch on.
                (_, (0x2, 0x3a, 0x02)) => return Err(self.not_ready(sense.sense, waited)),
                (_, (0x2, 0x04, ascq)) if ![0x03, OFFLINE].contains(&ascq) && waited < READY_WITHIN => {
                    self.line.announce(sense.sense, since_s);
                }
                (_, (0x2, 0x04, _)) => return Err(self.not_ready(sense.sense, waited)),
                (Some(Action::Inventory), _) => return Ok(Met::OtherThanTold(failure)),
                _ => return Err(self.failed(what, failure)),
            }
        }
    }

    fn not_ready(&self, sense: Sense, waited: Duration) -> ChangerError {
        ChangerError::NotReady { library: self.line.name.clone(), reason: sense.to_string(), waited }
    }

    fn failed(&self, what: &'static str, failure: Failure) -> ChangerError {
        let library = self.line.name.clone();
        match failure {
            Failure::Check(data) if data.sense.action() == Some(Action::Stop) => ChangerError::Reserved { library },
            Failure::Check(data) => ChangerError::Refused { library, command: what, sense: data.sense },
            Failure::Conflict => ChangerError::Reserved { library },
            Failure::Busy(waited) => ChangerError::NotReady { library, reason: "it answers BUSY".to_owned(), waited },
            Failure::Transport(source) => ChangerError::OutOfReach { library, source },
            Failure::Status(ScsiStatus::CheckCondition) => {
                ChangerError::Unusable { library, reason: format!("{what} failed, and it does not say why: reset it") }
            }
            Failure::Status(status) => {
                let reason = format!("{what} ended with status {status:?}: reset it");
                ChangerError::Unusable { library, reason }
            }
        }
    }

    /// The element of an address in the library, as it is counted here.
    fn place_of(&self, address: u16) -> Option<ElementAddress> {
        let within =
            |(first, count): (u16, u16)| address.checked_sub(first).filter(|number| *number < count).map(u32::from);
        let Assignments { storage, import_export, data_transfer, .. } = self.assignments;
        within(storage)
            .map(ElementAddress::Slot)
            .or_else(|| within(import_export).map(ElementAddress::ImportExport))
            .or_else(|| within(data_transfer).map(ElementAddress::Drive))
    }

    fn element(&self, place: ElementAddress) -> Option<&ElementStatus> {
        self.elements.iter().find(|element| self.place_of(element.address) == Some(place))
    }
}

fn moves_something(command: &Command) -> bool {
    matches!(command, Command::MoveMedium { .. } | Command::ExchangeMedium { .. })
}

/// The barcode of an element's cartridge, where it is a volser.
fn volser_of(element: &ElementStatus) -> Option<Volser> {
    element.volume_tag.as_deref().filter(|_| element.full).and_then(|tag| Volser::new(tag).ok())
}

impl<T: Transport> Changer for ScsiChanger<T> {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        self.take_inventory()?;
        let mut elements: Vec<Element> = self
            .elements
            .iter()
            .filter_map(|element| {
                Some(Element { address: self.place_of(element.address)?, volser: volser_of(element) })
            })
            .collect();
        elements.sort_by_key(|element| element.address);
        Ok(elements)
    }

    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.bring(volser, drive, Purpose::Data)
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.take_back(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        match request {
            ChangerRequest::Exchange { volser, drive } => self.exchange(volser, *drive),
            ChangerRequest::Import { mail_slot } => self.import(*mail_slot),
            ChangerRequest::Export { volser } => self.export(volser),
            ChangerRequest::Clean { volser, drive } => self.bring(volser, *drive, Purpose::Cleaning),
            ChangerRequest::Initialize => self.initialize(),
        }
    }

    fn findings(&self) -> Vec<Finding> {
        self.findings.clone()
    }
}
