//! A command carried out and answered: data in pieces that the initiator takes, residuals, sense data.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use capstan_tape::scsi::{SenseData, SenseKey};

use crate::device::{CommandStatus, Completion, DataIn, Request};

use super::Session;
use crate::iscsi::faults::{Passage, WirePoint};
use crate::iscsi::lane::Aborted;
use crate::iscsi::pdu::{
    DataIn as DataInPdu, FINAL, Header, NO_TAG, Numbers, OVERFLOW, ReadyToTransfer, Response, STATUS, UNDERFLOW,
};
use crate::iscsi::task::Task;
use crate::iscsi::wire::WireError;

/// Most sense data that there are (SPC-5, 4.4.1).
const SENSE_LEN_MAX: usize = 252;
/// TASK ABORTED: another initiator took the command away (SAM-5, 5.3.1).
const TASK_ABORTED: u8 = 0x40;

/// CHECK CONDITION with sense data in fixed format.
fn check_condition(key: SenseKey, asc: u8) -> Completion {
    let sense = SenseData::new(key, asc, 0x00).to_bytes().to_vec();
    Completion { status: CommandStatus::CheckCondition, sense, data_out_len: None }
}

/// Why a command does not even get to its logical unit: more data than a unit takes, or data both ways.
pub(crate) fn refusal(task: &Task, data_out_max: usize, luns: impl FnOnce() -> Vec<u64>) -> Option<Completion> {
    // Data for a unit that there is not would only be collected.
    if task.out_len() > 0 && !luns().contains(&task.lun) {
        // LOGICAL UNIT NOT SUPPORTED
        return Some(check_condition(SenseKey::IllegalRequest, 0x25));
    }
    let refused = task.out_len() as usize > data_out_max || task.out_len() > 0 && task.in_len() > 0;
    // INVALID FIELD IN CDB
    refused.then(|| check_condition(SenseKey::IllegalRequest, 0x24))
}

/// What a command moves compared with what its initiator expected (RFC 7143, 11.4.5): of data it sends, how many the
/// command takes, where its unit knows; otherwise of data it receives.
fn residuals(task: &Task, data_out_len: Option<u64>, data_in_len: usize) -> (u8, u32) {
    match data_out_len {
        Some(taken) if taken > 0 || task.out_len() > 0 => residual(taken, task.out_len()),
        None if task.out_len() > 0 => (0, 0),
        _ => residual(data_in_len as u64, task.in_len()),
    }
}

/// The difference of what is moved and what was expected, and the flags of the response.
fn residual(moved: u64, expected: u32) -> (u8, u32) {
    let returned = u32::try_from(moved).unwrap_or(u32::MAX);
    match returned.checked_sub(expected) {
        Some(0) => (0, 0),
        Some(more) => (OVERFLOW, more),
        None => (UNDERFLOW, expected - returned),
    }
}

/// Cuts data into segments that the initiator takes and sequences that it was promised. `end` is the status, the flags
/// and the residual where they come with the last of the data.
fn segments<'a>(
    task: &Task,
    data: &'a [u8],
    segment_max: usize,
    burst: usize,
    end: Option<(u8, u8, u32)>,
) -> impl Iterator<Item = (Header, &'a [u8])> {
    let (task_tag, lun) = (task.tag, task.wire_lun);
    let (mut offset, mut data_number) = (0, 0);
    std::iter::from_fn(move || {
        let rest = &data[offset..];
        let len = rest.len().min(segment_max).min(burst - offset % burst);
        if len == 0 {
            return None;
        }
        let (last, ends_sequence) = (len == rest.len(), (offset + len).is_multiple_of(burst));
        let mut pdu =
            DataInPdu { task_tag, lun, target_tag: NO_TAG, data_number, offset: offset as u32, ..DataInPdu::default() };
        if last || ends_sequence {
            pdu.flags = FINAL;
        }
        if let (true, Some((status, flags, residual))) = (last, end) {
            pdu.flags |= STATUS | flags;
            (pdu.status, pdu.residual) = (status, residual);
        }
        offset += len;
        data_number += 1;
        Some((pdu.encode(), &rest[..len]))
    })
}

impl Session {
    /// Runs a command and answers it; gives the one that waits behind it in its lane.
    pub(crate) fn execute(&self, task: Task, data_in: &mut DataIn) -> Option<Task> {
        data_in.clear();
        let request = Request {
            nexus: &self.nexus,
            lun: task.lun,
            cdb: task.cdb.bytes(),
            data_out: task.data.first(task.received as usize),
            cancel: &task.cancel,
        };
        // A fault in one command must not take the others with it.
        let completion = catch_unwind(AssertUnwindSafe(|| self.device().execute(&request, data_in)))
            // INTERNAL TARGET FAILURE
            .unwrap_or_else(|_| check_condition(SenseKey::HardwareError, 0x44));
        if self.conclude(&task, &completion, data_in.bytes()).is_err() {
            self.cut();
        }
        let mut state = self.state();
        state.lanes.finish(task.lun);
        state.keep(task.data);
        if state.awaiting_end > 0 {
            self.command_end.notify_all();
        }
        self.advance(state, task.lun)
    }

    /// Answers a command, as far as anybody still waits for that.
    fn conclude(&self, task: &Task, completion: &Completion, data_in: &[u8]) -> Result<(), WireError> {
        if self.pass(WirePoint::BeforeResponse) == Passage::Cut {
            return Err(WireError::Closed);
        }
        let aborted = self.state().lanes.answer(task.lun);
        match aborted {
            None if completion.status == CommandStatus::Lost => self.widen(task.immediate),
            None => self.respond(task, completion, data_in)?,
            Some(Aborted::ByAnother) => self.respond_aborted(task)?,
            Some(Aborted::Silently) => self.widen(task.immediate),
        }
        match self.pass(WirePoint::AfterResponse) {
            Passage::Open => Ok(()),
            Passage::Cut => Err(WireError::Closed),
        }
    }

    /// Sends the data and the end of a command.
    pub(crate) fn respond(&self, task: &Task, completion: &Completion, data: &[u8]) -> Result<(), WireError> {
        self.widen(task.immediate);
        let (residual_flags, residual) = residuals(task, completion.data_out_len, data.len());
        let data = &data[..data.len().min(task.in_len() as usize)];
        let (segment_max, burst) = (self.parameters.send_segment as usize, self.parameters.burst as usize);
        let segment_max = segment_max.min(burst);
        let status = completion.status as u8;
        self.bytes_out.fetch_add(data.len() as u64, Ordering::Relaxed);
        let mut sender = self.sender();
        let mut sent = 0;
        if !data.is_empty() {
            let good = completion.status == CommandStatus::Good;
            let end = good.then_some((status, residual_flags, residual));
            let numbers = self.numbers(if good { sender.take_status_number() } else { 0 });
            let mut pdus = segments(task, data, segment_max, burst, end).map(|(mut header, data)| {
                // The number of the answer stands where the answer is.
                header.stamp(Numbers {
                    status: if header.flags() & STATUS != 0 { numbers.status } else { 0 },
                    ..numbers
                });
                sent += 1;
                (header, data)
            });
            if self.pass(WirePoint::AmidDataIn) == Passage::Cut {
                if let Some((header, data)) = pdus.next() {
                    sender.writer.write_half(header, data)?;
                }
                return Err(WireError::Closed);
            }
            sender.writer.write_many(&mut pdus)?;
            if good {
                return Ok(());
            }
        }
        let response = Response {
            flags: FINAL | residual_flags,
            status,
            task_tag: task.tag,
            expected_data: sent + task.request_number,
            residual,
            ..Response::default()
        };
        let mut header = response.encode();
        header.stamp(self.numbers(sender.take_status_number()));
        if completion.sense.is_empty() {
            return sender.writer.write(header, &[]);
        }
        let sense_len = completion.sense.len().min(SENSE_LEN_MAX);
        let sense = [&(sense_len as u16).to_be_bytes()[..], &completion.sense[..sense_len]].concat();
        sender.writer.write(header, &sense)
    }

    /// Tells that another session took a command away.
    pub(crate) fn respond_aborted(&self, task: &Task) -> Result<(), WireError> {
        self.widen(task.immediate);
        let response = Response { flags: FINAL, status: TASK_ABORTED, task_tag: task.tag, ..Response::default() };
        self.answer(response.encode(), &[])
    }

    /// Asks for data of a command.
    pub(crate) fn ask(&self, ask: ReadyToTransfer) -> Result<(), WireError> {
        match self.pass(WirePoint::BeforeReadyToTransfer) {
            Passage::Open => self.tell(ask.encode(), &[]),
            Passage::Cut => Err(WireError::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::iscsi::pdu::{READ, WRITE};
    use crate::iscsi::task::tests::task as write_task;

    fn task(flags: u8, expected_len: u32) -> Task {
        Task { flags, expected_len, ..write_task(7, 0, 0) }
    }

    #[test]
    fn residuals_say_what_is_missing_and_what_is_left() {
        assert_eq!(residual(512, 512), (0, 0));
        assert_eq!(residual(100, 512), (UNDERFLOW, 412));
        assert_eq!(residual(600, 512), (OVERFLOW, 88));
        assert_eq!(residuals(&task(WRITE, 512), Some(500), 0), (UNDERFLOW, 12), "the command takes less than was sent");
        assert_eq!(residuals(&task(WRITE, 512), Some(600), 0), (OVERFLOW, 88), "and more");
        assert_eq!(residuals(&task(WRITE, 512), Some(0), 0), (UNDERFLOW, 512), "and nothing");
        assert_eq!(residuals(&task(0, 0), Some(600), 0), (OVERFLOW, 600), "and nothing was sent");
        assert_eq!(residuals(&task(WRITE, 512), None, 0), (0, 0), "nobody knows");
        assert_eq!(residuals(&task(READ, 512), Some(0), 100), (UNDERFLOW, 412));
        assert_eq!(residuals(&task(0, 0), Some(0), 0), (0, 0));
    }

    /// Segments of 8, sequences of 20: each sequence is cut anew, its last PDU says so, and the very last has the
    /// status.
    #[test]
    fn data_are_cut_into_segments_and_sequences() {
        let data: Vec<u8> = (0..50).collect();
        let task = task(READ, 64);
        let pdus: Vec<_> = segments(&task, &data, 8, 20, Some((0, UNDERFLOW, 14))).collect();
        let told: Vec<_> = pdus
            .iter()
            .map(|(header, data)| (DataInPdu::decode(header), data.len()))
            .map(|(pdu, len)| (pdu.data_number, pdu.offset, len, pdu.flags))
            .collect();
        let end = FINAL | STATUS | UNDERFLOW;
        let expected = [
            (0, 0, 8, 0),
            (1, 8, 8, 0),
            (2, 16, 4, FINAL),
            (3, 20, 8, 0),
            (4, 28, 8, 0),
            (5, 36, 4, FINAL),
            (6, 40, 8, 0),
            (7, 48, 2, end),
        ];
        assert_eq!(told, expected);
        assert_eq!(DataInPdu::decode(&pdus[7].0).residual, 14);
        assert_eq!(pdus.iter().flat_map(|(_, data)| data.to_vec()).collect::<Vec<_>>(), data);
        assert_eq!(segments(&task, &[], 8, 20, None).count(), 0);
    }

    #[test]
    fn commands_that_no_unit_takes_are_refused_before_their_data() {
        assert_eq!(refusal(&task(WRITE, 1000), 1000, || vec![0]), None);
        let refused = refusal(&task(WRITE, 1001), 1000, || vec![0]).unwrap();
        assert_eq!(
            (refused.status, refused.sense[2], &refused.sense[12..14]),
            (CommandStatus::CheckCondition, 5, &[0x24, 0][..])
        );
        assert!(refusal(&task(READ | WRITE, 1), 1000, || vec![0]).is_some());
        assert_eq!(refusal(&task(READ, 1 << 30), 1000, || vec![0]), None);
    }
}
