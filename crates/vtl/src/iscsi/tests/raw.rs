//! An initiator that sends whatever a test wants, and a device whose commands end when a test wants.

use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::super::config::{TargetConfig, TargetLimits};
use super::super::pdu::{
    Command, FINAL, Header, LoginRequest, LoginResponse, NO_TAG, NopIn, NopOut, READ, Reject, Response, TaskManagement,
    TaskManagementResponse, WRITE,
};
use super::super::server::Server;
use super::super::text::put;
use super::super::wire::{Digest, Digests, Patience, PduReader, PduWriter, SharedStream, Socket, WireError};
use crate::device::{Completion, DataIn, DeviceServer, Nexus, Request, TaskFunction};

pub(super) const TARGET: &str = "iqn.2026-01.org.capstan:raw";
/// Ends when the gate of its logical unit is opened.
pub(super) const WAIT: u8 = 0xc1;
/// Takes long, and ends as soon as nobody wants it any more.
pub(super) const LONG: u8 = 0xc2;

#[derive(Default)]
struct State {
    executed: Vec<(u64, u8)>,
    managed: Vec<(u64, TaskFunction)>,
    open: [bool; 2],
}

/// Two logical units whose commands wait at a gate.
#[derive(Default)]
pub(super) struct Gates {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gates {
    pub(super) fn open(&self, lun: usize) {
        self.state.lock().unwrap().open[lun] = true;
        self.changed.notify_all();
    }

    pub(super) fn executed(&self) -> Vec<(u64, u8)> {
        self.state.lock().unwrap().executed.clone()
    }

    pub(super) fn managed(&self) -> Vec<(u64, TaskFunction)> {
        self.state.lock().unwrap().managed.clone()
    }

    /// Waits until so many commands have begun.
    pub(super) fn await_executed(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let patience = Duration::from_secs(10);
        let waited = self.changed.wait_timeout_while(state, patience, |state| state.executed.len() < count);
        assert!(!waited.unwrap().1.timed_out(), "{count} commands never began");
    }
}

impl DeviceServer for Gates {
    fn execute(&self, request: &Request<'_>, data_in: &mut DataIn) -> Completion {
        let mut state = self.state.lock().unwrap();
        state.executed.push((request.lun, request.cdb[0]));
        self.changed.notify_all();
        if request.cdb[0] == WAIT {
            let patience = Duration::from_secs(30);
            let lun = request.lun as usize;
            let waited = self.changed.wait_timeout_while(state, patience, |state| !state.open[lun]).unwrap();
            assert!(!waited.1.timed_out(), "nobody opened the gate");
        } else if request.cdb[0] == LONG {
            drop(state);
            let begun = Instant::now();
            while !request.cancel.is_ordered() {
                assert!(begun.elapsed() < Duration::from_secs(30), "nobody gave the command up");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        data_in.put(request.data_out, usize::MAX);
        Completion::GOOD
    }

    fn data_out_max(&self) -> usize {
        1 << 20
    }

    fn luns(&self) -> Vec<u64> {
        vec![0, 1]
    }

    fn manage(&self, _: &Nexus, lun: u64, function: TaskFunction) {
        self.state.lock().unwrap().managed.push((lun, function));
    }

    fn nexus_lost(&self, _: &Nexus) {}
}

pub(super) fn serve() -> (Arc<Gates>, Server) {
    serve_with(TargetLimits::default())
}

pub(super) fn serve_with(limits: TargetLimits) -> (Arc<Gates>, Server) {
    let portal = "127.0.0.1:0".parse().unwrap();
    let device = Arc::new(Gates::default());
    let config = TargetConfig { portal, limits, ..TargetConfig::new(TARGET) };
    let server = Server::bind(config, Arc::clone(&device) as _).unwrap();
    (device, server)
}

/// A connection.
pub(super) struct Raw {
    pub(super) reader: PduReader<Socket>,
    pub(super) writer: PduWriter<SharedStream>,
    pub(super) command_number: u32,
}

impl Raw {
    /// Connects and says nothing.
    pub(super) fn open(server: &Server) -> Self {
        let stream = Arc::new(TcpStream::connect(server.local_address()).unwrap());
        stream.set_nodelay(true).unwrap();
        let socket = Socket::new(Arc::clone(&stream), Patience::Each(Duration::from_secs(10))).unwrap();
        let writer = PduWriter::new(SharedStream(stream));
        Self { reader: PduReader::new(socket), writer, command_number: 1 }
    }

    /// A session of an initiator port of this number, with the keys given.
    pub(super) fn log_in(server: &Server, port: u8, keys: &[(&str, &str)]) -> Self {
        let mut raw = Self::open(server);
        let (response, _) = raw.log_in_as(&request(port), keys);
        assert_eq!((response.status, response.flags), (0, FINAL | 1 << 2 | 3));
        let digest = |key| {
            let wanted = keys.iter().any(|(name, value)| *name == key && value.starts_with("CRC32C"));
            if wanted { Digest::Crc32c } else { Digest::None }
        };
        let digests = Digests { header: digest("HeaderDigest"), data: digest("DataDigest") };
        (raw.reader.digests, raw.writer.digests) = (digests, digests);
        raw
    }

    /// One login request, and its answer.
    pub(super) fn log_in_as(&mut self, request: &LoginRequest, keys: &[(&str, &str)]) -> (LoginResponse, Vec<u8>) {
        let mut text = Vec::new();
        put(&mut text, "InitiatorName", "iqn.2026-01.org.capstan:raw-initiator");
        put(&mut text, "TargetName", TARGET);
        keys.iter().for_each(|(key, value)| put(&mut text, key, value));
        self.send(request.encode().immediate(), &text);
        let (header, text) = self.receive();
        assert_eq!(header.opcode(), LoginResponse::OPCODE);
        (LoginResponse::decode(&header), text)
    }

    pub(super) fn send(&mut self, header: Header, data: &[u8]) {
        self.writer.write(header, data).unwrap();
    }

    pub(super) fn receive(&mut self) -> (Header, Vec<u8>) {
        let header = self.reader.header().unwrap();
        let mut data = Vec::new();
        self.reader.append_data(&header, &mut data, 1 << 20).unwrap();
        (header, data)
    }

    /// Sends a command without data. Its tag is its number.
    pub(super) fn command(&mut self, lun: u64, operation: u8) -> u32 {
        let mut cdb = [0; 16];
        cdb[0] = operation;
        let task_tag = self.command_number;
        let command = Command { flags: FINAL | 1, lun: lun << 48, task_tag, cdb, ..self.next() };
        self.send(command.encode(), &[]);
        task_tag
    }

    /// A write of so many bytes, with the next number; data and flags are the caller's.
    pub(super) fn write(&mut self, flags: u8, expected_len: u32) -> Command {
        Command { flags: flags | WRITE, task_tag: self.command_number, expected_len, ..self.next() }
    }

    /// A read of so many bytes.
    pub(super) fn read(&mut self, expected_len: u32) -> Command {
        Command { flags: FINAL | READ, task_tag: self.command_number, expected_len, ..self.next() }
    }

    fn next(&mut self) -> Command {
        let command = Command { command_number: self.command_number, ..Command::default() };
        self.command_number += 1;
        command
    }

    /// The response to a command: its tag and status.
    pub(super) fn response(&mut self) -> (u32, u8) {
        let (header, _) = self.receive();
        assert_eq!(header.opcode(), Response::OPCODE, "{header:?}");
        let response = Response::decode(&header);
        (response.task_tag, response.status)
    }

    /// The reason of a Reject PDU, which has the rejected header with it.
    pub(super) fn rejected(&mut self) -> (u8, Vec<u8>) {
        let (header, data) = self.receive();
        assert_eq!(header.opcode(), Reject::OPCODE, "{header:?}");
        (Reject::decode(&header).reason, data)
    }

    /// Asks for task management, not counted; the answer comes when it comes.
    pub(super) fn manage(&mut self, function: u8, lun: u64, referenced_tag: u32) {
        let request = TaskManagement {
            flags: FINAL | function,
            lun: lun << 48,
            task_tag: 0x1000 + u32::from(function),
            referenced_tag,
            command_number: self.command_number,
            ..TaskManagement::default()
        };
        self.send(request.encode().immediate(), &[]);
    }

    /// The answer to task management.
    pub(super) fn managed(&mut self) -> u8 {
        let (header, _) = self.receive();
        assert_eq!(header.opcode(), TaskManagementResponse::OPCODE, "{header:?}");
        TaskManagementResponse::decode(&header).response
    }

    /// Has something echoed; then all that was sent before has been looked at.
    pub(super) fn echoes(&mut self, tag: u32) {
        self.send(nop(tag, self.command_number), b"echo");
        let (header, data) = self.receive();
        assert_eq!((header.opcode(), header.task_tag(), data.as_slice()), (NopIn::OPCODE, tag, &b"echo"[..]));
    }

    /// Whether the target closes the connection, after nothing else.
    pub(super) fn is_closed(&mut self) -> bool {
        match self.reader.header() {
            Err(WireError::Closed | WireError::Io(_)) => true,
            Err(error) => panic!("{error}"),
            Ok(header) => panic!("{header:?}"),
        }
    }

    /// Whether nothing comes for a while.
    pub(super) fn is_silent(&mut self) -> bool {
        let begun = Instant::now();
        *self.reader.source().patience() = Patience::Until(begun + Duration::from_millis(100));
        let silent = matches!(self.reader.header_unless_idle(), Ok(None));
        *self.reader.source().patience() = Patience::Until(begun + Duration::from_secs(60));
        silent
    }
}

/// A NOP that is not counted.
pub(super) fn nop(tag: u32, number: u32) -> Header {
    NopOut { flags: FINAL, task_tag: tag, target_tag: NO_TAG, command_number: number, ..NopOut::default() }
        .encode()
        .immediate()
}

/// A login of an initiator port of this number, in one request.
pub(super) fn request(port: u8) -> LoginRequest {
    LoginRequest {
        flags: FINAL | 1 << 2 | 3,
        isid: [0x80, 0, 0, 0, 0, port],
        command_number: 1,
        task_tag: NO_TAG - 1,
        ..LoginRequest::default()
    }
}
