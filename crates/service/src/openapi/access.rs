//! Who may call a route: what the document says of it, and how a request is held to it.

use axum::http::request::Parts;
use serde_json::{Map, Value};

use crate::problem::Refusal;

/// Who may call a route of the service `S`. The program has an enum of its own, and each route is declared with one of
/// its values.
pub trait AccessRule<S>: Copy + Send + Sync + 'static {
    /// What the document says of it.
    fn doc(self) -> AccessDoc;

    /// Lets a request through, before anything of its body is read.
    ///
    /// # Errors
    /// The request is not one of those that may.
    fn authorize(self, parts: &mut Parts, service: &S) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// What the document says of who may call an operation.
#[derive(Debug, Default)]
pub struct AccessDoc {
    /// The group of operations that it is listed in.
    pub tag: &'static str,
    /// Who may, in a sentence.
    pub description: String,
    /// No certificate is needed.
    pub is_public: bool,
    /// More for programs to read: fields whose names begin with `x-`.
    pub extensions: Map<String, Value>,
}
