//! The API's description: as it is kept in docs/, whole, and taken by a validator that is not ours.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use capstan_keyd::authority::{Act, Role};
use capstan_keyd::service::openapi;
use serde_json::Value;

fn kept_at() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
}

/// Changed by the API alone: `CAPSTAN_WRITE_DOCS=1 cargo test -p capstan-keyd --test it openapi` writes it anew.
#[test]
fn the_document_in_docs_is_that_of_the_routes() {
    let made = format!("{:#}\n", openapi());
    if std::env::var_os("CAPSTAN_WRITE_DOCS").is_some() {
        std::fs::write(kept_at(), &made).unwrap();
    }
    let kept = std::fs::read_to_string(kept_at()).unwrap();
    assert!(kept == made, "docs/openapi.json is of another API: write it anew with CAPSTAN_WRITE_DOCS=1");
}

/// The kinds of problems in a room's sources: those that `Problem::new` gets, and the functions that stand for it.
fn kinds_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            kinds_in(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let source = text.split("#[cfg(test)]").next().unwrap();
        for call in source.split("Problem::new(").skip(1) {
            let arguments: Vec<&str> = call.splitn(3, ',').collect();
            let kind = arguments.get(1).map_or("", |kind| kind.trim());
            found.extend(kind.strip_prefix('"').and_then(|kind| Some(kind.strip_suffix('"')?.to_owned())));
        }
        for call in source.split(" unready(\"").skip(1) {
            found.extend(call.split('"').next().map(str::to_owned));
        }
        for call in source.split(" problem(4").skip(1) {
            found.extend(call.split('"').nth(1).map(str::to_owned));
        }
    }
}

/// The document refers to that list.
#[test]
fn every_kind_of_problem_is_in_the_list_of_keys_md() {
    let rooms = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut kinds =
        BTreeSet::from(["ledger-full", "passphrase-not-proved", "revoked", "turned-away"].map(str::to_owned));
    for source in ["keyd/src", "service/src", "keys/src/api"] {
        kinds_in(&rooms.join(source), &mut kinds);
    }
    assert!(kinds.len() > 35, "{kinds:?}");
    let page = std::fs::read_to_string(rooms.join("../docs/KEYS.md")).unwrap();
    let section = page.split("#### Kinds of problems").nth(1).unwrap().split("\n#### ").next().unwrap();
    let listed = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned);
    assert_eq!(listed.collect::<BTreeSet<_>>(), kinds);
}

/// All objects of the document, with where they stand.
fn objects<'a>(at: &str, value: &'a Value, found: &mut Vec<(String, &'a serde_json::Map<String, Value>)>) {
    match value {
        Value::Object(members) => {
            found.push((at.to_owned(), members));
            members.iter().for_each(|(name, value)| objects(&format!("{at}/{name}"), value, found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| objects(&format!("{at}/{n}"), item, found));
        }
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_used() {
    let document = openapi();
    let mut all = Vec::new();
    objects("", &document, &mut all);
    let references: BTreeSet<&str> = all.iter().filter_map(|(_, members)| members.get("$ref")?.as_str()).collect();
    assert!(references.len() > 20, "{references:?}");
    for reference in &references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        let reference = format!("#/components/schemas/{name}");
        assert!(references.contains(&*reference), "nothing uses {name}");
    }
}

#[test]
fn every_operation_says_who_may_and_what_it_takes() {
    let document = openapi();
    let mut ids = BTreeSet::new();
    let mut acts = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{method} {path}");
            for said in ["summary", "description"] {
                assert!(operation[said].as_str().is_some_and(|said| said.len() > 5), "{method} {path}: {said}");
            }
            let problem = &operation["responses"]["default"]["$ref"];
            assert_eq!(problem, "#/components/responses/Problem", "{method} {path}");
            let parameters = operation["parameters"].as_array().unwrap();
            let named: Vec<_> = parameters.iter().filter(|parameter| parameter["in"] == "path").collect();
            assert_eq!(named.len(), path.matches('{').count(), "{method} {path}");
            if let Some(act) = operation["x-act"].as_str() {
                let act = Act::named(act).unwrap();
                let other = operation["x-or-act"].as_str().map(|other| Act::named(other).unwrap());
                let roles: BTreeSet<_> = operation["x-roles"].as_object().unwrap().keys().map(String::as_str).collect();
                let of_acts = [act].into_iter().chain(other).flat_map(|act| act.roles().iter());
                assert_eq!(roles, of_acts.map(Role::name).collect(), "{method} {path}");
                acts.extend([act].into_iter().chain(other));
            }
        }
    }
    assert!(ids.len() > 45, "{} operations", ids.len());
    // Some rows of the table were once nobody's: what they allowed could not be asked for.
    let unused: Vec<_> = Act::ALL.iter().filter(|act| !acts.contains(act)).map(|act| act.name()).collect();
    assert!(unused.is_empty(), "no route is of {unused:?}");
    let destroy = &document["paths"]["/v1/keys/destroy"]["post"];
    assert_eq!(destroy["x-roles"]["compliance-officer"], "by-quorum");
    assert_eq!(
        destroy["requestBody"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/NamedKey"
    );
    assert_eq!(document["components"]["securitySchemes"]["mutualTLS"]["type"], "mutualTLS");
}

/// `openapi-spec-validator` (PyPI) where it is installed: Debian has no package of it.
#[test]
fn a_validator_takes_it() {
    let validator = std::env::var("OPENAPI_SPEC_VALIDATOR").unwrap_or_else(|_| "openapi-spec-validator".to_owned());
    match Command::new(&validator).arg(kept_at()).output() {
        Err(error) => {
            // Past the harness, which keeps to itself what passing tests print: `./x test` counts it.
            let reason = format!("{validator} is not installed ({error}): the structure alone was checked");
            let _ = writeln!(std::io::stderr(), "\nSKIP {reason}");
        }
        Ok(said) => {
            let text = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
            assert!(said.status.success(), "{text}");
        }
    }
}
