//! How commands of a state directory reach a mover: through the server, to which it is connected.
//!
//! ```text
//! capstan restore --> STATE/movers.sock --> server --> a connection that the mover keeps open
//! ```
//! A command says first which mover it means ([`MoverSocketHello`], 64 bytes), and hears in one byte whether it has a
//! connection to it: 1, or 0 and why not. What follows is between the command and the mover.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_mover::{Connect, NetworkStream};

/// The name of the socket, in the state directory.
pub const MOVER_SOCKET: &str = "movers.sock";

/// How long the server may take to find a connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// Longest reason that is believed.
const REASON_LEN_MAX: u64 = 4096;
/// Bytes of what a command says first.
const HELLO_LEN: usize = 64;

/// What a command says first: the name of a mover, filled up with zeros.
pub struct MoverSocketHello(String);

impl MoverSocketHello {
    /// Takes in what a command says.
    ///
    /// # Errors
    /// It breaks off, or is no name.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; HELLO_LEN];
        from.read_exact(&mut bytes)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(HELLO_LEN);
        let name = std::str::from_utf8(&bytes[..end]).map_err(io::Error::other)?;
        Ok(Self(name.to_owned()))
    }

    /// The mover.
    pub fn mover(&self) -> &str {
        &self.0
    }

    /// Says that the command has its connection, or why not.
    ///
    /// # Errors
    /// It is gone.
    pub fn answer(to: &mut impl Write, found: Result<(), &str>) -> io::Result<()> {
        match found {
            Ok(()) => to.write_all(&[1]),
            Err(reason) => to.write_all(&[0]).and_then(|()| to.write_all(reason.as_bytes())),
        }
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut bytes = [0; HELLO_LEN];
        let len = self.0.len().min(HELLO_LEN);
        bytes[..len].copy_from_slice(&self.0.as_bytes()[..len]);
        to.write_all(&bytes)
    }
}

/// The socket of the server of a state directory.
pub(crate) struct MoverSocket {
    path: PathBuf,
    mover: String,
}

impl MoverSocket {
    pub(crate) fn new(dir: &Path, mover: &str) -> Self {
        Self { path: dir.join(MOVER_SOCKET), mover: mover.to_owned() }
    }
}

impl Connect for MoverSocket {
    fn connect(&self) -> io::Result<Box<dyn NetworkStream>> {
        let no_server = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => io::Error::new(
                io::ErrorKind::NotConnected,
                format!(
                    "the drives are those of mover {}, which is reached through the server: start `capstan server run`",
                    self.mover
                ),
            ),
            _ => error,
        };
        let mut stream = UnixStream::connect(&self.path).map_err(no_server)?;
        stream.set_timeout(Some(ANSWERS_WITHIN))?;
        MoverSocketHello(self.mover.clone()).write(&mut stream)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        if answer != [1] {
            let mut reason = String::new();
            stream.take(REASON_LEN_MAX).read_to_string(&mut reason)?;
            return Err(io::Error::new(io::ErrorKind::NotConnected, reason));
        }
        stream.set_timeout(None)?;
        Ok(Box::new(stream))
    }

    fn data_address(&self) -> io::Result<String> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "jobs of clients are those of the server"))
    }
}
