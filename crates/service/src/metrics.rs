//! What every such process tells those who watch it: requests by route, connections by listener, and a listener of
//! their own for scrapers.
//!
//! **Labels** are routes, methods, results and listeners: few, and nothing that varies with what clients ask for. The
//! path of a request is never one, for it has names in it, and each of them would be a time series for ever.

mod connections;
mod requests;
mod serve;

use prometheus_client::registry::{Metric, Registry};

pub use connections::ConnectionMetrics;
pub use requests::RequestMetrics;
pub use serve::{MetricsSource, serve_metrics};

/// Registers a metric that its owner keeps a clone of.
pub fn register<M: Metric + Clone>(registry: &mut Registry, name: &'static str, help: &'static str, metric: &M) {
    registry.register(name, help, metric.clone());
}
