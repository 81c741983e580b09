//! `capstan lab read`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_lab::{
    LONGER_MAX, Measured, Measurements, OtherLoad, Reading, SourceRateError, SourceRates, measure_source,
};
use clap::Args;

use super::{CacheChoice, Replacing, as_far, can_keep, cpu, ended, keep_undisturbed, load, measuring, spread};
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json;
use crate::secrets::now_ns;
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Read {
    /// A tree, a device, or a large file
    source: PathBuf,
    /// Numbers of readers
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16")]
    readers: Vec<u32>,
    /// Bytes of a read, several to compare
    #[arg(long, value_delimiter = ',', default_value = "256K", value_parser = units::parse_bytes)]
    block: Vec<u64>,
    /// Where the source is to be found, several to compare
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cold")]
    cache: Vec<CacheChoice>,
    /// Rounds of each
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds that a round lasts; up to ten times as long where a source does not come steadily by then
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    replacing: Replacing,
}

pub(crate) fn read(cli: &Globals, args: &Read) -> Result<ExitCode, Failure> {
    can_keep(cli)?;
    let source = std::path::absolute(&args.source).unwrap_or_else(|_| args.source.clone());
    let reading = |(cache, block): (CacheChoice, u64)| Reading {
        readers: args.readers.clone(),
        block_len: usize::try_from(block).unwrap_or(usize::MAX),
        cache: cache.into(),
        rounds: args.rounds,
        seconds: args.seconds,
        seconds_max: args.seconds * LONGER_MAX,
    };
    let ways: Vec<Reading> =
        args.cache.iter().flat_map(|cache| args.block.iter().map(move |block| reading((*cache, *block)))).collect();
    ways.iter().try_for_each(Reading::check).map_err(|error| read_failed(&error))?;
    let about_s = args.seconds * f64::from(args.rounds) * (args.readers.len() * ways.len()) as f64;
    let before = OtherLoad::now();
    // All ways that were measured; of the last, if it ended early, what was found until then.
    let (mut all, mut part, mut failure) = (Vec::new(), None, None);
    measuring(cli, about_s, |stop, display| {
        for reading in &ways {
            let way = format!("{}, reads of {}", reading.cache.name(), units::bytes(reading.block_len as u64));
            let found = measure_source(&source, reading, stop, &mut |rate| {
                let s = if rate.readers == 1 { "" } else { "s" };
                display.say(&format!("{way}, {} reader{s}: {} MB/s", rate.readers, spread(&rate.mb_per_s)));
            });
            match as_far(found, read_failed) {
                (Some(found), None) => all.push(found),
                (found, why) => {
                    (part, failure) = (found, why);
                    break;
                }
            }
        }
    });
    let shown: Vec<&SourceRates> = all.iter().chain(&part).collect();
    if !shown.is_empty() {
        show(cli, &shown).map_err(Failure::output)?;
        let earlier = |kept: &Measurements| shown.iter().filter_map(|found| kept.earlier_source(found)).max();
        keep_undisturbed(cli, &args.replacing, before, earlier, |kept| {
            let at_ns = now_ns();
            all.iter().for_each(|found| kept.add_source(Measured { at_ns, found: found.clone() }));
            part.iter().for_each(|found| kept.add_source_part(found.clone(), at_ns));
        })?;
    }
    ended(failure)
}

pub(crate) fn read_failed(error: &SourceRateError) -> Failure {
    match error {
        SourceRateError::Option { .. } => Failure::Usage(error.to_string()),
        SourceRateError::Stopped => Failure::Stopped(error.to_string()),
        other => Failure::because(other),
    }
}

fn show(cli: &Globals, all: &[&SourceRates]) -> std::io::Result<()> {
    let mut out = stdout().lock();
    if cli.json {
        return all.iter().try_for_each(|found| json::line(*found));
    }
    let mut table = Table::new(&[
        "source",
        "read",
        ">readers",
        ">MB/s (least-most)",
        ">files/s",
        ">processor s/GB",
        ">processor %",
    ]);
    for found in all {
        for rate in &found.rates {
            table.row(vec![
                found.cache.name().to_owned(),
                units::bytes(found.block_len as u64),
                rate.readers.to_string(),
                spread(&rate.mb_per_s),
                format!("{:.0}", rate.files_per_s.median),
                cpu(rate.cpu_s_per_mb),
                load(&rate.mb_per_s, rate.cpu_s_per_mb),
            ]);
        }
    }
    table.print(&mut out)?;
    let Some(first) = all.first() else { return Ok(()) };
    writeln!(out, "\n{} files, {:.0} MB. One reader, by length:", units::count(first.files), first.mb)?;
    let mut table = Table::new(&[">files up to", ">read", ">MB/s", ">ms a file"]);
    for class in &first.classes {
        let up_to = if class.up_to_bytes == u64::MAX { "longer".to_owned() } else { units::bytes(class.up_to_bytes) };
        let (rate, each) = (format!("{:.1}", class.mb_per_s), format!("{:.3}", class.ms_a_file));
        table.row(vec![up_to, units::count(class.files), rate, each]);
    }
    table.print(&mut out)
}
