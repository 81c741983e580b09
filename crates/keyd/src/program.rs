//! The command line of `keyd`.

mod arguments;
mod backups;
mod clients;
mod command_line;
mod founding;
mod log;
mod node;
mod people;
mod recovery;
mod secrets;
mod status;

use std::process::ExitCode;

use capstan_keys::Argon2Cost;
use clap::Parser;

use command_line::{Command, Keyd};

/// How something ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Whole,
    /// Something was left out, and was named.
    InPart,
}

/// Runs what the command line says: 0 if it was done, 1 if not, 2 if the command line makes no sense, 3 if something
/// was left out. Each passphrase that somebody makes up for a share or an export costs whoever guesses it that much.
pub fn main(cost: Argon2Cost) -> ExitCode {
    let keyd = Keyd::parse();
    match run(keyd.command, cost) {
        Ok(Ended::Whole) => ExitCode::SUCCESS,
        Ok(Ended::InPart) => ExitCode::from(3),
        Err(error) => {
            eprintln!("keyd: {}", said(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, cost: Argon2Cost) -> anyhow::Result<Ended> {
    match command {
        Command::People(asked) => return people::run(asked, cost),
        Command::Found(found) => founding::found(&found, cost),
        Command::Join(join) => founding::join(&join),
        Command::Run(run) => node::run(&run, cost),
        Command::Enrol(enrol) => clients::enrol(&enrol),
        Command::Renew(renew) => clients::renew(&renew),
        Command::Unlock(unlock) => clients::unlock(&unlock),
        Command::Reenrol(reenrol) => clients::reenrol(&reenrol),
        Command::Lock(asking) => clients::lock(&asking),
        Command::Status(status) => status::status(&status),
        Command::Backup(backup) => backups::backup(&backup),
        Command::Backups(backups) => backups::backups(&backups),
        Command::Restore(restore) => recovery::restore(&restore, cost),
        Command::Prove(prove) => recovery::prove(&prove),
        Command::Certify(certify) => recovery::certify(&certify),
        Command::CoreBackup(backup) => people::core_backup(&backup),
    }
    .map(|()| Ended::Whole)
}

/// An error with its causes, each said once.
fn said(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
