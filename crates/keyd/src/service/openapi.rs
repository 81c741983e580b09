//! The API as OpenAPI 3.1 says it: made from the routes themselves, so that neither can have what the other lacks.
//!
//! ```text
//!  Paths::get(path, who, handler) --> axum's Router              what is served
//!                                 `-> Operation                  what the document says
//!                                      parameters, body, answer: from the types of the handler's own arguments and result
//!                                      summary, roles:           from the table of acts
//! ```
//! Documents written beside handlers go wrong at the first change. Here a handler that takes `Input<AddPeer>` and gives
//! `Json<EnrolmentOpened>` is documented by that, and one whose types have no schema does not compile.
//! `GET /v1/openapi.json` and `docs/openapi.json` are this document; a test compares them.

mod document;
mod speaks;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{MatchedPath, Request, State};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use schemars::SchemaGenerator;

use super::Service;
use super::person::{Person, held_to_table};
use crate::authority::Act;
use crate::door::Refusal;

pub(super) use super::access::Who;
pub(super) use document::document;
pub(super) use speaks::{Asked, Described, Speaks};

// Who asks stands in their certificate.
impl Asked for Person {}

/// What an operation is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    who: Who,
    /// In the imperative, without a full stop; acts have words of their own.
    words: &'static str,
}

impl From<Act> for Said {
    fn from(act: Act) -> Self {
        Self { who: Who::Person(act), words: act.words() }
    }
}

impl From<(Act, Act)> for Said {
    fn from((act, other): (Act, Act)) -> Self {
        Self { who: Who::PersonOr(act, other), words: act.words() }
    }
}

impl From<(Who, &'static str)> for Said {
    fn from((who, words): (Who, &'static str)) -> Self {
        Self { who, words }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Method {
    Get,
    Post,
}

pub(super) struct Operation {
    method: Method,
    path: &'static str,
    said: Said,
    describe: fn(&mut SchemaGenerator) -> Described,
}

/// Routes, and what is to be said of them.
pub(super) struct Paths {
    router: Router<Arc<Service>>,
    pub(super) operations: Vec<Operation>,
}

impl Paths {
    pub(super) fn new() -> Self {
        Self { router: Router::new(), operations: Vec::new() }
    }

    /// Something to be looked at.
    pub(super) fn get<H, T, A>(self, path: &'static str, said: impl Into<Said>, handler: H) -> Self
    where
        H: Handler<T, Arc<Service>> + Speaks<A>,
        T: 'static,
    {
        self.route(Method::Get, path, said.into(), get(handler), H::describe)
    }

    /// Something to be done.
    pub(super) fn post<H, T, A>(self, path: &'static str, said: impl Into<Said>, handler: H) -> Self
    where
        H: Handler<T, Arc<Service>> + Speaks<A>,
        T: 'static,
    {
        self.route(Method::Post, path, said.into(), post(handler), H::describe)
    }

    pub(super) fn merge(mut self, other: Self) -> Self {
        self.operations.extend(other.operations);
        Self { router: self.router.merge(other.router), ..self }
    }

    /// What they are of, as a router of this service, held to the table of roles.
    pub(super) fn served_by(self, service: Arc<Service>) -> Router {
        let table = self.operations.iter().map(|operation| ((operation.method, operation.path), operation.said.who));
        let held = Held { table: Arc::new(table.collect()), service: service.clone() };
        self.router.route_layer(from_fn_with_state(held, hold)).with_state(service)
    }

    fn route(
        mut self,
        method: Method,
        path: &'static str,
        said: Said,
        handler: MethodRouter<Arc<Service>>,
        describe: fn(&mut SchemaGenerator) -> Described,
    ) -> Self {
        self.operations.push(Operation { method, path, said, describe });
        Self { router: self.router.route(path, handler), ..self }
    }

    /// Says what a door serves by itself.
    pub(super) fn said_by_door<H, A>(mut self, method: Method, path: &'static str, said: impl Into<Said>, _: H) -> Self
    where
        H: Speaks<A>,
    {
        self.operations.push(Operation { method, path, said: said.into(), describe: H::describe });
        self
    }
}

/// What is taken in of a request that is refused.
const REFUSED_LEN_MAX: usize = 64 << 10;

/// Who may ask for what, as the routes were said to be: in front of the handlers, so that none can forget it.
#[derive(Clone)]
struct Held {
    table: Arc<HashMap<(Method, &'static str), Who>>,
    service: Arc<Service>,
}

/// Lets a person through to what their roles allow, before anything of the request is read.
async fn hold(State(held): State<Held>, request: Request, next: Next) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    // What answers GET answers HEAD.
    let method = if parts.method == axum::http::Method::POST { Method::Post } else { Method::Get };
    let path = parts.extensions.get::<MatchedPath>().cloned().ok_or_else(Refusal::failed)?;
    // By another method there is no handler behind this, only the answer that says so.
    let is_other =
        ![axum::http::Method::GET, axum::http::Method::HEAD, axum::http::Method::POST].contains(&parts.method);
    let Some(who) = held.table.get(&(method, path.as_str())).copied().filter(|_| !is_other) else {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    if let Err(refusal) = held_to_table(&mut parts, &held.service, who).await {
        // Whoever is still sending hears the answer only once that is taken in.
        let _ = to_bytes(body, REFUSED_LEN_MAX).await;
        return Err(refusal);
    }
    Ok(next.run(Request::from_parts(parts, body)).await)
}
