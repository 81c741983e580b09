//! Who may call a route, checked before its handler and before anything of the body is read.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use super::{AccessRule, ApiMethod};
use crate::problem::Refusal;

/// What is taken in of a request that is refused.
const REFUSED_LEN_MAX: usize = 64 << 10;

/// Who may call what, as the routes were declared.
#[derive(Clone)]
pub(super) struct AccessTable<S, A> {
    pub(super) access: Arc<HashMap<(ApiMethod, &'static str), A>>,
    pub(super) service: S,
}

/// Lets a request through to its handler if its route's access does.
pub(super) async fn authorize<S, A>(
    State(table): State<AccessTable<S, A>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal>
where
    S: Send + Sync,
    A: AccessRule<S>,
{
    let (mut parts, body) = request.into_parts();
    let method = match parts.method {
        // What answers GET answers HEAD.
        Method::GET | Method::HEAD => Some(ApiMethod::Get),
        Method::POST => Some(ApiMethod::Post),
        // There is no handler behind this, only the answer that says so.
        _ => None,
    };
    let path = parts.extensions.get::<MatchedPath>().cloned().ok_or_else(Refusal::failed)?;
    let access = method.and_then(|method| table.access.get(&(method, path.as_str())).copied());
    if let Some(access) = access
        && let Err(refusal) = access.authorize(&mut parts, &table.service).await
    {
        // Whoever is still sending hears the answer only once that is taken in.
        let _ = to_bytes(body, REFUSED_LEN_MAX).await;
        return Err(refusal);
    }
    Ok(next.run(Request::from_parts(parts, body)).await)
}
