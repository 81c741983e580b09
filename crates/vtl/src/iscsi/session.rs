//! A session in its full feature phase: who receives, who carries out, who sends.
//!
//! A session has a small crew of threads and one receiver. Whoever has the receiver reads PDUs; when a command is ready
//! to run, the same thread puts the receiver back, runs it and answers, and takes the receiver again. So the small and
//! the quick commands, which are nearly all, never pass from thread to thread:
//! ```text
//!   thread 1   receive --> run, answer --> receive --> run (a LOCATE) ----------------------> answer
//!   thread 2   standing by ...................... tick .. tick: takes the receiver --> NOP, task management, other units
//! ```
//! A thread that stands by looks every few milliseconds whether the receiver lies unused, and takes it; so a long
//! command does not make the session deaf. It is called at once when commands for several logical units are under way.
//! The usual way (one thread receives, another runs) was measured too: a wake-up for every command left 0.8 to 0.9 of a
//! bare socket's rate at blocks of 256 KiB, this way leaves all of it (`tests/it/iscsi_rate.rs`).
//!
//! Locks, in the order in which they may be taken together: `state` alone; `sender` alone. No lock is held while a
//! command runs. Writing to a peer that does not read holds `sender` until the send time-out ends the connection.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use crate::device::{DataIn, DeviceServer, Nexus};
use crate::events::TargetEvent;

use super::buffer::Buffer;
use super::faults::{Passage, WirePoint};
use super::lane::{Lanes, Next};
use super::login::Identity;
use super::negotiate::{Parameters, SessionKind};
use super::pdu::{Header, Numbers};
use super::task::Task;
use super::wire::{PduWriter, SharedStream, WireError};

mod execute;
mod manage;
mod receive;
mod registry;
mod target;

pub(crate) use receive::Receiver;
pub use registry::SessionStatus;
pub(crate) use registry::{Registration, Registry};
pub(crate) use target::Target;

use receive::Work;

/// How long the receiver may lie unused before another thread takes it: what a NOP waits for during a long command.
const TICK: Duration = Duration::from_millis(5);
/// Ticks without a command after which ticking ends until the next one.
const QUIET_TICKS: u32 = 40;
/// Buffers that are kept for the data of commands to come.
const BUFFERS_MAX: usize = 4;
/// Most threads of one session.
const CREW_MAX: usize = 64;
/// Task management functions that may be under way in one session.
pub(crate) const MANAGING_MAX: usize = 4;

/// What the crew shares.
pub(crate) struct SessionState {
    pub(crate) lanes: Lanes,
    /// Buffers that commands leave behind.
    buffers: Vec<Buffer>,
    /// The receiver, while nobody has it.
    receiver: Option<Receiver>,
    /// How often the receiver was put back.
    turns: u64,
    /// Someone is called to take the receiver at once.
    called: bool,
    /// A thread that stands by looks at the receiver now and then.
    ticking: bool,
    standing_by: usize,
    crew: usize,
    /// Task management functions under way.
    pub(crate) managing: usize,
    /// Threads that wait for a command to end.
    awaiting_end: usize,
    last_lun: u64,
    ended: bool,
}

/// The sending half.
pub(crate) struct Sender {
    pub(crate) writer: PduWriter<SharedStream>,
    status_number: u32,
}

impl Sender {
    pub(crate) fn new(writer: PduWriter<SharedStream>, status_number: u32) -> Self {
        Self { writer, status_number }
    }

    /// The number of the next answer.
    pub(crate) fn take_status_number(&mut self) -> u32 {
        let number = self.status_number;
        self.status_number = number.wrapping_add(1);
        number
    }
}

/// A session of an initiator that has logged in.
pub(crate) struct Session {
    pub(crate) target: Arc<Target>,
    pub(crate) identity: Identity,
    pub(crate) nexus: Nexus,
    pub(crate) parameters: Parameters,
    pub(crate) peer: SocketAddr,
    pub(crate) since: SystemTime,
    stream: Arc<TcpStream>,
    state: Mutex<SessionState>,
    /// The receiver was put back, or the session has ended.
    turn: Condvar,
    /// A command has ended.
    command_end: Condvar,
    sender: Mutex<Sender>,
    crew: Mutex<Vec<JoinHandle<()>>>,
    crew_max: usize,
    pub(crate) expected_command: AtomicU32,
    command_max: AtomicU32,
    pub(crate) commands: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

/// What a session begins with.
pub(crate) struct Beginning {
    pub(crate) identity: Identity,
    pub(crate) parameters: Parameters,
    pub(crate) number: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) sender: Sender,
    pub(crate) expected_command: u32,
}

impl Session {
    pub(crate) fn new(target: Arc<Target>, beginning: Beginning) -> Self {
        let Beginning { identity, parameters, number, peer, stream, sender, expected_command } = beginning;
        let isid = super::text::hex(&identity.isid);
        let nexus = Nexus { initiator: format!("{},i,{isid}", identity.initiator), session: number };
        let window = target.config.limits.commands;
        // One for each unit, for each function under way, for unknown units, and to receive.
        let crew_max = match identity.kind {
            SessionKind::Normal => (target.device.luns().len() + MANAGING_MAX + 2).min(CREW_MAX),
            SessionKind::Discovery => 1,
        };
        Self {
            target,
            identity,
            nexus,
            parameters,
            peer,
            since: SystemTime::now(),
            stream,
            state: Mutex::new(SessionState {
                lanes: Lanes::default(),
                buffers: Vec::new(),
                receiver: None,
                turns: 0,
                called: false,
                ticking: false,
                standing_by: 0,
                crew: 1,
                managing: 0,
                awaiting_end: 0,
                last_lun: 0,
                ended: false,
            }),
            turn: Condvar::new(),
            command_end: Condvar::new(),
            sender: Mutex::new(sender),
            crew: Mutex::new(Vec::new()),
            crew_max,
            expected_command: AtomicU32::new(expected_command),
            command_max: AtomicU32::new(expected_command.wrapping_add(window).wrapping_sub(1)),
            commands: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
        }
    }

    pub(crate) fn device(&self) -> &dyn DeviceServer {
        &*self.target.device
    }

    /// Comes by a point at which a script may cut the wire.
    pub(crate) fn pass(&self, point: WirePoint) -> Passage {
        self.target.pass(point)
    }

    /// Tells the initiator that it is in. From then on PDUs carry what checksums were agreed upon.
    pub(crate) fn welcome(&self, response: Header, text: &[u8]) -> Result<(), WireError> {
        let mut sender = self.sender();
        sender.writer.write(response, text)?;
        sender.writer.digests = self.parameters.digests;
        Ok(())
    }

    /// Serves the session to its end; then nobody of its crew is left, and the device server has been told.
    pub(crate) fn serve(self: &Arc<Self>, receiver: Receiver) {
        self.state().receiver = Some(receiver);
        if self.identity.kind == SessionKind::Normal {
            let initiator = self.identity.initiator.clone();
            (self.target.events)(TargetEvent::LoggedIn { initiator, address: self.peer });
        }
        self.work();
        loop {
            let Some(member) = self.crew.lock().unwrap_or_else(PoisonError::into_inner).pop() else { break };
            let _panicked = member.join();
        }
        self.cut();
        if self.identity.kind == SessionKind::Normal {
            self.device().nexus_lost(&self.nexus);
            let initiator = self.identity.initiator.clone();
            (self.target.events)(TargetEvent::LoggedOut { initiator, address: self.peer });
        }
    }

    /// What each of the crew does.
    fn work(self: &Arc<Self>) {
        let mut data_in = DataIn::default();
        while let Some(mut receiver) = self.take_receiver() {
            match receiver.receive(self) {
                Work::Run(task) => {
                    self.put_back(receiver, Some(task.lun));
                    let mut next = Some(task);
                    while let Some(task) = next {
                        next = self.execute(task, &mut data_in);
                    }
                }
                Work::Manage(management) => {
                    self.put_back(receiver, None);
                    self.manage(&management);
                }
                Work::End => return self.end(),
            }
        }
    }

    /// Does what can be done next in a lane: returns a task to run, or has asked for data.
    pub(crate) fn advance(&self, mut state: MutexGuard<'_, SessionState>, lun: u64) -> Option<Task> {
        if state.ended {
            return None;
        }
        match state.lanes.next(lun, self.parameters.burst) {
            Next::Run(task) => Some(task),
            Next::Wait => None,
            Next::Ask(ask) => {
                drop(state);
                if self.ask(ask).is_err() {
                    self.cut();
                }
                None
            }
        }
    }

    /// Gives the receiver to whoever wants it. A thread that is about to run a command of `lun` will be back soon,
    /// unless it is one of several logical units.
    fn put_back(self: &Arc<Self>, receiver: Receiver, lun: Option<u64>) {
        let mut state = self.state();
        state.receiver = Some(receiver);
        state.turns += 1;
        state.called = lun.is_none_or(|lun| lun != state.last_lun) || state.lanes.running() > 1;
        state.last_lun = lun.unwrap_or(state.last_lun);
        if state.standing_by == 0 {
            self.enlist(&mut state);
        } else if state.called || !state.ticking {
            self.turn.notify_one();
        }
    }

    /// One more for the crew, if it may grow and the host lets it.
    fn enlist(self: &Arc<Self>, state: &mut SessionState) {
        if state.crew >= self.crew_max {
            return;
        }
        let session = Arc::clone(self);
        // Without another thread the session is deaf during long commands, and otherwise well.
        if let Ok(member) = thread::Builder::new().name("iscsi-session".into()).spawn(move || session.work()) {
            state.crew += 1;
            self.crew.lock().unwrap_or_else(PoisonError::into_inner).push(member);
        }
    }

    /// Waits until the receiver is this thread's; `None` when the session has ended.
    fn take_receiver(&self) -> Option<Receiver> {
        let mut state = self.state();
        // Who comes from a command goes on.
        if let Some(receiver) = state.receiver.take() {
            state.called = false;
            return Some(receiver);
        }
        state.standing_by += 1;
        let (mut seen, mut quiet) = (state.turns, 0);
        let receiver = loop {
            if state.ended {
                break None;
            }
            if state.called
                && let Some(receiver) = state.receiver.take()
            {
                break Some(receiver);
            }
            if state.ticking || quiet >= QUIET_TICKS {
                state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
                (seen, quiet) = (state.turns, 0);
                continue;
            }
            state.ticking = true;
            let waited = self.turn.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.ticking = false;
            if state.turns != seen {
                (seen, quiet) = (state.turns, 0);
            } else if waited.1.timed_out() {
                // Unused since the last look: its owner has a long command.
                if let Some(receiver) = state.receiver.take() {
                    break Some(receiver);
                }
                quiet += 1;
            }
        };
        state.standing_by -= 1;
        state.called = false;
        receiver
    }

    /// Nothing more is received; what has not begun never will, and what is long ends early.
    fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.lanes.clear();
        self.turn.notify_all();
    }

    /// Ends the connection at once; what lies in the host's buffers is not looked at any more.
    pub(crate) fn cut(&self) {
        let _gone_already = self.stream.shutdown(Shutdown::Both);
        self.end();
    }

    /// Takes no more requests; what runs is still answered.
    pub(crate) fn stop(&self) {
        let _gone_already = self.stream.shutdown(Shutdown::Read);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sender(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the initiator reached the target.
    pub(crate) fn local(&self) -> SocketAddr {
        self.stream.local_addr().unwrap_or(self.target.config.portal)
    }

    /// Waits until none of these commands runs any more.
    pub(crate) fn await_end(&self, serials: &[u64]) {
        let mut state = self.state();
        state.awaiting_end += 1;
        while state.lanes.any_running(serials) {
            state = self.command_end.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.awaiting_end -= 1;
    }

    /// A command that was counted has ended: there is room for one more.
    pub(crate) fn widen(&self, immediate: bool) {
        if !immediate {
            self.command_max.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The last command number that is taken.
    pub(crate) fn command_max(&self) -> u32 {
        self.command_max.load(Ordering::Acquire)
    }

    pub(crate) fn numbers(&self, status: u32) -> Numbers {
        Numbers {
            status,
            expected_command: self.expected_command.load(Ordering::Acquire),
            command_max: self.command_max(),
        }
    }

    /// Sends an answer, which counts in the numbering of answers.
    pub(crate) fn answer(&self, mut header: Header, data: &[u8]) -> Result<(), WireError> {
        let mut sender = self.sender();
        header.stamp(self.numbers(sender.take_status_number()));
        sender.writer.write(header, data)
    }

    /// Sends what is no answer.
    pub(crate) fn tell(&self, mut header: Header, data: &[u8]) -> Result<(), WireError> {
        let mut sender = self.sender();
        header.stamp(self.numbers(sender.status_number));
        sender.writer.write(header, data)
    }
}

impl SessionState {
    /// A buffer for a command's data.
    pub(crate) fn buffer(&mut self) -> Buffer {
        self.buffers.pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next command; the last one that was used is the warmest.
    pub(crate) fn keep(&mut self, mut buffer: Buffer) {
        buffer.wipe();
        if self.buffers.len() < BUFFERS_MAX && !buffer.is_empty() {
            self.buffers.push(buffer);
        }
    }
}
