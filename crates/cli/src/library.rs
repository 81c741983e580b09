//! `capstan library`: what is where, and moves by hand.

use std::io::{Write, stdout};
use std::process::ExitCode;

use capstan_server::cell::users::media_words::{FolderRow, InventoryRow, KnownVolume, LibraryPlaceRow, LibraryQuery};
use capstan_server::cell::users::move_cartridges;
use capstan_server::cell::users::task_words::{CartridgeMove, LibraryEvent, MoveCartridges};
use clap::{Args, Subcommand};

use crate::audited::{ShellAct, audited};
use crate::door::{as_user_of, door};
use crate::failure::{DONE_WITH_PROBLEMS, Failure, of_cell};
use crate::globals::Globals;
use crate::output::print_json;
use crate::progress::Display;
use crate::prompt::volser;
use crate::secrets::{Need, open};
use crate::table::Table;
use crate::tasks::until_ended;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Library {
    /// The library, where there are several [default: main, which is the one under [library] in capstan.toml]
    #[arg(long, global = true, value_name = "NAME")]
    library: Option<String>,
    #[command(subcommand)]
    action: LibraryAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LibraryAction {
    /// List every place, the cartridge in it, and what the catalog knows of that
    #[command(after_help = "Example:\n  capstan library inventory\n\n\
                      The exit code is 3 if a person has to correct something: a barcode is missing, unreadable or \
                      there twice, or a folder of virtual cartridges cannot be used.")]
    Inventory,
    /// Bring a volume into a drive and leave it there, for another program; a cleaning cartridge, to clean the drive
    #[command(after_help = "Examples:\n  capstan library load A00001L9 0\n  capstan library load CLN001L1 0")]
    Load {
        /// The volume's barcode
        volume: String,
        /// The drive, as `capstan drives` counts them
        drive: u32,
    },
    /// Bring what is in a drive back to its slot
    #[command(after_help = "Example:\n  capstan library unload 0")]
    Unload {
        /// The drive
        drive: u32,
    },
    /// Bring a volume into a drive in exchange for the one that is there
    #[command(after_help = "Example:\n  capstan library exchange A00002L9 0")]
    Exchange {
        /// The volume's barcode
        volume: String,
        /// The drive
        drive: u32,
    },
    /// Bring cartridges from the mail slot to free slots
    #[command(after_help = "Examples:\n  capstan library import\n  capstan library import 0 1")]
    Import {
        /// Mail slots, counted from 0 [default: all that are full]
        mail_slots: Vec<u32>,
    },
    /// Bring volumes to the mail slot, to be taken out
    #[command(after_help = "Example:\n  capstan library export A00001L9")]
    Export {
        /// The volumes' barcodes
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<String>,
    },
    /// Have the robot check every element and read every barcode again; this takes minutes
    #[command(after_help = "Example:\n  capstan library initialize")]
    Initialize,
}

pub(crate) fn library(cli: &Globals, args: &Library) -> Result<ExitCode, Failure> {
    let library = args.library.clone();
    let what = match &args.action {
        LibraryAction::Inventory => return show(cli, &door(cli)?.inventory(&LibraryQuery { library })?),
        LibraryAction::Load { volume, drive } => CartridgeMove::Load { volume: barcode(volume)?, drive: *drive },
        LibraryAction::Unload { drive } => CartridgeMove::Unload { drive: *drive },
        LibraryAction::Exchange { volume, drive } => {
            CartridgeMove::Exchange { volume: barcode(volume)?, drive: *drive }
        }
        LibraryAction::Import { mail_slots } => CartridgeMove::Import { mail_slots: mail_slots.clone() },
        LibraryAction::Export { volumes } => {
            let volumes = volumes.iter().map(|volume| barcode(volume)).collect::<Result<_, _>>()?;
            CartridgeMove::Export { volumes }
        }
        LibraryAction::Initialize => CartridgeMove::Initialize,
    };
    match moved(cli, library, what)? {
        Some(LibraryEvent::Imported { cartridges: 0 }) if !cli.json => {
            Err(Failure::Other("the mail slot is empty: put cartridges in, then try again".to_owned()))
        }
        Some(done) => say(cli, &done),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Has cartridges moved, in a library or the main one; what was done, if the server said it.
pub(crate) fn moved(
    cli: &Globals,
    library: Option<String>,
    what: CartridgeMove,
) -> Result<Option<LibraryEvent>, Failure> {
    Ok(match as_user_of(cli)? {
        Some(server) => {
            let asked = MoveCartridges { library, what };
            until_ended(cli, &server, server.move_cartridges(&asked)?)?.moved
        }
        None => {
            let site = open(cli, Need::Nothing, Display::new(cli).events())?;
            let site = match &library {
                Some(library) => site.in_library(library)?,
                None => site,
            };
            let moved = || move_cartridges(&site, &what).map_err(of_cell);
            Some(audited(&site, ShellAct::MoveCartridges, what.volumes(), moved)?)
        }
    })
}

/// A barcode, as it was typed.
pub(crate) fn barcode(text: &str) -> Result<String, Failure> {
    Ok(volser(text)?.to_string())
}

/// What was done, in one line.
fn say(cli: &Globals, done: &LibraryEvent) -> Result<ExitCode, Failure> {
    if cli.json {
        return print_json(done);
    }
    let text = match done {
        _ if cli.quiet => return Ok(ExitCode::SUCCESS),
        LibraryEvent::Loaded { volume, drive } | LibraryEvent::Exchanged { volume, drive } => {
            format!("volume {volume} is in drive {drive}")
        }
        LibraryEvent::Unloaded { drive } => format!("drive {drive} is empty"),
        LibraryEvent::Imported { cartridges: 1 } => {
            "1 cartridge is in a slot now: `capstan library inventory` shows it".to_owned()
        }
        LibraryEvent::Imported { cartridges } => {
            format!("{cartridges} cartridges are in slots now: `capstan library inventory` shows them")
        }
        LibraryEvent::Exported { volumes } => {
            format!("{} in the mail slot: take out what is there", volumes.join(", "))
        }
        LibraryEvent::Initialized => "the robot has looked at everything".to_owned(),
        // `vault` says these.
        LibraryEvent::Sent { .. } | LibraryEvent::Back { .. } => return Ok(ExitCode::SUCCESS),
    };
    writeln!(stdout(), "{text}").map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn show(cli: &Globals, inventory: &InventoryRow) -> Result<ExitCode, Failure> {
    let code = if inventory.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) };
    if cli.json {
        print_json(inventory)?;
        return Ok(code);
    }
    print_table(inventory).map_err(Failure::output)?;
    Ok(code)
}

fn print_table(inventory: &InventoryRow) -> std::io::Result<()> {
    let out = &mut stdout().lock();
    let mut table = Table::new(&["place", "volume", "pool", "state"]);
    // Free slots are counted, not listed.
    let is_free_slot = |place: &&LibraryPlaceRow| place.volume.is_none() && place.kind == "slot";
    for place in inventory.places.iter().filter(|place| !is_free_slot(place)) {
        let volume = place.volume.clone().unwrap_or_else(|| "-".to_owned());
        let mut row = vec![format!("{} {}", place.kind, place.number), volume];
        row.extend(match (&place.known, &place.volume) {
            (Some(known), _) => [pool_of(known), known.state.to_string()],
            (None, Some(_)) => ["-".to_owned(), "not in the catalog".to_owned()],
            (None, None) => ["-".to_owned(), "-".to_owned()],
        });
        table.row(row);
    }
    for volume in &inventory.absent {
        table.row(vec!["outside".to_owned(), volume.volume.clone(), pool_of(volume), volume.state.to_string()]);
    }
    table.print(out)?;
    let free = inventory.places.iter().filter(is_free_slot).count();
    writeln!(out, "{free} slots are empty, or have a barcode that cannot be read")?;
    let unknown = inventory.places.iter().filter(|place| place.volume.is_some() && place.known.is_none()).count();
    if unknown > 0 {
        writeln!(
            out,
            "{} not in the catalog: `capstan label` takes new ones, and `capstan rebuild` reads those that have backups",
            units::counted(unknown as u64, "volume")
        )?;
    }
    for FolderRow { folder, volumes, total_bytes, free_bytes, has_room } in &inventory.folders {
        let (free, total) = (units::bytes(*free_bytes), units::bytes(*total_bytes));
        let full = if *has_room { "" } else { ": as good as full, and no backup begins to write there" };
        writeln!(out, "folder {folder}: {}, {free} of {total} free{full}", units::counted(*volumes, "volume"))?;
    }
    for finding in &inventory.findings {
        writeln!(out, "look: {finding}")?;
    }
    Ok(())
}

fn pool_of(volume: &KnownVolume) -> String {
    volume.pool.clone().unwrap_or_else(|| "scratch".to_owned())
}
