//! Drives and libraries of metal, driven by SCSI commands over any [`Transport`](crate::scsi::Transport).
//!
//! [`ScsiDrive`] is a [`Drive`](crate::Drive) and [`ScsiChanger`] a [`Changer`](crate::Changer); both speak over a line
//! that knows time-outs, BUSY and waiting. The words that they speak in are [`scsi`](crate::scsi).

mod changer;
mod drive;
mod line;
mod timeouts;

pub use changer::ScsiChanger;
pub use drive::{BlockProtection, DriveCompression, ScsiDrive};
pub(crate) use drive::{generation_of_density, model_of};
pub use line::{OnWait, Waiting};
