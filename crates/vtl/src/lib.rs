//! A virtual tape library: drives and a changer as SCSI hardware, for any initiator, over iSCSI.
//!
//! ```text
//! initiators (the kernel's, libiscsi, ours)
//!     | iSCSI
//! transport            sessions, bytes, digests; knows no tape
//!     | DeviceServer
//! Library   unit 0: robot     units 1..: drives         SCSI; knows no session
//!              |                  |
//!           shelf             tape::Drive               virtual cartridges, models, pace
//! ```
//! Every drive is a [`capstan_tape::Drive`], so the models, the pace and the faults of that room are those of this
//! hardware. A drive may be an encryption agent ([`KeyAgent`]): then any program's tapes are encrypted, and the program
//! need not know.

mod agent;
mod control;
mod device;
mod events;
mod fault;
pub mod iscsi;
mod layout;
mod library;
mod local;
mod provider_agent;
mod service;
mod shelf;
mod unit;

pub use agent::{KeyAgent, KeyAgentError};
pub use control::{ControlError, ControlReply, ControlRequest, LibraryStatus, PlaceRow, ServedDrive, ask};
pub use device::{Cancel, CommandStatus, Completion, DataIn, DeviceServer, Nexus, Request, TaskFunction};
pub use events::{EventSeverity, TargetEvent, TargetEvents, VolumeKeyState};
pub use fault::{CommandClass, DeviceFault, FaultOrder, FaultyUnit, ROBOT_SENSE_ROWS, SENSE_ROWS, drawn_faults};
pub use layout::{
    CartridgeLayout, DriveLayout, Encryption, LAYOUT_FILE, Layout, LayoutError, LibraryLayout, Pace, TargetLayout,
};
pub use library::{DriveStatus, ElementRow, LibraryError, ServedLibrary};
pub use local::{LocalLibrary, LocalTransport};
pub use provider_agent::ProviderAgent;
pub use service::{LibraryService, ServiceError};
pub use shelf::ShelfError;
