//! Objects: their list, and how well they are protected.

use std::collections::HashMap;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_director::{
    Counts, ExpiryRequest, LostParts, Object, ObjectFilter, ObjectKind, ObjectStatus, Protection, Site, Timeline,
    Volser, Volume, VolumeState,
};

use super::clock::{doubt_name, doubt_text};
use super::{director, print, print_json, print_rows, short, site};
use crate::args::{self, Cli};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::json::{CopyRow, DamageRow, ObjectRow, StatusRow};
use crate::secrets::now_ns;
use crate::table::{Table, path_text};
use crate::units;
use crate::work::bases_line;

/// How `status` begins a line that a person should read.
const ATTENTION: &str = "attention";

/// The policy of a backup for which none was named.
const ORDINARY_POLICY: &str = "manual";

/// Volumes of a copy that are all named in a list.
const VOLUMES_SHOWN: usize = 4;

/// Objects that `status` lists one by one.
const OBJECTS_SHOWN: usize = 10;

pub(super) fn level(object: &Object) -> &'static str {
    if object.base.is_some() { "incr" } else { "full" }
}

pub(super) fn status_name(object: &Object) -> &'static str {
    match object.status {
        ObjectStatus::Open => "interrupted",
        ObjectStatus::Complete => "complete",
        ObjectStatus::Expired => "expired",
    }
}

pub(super) fn object_json(
    site: &Site,
    timeline: &Timeline,
    lost: &LostParts,
    object: &Object,
) -> Result<ObjectRow, Failure> {
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
        status: status_name(object),
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

pub(crate) fn objects(cli: &Cli, args: &args::Objects) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let objects = filtered(&site, args)?;
    let (timeline, lost) = (site.timeline()?, site.lost_parts()?);
    if cli.json {
        return print_rows(objects.iter().map(|object| object_json(&site, &timeline, &lost, object)));
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
        "host",
        "policy",
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
        let on = copies
            .iter()
            .map(|copy| volumes_text(&copy.volumes) + if whole.contains(&copy.copy) { "" } else { "(part)" });
        let promised = site.catalog().wanted_copies(object.id).map_err(director)?.into_iter();
        let promised = promised.filter(|wanted| copies.iter().all(|copy| copy.copy != wanted.copy));
        let on = on.chain(promised.map(|wanted| format!("{}(none)", wanted.pool)));
        table.row(vec![
            short(object),
            begun_text(&timeline, object),
            level(object).to_owned(),
            match lost.bytes(object.id) {
                0 => status_name(object).to_owned(),
                _ => format!("{}, part LOST", status_name(object)),
            },
            units::count(counts.files),
            units::bytes(counts.bytes),
            units::count(counts.problems),
            verified_text(&site, object)?,
            on.collect::<Vec<_>>().join(" "),
            shown(shows_host, &object.client),
            shown(shows_policy, &object.policy),
            path_text(&object.source),
        ]);
    }
    let hidden = [("host", shows_host), ("policy", shows_policy)];
    let hidden = hidden.iter().filter(|(_, shows)| !shows).map(|(head, _)| *head).collect::<Vec<_>>();
    print(&table.without(&hidden))
}

pub(crate) fn status(cli: &Cli) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let Protection { protected, unprotected, lacking, open } = site.protection()?;
    let volumes = site.catalog().volumes().map_err(director)?;
    let damage = site.catalog().damage().map_err(director)?;
    let lost = site.lost_parts()?;
    let lost_in_part: Vec<_> =
        protected.iter().chain(&unprotected).filter(|object| lost.bytes(object.id) > 0).collect();
    let damaged = |volume: &&Volume| damage.iter().any(|damage| damage.volser == volume.volser);
    let is_suspect = |volume: &&Volume| volume.state == VolumeState::Suspect;
    let suspect: Vec<_> = volumes.iter().filter(|volume| is_suspect(volume) || damaged(volume)).collect();
    let sum = |count: fn(Counts) -> u64| -> u64 {
        protected.iter().map(|object| count(object.counts.unwrap_or_default())).fold(0, u64::saturating_add)
    };
    let (files, bytes) = (sum(|counts| counts.files), sum(|counts| counts.bytes));
    let written: u64 = volumes.iter().map(|volume| volume.written).sum();
    let latest = protected.first();
    let (timeline, expiry) = (site.timeline()?, site.plan_expiry(&ExpiryRequest::default())?);
    let reading = timeline.reading();
    let late = verified_too_long_ago(&site, &volumes, reading.now_ns)?;
    let library_problem = site.library_problem();
    // A person should look: one of the lines below says at what.
    let fine = unprotected.is_empty()
        && lacking.is_empty()
        && open.is_empty()
        && suspect.is_empty()
        && late.is_empty()
        && reading.doubt.is_none()
        && library_problem.is_none();
    if cli.json {
        print_json(&StatusRow {
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
            latest_ended_ns: latest.map(|object| object.ended_ns),
            clock: (&reading).into(),
            objects_kept_as_bases: expiry.kept_as_bases().count(),
            objects_lost_in_part: lost_in_part.iter().map(|object| object.id.to_string()).collect(),
            damage: damage.iter().map(DamageRow::from).collect(),
            library_problem,
            attention: !fine,
        })?;
        return Ok(ended(fine));
    }
    let mut out = stdout().lock();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").map_err(Failure::output);
    line("state", site.dir().display().to_string())?;
    line("protected", {
        let objects = units::counted(protected.len() as u64, "object");
        format!("{objects}, {}, {}", units::counted(files, "file"), units::bytes(bytes))
    })?;
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
        line(ATTENTION, text)?;
    }
    if let Some(problem) = library_problem {
        line(ATTENTION, problem)?;
    }
    for object in unprotected.iter().take(OBJECTS_SHOWN) {
        let (id, source) = (short(object), path_text(&object.source));
        let later = protected.iter().any(|other| other.source == object.source && other.client == object.client);
        let then = match later {
            true => format!("another backup of it is whole; `capstan expire {id}` lets this one go"),
            false => "back it up again with --full".to_owned(),
        };
        let why = match lost.bytes(object.id) {
            0 => format!("`capstan verify {id}` says why"),
            bytes => format!(
                "{} of it can be read in no copy any more, and `capstan ls -R {id}` flags the files: {then}",
                units::bytes(bytes)
            ),
        };
        line(ATTENTION, format!("object {id} of {source} cannot be restored in full: {why}"))?;
    }
    if unprotected.len() > OBJECTS_SHOWN {
        line(ATTENTION, {
            let more = (unprotected.len() - OBJECTS_SHOWN) as u64;
            format!("{} more cannot, either", units::counted(more, "object"))
        })?;
    }
    // What no copy has any more was said above; a repair does not help it.
    let lacking = lacking.into_iter().filter(|object| lost.bytes(*object) == 0).collect::<Vec<_>>();
    if !lacking.is_empty() {
        let lack = if lacking.len() == 1 { "lacks" } else { "lack" };
        let objects = units::counted(lacking.len() as u64, "object");
        line(ATTENTION, format!("{objects} {lack} a copy: run `capstan repair`"))?;
    }
    for object in &open {
        let source = path_text(&object.source);
        let where_to = match object.kind {
            ObjectKind::Stream => "",
            _ => ", it goes on from its last checkpoint",
        };
        line(ATTENTION, format!("backup of {source} was interrupted: run it again{where_to}"))?;
    }
    for volume in &suspect {
        let volser = &volume.volser;
        let own = || damage.iter().filter(|damage| damage.volser == *volser);
        let blocks: u64 = own().map(|damage| damage.blocks.blocks).sum();
        let why = match own().next() {
            Some(first) if blocks > 0 => format!(
                ": {} cannot be read since {} ({}). `capstan repair` copies what they held from another copy",
                units::counted(blocks, "block"),
                units::day(first.since_ns),
                first.found_by
            ),
            Some(first) => format!(" since {}: {}", units::day(first.since_ns), first.blocks.reason),
            None => String::new(),
        };
        line(
            ATTENTION,
            format!(
                "volume {volser} is suspect{why}. `capstan verify {volser}` says what can be read, and clears it if that is all"
            ),
        )?;
    }
    for (volser, verified) in late {
        let when = verified.map_or_else(|| "never".to_owned(), |at_ns| format!("last on {}", units::day(at_ns)));
        let days = site.config().attention.verify_days;
        line(
            ATTENTION,
            format!("volume {volser} was verified {when}; every {days} days is wanted: `capstan verify {volser}`"),
        )?;
    }
    Ok(ended(fine))
}

/// A monitor reads the exit code: 3 where a person should look.
fn ended(fine: bool) -> ExitCode {
    if fine { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) }
}

/// Volumes with data that were not verified for as long as the settings say, and when they were last.
fn verified_too_long_ago(site: &Site, volumes: &[Volume], now_ns: i64) -> Result<Vec<(Volser, Option<i64>)>, Failure> {
    let days = i64::from(site.config().attention.verify_days);
    let mut late = Vec::new();
    if days == 0 {
        return Ok(late);
    }
    let oldest_ns = now_ns.saturating_sub(days.saturating_mul(86_400_000_000_000));
    for volume in volumes.iter().filter(|volume| volume.pool.is_some() && volume.checkpoint_lbn > 0) {
        let verified = site.catalog().volume_verified(&volume.volser).map_err(director)?.map(|verified| verified.at_ns);
        if verified.or(volume.labelled_ns).is_some_and(|at_ns| at_ns < oldest_ns) {
            late.push((volume.volser.clone(), verified));
        }
    }
    Ok(late)
}
