//! `capstan vault`: volumes outside the libraries, what is to go there and what to be fetched.

use std::fmt::Display;
use std::io::{Write, stdout};
use std::process::ExitCode;

use capstan_server::cell::users::media_words::VaultRow;
use capstan_server::cell::users::task_words::{CartridgeMove, LibraryEvent, NotSentRow, SentRow};
use clap::{Args, Subcommand};

use crate::door::door;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::library::{barcode, moved};
use crate::output::{print, print_json, print_rows};
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Vault {
    /// Only what is to be brought back, and why
    #[arg(long, conflicts_with = "to_send")]
    to_fetch: bool,
    /// Only what is to go to a vault
    #[arg(long)]
    to_send: bool,
    #[command(subcommand)]
    action: Option<VaultAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VaultAction {
    /// Bring volumes to the mail slot, and note to which vault they go; one that is outside already is only noted
    #[command(
        after_help = "Examples:\n  capstan vault send\n  capstan vault send A00001L9 A00002L9 --to \"Iron hill\"\n\n\
                      The exit code is 3 if some were left, because no mail slot was free or a job uses them."
    )]
    Send {
        /// The volumes' barcodes [default: all that are to go, by what policies say]
        #[arg(value_name = "VOLUME")]
        volumes: Vec<String>,
        /// The vault [default: that of the policy which looks after their pool]
        #[arg(long, value_name = "VAULT")]
        to: Option<String>,
    },
    /// Note that volumes are at a vault no more; what a library or a drive has is noted by itself
    #[command(after_help = "Example:\n  capstan vault back A00001L9")]
    Back {
        /// The volumes' barcodes
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<String>,
    },
}

pub(crate) fn vault(cli: &Globals, args: &Vault) -> Result<ExitCode, Failure> {
    let barcodes = |volumes: &[String]| volumes.iter().map(|volume| barcode(volume)).collect::<Result<Vec<_>, _>>();
    let what = match &args.action {
        None => return list(cli, args),
        Some(VaultAction::Send { volumes, to }) => {
            CartridgeMove::Send { volumes: barcodes(volumes)?, vault: to.clone() }
        }
        Some(VaultAction::Back { volumes }) => CartridgeMove::Back { volumes: barcodes(volumes)? },
    };
    match moved(cli, None, what)? {
        Some(done) => say(cli, &done),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn list(cli: &Globals, args: &Vault) -> Result<ExitCode, Failure> {
    let mut volumes = door(cli)?.vault()?.volumes;
    volumes.retain(|row| match (args.to_fetch, args.to_send) {
        (true, _) => row.act == "fetch",
        (_, true) => row.act == "send",
        _ => true,
    });
    if cli.json {
        return print_rows(volumes.into_iter().map(Ok));
    }
    let mut table = Table::new(&["volume", "pool", "state", "vault", "sent", "needed until", "what", "why"]);
    for row in volumes {
        let what = what_is_to_be_done(&row).to_owned();
        table.row(vec![
            row.volume,
            row.pool.unwrap_or_else(|| "scratch".to_owned()),
            row.state.into_owned(),
            row.vault.unwrap_or_else(|| "-".to_owned()),
            row.sent_ns.map_or_else(|| "-".to_owned(), units::day),
            match (row.is_needed, row.needed_until_ns) {
                (false, _) => "-".to_owned(),
                (true, Some(until_ns)) => units::day(until_ns),
                (true, None) => "open".to_owned(),
            },
            what,
            row.reasons.join("; "),
        ]);
    }
    print(&table)
}

fn what_is_to_be_done(row: &VaultRow) -> &'static str {
    match (&*row.act, row.place.starts_with("mail slot")) {
        ("fetch", true) => "import it",
        ("fetch", false) => "fetch it",
        ("send", _) => "send it",
        (_, true) => "in the mail slot",
        (_, false) => "there",
    }
}

fn say(cli: &Globals, done: &LibraryEvent) -> Result<ExitCode, Failure> {
    let (in_mail_slot, noted, left) = match done {
        LibraryEvent::Sent { in_mail_slot, noted, left } => (in_mail_slot, noted, left),
        other if cli.json => return print_json(other),
        LibraryEvent::Back { volumes } if !cli.quiet => {
            let none = "none of them was noted to be at a vault".to_owned();
            let are = if volumes.len() == 1 { "is" } else { "are" };
            let back =
                if volumes.is_empty() { none } else { format!("{} {are} at a vault no more", volumes.join(", ")) };
            writeln!(stdout(), "{back}").map_err(Failure::output)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => return Ok(ExitCode::SUCCESS),
    };
    let code = if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_PROBLEMS) };
    if cli.json {
        print_json(done)?;
        return Ok(code);
    }
    for NotSentRow { volume, reason } in left {
        eprintln!("capstan: volume {volume} was not sent: {reason}");
    }
    if cli.quiet {
        return Ok(code);
    }
    let named = |rows: &[SentRow]| rows.iter().map(|row| (row.volume.clone(), row.vault.clone())).collect::<Vec<_>>();
    for line in sent_in_lines(&named(in_mail_slot), &named(noted)) {
        writeln!(stdout(), "{line}").map_err(Failure::output)?;
    }
    if in_mail_slot.is_empty() && noted.is_empty() && left.is_empty() {
        writeln!(stdout(), "no volume is to go to a vault").map_err(Failure::output)?;
    }
    Ok(code)
}

/// What was sent, a line for each vault.
pub(crate) fn sent_in_lines<V: Display>(in_mail_slot: &[(V, String)], noted: &[(V, String)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (rows, is_in_slot) in [(in_mail_slot, true), (noted, false)] {
        let mut vaults: Vec<&str> = rows.iter().map(|(_, vault)| &**vault).collect();
        vaults.sort_unstable();
        vaults.dedup();
        for vault in vaults {
            let of_vault = rows.iter().filter(|(_, goes_to)| goes_to == vault);
            let volumes: Vec<String> = of_vault.map(|(volume, _)| volume.to_string()).collect();
            let (are, them, they) =
                if volumes.len() == 1 { ("is", "it", "it goes") } else { ("are", "them", "they go") };
            lines.push(match is_in_slot {
                true => {
                    format!("{} {are} in the mail slot: take {them} out, {they} to vault {vault}", volumes.join(", "))
                }
                false => format!("{} {are} noted to be at vault {vault}", volumes.join(", ")),
            });
        }
    }
    lines
}
