//! The laboratory's commands: their arguments, and what they print.

mod characterize;
mod compare;
mod create_data;
mod network;
mod simulate;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use capstan_lab::{DriveModel, built_in, page};
use clap::Subcommand;

pub(crate) use simulate::{Simulate, models, simulation};

use crate::args::Cli;
use crate::failure::Failure;
use characterize::{Characterize, characterize};
use compare::comparison;
use create_data::{CreateData, create_data};
use network::{Network, network};

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Make a seeded tree of files to measure with
    #[command(
        after_help = "Examples:\n  capstan lab create-data --preset small --files 200000 /srv/small\n  capstan lab create-data --preset typical --bytes 40G --ratio 3 /srv/typical\n  capstan lab create-data --sizes 4K-1M --bytes 1G --ratio-per-mb 1-10 --names hostile --folders-per-folder 10 /srv/odd\n  capstan lab create-data --preset small --files 200000 /srv/small --check"
    )]
    CreateData(CreateData),
    /// Hold the models against this machine: 48 configurations of its own virtual drives, predicted and measured
    #[command(
        after_help = "Example:\n  capstan lab compare --folder /srv/scratch\n\nIt takes six minutes, and up to 2 GB of the folder while it runs."
    )]
    Compare {
        /// Where cartridges are made and removed
        #[arg(long, value_name = "DIR")]
        folder: PathBuf,
    },
    /// Predict a table of jobs, read or made, row by row, for any drive that has a model
    #[command(
        after_help = "Examples:\n  capstan lab characterize --drive LTO-6,LTO-8 > grid.csv\n  capstan lab characterize --drive T10000A --file-sizes 32K,1G --buffer-sizes 256K,2M --buffers 8,32 --ratios 2 --encrypted 1\n  capstan lab characterize --grid table.csv > predicted.csv\n\nThe table has the columns drive,data_buffers,buffer_size,encrypted,file_size,compression_ratio and, where it was measured, mb_per_s."
    )]
    Characterize(Characterize),
    /// Measure what the network between two hosts gives: one listens, the other measures
    #[command(
        after_help = "Examples:\n  capstan lab network --listen 192.0.2.7:7070\n  capstan lab network --to 192.0.2.7:7070 --connections 1,4,16\n\nWhoever reaches the listener may use the network for a measurement. A port without an address is reached from this machine only."
    )]
    Network(Network),
    /// Print the models beside the numbers that were published (docs/MODEL.md)
    #[command(after_help = "Example:\n  capstan lab published > docs/MODEL.md")]
    Published,
}

/// Reads a file that a person named; whatever is wrong with it is told with its name.
fn read<T, E: std::fmt::Display>(path: &Path, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, Failure> {
    let wrong = |reason: &dyn std::fmt::Display| Failure::Usage(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    parse(&text).map_err(|error| wrong(&error))
}

fn model(name: &str) -> Result<DriveModel, Failure> {
    if name.ends_with(".toml") {
        return read(Path::new(name), DriveModel::from_toml);
    }
    built_in(name).map_err(|error| Failure::Usage(format!("{error}. A file of your own ends with .toml")))
}

pub(crate) fn lab(cli: &Cli, args: &Lab) -> Result<ExitCode, Failure> {
    match args {
        Lab::CreateData(args) => create_data(cli, args),
        Lab::Compare { folder } => comparison(cli, folder),
        Lab::Characterize(args) => characterize(cli, args),
        Lab::Network(args) => network(cli, args),
        Lab::Published => {
            let text = page().map_err(|error| Failure::Other(error.to_string()))?;
            write!(stdout().lock(), "{text}").map_err(Failure::output)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
