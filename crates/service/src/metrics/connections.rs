//! Connections, counted by the listener that they came to.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::register;
use crate::listener::ConnectionCounts;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabel {
    /// Dashboards know listeners as doors.
    door: &'static str,
}

/// The counts of all listeners.
#[derive(Debug, Clone, Default)]
pub struct ConnectionMetrics {
    open: Family<ListenerLabel, Gauge>,
    accepted: Family<ListenerLabel, Counter>,
    refused: Family<ListenerLabel, Counter>,
    evicted: Family<ListenerLabel, Counter>,
}

impl ConnectionMetrics {
    /// Registers them.
    pub fn register(&self, registry: &mut Registry) {
        register(registry, "connections_open", "Connections that are open, by door", &self.open);
        register(registry, "connections", "Connections that were given a place, by door", &self.accepted);
        let help = "Connections that were dropped because every place was taken by a request, by door";
        register(registry, "connections_refused", help, &self.refused);
        let help = "Connections that gave way to others while they were idle, by door";
        register(registry, "connections_shown_out", help, &self.evicted);
    }

    /// The counts of one listener.
    pub fn of(&self, listener: &'static str) -> ConnectionCounts {
        let label = ListenerLabel { door: listener };
        ConnectionCounts {
            open: self.open.get_or_create(&label).clone(),
            accepted: self.accepted.get_or_create(&label).clone(),
            refused: self.refused.get_or_create(&label).clone(),
            evicted: self.evicted.get_or_create(&label).clone(),
        }
    }
}
