//! What people ask of a key cluster with `capstan keys`, under the name that `--identity` says.
//!
//! This machine's own identity is that of an agent, which may fetch keys and look at those of its volumes; all else
//! takes a person with a role. Their commands are those of `keyd`, in the same words; what takes the state directory of
//! a node is with `keyd` alone.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use capstan_director::{DirectorError, key_cluster};
use capstan_keys::Argon2Cost;
use capstan_keys::cluster::ClusterPlace;
use capstan_officer::{Completeness, Question, Sealing, said};
use zeroize::Zeroizing;

use super::key_revocation::named;
use crate::args::{Approved, DriveAction, GroupAction, KeyAction, KeyCipher, PolicyAction, PolicyAdd, Words};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::progress::Display;
use crate::prompt::confirm;
use crate::secrets::{given_for_export, now_ns, site};

/// The words for an action that a person asks of a cluster; nothing where a machine asks, or where there is nothing
/// to ask.
pub(super) fn words(action: &KeyAction) -> Option<Vec<OsString>> {
    let said = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    Some(match action {
        KeyAction::Policies { action: None } => said(&["policies", "list"]),
        KeyAction::Policies { action: Some(PolicyAction::Add(policy)) } => policy_words(policy),
        KeyAction::Groups { action: None } => said(&["groups", "list"]),
        KeyAction::Groups { action: Some(GroupAction::Add { name, policy }) } => {
            said(&["groups", "add", name.as_str(), "--policy", policy.as_str()])
        }
        KeyAction::Drives { action: None } => said(&["agents", "list"]),
        KeyAction::Drives { action: Some(DriveAction::Set { serial, groups }) } => {
            let groups = groups.iter().flat_map(|group| ["--group", group.as_str()]);
            said(&["agents", "groups", serial.as_str()].into_iter().chain(groups).collect::<Vec<_>>())
        }
        KeyAction::ExtendDecryption { volume, time } => said(&["units", "extend-decryption", volume, "--for", time]),
        KeyAction::Agents(words) => family("agents", "list", words),
        KeyAction::Units(words) => family("units", "list", words),
        KeyAction::Users(words) => family("users", "list", words),
        KeyAction::Quorum(words) => family("quorum", "show", words),
        KeyAction::Pending(words) => family("pending", "list", words),
        KeyAction::Sites(words) => family("sites", "list", words),
        KeyAction::Backups(words) => family("backups", "list", words),
        KeyAction::Audit(words) => family("audit", "show", words),
        KeyAction::Export { file, volume, approved } => export_words(file, volume, approved),
        KeyAction::Import { file, group, approved } => {
            let asked = approved.words().unwrap_or_else(|| vec!["--group".to_owned(), group.to_string()]);
            let file = [file.as_os_str().to_owned()];
            said(&["keys", "import"]).into_iter().chain(file).chain(asked.into_iter().map(OsString::from)).collect()
        }
        _ => return None,
    })
}

/// Asks for the destruction of a key, or of those that a volume holds, each of which is approved for itself.
pub(super) fn destroy(
    cli: &Globals,
    place: &ClusterPlace,
    identity: Option<&Path>,
    what: &str,
    yes: bool,
) -> Result<ExitCode, Failure> {
    let words = |tag: &str| ["keys", "destroy", tag].map(OsString::from).to_vec();
    if identity.is_none() {
        return Err(Failure::Usage(as_whom(place, &words("TAG"))));
    }
    let tags = match what.parse() {
        Ok(tag) => vec![tag],
        Err(_) => named(&key_cluster(place.clone(), now_ns, &Display::new(cli).events()), what)?,
    };
    match site(cli) {
        Ok(site) => {
            for what in tags.iter().map(ToString::to_string).chain([what.to_owned()]) {
                site.check_key_unlocked(&what)?;
            }
        }
        // A machine without a catalog knows of no volume.
        Err(Failure::Director(DirectorError::NotInitialised { .. })) => {}
        Err(failure) => return Err(failure),
    }
    for tag in &tags {
        confirm(&format!("Key {tag} will be destroyed: the data that it encrypted is gone for good."), yes)?;
    }
    for tag in tags {
        let done = ask(cli, place, identity, words(&tag.to_string()))?;
        if done != ExitCode::SUCCESS {
            return Ok(done);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks, as whoever the identity says.
pub(super) fn ask(
    cli: &Globals,
    place: &ClusterPlace,
    identity: Option<&Path>,
    words: Vec<OsString>,
) -> Result<ExitCode, Failure> {
    if let Some(command) = NODE_ONLY.iter().find(|command| words.starts_with(&command.map(OsString::from))) {
        let command = command.join(" ");
        return Err(Failure::Usage(format!(
            "`{command}` reads files of a node, and asks no cluster: run `keyd {command}` on the machine that has them"
        )));
    }
    let says = |option: &str| words.iter().any(|word| word.to_string_lossy().starts_with(option));
    if identity.is_none() && !says("--identity") && !Question::is_help(&words) {
        return Err(Failure::Usage(as_whom(place, &words)));
    }
    // Of an export, set as for a key store; otherwise it is asked for.
    let passphrase = given_for_export().filter(|_| is_carried_out(&words));
    // As from a file: a line break at its end does not count.
    let passphrase = passphrase.map(|given| Zeroizing::new(given.trim_end_matches(['\r', '\n']).to_owned()));
    let question = match Question::parse_words(words, identity, &place.nodes, cli.json) {
        Ok(question) => question,
        Err(told) => {
            // Whoever reads it may have gone.
            let _ = told.print();
            return Ok(u8::try_from(told.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from));
        }
    };
    match question.run(Sealing { cost: Argon2Cost::default(), passphrase }) {
        Ok(Completeness::Whole) => Ok(ExitCode::SUCCESS),
        Ok(Completeness::InPart) => Ok(ExitCode::from(DONE_WITH_PROBLEMS)),
        Err(error) => Err(Failure::Other(said(&error))),
    }
}

/// What takes the files of a node.
const NODE_ONLY: [[&str; 2]; 2] = [["audit", "verify"], ["backups", "check"]];

/// Whether keys come or go now, sealed under a passphrase.
fn is_carried_out(words: &[OsString]) -> bool {
    words.first().is_some_and(|word| word == "keys") && words.iter().any(|word| word == "--request" || word == "--last")
}

fn as_whom(place: &ClusterPlace, words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!(
        "a key cluster ({}) keeps the keys of this site, and only a person with a role may ask it for this. Name that \
         person's identity file with --identity FILE or KEYD_IDENTITY (`keyd enrol` makes the file). On any machine \
         with `keyd`, the same command is `keyd {}`",
        place.nodes.join(", "),
        words.join(" ")
    )
}

/// A family of commands that `keyd` has by the same name.
fn family(name: &str, unasked: &str, Words { words }: &Words) -> Vec<OsString> {
    let asked = if words.is_empty() { vec![OsString::from(unasked)] } else { words.clone() };
    std::iter::once(OsString::from(name)).chain(asked).collect()
}

/// Asked for now, and fetched after the quorum, with a passphrase that is chosen then: only that makes the file.
fn export_words(file: &Path, volume: &[String], approved: &Approved) -> Vec<OsString> {
    let mut words = ["keys", "export"].map(OsString::from).to_vec();
    match (approved.words(), volume) {
        (Some(asked), _) => {
            words.extend(asked.into_iter().map(OsString::from).chain(["--out".into(), file.into()]));
        }
        (None, [volume]) => words.extend(["--unit".into(), volume.into()]),
        (None, _) => words.push("--all".into()),
    }
    words
}

fn policy_words(policy: &PolicyAdd) -> Vec<OsString> {
    let mut words = vec!["policies".to_owned(), "add".to_owned(), policy.name.to_string()];
    let cipher = policy.cipher.map(|cipher| match cipher {
        KeyCipher::Gcm => "AES-256-GCM".to_owned(),
        KeyCipher::Ccm => "AES-256-CCM".to_owned(),
    });
    for (option, value) in [
        ("--algorithm", cipher),
        ("--encrypt-for", policy.encrypt_for.clone()),
        ("--decrypt-for", policy.decrypt_for.clone()),
        ("--isolated-for", policy.isolated_for.clone()),
    ] {
        words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    for (option, is_set) in [
        ("--no-export", policy.no_export),
        ("--no-import", policy.no_import),
        ("--agents-revoke", policy.agents_revoke),
        ("--replace", policy.replace),
    ] {
        words.extend(is_set.then(|| option.to_owned()));
    }
    words.into_iter().map(OsString::from).collect()
}
