//! The document itself.

use capstan_keys::Name;
use capstan_keys::api::{PROBLEM_MEDIA_TYPE, Problem, REQUEST_ID_HEADER};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Described, Method, Operation, Who};
use crate::authority::{Act, Permission, Role, User, may};

const DESCRIPTION: &str = "Keys for tape drives, and what people do about them. All of it over mutual TLS 1.3: the certificate says who asks \
    (a drive, a person, a node), and the table of roles what they may. What takes a quorum is answered with a request that waits for \
    approvals. Errors are problems (RFC 9457); their kinds, listed in docs/KEYS.md, never change. Times are RFC 3339, identifiers and tags \
    hexadecimal, other bytes base64. A field that is not known is to be passed over.";
const REQUEST: &str = "The id of the request, 32 hexadecimal digits: one that is sent again, also to another node, carries the same. The node \
    draws one where there is none, and says it in its answer.";

pub(in crate::service) fn document(operations: &[Operation]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let method = match operation.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        let said = said(operation, method, &mut generator);
        let path = paths.entry(operation.path).or_insert_with(|| Value::Object(Map::new()));
        path[method] = said;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Capstan key cluster", "version": "1", "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{
            "url": "https://{address}",
            "variables": {"address": {"default": "localhost:7443", "description": "Any node of the cluster"}},
        }],
        "security": [{"mutualTLS": []}],
        "tags": [
            {"name": "agents", "description": "For drives"}, {"name": "people", "description": "For people, by their roles"},
            {"name": "nodes", "description": "For nodes among themselves"},
            {"name": "members", "description": "For whoever has a certificate of the cluster"},
            {"name": "strangers", "description": "For whoever has a one-time passphrase: on a port of its own"},
        ],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"mutualTLS": {
                "type": "mutualTLS",
                "description": "A certificate that the cluster's own authority made out at enrolment (`keyd enrol`)",
            }},
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

fn said(operation: &Operation, method: &str, generator: &mut SchemaGenerator) -> Value {
    let Operation { path, said, describe, .. } = operation;
    let Described { query, body, answer } = describe(generator);
    let in_path = path.split(['{', '}']).skip(1).step_by(2);
    let in_path =
        in_path.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let request = json!({"$ref": "#/components/parameters/Request"});
    let parameters: Vec<Value> = in_path.chain(query).chain([request]).collect();
    let content = |schema: Option<schemars::Schema>| json!({"application/json": {"schema": schema}});
    let mut said_of_it = json!({
        "operationId": format!("{method}{}", path.replace(['/', '-', '.'], "_").replace(['{', '}'], "")),
        "tags": [tag(said.who)],
        "summary": capital(said.words),
        "description": who_may(said.who),
        "parameters": parameters,
        "responses": {
            "200": {"description": "It is so", "content": content(answer)},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    });
    if let Some(body) = body {
        said_of_it["requestBody"] = json!({"required": true, "content": content(Some(body))});
    }
    match said.who {
        Who::Person(act) | Who::AgentKmaOr(act) | Who::KmaOr(act) => {
            said_of_it["x-act"] = act.name().into();
            said_of_it["x-roles"] = roles(act).map(|(role, how)| (role.name().to_owned(), json!(how))).collect();
        }
        Who::PersonOr(act, other) => {
            said_of_it["x-act"] = act.name().into();
            said_of_it["x-or-act"] = other.name().into();
            let both = roles(other).chain(roles(act));
            said_of_it["x-roles"] = both.map(|(role, how)| (role.name().to_owned(), json!(how))).collect();
        }
        Who::Stranger => said_of_it["security"] = json!([]),
        Who::Member | Who::Agent | Who::Kma | Who::User => {}
    }
    said_of_it
}

fn tag(who: Who) -> &'static str {
    match who {
        Who::Member | Who::AgentKmaOr(_) | Who::KmaOr(_) => "members",
        Who::Agent => "agents",
        Who::Kma => "nodes",
        Who::User | Who::Person(_) | Who::PersonOr(..) => "people",
        Who::Stranger => "strangers",
    }
}

fn who_may(who: Who) -> String {
    match who {
        Who::Member => "For every member of the cluster.".to_owned(),
        Who::Agent => "For agents, within the key groups that they may use.".to_owned(),
        Who::Kma => "For nodes.".to_owned(),
        Who::User => "For people of every role.".to_owned(),
        Who::Stranger => "For whoever was given a one-time passphrase; no certificate is asked for.".to_owned(),
        Who::Person(act) => format!("For people with one of these roles: {}.", named(act)),
        Who::PersonOr(act, other) => {
            format!("For people with one of these roles: {}; to {}: {}.", named(act), other.words(), named(other))
        }
        Who::AgentKmaOr(act) => format!("For agents and nodes; people need one of these roles: {}.", named(act)),
        Who::KmaOr(act) => format!("For nodes; people need one of these roles: {}.", named(act)),
    }
}

/// The roles of the row, in words.
fn named(act: Act) -> String {
    let named = |(role, how): (Role, &str)| match how {
        "by-quorum" => format!("{} (waits for a quorum)", role.name()),
        _ => role.name().to_owned(),
    };
    roles(act).map(named).collect::<Vec<_>>().join(", ")
}

/// The row of the table: the roles that may, and how.
fn roles(act: Act) -> impl Iterator<Item = (Role, &'static str)> {
    Role::ALL.into_iter().filter_map(move |role| {
        let user = User::new(Name::default(), [role].into_iter().collect());
        let how = match may(&user, act).ok()? {
            Permission::AtOnce => "at-once",
            Permission::ByQuorum => "by-quorum",
        };
        Some((role, how))
    })
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
