//! An initiator in user space: one session, one command at a time.
//!
//! It is what tests and measurements talk to a target with, ours or another's, without a kernel in between. A command's
//! data go from the caller's memory to the socket and from the socket to the caller's memory.

mod config;
mod error;
mod login;

use std::net::TcpStream;
use std::sync::Arc;

pub use config::{InitiatorConfig, Unsolicited};
pub use error::InitiatorError;

use super::lun::lun_on_wire;
use super::negotiate::{Parameters, SessionKind};
use super::pdu::{
    Async, Command, DataIn, DataOut, FINAL, Header, LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut, OVERFLOW,
    READ, ReadyToTransfer, Reject, Response, STATUS, TextRequest, TextResponse, UNDERFLOW, WRITE, comes_before,
};
use super::text::{TEXT_LEN_MAX, parse, put};
use super::wire::{Patience, PduReader, PduWriter, SharedStream, Socket};

/// Longest answer beside a command's data: sense data, text, an echo, a rejected header.
const ANSWER_LEN_MAX: usize = TEXT_LEN_MAX;

const fn broken<T>(rule: &'static str) -> Result<T, InitiatorError> {
    Err(InitiatorError::Protocol { rule })
}

/// The difference between the data that were expected and those that there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residual {
    /// None.
    None,
    /// So many bytes fewer.
    Underflow(u32),
    /// So many bytes more, which were not transferred.
    Overflow(u32),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    /// The SCSI status (SAM-5, 5.3), any that a target may send.
    pub status: u8,
    /// Sense data, where there are any.
    pub sense: Vec<u8>,
    /// Bytes that were received.
    pub received: usize,
    /// What the target says of data that were missing or left over.
    pub residual: Residual,
}

impl CommandOutcome {
    /// Whether it ended with GOOD.
    pub fn is_good(&self) -> bool {
        self.status == 0
    }
}

/// A target that a portal knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTarget {
    /// Its name.
    pub name: String,
    /// Where it is: address, port and portal group, as `127.0.0.1:3260,1`.
    pub addresses: Vec<String>,
}

/// A session.
pub struct Initiator {
    reader: PduReader<Socket>,
    writer: PduWriter<SharedStream>,
    parameters: Parameters,
    /// Number of the next command.
    command_number: u32,
    command_max: u32,
    /// Number of the next answer.
    expected_status: u32,
    task_tag: u32,
}

/// What the target sent.
struct Received {
    header: Header,
    data: Vec<u8>,
}

impl Initiator {
    /// Logs in to a target.
    ///
    /// # Errors
    /// [`InitiatorError::Connect`] if the portal cannot be reached; else the target refuses the login, or breaks the
    /// protocol.
    pub fn connect(config: &InitiatorConfig) -> Result<Self, InitiatorError> {
        Self::log_in(config, SessionKind::Normal)
    }

    /// Asks a portal which targets it has. The name of a target in the configuration is not used.
    ///
    /// # Errors
    /// As [`Initiator::connect`].
    pub fn discover(config: &InitiatorConfig) -> Result<Vec<FoundTarget>, InitiatorError> {
        let mut session = Self::log_in(config, SessionKind::Discovery)?;
        let mut request = Vec::new();
        put(&mut request, "SendTargets", "All");
        let answer = session.text(&request)?;
        session.logout()?;
        let Ok(pairs) = parse(&answer) else { return broken("an answer that is not key=value") };
        let mut targets: Vec<FoundTarget> = Vec::new();
        for (key, value) in pairs {
            match (key, targets.last_mut()) {
                ("TargetName", _) => targets.push(FoundTarget { name: value.to_owned(), addresses: Vec::new() }),
                ("TargetAddress", Some(target)) => target.addresses.push(value.to_owned()),
                _ => {}
            }
        }
        Ok(targets)
    }

    fn log_in(config: &InitiatorConfig, kind: SessionKind) -> Result<Self, InitiatorError> {
        let portal = config.portal;
        let unreachable = |source| InitiatorError::Connect { portal, source };
        let stream = Arc::new(TcpStream::connect_timeout(&portal, config.timeout).map_err(unreachable)?);
        stream.set_nodelay(true).map_err(unreachable)?;
        stream.set_write_timeout(Some(config.timeout)).map_err(unreachable)?;
        let socket = Socket::new(Arc::clone(&stream), Patience::Each(config.timeout)).map_err(unreachable)?;
        let mut session = Self {
            reader: PduReader::new(socket),
            writer: PduWriter::new(SharedStream(stream)),
            parameters: Parameters { receive_segment: config.segment_bytes, ..Parameters::default() },
            command_number: 1,
            command_max: 1,
            expected_status: 0,
            task_tag: 0,
        };
        login::log_in(&mut session, config, kind)?;
        Ok(session)
    }

    /// Runs a command: sends `data_out` with it or receives into `data_in`, of which one at least is empty.
    ///
    /// A status other than GOOD is an outcome, not an error. After an error the session cannot be used.
    ///
    /// # Errors
    /// [`InitiatorError::Caller`] if the command cannot be sent so; else the connection is lost, or the target breaks
    /// the protocol.
    pub fn execute(
        &mut self,
        lun: u64,
        cdb: &[u8],
        data_out: &[u8],
        data_in: &mut [u8],
    ) -> Result<CommandOutcome, InitiatorError> {
        let (Some(head), Ok(expected_len)) = (pad(cdb), u32::try_from(data_out.len().max(data_in.len()))) else {
            return Err(InitiatorError::Caller { what: "a descriptor block longer than 260 bytes, or data of 4 GiB" });
        };
        if !data_out.is_empty() && !data_in.is_empty() {
            return Err(InitiatorError::Caller { what: "data both ways" });
        }
        let task_tag = self.next_tag();
        self.send_command(lun_on_wire(lun), cdb, head, task_tag, expected_len, data_out, data_in)?;
        let mut received = 0;
        loop {
            let header = self.reader.header()?;
            self.note(&header);
            match header.opcode() {
                DataIn::OPCODE => {
                    let pdu = DataIn::decode(&header);
                    let (begin, len) = (pdu.offset as usize, header.data_len());
                    if pdu.task_tag != task_tag || begin != received || len > data_in.len() - begin {
                        return broken("data that were not asked for");
                    }
                    self.reader.data(&mut data_in[begin..begin + len])?;
                    received += len;
                    if pdu.flags & STATUS != 0 {
                        let residual = residual(pdu.flags, pdu.residual);
                        return Ok(CommandOutcome { status: pdu.status, sense: Vec::new(), received, residual });
                    }
                }
                ReadyToTransfer::OPCODE => {
                    let ask = ReadyToTransfer::decode(&header);
                    let asked = data_out.get(ask.offset as usize..).and_then(|rest| rest.get(..ask.len as usize));
                    let Some(asked) = asked.filter(|asked| !asked.is_empty() && ask.task_tag == task_tag) else {
                        return broken("an R2T for data that there are not");
                    };
                    self.send_data(ask.lun, task_tag, ask.target_tag, ask.offset, asked)?;
                }
                Response::OPCODE => {
                    let response = Response::decode(&header);
                    let sense = self.answer_data(&header)?;
                    if response.task_tag != task_tag || response.response != 0 {
                        return broken("a response to no command, or a target failure");
                    }
                    // Two bytes of length stand before the sense data.
                    let sense = sense.get(2..).unwrap_or_default().to_vec();
                    let residual = residual(response.flags, response.residual);
                    return Ok(CommandOutcome { status: response.status, sense, received, residual });
                }
                _ => self.aside(&header)?,
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one PDU")]
    fn send_command(
        &mut self,
        lun: u64,
        cdb: &[u8],
        head: [u8; 16],
        task_tag: u32,
        expected_len: u32,
        data_out: &[u8],
        data_in: &[u8],
    ) -> Result<(), InitiatorError> {
        self.await_window()?;
        let parameters = self.parameters;
        let unsolicited = data_out.len().min(parameters.unsolicited_max() as usize);
        let immediate = if parameters.immediate_data { unsolicited.min(parameters.send_segment as usize) } else { 0 };
        let separate = if parameters.initial_r2t { immediate..immediate } else { immediate..unsolicited };
        let simple = 1;
        let command = Command {
            flags: simple
                | if separate.is_empty() { FINAL } else { 0 }
                | if data_out.is_empty() { 0 } else { WRITE }
                | if data_in.is_empty() { 0 } else { READ },
            lun,
            task_tag,
            expected_len,
            command_number: self.command_number,
            expected_status: self.expected_status,
            cdb: head,
        };
        self.command_number = self.command_number.wrapping_add(1);
        self.writer.write_with_ahs(command.encode(), &extension(cdb), &data_out[..immediate])?;
        if separate.is_empty() {
            return Ok(());
        }
        let offset = separate.start as u32;
        self.send_data(lun, task_tag, NO_TAG, offset, &data_out[separate])
    }

    /// Sends one sequence of data.
    fn send_data(
        &mut self,
        lun: u64,
        task_tag: u32,
        target_tag: u32,
        offset: u32,
        data: &[u8],
    ) -> Result<(), InitiatorError> {
        let (segment, expected_status) = (self.parameters.send_segment as usize, self.expected_status);
        let count = data.len().div_ceil(segment);
        let mut pdus = data.chunks(segment).enumerate().map(|(number, piece)| {
            let flags = if number + 1 == count { FINAL } else { 0 };
            let offset = offset + (number * segment) as u32;
            let data_number = number as u32;
            let pdu = DataOut { flags, lun, task_tag, target_tag, expected_status, data_number, offset };
            (pdu.encode(), piece)
        });
        Ok(self.writer.write_many(&mut pdus)?)
    }

    /// Sends `data` and has them echoed.
    ///
    /// # Errors
    /// The connection is lost, or something else comes back.
    pub fn ping(&mut self, data: &[u8]) -> Result<(), InitiatorError> {
        let task_tag = self.next_tag();
        let nop = NopOut {
            flags: FINAL,
            lun: 0,
            task_tag,
            target_tag: NO_TAG,
            command_number: self.command_number,
            expected_status: self.expected_status,
        };
        self.writer.write(nop.encode().immediate(), data)?;
        let answer = self.answer(NopIn::OPCODE, task_tag)?;
        if answer.data == data { Ok(()) } else { broken("an echo of something else") }
    }

    fn text(&mut self, request: &[u8]) -> Result<Vec<u8>, InitiatorError> {
        let (mut target_tag, mut text, mut request) = (NO_TAG, Vec::new(), request);
        let task_tag = self.next_tag();
        loop {
            let pdu = TextRequest {
                flags: FINAL,
                lun: 0,
                task_tag,
                target_tag,
                command_number: self.command_number,
                expected_status: self.expected_status,
            };
            self.writer.write(pdu.encode().immediate(), request)?;
            let answer = self.answer(TextResponse::OPCODE, task_tag)?;
            text.extend_from_slice(&answer.data);
            target_tag = TextResponse::decode(&answer.header).target_tag;
            if answer.header.flags() & FINAL != 0 {
                return Ok(text);
            }
            if text.len() > TEXT_LEN_MAX {
                return broken("text without end");
            }
            request = &[];
        }
    }

    /// Ends the session.
    ///
    /// # Errors
    /// The connection is lost, or the target does not end the session.
    pub fn logout(mut self) -> Result<(), InitiatorError> {
        let task_tag = self.next_tag();
        let close_session = FINAL;
        let request = LogoutRequest {
            flags: close_session,
            task_tag,
            cid: 0,
            command_number: self.command_number,
            expected_status: self.expected_status,
        };
        self.writer.write(request.encode().immediate(), &[])?;
        let answer = self.answer(LogoutResponse::OPCODE, task_tag)?;
        match LogoutResponse::decode(&answer.header).response {
            0 => Ok(()),
            _ => broken("a logout that is not allowed"),
        }
    }

    fn next_tag(&mut self) -> u32 {
        self.task_tag = if self.task_tag == NO_TAG - 1 { 0 } else { self.task_tag + 1 };
        self.task_tag
    }

    /// Waits until the target takes another command.
    fn await_window(&mut self) -> Result<(), InitiatorError> {
        while comes_before(self.command_max, self.command_number) {
            let header = self.reader.header()?;
            self.note(&header);
            self.aside(&header)?;
        }
        Ok(())
    }

    /// The answer to a request that is no command.
    fn answer(&mut self, opcode: u8, task_tag: u32) -> Result<Received, InitiatorError> {
        loop {
            let header = self.reader.header()?;
            self.note(&header);
            if header.opcode() == opcode && header.task_tag() == task_tag {
                let data = self.answer_data(&header)?;
                return Ok(Received { header, data });
            }
            self.aside(&header)?;
        }
    }

    /// What a target may send at any time.
    fn aside(&mut self, header: &Header) -> Result<(), InitiatorError> {
        let data = self.answer_data(header)?;
        match header.opcode() {
            NopIn::OPCODE => {
                let ping = NopIn::decode(header);
                if ping.target_tag == NO_TAG {
                    return Ok(());
                }
                let answer = NopOut {
                    flags: FINAL,
                    lun: ping.lun,
                    task_tag: NO_TAG,
                    target_tag: ping.target_tag,
                    command_number: self.command_number,
                    expected_status: self.expected_status,
                };
                Ok(self.writer.write(answer.encode().immediate(), &data)?)
            }
            Async::OPCODE => Err(InitiatorError::Lost { reason: "the target ends the session".to_owned() }),
            Reject::OPCODE => Err(InitiatorError::Rejected { reason: Reject::decode(header).reason }),
            _ => broken("an answer to nothing"),
        }
    }

    fn answer_data(&mut self, header: &Header) -> Result<Vec<u8>, InitiatorError> {
        let mut data = Vec::new();
        self.reader.append_data(header, &mut data, ANSWER_LEN_MAX)?;
        Ok(data)
    }

    /// Takes the numbers that every PDU carries.
    fn note(&mut self, header: &Header) {
        let numbers = header.numbers();
        if !comes_before(numbers.command_max, self.command_max) {
            self.command_max = numbers.command_max;
        }
        let counted = match header.opcode() {
            DataIn::OPCODE => header.flags() & STATUS != 0,
            ReadyToTransfer::OPCODE => false,
            NopIn::OPCODE => header.task_tag() != NO_TAG,
            _ => true,
        };
        if counted {
            self.expected_status = numbers.status.wrapping_add(1);
        }
    }
}

fn residual(flags: u8, count: u32) -> Residual {
    match flags & (OVERFLOW | UNDERFLOW) {
        OVERFLOW => Residual::Overflow(count),
        UNDERFLOW => Residual::Underflow(count),
        _ => Residual::None,
    }
}

/// The 16 bytes of a descriptor block that the header has room for.
fn pad(cdb: &[u8]) -> Option<[u8; 16]> {
    const CDB_LEN_MAX: usize = 260;
    let mut head = [0; 16];
    let len = cdb.len().min(head.len());
    head[..len].copy_from_slice(&cdb[..len]);
    (cdb.len() <= CDB_LEN_MAX).then_some(head)
}

/// The additional header segment with what the header has no room for.
fn extension(cdb: &[u8]) -> Vec<u8> {
    const EXTENDED_CDB: u8 = 1;
    let Some(rest) = cdb.get(16..).filter(|rest| !rest.is_empty()) else { return Vec::new() };
    let [high, low] = ((rest.len() + 1) as u16).to_be_bytes();
    let mut ahs = vec![high, low, EXTENDED_CDB, 0];
    ahs.extend_from_slice(rest);
    ahs.resize(ahs.len().next_multiple_of(4), 0);
    ahs
}
