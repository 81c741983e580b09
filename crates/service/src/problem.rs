//! Errors as problem+json, and JSON that is taken in.

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use capstan_keys::api::{PROBLEM_MEDIA_TYPE, Problem};
use serde::de::DeserializeOwned;

/// A [`Problem`] as an answer: what handlers return as their error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub Box<Problem>);

impl Refusal {
    /// 400: the request makes no sense.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Problem::new(400, "malformed", "The request makes no sense", detail).into()
    }

    /// 403: this peer may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Problem::new(403, "forbidden", "This is not allowed", detail).into()
    }

    /// 404: there is nothing of that name.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Problem::new(404, "not-found", "There is no such thing", detail).into()
    }

    /// 409: it does not go with what is there.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Problem::new(409, "conflict", "It does not go with what is there", detail).into()
    }

    /// 503: this node cannot, now; another may.
    pub fn unready(detail: impl Into<String>) -> Self {
        Problem::new(503, "unready", "This node cannot serve now", detail).into()
    }

    /// 500: this node failed. What happened goes to the log; the peer is told where to look.
    pub fn failed() -> Self {
        Problem::new(500, "failed", "This node failed", "Look at its log for this request.").into()
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = (status, Json(*self.0)).into_response();
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        answer
    }
}

/// A body of JSON, refused as a [`Refusal`].
pub struct Input<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Input<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::from_request(request, state).await {
            Ok(Json(input)) => Ok(Self(input)),
            Err(rejection) => Err(refused(&rejection)),
        }
    }
}

fn refused(rejection: &JsonRejection) -> Refusal {
    let detail = rejection.body_text();
    match rejection.status().as_u16() {
        413 => Problem::new(413, "too-large", "The request is too large", detail).into(),
        415 => Problem::new(415, "not-json", "The request is not JSON", detail).into(),
        status => Problem::new(status, "malformed", "The request makes no sense", detail).into(),
    }
}
