//! Requests, counted by the route that took them.

use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::register;

/// Bounds of the latency histograms, in seconds: 5 ms is what the get of a key is promised in, 15 s is what a request
/// may take.
const LATENCY_SECONDS: [f64; 13] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0];

/// A request, by where it went and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    method: String,
    route: String,
    /// The HTTP status, or `unfinished`.
    result: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: String,
    route: String,
}

/// How many requests there were, what came of them, and how long they took.
#[derive(Debug, Clone)]
pub struct RequestMetrics {
    requests: Family<ResultLabels, Counter>,
    latency: Family<RouteLabels, Histogram, fn() -> Histogram>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(LATENCY_SECONDS);
        Self { requests: Family::default(), latency: Family::new_with_constructor(histogram) }
    }
}

impl RequestMetrics {
    /// Registers them.
    pub fn register(&self, registry: &mut Registry) {
        register(registry, "requests", "Requests, by route and what came of them", &self.requests);
        register(registry, "request_seconds", "How long requests took, by route", &self.latency);
    }

    /// The same routes, counted. What no route took is not: its path is anybody's invention.
    pub fn count(&self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self.clone(), count))
    }
}

/// A request under way. Dropped without an answer it was given up: by its peer, or because it took too long.
struct UnderWay {
    metrics: RequestMetrics,
    route: RouteLabels,
    begun: Instant,
    status: Option<u16>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.metrics.latency.get_or_create(&self.route).observe(self.begun.elapsed().as_secs_f64());
        let result = self.status.map_or_else(|| "unfinished".to_owned(), |status| status.to_string());
        let RouteLabels { method, route } = self.route.clone();
        self.metrics.requests.get_or_create(&ResultLabels { method, route, result }).inc();
    }
}

async fn count(State(metrics): State<RequestMetrics>, request: Request, next: Next) -> Response {
    // The route as it is written, not the path: that has names of volumes and keys in it.
    let Some(route) = request.extensions().get::<MatchedPath>() else { return next.run(request).await };
    let route = RouteLabels { method: request.method().to_string(), route: route.as_str().to_owned() };
    let mut under_way = UnderWay { metrics, route, begun: Instant::now(), status: None };
    let answer = next.run(request).await;
    under_way.status = Some(answer.status().as_u16());
    answer
}
