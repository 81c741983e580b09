//! Objects: their list, and everything about one.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_director::{LostParts, Object, ObjectFilter, ObjectId, ObjectStatus, Site, Timeline, Volser};
use serde::Serialize;

use super::clock::doubt_name;
use super::media::state_name;
use super::{director, find_volume, object_or_volume, print, print_json, print_rows, short, site};
use crate::args::{self, Cli};
use crate::failure::Failure;
use crate::json::{CopyRow, DamageRow, ExtentRow, ObjectRow, ShownObject, ShownVolume};
use crate::table::{Table, path_text};
use crate::units;

pub(super) fn level(object: &Object) -> &'static str {
    if object.base.is_some() { "incr" } else { "full" }
}

fn status_name(object: &Object, written: &[ObjectId]) -> &'static str {
    match object.status {
        ObjectStatus::Open if written.contains(&object.id) => "running",
        ObjectStatus::Open => "interrupted",
        ObjectStatus::Complete => "complete",
        ObjectStatus::Expired => "expired",
    }
}

/// Objects that a process writes now: they are not interrupted.
fn written_now(site: &Site) -> Result<Vec<ObjectId>, Failure> {
    Ok(site.running_jobs()?.into_iter().flat_map(|row| row.objects).collect())
}

/// What is looked up once for all objects of a list.
struct Known {
    timeline: Timeline,
    lost: LostParts,
    written: Vec<ObjectId>,
}

impl Known {
    fn of(site: &Site) -> Result<Self, Failure> {
        Ok(Self { timeline: site.timeline()?, lost: site.lost_parts()?, written: written_now(site)? })
    }
}

fn object_json(site: &Site, known: &Known, object: &Object) -> Result<ObjectRow, Failure> {
    let Known { timeline, lost, written } = known;
    let begun = timeline.begun(object.id).filter(|begun| begun.doubt.is_some());
    let copies = site.catalog().copies(object.id).map_err(director)?;
    let whole = site.whole_copies(object)?;
    let wanted = site.catalog().wanted_copies(object.id).map_err(director)?;
    let promised = wanted.iter().filter(|wanted| copies.iter().all(|copy| copy.copy != wanted.copy));
    let promised = promised.map(|wanted| CopyRow {
        copy: wanted.copy,
        volumes: Vec::new(),
        whole: false,
        verified_ns: None,
        verified_bad_blocks: None,
        pool: Some(wanted.pool.clone()),
    });
    let mut verified = Vec::new();
    for copy in &copies {
        verified.push(site.catalog().copy_verified(object.id, copy.copy).map_err(director)?);
    }
    let there = copies.iter().zip(verified).map(|(copy, verified)| CopyRow {
        copy: copy.copy,
        verified_ns: verified.as_ref().map(|verified| verified.at_ns),
        verified_bad_blocks: verified.map(|verified| verified.bad_blocks),
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
        status: status_name(object, written),
        base: object.base.map(|base| base.to_string()),
        started_ns: object.started_ns,
        ended_ns: object.ended_ns,
        expires_ns: object.expires_ns,
        clock_doubt: begun.and_then(|begun| doubt_name(begun.doubt)),
        begun_from_ns: begun.map(|begun| begun.from_ns),
        begun_by_ns: begun.map(|begun| begun.by_ns),
        lost_bytes: lost.bytes(object.id),
        entries: counts.entries,
        files: counts.files,
        bytes: counts.bytes,
        deleted: counts.deleted,
        changed: counts.changed,
        problems: counts.problems,
        copies: there.chain(promised).collect(),
    })
}

/// When the copy that was verified last was, and what that found.
fn verified_text(site: &Site, object: &Object) -> Result<String, Failure> {
    let catalog = site.catalog();
    let mut last = None;
    for copy in catalog.copies(object.id).map_err(director)? {
        last = last
            .max(catalog.copy_verified(object.id, copy.copy).map_err(director)?.map(|one| (one.at_ns, one.bad_blocks)));
    }
    Ok(match last {
        None => "never".to_owned(),
        Some((at_ns, 0)) => units::day(at_ns),
        Some((at_ns, _)) => format!("{} DAMAGED", units::day(at_ns)),
    })
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
    let known = Known::of(&site)?;
    if cli.json {
        return print_rows(objects.iter().map(|object| object_json(&site, &known, object)));
    }
    let mut table = Table::new(&[
        "object",
        "begun",
        "level",
        "status",
        ">files",
        ">size",
        ">problems",
        "verified",
        "copies on",
        "source",
    ]);
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
            begun_text(&known.timeline, object),
            level(object).to_owned(),
            match known.lost.bytes(object.id) {
                0 => status_name(object, &known.written).to_owned(),
                _ => format!("{}, part LOST", status_name(object, &known.written)),
            },
            units::count(counts.files),
            units::bytes(counts.bytes),
            units::count(counts.problems),
            verified_text(&site, object)?,
            on.collect::<Vec<_>>().join(" "),
            path_text(&object.source),
        ]);
    }
    print(&table)
}

pub(crate) fn show(cli: &Cli, args: &args::Show) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let known = Known::of(&site)?;
    if let Some((volser, volume)) = find_volume(&site, &args.what)? {
        let objects = site.catalog().objects_on(&volser).map_err(director)?;
        let damage = site.catalog().damage().map_err(director)?;
        let verified = site.catalog().volume_verified(&volser).map_err(director)?;
        let rows: Result<Vec<_>, _> = objects.iter().map(|object| object_json(&site, &known, object)).collect();
        let shown = ShownVolume {
            volume: volser.to_string(),
            pool: volume.pool,
            state: state_name(volume.state),
            id: volume.id.map(|id| id.to_string()),
            key: volume.key.map(|key| key.tag.to_string()),
            end_of_data_lbn: volume.end_of_data_lbn,
            last_checkpoint_lbn: volume.checkpoint_lbn,
            verified_ns: verified.map(|verified| verified.at_ns),
            damage: damage.iter().filter(|damage| damage.volser == volser).map(DamageRow::from).collect(),
            objects: rows?,
        };
        return print_shown(cli, &shown);
    }
    let object = object_or_volume(&site, &args.what)?;
    let row = object_json(&site, &known, &object)?;
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
