//! What a handler takes and gives, by its types.

use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::door::{Input, Refusal};

/// What is said of an operation.
#[derive(Default)]
pub(in super::super) struct Described {
    pub(super) query: Vec<Value>,
    pub(super) body: Option<Schema>,
    pub(super) answer: Option<Schema>,
}

/// A handler whose arguments and result say what they are. `A` is what tells apart the implementations for functions.
pub(in super::super) trait Speaks<A> {
    fn describe(generator: &mut SchemaGenerator) -> Described;
}

/// An argument of a handler: what it takes of a request. Most take what is not for clients to say.
pub(in super::super) trait Asked {
    fn asked(_: &mut Described, _: &mut SchemaGenerator) {}
}

/// What a handler gives.
pub(in super::super) trait Told {
    fn told(generator: &mut SchemaGenerator) -> Schema;
}

impl<T> Asked for State<T> {}
impl<T> Asked for Extension<T> {}
// What varies in a path stands in the path.
impl<T> Asked for Path<T> {}
impl<A: Asked, B: Asked> Asked for (A, B) {}
impl<A: Asked, B: Asked, C: Asked> Asked for (A, B, C) {}

impl<T: JsonSchema> Asked for Input<T> {
    fn asked(described: &mut Described, generator: &mut SchemaGenerator) {
        described.body = Some(generator.subschema_for::<T>());
    }
}

impl<T: JsonSchema> Asked for Query<T> {
    fn asked(described: &mut Described, generator: &mut SchemaGenerator) {
        let schema = T::json_schema(generator);
        let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let parameter = |(name, schema)| json!({"name": name, "in": "query", "required": false, "schema": schema});
        described.query.extend(properties.into_iter().map(parameter));
    }
}

impl<T: JsonSchema> Told for Json<T> {
    fn told(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

impl<T: Told> Told for Result<T, Refusal> {
    fn told(generator: &mut SchemaGenerator) -> Schema {
        T::told(generator)
    }
}

macro_rules! speaks {
    ($($argument:ident)*) => {
        impl<F, O, R, $($argument),*> Speaks<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> O,
            O: Future<Output = R>,
            R: Told,
            $($argument: Asked,)*
        {
            #[allow(unused_mut, reason = "some handlers have no arguments")]
            fn describe(generator: &mut SchemaGenerator) -> Described {
                let mut described = Described::default();
                $($argument::asked(&mut described, generator);)*
                described.answer = Some(R::told(generator));
                described
            }
        }
    };
}

speaks!();
speaks!(A);
speaks!(A B);
speaks!(A B C);
speaks!(A B C D);
