//! The units without a wire between: a host in the same process, for tests and for rounds of faults, where a kernel or a network
//! would only be slower.

use std::sync::Arc;
use std::time::Duration;

use capstan_tape::scsi::{Data, Reply, SenseData, Status, Transport, TransportError};

use crate::device::{DataIn, DeviceServer, Nexus, Request};

/// A host's way to one unit.
pub struct LocalTransport {
    device: Arc<dyn DeviceServer>,
    nexus: Nexus,
    lun: u64,
    data_in: DataIn,
}

/// Most bytes a command moves this way: as much as most adapters.
const DATA_MAX: usize = 16 << 20;

impl LocalTransport {
    /// The way of a host of this name to unit `lun`.
    pub fn new(device: Arc<dyn DeviceServer>, initiator: &str, lun: u64) -> Self {
        let nexus = Nexus { initiator: initiator.to_owned(), session: 0 };
        Self { device, nexus, lun, data_in: DataIn::default() }
    }
}

impl Transport for LocalTransport {
    fn execute(&mut self, cdb: &[u8], data: Data<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        let data_out = if let Data::Out(bytes) = &data { *bytes } else { &[] };
        let request = Request { nexus: &self.nexus, lun: self.lun, cdb, data_out };
        let done = self.device.execute(&request, &mut self.data_in);
        if done.status == crate::device::Status::Lost {
            // A host waits for as long as it said; nobody needs to wait here.
            return Err(TransportError::Timeout { opcode: cdb.first().copied().unwrap_or_default(), after: timeout });
        }
        let moved = match data {
            Data::None => 0,
            Data::Out(bytes) => bytes.len(),
            Data::In(buffer) => {
                let moved = self.data_in.bytes().len().min(buffer.len());
                buffer[..moved].copy_from_slice(&self.data_in.bytes()[..moved]);
                moved
            }
        };
        let sense = SenseData::of_bytes(&done.sense);
        Ok(Reply { status: Status::of_code(done.status as u8), sense, moved })
    }

    fn data_max(&self) -> usize {
        DATA_MAX
    }
}
