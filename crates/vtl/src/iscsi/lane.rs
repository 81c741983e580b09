//! Commands of one session between their arrival and their end, in one lane for each logical unit.
//!
//! Within a lane commands run one after another in the order of their arrival; lanes know nothing of each other, so
//! that drives of one session run at once. Only the first command of a lane asks for data, so that a waiting one holds
//! no more than what came without being asked for. Plain data and rules: no socket, no thread, no lock.

use std::collections::VecDeque;

use super::pdu::{FINAL, ReadyToTransfer};
use super::task::{Asked, Task};
use crate::device::Cancel;

/// Lanes that are kept while they are empty: a host looks at some logical units again and again.
const EMPTY_LANES_MAX: usize = 64;
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
    /// Its answer is on its way: too late to abort it.
    pub(crate) answered: bool,
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

/// What became of commands that were to be aborted.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Those that had not begun.
    pub(crate) dropped: Vec<Task>,
    /// Serials of those that run, or are being answered.
    pub(crate) running: Vec<u64>,
    /// How many of these will not be answered.
    pub(crate) marked: usize,
}

#[derive(Debug)]
struct Lane {
    lun: u64,
    /// Ordered to have the command that runs end early; none of a lane's commands has one of its own, as they run one
    /// by one.
    cancel: Cancel,
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
                self.lanes.push(Lane {
                    lun: task.lun,
                    cancel: Cancel::default(),
                    running: None,
                    waiting: VecDeque::from([task]),
                });
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
            let Some(mut task) = lane.waiting.pop_front() else { return Next::Wait };
            lane.cancel.withdraw();
            task.cancel = lane.cancel.clone();
            lane.running = Some(Running { tag: task.tag, serial, aborted: None, answered: false });
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

    /// The command that runs in this lane is about to be answered, unless it was aborted meanwhile: then it says how.
    pub(crate) fn answer(&mut self, lun: u64) -> Option<Aborted> {
        let running = self.lane(lun)?.running.as_mut()?;
        running.answered = running.aborted.is_none();
        running.aborted
    }

    /// The command that ran has ended.
    pub(crate) fn finish(&mut self, lun: u64) {
        if let Some(lane) = self.lane(lun) {
            lane.running = None;
        }
    }

    /// Throws away what waits, and has what runs end as soon as it can.
    pub(crate) fn clear(&mut self) {
        for lane in &mut self.lanes {
            lane.waiting.clear();
            if lane.running.is_some() {
                lane.cancel.order();
            }
        }
    }

    /// Takes commands away.
    pub(crate) fn abort(&mut self, which: Which, how: Aborted) -> Taken {
        let mut taken = Taken::default();
        for lane in &mut self.lanes {
            let concerned = |tag| match which {
                Which::Tag(wanted) => tag == wanted,
                Which::Lun(lun) => lane.lun == lun,
                Which::All => true,
            };
            if let Some(task) = lane.running.as_mut().filter(|task| concerned(task.tag)) {
                if !task.answered {
                    task.aborted.get_or_insert(how);
                    lane.cancel.order();
                    taken.marked += 1;
                }
                taken.running.push(task.serial);
            }
            let (gone, left): (VecDeque<_>, _) =
                std::mem::take(&mut lane.waiting).into_iter().partition(|task| concerned(task.tag));
            lane.waiting = left;
            taken.dropped.extend(gone);
        }
        taken
    }

    /// Whether one of these runs still.
    pub(crate) fn any_running(&self, serials: &[u64]) -> bool {
        self.lanes.iter().any(|lane| lane.running.is_some_and(|running| serials.contains(&running.serial)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::task::tests::task;
    use super::*;

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
    fn aborted_commands_are_gone_or_marked() {
        let mut lanes = Lanes::default();
        for tag in 1..=4 {
            lanes.admit(task(tag, u64::from(tag > 3), 0));
        }
        assert_eq!((run(&mut lanes, 0), run(&mut lanes, 1)), (Some(1), Some(4)));
        let taken = lanes.abort(Which::Tag(2), Aborted::Silently);
        assert_eq!((taken.dropped.len(), taken.dropped[0].tag, taken.running.len()), (1, 2, 0));
        let taken = lanes.abort(Which::Lun(0), Aborted::ByAnother);
        assert_eq!((taken.dropped.len(), taken.running.len(), taken.marked), (1, 1, 1));
        assert_eq!((lanes.answer(0), lanes.answer(1)), (Some(Aborted::ByAnother), None));
        assert!(lanes.any_running(&taken.running));
        lanes.finish(0);
        assert!(!lanes.any_running(&taken.running) && lanes.has(4) && !lanes.has(3));
    }

    /// VERIFY of a whole tape went on for hours after its initiator had aborted it.
    #[test]
    fn a_running_command_that_is_aborted_is_told_to_end_and_the_next_is_not() {
        let mut lanes = Lanes::default();
        for (tag, lun) in [(1, 0), (2, 0), (3, 1)] {
            lanes.admit(task(tag, lun, 0));
        }
        let next = |lanes: &mut Lanes, lun| match lanes.next(lun, 100) {
            Next::Run(task) => task.cancel,
            other => panic!("{other:?}"),
        };
        let (first, other) = (next(&mut lanes, 0), next(&mut lanes, 1));
        lanes.abort(Which::Tag(1), Aborted::Silently);
        assert_eq!((first.is_ordered(), other.is_ordered()), (true, false));
        lanes.finish(0);
        let second = next(&mut lanes, 0);
        assert!(!second.is_ordered());
        lanes.clear();
        assert!(second.is_ordered() && other.is_ordered(), "the connection is gone");
    }

    /// libiscsi's suite found this: GOOD was on its way, and the abort of the same command was said to be complete.
    #[test]
    fn a_command_that_is_being_answered_is_not_aborted() {
        let mut lanes = Lanes::default();
        lanes.admit(task(1, 0, 0));
        assert_eq!((run(&mut lanes, 0), lanes.answer(0)), (Some(1), None));
        let taken = lanes.abort(Which::Tag(1), Aborted::Silently);
        assert_eq!((taken.marked, taken.running.len(), taken.dropped.len()), (0, 1, 0));
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
