//! What the network between two hosts gives: one listens, the other measures.
//!
//! ```text
//!  measure_network                                NetworkListener::serve
//!   hello: a measurement -----------------------> welcome, its number | busy | other version
//!   messages of 64 bytes <----------------------> the same back                 (round trips)
//!   for each number of connections, in each direction:
//!     hello: blocks, its number ----------------> welcome | refused             (so many times)
//!     blocks ===================================> how many bytes came           (send)
//!     go, blocks <==============================, how many bytes came           (receive)
//!   end ----------------------------------------> end
//! ```
//! Blocks are sent for as long as was asked, and count once the other side says that it has them, so that a rate is
//! never that of filling a socket's buffer. The first byte of a block says whether it is the last: a connection that
//! ends before is one that was lost, however cleanly it was closed. A slow start is part of what is measured, as it is
//! part of a backup's life.
//!
//! The listener knows nobody: whoever reaches its port may use the network for a measurement, one at a time, and
//! nothing else. So it listens on this machine only, unless it is told an address. What comes in is hostile: lengths
//! are bounded before anything is allocated, silence ends a connection, and a measurement has an end.
//!
//! Rejected: threads that only copy between sockets and memory without a protocol of ours (as `nc` does): a stream that
//! was cut short could not be told from one that ended.

mod hello;
mod line;
mod measure;
mod serve;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use measure::measure_network;
pub use serve::{NetworkEvent, NetworkListener, NetworkTake};

/// The longest block. With [`CONNECTIONS_MAX`] it bounds what a listener allocates: 256 MiB.
const BLOCK_BYTES_MAX: u32 = 4 << 20;
/// The shortest block: less would measure system calls.
const BLOCK_BYTES_MIN: u32 = 1 << 10;
/// Most connections of a measurement at a time.
const CONNECTIONS_MAX: u32 = 64;
/// Most numbers of connections in a plan: with the longest time a measurement then has an end that a listener can hold
/// it to.
const NUMBERS_MAX: usize = 16;
/// The longest time for one number of connections in one direction, seconds.
const SECONDS_MAX: f64 = 600.0;

/// What is to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPlan {
    /// Where somebody listens: `host:port`, or a port of this machine.
    pub to: String,
    /// Numbers of connections, each measured by itself.
    pub connections: Vec<u32>,
    /// Seconds for each number of connections in each direction.
    pub seconds: f64,
    /// Bytes handed to the network at a time.
    pub block_bytes: u32,
}

impl NetworkPlan {
    fn check(&self) -> Result<(), NetworkError> {
        let refuse = |what: String| Err(NetworkError::Plan { what });
        if self.connections.is_empty() {
            return refuse("name at least one number of connections, such as 1,4".to_owned());
        }
        if self.connections.len() > NUMBERS_MAX {
            return refuse(format!("name at most {NUMBERS_MAX} numbers of connections, and measure again for more"));
        }
        if let Some(wrong) = self.connections.iter().find(|count| !(1..=CONNECTIONS_MAX).contains(count)) {
            return refuse(format!("{wrong} connections cannot be measured: 1 to {CONNECTIONS_MAX} can"));
        }
        if !(0.05..=SECONDS_MAX).contains(&self.seconds) {
            return refuse(format!(
                "{} seconds are no time to measure: 0.05 to {SECONDS_MAX} are, and 3 is usual",
                self.seconds
            ));
        }
        if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&self.block_bytes) {
            return refuse(format!(
                "blocks of {} bytes cannot be measured: those of {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX} can",
                self.block_bytes
            ));
        }
        Ok(())
    }

    /// How many rates it gives.
    pub fn rates(&self) -> usize {
        self.connections.len() * Direction::BOTH.len()
    }
}

/// Which way the blocks go, seen from the side that measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "NetworkDirection")]
pub enum Direction {
    /// To the listener.
    Send,
    /// From the listener.
    Receive,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::Send, Self::Receive];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

/// What so many connections give in one direction.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct NetworkRate {
    /// How many connections at once.
    pub connections: u32,
    /// Which way.
    pub direction: Direction,
    /// All connections together, MB/s.
    pub mb_per_s: f64,
    /// Processor seconds, in the program and in the kernel for it, of the measuring side for each MB.
    pub cpu_s_per_mb: f64,
}

/// How long a message of 64 bytes takes there and back.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Half of them are faster, seconds.
    pub median_s: f64,
    /// One in a hundred is slower, seconds.
    pub p99_s: f64,
    /// How many there were.
    pub messages: u32,
}

/// What the network gives.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct NetworkMeasurement {
    /// Who listened.
    pub peer: SocketAddr,
    /// Seconds for each rate.
    pub seconds: f64,
    /// Bytes handed to the network at a time.
    pub block_bytes: u32,
    /// Of small messages, before anything else used the network.
    pub round_trip: RoundTrip,
    /// In the order of the plan, sending before receiving.
    pub rates: Vec<NetworkRate>,
}

/// How far a measurement has come, and whether it is to be stopped.
#[derive(Debug, Default)]
pub struct NetworkWatch {
    /// Set to stop.
    pub stop: Arc<AtomicBool>,
    /// Bytes that went, either way.
    pub bytes: AtomicU64,
    /// Rates that are known.
    pub rates: AtomicU64,
}

/// Why the network could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// It cannot be measured so.
    #[error("{what}")]
    Plan {
        /// What is wrong.
        what: String,
    },
    /// There is no such address.
    #[error(
        "{address} is no address that can be used: {reason}. Write host:port, as in 192.0.2.7:7070, or a port alone"
    )]
    Address {
        /// What was given.
        address: String,
        /// Why not.
        reason: String,
    },
    /// Another program listens there.
    #[error("{address} is in use by another program: name another port, or 0 for any that is free")]
    InUse {
        /// Where.
        address: SocketAddr,
    },
    /// One cannot listen there.
    #[error("cannot listen on {address}: {source}. Name an address of this machine, and a port from 1024 on")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Nobody answers.
    #[error(
        "nobody listens at {address}: {source}. Start `capstan lab network --listen ADDRESS:PORT` there, with an address that \
         this machine reaches, and see that no firewall is between"
    )]
    Nobody {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Something else answers.
    #[error(
        "what listens at {address} is not `capstan lab network`: {reason}. Name the port that it says it listens on"
    )]
    NotOurs {
        /// Where.
        address: SocketAddr,
        /// What it did.
        reason: String,
    },
    /// It speaks otherwise.
    #[error(
        "{address} speaks version {theirs} of the measurement, and this program version {ours}: run the same capstan on both"
    )]
    OtherVersion {
        /// Where.
        address: SocketAddr,
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// It measures with somebody else.
    #[error("{address} measures with somebody else now: try again when that is done")]
    Busy {
        /// Where.
        address: SocketAddr,
    },
    /// It went away.
    #[error(
        "the connection with {peer} was lost after {mb:.1} MB: {reason}. See whether the other side still runs, and measure again"
    )]
    Lost {
        /// With whom.
        peer: SocketAddr,
        /// How much had gone, either way, MB.
        mb: f64,
        /// What happened.
        reason: String,
    },
    /// It was stopped.
    #[error("stopped")]
    Stopped,
}

/// Addresses behind `host:port`, or behind a port of this machine.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, NetworkError> {
    let wrong = |reason: String| NetworkError::Address { address: text.to_owned(), reason };
    if let Ok(port) = text.parse::<u16>() {
        return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
    }
    let found: Vec<_> = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
    if found.is_empty() { Err(wrong("the name has no address".to_owned())) } else { Ok(found) }
}
