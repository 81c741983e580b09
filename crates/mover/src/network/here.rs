//! A client in the process of its mover: LAN-free.
//!
//! What it reads goes into the pool of the session block by block, as sources of whoever decides do; what it restores
//! crosses a pair of sockets and no network. Whoever decides need not know: it expects streams as of any client.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use super::orders::ReadSource;
use super::{Dial, JobToken, NetworkJobs, NetworkStream};
use crate::Connection;

/// The streams of a reading, into a session of this process.
pub(super) struct StreamsHere {
    pub(super) sinks: Vec<Connection>,
    /// Stops the job in its session.
    pub(super) stop: Arc<AtomicBool>,
}

/// The streams that a mover of this process expects of this reading; none where it is another's.
pub(super) fn streams_here(dial: &dyn Dial, process: &JobToken, order: &ReadSource) -> io::Result<Option<StreamsHere>> {
    let Some(mover) = &order.to else { return Ok(None) };
    let mut streams = None;
    for connection in (order.first_connection..).take(usize::from(order.connections)) {
        let stream = (order.reading, connection);
        let Some((sink, stop)) = dial.connection_here((&mover.token, process), stream)? else { return Ok(None) };
        streams.get_or_insert_with(|| StreamsHere { sinks: Vec::new(), stop }).sinks.push(sink);
    }
    Ok(streams)
}

/// Opens connections to a mover of this process.
pub struct DialHere {
    jobs: NetworkJobs,
    client: String,
}

impl NetworkJobs {
    /// What opens connections of a client of this process to one of these jobs; none if it is another mover's.
    pub fn dial_here(&self, job: &JobToken) -> Option<DialHere> {
        Some(DialHere { jobs: self.clone(), client: self.client_of(job)? })
    }
}

impl Dial for DialHere {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        let (here, there) = UnixStream::pair()?;
        let (jobs, client) = (self.jobs.clone(), self.client.clone());
        // Whoever dials hears why it is not taken.
        let accept = move || drop(jobs.accept(&client, Box::new(there)));
        thread::Builder::new().name("data-here".to_owned()).spawn(accept)?;
        Ok(Box::new(here))
    }
}
