//! A client in the process of its mover: LAN-free.
//!
//! What it reads goes into the pool of the session block by block, as sources of whoever decides do; what it restores
//! crosses a pair of sockets and no network. Whoever decides need not know: it expects streams as of any client.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use super::orders::ReadSource;
use super::{Dial, JobToken, NetworkJobs, NetworkStream, StreamHere};
use crate::Connection;

/// The streams that a mover of this process expects of this reading, which `stop` stops; none where it is another's.
pub(super) fn streams_here(
    dial: &dyn Dial,
    process: &JobToken,
    order: &ReadSource,
    stop: &Arc<AtomicBool>,
) -> io::Result<Option<Vec<Connection>>> {
    let Some(mover) = &order.to else { return Ok(None) };
    let connections = (order.first_connection..).take(usize::from(order.connections));
    let here = connections.map(|connection| {
        let stream = (order.reading, connection);
        dial.connection_here(&StreamHere { job: &mover.token, process, stream, stop })
    });
    here.collect()
}

/// Opens connections to a mover of this process.
pub struct DialHere {
    jobs: NetworkJobs,
    client: String,
}

impl NetworkJobs {
    /// What opens connections of a client of this process to one of these jobs; none if it is another mover's, or
    /// another client's.
    pub fn dial_here(&self, client: &str, job: &JobToken) -> Option<DialHere> {
        self.has(client, job).then(|| DialHere { jobs: self.clone(), client: client.to_owned() })
    }
}

/// The mover's end of a connection within this process.
struct Here(UnixStream);

impl Read for Here {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Write for Here {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl NetworkStream for Here {
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(limit)
    }

    fn crosses_network(&self) -> bool {
        false
    }
}

impl Dial for DialHere {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        let (here, there) = UnixStream::pair()?;
        let (jobs, client) = (self.jobs.clone(), self.client.clone());
        // Whoever dials hears why it is not taken.
        let accept = move || drop(jobs.accept(&client, Box::new(Here(there))));
        thread::Builder::new().name("data-here".to_owned()).spawn(accept)?;
        Ok(Box::new(here))
    }
}
