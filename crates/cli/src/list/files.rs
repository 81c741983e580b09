//! Files: directories and versions.

use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;

use capstan_catalog::StateEntry;
use capstan_director::{DirectorError, LostParts, index_path};
use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectId};
use capstan_mover::OwnerNames;

use super::objects::level;
use crate::args;
use crate::failure::director;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::EntryRow;
use crate::output::{print, print_rows};
use crate::place::place_at;
use crate::secrets::site;
use crate::table::{RunningTable, Table, path_text};
use crate::units;
use crate::wording::short;

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

pub(super) fn mode_text(entry: &FileEntry) -> String {
    if entry.kind == EntryKind::Deleted {
        // It has none: what was there before has.
        return format!("{:<10}", "deleted");
    }
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

/// The flags of an entry, and `lost` where damage took it in every copy.
fn flags_text(entry: &FileEntry, is_lost: bool) -> String {
    const NAMES: [&str; 6] = ["grew", "shrank", "vanished", "changed", "sparse", "unreadable"];
    let set = NAMES.iter().enumerate().filter(|(bit, _)| entry.flags.0 & (1 << bit) != 0);
    set.map(|(_, name)| *name).chain(is_lost.then_some("lost")).collect::<Vec<_>>().join(",")
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

pub(super) fn entry_json(entry: &FileEntry, is_lost: bool) -> EntryRow {
    EntryRow {
        path: (&entry.path).into(),
        object: None,
        backed_up_ns: None,
        kind: kind_name(entry.kind),
        flags: flags_text(entry, is_lost),
        mode: format!("{:04o}", entry.mode),
        uid: entry.uid,
        gid: entry.gid,
        link: (entry.kind == EntryKind::HardLink).then(|| (&entry.link).into()),
        size: entry.size,
        mtime_ns: entry.mtime_ns,
        crc32c: format!("{:08x}", entry.crc),
        connection: entry.connection,
        offset: entry.offset,
        member_len: entry.member_len,
    }
}

/// Who owns files: by name, as this machine has them, or by number.
struct Owners(Option<OwnerNames>);

impl Owners {
    fn text(&self, id: u32, name: fn(&OwnerNames, u32) -> &[u8]) -> String {
        match self.0.as_ref().map(|names| name(names, id)) {
            None | Some(b"") => id.to_string(),
            Some(name) => path_text(name),
        }
    }
}

fn entry_row(owners: &Owners, entry: &FileEntry, is_lost: bool) -> Vec<String> {
    let mut name = path_text(&entry.path);
    match entry.kind {
        EntryKind::Directory => name.push('/'),
        EntryKind::HardLink => name.push_str(&format!(" = {}", path_text(&entry.link))),
        _ => {}
    }
    vec![
        mode_text(entry),
        owners.text(entry.uid, OwnerNames::user),
        owners.text(entry.gid, OwnerNames::group),
        units::count(entry.size),
        units::time(entry.mtime_ns),
        flags_text(entry, is_lost),
        name,
    ]
}

const ENTRY_HEADS: [&str; 7] = ["mode", "owner", "group", ">size", "modified", "flags", "path"];

/// The entry of a state, and whether damage took it in every copy. One that is older than the state, because the path
/// could not be read since, says so by its flag.
pub(super) fn listed(lost: &LostParts, entry: StateEntry) -> (FileEntry, bool) {
    let StateEntry { mut entry, unread, object } = entry;
    let is_lost = lost.holds(object, &entry);
    if unread.is_some() {
        entry.flags = entry.flags.with(EntryFlags::UNREADABLE);
    }
    (entry, is_lost)
}

pub(crate) fn ls(cli: &Globals, args: &args::Ls) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let (object, typed) = place_at(&site, &args.place, args.at.as_deref())?;
    let path = match typed {
        Some(typed) => site.path_in(&object, &typed)?,
        None => index_path(&object.source),
    };
    let state = site.catalog().state(object.id).map_err(director)?;
    let mut found = if args.recursive { state.subtree(&path) } else { state.children(&path) }.peekable();
    let itself = match found.peek() {
        Some(_) => None,
        None => match state.get(&path).map_err(director)? {
            Some(entry) => Some(Ok(entry)),
            None => {
                return Err(Failure::Director(DirectorError::UnknownPath {
                    object: short(&object),
                    source_name: path_text(&object.source),
                    path: path_text(&path),
                    tried: Vec::new(),
                    elsewhere: Box::default(),
                }));
            }
        },
    };
    // Never all at once: a tree may have millions.
    let lost = site.lost_parts()?;
    let entries = found.chain(itself).map(|entry| entry.map(|entry| listed(&lost, entry)).map_err(director));
    if cli.json {
        return print_rows(entries.map(|entry| entry.map(|(entry, is_lost)| entry_json(&entry, is_lost))));
    }
    let mut out = BufWriter::new(stdout().lock());
    let owners = Owners((!args.numeric).then(OwnerNames::read));
    let mut table = RunningTable::new(&ENTRY_HEADS);
    for entry in entries {
        let (entry, is_lost) = entry?;
        table.row(entry_row(&owners, &entry, is_lost), &mut out).map_err(Failure::output)?;
    }
    table.finish(&mut out).and_then(|()| out.flush()).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

/// Names objects whose list of files could not be looked into: they may have what is looked for.
pub(super) fn without_lists(damaged: &[ObjectId]) -> ExitCode {
    for object in damaged {
        eprintln!(
            "capstan: the list of files of object {object} is damaged or gone, and was not looked into: `capstan rebuild {object}` reads it from the object's volumes"
        );
    }
    if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) }
}

pub(crate) fn versions(cli: &Globals, args: &args::Versions) -> Result<ExitCode, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let site = site(cli)?;
    let mut damaged = Vec::new();
    let given = index_path(args.path.as_os_str().as_bytes());
    let mut versions = site.catalog().versions(&given, &mut damaged).map_err(director)?;
    if versions.is_empty() {
        // Named from the working directory, as it may be for a backup.
        let path = std::path::absolute(&args.path).unwrap_or_else(|_| args.path.clone());
        damaged.clear();
        let path = index_path(path.as_os_str().as_bytes());
        versions = site.catalog().versions(&path, &mut damaged).map_err(director)?;
    }
    if versions.is_empty() && !cli.json && !cli.quiet && damaged.is_empty() {
        let path = args.path.display();
        eprintln!(
            "capstan: no object has {path}: write the path from the root, or look for the name with `capstan find`"
        );
    }
    let lost = site.lost_parts()?;
    if cli.json {
        let rows = versions.iter().map(|version| {
            let (object, backed_up_ns) = (Some(version.object.id.to_string()), Some(version.object.started_ns));
            let is_lost = lost.holds(version.object.id, &version.entry);
            Ok(EntryRow { object, backed_up_ns, ..entry_json(&version.entry, is_lost) })
        });
        print_rows(rows)?;
        return Ok(without_lists(&damaged));
    }
    let mut table = Table::new(&["object", "backed up", "level", "mode", ">size", "modified", "flags"]);
    for version in &versions {
        let entry = &version.entry;
        table.row(vec![
            short(&version.object),
            units::time(version.object.started_ns),
            level(&version.object).to_owned(),
            mode_text(entry),
            units::count(entry.size),
            units::time(entry.mtime_ns),
            flags_text(entry, lost.holds(version.object.id, entry)),
        ]);
    }
    print(&table)?;
    Ok(without_lists(&damaged))
}
