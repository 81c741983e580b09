//! SCSI as tape drives and libraries speak it: commands, parameter data, sense, for both ends of the wire.
//!
//! The same words serve who asks ([`hardware`](crate::hardware), over a [`Transport`]: SG_IO, or iSCSI) and who answers
//! (the virtual tape library): a layout stands once, with its two directions side by side. Commands and data follow
//! SPC-5, SSC-5 and SMC-3. Integers are big-endian, as everywhere in SCSI.

pub mod access_order;
pub mod attribute;
pub(crate) mod bytes;
pub mod command;
pub mod element;
pub mod encryption;
pub mod inquiry;
pub mod log;
pub mod position;
pub mod protection;
pub mod sense;
mod sense_data;
mod sense_text;
mod transport;

pub use command::Command;
pub use sense_data::{SenseData, SenseKey};
pub use transport::{DataPhase, Reply, ScsiStatus, Transport, TransportError};
