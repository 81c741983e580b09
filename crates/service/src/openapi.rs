//! The API as OpenAPI 3.1 says it: made from the routes themselves, so that neither can have what the other lacks.
//!
//! ```text
//!  ApiRoutes::get(path, who, handler) --> axum's Router          what is served
//!                                     `-> ApiOperation           what the document says
//!                                          parameters, body, answer: from the types of the handler's own arguments and result
//!                                          summary, who may:         from the route's OperationDoc
//! ```
//! Documents written beside handlers go wrong at the first change. Here a handler that takes `Input<AddPeer>` and gives
//! `Json<EnrolmentOpened>` is documented by that, and one whose types have no schema does not compile.
//!
//! Who may call a route is declared with it ([`AccessRule`]), and checked in front of all handlers, so none can forget.

mod access;
mod authorize;
mod document;
mod handler;

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use schemars::SchemaGenerator;

pub use access::{AccessDoc, AccessRule};
pub use document::{ApiInfo, document};
pub use handler::{DescribedHandler, HandlerDoc, RequestPart, ResponseDoc};

use authorize::{AccessTable, authorize};

/// What is said of an operation beside its types.
#[derive(Debug, Clone, Copy)]
pub struct OperationDoc<A> {
    access: A,
    /// In the imperative, without a full stop.
    summary: &'static str,
}

impl<A> From<(A, &'static str)> for OperationDoc<A> {
    fn from((access, summary): (A, &'static str)) -> Self {
        Self { access, summary }
    }
}

/// What a route is called by. The API needs no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiMethod {
    /// Something to be looked at. What answers GET answers HEAD.
    Get,
    /// Something to be done.
    Post,
}

impl ApiMethod {
    /// In lower case, as the document has it.
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
        }
    }
}

/// One method of one path.
struct ApiOperation<A> {
    method: ApiMethod,
    path: &'static str,
    doc: OperationDoc<A>,
    describe: fn(&mut SchemaGenerator) -> HandlerDoc,
}

/// Routes of the service `S`, who may call them, and what is to be said of them.
pub struct ApiRoutes<S, A> {
    router: Router<S>,
    operations: Vec<ApiOperation<A>>,
}

impl<S: Clone + Send + Sync + 'static, A: AccessRule<S>> Default for ApiRoutes<S, A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone + Send + Sync + 'static, A: AccessRule<S>> ApiRoutes<S, A> {
    /// None yet.
    pub fn new() -> Self {
        Self { router: Router::new(), operations: Vec::new() }
    }

    /// Something to be looked at.
    pub fn get<H, T, P>(self, path: &'static str, doc: impl Into<OperationDoc<A>>, handler: H) -> Self
    where
        H: Handler<T, S> + DescribedHandler<P>,
        T: 'static,
    {
        self.route(ApiMethod::Get, path, doc.into(), get(handler), H::describe)
    }

    /// Something to be done.
    pub fn post<H, T, P>(self, path: &'static str, doc: impl Into<OperationDoc<A>>, handler: H) -> Self
    where
        H: Handler<T, S> + DescribedHandler<P>,
        T: 'static,
    {
        self.route(ApiMethod::Post, path, doc.into(), post(handler), H::describe)
    }

    /// Both.
    pub fn merge(mut self, other: Self) -> Self {
        self.operations.extend(other.operations);
        Self { router: self.router.merge(other.router), ..self }
    }

    /// As a router of this service, in front of which each request is held to the access of its route.
    pub fn served_by(self, service: S) -> Router {
        let access = self.operations.iter().map(|operation| {
            let ApiOperation { method, path, doc, .. } = operation;
            ((*method, *path), doc.access)
        });
        let table = AccessTable { access: Arc::new(access.collect()), service: service.clone() };
        self.router.route_layer(from_fn_with_state(table, authorize)).with_state(service)
    }

    /// Documents what is served beside these routes by a handler of this type.
    pub fn documented<H, P>(
        mut self,
        method: ApiMethod,
        path: &'static str,
        doc: impl Into<OperationDoc<A>>,
        _: H,
    ) -> Self
    where
        H: DescribedHandler<P>,
    {
        self.operations.push(ApiOperation { method, path, doc: doc.into(), describe: H::describe });
        self
    }

    fn route(
        mut self,
        method: ApiMethod,
        path: &'static str,
        doc: OperationDoc<A>,
        handler: MethodRouter<S>,
        describe: fn(&mut SchemaGenerator) -> HandlerDoc,
    ) -> Self {
        self.operations.push(ApiOperation { method, path, doc, describe });
        Self { router: self.router.route(path, handler), ..self }
    }
}
