//! The command line of `keyd`.

mod arguments;
mod audit;
mod backups;
mod clients;
mod command_line;
mod custodians;
mod founding;
mod log;
mod node;
mod pages;
mod recovery;
mod root;
mod status;

use std::process::ExitCode;

use capstan_keys::Argon2Cost;
use capstan_officer::{Completeness, Sealing, said};
use clap::Parser;

use command_line::{Command, Keyd};

/// Runs what the command line says: 0 if it was done, 1 if not, 2 if the command line makes no sense, 3 if something
/// was left out. Each passphrase that somebody makes up for a share or an export costs whoever guesses it that much.
pub fn main(cost: Argon2Cost) -> ExitCode {
    let keyd = Keyd::parse();
    match run(keyd.command, cost) {
        Ok(Completeness::Whole) => ExitCode::SUCCESS,
        Ok(Completeness::InPart) => ExitCode::from(3),
        Err(error) => {
            eprintln!("keyd: {}", said(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, cost: Argon2Cost) -> anyhow::Result<Completeness> {
    match command {
        Command::People(asked) => return asked.run(Sealing { cost, passphrase: None }),
        Command::Init(init) => founding::init(&init, cost),
        Command::Join(join) => founding::join(&join),
        Command::Run(run) => node::run(&run, cost),
        Command::Enrol(enrol) => clients::enrol(&enrol),
        Command::Renew(renew) => clients::renew(&renew),
        Command::Unlock(unlock) => clients::unlock(&unlock),
        Command::Reenrol(reenrol) => clients::reenrol(&reenrol),
        Command::Lock(asking) => clients::lock(&asking),
        Command::Status(status) => status::status(&status),
        Command::Backup(backup) => backups::backup(&backup),
        Command::Backups(backups) => backups::backups(backups),
        Command::Restore(restore) => recovery::restore(&restore, cost),
        Command::Prove(prove) => recovery::prove(&prove),
        Command::Certify(certify) => recovery::certify(&certify),
        Command::CoreBackup(backup) => custodians::core_backup(&backup),
        Command::Root(asked) => root::root(asked, cost),
        Command::Audit(audit) => audit::audit(audit),
        Command::Man { dir } => pages::man(&dir),
        Command::Completions { shell } => {
            pages::completions(shell);
            Ok(())
        }
    }
    .map(|()| Completeness::Whole)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::authority::Act;

    #[test]
    fn requests_are_found_again_by_what_nodes_call_their_acts() {
        assert_eq!(capstan_officer::EXPORT_KEYS, Act::ExportKeys.name());
        assert_eq!(capstan_officer::IMPORT_KEYS, Act::ImportKeys.name());
    }

    /// For one release.
    #[test]
    fn the_old_words_of_commands_still_work() {
        let whom = "--identity me.pem --node a:1";
        for words in [
            "found --state s --name k --address a:1 --etcd http://e --holder h --user u:auditor",
            &format!("kmas call-off k {whom}"),
            &format!("kmas destroyed k {whom}"),
            &format!("exports destroyed 00 {whom}"),
            &format!("backups destroyed 00 {whom}"),
            &format!("units extend A00001 --for 7d {whom}"),
        ] {
            let parsed = Keyd::try_parse_from(std::iter::once("keyd").chain(words.split(' ')));
            assert!(parsed.is_ok(), "{words}: {parsed:?}");
        }
    }

    #[test]
    fn every_command_is_well_formed() {
        Keyd::command().debug_assert();
    }
}
