//! `clock`: what the clock says beside what is recorded.

use std::process::ExitCode;

use capstan_catalog::ObjectFilter;

use crate::args;
use crate::failure::Failure;
use crate::failure::director;
use crate::globals::Globals;
use crate::json::{DoubtedObject, ShownClock};
use crate::output::print_json;
use crate::secrets::site;
use crate::table::path_text;
use crate::units;
use crate::wording::{doubt_name, doubt_text, short};

pub(crate) fn clock(cli: &Globals, args: &args::Clock) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    if args.confirm {
        site.confirm_clock()?;
    }
    let timeline = site.timeline()?;
    let reading = timeline.reading();
    let objects = site.catalog().objects(&ObjectFilter::default()).map_err(director)?;
    let doubted = objects.iter().filter_map(|object| Some((object, timeline.begun(object.id)?)));
    let doubted: Vec<_> = doubted.filter(|(_, begun)| begun.doubt.is_some()).collect();
    if cli.json {
        let objects = doubted.iter().map(|(object, begun)| DoubtedObject {
            object: object.id.to_string(),
            started_ns: object.started_ns,
            doubt: doubt_name(begun.doubt),
            begun_from_ns: begun.from_ns,
            begun_by_ns: begun.by_ns,
        });
        return print_json(&ShownClock { clock: (&reading).into(), objects: objects.collect() });
    }
    let newest = reading.newest_ns.map_or_else(|| "nothing is recorded yet".to_owned(), units::time);
    println!("clock       {}", units::time(reading.now_ns));
    println!("newest      {newest}");
    match doubt_text(&reading) {
        Some(text) => println!("in doubt    {text}"),
        None => println!("in doubt    no"),
    }
    for (object, begun) in doubted {
        println!(
            "object      {} of {} says {}; it was begun between {} and {}",
            short(object),
            path_text(&object.source),
            units::time(object.started_ns),
            units::time(begun.from_ns.max(0)),
            units::time(begun.by_ns)
        );
    }
    Ok(ExitCode::SUCCESS)
}
