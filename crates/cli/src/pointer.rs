//! Commands of other backup programs, and which of ours is meant.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;

/// Options of the program itself that take a value, which is no command.
const WITH_VALUE: [&str; 2] = ["--state", "--key-file"];

/// What a word means here.
fn ours(word: &str) -> Option<&'static str> {
    Some(match word {
        "snapshots" | "snapshot" | "list" | "backups" | "images" => {
            "`capstan objects` lists backups, `capstan ls OBJECT` what is in one"
        }
        "prune" | "delete" | "remove" | "rm" | "purge" => {
            "`capstan expire` forgets backups whose time is over, `capstan expire OBJECT` this one"
        }
        "check" | "fsck" | "test" => {
            "`capstan verify` reads backups and volumes back, `capstan scrub` a sample of all, `capstan status` says what needs attention"
        }
        "mount" | "umount" | "browse" => {
            "`capstan ls`, `capstan find` and `capstan cat` look into backups without mounting them, `capstan restore` writes files back"
        }
        "create" | "save" | "archive" => "`capstan backup` makes backups",
        "extract" | "recover" | "retrieve" => "`capstan restore` writes files back",
        "diff" | "compare" => {
            "`capstan verify OBJECT --against-source` compares a backup with the files as they are now"
        }
        "search" | "locate" => "`capstan find` finds paths in all backups, `capstan versions` the versions of one",
        "log" | "logs" | "runs" | "tasks" => "`capstan history` lists what ran, `capstan history RUN` what it said",
        "timer" | "cron" | "daemon" => {
            "`capstan server run` runs policies when they are due, `capstan jobs --units DIR` writes a systemd timer for jobs"
        }
        "agent" | "agents" | "host" | "hosts" | "machines" | "nodes" => {
            "`capstan client enrol` lets a machine join the cell, `capstan client list` lists those that have"
        }
        "movers" | "media-server" | "media-servers" => {
            "`capstan mover enrol` lets a host with drives join the cell, `capstan mover list` lists those that have"
        }
        "config" | "settings" => "the settings are in capstan.toml of the state directory, with a comment for each",
        "info" | "stat" | "stats" | "describe" => "`capstan show` says everything about a backup or a volume",
        "repack" | "defrag" | "compact" | "vacuum" => "`capstan reclaim` empties volumes of which little is needed",
        "tapes" | "media" | "cartridges" => "`capstan volumes` lists them, `capstan library` moves them",
        "inventory" | "eject" | "changer" => "`capstan library` looks into the library and moves cartridges",
        _ => return None,
    })
}

/// The first word of a command line that is neither an option of the program nor its value, nor `help`.
fn command(arguments: impl Iterator<Item = OsString>) -> Option<OsString> {
    let mut arguments = arguments.skip(1);
    while let Some(word) = arguments.next() {
        if WITH_VALUE.iter().any(|option| word == OsStr::new(option)) {
            arguments.next();
        } else if !word.as_encoded_bytes().starts_with(b"-") && word != "help" {
            return Some(word);
        }
    }
    None
}

/// The pointer that is given instead of an error of the command line, if its fault is a command that other programs
/// have.
pub(crate) fn of(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let is_command =
        error.kind() == ErrorKind::InvalidSubcommand && command(std::env::args_os())?.to_str() == Some(word);
    let ours = ours(word).filter(|_| is_command)?;
    Some(Failure::Usage(format!("there is no command `{word}`: {ours}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_found_behind_options() {
        let found = |words: &[&str]| command(words.iter().map(OsString::from));
        assert_eq!(
            found(&["capstan", "--state", "list", "-q", "prune", "check"]).as_deref(),
            Some(OsStr::new("prune"))
        );
        assert_eq!(found(&["capstan", "help", "mount"]).as_deref(), Some(OsStr::new("mount")));
        assert_eq!(found(&["capstan", "--json"]), None);
    }

    #[test]
    fn no_word_of_ours_points_elsewhere() {
        use clap::CommandFactory;
        let cli = crate::command_line::Cli::command();
        let wrong: Vec<_> =
            cli.get_subcommands().map(clap::Command::get_name).filter(|name| ours(name).is_some()).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
