//! The units without a wire between: a host in the same process, for tests and for rounds of faults, where a kernel or
//! a network would only be slower. Everything else is as it is with real devices: SCSI commands, sense data, time-outs.

use std::sync::Arc;
use std::time::Duration;

use capstan_format::Volser;
use capstan_tape::hardware::{DriveCompression, ScsiChanger, ScsiDrive};
use capstan_tape::scsi::{DataPhase, Reply, ScsiStatus, SenseData, Transport, TransportError};
use capstan_tape::{CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, DriveDescription, Element, PaceClock};

use crate::device::{Cancel, DataIn, DeviceServer, Nexus, Request};
use crate::library::ServedLibrary;

/// A host's way to one unit.
pub struct LocalTransport {
    device: Arc<dyn DeviceServer>,
    nexus: Nexus,
    lun: u64,
    data_in: DataIn,
    /// Never ordered: a host gives no command up before it has ended.
    cancel: Cancel,
    /// Held by who uses the unit exclusively.
    _in_use: Option<Arc<()>>,
}

/// Most bytes a command moves this way: as much as most adapters.
const DATA_MAX: usize = 16 << 20;

impl LocalTransport {
    /// The way of a host of this name to unit `lun`.
    pub fn new(device: Arc<dyn DeviceServer>, initiator: &str, lun: u64) -> Self {
        let nexus = Nexus { initiator: initiator.to_owned(), session: 0 };
        Self { device, nexus, lun, data_in: DataIn::default(), cancel: Cancel::default(), _in_use: None }
    }
}

impl Transport for LocalTransport {
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        let data_out = if let DataPhase::Out(bytes) = &data { *bytes } else { &[] };
        let request = Request { nexus: &self.nexus, lun: self.lun, cdb, data_out, cancel: &self.cancel };
        let done = self.device.execute(&request, &mut self.data_in);
        if done.status == crate::device::CommandStatus::Lost {
            // A host waits for as long as it said; nobody needs to wait here.
            return Err(TransportError::Timeout { opcode: cdb.first().copied().unwrap_or_default(), after: timeout });
        }
        let moved = match data {
            DataPhase::None => 0,
            DataPhase::Out(bytes) => done.data_out_len.map_or(bytes.len(), |taken| (taken as usize).min(bytes.len())),
            DataPhase::In(buffer) => {
                let moved = self.data_in.bytes().len().min(buffer.len());
                buffer[..moved].copy_from_slice(&self.data_in.bytes()[..moved]);
                moved
            }
        };
        let sense = SenseData::of_bytes(&done.sense);
        Ok(Reply { status: ScsiStatus::of_code(done.status as u8), sense, moved })
    }

    fn data_max(&self) -> usize {
        DATA_MAX
    }
}

/// Time that goes by as fast as somebody waits for it.
#[derive(Debug, Default)]
struct HurriedClock {
    now_s: f64,
}

impl PaceClock for HurriedClock {
    fn now_s(&self) -> f64 {
        self.now_s
    }

    fn wait_until(&mut self, at_s: f64) {
        self.now_s = self.now_s.max(at_s);
    }
}

/// The library as a host in the same process has it: to mount from, as from a real one. What a host would wait for
/// takes no time.
pub struct LocalLibrary {
    library: Arc<ServedLibrary>,
    initiator: String,
    /// One for each drive, shared with who uses it.
    in_use: Vec<Arc<()>>,
}

impl LocalLibrary {
    /// The library of a host of this name.
    pub fn new(library: Arc<ServedLibrary>, initiator: &str) -> Self {
        let in_use = library.drives().iter().map(|_| Arc::new(())).collect();
        Self { library, initiator: initiator.to_owned(), in_use }
    }

    fn way(&self, lun: u64) -> LocalTransport {
        LocalTransport::new(Arc::clone(&self.library) as Arc<dyn DeviceServer>, &self.initiator, lun)
    }

    fn robot(&self) -> Result<ScsiChanger<LocalTransport>, ChangerError> {
        Ok(ScsiChanger::open(self.way(0), "robot")?.with_clock(Box::new(HurriedClock::default())))
    }
}

impl Changer for LocalLibrary {
    fn inventory(&mut self) -> Result<Vec<Element>, ChangerError> {
        self.robot()?.inventory()
    }

    fn load(&mut self, volser: &Volser, drive: u32) -> Result<(), ChangerError> {
        self.robot()?.load(volser, drive)
    }

    fn unload(&mut self, drive: u32) -> Result<(), ChangerError> {
        self.robot()?.unload(drive)
    }

    fn carry_out_request(&mut self, request: &ChangerRequest) -> Result<(), ChangerError> {
        self.robot()?.carry_out_request(request)
    }
}

impl capstan_tape::Library for LocalLibrary {
    fn drives(&mut self) -> Result<u32, ChangerError> {
        Ok(self.library.drives().len() as u32)
    }

    fn describe_drives(&mut self) -> Result<Vec<DriveDescription>, ChangerError> {
        let serials = self.robot()?.drive_serials()?;
        Ok(serials
            .into_iter()
            .map(|serial| DriveDescription { model: None, class: None, serial, path: None })
            .collect())
    }

    fn take_drive(&mut self, drive: u32) -> Result<Box<dyn Drive>, ChangerError> {
        let drives = self.drives()?;
        let in_use = self.in_use.get(drive as usize).ok_or(ChangerError::UnknownDrive { drive, drives })?;
        if Arc::strong_count(in_use) > 1 {
            return Err(ChangerError::InUse { what: format!("drive {drive}"), holder: "this process".to_owned() });
        }
        let way = LocalTransport { _in_use: Some(Arc::clone(in_use)), ..self.way(u64::from(drive) + 1) };
        let drive = ScsiDrive::open(way, format!("drive-{drive}"), DriveCompression::Off)?;
        Ok(Box::new(drive.with_clock(Box::new(HurriedClock::default()))))
    }

    fn create_cartridge(&mut self, spec: &CartridgeSpec) -> Result<(), ChangerError> {
        Err(ChangerError::NotMade { volser: spec.volser.clone() })
    }
}
