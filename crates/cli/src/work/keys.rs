//! `keys`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use capstan_director::{DestroyedKey, DirectorError, check_writable, create_key_store, key_store_path};
use capstan_format::{KeyTag, Volser};
use capstan_keys::{ImportOutcome, KeyRecord, Name, SlotKind, SlotRecord};

use super::key_output::tell;
use super::{key_cluster, key_policies};
use crate::args::{self, DriveAction, GroupAction, KeyAction, PolicyAction, Words};
use crate::failure::{Failure, director};
use crate::globals::Globals;
use crate::json::{self, KeyEvent, KeyRow, SlotRow};
use crate::output::print_rows;
use crate::prompt::confirm;
use crate::secrets::{
    Need, cluster_at, export_passphrase, further_unlock, new_unlock, now_ns, open, open_with, state_dir, unlock,
};
use crate::table::Table;
use crate::units;

/// Longest export that is read.
const EXPORT_LEN_MAX: u64 = 1 << 30;

pub(crate) fn keys(cli: &Globals, args: &args::Keys) -> Result<ExitCode, Failure> {
    if let Some(done) = key_cluster::asked_of_cluster(cli, args)? {
        return Ok(done);
    }
    if changes(&args.action) {
        check_writable(&state_dir(cli)?)?;
    }
    match &args.action {
        KeyAction::Status => key_cluster::status(cli),
        KeyAction::Enrol(enrol) => key_cluster::enrol(cli, enrol),
        KeyAction::List => list(cli),
        KeyAction::Create => create(cli),
        KeyAction::Export { approved, .. } | KeyAction::Import { approved, .. } if approved.words().is_some() => {
            Err(Failure::Usage(
                "the keys of this site are kept by the key store of this machine, where nothing waits for approval: leave --request and --last out"
                    .to_owned(),
            ))
        }
        KeyAction::Export { file, volume, .. } => export(cli, file, volume),
        KeyAction::Import { file, group, .. } => import(cli, file, group),
        KeyAction::Policies { action: None } => key_policies::policies(cli),
        KeyAction::Policies { action: Some(PolicyAction::Add(policy)) } => key_policies::add_policy(cli, policy),
        KeyAction::Groups { action: None } => key_policies::groups(cli),
        KeyAction::Groups { action: Some(GroupAction::Add { name, policy }) } => {
            key_policies::add_group(cli, name, policy)
        }
        KeyAction::Drives { action: None } => key_policies::drives(cli),
        KeyAction::Drives { action: Some(DriveAction::Set { serial, groups }) } => {
            key_policies::set_drive(cli, serial, groups)
        }
        KeyAction::Volumes { volumes } => key_policies::volumes(cli, volumes),
        KeyAction::ExtendDecryption { volume, time } => key_policies::extend(cli, volume, time),
        KeyAction::Agents(Words { words }) if lists(words) => key_policies::drives(cli),
        KeyAction::Units(Words { words }) if lists(words) => key_policies::volumes(cli, &[]),
        KeyAction::Agents(_)
        | KeyAction::Units(_)
        | KeyAction::Users(_)
        | KeyAction::Quorum(_)
        | KeyAction::Pending(_)
        | KeyAction::Sites(_)
        | KeyAction::Backups(_)
        | KeyAction::Audit(_) => Err(Failure::Usage(
            "the keys of this site are kept by the key store of this machine: whoever opens it may do everything, so it has no users, quorum or \
             sites. `capstan keys export` makes its backup, `keys drives` and `keys volumes` say what it knows, `keys status` where it is"
                .to_owned(),
        )),
        KeyAction::Slots => slots(cli),
        KeyAction::Passphrase => passphrase(cli),
        KeyAction::Add { new_key_file } => add(cli, new_key_file.as_deref()),
        KeyAction::Remove { slot, yes } => remove(cli, *slot, *yes),
        KeyAction::Retire { what, yes } => retire(cli, what, *yes),
        KeyAction::Compromise { what, yes } => compromise(cli, what, *yes),
        KeyAction::Destroy { what, yes } => destroy(cli, what, *yes),
    }
}

/// Whether an action changes the key store.
fn changes(action: &KeyAction) -> bool {
    match action {
        KeyAction::Create
        | KeyAction::Import { .. }
        | KeyAction::Policies { action: Some(_) }
        | KeyAction::Groups { action: Some(_) }
        | KeyAction::Drives { action: Some(_) }
        | KeyAction::ExtendDecryption { .. }
        | KeyAction::Passphrase
        | KeyAction::Add { .. }
        | KeyAction::Remove { .. }
        | KeyAction::Retire { .. }
        | KeyAction::Compromise { .. }
        | KeyAction::Destroy { .. } => true,
        KeyAction::Status
        | KeyAction::Enrol(_)
        | KeyAction::List
        | KeyAction::Export { .. }
        | KeyAction::Policies { action: None }
        | KeyAction::Groups { action: None }
        | KeyAction::Drives { action: None }
        | KeyAction::Volumes { .. }
        | KeyAction::Agents(_)
        | KeyAction::Units(_)
        | KeyAction::Users(_)
        | KeyAction::Quorum(_)
        | KeyAction::Pending(_)
        | KeyAction::Sites(_)
        | KeyAction::Backups(_)
        | KeyAction::Audit(_)
        | KeyAction::Slots => false,
    }
}

/// Volumes that are named where many have no key.
const VOLUMES_SHOWN: usize = 10;

fn create(cli: &Globals) -> Result<ExitCode, Failure> {
    let dir = state_dir(cli)?;
    if let Some(cluster) = cluster_at(&dir)? {
        return Err(DirectorError::KeysInCluster { nodes: cluster.nodes.join(", ") }.into());
    }
    let store = key_store_path(&dir);
    // What is there is opened by what is known; a passphrase for a new one is asked for twice.
    let unlock = if store.exists() { unlock(cli)? } else { new_unlock(cli)? };
    let aside = create_key_store(&dir, &unlock, now_ns())?;
    let site = open_with(cli, &unlock)?;
    let without_key = site.look_at_keys()?;
    if cli.json {
        let kept = aside.map(|kept| kept.display().to_string());
        let volumes_without_key = without_key.iter().map(ToString::to_string).collect();
        json::print(&json::Event::KeyStoreCreated { kept, volumes_without_key })?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(kept) = aside {
        println!("the damaged key store is kept as {}", kept.display());
    }
    println!("a new key store is in {}", store.display());
    let (with, other) = match cli.key_file {
        Some(_) => ("key file", "a passphrase"),
        None => ("passphrase", "a key file, as a job that runs by the clock has it,"),
    };
    println!("Only this {with} opens it; {other} is added by `capstan keys add`.");
    say_without_key(&without_key);
    Ok(ExitCode::SUCCESS)
}

/// Says which volumes cannot be read for want of a key.
fn say_without_key(volumes: &[Volser]) {
    if volumes.is_empty() {
        return;
    }
    let named: Vec<_> = volumes.iter().take(VOLUMES_SHOWN).map(Volser::as_str).collect();
    let more = volumes.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    println!(
        "{} cannot be read, because their keys are not in it: {}{more}. `capstan keys import FILE` takes in an export",
        units::counted(volumes.len() as u64, "volume"),
        named.join(", ")
    );
}

/// Whether a family of commands is asked for its list.
fn lists(words: &[std::ffi::OsString]) -> bool {
    words.is_empty() || words.iter().all(|word| word == "list")
}

fn list(cli: &Globals) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let (keys, realm) = {
        let store = site.keys()?;
        (store.list().map_err(director)?, store.realm().map_err(director)?)
    };
    let now_ns = now_ns();
    let of_group = |key: &KeyRecord| (realm.issued(key).group, realm.state_of(key, now_ns).unwrap_or(key.state));
    if cli.json {
        return print_rows(keys.iter().map(|key| {
            let (group, state) = of_group(key);
            Ok(KeyRow {
                tag: key.tag.to_string(),
                volume: key.volser.to_string(),
                group: group.to_string(),
                algorithm: key.algorithm.name(),
                state: state.to_string(),
                created_ns: key.created_ns,
                destroyed_ns: key.destroyed_ns,
            })
        }));
    }
    let mut table = Table::new(&["tag", "volume", "group", "cipher", "state", "created", "destroyed"]);
    for key in &keys {
        let (group, state) = of_group(key);
        table.row(vec![
            key.tag.to_string(),
            key.volser.to_string(),
            group.to_string(),
            key.algorithm.name().to_owned(),
            state.to_string(),
            units::time(key.created_ns),
            units::time(key.destroyed_ns.unwrap_or_default()),
        ]);
    }
    table.print(&mut std::io::stdout().lock()).map_err(Failure::output)?;
    if keys.iter().any(|key| key.destroyed_ns.is_some()) {
        eprintln!("What was encrypted with a destroyed key is gone for good.");
    }
    Ok(ExitCode::SUCCESS)
}

fn export(cli: &Globals, file: &Path, volumes: &[String]) -> Result<ExitCode, Failure> {
    if file.exists() {
        let reason = "it exists, and may be the only copy of older keys: choose another name";
        return Err(Failure::Other(format!("{} is not written: {reason}", file.display())));
    }
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let passphrase = export_passphrase(true)?;
    let (bytes, tags) = site.export_keys(volumes, &passphrase)?;
    let failed = |error: std::io::Error| Failure::Other(format!("cannot write {}: {error}", file.display()));
    // Made here or not at all, even if somebody made it since it was looked for.
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    out.write_all(&bytes).and_then(|()| out.sync_all()).map_err(failed)?;
    // An export that could not be noted is one all the same, and asked for once more.
    let _ = site.note_exported(&tags);
    let mut stay = 0;
    if volumes.is_empty() {
        let store = site.keys()?;
        let (keys, realm) = (store.list().map_err(director)?, store.realm().map_err(director)?);
        stay = keys.iter().filter(|key| key.destroyed_ns.is_none() && realm.check_export(key).is_err()).count();
    }
    let len = bytes.len() as u64;
    tell(
        cli,
        &format!(
            "{}: {} sealed; keep it, and its passphrase, where the volumes are not",
            file.display(),
            units::bytes(len)
        ),
        &KeyEvent::KeysExported { file: file.display().to_string(), bytes: len, kept_back: stay },
    )?;
    if stay > 0 {
        let keys = if stay == 1 { "1 key is".to_owned() } else { format!("{stay} keys are") };
        eprintln!(
            "{keys} not in it: by policy they never leave this store, and only copies of the store bring them back."
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn import(cli: &Globals, file: &Path, group: &Name) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| Failure::Other(format!("cannot read {}: {error}", file.display()));
    if std::fs::metadata(file).map_err(failed)?.len() > EXPORT_LEN_MAX {
        return Err(Failure::Usage(format!("{} is too long to be an export of keys", file.display())));
    }
    let bytes = std::fs::read(file).map_err(failed)?;
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let passphrase = export_passphrase(false)?;
    let imported = site.keys()?.import(&bytes, &passphrase, group, now_ns()).map_err(director)?;
    for key in &imported {
        let what = match key.outcome {
            ImportOutcome::Added(state) => format!("added as {state}"),
            ImportOutcome::AlreadyPresent => "was here already".to_owned(),
            ImportOutcome::StaysDestroyed { destroyed_ns } => {
                format!("was destroyed here on {} and stays so", units::time(destroyed_ns))
            }
        };
        let (outcome, state) = match key.outcome {
            ImportOutcome::Added(state) => ("added", Some(state.to_string())),
            ImportOutcome::AlreadyPresent => ("present", None),
            ImportOutcome::StaysDestroyed { .. } => ("stays-destroyed", None),
        };
        let (tag, volume) = (key.tag.to_string(), key.volser.to_string());
        tell(cli, &format!("{tag}  {volume}  {what}"), &KeyEvent::KeyImported { tag, volume, outcome, state })?;
    }
    // The file that they came from is an export.
    let tags: Vec<_> = imported.iter().map(|key| key.tag).collect();
    if !tags.is_empty() {
        let _ = site.note_exported(&tags);
    }
    let without_key = site.look_at_keys()?;
    if !cli.json {
        say_without_key(&without_key);
    }
    Ok(ExitCode::SUCCESS)
}

fn slots(cli: &Globals) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let keys = site.keys()?;
    let slots = keys.slots().map_err(director)?;
    if cli.json {
        let opened = keys.opened_slot();
        let row =
            |slot: &SlotRecord| Ok(SlotRow { slot: slot.number, kind: slot.kind.name(), used: slot.number == opened });
        return print_rows(slots.iter().map(row));
    }
    let mut table = Table::new(&[">slot", "opened by", ""]);
    for slot in slots {
        let used = if slot.number == keys.opened_slot() { "used now" } else { "" };
        table.row(vec![slot.number.to_string(), slot.kind.name().to_owned(), used.to_owned()]);
    }
    table.print(&mut std::io::stdout().lock()).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

/// The new passphrase opens the store before the old one ceases to: at no moment does none.
fn passphrase(cli: &Globals) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let old = site.keys()?.opened_slot();
    let kind = site.keys()?.slots().map_err(director)?.into_iter().find(|slot| slot.number == old);
    if kind.is_some_and(|slot| slot.kind == SlotKind::KeyFile) {
        let advice = "the key store was opened by a key file: `capstan keys add` sets a passphrase beside it, and \
                      `capstan keys remove` takes a slot away";
        return Err(Failure::Usage(advice.to_owned()));
    }
    let unlock = further_unlock(None)?;
    let new = site.add_key_slot(&unlock)?;
    site.keys()?.remove_slot(old).map_err(director)?;
    if cli.json {
        json::print(&KeyEvent::SlotAdded { slot: new })?;
        json::print(&KeyEvent::SlotRemoved { slot: old })?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("the passphrase is changed (slot {new} instead of {old})");
    println!("An old copy of the key store still opens with the old passphrase: destroy copies, or take new ones.");
    Ok(ExitCode::SUCCESS)
}

fn add(cli: &Globals, new_key_file: Option<&Path>) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let slot = site.add_key_slot(&further_unlock(new_key_file)?)?;
    let said = format!("slot {slot} opens the key store from now on, and so do the slots that did before");
    tell(cli, &said, &KeyEvent::SlotAdded { slot })?;
    Ok(ExitCode::SUCCESS)
}

fn remove(cli: &Globals, slot: u8, yes: bool) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let used = if site.keys()?.opened_slot() == slot { " (the one that was just used)" } else { "" };
    confirm(&format!("Slot {slot}{used} will no longer open the key store."), yes)?;
    site.keys()?.remove_slot(slot).map_err(director)?;
    let said = format!("slot {slot} is removed; an old copy of the key store can still be opened by it");
    tell(cli, &said, &KeyEvent::SlotRemoved { slot })?;
    Ok(ExitCode::SUCCESS)
}

/// The keys of a volume, or the one of a tag, that are not destroyed.
fn named(keys: &[KeyRecord], what: &str) -> Result<Vec<KeyRecord>, Failure> {
    let volser = Volser::new(what).ok();
    let is_meant = |key: &&KeyRecord| volser.as_ref() == Some(&key.volser) || key.tag.to_string() == what;
    let meant: Vec<_> = keys.iter().filter(is_meant).filter(|key| key.destroyed_ns.is_none()).cloned().collect();
    if meant.is_empty() {
        return Err(Failure::Usage(format!("there is no key of {what} that is not destroyed: `capstan keys list`")));
    }
    Ok(meant)
}

fn changed(tag: &KeyTag, volume: &Volser, state: &impl ToString) -> KeyEvent {
    KeyEvent::KeyChanged { tag: tag.to_string(), volume: volume.to_string(), state: state.to_string() }
}

fn retire(cli: &Globals, what: &str, yes: bool) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let keys = site.keys()?.list().map_err(director)?;
    for KeyRecord { tag, volser, .. } in named(&keys, what)? {
        confirm(&format!("Key {tag} of volume {volser} will encrypt nothing any more."), yes)?;
        let state = site.keys()?.retire(&tag, now_ns()).map_err(director)?.state;
        let said = format!("key {tag} of volume {volser} is {state}: later appends to the volume get another key");
        tell(cli, &said, &changed(&tag, &volser, &state))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn compromise(cli: &Globals, what: &str, yes: bool) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let keys = site.keys()?.list().map_err(director)?;
    for key in named(&keys, what)? {
        let KeyRecord { tag, volser, .. } = &key;
        confirm(&format!("Key {tag} of volume {volser} will encrypt nothing any more."), yes)?;
        let state = site.keys()?.compromise(tag, now_ns()).map_err(director)?.state;
        let said = format!("key {tag} is compromised: others may be able to read what it encrypted on volume {volser}");
        tell(cli, &said, &changed(tag, volser, &state))?;
    }
    if !cli.json {
        println!(
            "Copy what matters to volumes with other keys (`capstan copy`), relabel these volumes, then destroy the keys."
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn destroy(cli: &Globals, what: &str, yes: bool) -> Result<ExitCode, Failure> {
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let keys = site.keys()?.list().map_err(director)?;
    let meant = named(&keys, what)?;
    for key in &meant {
        let question = format!(
            "Key {} will be destroyed: the data on volume {} that it encrypted is gone for good.",
            key.tag, key.volser
        );
        confirm(&question, yes)?;
    }
    for key in meant {
        let DestroyedKey { volser, tag } = site.destroy_key(&key.tag)?;
        let said = format!("key {tag} is destroyed: the data on volume {volser} that it encrypted is gone for good");
        tell(cli, &said, &changed(&tag, &volser, &"destroyed"))?;
    }
    if !cli.json {
        println!("Exports and copies of the key store that still hold it bring it back: destroy them too.");
    }
    Ok(ExitCode::SUCCESS)
}
