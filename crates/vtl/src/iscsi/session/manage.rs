//! Task management (RFC 7143, 11.5 and 11.6): commands taken away, units reset.
//!
//! What had not begun is thrown away at once. A command that runs is told to end ([`Cancel`](crate::device::Cancel)),
//! which long ones do at their next step; the function is answered when it has, because only then nothing of it can
//! happen any more. Commands of other sessions that a function takes away are ended with TASK ABORTED, so that no
//! initiator waits for them until its patience ends.

use std::sync::Arc;

use crate::device::TaskFunction;

use super::{MANAGING_MAX, Session};
use crate::iscsi::lane::{Aborted, Which};
use crate::iscsi::lun::lun_number;
use crate::iscsi::pdu::{FINAL, TaskManagement, TaskManagementResponse};
use crate::iscsi::wire::WireError;

/// Functions (RFC 7143, 11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;

/// Answers (RFC 7143, 11.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Complete = 0,
    NoSuchTask = 1,
    NoSuchUnit = 2,
    NoReassignment = 4,
    NotSupported = 5,
    Rejected = 255,
}

/// Who loses commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The session that asks.
    Own,
    /// All sessions.
    All,
}

/// A function under way.
#[derive(Debug)]
pub(crate) struct Management {
    task_tag: u32,
    /// What the logical units are told; nothing where a command was aborted that runs.
    tell: Option<(u64, TaskFunction)>,
    which: Which,
    scope: Scope,
    /// Commands of this session that have to end first.
    running: Vec<u64>,
    answer: Answer,
    /// All connections end afterwards.
    disconnect: bool,
}

impl Session {
    /// Takes away what had not begun in this session, while nothing newer can come, and answers what needs no more.
    pub(crate) fn begin_management(&self, request: TaskManagement) -> Result<Option<Management>, WireError> {
        let lun = lun_number(request.lun);
        let answer = |answer| self.answer_management(request.task_tag, answer).map(|()| None);
        let function = request.flags & !FINAL;
        let of_unit = matches!(function, ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET);
        if of_unit && !self.device().luns().contains(&lun) {
            return answer(Answer::NoSuchUnit);
        }
        let (which, scope, tell) = match function {
            ABORT_TASK => (Which::Tag(request.referenced_tag), Scope::Own, (lun, TaskFunction::AbortTaskSet)),
            ABORT_TASK_SET => (Which::Lun(lun), Scope::Own, (lun, TaskFunction::AbortTaskSet)),
            CLEAR_TASK_SET => (Which::Lun(lun), Scope::All, (lun, TaskFunction::AbortTaskSet)),
            LOGICAL_UNIT_RESET => (Which::Lun(lun), Scope::All, (lun, TaskFunction::LogicalUnitReset)),
            TARGET_WARM_RESET | TARGET_COLD_RESET => (Which::All, Scope::All, (0, TaskFunction::TargetReset)),
            TASK_REASSIGN => return answer(Answer::NoReassignment),
            _ => return answer(Answer::NotSupported),
        };
        let mut state = self.state();
        if state.managing == MANAGING_MAX {
            drop(state);
            return answer(Answer::Rejected);
        }
        let taken = state.lanes.abort(which, Aborted::Silently);
        let one_task = function == ABORT_TASK;
        if one_task && taken.dropped.is_empty() && taken.running.is_empty() {
            drop(state);
            return answer(Answer::NoSuchTask);
        }
        state.managing += 1;
        drop(state);
        for task in &taken.dropped {
            self.widen(task.immediate);
        }
        // A command whose answer is on its way is none any more, once that answer was sent.
        let too_late = one_task && taken.dropped.is_empty() && taken.marked == 0;
        let begun = one_task && taken.dropped.is_empty();
        Ok(Some(Management {
            task_tag: request.task_tag,
            tell: (!begun).then_some(tell),
            which,
            scope,
            running: taken.running,
            answer: if too_late { Answer::NoSuchTask } else { Answer::Complete },
            disconnect: function == TARGET_COLD_RESET,
        }))
    }

    /// Does the rest, on a thread that may wait.
    pub(crate) fn manage(self: &Arc<Self>, management: &Management) {
        let others = match management.scope {
            Scope::Own => Vec::new(),
            Scope::All => self.target.sessions.others(self.nexus.session),
        };
        let taken: Vec<_> = others.iter().map(|other| (other, other.lose(management.which))).collect();
        if let Some((lun, function)) = management.tell {
            self.device().manage(&self.nexus, lun, function);
        }
        self.await_end(&management.running);
        for (other, running) in taken {
            other.await_end(&running);
        }
        if self.answer_management(management.task_tag, management.answer).is_err() {
            self.cut();
        }
        self.state().managing -= 1;
        if management.disconnect {
            for other in others {
                other.stop();
            }
            self.stop();
        }
    }

    /// Another session takes commands of this one away. Returns those that run still.
    fn lose(&self, which: Which) -> Vec<u64> {
        let taken = self.state().lanes.abort(which, Aborted::ByAnother);
        for task in &taken.dropped {
            if self.respond_aborted(task).is_err() {
                self.cut();
            }
        }
        taken.running
    }

    fn answer_management(&self, task_tag: u32, answer: Answer) -> Result<(), WireError> {
        let response = answer as u8;
        let response = TaskManagementResponse { flags: FINAL, response, task_tag, ..TaskManagementResponse::default() };
        self.answer(response.encode(), &[])
    }
}
