//! Whether the process lives, and whether it can serve.

use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use capstan_keys::api::Problem;
use serde_json::{Value, json};

use crate::problem::Refusal;

/// Whether the process can serve its clients.
pub trait Readiness: Send + Sync + 'static {
    /// Whether it can.
    ///
    /// # Errors
    /// It cannot, and why.
    fn ready(&self) -> Result<(), Problem>;
}

/// `/healthz`: the process answers. `/readyz`: it serves, or says why not with 503, so that clients go elsewhere.
pub fn health_routes<S: Clone + Send + Sync + 'static>(readiness: Arc<dyn Readiness>) -> Router<S> {
    let ready = move || {
        let ready = readiness.ready();
        async move {
            match ready {
                Ok(()) => Ok::<_, Refusal>(status("ready")),
                Err(problem) => Err(problem.into()),
            }
        }
    };
    Router::new().route("/healthz", get(async || status("alive"))).route("/readyz", get(ready))
}

fn status(word: &str) -> Json<Value> {
    Json(json!({ "status": word }))
}
