//! Objects: their list, everything about one, and how well they are protected.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_director::{
    Counts, ExpiryRequest, Object, ObjectFilter, ObjectKind, ObjectStatus, Protection, Site, Timeline, Volser,
    VolumeState,
};
use serde_json::{Value, json};

use super::clock::{doubt_name, doubt_text, reading_json};
use super::media::state_name;
use super::{director, find_volume, object_or_volume, print, print_json, short, site};
use crate::args::{self, Cli};
use crate::failure::Failure;
use crate::table::{Table, path_text};
use crate::units;
use crate::work::bases_line;

/// Objects that `status` lists one by one.
const OBJECTS_SHOWN: usize = 10;

pub(super) fn level(object: &Object) -> &'static str {
    if object.base.is_some() { "incr" } else { "full" }
}

fn status_name(object: &Object) -> &'static str {
    match object.status {
        ObjectStatus::Open => "interrupted",
        ObjectStatus::Complete => "complete",
        ObjectStatus::Expired => "expired",
    }
}

fn object_json(site: &Site, timeline: &Timeline, object: &Object) -> Result<Value, Failure> {
    let begun = timeline.begun(object.id).filter(|begun| begun.doubt.is_some());
    let copies = site.catalog().copies(object.id).map_err(director)?;
    let whole = site.whole_copies(object)?;
    let wanted = site.catalog().wanted_copies(object.id).map_err(director)?;
    let promised = wanted.iter().filter(|wanted| copies.iter().all(|copy| copy.copy != wanted.copy));
    let promised: Vec<_> = promised
        .map(|wanted| json!({"copy": wanted.copy, "volumes": [], "whole": false, "pool": wanted.pool}))
        .collect();
    let copies: Vec<_> = copies
        .iter()
        .map(|copy| {
            let volumes: Vec<_> = copy.volumes.iter().map(Volser::as_str).collect();
            let pool = wanted.iter().find(|wanted| wanted.copy == copy.copy).map(|wanted| &wanted.pool);
            json!({"copy": copy.copy, "volumes": volumes, "whole": whole.contains(&copy.copy), "pool": pool})
        })
        .chain(promised)
        .collect();
    let counts = object.counts.unwrap_or_default();
    Ok(json!({
        "object": object.id.to_string(),
        "source": String::from_utf8_lossy(&object.source),
        "client": object.client,
        "policy": object.policy,
        "level": level(object),
        "status": status_name(object),
        "base": object.base.map(|base| base.to_string()),
        "started_ns": object.started_ns,
        "ended_ns": object.ended_ns,
        "expires_ns": object.expires_ns,
        "clock_doubt": begun.and_then(|begun| doubt_name(begun.doubt)),
        "begun_from_ns": begun.map(|begun| begun.from_ns),
        "begun_by_ns": begun.map(|begun| begun.by_ns),
        "entries": counts.entries,
        "files": counts.files,
        "bytes": counts.bytes,
        "deleted": counts.deleted,
        "changed": counts.changed,
        "problems": counts.problems,
        "copies": copies,
    }))
}

/// When an object was begun by its clock, with a question mark where that is in doubt.
fn begun_text(timeline: &Timeline, object: &Object) -> String {
    let is_doubted = timeline.begun(object.id).is_some_and(|begun| begun.doubt.is_some());
    units::time(object.started_ns) + if is_doubted { " ?" } else { "" }
}

pub(crate) fn objects(cli: &Cli, args: &args::Objects) -> Result<ExitCode, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let site = site(cli)?;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let source = args.source.as_ref().map(absolute).map(|path| path.as_os_str().as_bytes().to_vec());
    let filter = ObjectFilter { source, ..ObjectFilter::default() };
    let mut objects = site.catalog().objects(&filter).map_err(director)?;
    if args.all {
        let expired = ObjectFilter { status: Some(ObjectStatus::Expired), ..filter };
        objects.extend(site.catalog().objects(&expired).map_err(director)?);
    }
    let timeline = site.timeline()?;
    if cli.json {
        let rows: Result<Vec<_>, _> = objects.iter().map(|object| object_json(&site, &timeline, object)).collect();
        return print_json(&Value::Array(rows?));
    }
    let mut table =
        Table::new(&["object", "begun", "level", "status", ">files", ">size", ">problems", "copies on", "source"]);
    for object in &objects {
        let counts = object.counts.unwrap_or_default();
        let copies = site.catalog().copies(object.id).map_err(director)?;
        let whole = site.whole_copies(object)?;
        let on = copies.iter().map(|copy| {
            let volumes: Vec<_> = copy.volumes.iter().map(Volser::as_str).collect();
            volumes.join("+") + if whole.contains(&copy.copy) { "" } else { "(part)" }
        });
        let promised = site.catalog().wanted_copies(object.id).map_err(director)?.into_iter();
        let promised = promised.filter(|wanted| copies.iter().all(|copy| copy.copy != wanted.copy));
        let on = on.chain(promised.map(|wanted| format!("{}(none)", wanted.pool)));
        table.row(vec![
            short(object),
            begun_text(&timeline, object),
            level(object).to_owned(),
            status_name(object).to_owned(),
            units::count(counts.files),
            units::bytes(counts.bytes),
            units::count(counts.problems),
            on.collect::<Vec<_>>().join(" "),
            path_text(&object.source),
        ]);
    }
    print(&table)
}

pub(crate) fn show(cli: &Cli, args: &args::Show) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let timeline = site.timeline()?;
    if let Some((volser, volume)) = find_volume(&site, &args.what)? {
        let objects = site.catalog().objects_on(&volser).map_err(director)?;
        let rows: Result<Vec<_>, _> = objects.iter().map(|object| object_json(&site, &timeline, object)).collect();
        return print_json(&json!({
            "volume": volser.as_str(),
            "pool": volume.pool,
            "state": state_name(volume.state),
            "id": volume.id.map(|id| id.to_string()),
            "key": volume.key.map(|key| key.tag.to_string()),
            "end_of_data_lbn": volume.end_of_data_lbn,
            "last_checkpoint_lbn": volume.checkpoint_lbn,
            "objects": rows?,
        }));
    }
    let object = object_or_volume(&site, &args.what)?;
    let mut value = object_json(&site, &timeline, &object)?;
    let catalog = site.catalog();
    let chain = catalog.chain(object.id).map_err(director)?;
    value["chain"] = chain.iter().map(ToString::to_string).collect();
    let extents = catalog.extents(object.id, None).map_err(director)?;
    value["extents"] = extents
        .iter()
        .map(|extent| {
            let record = &extent.record;
            json!({
                "copy": extent.copy, "volume": extent.volser.as_str(), "connection": record.connection,
                "first_lbn": record.first_lbn, "blocks": record.blocks, "offset": record.offset,
                "plain_len": record.plain_len, "stored_len": record.stored_len,
            })
        })
        .collect();
    drop(catalog);
    print_json(&value)
}

pub(crate) fn status(cli: &Cli) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let Protection { protected, unprotected, lacking, open } = site.protection()?;
    let volumes = site.catalog().volumes().map_err(director)?;
    let suspect: Vec<_> = volumes.iter().filter(|volume| volume.state == VolumeState::Suspect).collect();
    let sum = |count: fn(Counts) -> u64| -> u64 {
        protected.iter().map(|object| count(object.counts.unwrap_or_default())).fold(0, u64::saturating_add)
    };
    let (files, bytes) = (sum(|counts| counts.files), sum(|counts| counts.bytes));
    let written: u64 = volumes.iter().map(|volume| volume.written).sum();
    let latest = protected.first();
    let (timeline, expiry) = (site.timeline()?, site.plan_expiry(&ExpiryRequest::default())?);
    let reading = timeline.reading();
    if cli.json {
        return print_json(&json!({
            "state": site.dir(),
            "objects_complete": protected.len() + unprotected.len(),
            "objects_protected": protected.len(),
            "objects_unprotected": unprotected.iter().map(|object| object.id.to_string()).collect::<Vec<_>>(),
            "objects_lacking_a_copy": lacking.len(),
            "objects_interrupted": open.len(),
            "files": files,
            "bytes": bytes,
            "volumes": volumes.len(),
            "written_bytes": written,
            "suspect": suspect.iter().map(|volume| volume.volser.as_str()).collect::<Vec<_>>(),
            "latest_ended_ns": latest.map(|object| object.ended_ns),
            "clock": reading_json(&reading),
            "objects_kept_as_bases": expiry.kept_as_bases().count(),
        }));
    }
    let mut out = stdout().lock();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").map_err(Failure::output);
    line("state", site.dir().display().to_string())?;
    line("protected", format!("{} objects, {} files, {}", protected.len(), units::count(files), units::bytes(bytes)))?;
    if let Some(latest) = latest {
        // Where a clock is in doubt, a difference of times says nothing.
        let is_doubted = timeline.begun(latest.id).is_none_or(|begun| begun.doubt.is_some());
        let age_ns = reading.now_ns.saturating_sub(latest.ended_ns).max(0);
        let age = match is_doubted || reading.doubt.is_some() {
            true => "how long ago is in doubt: `capstan clock` says why".to_owned(),
            false => format!("{} ago", units::duration(age_ns as f64 / 1e9)),
        };
        line("latest", format!("{}, {age}", units::time(latest.ended_ns)))?;
    }
    line("volumes", format!("{}, {} written", volumes.len(), units::bytes(written)))?;
    if let Some(text) = bases_line(&expiry) {
        line("kept", text)?;
    }
    if let Some(text) = doubt_text(&reading) {
        line("attention", text)?;
    }
    for object in unprotected.iter().take(OBJECTS_SHOWN) {
        let (id, source) = (short(object), path_text(&object.source));
        line(
            "attention",
            format!("object {id} of {source} cannot be restored in full: `capstan verify {id}` says why"),
        )?;
    }
    if unprotected.len() > OBJECTS_SHOWN {
        line("attention", format!("and {} more objects", unprotected.len() - OBJECTS_SHOWN))?;
    }
    if !lacking.is_empty() {
        line("attention", format!("{} objects lack a copy: run `capstan repair`", lacking.len()))?;
    }
    for object in &open {
        let source = path_text(&object.source);
        let where_to = match object.kind {
            ObjectKind::Stream => "",
            _ => ", it goes on from its last checkpoint",
        };
        line("attention", format!("backup of {source} was interrupted: run it again{where_to}"))?;
    }
    for volume in &suspect {
        let volser = &volume.volser;
        line(
            "attention",
            format!(
                "volume {volser} is suspect: `capstan verify {volser}` says what can be read, and clears it if that is all"
            ),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
