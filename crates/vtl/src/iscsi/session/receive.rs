//! The receiver of a session: reads PDUs until there is a command to run, and answers on the spot what is no command.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Session;
use super::execute::refusal;
use super::manage::Management;
use crate::device::Cancel;
use crate::iscsi::buffer::{Buffer, Content};
use crate::iscsi::faults::{Passage, WirePoint};
use crate::iscsi::lane::{Aborted, Which};
use crate::iscsi::login::PORTAL_GROUP;
use crate::iscsi::lun::lun_number;
use crate::iscsi::negotiate::SessionKind;
use crate::iscsi::pdu::{
    CONTINUE, Command, DataOut, FINAL, Header, LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut, Reject,
    RejectReason, Snack, TaskManagement, TextRequest, TextResponse, WRITE, comes_before,
};
use crate::iscsi::task::{Cdb, Task};
use crate::iscsi::text::{TEXT_LEN_MAX, parse, put};
use crate::iscsi::wire::{PduReader, Socket, WireError};

/// Immediate commands that may wait at once: they are not counted in the command window.
const IMMEDIATE_MAX: usize = 8;
/// What is to be done before the receiver goes on.
pub(crate) enum Work {
    Run(Task),
    Manage(Management),
    /// The session is over.
    End,
}

/// Why the receiver stops.
enum End {
    /// Nothing more can be read; what runs may still be answered.
    Gone,
    /// Nothing more is to be said: the initiator logged out, broke a rule or fell silent, or a script cut the wire.
    Over,
}

impl From<WireError> for End {
    fn from(_: WireError) -> Self {
        Self::Gone
    }
}

/// Whether a request is obeyed.
enum Counted {
    Yes,
    /// It came before, or nobody allowed it: as if it had not come.
    Ignored,
}

/// The receiving half of a session.
pub(crate) struct Receiver {
    reader: PduReader<Socket>,
    /// The initiator was asked whether it is there, and has said nothing since.
    asked: bool,
    /// Text of requests that are to be continued.
    text: Vec<u8>,
}

type Ready = Result<Option<Work>, End>;

impl Receiver {
    pub(crate) fn new(reader: PduReader<Socket>) -> Self {
        Self { reader, asked: false, text: Vec::new() }
    }

    /// Reads on until there is something to do.
    pub(crate) fn receive(&mut self, session: &Arc<Session>) -> Work {
        loop {
            match self.next(session) {
                Ok(None) => {}
                Ok(Some(work)) => return work,
                Err(End::Gone) => return Work::End,
                Err(End::Over) => {
                    session.cut();
                    return Work::End;
                }
            }
        }
    }

    fn next(&mut self, session: &Arc<Session>) -> Ready {
        let Some(header) = self.reader.header_unless_idle()? else { return self.idle(session) };
        self.asked = false;
        if header.data_len() > session.parameters.receive_segment as usize {
            return refuse(session, &header, RejectReason::Protocol);
        }
        let commands = session.identity.kind == SessionKind::Normal;
        match header.opcode() {
            NopOut::OPCODE => self.nop(session, &header),
            Command::OPCODE if commands => self.command(session, &header),
            TaskManagement::OPCODE if commands => self.management(session, &header),
            TextRequest::OPCODE => self.text(session, &header),
            DataOut::OPCODE if commands => self.data_out(session, &header),
            LogoutRequest::OPCODE => self.logout(session, &header),
            Snack::OPCODE => self.reject(session, &header, RejectReason::Snack),
            // A second login on this connection, or a PDU of a target.
            0x03 | 0x20..=0x3f => refuse(session, &header, RejectReason::Protocol),
            _ => self.reject(session, &header, RejectReason::NotSupported),
        }
    }

    /// Nothing came for a while: asks, and the second time gives up.
    fn idle(&mut self, session: &Session) -> Ready {
        if self.asked {
            return Err(End::Over);
        }
        self.asked = true;
        let ping = NopIn { flags: FINAL, task_tag: NO_TAG, ..NopIn::default() };
        session.tell(ping.encode(), &[])?;
        Ok(None)
    }

    /// Rejects a PDU and goes on behind it.
    fn reject(&mut self, session: &Session, header: &Header, reason: RejectReason) -> Ready {
        self.reader.discard_data(header)?;
        reject(session, header, reason)?;
        Ok(None)
    }

    /// Counts a request in the numbering of commands (RFC 7143, 4.2.2.1).
    fn count(&mut self, session: &Session, header: &Header) -> Result<Counted, End> {
        if header.is_immediate() {
            return Ok(Counted::Yes);
        }
        let (number, expected) = (header.command_number(), session.expected_command.load(Ordering::Acquire));
        if comes_before(number, expected) || comes_before(session.command_max(), number) {
            return Ok(Counted::Ignored);
        }
        if number != expected {
            // With one connection, which keeps the order, the one that is missing never comes.
            reject(session, header, RejectReason::Protocol)?;
            return Err(End::Over);
        }
        session.expected_command.store(expected.wrapping_add(1), Ordering::Release);
        Ok(Counted::Yes)
    }

    fn nop(&mut self, session: &Session, header: &Header) -> Ready {
        let nop = NopOut::decode(header);
        if let Counted::Ignored = self.count(session, header)? {
            self.reader.discard_data(header)?;
            return Ok(None);
        }
        let mut data = Vec::new();
        // At most as much as we said we receive, which was looked at above.
        self.reader.append_data(header, &mut data, header.data_len())?;
        session.widen(header.is_immediate());
        if nop.task_tag != NO_TAG {
            data.truncate(session.parameters.send_segment as usize);
            let answer =
                NopIn { flags: FINAL, lun: nop.lun, task_tag: nop.task_tag, target_tag: NO_TAG, ..NopIn::default() };
            session.answer(answer.encode(), &data)?;
        }
        Ok(None)
    }

    fn command(&mut self, session: &Session, header: &Header) -> Ready {
        let command = Command::decode(header);
        let (len, last) = (header.data_len(), command.flags & FINAL != 0);
        if let Counted::Ignored = self.count(session, header)? {
            self.reader.discard_data(header)?;
            return Ok(None);
        }
        let parameters = &session.parameters;
        let writes = command.flags & WRITE != 0;
        let unsolicited_max = parameters.unsolicited_max().min(command.expected_len) as usize;
        let immediate_max = if writes && parameters.immediate_data { unsolicited_max } else { 0 };
        if len > immediate_max || !last && (!writes || parameters.initial_r2t) {
            return refuse(session, header, RejectReason::Protocol);
        }
        let Some(cdb) = Cdb::new(command.cdb, self.reader.ahs()) else {
            session.widen(header.is_immediate());
            return self.reject(session, header, RejectReason::InvalidField);
        };
        let mut state = session.state();
        let rejected = if state.lanes.has(command.task_tag) || command.task_tag == NO_TAG {
            Some(RejectReason::TaskInProgress)
        } else if header.is_immediate() && state.lanes.immediate_waiting() >= IMMEDIATE_MAX {
            Some(RejectReason::TooManyImmediate)
        } else {
            None
        };
        let content = Content::of(cdb.bytes());
        let data = if len > 0 { state.buffer() } else { Buffer::default() };
        drop(state);
        if let Some(reason) = rejected {
            session.widen(header.is_immediate());
            return self.reject(session, header, reason);
        }
        let mut task = Task {
            tag: command.task_tag,
            wire_lun: command.lun,
            lun: lun_number(command.lun),
            immediate: header.is_immediate(),
            flags: command.flags,
            expected_len: command.expected_len,
            cdb,
            data: data.hold(content),
            received: 0,
            unsolicited: !last,
            asked: None,
            request_number: 0,
            data_number: 0,
            cancel: Cancel::default(),
        };
        if let Some(completion) = refusal(&task, session.device().data_out_max(), || session.device().luns()) {
            self.reader.discard_data(header)?;
            session.respond(&task, &completion, &[])?;
            return Ok(None);
        }
        if len > 0 {
            self.read_data(session, header, task.data.room(0, len))?;
            task.received = len as u32;
        }
        if session.pass(WirePoint::AfterCommand) == Passage::Cut {
            return cut();
        }
        session.commands.fetch_add(1, Ordering::Relaxed);
        let (lun, mut state) = (task.lun, session.state());
        state.lanes.admit(task);
        Ok(session.advance(state, lun).map(Work::Run))
    }

    /// Data of a command, to where they belong.
    fn read_data(&mut self, session: &Session, header: &Header, room: &mut [u8]) -> Result<(), End> {
        if session.pass(WirePoint::AmidDataOut) == Passage::Cut {
            let half = room.len() / 2;
            // What follows never comes to anything, so that a wrong digest does not matter.
            let _cut_anyway = self.reader.data(&mut room[..half]);
            return cut().map(drop);
        }
        match self.reader.data(room) {
            Err(WireError::DataDigest) => refuse(session, header, RejectReason::DataDigest).map(drop),
            result => {
                session.bytes_in.fetch_add(room.len() as u64, Ordering::Relaxed);
                Ok(result?)
            }
        }
    }

    fn data_out(&mut self, session: &Session, header: &Header) -> Ready {
        let pdu = DataOut::decode(header);
        let (len, last) = (header.data_len(), pdu.flags & FINAL != 0);
        let unsolicited_max = session.parameters.unsolicited_max();
        let mut state = session.state();
        let Some(task) = state.lanes.waiting(pdu.task_tag) else {
            drop(state);
            // Of a command that was refused or aborted while its data were on their way.
            self.reader.discard_data(header)?;
            return Ok(None);
        };
        if task.expects(pdu.target_tag, pdu.data_number, pdu.offset, len, unsolicited_max).is_err() {
            drop(state);
            return refuse(session, header, RejectReason::Protocol);
        }
        let (received, mut data, cdb) = (task.received, std::mem::take(&mut task.data), task.cdb.clone());
        if data.is_empty() {
            data = state.buffer().hold(Content::of(cdb.bytes()));
        }
        drop(state);
        self.read_data(session, header, data.room(received as usize, len))?;
        let mut state = session.state();
        let Some(task) = state.lanes.waiting(pdu.task_tag) else {
            // Another session has aborted it meanwhile.
            state.keep(data);
            return Ok(None);
        };
        task.data = data;
        if task.took(len, last).is_err() {
            drop(state);
            return refuse(session, header, RejectReason::Protocol);
        }
        let lun = task.lun;
        Ok(session.advance(state, lun).map(Work::Run))
    }

    fn management(&mut self, session: &Arc<Session>, header: &Header) -> Ready {
        self.reader.discard_data(header)?;
        if let Counted::Ignored = self.count(session, header)? {
            return Ok(None);
        }
        session.widen(header.is_immediate());
        let request = TaskManagement::decode(header);
        Ok(session.begin_management(request)?.map(Work::Manage))
    }

    fn text(&mut self, session: &Session, header: &Header) -> Ready {
        let request = TextRequest::decode(header);
        if let Counted::Ignored = self.count(session, header)? {
            self.reader.discard_data(header)?;
            return Ok(None);
        }
        session.widen(header.is_immediate());
        let left = TEXT_LEN_MAX.saturating_sub(self.text.len());
        if header.data_len() > left {
            return refuse(session, header, RejectReason::Protocol);
        }
        let mut text = std::mem::take(&mut self.text);
        self.reader.append_data(header, &mut text, left)?;
        let mut answer = Vec::new();
        let last = request.flags & CONTINUE == 0;
        if last {
            let Ok(pairs) = parse(&text) else { return refuse(session, header, RejectReason::Protocol) };
            for (key, value) in pairs {
                self.text_key(session, key, value, &mut answer)?;
            }
            // What does not fit would need a conversation in pieces; the one portal and short answers always do.
            if answer.len() > session.parameters.send_segment as usize {
                return refuse(session, header, RejectReason::Protocol);
            }
        } else {
            self.text = text;
        }
        let target_tag = if last { NO_TAG } else { 1 };
        let flags = if last && request.flags & FINAL != 0 { FINAL } else { 0 };
        let response =
            TextResponse { flags, lun: request.lun, task_tag: request.task_tag, target_tag, ..TextResponse::default() };
        session.answer(response.encode(), &answer)?;
        Ok(None)
    }

    fn text_key(&self, session: &Session, key: &str, value: &str, answer: &mut Vec<u8>) -> Result<(), End> {
        let name = &session.target.config.name;
        let discovery = session.identity.kind == SessionKind::Discovery;
        match (key, value) {
            ("SendTargets", "All") if !discovery => put(answer, key, "Reject"),
            ("SendTargets", "") if discovery => put(answer, key, "Reject"),
            ("SendTargets", wanted) => {
                if wanted.is_empty() || wanted == "All" || wanted.eq_ignore_ascii_case(name) {
                    put(answer, "TargetName", name);
                    put(answer, "TargetAddress", &format!("{},{PORTAL_GROUP}", session.local()));
                }
            }
            _ => put(answer, key, "NotUnderstood"),
        }
        Ok(())
    }

    fn logout(&mut self, session: &Session, header: &Header) -> Ready {
        const CLOSED: u8 = 0;
        const NO_SUCH_CONNECTION: u8 = 1;
        const NO_RECOVERY: u8 = 2;
        let request = LogoutRequest::decode(header);
        self.reader.discard_data(header)?;
        if let Counted::Ignored = self.count(session, header)? {
            return Ok(None);
        }
        session.widen(header.is_immediate());
        let response = match request.flags & 0x7f {
            0 => CLOSED,
            1 if request.cid == session.identity.cid => CLOSED,
            1 => NO_SUCH_CONNECTION,
            2 => NO_RECOVERY,
            _ => return self.invalid_field(session, header),
        };
        if response == CLOSED {
            // Nothing is said of commands once the logout is answered.
            session.state().lanes.abort(Which::All, Aborted::Silently);
        }
        let answer = LogoutResponse { flags: FINAL, response, task_tag: request.task_tag, ..LogoutResponse::default() };
        session.answer(answer.encode(), &[])?;
        if response == CLOSED { Err(End::Over) } else { Ok(None) }
    }

    /// As [`Receiver::reject`], where the data were read already.
    fn invalid_field(&self, session: &Session, header: &Header) -> Ready {
        reject(session, header, RejectReason::InvalidField)?;
        Ok(None)
    }
}

/// Sends a Reject PDU.
fn reject(session: &Session, header: &Header, reason: RejectReason) -> Result<(), WireError> {
    let reject = Reject { flags: FINAL, reason: reason as u8, task_tag: NO_TAG, ..Reject::default() };
    session.answer(reject.encode(), &header.0)
}

/// Rejects what leaves no way to go on.
fn refuse(session: &Session, header: &Header, reason: RejectReason) -> Ready {
    reject(session, header, reason)?;
    Err(End::Over)
}

/// The script wants the wire cut here.
fn cut() -> Ready {
    Err(End::Over)
}
