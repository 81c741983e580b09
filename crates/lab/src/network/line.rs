//! One connection: whole blocks both ways, with an end to waiting.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::data_set::Noise;

/// How often a connection that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// How long nothing may come or go before a connection counts as lost. A slow line drains the buffers of its sockets
/// meanwhile.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long the first words may take, all of them.
pub(super) const HELLO_MAX: Duration = Duration::from_secs(5);

/// What a first byte says of a block.
const MORE: u8 = 1;
const LAST: u8 = 0;

/// Who may stop a connection: the person, and whoever it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halt<'a> {
    pub(super) stop: &'a AtomicBool,
    pub(super) over: &'a AtomicBool,
}

/// Why a connection does not go on.
#[derive(Debug)]
pub(super) enum Cut {
    /// It was told to stop.
    Stopped,
    /// The other side closed it.
    Ended,
    /// Nothing came or went.
    Silent(Duration),
    /// It takes longer than was said.
    Late,
    /// The other side says what it must not.
    Garbled(&'static str),
    /// The system.
    Failed(io::Error),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("it was stopped"),
            Self::Ended => f.write_str("it closes the connection"),
            Self::Silent(silence) => write!(f, "it says nothing for {} s", silence.as_secs()),
            Self::Late => f.write_str("it takes longer than it may"),
            Self::Garbled(what) => f.write_str(what),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Line<'a> {
    stream: TcpStream,
    halt: Halt<'a>,
    silence_max: Duration,
    until: Option<Instant>,
}

impl<'a> Line<'a> {
    /// A connection whose first words are still to come.
    pub(super) fn new(stream: TcpStream, halt: Halt<'a>) -> Result<Self, Cut> {
        let set = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| stream.set_read_timeout(Some(LOOK)))
            .and_then(|()| stream.set_write_timeout(Some(LOOK)));
        set.map_err(Cut::Failed)?;
        Ok(Self { stream, halt, silence_max: HELLO_MAX, until: Some(Instant::now() + HELLO_MAX) })
    }

    /// The same, its first words spoken: it may take longer, and have another owner.
    pub(super) fn introduced<'b>(self, halt: Halt<'b>, longest: Option<Duration>) -> Line<'b> {
        let until = longest.map(|longest| Instant::now() + longest);
        Line { stream: self.stream, halt, silence_max: SILENCE_MAX, until }
    }

    /// Waits until the whole buffer has come.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<(), Cut> {
        let mut at = 0;
        let mut heard = Instant::now();
        while at < buffer.len() {
            self.go_on(heard)?;
            match self.stream.read(&mut buffer[at..]) {
                Ok(0) => return Err(Cut::Ended),
                Ok(part) => (at, heard) = (at + part, Instant::now()),
                Err(error) => passing(error)?,
            }
        }
        Ok(())
    }

    /// Waits a moment for something to read, or for the end.
    pub(super) fn hears(&mut self) -> Result<bool, Cut> {
        self.go_on(Instant::now())?;
        match self.stream.peek(&mut [0]) {
            Ok(0) => Err(Cut::Ended),
            Ok(_) => Ok(true),
            Err(error) => passing(error).map(|()| false),
        }
    }

    /// Waits until the system has taken all bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        let mut at = 0;
        let mut heard = Instant::now();
        while at < bytes.len() {
            self.go_on(heard)?;
            match self.stream.write(&bytes[at..]) {
                Ok(0) => return Err(Cut::Ended),
                Ok(part) => (at, heard) = (at + part, Instant::now()),
                Err(error) => passing(error)?,
            }
        }
        Ok(())
    }

    /// Ends it so that the last words arrive: a system that closes what has unread bytes resets the connection, and
    /// they may be lost.
    pub(super) fn hang_up(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.read(&mut [0; 1024]);
    }

    fn go_on(&self, heard: Instant) -> Result<(), Cut> {
        if self.halt.stop.load(Ordering::Relaxed) || self.halt.over.load(Ordering::Relaxed) {
            return Err(Cut::Stopped);
        }
        if self.until.is_some_and(|until| Instant::now() > until) {
            return Err(Cut::Late);
        }
        if heard.elapsed() > self.silence_max { Err(Cut::Silent(self.silence_max)) } else { Ok(()) }
    }

    /// Sends blocks for so long, counting them, and waits until the other side has them all.
    pub(super) fn send_blocks(&mut self, block: &mut [u8], time: Duration, gone: &AtomicU64) -> Result<u64, Cut> {
        let began = Instant::now();
        let mut sent = 0;
        loop {
            let last = began.elapsed() >= time;
            block[0] = if last { LAST } else { MORE };
            self.write(block)?;
            sent += block.len() as u64;
            gone.fetch_add(block.len() as u64, Ordering::Relaxed);
            if last {
                break;
            }
        }
        let mut taken = [0; 8];
        self.read(&mut taken)?;
        if u64::from_le_bytes(taken) == sent { Ok(sent) } else { Err(Cut::Garbled("it miscounts what it was sent")) }
    }

    /// Takes blocks up to the last, counting them, and says how many bytes they were.
    pub(super) fn take_blocks(&mut self, block: &mut [u8], come: &AtomicU64) -> Result<u64, Cut> {
        let mut taken = 0;
        loop {
            self.read(block)?;
            taken += block.len() as u64;
            come.fetch_add(block.len() as u64, Ordering::Relaxed);
            match block[0] {
                MORE => {}
                LAST => break,
                _ => return Err(Cut::Garbled("it sends what is no block")),
            }
        }
        self.write(&u64::to_le_bytes(taken))?;
        Ok(taken)
    }
}

/// A block of noise: what would shrink might be shrunk on its way.
pub(super) fn block(bytes: u32) -> Vec<u8> {
    let mut noise = Noise::new(u64::from(bytes));
    let words = std::iter::repeat_with(|| noise.next().to_le_bytes());
    words.flatten().take(bytes as usize).collect()
}

/// Errors that say: not yet.
fn passing(error: io::Error) -> Result<(), Cut> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
        _ => Err(Cut::Failed(error)),
    }
}
