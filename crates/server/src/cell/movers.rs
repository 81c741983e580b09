//! Connections that movers keep open, until somebody here needs one.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use capstan_client::data::DataStream;
use capstan_keys::api::Serial;
use capstan_mover::{Connect, NetworkStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ServerConnection;

use super::Hub;

/// How long whoever needs a connection waits for one; and for one of a mover that has none at all.
const WAITS: Duration = Duration::from_secs(10);
const WAITS_FOR_MOVER: Duration = Duration::from_secs(2);
/// One that has been away for as long as that is not waited for: it looks for its server every half minute.
const AWAY_SINCE: Duration = Duration::from_secs(40);
/// Connections that are kept of one mover, at most.
const KEPT_MAX: usize = 64;

/// The connections of the movers of a cell. Clones are the same ones.
#[derive(Clone, Default)]
pub struct MoverConnections(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    came: Condvar,
    hub: OnceLock<Hub>,
}

#[derive(Default)]
struct State {
    /// Those that nobody uses, by mover.
    kept: HashMap<String, Vec<MoverStream>>,
    /// All that are open, to be ended when the certificate that they came with lets nobody in any more.
    open: HashMap<u64, OpenConnection>,
    last: u64,
}

struct OpenConnection {
    mover: String,
    serial: Serial,
    socket: TcpStream,
}

impl State {
    /// Those that nobody uses and that their mover has ended; for the caller to drop when it has let go of the state.
    fn take_ended(&mut self, mover: &str) -> Vec<MoverStream> {
        self.kept
            .get_mut(mover)
            .map(|kept| kept.extract_if(.., |stream| stream.has_ended()).collect())
            .unwrap_or_default()
    }
}

impl MoverConnections {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever knows where movers listen for clients.
    pub(super) fn ask_hub(&self, hub: &Hub) {
        // There is one cell for each server.
        let _ = self.0.hub.set(hub.clone());
    }

    /// Keeps a connection of a mover, which came with this certificate.
    pub(super) fn keep(&self, mover: &str, serial: Serial, stream: DataStream<ServerConnection>) -> io::Result<()> {
        let mut state = self.state();
        // Those of a process of it that is gone would count for ever.
        let ended = state.take_ended(mover);
        let is_full = state.kept.get(mover).is_some_and(|kept| kept.len() >= KEPT_MAX);
        drop(state);
        drop(ended);
        if is_full {
            return Err(io::Error::other(format!("mover {mover} keeps more connections open than anybody needs")));
        }
        let mut state = self.state();
        let socket = stream.0.sock.try_clone()?;
        state.last += 1;
        let number = state.last;
        state.open.insert(number, OpenConnection { mover: mover.to_owned(), serial, socket });
        let stream = MoverStream { stream, number, serial, connections: self.clone() };
        state.kept.entry(mover.to_owned()).or_default().push(stream);
        drop(state);
        self.0.came.notify_all();
        Ok(())
    }

    /// One that nobody uses; the one that came last, which is there most likely.
    pub(super) fn take(&self, mover: &str) -> io::Result<MoverStream> {
        let ended = self.state().take_ended(mover);
        drop(ended);
        // What is in use may be of a process of it that is gone.
        let away_for = self.0.hub.get().and_then(|hub| hub.mover_away_for(mover));
        let mut state = self.state();
        let is_there = away_for.is_none() && state.open.values().any(|open| open.mover == mover);
        let waits = match away_for {
            Some(away_for) if away_for >= AWAY_SINCE => Duration::ZERO,
            _ if is_there => WAITS,
            _ => WAITS_FOR_MOVER,
        };
        let until = Instant::now() + waits;
        loop {
            if let Some(stream) = state.kept.get_mut(mover).and_then(Vec::pop) {
                return Ok(stream);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let reason = format!(
                    "mover {mover} is not connected: see that `capstan mover run` runs there and can reach this server"
                );
                return Err(io::Error::new(io::ErrorKind::NotConnected, reason));
            }
            state = self.0.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends all connections that came with a certificate which lets nobody in any more. A mover that was enrolled again
    /// has others.
    pub(super) fn shut_out(&self, serial: &Serial) {
        let kept: Vec<MoverStream> = {
            let mut state = self.state();
            for open in state.open.values().filter(|open| open.serial == *serial) {
                // One that has ended already is no concern.
                let _ = open.socket.shutdown(Shutdown::Both);
            }
            state.kept.values_mut().flat_map(|kept| kept.extract_if(.., |stream| stream.serial == *serial)).collect()
        };
        drop(kept);
    }

    /// The way to a mover, for a site whose drives it has.
    pub fn way_to(&self, mover: &str) -> Arc<dyn Connect> {
        Arc::new(WayTo { connections: self.clone(), mover: mover.to_owned() })
    }
}

struct WayTo {
    connections: MoverConnections,
    mover: String,
}

impl Connect for WayTo {
    fn connect(&self) -> io::Result<Box<dyn NetworkStream>> {
        Ok(Box::new(self.connections.take(&self.mover)?))
    }

    fn data_address(&self) -> io::Result<String> {
        let address = self.connections.0.hub.get().and_then(|hub| hub.mover_data(&self.mover));
        address.ok_or_else(|| {
            let reason = format!("mover {} is not connected: see that `capstan mover run` runs there", self.mover);
            io::Error::new(io::ErrorKind::NotConnected, reason)
        })
    }
}

/// A connection of a mover.
pub(super) struct MoverStream {
    pub(super) stream: DataStream<ServerConnection>,
    number: u64,
    serial: Serial,
    connections: MoverConnections,
}

impl MoverStream {
    /// Whether the mover has ended it: nothing else comes over one that nobody uses.
    fn has_ended(&self) -> bool {
        let mut socket = [PollFd::new(&self.stream.0.sock, PollFlags::IN)];
        !matches!(poll(&mut socket, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }
}

impl Read for MoverStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.read(out)
    }
}

impl Write for MoverStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl NetworkStream for MoverStream {
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_timeout(limit)
    }
}

impl Drop for MoverStream {
    fn drop(&mut self) {
        // Behind the other handle to the socket it would stay open.
        let _ = self.stream.0.sock.shutdown(Shutdown::Both);
        self.connections.state().open.remove(&self.number);
    }
}
