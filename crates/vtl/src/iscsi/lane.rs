//! Commands of one session between their arrival and their end, in one lane for each logical unit.
//!
//! Within a lane commands run one after another in the order of their arrival; lanes know nothing of each other, so that
//! drives of one session run at once. Only the first command of a lane asks for data, so that a waiting one holds no
//! more than what came without being asked for. Plain data and rules: no socket, no thread, no lock.

use std::collections::VecDeque;

use super::pdu::{FINAL, READ, ReadyToTransfer, WRITE};

/// Lanes that are kept while they are empty: a host looks at some logical units again and again.
const EMPTY_LANES_MAX: usize = 64;
/// A command descriptor block as a header has it.
const CDB_LEN: usize = 16;

/// A command descriptor block of any length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cdb {
    head: [u8; CDB_LEN],
    /// Set where it is longer than what a header holds.
    whole: Option<Vec<u8>>,
}

impl Cdb {
    /// From a header and its additional segments; `None` where these make no sense.
    pub(crate) fn new(head: [u8; CDB_LEN], mut ahs: &[u8]) -> Option<Self> {
        const EXTENDED_CDB: u8 = 1;
        const FRAME_LEN: usize = 3;
        let mut whole = None;
        while let Some((&[high, low, kind], rest)) = ahs.split_first_chunk::<FRAME_LEN>() {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let content = rest.get(..len)?;
            if kind == EXTENDED_CDB {
                let (_reserved, extension) = content.split_first()?;
                whole = Some([&head[..], extension].concat());
            }
            let padded_len = (FRAME_LEN + len).next_multiple_of(4) - FRAME_LEN;
            ahs = rest.get(padded_len..)?;
        }
        ahs.is_empty().then_some(Self { head, whole })
    }

    /// As long as its operation code says (SAM-5, 5.2).
    pub(crate) fn bytes(&self) -> &[u8] {
        if let Some(whole) = &self.whole {
            return whole;
        }
        match self.head[0] >> 5 {
            0 => &self.head[..6],
            1 | 2 => &self.head[..10],
            5 => &self.head[..12],
            _ => &self.head,
        }
    }
}

/// Data of a command that were asked for and have not all come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) target_tag: u32,
    /// Offset behind the last of them.
    pub(crate) end: u32,
}

/// A command.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: u32,
    /// The LUN as the wire has it, and as a number.
    pub(crate) wire_lun: u64,
    pub(crate) lun: u64,
    pub(crate) immediate: bool,
    pub(crate) flags: u8,
    pub(crate) expected_len: u32,
    pub(crate) cdb: Cdb,
    /// Room for data; the first `received` bytes have come.
    pub(crate) data: Vec<u8>,
    pub(crate) received: u32,
    /// More data come without being asked for.
    pub(crate) unsolicited: bool,
    pub(crate) asked: Option<Asked>,
    /// Number of the next R2T.
    pub(crate) request_number: u32,
    /// Number of the next Data-Out of this sequence.
    pub(crate) data_number: u32,
}

/// What a Data-Out PDU does that it must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl Task {
    /// Bytes that the initiator has for the command.
    pub(crate) fn out_len(&self) -> u32 {
        if self.flags & WRITE != 0 { self.expected_len } else { 0 }
    }

    /// Bytes that the initiator takes from the command.
    pub(crate) fn in_len(&self) -> u32 {
        if self.flags & READ != 0 { self.expected_len } else { 0 }
    }

    /// Room for `len` bytes from `received` on.
    pub(crate) fn room(data: &mut Vec<u8>, received: u32, len: usize) -> &mut [u8] {
        let (begin, end) = (received as usize, received as usize + len);
        if data.len() < end {
            data.resize(end, 0);
        }
        &mut data[begin..end]
    }

    /// Whether the next data may be these: `len` bytes for `offset`, the `number`th PDU of what `target_tag` asked for.
    pub(crate) fn expects(
        &self,
        target_tag: u32,
        number: u32,
        offset: u32,
        len: usize,
        unsolicited_max: u32,
    ) -> Result<(), OutOfOrder> {
        let end = match self.asked {
            Some(asked) if asked.target_tag == target_tag => asked.end,
            None if self.unsolicited && target_tag == super::pdu::NO_TAG => unsolicited_max.min(self.out_len()),
            _ => return Err(OutOfOrder),
        };
        let fits = offset == self.received && len as u64 <= u64::from(end) - u64::from(self.received.min(end));
        if fits && number == self.data_number { Ok(()) } else { Err(OutOfOrder) }
    }

    /// `len` more bytes have come; `last` ends their sequence.
    pub(crate) fn took(&mut self, len: usize, last: bool) -> Result<(), OutOfOrder> {
        self.received += len as u32;
        self.data_number += 1;
        if last {
            // A sequence that ends before all that was asked for has come would never be asked for again.
            if self.asked.is_some_and(|asked| asked.end != self.received) {
                return Err(OutOfOrder);
            }
            self.asked = None;
            self.unsolicited = false;
            self.data_number = 0;
        }
        Ok(())
    }
}

/// Why a command that runs will not be answered as it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aborted {
    /// Its own session wants nothing to be said of it.
    Silently,
    /// Another session took it away: its initiator is told so.
    ByAnother,
}

/// A command that is being carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) tag: u32,
    /// Its number among all that ran in this session.
    pub(crate) serial: u64,
    pub(crate) aborted: Option<Aborted>,
}

/// What can be done in a lane.
#[derive(Debug)]
pub(crate) enum Next {
    /// Carry this out.
    Run(Task),
    /// Ask for data.
    Ask(ReadyToTransfer),
    /// Nothing, until something comes or ends.
    Wait,
}

/// Which commands are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Tag(u32),
    Lun(u64),
    All,
}

#[derive(Debug)]
struct Lane {
    lun: u64,
    running: Option<Running>,
    waiting: VecDeque<Task>,
}

/// All lanes of a session.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    serial: u64,
    target_tag: u32,
}

impl Lanes {
    fn lane(&mut self, lun: u64) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.lun == lun)
    }

    /// A command has come, all or some of its data perhaps too.
    pub(crate) fn admit(&mut self, task: Task) {
        match self.lane(task.lun) {
            Some(lane) => lane.waiting.push_back(task),
            None => {
                if self.lanes.len() >= EMPTY_LANES_MAX {
                    self.lanes.retain(|lane| lane.running.is_some() || !lane.waiting.is_empty());
                }
                self.lanes.push(Lane { lun: task.lun, running: None, waiting: VecDeque::from([task]) });
            }
        }
    }

    /// What to do next for this logical unit; a task that is handed out is running.
    pub(crate) fn next(&mut self, lun: u64, burst: u32) -> Next {
        let (serial, target_tag) = (self.serial + 1, self.target_tag);
        let Some(lane) = self.lane(lun).filter(|lane| lane.running.is_none()) else { return Next::Wait };
        let Some(first) = lane.waiting.front_mut() else { return Next::Wait };
        if first.unsolicited || first.asked.is_some() {
            return Next::Wait;
        }
        let missing = first.out_len().saturating_sub(first.received);
        if missing == 0 {
            let Some(task) = lane.waiting.pop_front() else { return Next::Wait };
            lane.running = Some(Running { tag: task.tag, serial, aborted: None });
            self.serial = serial;
            return Next::Run(task);
        }
        let len = missing.min(burst);
        first.asked = Some(Asked { target_tag, end: first.received + len });
        let ask = ReadyToTransfer {
            flags: FINAL,
            lun: first.wire_lun,
            task_tag: first.tag,
            target_tag,
            request_number: first.request_number,
            offset: first.received,
            len,
            ..ReadyToTransfer::default()
        };
        first.request_number += 1;
        // The tag that means none is passed over.
        self.target_tag = if target_tag + 1 == super::pdu::NO_TAG { 0 } else { target_tag + 1 };
        Next::Ask(ask)
    }

    /// The task of this tag that waits for its turn or its data.
    pub(crate) fn waiting(&mut self, tag: u32) -> Option<&mut Task> {
        self.lanes.iter_mut().flat_map(|lane| &mut lane.waiting).find(|task| task.tag == tag)
    }

    /// Whether a task of this tag waits or runs.
    pub(crate) fn has(&self, tag: u32) -> bool {
        self.lanes.iter().any(|lane| {
            lane.running.is_some_and(|running| running.tag == tag) || lane.waiting.iter().any(|task| task.tag == tag)
        })
    }

    /// Waiting tasks that are not counted in the command window.
    pub(crate) fn immediate_waiting(&self) -> usize {
        self.lanes.iter().flat_map(|lane| &lane.waiting).filter(|task| task.immediate).count()
    }

    /// Lanes in which a command runs.
    pub(crate) fn running(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.running.is_some()).count()
    }

    /// Why the command that runs in this lane is not to be answered, if so.
    pub(crate) fn aborted(&mut self, lun: u64) -> Option<Aborted> {
        self.lane(lun)?.running?.aborted
    }

    /// The command that ran has ended.
    pub(crate) fn finish(&mut self, lun: u64) {
        if let Some(lane) = self.lane(lun) {
            lane.running = None;
        }
    }

    /// Throws away what waits; what runs ends as it will.
    pub(crate) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.waiting.clear());
    }

    /// Takes commands away: returns those that had not begun, and the serials of those that run and are not answered.
    pub(crate) fn abort(&mut self, which: Which, how: Aborted) -> (Vec<Task>, Vec<u64>) {
        let (mut dropped, mut running) = (Vec::new(), Vec::new());
        for lane in &mut self.lanes {
            let concerned = |tag| match which {
                Which::Tag(wanted) => tag == wanted,
                Which::Lun(lun) => lane.lun == lun,
                Which::All => true,
            };
            if let Some(task) = lane.running.as_mut().filter(|task| concerned(task.tag)) {
                task.aborted.get_or_insert(how);
                running.push(task.serial);
            }
            let (gone, left) = std::mem::take(&mut lane.waiting).into_iter().partition(|task| concerned(task.tag));
            let gone: VecDeque<Task> = gone;
            lane.waiting = left;
            dropped.extend(gone);
        }
        (dropped, running)
    }

    /// Whether one of these runs still.
    pub(crate) fn any_running(&self, serials: &[u64]) -> bool {
        self.lanes.iter().any(|lane| lane.running.is_some_and(|running| serials.contains(&running.serial)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::pdu::NO_TAG;
    use super::*;

    fn task(tag: u32, lun: u64, out_len: u32) -> Task {
        Task {
            tag,
            wire_lun: lun << 48,
            lun,
            immediate: false,
            flags: if out_len > 0 { WRITE } else { READ },
            expected_len: out_len,
            cdb: Cdb::new([0; 16], &[]).unwrap(),
            data: Vec::new(),
            received: 0,
            unsolicited: false,
            asked: None,
            request_number: 0,
            data_number: 0,
        }
    }

    fn run(lanes: &mut Lanes, lun: u64) -> Option<u32> {
        match lanes.next(lun, 100) {
            Next::Run(task) => Some(task.tag),
            Next::Ask(ask) => panic!("{ask:?}"),
            Next::Wait => None,
        }
    }

    fn ask(lanes: &mut Lanes, lun: u64) -> ReadyToTransfer {
        match lanes.next(lun, 100) {
            Next::Ask(ask) => ask,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_of_a_unit_run_in_order_and_units_at_once() {
        let mut lanes = Lanes::default();
        for (tag, lun) in [(1, 0), (2, 0), (3, 1)] {
            lanes.admit(task(tag, lun, 0));
        }
        assert_eq!((run(&mut lanes, 0), run(&mut lanes, 0), run(&mut lanes, 1)), (Some(1), None, Some(3)));
        assert_eq!((lanes.running(), lanes.has(1), lanes.has(2), lanes.has(4)), (2, true, true, false));
        lanes.finish(0);
        assert_eq!((run(&mut lanes, 0), lanes.has(1)), (Some(2), false));
    }

    #[test]
    fn data_are_asked_for_in_bursts_by_the_first_of_a_lane() {
        let mut lanes = Lanes::default();
        lanes.admit(task(1, 0, 250));
        lanes.admit(task(2, 0, 50));
        for (number, offset, len) in [(0, 0, 100), (1, 100, 100), (2, 200, 50)] {
            let asked = ask(&mut lanes, 0);
            assert_eq!((asked.task_tag, asked.request_number, asked.offset, asked.len), (1, number, offset, len));
            assert!(run(&mut lanes, 0).is_none(), "one R2T at a time");
            let task = lanes.waiting(1).unwrap();
            let (first, rest) = (len as usize / 2, len as usize - len as usize / 2);
            assert_eq!(task.expects(asked.target_tag, 0, offset, first, 0), Ok(()));
            task.took(first, false).unwrap();
            assert_eq!(task.expects(asked.target_tag, 1, offset + first as u32, rest, 0), Ok(()));
            task.took(rest, true).unwrap();
        }
        assert_eq!(run(&mut lanes, 0), Some(1));
        lanes.finish(0);
        assert_eq!(ask(&mut lanes, 0).task_tag, 2);
    }

    #[test]
    fn data_out_of_order_are_noticed() {
        let mut write = task(1, 0, 250);
        write.unsolicited = true;
        assert_eq!(write.expects(NO_TAG, 0, 0, 80, 80), Ok(()));
        for (tag, number, offset, len) in [(7, 0, 0, 80), (NO_TAG, 1, 0, 80), (NO_TAG, 0, 1, 79), (NO_TAG, 0, 0, 81)] {
            assert_eq!(write.expects(tag, number, offset, len, 80), Err(OutOfOrder), "{tag} {number} {offset} {len}");
        }
        write.took(80, true).unwrap();
        assert_eq!(write.expects(NO_TAG, 0, 80, 1, 80), Err(OutOfOrder), "nothing more was announced");
        write.asked = Some(Asked { target_tag: 3, end: 180 });
        assert_eq!(write.took(99, true), Err(OutOfOrder), "a sequence ends before its end");
    }

    #[test]
    fn aborted_commands_are_gone_or_marked() {
        let mut lanes = Lanes::default();
        for tag in 1..=4 {
            lanes.admit(task(tag, u64::from(tag > 3), 0));
        }
        assert_eq!((run(&mut lanes, 0), run(&mut lanes, 1)), (Some(1), Some(4)));
        let (dropped, running) = lanes.abort(Which::Tag(2), Aborted::Silently);
        assert_eq!((dropped.len(), dropped[0].tag, running.len()), (1, 2, 0));
        let (dropped, running) = lanes.abort(Which::Lun(0), Aborted::ByAnother);
        assert_eq!((dropped.len(), running.len()), (1, 1));
        assert_eq!((lanes.aborted(0), lanes.aborted(1)), (Some(Aborted::ByAnother), None));
        assert!(lanes.any_running(&running));
        lanes.finish(0);
        assert!(!lanes.any_running(&running) && lanes.has(4) && !lanes.has(3));
    }

    #[test]
    fn blocks_are_as_long_as_their_operation_says() {
        let len = |operation: u8| {
            let mut head = [0; 16];
            head[0] = operation;
            Cdb::new(head, &[]).unwrap().bytes().len()
        };
        assert_eq!([0x00, 0x2b, 0x4d, 0xa3, 0x88, 0xc0].map(len), [6, 10, 10, 12, 16, 16]);
        let long = Cdb::new([0x7f; 16], &[0, 5, 1, 0, 9, 8, 7, 6]).unwrap();
        assert_eq!(long.bytes()[14..], [0x7f, 0x7f, 9, 8, 7, 6]);
        for wrong in [&[0, 9, 1, 0][..], &[0, 0, 1, 0], &[0, 2, 1, 0], &[0]] {
            assert!(Cdb::new([0; 16], wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn lanes_do_not_pile_up() {
        let mut lanes = Lanes::default();
        for lun in 0..1000 {
            lanes.admit(task(1, lun, 0));
            assert_eq!(run(&mut lanes, lun), Some(1));
            lanes.finish(lun);
        }
        assert!(lanes.lanes.len() <= EMPTY_LANES_MAX);
    }
}
