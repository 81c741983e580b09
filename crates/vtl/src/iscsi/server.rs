//! The door: a listener, logins that are half open, and the list of who is in.
//!
//! Each connection has one thread, from its first byte to the end of its session. Logins are bounded in number, memory
//! and time: one more than may be half open drops the oldest of them, so that a thousand connections that say nothing
//! hold neither memory nor the door.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::device::DeviceServer;
use crate::events::{TargetEvent, TargetEvents, unheard};

use super::config::{ConfigError, TargetConfig};
use super::faults::{Passage, WireFaults, WirePoint};
use super::login::{Answer, Identity, Login};
use super::negotiate::Parameters;
use super::pdu::{Header, LoginRequest, LoginResponse, LoginStatus};
use super::session::{Beginning, Receiver, Registration, Registry, Sender, Session, SessionStatus, Target};
use super::wire::{Patience, PduReader, PduWriter, SharedStream, Socket, WireError};

/// Longest data segment of a login (RFC 7143, 13.12: the default until something else holds).
const LOGIN_SEGMENT_MAX: usize = 8192;
/// How long the door waits when the host has no more files, memory or threads.
const BREATH: Duration = Duration::from_millis(50);
/// The one version of the protocol.
const VERSION: u8 = 0;

/// Why a target cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Operator: the configuration cannot be served.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Host: nothing can listen there.
    #[error(
        "cannot listen on {portal}: see which program does already (ss -ltnp), or give the target an address of this host \
         and a free port"
    )]
    Listen {
        /// Where.
        portal: SocketAddr,
        /// What the host says.
        source: io::Error,
    },
    /// Host: no thread can be started.
    #[error("no thread can be started for the target: raise the limit of processes (ulimit -u), or free memory")]
    Thread(#[source] io::Error),
}

/// What all threads of a server share.
struct Shared {
    target: Arc<Target>,
    pending_logins: PendingLogins,
    stopping: AtomicBool,
}

/// A target that is being served.
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<TcpListener>,
    local: SocketAddr,
    door: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens where the configuration says, and serves all who come on threads of its own until [`Server::stop`].
    ///
    /// # Errors
    /// [`ServeError::Config`] if the configuration cannot be served; [`ServeError::Listen`] if the address is taken or
    /// not this host's; [`ServeError::Thread`].
    pub fn bind(config: TargetConfig, device: Arc<dyn DeviceServer>) -> Result<Self, ServeError> {
        Self::bind_with_faults(config, device, Arc::default())
    }

    /// As [`Server::bind`], on a wire that is cut where the script says.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_with_faults(
        config: TargetConfig,
        device: Arc<dyn DeviceServer>,
        faults: Arc<WireFaults>,
    ) -> Result<Self, ServeError> {
        Self::bind_heard(config, device, faults, unheard())
    }

    /// As [`Server::bind_with_faults`]; who comes and goes is told.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_heard(
        config: TargetConfig,
        device: Arc<dyn DeviceServer>,
        faults: Arc<WireFaults>,
        events: TargetEvents,
    ) -> Result<Self, ServeError> {
        config.check()?;
        let portal = config.portal;
        let listen = |source| ServeError::Listen { portal, source };
        let listener = Arc::new(TcpListener::bind(portal).map_err(listen)?);
        let local = listener.local_addr().map_err(listen)?;
        let sessions = Registry::new(config.limits.sessions);
        let target = Arc::new(Target { config, device, faults, events, sessions });
        let (pending_logins, stopping) = (PendingLogins::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { target, pending_logins, stopping });
        let (at_door, listening) = (Arc::clone(&shared), Arc::clone(&listener));
        let door = thread::Builder::new().name("iscsi-door".into());
        let door = door.spawn(move || accept_loop(&at_door, &listening)).map_err(ServeError::Thread)?;
        Ok(Self { shared, listener, local, door: Some(door) })
    }

    /// Where it listens: with the port that the host chose where the configuration said 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Who is logged in.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.shared.target.sessions.status()
    }

    /// Ends all connections and waits for all threads. Commands that run are ended and answered first, long ones early
    /// where the device server heeds [`Cancel`](crate::Cancel); those that wait are thrown away. Initiators see a
    /// closed connection, and log in again when they find someone.
    pub fn stop(mut self) {
        self.close();
    }

    fn close(&mut self) {
        let Some(door) = self.door.take() else { return };
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes who waits in accept.
        let _closed_already = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        let _panicked = door.join();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

/// Takes connections until the target is stopped, then ends those that are left.
fn accept_loop(shared: &Arc<Shared>, listener: &TcpListener) {
    let mut connections: Vec<JoinHandle<()>> = Vec::new();
    while !shared.stopping.load(Ordering::Acquire) {
        let Ok((stream, peer)) = listener.accept() else {
            // No files left, or a connection that ended before it began.
            thread::sleep(BREATH);
            continue;
        };
        let stream = Arc::new(stream);
        let slot = LoginSlot::take(shared, &stream);
        connections.retain(|connection| !connection.is_finished());
        let serving = Arc::clone(shared);
        let connection = thread::Builder::new().name("iscsi-connection".into());
        match connection.spawn(move || serve(&serving, &stream, peer, slot)) {
            Ok(connection) => connections.push(connection),
            Err(_) => thread::sleep(BREATH),
        }
    }
    shared.pending_logins.drop_all();
    shared.target.sessions.stop_all();
    for connection in connections {
        let _panicked = connection.join();
    }
}

/// Serves one connection to its end.
fn serve(shared: &Arc<Shared>, stream: &Arc<TcpStream>, peer: SocketAddr, slot: LoginSlot) {
    let Ok(connection) = LoginConnection::new(shared, Arc::clone(stream), peer) else { return };
    let Ok(Some(entered)) = connection.log_in() else { return };
    drop(slot);
    let Entered { identity, parameters, sender, expected_command, registration, response, text } = entered;
    let Ok(socket) = Socket::new(Arc::clone(stream), Patience::Each(shared.target.config.limits.idle)) else { return };
    let mut reader = PduReader::new(socket);
    reader.digests = parameters.digests;
    let stream = Arc::clone(stream);
    let number = registration.number();
    let beginning = Beginning { identity, parameters, number, peer, stream, sender, expected_command };
    let session = Arc::new(Session::new(Arc::clone(&shared.target), beginning));
    // Whoever is told that it is in can be found by others.
    registration.begin(&session);
    if session.welcome(response, &text).is_err() {
        return;
    }
    if shared.stopping.load(Ordering::Acquire) {
        session.stop();
    }
    session.serve(Receiver::new(reader));
}

/// A connection whose login is complete.
struct Entered<'a> {
    identity: Identity,
    parameters: Parameters,
    sender: Sender,
    expected_command: u32,
    registration: Registration<'a>,
    /// What it is still to be told.
    response: Header,
    text: Vec<u8>,
}

/// A connection that logs in.
struct LoginConnection<'a> {
    shared: &'a Shared,
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    reader: PduReader<Socket>,
    writer: PduWriter<SharedStream>,
    status_number: u32,
}

impl<'a> LoginConnection<'a> {
    fn new(shared: &'a Shared, stream: Arc<TcpStream>, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(shared.target.config.limits.send))?;
        let patience = Patience::Until(Instant::now() + shared.target.config.limits.login);
        let reader = PduReader::new(Socket::new(Arc::clone(&stream), patience)?);
        let writer = PduWriter::new(SharedStream(Arc::clone(&stream)));
        Ok(Self { shared, stream, peer, reader, writer, status_number: 1 })
    }

    /// `None` when the login was refused.
    fn log_in(mut self) -> Result<Option<Entered<'a>>, WireError> {
        let shared = self.shared;
        let mut login = Login::new(&shared.target.config);
        loop {
            let header = self.reader.header()?;
            // Whoever begins with anything else is no initiator (RFC 7143, 6.3).
            if header.opcode() != LoginRequest::OPCODE {
                return Ok(None);
            }
            let request = LoginRequest::decode(&header);
            let mut text = Vec::new();
            self.reader.append_data(&header, &mut text, LOGIN_SEGMENT_MAX)?;
            if shared.target.pass(WirePoint::LoginRequest) == Passage::Cut {
                let _gone_already = self.stream.shutdown(Shutdown::Both);
                return Ok(None);
            }
            let answer = match login.request(&request, &text) {
                Ok(answer) => answer,
                Err(status) => {
                    self.refuse(&request, status, login.claimed().map(str::to_owned))?;
                    return Ok(None);
                }
            };
            let Answer { flags, text, complete } = answer;
            let Some((identity, parameters)) = complete else {
                self.answer(&request, flags, request.tsih, LoginStatus::Success, &text)?;
                continue;
            };
            let registration = match shared.target.sessions.admit(&identity, &self.stream) {
                Ok(registration) => registration,
                Err(status) => {
                    self.refuse(&request, status, Some(identity.initiator))?;
                    return Ok(None);
                }
            };
            let response = self.response(&request, flags, registration.tsih(), LoginStatus::Success);
            let sender = Sender::new(self.writer, self.status_number);
            let expected_command = request.command_number;
            return Ok(Some(Entered { identity, parameters, sender, expected_command, registration, response, text }));
        }
    }

    fn refuse(
        &mut self,
        request: &LoginRequest,
        status: LoginStatus,
        initiator: Option<String>,
    ) -> Result<(), WireError> {
        let reason = status.reason().to_owned();
        (self.shared.target.events)(TargetEvent::LoginRefused { initiator, address: self.peer, reason });
        self.answer(request, 0, request.tsih, status, &[])
    }

    fn answer(
        &mut self,
        request: &LoginRequest,
        flags: u8,
        tsih: u16,
        status: LoginStatus,
        text: &[u8],
    ) -> Result<(), WireError> {
        let response = self.response(request, flags, tsih, status);
        self.writer.write(response, text)
    }

    fn response(&mut self, request: &LoginRequest, flags: u8, tsih: u16, status: LoginStatus) -> Header {
        let response = LoginResponse {
            flags,
            version_max: VERSION,
            version_active: VERSION,
            isid: request.isid,
            tsih,
            task_tag: request.task_tag,
            status_number: self.status_number,
            expected_command: request.command_number,
            command_max: request.command_number.wrapping_add(self.shared.target.config.limits.commands).wrapping_sub(1),
            status: status as u16,
        };
        self.status_number = self.status_number.wrapping_add(1);
        response.encode()
    }
}

/// Connections that have not logged in.
#[derive(Default)]
struct PendingLogins {
    waiting: Mutex<HalfOpen>,
    left: Condvar,
}

#[derive(Default)]
struct HalfOpen {
    next: u64,
    /// Places taken: by `streams`, and by who was told to go.
    occupied: usize,
    streams: BTreeMap<u64, Arc<TcpStream>>,
}

/// A place in the pending_logins, free again when this is dropped.
struct LoginSlot {
    shared: Arc<Shared>,
    number: u64,
}

impl LoginSlot {
    /// A place for one more; where there is none, the oldest login loses its own.
    fn take(shared: &Arc<Shared>, stream: &Arc<TcpStream>) -> Self {
        let (pending_logins, limit) = (&shared.pending_logins, shared.target.config.limits.half_open);
        let mut waiting = pending_logins.waiting();
        while waiting.occupied >= limit {
            if let Some((_, oldest)) = waiting.streams.pop_first() {
                let _gone_already = oldest.shutdown(Shutdown::Both);
            }
            // Its thread leaves as soon as it sees that.
            waiting = pending_logins.left.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.occupied += 1;
        waiting.next += 1;
        let number = waiting.next;
        waiting.streams.insert(number, Arc::clone(stream));
        Self { shared: Arc::clone(shared), number }
    }
}

impl Drop for LoginSlot {
    fn drop(&mut self) {
        let mut waiting = self.shared.pending_logins.waiting();
        waiting.streams.remove(&self.number);
        waiting.occupied -= 1;
        drop(waiting);
        self.shared.pending_logins.left.notify_all();
    }
}

impl PendingLogins {
    fn waiting(&self) -> MutexGuard<'_, HalfOpen> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_all(&self) {
        for stream in self.waiting().streams.values() {
            let _gone_already = stream.shutdown(Shutdown::Both);
        }
    }
}
