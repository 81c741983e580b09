//! `capstan lab drive`.

use std::io::stdout;
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_format::Algorithm;
use capstan_lab::{
    DriveData, DriveMeasurementError, DriveRates, Exercise, ExerciseMedium, Measured, Measurements, OtherLoad,
    measure_drive,
};
use capstan_tape::model::built_in;
use clap::{Args, ValueEnum};

use super::{Replacing, as_far, block, can_keep, cpu, ended, keep_undisturbed, load, measuring, spread};
use crate::args::Cipher;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json;
use crate::lab::simulate::parse_mb;
use crate::secrets::now_ns;
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Drive {
    /// Where new cartridges are made and removed
    #[arg(long, value_name = "DIR", required_unless_present = "cartridge", conflicts_with = "cartridge")]
    folder: Option<PathBuf>,
    /// A virtual cartridge that is there: it must be blank, and is blank afterwards
    #[arg(long, value_name = "FILE")]
    cartridge: Option<PathBuf>,
    /// What is written
    #[arg(long, value_enum, value_delimiter = ',', default_value = "random")]
    data: Vec<DataChoice>,
    /// Bytes of a block, several to compare
    #[arg(long, value_delimiter = ',', default_value = "64K,256K,512K,2000K", value_parser = units::parse_bytes)]
    block: Vec<u64>,
    /// How much of each: 500M
    #[arg(long, default_value = "500M", value_parser = parse_mb)]
    amount: f64,
    /// A synchronous filemark behind each such amount: 100M
    #[arg(long, value_parser = parse_mb)]
    sync: Option<f64>,
    /// Its cipher
    #[arg(long, value_enum, default_value_t = Cipher::Gcm)]
    encrypt: Cipher,
    /// Take the time of this drive, by its model
    #[arg(long, value_name = "DRIVE")]
    pace: Option<String>,
    /// Rounds of each
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    #[command(flatten)]
    replacing: Replacing,
}

/// Data by how far they compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataChoice {
    /// Nothing but zeros
    Zeros,
    /// 2:1
    Half,
    /// 1:1
    Random,
}

impl From<DataChoice> for DriveData {
    fn from(choice: DataChoice) -> Self {
        match choice {
            DataChoice::Zeros => Self::Zeros,
            DataChoice::Half => Self::Half,
            DataChoice::Random => Self::Random,
        }
    }
}

pub(crate) fn drive(cli: &Globals, args: &Drive) -> Result<ExitCode, Failure> {
    can_keep(cli)?;
    let pace = args.pace.as_deref().map(built_in).transpose();
    let pace = pace.map_err(|error| Failure::Usage(error.to_string()))?;
    let encryption = match args.encrypt {
        Cipher::Gcm => Some(Algorithm::Aes256Gcm),
        Cipher::Ccm => Some(Algorithm::Aes256Ccm),
        Cipher::None => None,
    };
    let medium = match (&args.cartridge, &args.folder) {
        (Some(cartridge), _) => ExerciseMedium::Blank { cartridge: cartridge.clone() },
        (None, Some(folder)) => {
            ExerciseMedium::New { folder: std::path::absolute(folder).unwrap_or_else(|_| folder.clone()) }
        }
        (None, None) => return Err(Failure::Usage("name a --folder or a --cartridge".to_owned())),
    };
    let each: Vec<(DriveData, usize)> = args
        .data
        .iter()
        .flat_map(|data| args.block.iter().map(|block| (DriveData::from(*data), usize::try_from(*block).unwrap_or(0))))
        .collect();
    let about_rate = pace.as_ref().map_or(500.0, |model| model.native_mb_per_s.value);
    let about_s = args.amount / about_rate * f64::from(args.rounds) * each.len() as f64;
    let what = Exercise {
        data: DriveData::Random,
        block_len: 0,
        mb: args.amount,
        mb_per_s: None,
        sync_mb: args.sync,
        encryption,
        pace,
    };
    let before = OtherLoad::now();
    let found = measuring(cli, about_s, |stop, display| {
        measure_drive(&medium, &each, args.rounds, &what, stop, &mut |rate| {
            let (data, bytes) = (rate.data.name(), block(rate.block_len));
            display.say(&format!("{data}, blocks of {bytes}: {} MB/s", spread(&rate.mb_per_s)));
        })
    });
    let (found, failure) = as_far(found, drive_failed);
    if let Some(found) = found {
        show(cli, &found).map_err(Failure::output)?;
        let earlier = |all: &Measurements| all.earlier_drive(&found);
        let add = |all: &mut Measurements| match &failure {
            None => all.add_drive(Measured { at_ns: now_ns(), found: found.clone() }),
            Some(_) => all.add_drive_part(found.clone(), now_ns()),
        };
        keep_undisturbed(cli, &args.replacing, before, earlier, add)?;
    }
    ended(failure)
}

pub(crate) fn drive_failed(error: &DriveMeasurementError) -> Failure {
    match error {
        DriveMeasurementError::Option { .. }
        | DriveMeasurementError::Block { .. }
        | DriveMeasurementError::HoldsData { .. }
        | DriveMeasurementError::WriteOnce { .. }
        | DriveMeasurementError::WriteProtected { .. }
        | DriveMeasurementError::NoCartridge { .. } => Failure::Usage(error.to_string()),
        DriveMeasurementError::Stopped => Failure::Stopped(error.to_string()),
        other => Failure::because(other),
    }
}

fn show(cli: &Globals, found: &DriveRates) -> std::io::Result<()> {
    let mut out = stdout().lock();
    if cli.json {
        return json::line(found);
    }
    let mut table =
        Table::new(&["data", ">block", ">MB/s (least-most)", ">processor s/GB", ">processor %", ">backhitches"]);
    for rate in &found.rates {
        table.row(vec![
            rate.data.name().to_owned(),
            block(rate.block_len),
            spread(&rate.mb_per_s),
            cpu(rate.cpu_s_per_mb),
            load(&rate.mb_per_s, rate.cpu_s_per_mb),
            rate.backhitches.map_or("-".to_owned(), |count| count.to_string()),
        ]);
    }
    table.print(&mut out)
}
