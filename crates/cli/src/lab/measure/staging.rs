//! `capstan lab staging`.

use std::io::stdout;
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_lab::{Measured, Measurements, OtherLoad, Spread, Staging, StagingError, StagingRates, measure_staging};
use clap::Args;

use super::{Replacing, can_keep, cpu, keep_undisturbed, load, measuring, spread};
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json;
use crate::lab::simulate::parse_mb;
use crate::secrets::now_ns;
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct StageDisk {
    /// Where depots are made and removed
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// Numbers of writers
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    writers: Vec<u32>,
    /// Bytes of a block
    #[arg(long, default_value = "512K", value_parser = units::parse_bytes)]
    block: u64,
    /// Length of a depot: 400M
    #[arg(long, default_value = "400M", value_parser = parse_mb)]
    depot: f64,
    /// Rounds of each
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    #[command(flatten)]
    replacing: Replacing,
}

pub(crate) fn staging(cli: &Globals, args: &StageDisk) -> Result<ExitCode, Failure> {
    can_keep(cli)?;
    let what = Staging {
        writers: args.writers.clone(),
        block_len: usize::try_from(args.block).unwrap_or(0),
        mb: args.depot,
        rounds: args.rounds,
    };
    let written = args.writers.iter().map(|writers| f64::from(*writers)).sum::<f64>() + 4.0;
    let about_s = args.depot * written * f64::from(args.rounds) / 500.0;
    let folder = std::path::absolute(&args.folder).unwrap_or_else(|_| args.folder.clone());
    let before = OtherLoad::now();
    let found =
        measuring(cli, about_s, |stop, display| measure_staging(&folder, &what, stop, &mut |doing| display.say(doing)));
    let found = found.map_err(|error| staging_failed(&error))?;
    show(cli, &found).map_err(Failure::output)?;
    let earlier = |all: &Measurements| all.earlier_staging(&found);
    let add = |all: &mut Measurements| all.add_staging(Measured { at_ns: now_ns(), found: found.clone() });
    keep_undisturbed(cli, &args.replacing, before, earlier, add)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn staging_failed(error: &StagingError) -> Failure {
    match error {
        StagingError::Option { .. } => Failure::Usage(error.to_string()),
        StagingError::Stopped => Failure::Stopped(error.to_string()),
        other => Failure::because(other),
    }
}

fn show(cli: &Globals, found: &StagingRates) -> std::io::Result<()> {
    let mut out = stdout().lock();
    if cli.json {
        return json::line(found);
    }
    let mut table = Table::new(&["what", ">MB/s (least-most)", ">processor s/GB", ">processor %"]);
    let mut row = |what: String, rate: &Spread, cpu_s_per_mb: Option<f64>, beside: Option<&Spread>| {
        // Two at once have the processors together, and their load stands in both rows.
        let both = beside.map_or(*rate, |other| Spread::exactly(rate.median + other.median));
        let load = cpu_s_per_mb.map_or(String::new(), |each| load(&both, each));
        table.row(vec![what, spread(rate), cpu_s_per_mb.map_or(String::new(), cpu), load]);
    };
    for rate in &found.write {
        let what = if rate.writers == 1 { "write, one".to_owned() } else { format!("write, {} at once", rate.writers) };
        row(what, &rate.mb_per_s, Some(rate.cpu_s_per_mb), None);
    }
    let [read, mixed, both] = found.cpu_s_per_mb.map_or([None; 3], |each| each.map(Some));
    let (write_beside, read_beside) = (&found.write_beside_read, &found.read_beside_write);
    row("read what was written alone".to_owned(), &found.read, read, None);
    row("read what was written beside others".to_owned(), &found.read_mixed, mixed, None);
    row("write beside a reader".to_owned(), write_beside, both, Some(read_beside));
    row("read beside a writer".to_owned(), read_beside, both, Some(write_beside));
    table.print(&mut out)
}
