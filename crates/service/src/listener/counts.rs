//! What goes on at a listener, counted for whoever watches the process.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// The counts of one listener. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct ConnectionCounts {
    /// Connections that are open, in every state.
    pub open: Gauge,
    /// Connections that were given a permit.
    pub accepted: Counter,
    /// Connections that were dropped, because every permit was held by a request.
    pub refused: Counter,
    /// Connections that gave way to others while they asked for nothing.
    pub evicted: Counter,
}
