//! Commands that list: from the catalog, without keys.

use std::io::{Write, stdout};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use capstan_director::{
    Algorithm, Counts, DirectorError, EntryFlags, EntryKind, Events, FileEntry, Object, ObjectFilter, ObjectStatus,
    Pool, Protection, Site, StateEntry, Volser, Volume, VolumeState, index_path,
};
use serde_json::{Value, json};

use crate::args::{self, Cipher, Cli, PoolAction};
use crate::failure::Failure;
use crate::secrets::{Need, now_ns, open};
use crate::table::{Table, path_text};
use crate::units;

/// Objects that `status` lists one by one.
const OBJECTS_SHOWN: usize = 10;

fn silent() -> Events {
    Arc::new(|_| {})
}

fn site(cli: &Cli) -> Result<Site, Failure> {
    open(cli, Need::Nothing, silent())
}

fn print_json(value: &Value) -> Result<ExitCode, Failure> {
    writeln!(stdout(), "{value:#}").map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn print(table: &Table) -> Result<ExitCode, Failure> {
    table.print(&mut stdout().lock()).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn short(object: &Object) -> String {
    let id = object.id.to_string();
    id[id.len() - 8..].to_owned()
}

fn level(object: &Object) -> &'static str {
    if object.base.is_some() { "incr" } else { "full" }
}

fn status_name(object: &Object) -> &'static str {
    match object.status {
        ObjectStatus::Open => "interrupted",
        ObjectStatus::Complete => "complete",
        ObjectStatus::Expired => "expired",
    }
}

fn object_json(site: &Site, object: &Object) -> Result<Value, Failure> {
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
        "entries": counts.entries,
        "files": counts.files,
        "bytes": counts.bytes,
        "deleted": counts.deleted,
        "changed": counts.changed,
        "problems": counts.problems,
        "copies": copies,
    }))
}

fn director(error: impl Into<DirectorError>) -> Failure {
    Failure::Director(error.into())
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
        let rows: Result<Vec<_>, _> = objects.iter().map(|object| object_json(&site, object)).collect();
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

/// The object that a text names; a source may be named from the working directory, as it was for the backup.
pub(crate) fn find_object(site: &Site, text: &str, at_ns: Option<i64>) -> Result<Object, DirectorError> {
    match site.find_object(text, at_ns) {
        Err(unknown @ DirectorError::UnknownObject { .. }) => {
            let absolute = std::path::absolute(text).ok();
            let absolute =
                absolute.and_then(|path| path.components().collect::<PathBuf>().into_os_string().into_string().ok());
            absolute.and_then(|path| site.find_object(&path, at_ns).ok()).ok_or(unknown)
        }
        other => other,
    }
}

/// `OBJECT[:PATH]`, cut at the first colon that leaves an object in front of it.
pub(crate) fn split_place(site: &Site, place: &str, at_ns: Option<i64>) -> Result<(Object, Option<Vec<u8>>), Failure> {
    // A source may have colons in its name, so the longest object that exists wins.
    if let Ok(object) = find_object(site, place, at_ns) {
        return Ok((object, None));
    }
    for (at, _) in place.rmatch_indices(':') {
        if let Ok(object) = find_object(site, &place[..at], at_ns) {
            let path = index_path(&place.as_bytes()[at + 1..]);
            return Ok((object, (!path.is_empty()).then_some(path)));
        }
    }
    let wanted = place.split(':').next().unwrap_or(place);
    Ok((site.find_object(wanted, at_ns)?, None))
}

fn kind_letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File | EntryKind::HardLink => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
        EntryKind::Fifo => 'p',
        EntryKind::CharDevice => 'c',
        EntryKind::BlockDevice => 'b',
        EntryKind::Deleted => 'x',
    }
}

fn mode_text(entry: &FileEntry) -> String {
    let mut text = String::from(kind_letter(entry.kind));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = entry.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (entry.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn flags_text(entry: &FileEntry) -> String {
    const NAMES: [&str; 6] = ["grew", "shrank", "vanished", "changed", "sparse", "unreadable"];
    let set = NAMES.iter().enumerate().filter(|(bit, _)| entry.flags.0 & (1 << bit) != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::HardLink => "hardlink",
        EntryKind::Fifo => "fifo",
        EntryKind::CharDevice => "char-device",
        EntryKind::BlockDevice => "block-device",
        EntryKind::Deleted => "deleted",
    }
}

fn entry_json(entry: &FileEntry) -> Value {
    json!({
        "path": path_text(&entry.path),
        "kind": kind_name(entry.kind),
        "flags": flags_text(entry),
        "mode": format!("{:04o}", entry.mode),
        "uid": entry.uid,
        "gid": entry.gid,
        "size": entry.size,
        "mtime_ns": entry.mtime_ns,
        "crc32c": format!("{:08x}", entry.crc),
        "connection": entry.connection,
        "offset": entry.offset,
        "member_len": entry.member_len,
    })
}

fn entry_row(entry: &FileEntry) -> Vec<String> {
    let mut name = path_text(&entry.path);
    if entry.kind == EntryKind::Directory {
        name.push('/');
    }
    vec![
        mode_text(entry),
        entry.uid.to_string(),
        entry.gid.to_string(),
        units::count(entry.size),
        units::time(entry.mtime_ns),
        flags_text(entry),
        name,
    ]
}

const ENTRY_HEADS: [&str; 7] = ["mode", ">uid", ">gid", ">size", "modified", "flags", "path"];

/// The entry of a state. One that is older than the state, because the path could not be read since, says so by its flag.
fn listed(entry: StateEntry) -> FileEntry {
    let StateEntry { mut entry, unread, .. } = entry;
    if unread.is_some() {
        entry.flags = entry.flags.with(EntryFlags::UNREADABLE);
    }
    entry
}

pub(crate) fn ls(cli: &Cli, args: &args::Ls) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let (object, path) = split_place(&site, &args.place, None)?;
    let state = site.catalog().state(object.id).map_err(director)?;
    let path = path.unwrap_or_else(|| index_path(&object.source));
    let mut entries = Vec::new();
    let found = if args.recursive { state.subtree(&path) } else { state.children(&path) };
    for entry in found {
        entries.push(listed(entry.map_err(director)?));
    }
    if entries.is_empty() {
        match state.get(&path).map_err(director)? {
            Some(entry) => entries.push(listed(entry)),
            None => {
                return Err(Failure::Director(DirectorError::UnknownPath {
                    object: short(&object),
                    source_name: path_text(&object.source),
                    path: path_text(&path),
                }));
            }
        }
    }
    if cli.json {
        return print_json(&entries.iter().map(entry_json).collect());
    }
    let mut table = Table::new(&ENTRY_HEADS);
    entries.iter().for_each(|entry| table.row(entry_row(entry)));
    print(&table)
}

pub(crate) fn find(cli: &Cli, args: &args::Find) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let wanted = capstan_director::path_pattern(&args.glob)?;
    let mut out = stdout().lock();
    let mut written = Ok(());
    let mut rows = Vec::new();
    let mut found = |object: &Object, entry: FileEntry| {
        if cli.json {
            let mut row = entry_json(&entry);
            row["object"] = json!(object.id.to_string());
            rows.push(row);
            return ControlFlow::Continue(());
        }
        let gone = if entry.kind == EntryKind::Deleted { "  (deleted)" } else { "" };
        let line = format!(
            "{}  {}  {:>15}  {}  {}{gone}",
            short(object),
            mode_text(&entry),
            units::count(entry.size),
            units::time(entry.mtime_ns),
            path_text(&entry.path)
        );
        written = writeln!(out, "{line}");
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    match &args.object {
        Some(object) => {
            let object = find_object(&site, object, None)?;
            let state = site.catalog().state(object.id).map_err(director)?;
            for entry in state.find(&*wanted) {
                if found(&object, entry.map_err(director)?.entry).is_break() {
                    break;
                }
            }
        }
        None => site.catalog().find(&ObjectFilter::default(), &*wanted, &mut found).map_err(director)?,
    }
    drop(out);
    if cli.json {
        return print_json(&Value::Array(rows));
    }
    written.map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn versions(cli: &Cli, args: &args::Versions) -> Result<ExitCode, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let site = site(cli)?;
    let mut versions = site.catalog().versions(&index_path(args.path.as_os_str().as_bytes())).map_err(director)?;
    if versions.is_empty() {
        // Named from the working directory, as it may be for a backup.
        let path = std::path::absolute(&args.path).unwrap_or_else(|_| args.path.clone());
        versions = site.catalog().versions(&index_path(path.as_os_str().as_bytes())).map_err(director)?;
    }
    if cli.json {
        let rows = versions.iter().map(|version| {
            let mut row = entry_json(&version.entry);
            row["object"] = json!(version.object.id.to_string());
            row["backed_up_ns"] = json!(version.object.started_ns);
            row
        });
        return print_json(&rows.collect());
    }
    let mut table = Table::new(&["object", "backed up", "level", "mode", ">size", "modified", "flags"]);
    for version in &versions {
        let entry = &version.entry;
        table.row(vec![
            short(&version.object),
            units::time(version.object.started_ns),
            level(&version.object).to_owned(),
            if entry.kind == EntryKind::Deleted { "deleted".to_owned() } else { mode_text(entry) },
            units::count(entry.size),
            units::time(entry.mtime_ns),
            flags_text(entry),
        ]);
    }
    print(&table)
}

fn state_name(state: VolumeState) -> &'static str {
    match state {
        VolumeState::Blank => "blank",
        VolumeState::Scratch => "scratch",
        VolumeState::Filling => "filling",
        VolumeState::Full => "full",
        VolumeState::Suspect => "suspect",
        VolumeState::Retired => "retired",
    }
}

pub(crate) fn volumes(cli: &Cli, args: &args::Volumes) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let mut volumes = site.catalog().volumes().map_err(director)?;
    volumes.retain(|volume| args.pool.is_none() || volume.pool == args.pool);
    let present = site.present()?;
    if cli.json {
        let rows = volumes.iter().map(|volume| {
            json!({
                "volume": volume.volser.as_str(),
                "pool": volume.pool,
                "state": state_name(volume.state),
                "id": volume.id.map(|id| id.to_string()),
                "encryption": volume.key.map(|key| key.algorithm.name()),
                "key": volume.key.map(|key| key.tag.to_string()),
                "capacity_bytes": volume.capacity,
                "written_bytes": volume.written,
                "labelled_ns": volume.labelled_ns,
                "written_ns": volume.written_ns,
                "mounts": volume.mounts,
                "errors": volume.errors,
                "recycled": volume.recycled,
                "in_library": present.contains(&volume.volser),
            })
        });
        return print_json(&rows.collect());
    }
    let mut table = Table::new(&[
        "volume",
        "pool",
        "state",
        "encryption",
        ">written",
        ">capacity",
        "last written",
        ">mounts",
        ">errors",
        "place",
    ]);
    for volume in &volumes {
        table.row(vec![
            volume.volser.to_string(),
            volume.pool.clone().unwrap_or_else(|| "scratch".to_owned()),
            state_name(volume.state).to_owned(),
            volume.key.map_or("none", |key| key.algorithm.name()).to_owned(),
            units::bytes(volume.written),
            volume.capacity.map(units::bytes).unwrap_or_default(),
            units::time(volume.written_ns.unwrap_or_default()),
            volume.mounts.to_string(),
            volume.errors.to_string(),
            if present.contains(&volume.volser) { "library" } else { "outside" }.to_owned(),
        ]);
    }
    print(&table)
}

pub(crate) fn drives(cli: &Cli) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let drives = site.drives()?;
    if cli.json {
        let row = |drive: &capstan_director::DriveRow| json!({"drive": drive.number, "model": "virtual", "volume": drive.volser.as_ref().map(Volser::as_str)});
        return print_json(&drives.iter().map(row).collect());
    }
    let mut table = Table::new(&[">drive", "model", "volume"]);
    for drive in &drives {
        let volume = drive.volser.as_ref().map_or("-", Volser::as_str);
        table.row(vec![drive.number.to_string(), "virtual".to_owned(), volume.to_owned()]);
    }
    print(&table)
}

pub(crate) fn cipher(cipher: Cipher) -> Option<Algorithm> {
    match cipher {
        Cipher::Gcm => Some(Algorithm::Aes256Gcm),
        Cipher::Ccm => Some(Algorithm::Aes256Ccm),
        Cipher::None => None,
    }
}

pub(crate) fn pools(cli: &Cli, args: &args::Pools) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    if let Some(PoolAction::Add(add)) = &args.action {
        let retention = add.retention.as_deref().map(units::parse_age).transpose().map_err(Failure::Usage)?;
        let encryption = if add.plain { None } else { cipher(add.encrypt) };
        site.add_pool(&add.name, encryption, retention.map(i64::cast_unsigned))?;
        return Ok(ExitCode::SUCCESS);
    }
    let pools = site.catalog().pools().map_err(director)?;
    let volumes = site.catalog().volumes().map_err(director)?;
    let of = |pool: &Pool| volumes.iter().filter(|volume| volume.pool.as_ref() == Some(&pool.name)).count();
    if cli.json {
        let rows = pools.iter().map(|pool| {
            json!({
                "pool": pool.name,
                "encryption": pool.encryption.map(Algorithm::name),
                "retention_ns": pool.retention_ns,
                "volumes": of(pool),
            })
        });
        return print_json(&rows.collect());
    }
    let mut table = Table::new(&["pool", "encryption", "retention", ">volumes"]);
    for pool in &pools {
        let retention = pool.retention_ns.map(|ns| format!("{:.0} d", ns as f64 / 86_400e9));
        table.row(vec![
            pool.name.clone(),
            pool.encryption.map_or("none", Algorithm::name).to_owned(),
            retention.unwrap_or_else(|| "for ever".to_owned()),
            of(pool).to_string(),
        ]);
    }
    let scratch = volumes.iter().filter(|volume| volume.pool.is_none()).count();
    table.row(vec!["scratch".to_owned(), "-".to_owned(), "-".to_owned(), scratch.to_string()]);
    print(&table)
}

/// The volume that a text names, if it names one.
pub(crate) fn find_volume(site: &Site, text: &str) -> Result<Option<(Volser, Volume)>, Failure> {
    let Ok(volser) = Volser::new(text) else { return Ok(None) };
    let found = site.catalog().volume(&volser).map_err(director)?;
    Ok(found.map(|volume| (volser, volume)))
}

/// The object that a text names, where a volume could have been named too.
pub(crate) fn object_or_volume(site: &Site, text: &str) -> Result<Object, Failure> {
    find_object(site, text, None).map_err(|error| match error {
        DirectorError::UnknownObject { wanted } => Failure::Other(format!(
            "no object or volume matches {wanted:?}: `capstan objects` and `capstan volumes` list them"
        )),
        other => other.into(),
    })
}

pub(crate) fn show(cli: &Cli, args: &args::Show) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    if let Some((volser, volume)) = find_volume(&site, &args.what)? {
        let objects = site.catalog().objects_on(&volser).map_err(director)?;
        let rows: Result<Vec<_>, _> = objects.iter().map(|object| object_json(&site, object)).collect();
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
    let mut value = object_json(&site, &object)?;
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
    let latest = protected.first().map(|object| object.ended_ns);
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
            "latest_ended_ns": latest,
        }));
    }
    let mut out = stdout().lock();
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12}{value}").map_err(Failure::output);
    line("state", site.dir().display().to_string())?;
    line("protected", format!("{} objects, {} files, {}", protected.len(), units::count(files), units::bytes(bytes)))?;
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
        line("attention", format!("and {} more objects", unprotected.len() - OBJECTS_SHOWN))?;
    }
    if !lacking.is_empty() {
        line("attention", format!("{} objects lack a copy: run `capstan repair`", lacking.len()))?;
    }
    for object in &open {
        let source = path_text(&object.source);
        line(
            "attention",
            format!("backup of {source} was interrupted: run it again, it goes on from its last checkpoint"),
        )?;
    }
    for volume in &suspect {
        let volser = &volume.volser;
        line("attention", format!("volume {volser} is suspect: `capstan verify {volser}` says what can be read"))?;
    }
    Ok(ExitCode::SUCCESS)
}
