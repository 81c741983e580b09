//! The document itself.

use capstan_keys::api::{PROBLEM_MEDIA_TYPE, Problem, REQUEST_ID_HEADER};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{AccessDoc, AccessRule, ApiOperation, ApiRoutes, HandlerDoc};

const REQUEST: &str = "The id of the request, 32 hexadecimal digits: one that is sent again, also to another node, carries the same. The node \
    draws one where there is none, and says it in its answer.";

/// What the document says beside its operations.
#[derive(Debug, Clone, Copy)]
pub struct ApiInfo {
    /// What this is the API of.
    pub title: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What a reader must know of all operations.
    pub description: &'static str,
    /// An address where it is served: `host:port`.
    pub server: &'static str,
    /// What is served at such an address.
    pub server_description: &'static str,
    /// Groups of operations, and whom they are for.
    pub tags: &'static [(&'static str, &'static str)],
    /// Where a client's certificate comes from.
    pub certificate: &'static str,
}

/// The document of these routes: JSON in the form of OpenAPI 3.1.
pub fn document<S, A: AccessRule<S>>(info: &ApiInfo, routes: &ApiRoutes<S, A>) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for operation in &routes.operations {
        let described = describe::<S, A>(operation, &mut generator);
        let path = paths.entry(operation.path).or_insert_with(|| Value::Object(Map::new()));
        path[operation.method.name()] = described;
    }
    let tags = info.tags.iter().map(|(name, description)| json!({"name": name, "description": description}));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": info.title, "version": info.version, "description": info.description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{
            "url": "https://{address}",
            "variables": {"address": {"default": info.server, "description": info.server_description}},
        }],
        "security": [{"mutualTLS": []}],
        "tags": tags.collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"mutualTLS": {"type": "mutualTLS", "description": info.certificate}},
            "parameters": {"Request": {
                "name": REQUEST_ID_HEADER, "in": "header", "required": false, "description": REQUEST,
                "schema": {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"},
            }},
            "responses": {"Problem": {
                "description": "It was refused, or could not be done: what is the matter and what to do next",
                "content": {PROBLEM_MEDIA_TYPE: {"schema": problem}},
            }},
        },
    })
}

fn describe<S, A: AccessRule<S>>(operation: &ApiOperation<A>, generator: &mut SchemaGenerator) -> Value {
    let ApiOperation { method, path, doc, describe } = operation;
    let HandlerDoc { query, body, answer } = describe(generator);
    let AccessDoc { tag, description, is_public, extensions } = doc.access.doc();
    let in_path = path.split(['{', '}']).skip(1).step_by(2);
    let in_path =
        in_path.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let request = json!({"$ref": "#/components/parameters/Request"});
    let parameters: Vec<Value> = in_path.chain(query).chain([request]).collect();
    let content = |schema: Option<Schema>| json!({"application/json": {"schema": schema}});
    let name = path.replace(['/', '-', '.'], "_").replace(['{', '}'], "");
    let mut described = json!({
        "operationId": format!("{}{name}", method.name()),
        "tags": [tag],
        "summary": capital(doc.summary),
        "description": description,
        "parameters": parameters,
        "responses": {
            "200": {"description": "It is so", "content": content(answer)},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    });
    if let Some(body) = body {
        described["requestBody"] = json!({"required": true, "content": content(Some(body))});
    }
    for (name, value) in extensions {
        described[name] = value;
    }
    if is_public {
        described["security"] = json!([]);
    }
    described
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
