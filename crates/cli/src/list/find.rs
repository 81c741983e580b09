//! `find`: paths by pattern, time, type and size, in all objects or in the latest of each source.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::process::ExitCode;

use capstan_catalog::{Object, ObjectFilter, ObjectStatus};
use capstan_director::Site;
use capstan_format::{EntryKind, FileEntry};

use super::files::{entry_json, listed, mode_text, without_lists};
use crate::args::{self, FileType};
use crate::failure::Failure;
use crate::failure::director;
use crate::globals::Globals;
use crate::json::{EntryRow, Lines};
use crate::place::find_object;
use crate::secrets::now_ns;
use crate::secrets::site;
use crate::table::path_text;
use crate::units;
use crate::wording::short;

/// Which entries are wanted, whatever their paths.
struct Wanted<'a> {
    args: &'a args::Find,
    since_ns: Option<i64>,
}

impl Wanted<'_> {
    fn takes(&self, entry: &FileEntry) -> bool {
        let type_of = match entry.kind {
            EntryKind::File | EntryKind::HardLink => FileType::File,
            EntryKind::Directory => FileType::Directory,
            EntryKind::Symlink => FileType::Symlink,
            EntryKind::Fifo => FileType::Fifo,
            EntryKind::CharDevice | EntryKind::BlockDevice => FileType::Device,
            EntryKind::Deleted => FileType::Deleted,
        };
        let is_of_type = self.args.types.is_empty() || self.args.types.contains(&type_of);
        let is_of_size = self.args.size.is_none_or(|size| type_of == FileType::File && size.holds(entry.size));
        let is_of_time = self.since_ns.is_none_or(|since_ns| entry.mtime_ns >= since_ns);
        is_of_type && is_of_size && is_of_time
    }
}

/// The latest object of each source that has a state: the last complete one, or the first while that runs.
fn latest(site: &Site) -> Result<Vec<Object>, Failure> {
    let objects = site.catalog().objects(&ObjectFilter::default()).map_err(director)?;
    let (complete, open): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object.status == ObjectStatus::Complete);
    let mut seen = HashSet::new();
    let of_source = |object: &Object| seen.insert((object.client.clone(), object.source.clone()));
    Ok(complete.into_iter().chain(open).filter(of_source).collect())
}

pub(crate) fn find(cli: &Globals, args: &args::Find) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let path = capstan_director::path_pattern(&args.glob)?;
    let since_ns = args.since.as_deref().map(|since| units::parse_since(since, now_ns())).transpose();
    let wanted = Wanted { args, since_ns: since_ns.map_err(Failure::Usage)? };
    let lost = site.lost_parts()?;
    let (mut out, mut written, mut any, mut damaged) = (Lines::new(), Ok(()), false, Vec::new());
    let mut found = |object: &Object, entry: FileEntry, is_lost: bool| {
        if !wanted.takes(&entry) {
            return ControlFlow::Continue(());
        }
        written = match cli.json {
            true => out.row(&EntryRow { object: Some(object.id.to_string()), ..entry_json(&entry, is_lost) }),
            false => {
                let head = format!("{:<8}  {:<10}  {:>15}  {:<19}  path", "object", "mode", "size", "modified");
                let head = if any { Ok(()) } else { out.text(&head) };
                any = true;
                head.and_then(|()| out.text(&line(object, &entry, is_lost)))
            }
        };
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let one = args.object.as_ref().map(|object| find_object(&site, object, None).map(|object| vec![object]));
    let states = if args.latest { Some(latest(&site)?) } else { one.transpose()? };
    match states {
        Some(objects) => {
            'objects: for object in objects {
                let state = site.catalog().state(object.id).map_err(director)?;
                for entry in state.find(&*path) {
                    let (entry, is_lost) = listed(&lost, entry.map_err(director)?);
                    if found(&object, entry, is_lost).is_break() {
                        break 'objects;
                    }
                }
            }
        }
        None => {
            let mut any = |object: &Object, entry: FileEntry| {
                let is_lost = lost.holds(object.id, &entry);
                found(object, entry, is_lost)
            };
            let catalog = site.catalog();
            catalog.find(&ObjectFilter::default(), &*path, &mut any, &mut damaged).map_err(director)?;
        }
    }
    written?;
    out.finish()?;
    if !any && !cli.json && !cli.quiet && damaged.is_empty() {
        eprintln!("capstan: nothing matches {:?}", args.glob);
    }
    Ok(without_lists(&damaged))
}

fn line(object: &Object, entry: &FileEntry, is_lost: bool) -> String {
    let gone = if is_lost { "  (LOST: no copy has all of it any more)" } else { "" };
    format!(
        "{}  {}  {:>15}  {:<19}  {}{gone}",
        short(object),
        mode_text(entry),
        units::count(entry.size),
        units::time(entry.mtime_ns),
        path_text(&entry.path)
    )
}
