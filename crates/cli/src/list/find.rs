//! `find`: paths by pattern, time, type and size, in all objects or in the latest of each source.

use std::ops::ControlFlow;
use std::process::ExitCode;

use capstan_client::files::{FileRow, FindFiles};
use capstan_director::{FileSearch, Searched, SearchedFor, Site};
use capstan_server::cell::found_row;

use super::files::{SEARCH_THREADS_MAX, in_parts, mode_text, short_id, without_lists};
use super::files_of::FilesOf;
use crate::args;
use crate::failure::{Failure, director};
use crate::globals::Globals;
use crate::json::Lines;
use crate::place::{check_client, check_of, find_object};
use crate::secrets::{now_ns, site};
use crate::table::path_text;
use crate::units;

pub(crate) fn find(cli: &Globals, args: &args::Find) -> Result<ExitCode, Failure> {
    match FilesOf::user(cli, args.of.as_deref())? {
        Some(server) => find_there(cli, &server, &args.what),
        None => find_here(cli, &site(cli)?, args.of.as_deref(), &args.what),
    }
}

/// What is looked for, in words that could cross the network.
fn asked(args: &args::FindWhat) -> Result<FindFiles, Failure> {
    let since_ns = args.since.as_deref().map(|since| units::parse_since(since, now_ns())).transpose();
    Ok(FindFiles {
        glob: args.glob.clone(),
        object: args.object.clone(),
        latest: args.latest,
        since_ns: since_ns.map_err(Failure::Usage)?,
        types: args.types.iter().map(|&file_type| file_type.into()).collect(),
        size: args.size,
        after: None,
    })
}

fn find_here(cli: &Globals, site: &Site, of: Option<&str>, args: &args::FindWhat) -> Result<ExitCode, Failure> {
    let asked = asked(args)?;
    let wanted = capstan_director::path_pattern(&args.glob)?;
    let searched = match &args.object {
        Some(text) => {
            let site = of.map_or_else(|| site.clone(), |client| site.clone().for_client(client));
            let object = find_object(&site, text, None)?;
            if let Some(client) = of {
                check_of(&object, client, text.as_ref())?;
            }
            Searched::Object(object.id)
        }
        None if args.latest => Searched::Latest,
        None => Searched::Versions,
    };
    if let Some(client) = of {
        check_client(site, client)?;
    }
    let is_of = |client: &str| of.is_none_or(|of| of == client);
    let search = FileSearch {
        wanted: SearchedFor::Matching(&*wanted.matches, &wanted.parts),
        searched,
        client: of,
        is_of: &is_of,
        with_open: true,
        after: None,
        is_over: &|| false,
        threads: SEARCH_THREADS_MAX,
    };
    let several = of.is_none() && args.object.is_none() && has_several_clients(site)?;
    let (mut found, mut written) = (Found::new(cli, several), Ok(()));
    let end = site.search_files(&search, &mut |object, file| {
        if asked.takes(&file.entry) {
            written = found.row(&found_row(object, &file));
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    let damaged: Vec<_> = end.damaged.iter().map(ToString::to_string).collect();
    found.finish(&args.glob, &damaged, true)
}

fn has_several_clients(site: &Site) -> Result<bool, Failure> {
    let objects = site.catalog().objects(&capstan_catalog::ObjectFilter::default()).map_err(director)?;
    Ok(objects.iter().any(|object| object.client != objects[0].client))
}

/// The same, asked of the server of a cell.
pub(crate) fn find_there(cli: &Globals, server: &FilesOf, args: &args::FindWhat) -> Result<ExitCode, Failure> {
    let asked = asked(args)?;
    let mut found = Found::new(cli, server.are_of_several());
    let damaged = in_parts(|after| server.find(&FindFiles { after, ..asked.clone() }), |row| found.row(&row))?;
    found.finish(&args.glob, &damaged, false)
}

/// What was found, as it comes.
struct Found {
    out: Lines,
    is_json: bool,
    is_quiet: bool,
    shows_client: bool,
    any: bool,
}

impl Found {
    fn new(cli: &Globals, shows_client: bool) -> Self {
        Self { out: Lines::new(), is_json: cli.json, is_quiet: cli.quiet, shows_client, any: false }
    }

    fn row(&mut self, row: &FileRow) -> Result<(), Failure> {
        if self.is_json {
            self.any = true;
            return self.out.row(row);
        }
        let client = |client: &str| if self.shows_client { format!("{client:<12}  ") } else { String::new() };
        if !self.any {
            let head = format!(
                "{:<8}  {}{:<10}  {:>15}  {:<19}  path",
                "object",
                client("client"),
                "mode",
                "size",
                "modified"
            );
            self.out.text(&head)?;
            self.any = true;
        }
        let is_lost = row.flags.split(',').any(|flag| flag == "lost");
        let line = format!(
            "{}  {}{}  {:>15}  {:<19}  {}{}",
            short_id(row),
            client(row.client.as_deref().unwrap_or_default()),
            mode_text(row),
            units::count(row.size),
            units::time(row.mtime_ns),
            path_text(&row.path.bytes()),
            if is_lost { "  (LOST: no copy has all of it any more)" } else { "" }
        );
        self.out.text(&line)
    }

    fn finish(self, glob: &str, damaged: &[String], is_here: bool) -> Result<ExitCode, Failure> {
        self.out.finish()?;
        if !self.any && !self.is_json && !self.is_quiet && damaged.is_empty() {
            eprintln!("capstan: nothing matches {glob:?}");
        }
        Ok(without_lists(damaged, is_here))
    }
}
