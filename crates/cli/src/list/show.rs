//! `show`: everything about one object or volume, as text for people and as one JSON object.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::process::ExitCode;

use capstan_catalog::{Counts, DamageRecord as DamageOnRecord, Extent, Object, Verification, Volume, VolumeState};
use capstan_director::{CopyKept, KeptUntil, Migration, OwedCopy, Site, generation_of, reserved_at_the_end};
use capstan_format::{ObjectId, Volser};

use super::objects::{Known, begun_text, level, object_json, status_name};
use crate::args;
use crate::failure::Failure;
use crate::failure::director;
use crate::globals::Globals;
use crate::json::{CopyKeptRow, CopyRow, DamageRow, ExtentRow, ObjectRow, OwedCopyRow, ShownObject, ShownVolume};
use crate::output::print_json;
use crate::place::{find_volume, object_or_volume};
use crate::secrets::site;
use crate::table::{Table, path_text};
use crate::units;
use crate::wording::{short, short_id, state_name};

/// About what a block takes at most.
const LONGEST_BLOCK: u64 = 8 << 20;

/// Lines of a name and a value.
struct Sheet {
    out: std::io::StdoutLock<'static>,
}

impl Sheet {
    fn line(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        writeln!(self.out, "{}", format!("{name:<13}{value}").trim_end()).map_err(Failure::output)
    }

    /// A table below a head, with a line between.
    fn table(&mut self, head: &str, table: &Table) -> Result<(), Failure> {
        writeln!(self.out, "\n{head}").map_err(Failure::output)?;
        table.print(&mut self.out).map_err(Failure::output)
    }
}

pub(crate) fn show(cli: &Globals, args: &args::Show) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let known = Known::of(&site)?;
    match find_volume(&site, &args.what)? {
        Some((volser, volume)) => show_volume(cli, &site, &known, &volser, volume),
        None => show_object(cli, &site, &known, &object_or_volume(&site, &args.what)?),
    }
}

fn show_object(cli: &Globals, site: &Site, known: &Known, object: &Object) -> Result<ExitCode, Failure> {
    let row = object_json(site, known, object)?;
    let chain = site.catalog().chain(object.id).map_err(director)?;
    let extents = site.catalog().extents(object.id, None).map_err(director)?;
    let left_out = site.left_out(object.id)?;
    let owed = site.copies_owed_of(object)?;
    let kept = site.copies_kept(object)?;
    if cli.json {
        let extents = extents.iter().map(extent_row).collect();
        let chain = chain.iter().map(ToString::to_string).collect();
        let left_out = left_out.map(|rules| rules.into_iter().collect());
        let copies_owed =
            owed.into_iter().map(|OwedCopy { policy, pool, from_ns }| OwedCopyRow { policy, pool, from_ns });
        let copies_owed = copies_owed.collect();
        let copies_kept = kept.into_iter().map(kept_row).collect();
        return print_json(&ShownObject { object: row, chain, left_out, copies_kept, copies_owed, extents });
    }
    let mut sheet = Sheet { out: stdout().lock() };
    object_lines(&mut sheet, known, object, &row, chain.len())?;
    counts_lines(&mut sheet, object)?;
    if let Some(rules) = left_out.filter(|rules| !rules.is_empty()) {
        let rules: Vec<_> = rules.iter().map(|rule| path_text(rule.as_bytes())).collect();
        sheet.line("left out", &rules.join("  "))?;
    }
    for owed in &owed {
        sheet.line("to copy", &owed_text(owed, site.now_ns()))?;
    }
    if chain.len() > 1 {
        sheet.table("chain: the object and its bases", &chain_table(site, known, &chain)?)?;
    }
    sheet.table("copies", &copies_table(&row, &extents, &kept))?;
    Ok(ExitCode::SUCCESS)
}

/// A copy that is to come, and from when on.
fn owed_text(owed: &OwedCopy, now_ns: i64) -> String {
    let from = if owed.from_ns > now_ns { format!(", from {} on", units::time(owed.from_ns)) } else { String::new() };
    format!("to pool {}, by the next run of policy {}{from}", owed.pool, owed.policy)
}

pub(super) fn kept_row(kept: CopyKept) -> CopyKeptRow {
    let CopyKept { copy, until, migrates, .. } = kept;
    let (until_ns, by_rule_of) = match until {
        KeptUntil::ForEver => (None, None),
        KeptUntil::At(at_ns) => (Some(at_ns), None),
        KeptUntil::Rule { policy, .. } => (None, Some(policy)),
    };
    let (migrates_from_ns, migrates_when_full) =
        (migrates.as_ref().map(|it| it.from_ns), migrates.as_ref().map(|it| it.when_full));
    let migrated_by = migrates.map(|it| it.policy);
    CopyKeptRow { copy, until_ns, by_rule_of, migrated_by, migrates_from_ns, migrates_when_full }
}

/// How long a copy is kept: `until 2026-12-24`, `for ever`, `by the rule of home, or until vault has it`.
pub(super) fn kept_text(kept: &CopyKept) -> String {
    let until = match &kept.until {
        KeptUntil::ForEver => "for ever".to_owned(),
        KeptUntil::At(at_ns) => format!("until {}", units::day(*at_ns)),
        KeptUntil::Rule { policy, .. } => format!("by the rule of {policy}"),
    };
    match &kept.migrates {
        None => until,
        Some(Migration { policy, from_ns, when_full }) => {
            let full = if *when_full { " and its disk is full" } else { "" };
            format!("{until}, or from {} on once {policy} has it{full}", units::day(*from_ns))
        }
    }
}

fn extent_row(extent: &Extent) -> ExtentRow {
    ExtentRow {
        copy: extent.copy,
        volume: extent.volser.to_string(),
        connection: extent.record.connection,
        first_lbn: extent.record.first_lbn,
        blocks: extent.record.blocks,
        offset: extent.record.offset,
        plain_len: extent.record.plain_len,
        stored_len: extent.record.stored_len,
    }
}

/// What an object is, and of when.
fn object_lines(
    sheet: &mut Sheet,
    known: &Known,
    object: &Object,
    row: &ObjectRow,
    chain: usize,
) -> Result<(), Failure> {
    sheet.line("object", &row.object)?;
    sheet.line("source", &path_text(&object.source))?;
    sheet.line("host", &path_text(object.client.as_bytes()))?;
    sheet.line("policy", &path_text(object.policy.as_bytes()))?;
    if !object.tags.is_empty() {
        sheet.line("tags", &path_text(object.tags.join(" ").as_bytes()))?;
    }
    sheet.line("level", &level_text(object, chain))?;
    if let Some(other) = object.consolidates {
        sheet.line("made of", &format!("{} and what that was based on", short_id(other)))?;
    }
    sheet.line("status", &status_text(row.status, row.lost_bytes))?;
    sheet.line("begun", &begun_text(&known.timeline, object))?;
    if object.ended_ns != 0 {
        let took = object.ended_ns.saturating_sub(object.started_ns).max(0) as f64 / 1e9;
        sheet.line("ended", &format!("{}, after {}", units::time(object.ended_ns), units::duration(took)))?;
    }
    let lock = if object.is_locked { ", and locked" } else { "" };
    let kept = match object.expires_ns {
        0 => "for ever".to_owned(),
        i64::MAX => "as long as one of its copies".to_owned(),
        expires_ns => format!("{}{lock}", units::time(expires_ns)),
    };
    sheet.line("kept until", &kept)
}

/// An object and those that it is based on.
fn chain_table(site: &Site, known: &Known, chain: &[ObjectId]) -> Result<Table, Failure> {
    let mut table = Table::new(&["object", "begun", "level", ">files", ">size"]);
    for id in chain {
        let Some(link) = site.catalog().object(*id).map_err(director)? else { continue };
        let counts = link.counts.unwrap_or_default();
        table.row(vec![
            short(&link),
            begun_text(&known.timeline, &link),
            level(&link).to_owned(),
            units::count(counts.files),
            units::bytes(counts.bytes),
        ]);
    }
    Ok(table)
}

/// The copies of an object, each with its volumes in the order in which they were written.
fn copies_table(row: &ObjectRow, extents: &[Extent], kept: &[CopyKept]) -> Table {
    let mut on: BTreeMap<(u8, &str), (u64, u64, u64)> = BTreeMap::new();
    for extent in extents {
        let (count, blocks, bytes) = on.entry((extent.copy, extent.volser.as_str())).or_default();
        (*count, *blocks) = (*count + 1, *blocks + u64::from(extent.record.blocks));
        *bytes = bytes.saturating_add(extent.record.stored_len);
    }
    let columns = [">copy", "pool", "state", "kept", "verified", "volume", ">extents", ">blocks", ">on tape"];
    let mut table = Table::new(&columns);
    for copy in &row.copies {
        let pool = copy.pool.clone().unwrap_or_default();
        let kept = kept.iter().find(|kept| kept.copy == copy.copy).map(kept_text).unwrap_or_default();
        let head = [copy.copy.to_string(), pool, copy_state(copy).to_owned(), kept, verified_text(copy)];
        if copy.volumes.is_empty() {
            table.row(head.iter().cloned().chain(vec![String::new(); 4]).collect());
        }
        for (number, name) in copy.volumes.iter().enumerate() {
            let (count, blocks, bytes) = on.get(&(copy.copy, name.as_str())).copied().unwrap_or_default();
            let first = if number == 0 { head.clone() } else { Default::default() };
            let rest = [name.clone(), units::count(count), units::count(blocks), units::bytes(bytes)];
            table.row(first.into_iter().chain(rest).collect());
        }
    }
    table
}

pub(super) fn copy_state(copy: &CopyRow) -> &'static str {
    match (copy.volumes.is_empty(), copy.whole, copy.key_missing) {
        (true, ..) => "promised",
        (false, true, false) => "whole",
        (false, false, false) => "part",
        (false, true, true) => "whole, no key",
        (false, false, true) => "part, no key",
    }
}

fn verified_text(copy: &CopyRow) -> String {
    match (copy.verified_ns, copy.verified_bad_blocks) {
        (None, _) => "never".to_owned(),
        (Some(at_ns), Some(bad)) if bad > 0 => format!("{} DAMAGED", units::day(at_ns)),
        (Some(at_ns), _) => units::day(at_ns),
    }
}

fn level_text(object: &Object, chain: usize) -> String {
    match chain {
        0 | 1 => level(object).to_owned(),
        2 => format!("{}, based on an earlier object", level(object)),
        _ => format!("{}, based on {} earlier objects", level(object), chain - 1),
    }
}

fn status_text(status: &str, lost_bytes: u64) -> String {
    match lost_bytes {
        0 => status.to_owned(),
        bytes => format!("{status}, part LOST: {} can no longer be read from any copy", units::bytes(bytes)),
    }
}

fn counts_lines(sheet: &mut Sheet, object: &Object) -> Result<(), Failure> {
    let Some(Counts { entries, files, bytes, deleted, changed, problems }) = object.counts else {
        return sheet.line("holds", "not counted before it is complete");
    };
    let paths = units::counted(entries, "path");
    sheet.line("holds", &format!("{}, {}, {paths} in all", units::counted(files, "file"), units::bytes(bytes)))?;
    for (count, what) in [
        (deleted, "recorded as deleted"),
        (changed, "changed while it was read"),
        (problems, "could not be read in full, or vanished"),
    ] {
        if count > 0 {
            sheet.line("", &format!("{} {what}", units::counted(count, "path")))?;
        }
    }
    Ok(())
}

fn show_volume(
    cli: &Globals,
    site: &Site,
    known: &Known,
    volser: &Volser,
    volume: Volume,
) -> Result<ExitCode, Failure> {
    let timeline = &known.timeline;
    let objects = site.catalog().objects_on(volser).map_err(director)?;
    let damage = site.catalog().damage().map_err(director)?;
    let damage: Vec<_> = damage.into_iter().filter(|damage| damage.volser == *volser).collect();
    let verified = site.catalog().volume_verified(volser).map_err(director)?;
    if cli.json {
        let rows: Result<Vec<_>, _> = objects.iter().map(|object| object_json(site, known, object)).collect();
        return print_json(&ShownVolume {
            volume: volser.to_string(),
            pool: volume.pool,
            state: state_name(volume.state),
            id: volume.id.map(|id| id.to_string()),
            key: volume.key.map(|key| key.tag.to_string()),
            end_of_data_lbn: volume.end_of_data_lbn,
            last_checkpoint_lbn: volume.checkpoint_lbn,
            verified_ns: verified.map(|verified| verified.at_ns),
            damage: damage.iter().map(DamageRow::from).collect(),
            objects: rows?,
        });
    }
    let mut sheet = Sheet { out: stdout().lock() };
    let is_virtual = site.config().library.is_virtual();
    volume_lines(&mut sheet, volser, (&volume, is_virtual), verified.as_ref(), &damage)?;
    let mut table = Table::new(&["object", "begun", "level", "status", ">copy", ">extents", ">on tape", "source"]);
    let mut on: BTreeMap<_, (u8, u64, u64)> = BTreeMap::new();
    for extent in site.catalog().extents_on(volser).map_err(director)? {
        let (copy, count, bytes) = on.entry(extent.record.object).or_default();
        (*copy, *count) = (extent.copy, *count + 1);
        *bytes = bytes.saturating_add(extent.record.stored_len);
    }
    for object in &objects {
        let (copy, count, bytes) = on.get(&object.id).copied().unwrap_or_default();
        table.row(vec![
            short(object),
            begun_text(timeline, object),
            level(object).to_owned(),
            status_name(object, &known.written).to_owned(),
            if copy == 0 { String::new() } else { copy.to_string() },
            units::count(count),
            units::bytes(bytes),
            path_text(&object.source),
        ]);
    }
    sheet.table(&format!("{} on it", units::counted(objects.len() as u64, "object")), &table)?;
    Ok(ExitCode::SUCCESS)
}

fn volume_lines(
    sheet: &mut Sheet,
    volser: &Volser,
    (volume, is_virtual): (&Volume, bool),
    verified: Option<&Verification>,
    damage: &[DamageOnRecord],
) -> Result<(), Failure> {
    sheet.line("volume", volser.as_str())?;
    sheet.line("pool", volume.pool.as_deref().unwrap_or("scratch"))?;
    sheet.line("state", state_name(volume.state))?;
    if let Some(generation) = generation_of(volume).filter(|_| !is_virtual) {
        sheet.line("generation", &generation)?;
    }
    let left = volume.capacity.map(|capacity| capacity.saturating_sub(volume.written)).filter(|left| *left > 0);
    let reserved = volume.capacity.filter(|_| is_virtual).map(reserved_at_the_end);
    let of = volume.capacity.map(|capacity| format!(" of {}", units::bytes(capacity))).unwrap_or_default();
    sheet.line(
        "written",
        &format!(
            "{}{of}, {} to the end of data",
            units::bytes(volume.written),
            units::counted(volume.end_of_data_lbn, "block")
        ),
    )?;
    if let (true, Some(left)) = (volume.state == VolumeState::Full, left) {
        let why = match reserved {
            // The last block did not fit, either.
            Some(bytes) if left <= bytes + LONGEST_BLOCK => {
                "they are kept for the lists of files behind the data".to_owned()
            }
            Some(bytes) => format!("{} of them are kept for the lists of files behind the data", units::bytes(bytes)),
            None => "the drive warns before the end, and a write-once volume ends where a session was interrupted"
                .to_owned(),
        };
        sheet.line("", &format!("{} at the end take no data: {why}", units::bytes(left)))?;
    }
    for (name, at_ns) in
        [("labelled", volume.labelled_ns), ("last written", volume.written_ns), ("last read", volume.read_ns)]
    {
        if let Some(at_ns) = at_ns {
            sheet.line(name, &units::time(at_ns))?;
        }
    }
    let lives = match volume.recycled {
        0 => String::new(),
        earlier => format!(", relabelled {}", units::counted(u64::from(earlier), "time")),
    };
    let (mounts, errors) = (units::counted(volume.mounts, "mount"), units::counted(volume.errors, "error"));
    sheet.line("used", &format!("{mounts}, {errors}{lives}"))?;
    if let Some(key) = &volume.key {
        let gone =
            volume.key_destroyed_ns.map(|at_ns| format!(", DESTROYED {}", units::time(at_ns))).unwrap_or_default();
        sheet.line("key", &format!("{}, {}{gone}", key.tag, key.algorithm.name()))?;
    } else if volume.pool.is_some() {
        sheet.line("key", "none: it is not encrypted")?;
    }
    if let Some(id) = volume.id {
        sheet.line("id", &id.to_string())?;
    }
    sheet.line("verified", &verified.map_or_else(|| "never".to_owned(), |verified| units::time(verified.at_ns)))?;
    for DamageOnRecord { blocks, since_ns, found_by, .. } in damage {
        let which = match blocks.blocks {
            0 => "in doubt".to_owned(),
            1 => format!("block {}", blocks.first_lbn),
            count => format!("blocks {} to {}", blocks.first_lbn, blocks.first_lbn + count - 1),
        };
        let reason = crate::json::words(&blocks.reason);
        sheet.line("damage", &format!("{which} since {} ({found_by}): {reason}", units::day(*since_ns)))?;
    }
    Ok(())
}
