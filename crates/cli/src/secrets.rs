//! Where passphrases come from: the environment, a key file, or the terminal; never the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_client::MemberState;
use capstan_director::{Config, DirectorError, Events, Site, find_settings};
use capstan_keys::Unlock;
use capstan_keys::api::PeerKind;
use capstan_keys::cluster::ClusterPlace;
use zeroize::Zeroizing;

use crate::failure::{Failure, of_member};
use crate::globals::Globals;

/// The passphrase of the key store.
const PASSPHRASE: &str = "CAPSTAN_PASSPHRASE";
const EXPORT_PASSPHRASE: &str = "CAPSTAN_EXPORT_PASSPHRASE";
const NEW_PASSPHRASE: &str = "CAPSTAN_NEW_PASSPHRASE";
const ENROLMENT_PASSPHRASE: &str = "CAPSTAN_ENROLMENT_PASSPHRASE";
/// What programs that are started for a job are not told.
pub(crate) const PASSPHRASES: [&str; 4] = [PASSPHRASE, EXPORT_PASSPHRASE, NEW_PASSPHRASE, ENROLMENT_PASSPHRASE];

/// Whether a command can go on without keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It reads or writes blocks.
    Keys,
    /// It asks the catalog.
    Nothing,
}

pub(crate) fn state_dir(cli: &Globals) -> Result<PathBuf, Failure> {
    if let Some(dir) = &cli.state {
        return Ok(dir.clone());
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Ok(state.join("capstan"));
    }
    let home = absolute("HOME").ok_or_else(|| Failure::Usage("give --state: there is no HOME".to_owned()))?;
    Ok(home.join(".local/state/capstan"))
}

fn from_environment(name: &str) -> Option<Zeroizing<String>> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(Zeroizing::new)
}

fn ask(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    let text = rpassword::prompt_password(prompt);
    text.map(Zeroizing::new).map_err(|_| Failure::Director(DirectorError::KeysLocked))
}

fn ask_twice(what: &str) -> Result<Zeroizing<String>, Failure> {
    let first = ask(&format!("{what}: "))?;
    if first.is_empty() {
        return Err(Failure::Usage("an empty passphrase protects nothing: choose several words".to_owned()));
    }
    if *first != *ask(&format!("{what}, again: "))? {
        return Err(Failure::Usage("the two differ: nothing was done".to_owned()));
    }
    Ok(first)
}

/// What unlocks an existing key store.
pub(crate) fn unlock(cli: &Globals) -> Result<Unlock, Failure> {
    if let Some(file) = &cli.key_file {
        return key_file(file);
    }
    let passphrase = match from_environment(PASSPHRASE) {
        Some(passphrase) => passphrase,
        None => ask("Passphrase: ")?,
    };
    Ok(Unlock::passphrase(passphrase))
}

fn key_file(file: &Path) -> Result<Unlock, Failure> {
    Unlock::key_file(file).map_err(|error| Failure::Director(error.into()))
}

/// Characters below which a passphrase is called short.
const SHORT: usize = 8;

/// What will unlock a new key store; a key file is made if it does not exist.
pub(crate) fn new_unlock(cli: &Globals) -> Result<Unlock, Failure> {
    if let Some(file) = &cli.key_file {
        if !file.exists() {
            capstan_keys::create_key_file(file).map_err(|error| Failure::Director(error.into()))?;
        }
        return key_file(file);
    }
    let passphrase = match from_environment(PASSPHRASE) {
        Some(passphrase) => passphrase,
        None => ask_twice("New passphrase")?,
    };
    say_if_short(&passphrase);
    Ok(Unlock::passphrase(passphrase))
}

/// A passphrase that is guessed in no time is taken, since somebody may only try things out; but not without a word.
fn say_if_short(passphrase: &str) {
    if passphrase.chars().count() < SHORT {
        eprintln!(
            "capstan: the passphrase has fewer than {SHORT} characters, and whoever copies the key store can guess it: \
             `capstan keys passphrase` sets a longer one, such as four or five words"
        );
    }
}

/// A further passphrase or key file for a key store that exists; a key file is made if it does not exist.
pub(crate) fn further_unlock(new_key_file: Option<&Path>) -> Result<Unlock, Failure> {
    if let Some(file) = new_key_file {
        if !file.exists() {
            capstan_keys::create_key_file(file).map_err(|error| Failure::Director(error.into()))?;
        }
        return key_file(file);
    }
    let passphrase = match from_environment(NEW_PASSPHRASE) {
        Some(passphrase) => passphrase,
        None => ask_twice("New passphrase").map_err(|failure| match failure {
            Failure::Director(DirectorError::KeysLocked) => {
                let advice =
                    "the new passphrase cannot be asked for: type it at a terminal, or set CAPSTAN_NEW_PASSPHRASE";
                Failure::Passphrase(advice.to_owned())
            }
            other => other,
        })?,
    };
    say_if_short(&passphrase);
    Ok(Unlock::passphrase(passphrase))
}

/// The passphrase of an export, if it is set.
pub(crate) fn given_for_export() -> Option<Zeroizing<String>> {
    from_environment(EXPORT_PASSPHRASE)
}

/// The passphrase of an export.
pub(crate) fn export_passphrase(new: bool) -> Result<Zeroizing<String>, Failure> {
    match given_for_export() {
        Some(passphrase) => Ok(passphrase),
        None if new => ask_twice("Passphrase for the export"),
        None => ask("Passphrase of the export: "),
    }
    .map_err(|failure| match failure {
        Failure::Director(DirectorError::KeysLocked) => {
            let advice =
                "the export has a passphrase of its own: type it at a terminal, or set CAPSTAN_EXPORT_PASSPHRASE";
            Failure::Passphrase(advice.to_owned())
        }
        other => other,
    })
}

/// The key cluster of the state directory, if its keys are kept by one.
pub(crate) fn cluster_at(dir: &Path) -> Result<Option<ClusterPlace>, Failure> {
    let settings = dir.join("capstan.toml");
    if !settings.exists() {
        return Ok(None);
    }
    Ok(Config::read(&settings)?.keys.cluster(dir))
}

/// What unlocks the keys of the state directory; nothing does where a cluster keeps them.
pub(crate) fn unlock_at(cli: &Globals, dir: &Path) -> Result<Option<Unlock>, Failure> {
    if cluster_at(dir)?.is_some() { Ok(None) } else { unlock(cli).map(Some) }
}

/// The one-time passphrase of an enrolment, from a file if one is named.
pub(crate) fn enrolment_passphrase_from(file: Option<&Path>) -> Result<Zeroizing<String>, Failure> {
    let Some(file) = file else { return enrolment_passphrase() };
    let read = capstan_officer::passphrase("Passphrase of the enrolment", Some(file));
    read.map_err(|error| Failure::Passphrase(format!("{error:#}")))
}

/// The one-time passphrase of an enrolment.
pub(crate) fn enrolment_passphrase() -> Result<Zeroizing<String>, Failure> {
    if let Some(passphrase) = from_environment(ENROLMENT_PASSPHRASE) {
        return Ok(passphrase);
    }
    ask("Passphrase of the enrolment: ").map_err(|_| {
        let advice =
            "the enrolment has a one-time passphrase: type it at a terminal, or set CAPSTAN_ENROLMENT_PASSPHRASE";
        Failure::Passphrase(advice.to_owned())
    })
}

/// The state directory of a user of a cell, if it is one: commands ask the server then.
pub(crate) fn user_state(cli: &Globals) -> Result<Option<MemberState>, Failure> {
    let dir = state_dir(cli)?;
    let state = MemberState::new(&dir, PeerKind::User);
    // A directory with settings is a server's own.
    if dir.join("capstan.toml").exists() || state.check_others().is_err() {
        return Ok(None);
    }
    match state.identity() {
        Ok(_) => Ok(Some(state)),
        Err(_) if !state.identity_file().exists() => Ok(None),
        // Without it, it is nobody's: whoever made a server's state there would have lost the way to the cell.
        Err(error) => Err(of_member(error)),
    }
}

/// That a command is not one of those that a user of a cell has over the network, if the state directory is a user's.
pub(crate) fn check_not_users(cli: &Globals) -> Result<(), Failure> {
    match user_state(cli)? {
        None => Ok(()),
        Some(state) => Err(Failure::Usage(format!(
            "{} is the state directory of a user of a cell, who has no catalog and no drives: this command is for the \
             server's machine. Over the network there are audit, client, drives, find, label, library, ls, mover, \
             objects, policies, pools, queue, restore, schedule, status, user, versions and volumes",
            state.dir().display()
        ))),
    }
}

/// Opens the state directory.
pub(crate) fn open(cli: &Globals, need: Need, events: Events) -> Result<Site, Failure> {
    let dir = state_dir(cli)?;
    if !dir.join("capstan.toml").exists() && dir.join("mover.toml").exists() {
        return Err(Failure::Usage(format!(
            "{} is the state directory of a mover of a cell, which has no catalog: this command is for the server's \
             machine",
            dir.display()
        )));
    }
    // Before a passphrase is asked for, it is looked whether there is anything to unlock.
    if !dir.join("capstan.toml").exists() && dir.join("client.toml").exists() {
        return Err(Failure::Usage(format!(
            "{} is the state directory of a client of a cell, which has no catalog and no drives. What was backed up of \
             this machine is shown and given back by client find, client ls, client objects, client restore and client \
             versions",
            dir.display()
        )));
    }
    find_settings(&dir)?;
    let unlock = if need == Need::Keys { unlock_at(cli, &dir)? } else { None };
    Ok(Site::open(&dir, unlock.as_ref(), now_ns, events)?)
}

/// Opens the state directory with a secret that is known already.
pub(crate) fn open_with(cli: &Globals, unlock: &Unlock) -> Result<Site, Failure> {
    Ok(Site::open(&state_dir(cli)?, Some(unlock), now_ns, Arc::new(|_| {}))?)
}

/// The clock of this process.
pub(crate) fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or_default()
}

/// The state directory for commands that read the catalog alone, and tell of nothing.
pub(crate) fn site(cli: &Globals) -> Result<Site, Failure> {
    open(cli, Need::Nothing, Arc::new(|_| {}))
}
