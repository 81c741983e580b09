//! The whole library: the robot as logical unit 0, drives as 1 and on.

use std::path::Path;
use std::sync::Arc;

use capstan_format::Volser;
use capstan_tape::Rewritability;
use capstan_tape::scsi::SenseKey;
use capstan_tape::scsi::inquiry::DeviceType;
use thiserror::Error;

use crate::agent::KeyAgent;
use crate::device::{Completion, DataIn, DeviceServer, Nexus, Request, TaskFunction};
use crate::events::{DriveVoice, TargetEvent, TargetEvents, unheard};
use crate::fault::{DeviceFault, FaultOrder, FaultyUnit};
use crate::layout::{Encryption, Layout, LayoutError};
use crate::shelf::{Place, Shelf, ShelfError};
use crate::unit::answer::{check, completion};
use crate::unit::changer::ChangerUnit;
use crate::unit::faults::Waiting;
use crate::unit::primary::{Identity, report_luns};
use crate::unit::tape::{DriveConfig, TapeUnit};

/// Longest data that a command may send: the longest block that READ and WRITE can name, and a little.
const DATA_OUT_MAX: usize = 16 << 20;

/// A virtual library, in memory and on disk.
pub struct ServedLibrary {
    layout: Layout,
    robot: ChangerUnit,
    drives: Vec<Arc<TapeUnit>>,
    events: TargetEvents,
}

/// Why a library cannot be opened.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// Caller: its layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Host: its cartridges.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// Caller: a model that there is not.
    #[error(transparent)]
    Model(#[from] capstan_tape::model::ModelError),
    /// Caller: drives that fetch keys need keys.
    #[error(
        "drive {number} is an encryption agent, and there are no keys to fetch: name a state directory whose keys it may use"
    )]
    NoAgent {
        /// The drive.
        number: usize,
    },
}

/// A drive, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveStatus {
    /// Serial number.
    pub serial: String,
    /// Model.
    pub model: String,
    /// The cartridge in it.
    pub volser: Option<Volser>,
    /// Writes by hosts that could not know where the tape stood.
    pub unverified_writes: u64,
}

/// An element, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementRow {
    /// `slot 0`, `mail 1`, `drive 0`.
    pub place: String,
    /// Its address.
    pub address: u16,
    /// The cartridge in it.
    pub volser: Option<Volser>,
}

impl ServedLibrary {
    /// Opens the library in a folder, which has a layout.
    ///
    /// # Errors
    /// The layout or the shelf cannot be read; [`LibraryError::NoAgent`] if a drive is to fetch keys and there is no
    /// agent.
    pub fn open(folder: &Path, agent: Option<&Arc<dyn KeyAgent>>) -> Result<Self, LibraryError> {
        Self::open_heard(folder, agent, unheard())
    }

    /// As [`ServedLibrary::open`]; what happens in it is told.
    ///
    /// # Errors
    /// As [`ServedLibrary::open`].
    pub fn open_heard(
        folder: &Path,
        agent: Option<&Arc<dyn KeyAgent>>,
        events: TargetEvents,
    ) -> Result<Self, LibraryError> {
        let layout = Layout::read(folder)?;
        let shelf = Shelf::open(folder, &layout)?;
        let port = format!("{},t,0x0001", layout.target.name);
        let mut drives = Vec::new();
        for (number, drive) in layout.drives.iter().enumerate() {
            if drive.encryption == Encryption::Agent && agent.is_none() {
                return Err(LibraryError::NoAgent { number });
            }
            let model = drive.drive_model()?;
            let identity = Identity {
                device: DeviceType::Tape,
                product: model.name.to_ascii_uppercase(),
                serial: drive.serial(number),
                port: port.clone(),
            };
            let agent = agent.filter(|_| drive.encryption == Encryption::Agent).cloned();
            let fitting = DriveConfig { identity, model, encryption: drive.encryption, pace: drive.pace, agent };
            let voice = DriveVoice { drive: number, events: Arc::clone(&events) };
            drives.push(Arc::new(TapeUnit::new(fitting, voice)));
        }
        let serial = layout.library.serial.clone();
        let identity = Identity { device: DeviceType::Changer, product: "VTL".to_owned(), serial, port };
        let robot = ChangerUnit::new(identity, drives.clone(), shelf, Arc::clone(&events));
        Ok(Self { layout, robot, drives, events })
    }

    /// How it is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its drives.
    pub fn drives(&self) -> Vec<DriveStatus> {
        let status = |(drive, layout): (&Arc<TapeUnit>, &crate::layout::DriveLayout)| DriveStatus {
            serial: drive.identity().serial.clone(),
            model: layout.model.clone(),
            volser: drive.holds().map(|(volser, _)| volser),
            unverified_writes: drive.unverified_writes(),
        };
        self.drives.iter().zip(&self.layout.drives).map(status).collect()
    }

    /// Its elements.
    pub fn elements(&self) -> Vec<ElementRow> {
        let row = |(place, volser): (Place, Option<Volser>)| ElementRow {
            place: place.to_string(),
            address: place.address(),
            volser,
        };
        self.robot.inventory().into_iter().map(row).collect()
    }

    /// Makes a cartridge and puts it into a free slot, which it names.
    ///
    /// # Errors
    /// A cartridge of that barcode is there, no slot is free, or the file cannot be written.
    pub fn create(
        &self,
        volser: &Volser,
        capacity_bytes: u64,
        generation: Option<String>,
        rewritability: Rewritability,
    ) -> Result<String, ShelfError> {
        let generation = generation.unwrap_or_else(|| self.layout.generation());
        let place = self
            .robot
            .by_hand(|shelf| shelf.create(volser, capacity_bytes, generation, rewritability), true)?
            .to_string();
        (self.events)(TargetEvent::Created { barcode: volser.to_string(), place: place.clone() });
        Ok(place)
    }

    /// Takes a cartridge out of the mail slot; where it lies then.
    ///
    /// # Errors
    /// The cartridge is not in the mail slot, or its file cannot be moved.
    pub fn export(&self, volser: &Volser) -> Result<std::path::PathBuf, ShelfError> {
        let outside = self.robot.by_hand(|shelf| shelf.export(volser), true)?;
        (self.events)(TargetEvent::Exported { barcode: volser.to_string() });
        Ok(outside)
    }

    /// Puts a cartridge that is outside into the mail slot, at the place it names.
    ///
    /// # Errors
    /// No such cartridge is outside, the mail slot is full, or the file cannot be moved.
    pub fn import(&self, volser: &Volser) -> Result<String, ShelfError> {
        let place = self.robot.by_hand(|shelf| shelf.import(volser), true)?.to_string();
        (self.events)(TargetEvent::Imported { barcode: volser.to_string(), place: place.clone() });
        Ok(place)
    }

    /// Resets a drive at once, as a bus reset or a loss of its power does.
    pub fn reset_drive(&self, number: usize) {
        if let Some(drive) = self.drives.get(number) {
            drive.reset();
        }
    }

    /// Orders a fault; the cartridge that it names must be there.
    ///
    /// # Errors
    /// In words: the fault names a cartridge or drive that is not there.
    pub fn inject(&self, order: &FaultOrder) -> Result<(), String> {
        let volser = match &order.fault {
            DeviceFault::ChangeTape { volser, .. } | DeviceFault::WrongTape { volser } => Some(volser),
            _ => None,
        };
        let cartridge = match volser {
            None => None,
            Some(volser) => {
                let found = Volser::new(volser).ok().and_then(|volser| self.robot.cartridge(&volser));
                Some(found.ok_or_else(|| format!("the library has no cartridge {volser}"))?)
            }
        };
        let waiting = Waiting { at: order.at, passing: order.passing, fault: order.fault.clone(), cartridge };
        match order.unit {
            FaultyUnit::Robot => self.robot.order_fault(waiting),
            FaultyUnit::Drive(number) => {
                let count = self.drives.len();
                let drive =
                    self.drives.get(number).ok_or_else(|| format!("there are {count} drives, counted from 0"))?;
                drive.order_fault(waiting);
            }
        }
        Ok(())
    }

    /// What is in the drives' buffers goes to the disk; what did not, by drive and cartridge.
    pub fn flush(&self) -> Vec<String> {
        let flushed = |drive: &Arc<TapeUnit>| {
            let error = drive.flush().err()?;
            let volser = drive.holds().map(|(volser, _)| volser.to_string()).unwrap_or_default();
            Some(format!("drive {}, cartridge {volser}: {error}", drive.identity().serial))
        };
        self.drives.iter().filter_map(flushed).collect()
    }

    /// Nothing goes wrong any more, by orders that wait or by such as last; how many faults have happened so far.
    pub fn forgive(&self) -> u64 {
        self.robot.forgive() + self.drives.iter().map(|drive| drive.forgive()).sum::<u64>()
    }

    /// Ends all reservations, as a person does who knows that their holders are gone.
    pub fn end_reservations(&self) {
        self.robot.end_reservations();
        for drive in &self.drives {
            drive.end_reservations();
        }
    }

    fn drive(&self, lun: u64) -> Option<&TapeUnit> {
        let number = usize::try_from(lun.checked_sub(1)?).ok()?;
        self.drives.get(number).map(Arc::as_ref)
    }
}

impl DeviceServer for ServedLibrary {
    fn execute(&self, request: &Request<'_>, data_in: &mut DataIn) -> Completion {
        if request.cdb.first() == Some(&0xa0) {
            data_in.clear();
            let read = capstan_tape::scsi::Command::of_cdb(DeviceType::Changer, request.cdb);
            let Ok(capstan_tape::scsi::Command::ReportLuns { select, allocation }) = read else {
                return completion(Err(crate::unit::answer::invalid_command_field(2)));
            };
            return completion(report_luns(&self.luns(), select, allocation, data_in));
        }
        match (request.lun, self.drive(request.lun)) {
            (0, _) => self.robot.execute(request, data_in),
            (_, Some(drive)) => drive.execute(request, data_in),
            (_, None) => {
                data_in.clear();
                match request.cdb {
                    // INQUIRY of a unit that there is not: qualifier 3, type 1Fh (SPC-5, 6.7.1).
                    [0x12, ..] => {
                        let mut bytes = [0; 36];
                        bytes[0] = 0x7f;
                        data_in.put(&bytes, 36);
                        Completion::GOOD
                    }
                    // LOGICAL UNIT NOT SUPPORTED
                    _ => completion(Err(check(SenseKey::IllegalRequest, 0x25, 0x00))),
                }
            }
        }
    }

    fn data_out_max(&self) -> usize {
        DATA_OUT_MAX
    }

    fn luns(&self) -> Vec<u64> {
        (0..=self.drives.len() as u64).collect()
    }

    fn manage(&self, _nexus: &Nexus, lun: u64, function: TaskFunction) {
        match function {
            TaskFunction::AbortTaskSet => {}
            TaskFunction::LogicalUnitReset if lun == 0 => self.robot.reset(),
            TaskFunction::LogicalUnitReset => {
                if let Some(drive) = self.drive(lun) {
                    drive.reset();
                }
            }
            TaskFunction::TargetReset => {
                self.robot.reset();
                for drive in &self.drives {
                    drive.reset();
                }
            }
        }
    }

    fn nexus_lost(&self, nexus: &Nexus) {
        self.robot.nexus_lost(nexus);
        for drive in &self.drives {
            drive.nexus_lost(nexus);
        }
    }
}
