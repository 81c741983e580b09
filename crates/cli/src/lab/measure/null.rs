//! `capstan lab null`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_lab::{
    DataPath, DataPathError, LONGER_MAX, Measured, Measurements, OtherLoad, PathRates, SlowSource, measure_path,
    null_run,
};
use clap::Args;

use super::{CacheChoice, Replacing, as_far, block, can_keep, cpu, ended, keep_undisturbed, load, measuring, spread};
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json;
use crate::secrets::now_ns;
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Null {
    /// The tree to read
    source: PathBuf,
    /// Numbers of connections
    #[arg(long, short = 'j', value_delimiter = ',', default_value = "1,2,4,8,16")]
    connections: Vec<u32>,
    /// Bytes of a block, several to compare
    #[arg(long, value_delimiter = ',', default_value = "512K", value_parser = units::parse_bytes)]
    block: Vec<u64>,
    /// zstd levels; 0 for none
    #[arg(long, value_delimiter = ',', default_value = "0,1", allow_negative_numbers = true)]
    compression: Vec<i32>,
    /// Where the source is to be found
    #[arg(long, value_enum, default_value_t = CacheChoice::Cold)]
    cache: CacheChoice,
    /// Rounds of each
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds that a round reads; up to ten times as long where a source does not come steadily by then
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    slow: Slow,
    #[command(flatten)]
    replacing: Replacing,
}

/// A source that is slower than it is.
#[derive(Debug, Args)]
pub(crate) struct Slow {
    /// What if the source gave no more than this, MB/s, headers included
    #[arg(long, value_name = "MB/S")]
    slow_source: Option<f64>,
    /// What if each connection got no more than this, MB/s
    #[arg(long, value_name = "MB/S")]
    slow_connection: Option<f64>,
}

pub(crate) fn null(cli: &Globals, args: &Null) -> Result<ExitCode, Failure> {
    can_keep(cli)?;
    if args.cache == CacheChoice::Direct {
        return Err(Failure::Usage("the data path reads by way of the page cache: --cache warm or cold".to_owned()));
    }
    if let Some(level) = args.compression.iter().find(|level| !(-7..=19).contains(*level)) {
        return Err(Failure::Usage(format!("zstd has levels from -7 to 19, not {level}")));
    }
    let source = std::path::absolute(&args.source).unwrap_or_else(|_| args.source.clone());
    let slow = SlowSource { mb_per_s: args.slow.slow_source, connection_mb_per_s: args.slow.slow_connection };
    let seconds_max = args.seconds * LONGER_MAX;
    let what = DataPath { cache: args.cache.into(), seconds: args.seconds, seconds_max, slow, ..null_run(&source) };
    let mut each = Vec::new();
    for &level in &args.compression {
        for &block in &args.block {
            for &connections in &args.connections {
                each.push((connections, usize::try_from(block).unwrap_or(usize::MAX), level));
            }
        }
    }
    let about_s = args.seconds * f64::from(args.rounds) * each.len() as f64;
    let before = OtherLoad::now();
    let found = measuring(cli, about_s, |stop, display| {
        measure_path(&what, &each, args.rounds, stop, &mut |rate| {
            let (connections, level) = (rate.connections, rate.compression_level);
            let rate = spread(&rate.mb_per_s);
            let s = if connections == 1 { "" } else { "s" };
            display.say(&format!("{connections} connection{s}, zstd {level}: {rate} MB/s"));
        })
    });
    let (found, failure) = as_far(found, failed);
    if let Some(found) = found {
        show(cli, &found).map_err(Failure::output)?;
        let earlier = |all: &Measurements| all.earlier_path(&found);
        let add = |all: &mut Measurements| match &failure {
            None => all.add_path(Measured { at_ns: now_ns(), found: found.clone() }),
            Some(_) => all.add_path_part(found.clone(), now_ns()),
        };
        keep_undisturbed(cli, &args.replacing, before, earlier, add)?;
    }
    ended(failure)
}

pub(crate) fn failed(error: &DataPathError) -> Failure {
    match error {
        DataPathError::Option { .. } => Failure::Usage(error.to_string()),
        DataPathError::Stopped => Failure::Stopped(error.to_string()),
        other => Failure::because(other),
    }
}

fn show(cli: &Globals, found: &PathRates) -> std::io::Result<()> {
    let mut out = stdout().lock();
    if cli.json {
        return json::line(found);
    }
    let mut table = Table::new(&[
        ">connections",
        ">block",
        ">zstd",
        ">MB/s (least-most)",
        ">processor s/GB",
        ">processor %",
        ">compressed to 1 in",
    ]);
    for rate in &found.rates {
        table.row(vec![
            rate.connections.to_string(),
            block(rate.block_len),
            rate.compression_level.to_string(),
            spread(&rate.mb_per_s),
            cpu(rate.cpu_s_per_mb),
            load(&rate.mb_per_s, rate.cpu_s_per_mb),
            format!("{:.2}", rate.ratio),
        ]);
    }
    table.print(&mut out)?;
    if found.problems > 0 {
        writeln!(
            out,
            "\n{} paths could not be read, and are not in this: run it as who may",
            units::count(found.problems)
        )?;
    }
    if found.rates.iter().any(|rate| !rate.settled) {
        writeln!(out, "\nthe source did not come steadily before rounds had to end: measure it longer (--seconds)")?;
    }
    let part = if found.whole { "all of it" } else { "not all of it" };
    writeln!(out, "\na round read up to {} files, {:.0} MB: {part}", units::count(found.files), found.mb)
}
