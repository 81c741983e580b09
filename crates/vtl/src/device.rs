//! What stands between a SCSI transport and the logical units behind it.
//!
//! The transport (iSCSI, or a test in the same process) knows sessions, bytes and digests, and nothing of tapes; the
//! device server knows commands, and nothing of sessions but the nexus that a command came by. Both sides are called
//! from many threads at once; a device server orders the commands of one logical unit itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest data that a command may return.
pub(crate) const DATA_IN_MAX: usize = 16 << 20;

/// One path from an initiator port to this target (SAM-5, 4.8): what reservations belong to and unit attentions are
/// kept for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nexus {
    /// The initiator port: for iSCSI its name, `,i,0x` and the ISID in hexadecimal. The same after it logs in again.
    pub initiator: String,
    /// Number of this session, never used twice by one target.
    pub session: u64,
}

/// A command.
#[derive(Debug)]
pub struct Request<'a> {
    /// By which path it came.
    pub nexus: &'a Nexus,
    /// For which logical unit.
    pub lun: u64,
    /// Its bytes: 6, 10, 12 or 16, or more.
    pub cdb: &'a [u8],
    /// What the initiator sent with it, whole.
    pub data_out: &'a [u8],
    /// Ordered once nobody wants it any more.
    pub cancel: &'a Cancel,
}

/// An order to end a command early: it was aborted, its unit is reset, or its connection is gone. A device server looks
/// at it wherever a command may take long.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Gives the order, to all that have a clone of this.
    pub fn order(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was given.
    pub fn is_ordered(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Takes it back, for the next command.
    pub(crate) fn withdraw(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Where a command puts what it returns: a buffer that is kept between commands, so that no block needs memory of its
/// own.
#[derive(Debug, Default)]
pub struct DataIn {
    bytes: Vec<u8>,
    len: usize,
}

impl DataIn {
    /// Nothing, in memory that may be kept from before.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// What is to be returned.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns these bytes, at most `allocation` of them.
    pub fn put(&mut self, bytes: &[u8], allocation: usize) {
        self.len = bytes.len().min(allocation);
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len, 0);
        }
        self.bytes[..self.len].copy_from_slice(&bytes[..self.len]);
    }

    /// A buffer of `len` bytes for a block; what is in it is arbitrary. Say with [`DataIn::filled`] how much of it
    /// counts.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[..len]
    }

    /// The first `len` bytes of the buffer are to be returned.
    pub fn filled(&mut self, len: usize) {
        self.len = len.min(self.bytes.len());
    }
}

/// How a command ended (SAM-5, 5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandStatus {
    /// GOOD.
    Good = 0x00,
    /// CHECK CONDITION: there are sense data.
    CheckCondition = 0x02,
    /// BUSY: try again.
    Busy = 0x08,
    /// RESERVATION CONFLICT.
    ReservationConflict = 0x18,
    /// TASK SET FULL.
    TaskSetFull = 0x28,
    /// No status at all: the command, or its answer, is lost on purpose. The transport says nothing to the initiator.
    Lost = 0xff,
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// How it ended.
    pub status: CommandStatus,
    /// Sense data, in fixed or descriptor format; empty unless there are any.
    pub sense: Vec<u8>,
    /// How many bytes of data from its initiator the command asks for by its descriptor block; none where that is not
    /// known. What was sent beyond that, or is missing, the transport tells the initiator.
    pub data_out_len: Option<u64>,
}

impl Completion {
    /// Ended well.
    pub const GOOD: Self = Self { status: CommandStatus::Good, sense: Vec::new(), data_out_len: None };
}

/// Task management (SAM-5, 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskFunction {
    /// LOGICAL UNIT RESET.
    LogicalUnitReset,
    /// Both warm and cold reset of the target.
    TargetReset,
    /// ABORT TASK SET, CLEAR TASK SET, and ABORT TASK of a command that had not begun: nothing changes in the unit but
    /// what is reported to others.
    AbortTaskSet,
}

/// Logical units.
pub trait DeviceServer: Send + Sync {
    /// Runs a command to its end.
    fn execute(&self, request: &Request<'_>, data_in: &mut DataIn) -> Completion;

    /// The longest data that a command may send, in bytes; a transport refuses more before it allocates anything.
    fn data_out_max(&self) -> usize;

    /// Logical units, as REPORT LUNS tells them.
    fn luns(&self) -> Vec<u64>;

    /// Task management; the transport has thrown away what had not begun.
    fn manage(&self, nexus: &Nexus, lun: u64, function: TaskFunction);

    /// A session has ended: what belongs to this nexus alone is forgotten.
    fn nexus_lost(&self, nexus: &Nexus);
}
