//! What a listener allows.

use std::time::Duration;

/// The limits of a listener. The defaults fit a node on two cores; a test shortens the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections at a time, in every state. Each may need a file descriptor: raise `LimitNOFILE` with it.
    pub connections_max: usize,
    /// Those of them that one peer may have, or one address where nobody has shown who they are: else one that says
    /// nothing on each of its connections had all of them.
    pub peer_connections_max: usize,
    /// From the connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// Between requests. Agents keep connections between mounts; a new one costs them a resumed handshake.
    pub idle: Duration,
    /// From the first byte of a request to the end of its head.
    pub head: Duration,
    /// From the end of the head to the handler's answer: reading the body, and the work.
    pub request: Duration,
    /// How long the peer may take no byte of an answer.
    pub write: Duration,
    /// The longest body of a request, in bytes.
    pub body_bytes_max: usize,
    /// How long requests that are under way are waited for at the end.
    pub grace: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            peer_connections_max: 16_384,
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(300),
            head: Duration::from_secs(5),
            request: Duration::from_secs(15),
            write: Duration::from_secs(10),
            body_bytes_max: 1 << 20,
            grace: Duration::from_secs(10),
        }
    }
}

impl ListenerLimits {
    /// For whoever enrols: few, brief, and small.
    pub fn enrolment() -> Self {
        let second = Duration::from_secs(1);
        Self {
            connections_max: 256,
            peer_connections_max: 64,
            idle: 10 * second,
            body_bytes_max: 16 << 10,
            ..Self::default()
        }
    }
}
