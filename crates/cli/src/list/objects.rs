//! Objects: their list.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_catalog::{Object, ObjectFilter, ObjectStatus, Timeline};
use capstan_director::{LostParts, Site};
use capstan_format::{ObjectId, Volser};
use capstan_server::cell::users::words::ObjectsQuery;

use crate::args;
use crate::door::{Door, as_user_of};
use crate::failure::Failure;
use crate::failure::director;
use crate::globals::Globals;
use crate::json::{CopyRow, ObjectRow};
use crate::output::{print, print_rows};
use crate::secrets::now_ns;
use crate::secrets::site;
use crate::table::{Table, path_text};
use crate::units;
use crate::wording::{doubt_name, short};

/// The policy of a backup for which none was named.
const ORDINARY_POLICY: &str = "manual";

/// Volumes of a copy that are all named in a list.
const VOLUMES_SHOWN: usize = 4;

pub(super) fn level(object: &Object) -> &'static str {
    if object.base.is_some() { "incr" } else { "full" }
}

pub(super) fn status_name(object: &Object, written: &[ObjectId]) -> &'static str {
    match object.status {
        ObjectStatus::Open if written.contains(&object.id) => "running",
        ObjectStatus::Open => "interrupted",
        ObjectStatus::Complete => "complete",
        ObjectStatus::Expired => "expired",
    }
}

/// The objects that a user may see of a cell.
fn of_cell(cli: &Globals, server: &Door, args: &args::Objects) -> Result<ExitCode, Failure> {
    let since_ns = args.since.as_deref().map(|text| units::parse_since(text, now_ns())).transpose();
    let since_ns = since_ns.map_err(Failure::Usage)?;
    let query = ObjectsQuery {
        client: args.host.clone(),
        policy: args.policy.clone(),
        source: args.source.as_ref().and_then(|source| source.to_str()).map(str::to_owned),
        since_ns,
    };
    let mut objects = server.objects(&query)?.objects;
    // A server of an older version gives them all.
    objects.retain(|row| since_ns.is_none_or(|since_ns| row.own.started_ns >= since_ns));
    objects.retain(|row| args.policy.as_ref().is_none_or(|policy| *policy == row.own.policy));
    objects.retain(|row| has_all(&row.own.tags, &args.tags));
    objects.retain(|row| args.source.as_ref().is_none_or(|source| source.as_os_str() == row.own.source.as_str()));
    if let Some(last) = args.last {
        let mut counts: HashMap<(String, String), u32> = HashMap::new();
        objects.retain(|row| {
            let count = counts.entry((row.client.clone(), row.own.source.clone())).or_default();
            *count += 1;
            *count <= last
        });
    }
    if cli.json {
        return print_rows(objects.into_iter().map(Ok));
    }
    note_none(cli, args, objects.is_empty());
    let mut table =
        Table::new(&["object", "begun", "level", "status", ">files", ">size", "client", "policy", "tags", "source"]);
    for row in &objects {
        table.row(vec![
            row.own.object[row.own.object.len().saturating_sub(8)..].to_owned(),
            units::time(row.own.started_ns),
            if row.own.is_full { "full" } else { "incr" }.to_owned(),
            if row.own.is_complete { "complete" } else { "not complete" }.to_owned(),
            row.own.files.map_or_else(|| "-".to_owned(), units::count),
            row.own.bytes.map_or_else(|| "-".to_owned(), units::bytes),
            row.client.clone(),
            row.own.policy.clone(),
            row.own.tags.join(" "),
            path_text(row.own.source.as_bytes()),
        ]);
    }
    let shows_tags = objects.iter().any(|row| !row.own.tags.is_empty());
    print(&if shows_tags { table } else { table.without(&["tags"]) })
}

/// Says what nothing was found for: a name may be mistyped.
fn note_none(cli: &Globals, args: &args::Objects, is_none: bool) {
    let host = args.host.as_ref().map(|host| format!("host {host}"));
    let policy = args.policy.as_ref().map(|policy| format!("policy {policy}"));
    let source = args.source.as_ref().map(|source| format!("source {}", source.display()));
    let tags = args.tags.iter().map(|tag| format!("tag {tag}"));
    let named: Vec<_> = [host, policy, source].into_iter().flatten().chain(tags).collect();
    if is_none && !named.is_empty() && !cli.quiet {
        eprintln!("capstan: there is no such object of {}: `capstan objects` lists all", named.join(", "));
    }
}

/// Objects that a process writes now: they are not interrupted.
fn written_now(site: &Site) -> Result<Vec<ObjectId>, Failure> {
    Ok(site.running()?.into_iter().flat_map(|row| row.objects).collect())
}

/// What is looked up once for all objects of a list.
pub(super) struct Known {
    pub(super) timeline: Timeline,
    pub(super) lost: LostParts,
    pub(super) written: Vec<ObjectId>,
    /// Volumes whose keys are missing or destroyed.
    unreadable: BTreeSet<Volser>,
}

impl Known {
    pub(super) fn of(site: &Site) -> Result<Self, Failure> {
        Ok(Self {
            timeline: site.timeline()?,
            lost: site.lost_parts()?,
            written: written_now(site)?,
            unreadable: site.unreadable_volumes()?,
        })
    }

    /// Whether a part of a copy is on a volume whose key is missing or destroyed.
    fn lacks_key(&self, volumes: &[Volser]) -> bool {
        volumes.iter().any(|volser| self.unreadable.contains(volser))
    }
}

pub(super) fn object_json(site: &Site, known: &Known, object: &Object) -> Result<ObjectRow, Failure> {
    let Known { timeline, lost, written, .. } = known;
    let begun = timeline.begun(object.id).filter(|begun| begun.doubt.is_some());
    let copies = site.catalog().copies(object.id).map_err(director)?;
    let whole = site.whole_copies(object)?;
    let wanted = site.catalog().wanted_copies(object.id).map_err(director)?;
    let promised = wanted.iter().filter(|wanted| copies.iter().all(|copy| copy.copy != wanted.copy));
    let promised = promised.map(|wanted| CopyRow {
        copy: wanted.copy,
        volumes: Vec::new(),
        whole: false,
        key_missing: false,
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
        key_missing: known.lacks_key(&copy.volumes),
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
        consolidates: object.consolidates.map(|other| other.to_string()),
        started_ns: object.started_ns,
        ended_ns: object.ended_ns,
        expires_ns: if object.expires_ns == i64::MAX { 0 } else { object.expires_ns },
        locked: object.is_locked,
        tags: object.tags.clone(),
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
pub(super) fn begun_text(timeline: &Timeline, object: &Object) -> String {
    let is_doubted = timeline.begun(object.id).is_some_and(|begun| begun.doubt.is_some());
    units::time(object.started_ns) + if is_doubted { " ?" } else { "" }
}

/// The objects that the command's filters leave, the latest first.
fn filtered(site: &Site, args: &args::Objects) -> Result<Vec<Object>, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = |path: &std::path::Path| path.as_os_str().as_bytes().to_vec();
    let filter = |source| ObjectFilter { source, client: args.host.clone(), policy: args.policy.clone(), status: None };
    let listed = |filter: ObjectFilter| -> Result<Vec<Object>, Failure> {
        let mut objects = site.catalog().objects(&filter).map_err(director)?;
        if args.all {
            let expired = ObjectFilter { status: Some(ObjectStatus::Expired), ..filter };
            objects.extend(site.catalog().objects(&expired).map_err(director)?);
        }
        Ok(objects)
    };
    let mut objects = match &args.source {
        None => listed(filter(None))?,
        Some(source) => {
            // From the working directory, as for a backup; or the name of a stream, which is no path.
            let absolute = std::path::absolute(source).unwrap_or_else(|_| source.clone());
            let found = listed(filter(Some(bytes(&absolute.components().collect::<PathBuf>()))))?;
            if found.is_empty() { listed(filter(Some(bytes(source))))? } else { found }
        }
    };
    objects.retain(|object| has_all(&object.tags, &args.tags));
    if let Some(since) = &args.since {
        let since_ns = units::parse_since(since, now_ns()).map_err(Failure::Usage)?;
        objects.retain(|object| object.started_ns >= since_ns);
    }
    if let Some(last) = args.last {
        let mut seen: HashMap<(String, Vec<u8>), u32> = HashMap::new();
        objects.retain(|object| {
            let count = seen.entry((object.client.clone(), object.source.clone())).or_default();
            *count += 1;
            *count <= last
        });
    }
    Ok(objects)
}

/// Whether an object has all tags that are asked for.
fn has_all(tags: &[String], asked: &[String]) -> bool {
    asked.iter().all(|tag| tags.contains(tag))
}

/// A copy's volumes; of many the first two and the last.
fn volumes_text(volumes: &[Volser]) -> String {
    let names: Vec<_> = volumes.iter().map(Volser::as_str).collect();
    match names[..] {
        [first, second, .., last] if names.len() > VOLUMES_SHOWN => {
            format!("{first}+{second}+…+{last} ({} volumes)", names.len())
        }
        _ => names.join("+"),
    }
}

/// The name of this machine, to which a list belongs unless it says otherwise.
fn this_host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

pub(crate) fn objects(cli: &Globals, args: &args::Objects) -> Result<ExitCode, Failure> {
    if let Some(server) = as_user_of(cli)? {
        return of_cell(cli, &server, args);
    }
    let site = site(cli)?;
    let objects = filtered(&site, args)?;
    let known = Known::of(&site)?;
    if cli.json {
        return print_rows(objects.iter().map(|object| object_json(&site, &known, object)));
    }
    note_none(cli, args, objects.is_empty());
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
        "host",
        "policy",
        "tags",
        "source",
    ]);
    // A column that says the same in each line, and what anybody expects, is left out.
    let this_host = this_host();
    let shows_host = objects.iter().any(|object| object.client != this_host);
    let shows_policy = objects.iter().any(|object| object.policy != ORDINARY_POLICY);
    let shown = |shows: bool, text: &str| if shows { path_text(text.as_bytes()) } else { String::new() };
    for object in &objects {
        let counts = object.counts.unwrap_or_default();
        let copies = site.catalog().copies(object.id).map_err(director)?;
        let whole = site.whole_copies(object)?;
        let on = copies.iter().map(|copy| {
            let part = if whole.contains(&copy.copy) { "" } else { "(part)" };
            let key = if known.lacks_key(&copy.volumes) { "(no key)" } else { "" };
            volumes_text(&copy.volumes) + part + key
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
            shown(shows_host, &object.client),
            shown(shows_policy, &object.policy),
            object.tags.join(" "),
            path_text(&object.source),
        ]);
    }
    let shows_tags = objects.iter().any(|object| !object.tags.is_empty());
    let hidden = [("host", shows_host), ("policy", shows_policy), ("tags", shows_tags)];
    let hidden = hidden.iter().filter(|(_, shows)| !shows).map(|(head, _)| *head).collect::<Vec<_>>();
    print(&table.without(&hidden))
}
