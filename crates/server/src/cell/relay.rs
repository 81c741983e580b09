//! The socket through which commands of this state directory reach movers: what they say is passed on, both ways.

use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use capstan_director::{MOVER_SOCKET, MoverSocketHello};
use capstan_mover::NetworkStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zeroize::Zeroizing;

use super::CellError;
use super::movers::{MoverConnections, MoverStream};

/// How often whoever passes on looks whether the server ends.
const LOOKS: Duration = Duration::from_millis(500);
/// How long a command may take to say which mover it means.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// Bytes that are passed on at a time.
const PIECE: usize = 256 << 10;

/// Passes on what commands say until it is dropped.
pub(super) struct MoverRelay {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    accepts: Option<JoinHandle<()>>,
}

impl MoverRelay {
    /// Opens the socket in the state directory, in place of what a server before has left there.
    pub(super) fn start(state: &Path, connections: MoverConnections) -> Result<Self, CellError> {
        let host = |what| move |source| CellError::Host { what, source };
        let path = state.join(MOVER_SOCKET);
        // The server of this state directory is alone: it has its term.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(host("remove the socket for movers")(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(host("open the socket for movers"))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .map_err(host("restrict the socket for movers"))?;
        let is_over: Arc<AtomicBool> = Arc::default();
        let ends = Arc::clone(&is_over);
        let accept = move || accept(&listener, &connections, &ends);
        let accepts = thread::Builder::new().name("movers".to_owned()).spawn(accept);
        Ok(Self { path, is_over, accepts: Some(accepts.map_err(host("start threads for the cell"))?) })
    }
}

impl Drop for MoverRelay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It waits for a connection: here is one.
        let woken = UnixStream::connect(&self.path);
        if let (Some(accepts), Ok(_)) = (self.accepts.take(), woken) {
            let _ = accepts.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn accept(listener: &UnixListener, connections: &MoverConnections, is_over: &Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok((command, _)) = listener.accept() else {
            thread::sleep(LOOKS);
            continue;
        };
        let (connections, ends) = (connections.clone(), Arc::clone(is_over));
        let serve = move || {
            // Either end sees that the other one is gone.
            let _ = serve(command, &connections, &ends);
        };
        // A command that is not served sees its connection end.
        let _ = thread::Builder::new().name("relay".to_owned()).spawn(serve);
    }
}

fn serve(mut command: UnixStream, connections: &MoverConnections, is_over: &AtomicBool) -> io::Result<()> {
    command.set_read_timeout(Some(HELLO_WITHIN))?;
    let hello = MoverSocketHello::read(&mut command)?;
    command.set_read_timeout(None)?;
    match connections.take(hello.mover()) {
        Ok(mover) => {
            MoverSocketHello::answer(&mut command, Ok(()))?;
            pass_on(command, mover, is_over)
        }
        Err(error) => MoverSocketHello::answer(&mut command, Err(&error.to_string())),
    }
}

fn pass_on(mut command: UnixStream, mut mover: MoverStream, is_over: &AtomicBool) -> io::Result<()> {
    mover.set_timeout(None)?;
    let tls = &mut mover.stream.0;
    // A key may pass.
    let mut piece = Zeroizing::new(vec![0; PIECE]);
    let timeout = Timespec { tv_sec: 0, tv_nsec: LOOKS.subsec_nanos().into() };
    while !is_over.load(Ordering::Relaxed) {
        let (says, answers) = {
            let mut both = [PollFd::new(&command, PollFlags::IN), PollFd::new(&tls.sock, PollFlags::IN)];
            poll(&mut both, Some(&timeout))?;
            (!both[0].revents().is_empty(), !both[1].revents().is_empty())
        };
        if answers {
            let ended = tls.conn.read_tls(&mut tls.sock)? == 0;
            tls.conn.process_new_packets().map_err(io::Error::other)?;
            loop {
                match tls.conn.reader().read(&mut piece) {
                    Ok(0) => return Ok(()),
                    Ok(len) => command.write_all(&piece[..len])?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            if ended {
                return Ok(());
            }
        }
        if says {
            let len = command.read(&mut piece)?;
            if len == 0 {
                return Ok(());
            }
            // What is buffered has a bound: it is written as it comes.
            tls.write_all(&piece[..len])?;
        }
        while tls.conn.wants_write() {
            tls.conn.write_tls(&mut tls.sock)?;
        }
    }
    Ok(())
}
