//! What a handler takes and gives, by its types.

use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::problem::{Input, Refusal};

/// What the document says of a handler.
#[derive(Debug, Default)]
pub struct HandlerDoc {
    pub(super) query: Vec<Value>,
    pub(super) body: Option<Schema>,
    pub(super) answer: Option<Schema>,
}

/// A handler whose arguments and result say what they are. `P` is what tells apart the implementations for functions.
pub trait DescribedHandler<P> {
    /// What the document says of it.
    fn describe(generator: &mut SchemaGenerator) -> HandlerDoc;
}

/// An argument of a handler: what it takes of a request. Most take what is not for clients to say.
pub trait RequestPart {
    /// Adds what a client has to send for it.
    fn describe_request(_: &mut HandlerDoc, _: &mut SchemaGenerator) {}
}

/// What a handler gives.
pub trait ResponseDoc {
    /// Its schema.
    fn describe_response(generator: &mut SchemaGenerator) -> Schema;
}

impl<T> RequestPart for State<T> {}
impl<T> RequestPart for Extension<T> {}
// What varies in a path stands in the path.
impl<T> RequestPart for Path<T> {}
impl<A: RequestPart, B: RequestPart> RequestPart for (A, B) {}
impl<A: RequestPart, B: RequestPart, C: RequestPart> RequestPart for (A, B, C) {}

impl<T: JsonSchema> RequestPart for Input<T> {
    fn describe_request(described: &mut HandlerDoc, generator: &mut SchemaGenerator) {
        described.body = Some(generator.subschema_for::<T>());
    }
}

impl<T: JsonSchema> RequestPart for Query<T> {
    fn describe_request(described: &mut HandlerDoc, generator: &mut SchemaGenerator) {
        let schema = T::json_schema(generator);
        let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let parameter = |(name, schema)| json!({"name": name, "in": "query", "required": false, "schema": schema});
        described.query.extend(properties.into_iter().map(parameter));
    }
}

impl<T: JsonSchema> ResponseDoc for Json<T> {
    fn describe_response(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

impl<T: ResponseDoc> ResponseDoc for Result<T, Refusal> {
    fn describe_response(generator: &mut SchemaGenerator) -> Schema {
        T::describe_response(generator)
    }
}

macro_rules! described {
    ($($argument:ident)*) => {
        impl<F, O, R, $($argument),*> DescribedHandler<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> O,
            O: Future<Output = R>,
            R: ResponseDoc,
            $($argument: RequestPart,)*
        {
            #[allow(unused_mut, reason = "some handlers have no arguments")]
            fn describe(generator: &mut SchemaGenerator) -> HandlerDoc {
                let mut described = HandlerDoc::default();
                $($argument::describe_request(&mut described, generator);)*
                described.answer = Some(R::describe_response(generator));
                described
            }
        }
    };
}

described!();
described!(A);
described!(A B);
described!(A B C);
described!(A B C D);
