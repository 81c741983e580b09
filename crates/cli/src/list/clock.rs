//! `clock`: what the clock says beside what is recorded.

use std::process::ExitCode;

use capstan_director::{ClockDoubt, ClockReading, ObjectFilter};

use super::{director, print_json, short, site};
use crate::args::{self, Cli};
use crate::failure::Failure;
use crate::json::{DoubtedObject, ShownClock};
use crate::table::path_text;
use crate::units;

/// The word for a doubt in JSON.
pub(crate) fn doubt_name(doubt: Option<ClockDoubt>) -> Option<&'static str> {
    doubt.map(|doubt| match doubt {
        ClockDoubt::Behind => "behind",
        ClockDoubt::Ahead => "ahead",
    })
}

/// What is wrong with the clock, and what to do; `None` where it is believed.
pub(crate) fn doubt_text(reading: &ClockReading) -> Option<String> {
    let newest_ns = reading.newest_ns?;
    let side = match reading.doubt? {
        ClockDoubt::Behind => "before",
        ClockDoubt::Ahead => "after",
    };
    let days = reading.now_ns.abs_diff(newest_ns) / 86_400_000_000_000;
    let apart = if days < 2 { String::new() } else { format!("{days} days ") };
    Some(format!(
        "the clock says {}, {apart}{side} the newest record ({}). If it is wrong, set it; if it is right, say so once with `capstan \
         clock --confirm`. Until then what is backed up is marked, and nothing expires",
        units::time(reading.now_ns),
        units::time(newest_ns)
    ))
}

pub(crate) fn clock(cli: &Cli, args: &args::Clock) -> Result<ExitCode, Failure> {
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
