//! Objects: their list, everything about one, and how well they are protected.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_director::{Counts, Object, ObjectFilter, ObjectKind, ObjectStatus, Protection, Site, Volser, VolumeState};
use serde::Serialize;

use super::media::state_name;
use super::{director, find_volume, object_or_volume, print, print_json, print_rows, short, site};
use crate::args::{self, Cli};
use crate::failure::Failure;
use crate::json::{CopyRow, ExtentRow, ObjectRow, ShownObject, ShownVolume, StatusRow};
use crate::secrets::now_ns;
use crate::table::{Table, path_text};
use crate::units;

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

fn object_json(site: &Site, object: &Object) -> Result<ObjectRow, Failure> {
    let copies = site.catalog().copies(object.id).map_err(director)?;
    let whole = site.whole_copies(object)?;
    let wanted = site.catalog().wanted_copies(object.id).map_err(director)?;
    let promised = wanted.iter().filter(|wanted| copies.iter().all(|copy| copy.copy != wanted.copy));
    let promised = promised.map(|wanted| CopyRow {
        copy: wanted.copy,
        volumes: Vec::new(),
        whole: false,
        pool: Some(wanted.pool.clone()),
    });
    let there = copies.iter().map(|copy| CopyRow {
        copy: copy.copy,
        volumes: copy.volumes.iter().map(ToString::to_string).collect(),
        whole: whole.contains(&copy.copy),
        pool: wanted.iter().find(|wanted| wanted.copy == copy.copy).map(|wanted| wanted.pool.clone()),
    });
    let counts = object.counts.unwrap_or_default();
    Ok(ObjectRow {
        object: object.id.to_string(),
        source: object.source.as_slice().into(),
        client: object.client.clone(),
        policy: object.policy.clone(),
        level: level(object),
        status: status_name(object),
        base: object.base.map(|base| base.to_string()),
        started_ns: object.started_ns,
        ended_ns: object.ended_ns,
        expires_ns: object.expires_ns,
        entries: counts.entries,
        files: counts.files,
        bytes: counts.bytes,
        deleted: counts.deleted,
        changed: counts.changed,
        problems: counts.problems,
        copies: there.chain(promised).collect(),
    })
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
    if cli.json {
        return print_rows(objects.iter().map(|object| object_json(&site, object)));
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
            units::time(object.started_ns),
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
    if let Some((volser, volume)) = find_volume(&site, &args.what)? {
        let objects = site.catalog().objects_on(&volser).map_err(director)?;
        let rows: Result<Vec<_>, _> = objects.iter().map(|object| object_json(&site, object)).collect();
        let shown = ShownVolume {
            volume: volser.to_string(),
            pool: volume.pool,
            state: state_name(volume.state),
            id: volume.id.map(|id| id.to_string()),
            key: volume.key.map(|key| key.tag.to_string()),
            end_of_data_lbn: volume.end_of_data_lbn,
            last_checkpoint_lbn: volume.checkpoint_lbn,
            objects: rows?,
        };
        return print_shown(cli, &shown);
    }
    let object = object_or_volume(&site, &args.what)?;
    let row = object_json(&site, &object)?;
    let chain = site.catalog().chain(object.id).map_err(director)?;
    let extents = site.catalog().extents(object.id, None).map_err(director)?;
    let extents = extents.iter().map(|extent| ExtentRow {
        copy: extent.copy,
        volume: extent.volser.to_string(),
        connection: extent.record.connection,
        first_lbn: extent.record.first_lbn,
        blocks: extent.record.blocks,
        offset: extent.record.offset,
        plain_len: extent.record.plain_len,
        stored_len: extent.record.stored_len,
    });
    let chain = chain.iter().map(ToString::to_string).collect();
    print_shown(cli, &ShownObject { object: row, chain, extents: extents.collect() })
}

/// For people over many lines.
fn print_shown(cli: &Cli, shown: &impl Serialize) -> Result<ExitCode, Failure> {
    if cli.json {
        return print_json(shown);
    }
    let text = serde_json::to_string_pretty(shown).map_err(|error| Failure::output(error.into()))?;
    writeln!(stdout(), "{text}").map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
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
    let latest = protected.first().map(|object| object.ended_ns);
    if cli.json {
        return print_json(&StatusRow {
            state: site.dir().display().to_string(),
            objects_complete: protected.len() + unprotected.len(),
            objects_protected: protected.len(),
            objects_unprotected: unprotected.iter().map(|object| object.id.to_string()).collect(),
            objects_lacking_a_copy: lacking.len(),
            objects_interrupted: open.len(),
            files,
            bytes,
            volumes: volumes.len(),
            written_bytes: written,
            suspect: suspect.iter().map(|volume| volume.volser.to_string()).collect(),
            latest_ended_ns: latest,
        });
    }
    let mut out = stdout().lock();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").map_err(Failure::output);
    line("state", site.dir().display().to_string())?;
    line("protected", {
        let objects = units::counted(protected.len() as u64, "object");
        format!("{objects}, {}, {}", units::counted(files, "file"), units::bytes(bytes))
    })?;
    if let Some(latest) = latest {
        let ago = units::duration((now_ns() - latest) as f64 / 1e9);
        line("latest", format!("{}, {ago} ago", units::time(latest)))?;
    }
    line("volumes", format!("{}, {} written", volumes.len(), units::bytes(written)))?;
    for object in unprotected.iter().take(OBJECTS_SHOWN) {
        let (id, source) = (short(object), path_text(&object.source));
        line(
            "attention",
            format!("object {id} of {source} cannot be restored in full: `capstan verify {id}` says why"),
        )?;
    }
    if unprotected.len() > OBJECTS_SHOWN {
        line("attention", {
            let more = (unprotected.len() - OBJECTS_SHOWN) as u64;
            format!("{} more cannot, either", units::counted(more, "object"))
        })?;
    }
    if !lacking.is_empty() {
        let lack = if lacking.len() == 1 { "lacks" } else { "lack" };
        let objects = units::counted(lacking.len() as u64, "object");
        line("attention", format!("{objects} {lack} a copy: run `capstan repair`"))?;
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
