//! Persistent reservations: the drive is one mover's alone, and another's attempt to take it stops the job.
//!
//! A reservation that was lost is never taken back here: who took it may be writing. One of another mover is taken over
//! only where the caller knows that mover to be gone.

use super::ScsiDrive;
use crate::DriveError;
use crate::hardware::line::Failure;
use crate::scsi::{Command, DataPhase, Transport};

/// Service actions of PERSISTENT RESERVE OUT (SPC-5, 6.14).
mod action {
    pub(super) const REGISTER: u8 = 0x00;
    pub(super) const RESERVE: u8 = 0x01;
    pub(super) const RELEASE: u8 = 0x02;
    pub(super) const PREEMPT: u8 = 0x04;
    pub(super) const REGISTER_AND_IGNORE: u8 = 0x06;
}

/// Only who has reserved it has access.
const EXCLUSIVE_ACCESS: u8 = 0x03;

/// Service action of PERSISTENT RESERVE IN.
const READ_RESERVATION: u8 = 0x01;

/// Whether the drive is this mover's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserved {
    /// It was not asked for.
    No,
    /// It is, by this key.
    With(u64),
    /// It was, and another host took it. Nothing is written until the caller reserves it anew, or does without.
    Lost,
}

impl<T: Transport> ScsiDrive<T> {
    /// Reserves the drive for this path with the mover's key, which is not 0. Where another mover has it, `is_gone`
    /// says of that one's key whether it is gone: then the drive is taken from it.
    ///
    /// # Errors
    /// [`DriveError::InUse`] names the key of who has the drive.
    pub fn reserve(&mut self, key: u64, is_gone: &dyn Fn(u64) -> bool) -> Result<(), DriveError> {
        // What happened to the drive before (a cartridge came, another host let go of it) is told by the first command.
        match self.reserve_out(action::REGISTER_AND_IGNORE, 0, key) {
            Err(DriveError::Reset { .. }) => self.reserve_out(action::REGISTER_AND_IGNORE, 0, key)?,
            registered => registered?,
        }
        let mut reserved = self.send_reserve_out(action::RESERVE, key, 0);
        let mut holder = None;
        if matches!(reserved, Err(Failure::Conflict)) {
            holder = self.reservation_holder();
            if let Some(gone) = holder.filter(|holder| is_gone(*holder)) {
                reserved = self.send_reserve_out(action::PREEMPT, key, gone);
            }
        }
        match reserved {
            Err(Failure::Conflict) => {
                let holder = match holder {
                    Some(holder) => format!("the host with reservation key {holder:016x}"),
                    None => "another host, which has reserved it".to_owned(),
                };
                // A registration without a reservation would get this host told of others' affairs.
                drop(self.send_reserve_out(action::REGISTER, key, 0));
                Err(DriveError::InUse { what: format!("drive {}", self.line.name), holder })
            }
            reserved => {
                self.checked("PERSISTENT RESERVE OUT", reserved)?;
                self.reserved = Reserved::With(key);
                if !self.knows_ciphers {
                    // Somebody else had it when it was opened.
                    self.ask_timeouts();
                    self.ask_ciphers()?;
                }
                Ok(())
            }
        }
    }

    /// Gives the drive back; nothing is done if it is not reserved from here. After a loss, it is used without from now
    /// on.
    ///
    /// # Errors
    /// The drive does not answer, or refuses.
    pub fn release(&mut self) -> Result<(), DriveError> {
        let Reserved::With(key) = std::mem::replace(&mut self.reserved, Reserved::No) else { return Ok(()) };
        self.reserve_out(action::RELEASE, key, 0)?;
        self.reserve_out(action::REGISTER, key, 0)
    }

    /// Nothing is written to a drive that was taken over.
    pub(super) fn still_reserved(&self) -> Result<(), DriveError> {
        match self.reserved {
            Reserved::Lost => Err(DriveError::ReservationLost { drive: self.line.name.clone() }),
            Reserved::No | Reserved::With(_) => Ok(()),
        }
    }

    /// The key that the drive is reserved with, by whomsoever.
    pub fn reservation_holder(&mut self) -> Option<u64> {
        let mut bytes = [0; 24];
        let command = Command::PersistentReserveIn { action: READ_RESERVATION, allocation: bytes.len() as u16 };
        let moved = self.line.run(&command, DataPhase::In(&mut bytes)).ok()?.moved;
        (moved >= 16).then(|| crate::scsi::bytes::be64(&bytes, 8))
    }

    fn reserve_out(&mut self, action: u8, key: u64, new_key: u64) -> Result<(), DriveError> {
        let sent = self.send_reserve_out(action, key, new_key);
        self.checked("PERSISTENT RESERVE OUT", sent).map(drop)
    }

    fn send_reserve_out(&mut self, action: u8, key: u64, new_key: u64) -> Result<crate::hardware::line::Done, Failure> {
        let mut parameters = [0; 24];
        parameters[..8].copy_from_slice(&key.to_be_bytes());
        parameters[8..16].copy_from_slice(&new_key.to_be_bytes());
        let is_registration = matches!(action, action::REGISTER | action::REGISTER_AND_IGNORE);
        let kind = if is_registration { 0 } else { EXCLUSIVE_ACCESS };
        let command = Command::PersistentReserveOut { action, scope: 0, kind, len: parameters.len() as u32 };
        self.line.run(&command, DataPhase::Out(&parameters))
    }
}
