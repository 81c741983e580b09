//! Requests, counted by the route that took them.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

use super::{Answered, Metrics, Route};

/// The same routes, counted. What no route took is not: its path is anybody's invention.
pub(in super::super) fn counted(routes: Router, metrics: Arc<Metrics>) -> Router {
    routes.layer(from_fn_with_state(metrics, count))
}

/// A request under way. Dropped without an answer it was given up: by its peer, or because it took too long.
struct UnderWay {
    metrics: Arc<Metrics>,
    route: Route,
    begun: Instant,
    status: Option<u16>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.metrics.latency.get_or_create(&self.route).observe(self.begun.elapsed().as_secs_f64());
        let result = self.status.map_or_else(|| "unfinished".to_owned(), |status| status.to_string());
        let Route { method, route } = self.route.clone();
        self.metrics.requests.get_or_create(&Answered { method, route, result }).inc();
    }
}

async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    // The route as it is written, not the path: that has names of volumes and keys in it.
    let Some(route) = request.extensions().get::<MatchedPath>() else { return next.run(request).await };
    let route = Route { method: request.method().to_string(), route: route.as_str().to_owned() };
    let mut under_way = UnderWay { metrics, route, begun: Instant::now(), status: None };
    let answer = next.run(request).await;
    under_way.status = Some(answer.status().as_u16());
    answer
}
