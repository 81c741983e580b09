//! Talking to a library that is being served: a socket in its folder, one line of JSON each way.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fault::FaultOrder;

/// The socket in a library's folder.
const SOCKET: &str = "control.sock";
/// Longest line that is read.
const LINE_MAX: u64 = 64 << 10;
/// How long the other side may take for a line.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a library is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum ControlRequest {
    /// Tell what there is.
    Status,
    /// Make a cartridge.
    Create {
        /// Its barcode.
        barcode: String,
        /// Its capacity.
        capacity_bytes: u64,
        /// Its generation; what the first drive writes if it is not said.
        generation: Option<String>,
        /// Whether it is write-once.
        #[serde(default)]
        worm: bool,
    },
    /// Take a cartridge out of the mail slot.
    Export {
        /// Its barcode.
        barcode: String,
    },
    /// Put a cartridge that is outside into the mail slot.
    Import {
        /// Its barcode.
        barcode: String,
    },
    /// Let something go wrong.
    Inject {
        /// What, where and when.
        order: FaultOrder,
    },
    /// Cut a connection.
    Cut {
        /// Where on its way, by name.
        point: String,
        /// At the how-manieth passage, from 1.
        passage: u32,
    },
    /// Let nothing go wrong any more.
    Forgive,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlReply {
    /// What there is.
    Status(LibraryStatus),
    /// Done, and where or what.
    Done(String),
    /// Not done, and why.
    Refused(String),
}

/// What there is in a library.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ServedLibrary")]
pub struct LibraryStatus {
    /// Name of the target.
    pub target: String,
    /// Where it listens.
    pub listens: String,
    /// Drives.
    pub drives: Vec<ServedDrive>,
    /// Places, and the cartridges in them.
    pub elements: Vec<PlaceRow>,
    /// Names of the initiators that are logged in.
    pub initiators: Vec<String>,
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ServedDrive {
    /// Serial number.
    pub serial: String,
    /// Model.
    pub model: String,
    /// Barcode of the cartridge in it.
    pub barcode: Option<String>,
    /// Writes by hosts that could not know where the tape stood.
    pub unverified_writes: u64,
}

/// A place.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ServedPlace")]
pub struct PlaceRow {
    /// `slot 0`, `mail 1`, `drive 0`.
    pub place: String,
    /// Element address.
    pub address: u16,
    /// Barcode of the cartridge in it.
    pub barcode: Option<String>,
}

/// Why a library did not answer.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Caller: nobody serves it.
    #[error("nobody serves the library in {0}: start it with `capstan vtl serve {0}`", .folder.display())]
    NotServed {
        /// Its folder.
        folder: PathBuf,
        /// What the host says.
        #[source]
        source: io::Error,
    },
    /// Peer: the answer is none.
    #[error("the library's answer is not understood: it may be served by another version of this program")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Asks the library that is served in a folder.
///
/// # Errors
/// [`ControlError::NotServed`] if no program serves the folder; [`ControlError::Answer`] if it does not answer in time,
/// or not as this version does.
pub fn ask(folder: &Path, request: &ControlRequest) -> Result<ControlReply, ControlError> {
    let answer = |error: io::Error| ControlError::Answer(error.into());
    let mut stream = UnixStream::connect(folder.join(SOCKET))
        .map_err(|source| ControlError::NotServed { folder: folder.to_owned(), source })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(answer)?;
    let line = serde_json::to_string(request).map_err(|error| ControlError::Answer(error.into()))?;
    writeln!(stream, "{line}").map_err(answer)?;
    let mut text = String::new();
    stream.take(LINE_MAX * 64).read_to_string(&mut text).map_err(answer)?;
    serde_json::from_str(&text).map_err(|error| ControlError::Answer(error.into()))
}

/// Opens the socket, and takes the lock of whoever serves the folder; the system lets go of it with the process. One
/// that a killed program left is taken over, one that is answered is somebody's.
pub(crate) fn listen(folder: &Path) -> io::Result<(UnixListener, File)> {
    let path = folder.join(SOCKET);
    let served = || io::Error::new(io::ErrorKind::AddrInUse, "another program serves this library: end it first");
    // Two that begin at the same moment would each find no listener.
    let lock = File::open(folder)?;
    // A file system that locks no folders leaves it at that.
    if flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(served());
    }
    if UnixStream::connect(&path).is_ok() {
        return Err(served());
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok((UnixListener::bind(path)?, lock))
}

/// Takes the socket away, so that the next to ask is told at once that nobody is there.
pub(crate) fn leave(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(SOCKET));
}

/// Reads a request and answers it.
pub(crate) fn serve_one(stream: UnixStream, act: impl FnOnce(ControlRequest) -> ControlReply) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_MAX)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => act(request),
        Err(error) => ControlReply::Refused(format!("the request is not understood: {error}")),
    };
    let mut stream = stream;
    serde_json::to_writer(&mut stream, &reply).map_err(io::Error::other)
}
