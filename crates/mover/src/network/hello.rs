//! The beginning of every connection of a job: which job, and what the connection is for.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::SILENT_MAX;
use super::peer_text::said;
use crate::link::Link;
use crate::{Connection, JobToken};

/// The version of what follows. Where words of an older one change, both ends go on knowing them, down to [`OLDEST`];
/// `words/clients-VERSION.txt` keeps how they were.
pub(super) const VERSION: u32 = 6;
/// The oldest that is understood.
pub(super) const OLDEST: u32 = 2;
/// From this one on, a stream may have several block links, and the mover says on each what it has answered.
pub(super) const SEVERAL_LINKS: u32 = 5;
/// From this one on, a client is asked what of a restore is there already.
pub(super) const SAYS_WHAT_IS_THERE: u32 = 6;

/// A connection of bytes.
pub trait NetworkStream: Read + Write + Send {
    /// How long a read or a write may wait; `None` for ever.
    ///
    /// # Errors
    /// What the system says.
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()>;

    /// Whether what it carries crosses a network.
    fn crosses_network(&self) -> bool {
        true
    }
}

impl NetworkStream for UnixStream {
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

impl NetworkStream for Box<dyn NetworkStream> {
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        (**self).set_timeout(limit)
    }

    fn crosses_network(&self) -> bool {
        (**self).crosses_network()
    }
}

/// Opens connections to the mover of a job.
pub trait Dial: Sync {
    /// Opens one more.
    ///
    /// # Errors
    /// The mover cannot be reached, or is not who it should be.
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>>;

    /// Opens connections to the mover of the same cell that has a job, at this host and port if it is elsewhere.
    ///
    /// # Errors
    /// No other mover can be reached this way.
    fn at(&self, address: &str, _job: &JobToken) -> io::Result<Box<dyn Dial + '_>> {
        Err(io::Error::other(format!("the mover at {address} cannot be reached from here")))
    }

    /// One stream of a job, into the session of a mover in this process; none if the job is another mover's.
    ///
    /// # Errors
    /// The mover does not expect it.
    fn connection_here(&self, _stream: &StreamHere<'_>) -> io::Result<Option<Connection>> {
        Ok(None)
    }
}

/// A stream that a client brings to a session of its own process.
pub struct StreamHere<'a> {
    /// The job.
    pub job: &'a JobToken,
    /// Names the client's process.
    pub process: &'a JobToken,
    /// The reading, and the connection in its object.
    pub stream: (u64, u16),
    /// Stops the reading.
    pub stop: &'a Arc<AtomicBool>,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Orders and reports.
    Orders,
    /// What is read back, for the client to write.
    Pieces {
        /// Which restore.
        restore: u64,
    },
    /// The blocks of one connection of a reading.
    Blocks {
        /// Which reading.
        reading: u64,
        /// The connection's number in its object.
        connection: u16,
        /// Which of the links that carry it.
        #[serde(default)]
        link: u16,
    },
}

/// What the client says first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    pub(super) token: JobToken,
    /// Names the process: two that have one identity are not to serve one job.
    pub(super) process: JobToken,
    pub(super) purpose: Purpose,
}

/// What it is answered.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Welcome {
    /// It belongs to the job.
    Taken,
    /// It does not: the reason is for the client's log.
    Refused(String),
    /// The mover does not know the client's version. It knows this one, and older ones: the client may begin anew.
    Speaks(u32),
}

/// Opens a connection of a job.
pub(crate) fn connect(
    dial: &dyn Dial,
    token: (&JobToken, &JobToken),
    purpose: Purpose,
) -> io::Result<Box<dyn NetworkStream>> {
    connect_speaking(dial, token, purpose).map(|(stream, _)| stream)
}

/// The same; also the version of the words that are spoken on it.
pub(super) fn connect_speaking(
    dial: &dyn Dial,
    (token, process): (&JobToken, &JobToken),
    purpose: Purpose,
) -> io::Result<(Box<dyn NetworkStream>, u32)> {
    let mut version = VERSION;
    loop {
        let mut stream = dial.dial()?;
        stream.set_timeout(Some(SILENT_MAX))?;
        let mut link = Link(stream);
        link.send(&Hello { version, token: token.clone(), process: process.clone(), purpose }, &[])?;
        match link.receive_within(0)?.0 {
            Welcome::Taken => return Ok((link.0, version)),
            Welcome::Refused(reason) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, said(&reason))),
            Welcome::Speaks(theirs) => version = common(version, (OLDEST, theirs))?,
        }
    }
}

/// The version that both ends know, after one of them did not know `tried` and said that it speaks `theirs`.
pub(crate) fn common(tried: u32, (oldest, theirs): (u32, u32)) -> io::Result<u32> {
    if (oldest..tried).contains(&theirs) {
        return Ok(theirs);
    }
    let (which, what) = if theirs < tried { ("the other end", "there") } else { ("this program", "here") };
    let reason = format!("{which} is too old for a cell of this version: install a newer capstan {what}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn two_versions_meet_where_both_know_the_words() {
        assert_eq!(common(4, (2, 3)).unwrap(), 3);
        assert_eq!(common(4, (2, 2)).unwrap(), 2);
        assert!(common(4, (2, 1)).unwrap_err().to_string().starts_with("the other end is too old"));
        // It would go on for ever.
        assert!(common(4, (2, 4)).unwrap_err().to_string().contains("install a newer capstan here"));
    }
}
