//! docs/JSON.md and docs/json.schema.json, made from the types: a test holds the kept ones to them.

use std::fmt::Write;

use capstan_client::files::FileRow;
use capstan_lab::{DriveRates, NetworkMeasurement, PathRates, RestoreRates, SourceRates, StagingRates};
use capstan_server::cell::users::media_words::{DriveLine, InventoryRow, PoolRow, VaultRow, VolumeRow};
use capstan_server::cell::users::task_words::{LibraryEvent, TaskEnd};
use capstan_server::cell::users::words::{
    AuditChecked, BackupPolicyRow, CellObjectRow, CellUserRow, ComingRunRow, MemberChangeRow, MemberEnrolmentRow,
    MemberRow, PolicyChangeRow, QueueChangeRow, QueueRow, WhoAnswer,
};
use capstan_vtl::LibraryStatus;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{
    AdviceRow, BackupEnd, ClientJoinedRow, ClientObjectRow, ClientRestoreEvent, ComparisonRow, CopyWhyRow, DataSetRow,
    DriveReportRow, Event, ExercisedRow, GridRow, GroupRow, JobRow, KeyDriveRow, KeyEvent, KeyRow, KeysStatusRow,
    MemberEvent, ModelRow, MoverJoinedRow, NetworkLine, ObjectRow, PolicyRow, ReportedRow, RestoreEnd, RunRow, ScanRow,
    ServerEvent, ShownClock, ShownObject, ShownRun, ShownVolume, SimulatedRow, SlotRow, StatusRow, TellRow,
    TellTrialRow, UserJoinedRow, VolumeKeysRow, VtlEvent,
};

const INTRODUCTION: &str = "# What --json prints

This page is made from the program's types (`CAPSTAN_WRITE_DOCS=1 cargo test -p capstan-cli --bin capstan json` writes it anew);
[json.schema.json](json.schema.json) has the same as JSON Schema.

- **Each line of standard output is one JSON object.** Lists print a line a row, as the rows come: read them line by line (`jq -c`, `for line in
  output`), whatever their length. A list of nothing prints nothing.
- **What happens has an `event`, rows have none.** The last line of a backup or restore is `finished`, of a
  verification `verified` or `compared`, of a copy `copied`; behind that of a job may come `hook-failed`. Where nothing was to be done there is none.
- **A failure is an object, too:** the last line of a command that could not do its work is `error`, with the exit code. A command that did a part of
  it ends with its own last line, which says what is missing, and with the exit code 3, or with 1 if no source could be read. Standard error has the same for people, and warnings as text.
- **Paths can be handed back.** `path` is the path itself. Where its bytes are not UTF-8 it is shown with `\\xNN`, and `path_base64` has the bytes:
  `capstan cat \"$OBJECT:$(echo \"$path_base64\" | base64 -d)\"`. The same holds for `source` and `source_base64`.
- Paths of `lab` are as `laboratory.json` keeps them: a `%`, and each byte that is not UTF-8, is `%` and two digits.
- Times are nanoseconds since 1970, in UTC. Fields may be added; none of these goes away without a line in the changelog.

Commands of `keys` that are asked of a cluster in the words of `keyd` (`users`, `quorum`, `pending`, `sites`, `backups`, `audit`, and the lists of
the cluster's own policies, groups, agents and units) print what `keyd` prints: docs/openapi.json has the answers of its service.
";

/// One kind of line: its title, and the name of its schema.
struct Part {
    title: &'static str,
    name: String,
}

fn part<T: JsonSchema>(generator: &mut SchemaGenerator, title: &'static str) -> Part {
    generator.subschema_for::<T>();
    Part { title, name: T::schema_name().into_owned() }
}

fn document() -> (Vec<Part>, Map<String, Value>) {
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator();
    let parts = vec![
        part::<Event>(&mut generator, "Events"),
        part::<BackupEnd>(&mut generator, "The end of `backup`"),
        part::<RestoreEnd>(&mut generator, "The end of `restore`"),
        part::<FileRow>(&mut generator, "Rows of `ls`, `find`, `versions`"),
        part::<ObjectRow>(&mut generator, "Rows of `objects`"),
        part::<ShownObject>(&mut generator, "`show OBJECT`"),
        part::<CopyWhyRow>(&mut generator, "`object why`"),
        part::<ShownVolume>(&mut generator, "`show VOLUME`"),
        part::<VolumeRow>(&mut generator, "Rows of `volumes`"),
        part::<VaultRow>(&mut generator, "Rows of `vault`"),
        part::<PoolRow>(&mut generator, "Rows of `pools`"),
        part::<JobRow>(&mut generator, "Rows of `jobs`"),
        part::<BackupPolicyRow>(&mut generator, "Rows of `policies`"),
        part::<PolicyChangeRow>(&mut generator, "`policies apply`, `policies remove`"),
        part::<ComingRunRow>(&mut generator, "Rows of `schedule`"),
        part::<QueueRow>(&mut generator, "Rows of `queue`"),
        part::<QueueChangeRow>(&mut generator, "What `queue` did with a run"),
        part::<ServerEvent>(&mut generator, "What happens while `server run` serves"),
        part::<TellRow>(&mut generator, "Rows of `server tell`"),
        part::<TellTrialRow>(&mut generator, "Rows of `server tell --test`"),
        part::<MemberEnrolmentRow>(&mut generator, "`client enrol`, `mover enrol`, `user enrol`"),
        part::<ClientJoinedRow>(&mut generator, "`client join`"),
        part::<MoverJoinedRow>(&mut generator, "`mover join`"),
        part::<UserJoinedRow>(&mut generator, "`user join`"),
        part::<MemberEvent>(&mut generator, "What happens while `client run` or `mover run` runs"),
        part::<ClientObjectRow>(&mut generator, "Rows of `client objects`"),
        part::<ClientRestoreEvent>(&mut generator, "`client restore`"),
        part::<MemberRow>(&mut generator, "Rows of `client list`, `mover list`"),
        part::<MemberChangeRow>(
            &mut generator,
            "`client label`, `client revoke`, `mover revoke`, `user revoke`, `user change`",
        ),
        part::<CellUserRow>(&mut generator, "Rows of `user list`"),
        part::<WhoAnswer>(&mut generator, "`user who`"),
        part::<CellObjectRow>(&mut generator, "Rows of `objects`, as a user of a cell"),
        part::<AuditChecked>(&mut generator, "`audit verify`"),
        part::<StatusRow>(&mut generator, "`status`"),
        part::<ShownClock>(&mut generator, "`clock`"),
        part::<LibraryEvent>(&mut generator, "What `library` or `vault` did"),
        part::<TaskEnd>(&mut generator, "`label`, as a user of a cell"),
        part::<InventoryRow>(&mut generator, "`library inventory`"),
        part::<DriveLine>(&mut generator, "Rows of `drives`"),
        part::<DriveReportRow>(&mut generator, "`drives report`"),
        part::<ScanRow>(&mut generator, "`drives scan`"),
        part::<ExercisedRow>(&mut generator, "`drives exercise`"),
        part::<KeyEvent>(&mut generator, "What `keys` did"),
        part::<KeysStatusRow>(&mut generator, "`keys status`"),
        part::<KeyRow>(&mut generator, "Rows of `keys list`"),
        part::<VolumeKeysRow>(&mut generator, "Rows of `keys volumes`"),
        part::<SlotRow>(&mut generator, "Rows of `keys slots`"),
        part::<PolicyRow>(&mut generator, "Rows of `keys policies`"),
        part::<GroupRow>(&mut generator, "Rows of `keys groups`"),
        part::<KeyDriveRow>(&mut generator, "Rows of `keys drives`"),
        part::<RunRow>(&mut generator, "Rows of `history`"),
        part::<ShownRun>(&mut generator, "`history RUN`"),
        part::<VtlEvent<'_>>(&mut generator, "What `vtl` did"),
        part::<capstan_vtl::TargetEvent>(&mut generator, "What happens while `vtl serve` serves"),
        part::<LibraryStatus>(&mut generator, "`vtl status`"),
        part::<ModelRow<'_>>(&mut generator, "Rows of `models`"),
        part::<SimulatedRow<'_>>(&mut generator, "`simulate`"),
        part::<DataSetRow>(&mut generator, "`lab create-data`"),
        part::<SourceRates>(&mut generator, "Rows of `lab read`"),
        part::<PathRates>(&mut generator, "`lab null`"),
        part::<DriveRates>(&mut generator, "`lab drive`"),
        part::<StagingRates>(&mut generator, "`lab staging`"),
        part::<RestoreRates>(&mut generator, "`lab restore`"),
        part::<NetworkLine>(&mut generator, "What happens while `lab network --listen` waits"),
        part::<NetworkMeasurement>(&mut generator, "`lab network --to`"),
        part::<AdviceRow<'_>>(&mut generator, "`lab advise`"),
        part::<GridRow<'_>>(&mut generator, "Rows of `lab characterize`"),
        part::<ComparisonRow<'_>>(&mut generator, "`lab compare`"),
        part::<ReportedRow<'_>>(&mut generator, "Rows of `lab report`"),
    ];
    let schemas = generator.take_definitions(true);
    (parts, schemas)
}

fn schema_text(schemas: &Map<String, Value>) -> String {
    let all = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What capstan --json prints", "$defs": schemas});
    format!("{all:#}\n")
}

fn referred(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

/// What a field is, in a word or two.
fn type_text(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = referred(reference);
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(value) = schema["const"].as_str() {
        return format!("`{value}`");
    }
    if let Some(either) = schema["anyOf"].as_array() {
        return either.iter().map(type_text).collect::<Vec<_>>().join(" or ");
    }
    let one = |name: &str| match name {
        "array" => match schema["prefixItems"].as_array() {
            // A tuple: so many, in this order.
            Some(items) => format!("[{}]", items.iter().map(type_text).collect::<Vec<_>>().join(", ")),
            None => format!("array of {}", type_text(&schema["items"])),
        },
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}

fn words_of(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn table(out: &mut String, schema: &Value, schemas: &Map<String, Value>) {
    out.push_str("\n| field | type | what |\n|---|---|---|\n");
    rows(out, schema);
    // A line that is another type with its name in front.
    if let Some(reference) = schema["$ref"].as_str() {
        rows(out, &schemas[referred(reference)]);
    }
}

/// The words that a field may be, one of them; an object of one field where the word has more to say.
fn list(out: &mut String, choices: &[Value]) {
    out.push('\n');
    for choice in choices {
        let word = choice["const"].as_str().map(|word| format!("`{word}`"));
        let object = || {
            let (name, within) = choice["properties"].as_object()?.iter().next()?;
            let fields = within["properties"].as_object()?.iter();
            let plain = |field| words_of(field).trim_end_matches('.').to_owned();
            let fields: Vec<_> = fields.map(|(name, field)| format!("`{name}` ({})", plain(field))).collect();
            Some(format!("`{{\"{name}\": {{...}}}}` with {}", fields.join(", ")))
        };
        writeln!(out, "- {}: {}", word.or_else(object).unwrap_or_default(), words_of(choice)).expect("a text takes it");
    }
}

fn rows(out: &mut String, schema: &Value) {
    let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let kind = type_text(field);
        let kind = if required(name) { kind } else { format!("{kind}, or left out") };
        writeln!(out, "| `{name}` | {kind} | {} |", words_of(field).replace('|', "\\|")).expect("a text takes it");
    }
}

fn page() -> String {
    let (parts, schemas) = document();
    let mut out = INTRODUCTION.to_owned();
    for part in &parts {
        let schema = &schemas[&part.name];
        write!(out, "\n## {}\n\n{}\n", part.title, words_of(schema)).expect("a text takes it");
        match schema["oneOf"].as_array() {
            Some(variants) => {
                for variant in variants {
                    let name = variant["properties"]["event"]["const"].as_str().unwrap_or_default();
                    write!(out, "\n### `{name}`\n\n{}\n", words_of(variant)).expect("a text takes it");
                    table(&mut out, variant, &schemas);
                }
            }
            None => table(&mut out, schema, &schemas),
        }
    }
    out.push_str("\n## What stands within\n");
    let tops: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
    for (name, schema) in schemas.iter().filter(|(name, _)| !tops.contains(&name.as_str())) {
        write!(out, "\n### {name}\n\n{}\n", words_of(schema)).expect("a text takes it");
        match schema["oneOf"].as_array() {
            Some(choices) => list(&mut out, choices),
            None => table(&mut out, schema, &schemas),
        }
    }
    // What a command prints stands under that command, also where something else has it within.
    for Part { title, name } in &parts {
        out = out.replace(&format!("(#{})", name.to_lowercase()), &format!("(#{})", anchor(title)));
    }
    out
}

/// How a link names a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || " -".contains(*letter))
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn every_link_leads_to_a_heading() {
    let page = page();
    let anchors: std::collections::HashSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| anchor(line.trim_start_matches(['#', ' '])))
        .collect();
    let links: Vec<_> = page.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 20);
    let dead: Vec<_> = links.iter().filter(|link| !anchors.contains(**link)).collect();
    assert!(dead.is_empty(), "{dead:?}");
}

/// Changed by the types alone: `CAPSTAN_WRITE_DOCS=1 cargo test -p capstan-cli --bin capstan json` writes both anew.
#[test]
fn the_pages_in_docs_are_those_of_the_types() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let made = [("JSON.md", page()), ("json.schema.json", schema_text(&document().1))];
    for (name, made) in made {
        let kept_at = docs.join(name);
        if std::env::var_os("CAPSTAN_WRITE_DOCS").is_some() {
            std::fs::write(&kept_at, &made).expect("docs can be written");
        }
        let kept = std::fs::read_to_string(&kept_at).unwrap_or_default();
        assert!(kept == made, "docs/{name} is of other types: write it anew with CAPSTAN_WRITE_DOCS=1");
    }
}

#[test]
fn every_field_says_what_it_is() {
    let (_, schemas) = document();
    for (name, schema) in &schemas {
        let variants = schema["oneOf"].as_array().map_or_else(|| vec![schema], |variants| variants.iter().collect());
        for variant in variants {
            for (field, about) in variant["properties"].as_object().into_iter().flatten() {
                // A choice that is an object has its words beside it, not in its one field.
                let choice = schema["oneOf"].is_array() && variant["properties"]["event"].is_null();
                let words = if choice { &variant["description"] } else { &about["description"] };
                let plain = field == "event" || words.is_string();
                assert!(plain, "{name}: {field} has no words");
            }
        }
    }
}
