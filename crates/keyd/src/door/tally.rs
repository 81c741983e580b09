//! What goes on at a door, counted for whoever watches the node.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// The counts of one door. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Connections that are open, of all standings.
    pub open: Gauge,
    /// Connections that were given a place.
    pub accepted: Counter,
    /// Connections that were dropped, because every place was taken by a request.
    pub refused: Counter,
    /// Connections that gave way to others while they asked for nothing.
    pub shown_out: Counter,
}
