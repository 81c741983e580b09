//! The laboratory's commands: their arguments, and what they print.

mod advise;
mod characterize;
mod compare;
mod create_data;
mod measure;
mod network;
mod report;
mod simulate;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use capstan_lab::page;
use capstan_tape::model::{DriveModel, built_in};
use clap::Subcommand;

pub(crate) use simulate::{Simulate, models, simulation};

use crate::failure::Failure;
use crate::globals::Globals;
use advise::{Advise, advise};
use characterize::{Characterize, characterize};
use compare::comparison;
use create_data::{CreateData, create_data};
use measure::{Drive, Null, Read, Restore, StageDisk, drive, null, restore, staging};
use network::{Network, network};
use report::{Report, report};

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Make a seeded tree of files to measure with
    #[command(
        after_help = "Examples:\n  capstan lab create-data --preset small --files 200000 /srv/small\n  capstan lab create-data --preset typical --bytes 40G --ratio 3 /srv/typical\n  capstan lab create-data --sizes 4K-1M --bytes 1G --ratio-per-mb 1-10 --names hostile --folders-per-folder 10 /srv/odd\n  capstan lab create-data --preset small --files 200000 /srv/small --check"
    )]
    CreateData(CreateData),
    /// Measure how fast a source can be read, without a backup
    #[command(
        after_help = "Examples:\n  capstan lab read /srv\n  capstan lab read /srv --readers 1,8,32 --cache cold,warm\n  capstan lab read /dev/sdb --cache direct --block 256K,1M"
    )]
    Read(Read),
    /// Measure how fast the data path reads and packs a source, without a drive
    #[command(
        after_help = "Examples:\n  capstan lab null /srv\n  capstan lab null /srv -j 1,2,4 --compression 0,1,3 --block 256K,1M"
    )]
    Null(Null),
    /// Measure how fast a drive writes data from memory; refuses a volume that is not blank
    #[command(
        after_help = "Examples:\n  capstan lab drive --folder /srv/scratch\n  capstan lab drive --folder /srv/scratch --data zeros,half,random --pace LTO-5 --block 256K\n  capstan lab drive --cartridge /srv/library/CAP001.tape --sync 100M"
    )]
    Drive(Drive),
    /// Measure what a disk gives as a file library: written, read, and both at once
    #[command(after_help = "Example:\n  capstan lab staging --folder /srv/staging --writers 1,2,4,8 --depot 1G")]
    Staging(StageDisk),
    /// Measure how fast a sample of a source is restored, and copied to another cartridge
    #[command(after_help = "Example:\n  capstan lab restore /srv --folder /srv/scratch --to /srv/back")]
    Restore(Restore),
    /// Predict the rate of each configuration at this site, name the bottleneck, and advise what to change
    #[command(
        after_help = "Examples:\n  capstan lab advise /srv --measure\n  capstan lab advise /srv --drive LTO-8 --window 8h --data 40T\n  capstan lab advise /srv --drive LTO-5 --try --all"
    )]
    Advise(Advise),
    /// Write a page of what was measured, predicted and advised, with pictures
    #[command(
        after_help = "Examples:\n  capstan lab report --output report.html\n  capstan lab report /srv --drive LTO-8 --window 8h --output report.html --csv report.csv"
    )]
    Report(Report),
    /// Compare the models with this machine: 48 configurations of its own virtual drives, predicted and measured
    #[command(
        after_help = "Example:\n  capstan lab compare --folder /srv/scratch\n\nIt takes six minutes, and up to 2 GB of the folder while it runs."
    )]
    Compare {
        /// Where cartridges are made and removed
        #[arg(long, value_name = "DIR")]
        folder: PathBuf,
    },
    /// Predict the rate of each job in a table, for any drive that has a model; the table is read or made
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

pub(crate) fn lab(cli: &Globals, args: &Lab) -> Result<ExitCode, Failure> {
    match args {
        Lab::CreateData(args) => create_data(cli, args),
        Lab::Read(args) => measure::read(cli, args),
        Lab::Null(args) => null(cli, args),
        Lab::Drive(args) => drive(cli, args),
        Lab::Staging(args) => staging(cli, args),
        Lab::Restore(args) => restore(cli, args),
        Lab::Advise(args) => advise(cli, args),
        Lab::Report(args) => report(cli, args),
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
