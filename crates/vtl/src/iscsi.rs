//! An iSCSI target in user space, and an initiator to try it with (RFC 7143).
//!
//! The target gives the logical units of a [`DeviceServer`](crate::DeviceServer) to any initiator over TCP: discovery,
//! login with CHAP, checksums, commands with immediate, unsolicited and solicited data, task management. It keeps to
//! one connection for each session and to error recovery level 0: what breaks a connection ends its session, and the
//! initiator logs in again. Kernel targets were looked at and passed over: they want a block device or a SCSI host
//! behind them, and root.
//!
//! ```text
//!   server      listens, counts logins           initiator   the other side, for tests and measurements
//!     login       names, CHAP, negotiation
//!     registry    who is in
//!       session     the crew of a session, and who of it receives
//!         receive     PDUs in
//!         task, lane  commands from arrival to end, in order for each unit
//!         execute     data and status out
//!         manage      task management
//!   wire, pdu, text   bytes
//! ```
//! ```
//! use std::sync::Arc;
//!
//! use capstan_vtl::iscsi::{Initiator, InitiatorConfig, Server, TargetConfig};
//! use capstan_vtl::{Completion, DataIn, DeviceServer, Nexus, Request, TaskFunction};
//!
//! /// One logical unit that does nothing, well.
//! struct Idle;
//!
//! impl DeviceServer for Idle {
//!     fn execute(&self, _: &Request<'_>, _: &mut DataIn) -> Completion {
//!         Completion::GOOD
//!     }
//!     fn data_out_max(&self) -> usize {
//!         1 << 20
//!     }
//!     fn luns(&self) -> Vec<u64> {
//!         vec![0]
//!     }
//!     fn manage(&self, _: &Nexus, _: u64, _: TaskFunction) {}
//!     fn nexus_lost(&self, _: &Nexus) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let name = "iqn.2026-01.example:library";
//! let config = TargetConfig { portal: "127.0.0.1:0".parse()?, ..TargetConfig::new(name) };
//! let server = Server::bind(config, Arc::new(Idle))?;
//! let mut initiator = Initiator::connect(&InitiatorConfig::new(server.local_address(), name))?;
//! let test_unit_ready = [0; 6];
//! assert!(initiator.execute(0, &test_unit_ready, &[], &mut [])?.is_good());
//! initiator.logout()?;
//! server.stop();
//! # Ok(())
//! # }
//! ```

mod buffer;
mod chap;
mod config;
mod exercise;
mod faults;
mod initiator;
mod lane;
mod login;
mod lun;
mod negotiate;
mod pdu;
mod server;
mod session;
mod task;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub use config::{ChapCredentials, ChapSecret, ConfigError, Discovery, TargetConfig, TargetLimits};
pub use exercise::{exercise_login, exercise_pdus};
pub use faults::{UnknownWirePoint, WireFaults, WirePoint};
pub use initiator::{CommandOutcome, FoundTarget, Initiator, InitiatorConfig, InitiatorError, Residual, Unsolicited};
pub use negotiate::SessionKind;
pub use server::{ServeError, Server};
pub use session::SessionStatus;
pub use wire::Digest;
