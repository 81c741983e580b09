//! The side that listens.
//!
//! One thread accepts, one serves each connection. What all of them know stands on the [`Desk`], behind one lock that
//! is never held over a read or a write.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::hello::{Answer, Blocks, Hello, Strange, Verdict};
use super::line::{Cut, Halt, Line, SILENCE_MAX, block};
use super::measure::{END, MESSAGE_LEN};
use super::{CONNECTIONS_MAX, Direction, NetworkError, addresses};

/// Most connections at once: those of a measurement, its first, and some of strangers.
const LINES_MAX: usize = CONNECTIONS_MAX as usize + 1 + 15;
/// How long the accepting thread rests when nobody comes: a connection is timed only once it has been made.
const REST: Duration = Duration::from_millis(10);
/// How long a connection may take to count a block that has arrived.
const LAST_BLOCK_MAX: Duration = Duration::from_secs(5);

/// How long a measurement may take, all of it: its longest plan takes less.
const MEASUREMENT_MAX: Duration = Duration::from_secs(6 * 3600);
/// How long the last blocks of a connection may be on their way.
const DRAIN_MAX: Duration = Duration::from_secs(300);

/// How many measurements a listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkTake {
    /// One; how it ended is how the listener ends.
    One,
    /// One behind the other, until it is stopped.
    UntilStopped,
}

/// What a listener has to tell.
#[derive(Debug)]
pub enum NetworkEvent {
    /// A measurement has begun.
    Began {
        /// With whom.
        peer: SocketAddr,
    },
    /// A measurement has ended as it should.
    Done {
        /// With whom.
        peer: SocketAddr,
        /// MB that came.
        received_mb: f64,
        /// MB that went.
        sent_mb: f64,
    },
    /// A measurement has broken off.
    Lost {
        /// How.
        error: NetworkError,
    },
    /// Somebody connected who could not be served.
    TurnedAway {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
}

/// A port that is listened on.
#[derive(Debug)]
pub struct NetworkListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// What goes on.
#[derive(Debug)]
struct Measurement {
    number: u64,
    over: Arc<AtomicBool>,
    /// Connections with blocks on them, and when the last of them ended.
    lines: u32,
    last: Instant,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

/// What all threads of a listener know.
struct Desk<'a> {
    /// The person's.
    stop: &'a AtomicBool,
    /// The listener ends.
    over: AtomicBool,
    current: Mutex<Option<Measurement>>,
    /// How the last measurement ended.
    ended: Mutex<Option<Result<(), NetworkError>>>,
    lines: AtomicUsize,
    tell: &'a (dyn Fn(NetworkEvent) + Sync),
}

impl NetworkListener {
    /// Listens on `host:port`, or on a port of this machine that only this machine reaches; port 0 is any that is free.
    ///
    /// # Errors
    /// There is no such address, it is in use, or one cannot listen there.
    pub fn bind(address: &str) -> Result<Self, NetworkError> {
        let all = addresses(address)?;
        let told = |source: std::io::Error| match source.kind() {
            ErrorKind::AddrInUse => NetworkError::InUse { address: all[0] },
            _ => NetworkError::Listen { address: all[0], source },
        };
        let listener = TcpListener::bind(all.as_slice()).map_err(told)?;
        listener.set_nonblocking(true).map_err(told)?;
        let address = listener.local_addr().map_err(told)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes measurements. That somebody stopped it is no error: it has no other end.
    ///
    /// # Errors
    /// With [`NetworkTake::One`], what ended the measurement early. Otherwise it tells of lost ones and goes on.
    pub fn serve(
        &self,
        take: NetworkTake,
        stop: &AtomicBool,
        tell: &(dyn Fn(NetworkEvent) + Sync),
    ) -> Result<(), NetworkError> {
        let desk = Desk {
            stop,
            over: AtomicBool::new(false),
            current: Mutex::new(None),
            ended: Mutex::new(None),
            lines: AtomicUsize::new(0),
            tell,
        };
        thread::scope(|scope| {
            let served = loop {
                if stop.load(Ordering::Relaxed) {
                    break Ok(());
                }
                // Taken in a statement of its own: the lock is not held over what follows.
                let ended = held(&desk.ended).take();
                match ended {
                    Some(ended) if take == NetworkTake::One => break ended,
                    Some(Err(error)) => (desk.tell)(NetworkEvent::Lost { error }),
                    Some(Ok(())) | None => {}
                }
                // Whatever keeps one connection from being accepted (it went away, there are too many files open)
                // passes.
                let Ok((stream, peer)) = self.listener.accept() else {
                    thread::sleep(REST);
                    continue;
                };
                if desk.lines.load(Ordering::Relaxed) >= LINES_MAX {
                    continue;
                }
                desk.lines.fetch_add(1, Ordering::Relaxed);
                let desk = &desk;
                let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                    desk.attend(stream, peer);
                    desk.lines.fetch_sub(1, Ordering::Relaxed);
                });
                if let Err(error) = spawned {
                    desk.lines.fetch_sub(1, Ordering::Relaxed);
                    (desk.tell)(NetworkEvent::TurnedAway { peer, reason: format!("no thread for it: {error}") });
                }
            };
            desk.over.store(true, Ordering::Relaxed);
            served
        })
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk<'_> {
    fn attend(&self, stream: TcpStream, peer: SocketAddr) {
        let reason = match self.hear(stream, peer) {
            Ok(()) | Err(Strange::Stopped) => return,
            Err(Strange::NotOurs(reason)) => reason,
            Err(Strange::OtherVersion(theirs)) => {
                format!("it speaks version {theirs} of the measurement: run the same capstan on both")
            }
            Err(Strange::OutOfBounds) => "it asks for what is out of bounds".to_owned(),
        };
        (self.tell)(NetworkEvent::TurnedAway { peer, reason });
    }

    fn hear(&self, stream: TcpStream, peer: SocketAddr) -> Result<(), Strange> {
        let mut line = Line::new(stream, Halt { stop: self.stop, over: &self.over })?;
        let verdict = match Hello::read(&mut line) {
            Ok(Hello::Measurement) => return self.measure(line, peer),
            Ok(Hello::Blocks(blocks)) => return self.pass_blocks(line, &blocks),
            Err(Strange::OtherVersion(theirs)) => (Verdict::OtherVersion, Strange::OtherVersion(theirs)),
            Err(Strange::OutOfBounds) => (Verdict::Refused, Strange::OutOfBounds),
            Err(other) => return Err(other),
        };
        Self::refuse(line, verdict.0)?;
        Err(verdict.1)
    }

    fn refuse(mut line: Line<'_>, verdict: Verdict) -> Result<(), Cut> {
        Answer { verdict, number: 0 }.write(&mut line)?;
        line.hang_up();
        Ok(())
    }

    /// A measurement, from its welcome to its end.
    fn measure(&self, line: Line<'_>, peer: SocketAddr) -> Result<(), Strange> {
        let (sent, received, over) = (Arc::default(), Arc::default(), Arc::default());
        let number = RandomState::new().build_hasher().finish();
        {
            let mut current = held(&self.current);
            if current.is_some() {
                drop(current);
                Self::refuse(line, Verdict::Busy)?;
                return Err(Strange::NotOurs("another measurement goes on".to_owned()));
            }
            let (over, sent, received) = (Arc::clone(&over), Arc::clone(&sent), Arc::clone(&received));
            *current = Some(Measurement { number, over, lines: 0, last: Instant::now(), sent, received });
        }
        (self.tell)(NetworkEvent::Began { peer });
        let mut line = line.introduced(Halt { stop: self.stop, over: &self.over }, Some(MEASUREMENT_MAX));
        let welcome = Answer { verdict: Verdict::Welcome, number };
        let ended = welcome.write(&mut line).and_then(|()| self.echo(&mut line));
        if ended.is_ok() {
            self.let_lines_end();
        }
        over.store(true, Ordering::Relaxed);
        *held(&self.current) = None;
        // The answer to the last message says that the next measurement may begin.
        let ended = ended.and_then(|last| line.write(&last));
        let mb = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed) as f64 / 1e6;
        let (received_mb, sent_mb) = (mb(&received), mb(&sent));
        let ended = match ended {
            Ok(()) => {
                (self.tell)(NetworkEvent::Done { peer, received_mb, sent_mb });
                Ok(())
            }
            Err(Cut::Stopped) => return Err(Strange::Stopped),
            Err(cut) => Err(NetworkError::Lost { peer, mb: received_mb + sent_mb, reason: cut.to_string() }),
        };
        *held(&self.ended) = Some(ended);
        Ok(())
    }

    /// Waits until the connections have counted their last blocks: the other side has them, and may say so first.
    fn let_lines_end(&self) {
        let began = Instant::now();
        let has_lines = || held(&self.current).as_ref().is_some_and(|current| current.lines > 0);
        while has_lines() && began.elapsed() < LAST_BLOCK_MAX {
            thread::sleep(REST);
        }
    }

    /// Gives each message back, up to the last one, which is returned.
    fn echo(&self, line: &mut Line<'_>) -> Result<[u8; MESSAGE_LEN], Cut> {
        let mut message = [0; MESSAGE_LEN];
        loop {
            if !line.hears()? {
                let silent = held(&self.current)
                    .as_ref()
                    .is_some_and(|current| current.lines == 0 && current.last.elapsed() > SILENCE_MAX);
                if silent {
                    return Err(Cut::Silent(SILENCE_MAX));
                }
                continue;
            }
            line.read(&mut message)?;
            if message[0] == END {
                return Ok(message);
            }
            line.write(&message)?;
            if let Some(current) = held(&self.current).as_mut() {
                current.last = Instant::now();
            }
        }
    }

    /// One connection's blocks. What breaks it off is told by the measurement that it belongs to.
    fn pass_blocks(&self, line: Line<'_>, blocks: &Blocks) -> Result<(), Strange> {
        let joined = match held(&self.current).as_mut() {
            Some(current) if current.number == blocks.number && current.lines < CONNECTIONS_MAX => {
                current.lines += 1;
                Some((Arc::clone(&current.over), Arc::clone(&current.sent), Arc::clone(&current.received)))
            }
            _ => None,
        };
        let Some((over, sent, received)) = joined else {
            Self::refuse(line, Verdict::Refused)?;
            return Err(Strange::NotOurs("it names a measurement that is over".to_owned()));
        };
        let time = Duration::from_millis(blocks.milliseconds.into());
        let mut line = line.introduced(Halt { stop: self.stop, over: &over }, Some(time + DRAIN_MAX));
        let mut block = block(blocks.block_bytes);
        let welcome = Answer { verdict: Verdict::Welcome, number: blocks.number };
        let passed = welcome.write(&mut line).and_then(|()| match blocks.direction {
            Direction::Send => line.take_blocks(&mut block, &received),
            Direction::Receive => line.read(&mut [0]).and_then(|()| line.send_blocks(&mut block, time, &sent)),
        });
        if let Some(current) = held(&self.current).as_mut()
            && current.number == blocks.number
        {
            current.lines -= 1;
            current.last = Instant::now();
        }
        match passed {
            Err(Cut::Stopped) => Err(Strange::Stopped),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
