//! `capstan lab restore`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_format::Algorithm;
use capstan_lab::{
    DataPath, DataPathTarget, Measured, Measurements, OtherLoad, RestoreRates, Restoring, RestoringError,
    measure_restore, null_run,
};
use clap::Args;

use super::{Replacing, can_keep, cpu, failed, keep_undisturbed, load, measuring_shared, spread};
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json;
use crate::secrets::now_ns;
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The tree that is backed up first
    source: PathBuf,
    /// Where cartridges are made and removed
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// Where files are restored to and removed
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Streams of the backup, which the restore writes at once [default: one a core, at most 8]
    #[arg(long, short = 'j', value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: Option<u32>,
    /// zstd level; 0 for none
    #[arg(long, default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-7..=19))]
    compression: i32,
    /// Rounds of each
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds that the backup reads at most: what it wrote is what is restored
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    #[command(flatten)]
    replacing: Replacing,
}

pub(crate) fn restore(cli: &Globals, args: &Restore) -> Result<ExitCode, Failure> {
    can_keep(cli)?;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let source = absolute(&args.source);
    let run = null_run(&source);
    let backup = DataPath {
        connections: args.connections.unwrap_or(run.connections),
        compression_level: args.compression,
        seconds: args.seconds,
        target: DataPathTarget::Virtual {
            folder: absolute(&args.folder),
            encryption: Some(Algorithm::Aes256Gcm),
            pace: None,
        },
        ..run
    };
    let what = Restoring { backup, to: absolute(&args.to), rounds: args.rounds };
    let about_s = args.seconds * (1.0 + 2.0 * f64::from(args.rounds));
    let before = OtherLoad::now();
    let found =
        measuring_shared(cli, about_s, |stop, display| measure_restore(&what, stop, &mut |doing| display.say(doing)));
    let found = found.map_err(|error| match error {
        RestoringError::DataPath(error) => failed(&error),
        RestoringError::Option { .. } => Failure::Usage(error.to_string()),
        other => Failure::because(&other),
    })?;
    show(cli, &found).map_err(Failure::output)?;
    let earlier = |all: &Measurements| all.earlier_restore(&found);
    let add = |all: &mut Measurements| all.add_restore(Measured { at_ns: now_ns(), found: found.clone() });
    keep_undisturbed(cli, &args.replacing, before, earlier, add)?;
    Ok(ExitCode::SUCCESS)
}

fn show(cli: &Globals, found: &RestoreRates) -> std::io::Result<()> {
    let mut out = stdout().lock();
    if cli.json {
        return json::line(found);
    }
    let mut table = Table::new(&["what", ">MB/s (least-most)", ">processor s/GB", ">processor %"]);
    let ways = [
        ("backup to a cartridge", &found.backup),
        ("restore to files, flushed", &found.restore),
        ("object copy to another cartridge", &found.copy),
    ];
    for (what, way) in ways {
        let row = [spread(&way.mb_per_s), cpu(way.cpu_s_per_mb), load(&way.mb_per_s, way.cpu_s_per_mb)];
        table.row(std::iter::once(what.to_owned()).chain(row).collect());
    }
    table.print(&mut out)?;
    writeln!(out, "\n{} files and folders, {:.0} MB in each round", units::count(found.files), found.mb)
}
