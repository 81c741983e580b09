//! A virtual tape library: drives and a changer as SCSI hardware, for any initiator, over iSCSI.

mod device;
pub mod iscsi;

pub use device::{Completion, DataIn, DeviceServer, Nexus, Request, Status, TaskFunction};
