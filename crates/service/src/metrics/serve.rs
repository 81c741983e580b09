//! The listener of those who watch: plain HTTP, few connections, one request each.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::health::{Readiness, health_routes};
use crate::problem::Refusal;
use crate::shutdown::Shutdown;

/// Connections at a time: a scraper has one, and a second to be sure.
const CONNECTIONS_MAX: usize = 16;
/// From the connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a scrape reads.
pub trait MetricsSource: Readiness {
    /// All metrics in the text form of OpenMetrics.
    ///
    /// # Errors
    /// They cannot be written down.
    fn metrics_text(&self) -> Result<String, fmt::Error>;
}

/// Serves `/metrics`, `/healthz` and `/readyz` until the end begins, in plain HTTP to whoever reaches it: scrapers have
/// no certificate of the cluster.
pub async fn serve_metrics<M: MetricsSource>(source: Arc<M>, listener: TcpListener, mut shutdown: Shutdown) {
    if listener.local_addr().is_ok_and(|address| !address.ip().is_loopback()) {
        tracing::warn!(
            "metrics are there for everybody who reaches metrics_listen: keep it on loopback or behind a firewall"
        );
    }
    let routes: Router = Router::new()
        .route("/metrics", get(metrics::<M>))
        .with_state(source.clone())
        .merge(health_routes(source))
        .fallback(async || Refusal::not_found("There are /metrics, /healthz and /readyz here."));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.begun() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "no connection for metrics could be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Whoever holds all places is done with in a few seconds.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let routes = routes.clone();
        tokio::spawn(async move {
            let _place = place;
            let answer = service_fn(async |request: hyper::Request<Incoming>| {
                let answer = routes.clone().oneshot(request.map(Body::new)).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|never| match never {}))
            });
            let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), answer);
            match timeout(PATIENCE, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics ended"),
                Err(_) => tracing::debug!("a connection for metrics took too long"),
            }
        });
    }
}

async fn metrics<M: MetricsSource>(State(source): State<Arc<M>>) -> Result<impl IntoResponse, Refusal> {
    let text = source.metrics_text().map_err(|_| Refusal::failed())?;
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], text))
}
