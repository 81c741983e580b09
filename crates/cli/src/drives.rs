//! `capstan drives`: the library's drives, what this host has, what they have told, and a try of one drive.

mod report;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use capstan_server::cell::users::media_words::{DrivesAnswer, SilentLibrary};
use capstan_tape::exercise::{Contents, DriveVerdict, Exercised, Serials, TestedDrive};
use capstan_tape::linux::scan::ScsiNode;
use capstan_tape::linux::{NodeAccess, Survey, SurveyedChanger, SurveyedDrive, survey};
use clap::{Args, Subcommand};

use crate::door::door;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json::{ExercisedRow, ScanRow, ScannedChanger, ScannedDevice, ScannedDrive, words};
use crate::output::{print, print_json, print_rows};
use crate::progress::Display;
use crate::prompt::confirm;
use crate::secrets::check_not_users;
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Drives {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the libraries and drives of this host, and the place of each drive; needs no state directory
    #[command(
        after_help = "Example:\n  capstan drives scan\n\nThe paths listed are those to give to `capstan init --changer` and `--drive`."
    )]
    Scan,
    /// Show what drives have reported over time (volumes, errors, alerts), what gets worse, and what to do about it
    #[command(
        after_help = "Examples:\n  capstan drives report\n  capstan drives report 0\n  capstan drives report --volume A00001L9 --json\n\nThe exit code is 3 if a drive or a volume needs attention."
    )]
    Report(report::Report),
    /// Test a drive with a scratch tape, which is overwritten, and write a report of rules, facts and rates
    #[command(
        after_help = "Examples:\n  capstan drives exercise /dev/sg1 --report drive.md\n  capstan drives exercise /dev/tape/by-id/scsi-3500110a0-nst --overwrite --bytes 20G\n\nNeeds no state directory. The node names the driver: /dev/sg1 (SCSI, with encryption) or /dev/nst0 (the kernel's tape driver).\nThe report has no serial numbers and barcodes, unless you use --serials. The exit code is 1 if the drive breaks a rule."
    )]
    Exercise(Exercise),
}

#[derive(Debug, Args)]
struct Exercise {
    /// The drive's node, with a cartridge in it
    device: PathBuf,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Use a cartridge that is not blank: its data is lost
    #[arg(long)]
    overwrite: bool,
    /// Write the report here [default: standard output]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Include serial numbers and barcodes in the report
    #[arg(long)]
    serials: bool,
    /// How much to write and read to measure rates
    #[arg(long, value_name = "BYTES", default_value = "6G", value_parser = crate::units::parse_bytes)]
    bytes: u64,
}

pub(crate) fn drives(cli: &Globals, args: &Drives) -> Result<ExitCode, Failure> {
    match &args.action {
        None => list(cli),
        Some(Action::Scan) => scan(cli),
        Some(Action::Report(args)) => check_not_users(cli).and_then(|()| report::report(cli, args)),
        Some(Action::Exercise(args)) => exercise(cli, args),
    }
}

fn text(path: Option<&Path>) -> String {
    path.map_or_else(|| "-".to_owned(), |path| path.display().to_string())
}

fn list(cli: &Globals) -> Result<ExitCode, Failure> {
    let DrivesAnswer { drives, silent, libraries } = door(cli)?.drives()?;
    for SilentLibrary { library, reason } in &silent {
        eprintln!("capstan: library {library}: {}", words(reason));
    }
    let code = if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) };
    if cli.json {
        print_rows(drives.into_iter().map(Ok))?;
        return Ok(code);
    }
    let several = libraries > 1;
    let columns = [">drive", "model", "serial", "volume", "device"];
    let mut table = match several {
        true => Table::new(&["library", columns[0], columns[1], columns[2], columns[3], columns[4]]),
        false => Table::new(&columns),
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for drive in drives {
        let mut row = if several { vec![drive.library] } else { Vec::new() };
        row.extend([
            drive.drive.to_string(),
            match (drive.model, drive.class) {
                (Some(model), Some(class)) => format!("{model} ({class})"),
                (model, _) => known(model),
            },
            known(drive.serial),
            known(drive.volume),
            known(drive.device),
        ]);
        table.row(row);
    }
    print(&table)?;
    Ok(code)
}

fn scan(cli: &Globals) -> Result<ExitCode, Failure> {
    let found = survey().map_err(|error| Failure::Other(format!("cannot look at this host's devices: {error}")))?;
    if cli.json {
        return print_json(&ScanRow {
            changers: found.changers.iter().map(changer_row).collect(),
            drives: found.drives.iter().map(drive_row).collect(),
        });
    }
    if found.changers.is_empty() && found.drives.is_empty() {
        eprintln!(
            "capstan: the kernel knows no tape drive and no library: look at power and cable, and load its drivers (modprobe -a st sg ch)"
        );
        return Ok(ExitCode::SUCCESS);
    }
    show(&found).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn device_row(node: &ScsiNode, access: NodeAccess) -> ScannedDevice {
    ScannedDevice {
        address: node.address.clone(),
        vendor: node.vendor.clone(),
        product: node.product.clone(),
        revision: node.revision.clone(),
        serial: node.serial.clone(),
        sg: node.generic.as_deref().map(shown),
        by_id: node.by_id.iter().map(|path| shown(path)).collect(),
        access: access == NodeAccess::Granted,
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn changer_row(changer: &SurveyedChanger) -> ScannedChanger {
    ScannedChanger {
        device: device_row(&changer.node, changer.access),
        sch: changer.node.changer.as_deref().map(shown),
        drive_serials: changer.serials.as_ref().ok().cloned(),
        problem: changer.serials.as_ref().err().cloned(),
    }
}

fn drive_row(drive: &SurveyedDrive) -> ScannedDrive {
    ScannedDrive {
        device: device_row(&drive.node, drive.access),
        nst: drive.node.tape.as_deref().map(shown),
        changer: drive.place.map(|place| place.changer),
        drive: drive.place.map(|place| place.drive),
    }
}

fn show(found: &Survey) -> std::io::Result<()> {
    let out = &mut stdout().lock();
    let mut table = Table::new(&["device", "maker and product", "serial", "sg", "st, ch", "place", "use"]);
    let named = |number: usize| format!("library {number}");
    for (number, changer) in found.changers.iter().enumerate() {
        let node = &changer.node;
        let place = changer
            .serials
            .as_ref()
            .map_or_else(|_| "drives not told".to_owned(), |serials| format!("{} drives", serials.len()));
        table.row(row(node, named(number), node.changer.as_deref(), place, changer.access));
    }
    for drive in &found.drives {
        let place = match drive.place {
            Some(place) => format!("drive {} of {}", place.drive, named(place.changer)),
            None if found.changers.iter().any(|changer| changer.serials.is_err()) => "not told".to_owned(),
            None => "in no library".to_owned(),
        };
        table.row(row(&drive.node, "drive".to_owned(), drive.node.tape.as_deref(), place, drive.access));
    }
    table.print(out)?;
    let links = found.changers.iter().map(|changer| &changer.node).chain(found.drives.iter().map(|drive| &drive.node));
    let links: Vec<PathBuf> = links.flat_map(|node| node.by_id.clone()).collect();
    if !links.is_empty() {
        writeln!(out, "\nthe same by paths that stay:")?;
        for link in links {
            let target = std::fs::canonicalize(&link).unwrap_or_default();
            writeln!(out, "  {} -> {}", link.display(), target.display())?;
        }
    }
    for (number, changer) in found.changers.iter().enumerate() {
        if let Err(reason) = &changer.serials {
            writeln!(out, "\n{} could not be asked for its drives: {reason}", named(number))?;
        }
    }
    let denied = found.changers.iter().any(|changer| changer.access == NodeAccess::Denied)
        || found.drives.iter().any(|drive| drive.access == NodeAccess::Denied);
    if denied {
        writeln!(
            out,
            "\nno right to use some of them: join the group that owns the nodes (tape, mostly), or ask root"
        )?;
    }
    Ok(())
}

fn row(node: &ScsiNode, device: String, own: Option<&Path>, place: String, access: NodeAccess) -> Vec<String> {
    let granted = match access {
        NodeAccess::Granted => "yes",
        NodeAccess::Denied => "no right",
    };
    vec![
        device,
        format!("{} {} {}", node.vendor, node.product, node.revision),
        node.serial.clone().unwrap_or_else(|| "-".to_owned()),
        text(node.generic.as_deref()),
        text(own),
        place,
        granted.to_owned(),
    ]
}

fn exercise(cli: &Globals, args: &Exercise) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let because = |error: &dyn std::error::Error| Failure::because(error);
    // Before hours of work, not behind them.
    let file = args.report.as_deref().map(new_file).transpose()?;
    let contents = if args.overwrite { Contents::Overwrite } else { Contents::Keep };
    let waits = display.clone();
    let candidate = TestedDrive::open(&args.device, contents, Arc::new(move |waiting: String| waits.warn(&waiting)));
    let candidate = candidate.map_err(|error| because(&error)).and_then(|candidate| {
        let medium = candidate.medium();
        let name = medium.volser.as_ref().map_or_else(|| "without a barcode".to_owned(), ToString::to_string);
        let question = format!(
            "All data on the cartridge ({name}, {}) in {}, a {}, will be lost.",
            units::bytes(medium.capacity_bytes),
            args.device.display(),
            candidate.identity().model
        );
        confirm(&question, args.yes).map(|()| candidate)
    });
    let exercised = candidate.and_then(|candidate| {
        candidate.exercise(args.bytes, &mut |step| display.say(step)).map_err(|error| because(&error))
    });
    let exercised = match (exercised, &args.report) {
        (Ok(exercised), _) => exercised,
        (Err(failure), report) => {
            // Nothing was written to it.
            if let (Some(report), Some(_)) = (report, &file) {
                let _ = std::fs::remove_file(report);
            }
            return Err(failure);
        }
    };
    let text = exercised.to_markdown(if args.serials { Serials::Told } else { Serials::LeftOut });
    match file {
        Some(mut file) => file.write_all(text.as_bytes()).map_err(Failure::output)?,
        None if cli.json => {}
        None => write!(stdout(), "{text}").map_err(Failure::output)?,
    }
    tell_verdict(cli, &display, args, &exercised)
}

fn tell_verdict(cli: &Globals, display: &Display, args: &Exercise, exercised: &Exercised) -> Result<ExitCode, Failure> {
    let rules = &exercised.rules;
    let broken: Vec<_> = rules.broken().map(|checked| checked.rule.as_str()).collect();
    if cli.json {
        print_json(&ExercisedRow {
            model: exercised.identity.model.clone(),
            kept: rules.passed(),
            broken: broken.iter().map(ToString::to_string).collect(),
            broken_by_design: rules.failed().count() - broken.len(),
            problems: exercised.measurements.problems.clone(),
            report: args.report.as_deref().map(shown),
        })?;
    }
    let where_to =
        args.report.as_ref().map_or_else(String::new, |path| format!("; the report is in {}", path.display()));
    match exercised.verdict() {
        DriveVerdict::Good => {
            display.say(&format!("{} rules kept, none broken{where_to}", rules.passed()));
            Ok(ExitCode::SUCCESS)
        }
        DriveVerdict::Broken => Err(Failure::Other(format!(
            "{} rules are broken and {} measurements failed{where_to}: send it in, and do not trust the drive with backups yet",
            broken.len(),
            exercised.measurements.problems.len()
        ))),
    }
}

/// A file that was not there.
fn new_file(path: &Path) -> Result<std::fs::File, Failure> {
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    made.map_err(|error| Failure::Other(format!("{} cannot be made: {error}: name another file", path.display())))
}
