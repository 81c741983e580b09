//! Files: directories and versions.

use std::ffi::OsStr;
use std::io::{BufWriter, Write, stdout};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use capstan_client::files::{FileRow, FileVersions, FilesAnswer, ListFiles};
use capstan_director::{FileSearch, Searched, SearchedFor, Site, index_path};
use capstan_mover::OwnerNames;
use capstan_server::cell::version_row;

use crate::args;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::list::files_of::FilesOf;
use crate::output::{print, print_rows};
use crate::place::{check_client, check_of, place_at};
use crate::secrets::{now_ns, site};
use crate::table::{RunningTable, Table, path_text};
use crate::units;

/// Threads that search at the same time, at most.
pub(super) const SEARCH_THREADS_MAX: usize = 8;

fn kind_letter(kind: &str) -> char {
    match kind {
        "directory" => 'd',
        "symlink" => 'l',
        "fifo" => 'p',
        "char-device" => 'c',
        "block-device" => 'b',
        "deleted" => 'x',
        _ => '-',
    }
}

pub(super) fn mode_text(row: &FileRow) -> String {
    if row.kind == "deleted" {
        // It has none: what was there before has.
        return format!("{:<10}", "deleted");
    }
    let mode = u32::from_str_radix(&row.mode, 8).unwrap_or_default();
    let mut text = String::from(kind_letter(&row.kind));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
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

fn cells(owners: &Owners, row: &FileRow) -> Vec<String> {
    let mut name = path_text(&row.path.bytes());
    match (&*row.kind, &row.link) {
        ("directory", _) => name.push('/'),
        (_, Some(link)) => name.push_str(&format!(" = {}", path_text(&link.bytes()))),
        _ => {}
    }
    vec![
        mode_text(row),
        owners.text(row.uid, OwnerNames::user),
        owners.text(row.gid, OwnerNames::group),
        units::count(row.size),
        units::time(row.mtime_ns),
        row.flags.clone(),
        name,
    ]
}

const ENTRY_HEADS: [&str; 7] = ["mode", "owner", "group", ">size", "modified", "flags", "path"];

pub(crate) fn ls(cli: &Globals, args: &args::Ls) -> Result<ExitCode, Failure> {
    if let Some(server) = FilesOf::user(cli, args.of.as_deref())? {
        return ls_there(cli, &server, &args.what);
    }
    let (of, args) = (args.of.as_deref(), &args.what);
    let site = site(cli)?;
    let site = if let Some(client) = of { site.for_client(client) } else { site };
    let (object, typed) = place_at(&site, &args.place, args.at.as_deref())?;
    if let Some(client) = of {
        check_of(&object, client, &args.place)?;
    }
    let path = match typed {
        Some(typed) => site.path_in(&object, &typed)?,
        None => index_path(&object.source),
    };
    // Never all at once: a tree may have millions.
    let files = site.list_files(&object, &path, args.recursive, None)?;
    let rows = files.map(|file| file.map(|file| FileRow::new(&file.entry, file.is_lost)).map_err(Failure::from));
    if cli.json {
        return print_rows(rows);
    }
    let mut listing = Listing::new(args.numeric);
    for row in rows {
        listing.row(&row?)?;
    }
    listing.finish()
}

/// A listing as its rows come.
struct Listing {
    out: BufWriter<std::io::StdoutLock<'static>>,
    owners: Owners,
    table: RunningTable,
}

impl Listing {
    fn new(numeric: bool) -> Self {
        let out = BufWriter::new(stdout().lock());
        Self { out, owners: Owners((!numeric).then(OwnerNames::read)), table: RunningTable::new(&ENTRY_HEADS) }
    }

    fn row(&mut self, row: &FileRow) -> Result<(), Failure> {
        self.table.row(cells(&self.owners, row), &mut self.out).map_err(Failure::output)
    }

    fn finish(mut self) -> Result<ExitCode, Failure> {
        self.table.finish(&mut self.out).and_then(|()| self.out.flush()).map_err(Failure::output)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The same, asked of the server of a cell. Of other machines, owners are numbers: their names are not known here.
pub(crate) fn ls_there(cli: &Globals, server: &FilesOf, args: &args::LsWhat) -> Result<ExitCode, Failure> {
    let place = utf8(&args.place)?;
    let at_ns = args.at.as_deref().map(|text| units::parse_time(text, now_ns())).transpose().map_err(Failure::Usage)?;
    let asked = ListFiles { place, at_ns, recursive: args.recursive, after: None };
    let ask = |after| server.list(&ListFiles { after, ..asked.clone() });
    if cli.json {
        let mut lines = crate::json::Lines::new();
        in_parts(ask, |row| lines.row(&row))?;
        lines.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut listing = Listing::new(args.numeric || !server.is_own());
    in_parts(ask, |row| listing.row(&row))?;
    listing.finish()
}

/// Asks until there is no further part; gives the objects that could not be looked into.
pub(super) fn in_parts(
    ask: impl Fn(Option<String>) -> Result<FilesAnswer, Failure>,
    mut each: impl FnMut(FileRow) -> Result<(), Failure>,
) -> Result<Vec<String>, Failure> {
    let (mut after, mut damaged) = (None, Vec::new());
    loop {
        let answer = ask(after)?;
        for row in answer.rows {
            each(row)?;
        }
        damaged.extend(answer.damaged);
        after = answer.next;
        if after.is_none() {
            return Ok(damaged);
        }
    }
}

/// A text that crosses the network.
pub(super) fn utf8(text: &OsStr) -> Result<String, Failure> {
    text.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::Usage(format!(
            "{}: a name that is not UTF-8 cannot be asked for: name the folder",
            path_text(text.as_bytes())
        ))
    })
}

/// Names objects whose list of files could not be looked into: they may have what is looked for.
pub(super) fn without_lists(damaged: &[String], is_here: bool) -> ExitCode {
    let whose = if is_here { "" } else { "at the server, " };
    for object in damaged {
        eprintln!(
            "capstan: the list of files of object {object}, or of one that it is based on, is damaged or gone, and was \
             not looked into: {whose}`capstan rebuild {object}` reads it from the object's volumes"
        );
    }
    if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) }
}

pub(crate) fn versions(cli: &Globals, args: &args::Versions) -> Result<ExitCode, Failure> {
    if let Some(server) = FilesOf::user(cli, args.of.as_deref())? {
        return versions_there(cli, &server, &args.what);
    }
    let (site, of, path) = (site(cli)?, args.of.as_deref(), &args.what.path);
    if let Some(client) = of {
        check_client(&site, client)?;
    }
    let (mut rows, mut damaged) = versions_here(&site, of, path)?;
    if rows.is_empty() {
        // Named from the working directory, as it may be for a backup.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        (rows, damaged) = versions_here(&site, of, &path)?;
    }
    show_versions(cli, path, &rows)?;
    Ok(without_lists(&damaged, true))
}

fn versions_here(site: &Site, of: Option<&str>, path: &Path) -> Result<(Vec<FileRow>, Vec<String>), Failure> {
    let path = index_path(path.as_os_str().as_bytes());
    let search = FileSearch {
        wanted: SearchedFor::Path(&path),
        searched: Searched::Versions,
        client: of,
        is_of: &|client| of.is_none_or(|of| of == client),
        with_open: true,
        after: None,
        is_over: &|| false,
        threads: SEARCH_THREADS_MAX,
    };
    let mut rows = Vec::new();
    let end = site.search_files(&search, &mut |object, file| {
        rows.push(version_row(object, &file));
        ControlFlow::Continue(())
    })?;
    Ok((rows, end.damaged.iter().map(ToString::to_string).collect()))
}

pub(crate) fn versions_there(cli: &Globals, server: &FilesOf, args: &args::VersionsWhat) -> Result<ExitCode, Failure> {
    let (path, mut rows) = (utf8(args.path.as_os_str())?, Vec::new());
    let ask = |after| server.versions(&FileVersions { path: path.clone(), after });
    let damaged = in_parts(ask, |row| {
        rows.push(row);
        Ok(())
    })?;
    show_versions(cli, &args.path, &rows)?;
    Ok(without_lists(&damaged, false))
}

fn show_versions(cli: &Globals, path: &Path, rows: &[FileRow]) -> Result<ExitCode, Failure> {
    if cli.json {
        return print_rows(rows.iter().map(Ok));
    }
    if rows.is_empty() && !cli.quiet {
        let path = path.display();
        eprintln!(
            "capstan: no object has {path}: write the path from the root, or look for the name with `capstan find`"
        );
    }
    // A column that says the same in each line is left out.
    let first = rows.first().and_then(|row| row.client.clone());
    let shows_client = rows.iter().any(|row| row.client != first);
    let mut table = Table::new(&["object", "backed up", "level", "mode", ">size", "modified", "client", "flags"]);
    for row in rows {
        table.row(vec![
            short_id(row),
            units::time(row.backed_up_ns.unwrap_or_default()),
            row.level.as_deref().unwrap_or_default().to_owned(),
            mode_text(row),
            units::count(row.size),
            units::time(row.mtime_ns),
            row.client.clone().unwrap_or_default(),
            row.flags.clone(),
        ]);
    }
    print(&if shows_client { table } else { table.without(&["client"]) })
}

/// The end of an object's id, as lists show it.
pub(super) fn short_id(row: &FileRow) -> String {
    let id = row.object.as_deref().unwrap_or_default();
    id[id.len().saturating_sub(8)..].to_owned()
}
