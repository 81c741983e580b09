//! `keys policies`, `groups`, `drives`, `volumes` and `extend`: what holds for keys.

use std::process::ExitCode;
use std::sync::Arc;

use capstan_format::{Algorithm, Volser};
use capstan_keys::{Agent, IssuedKey, KeyGroup, KeyUse, Name, Period, Permission, Policy, SeenAs, SeenCartridge};

use super::key_output::{tell, warn_of_another};
use crate::args::{KeyCipher, PolicyAdd};
use crate::failure::Failure;
use crate::failure::director;
use crate::globals::Globals;
use crate::json::{CartridgeRow, GroupRow, IssuedKeyRow, KeyDriveRow, KeyEvent, PolicyRow, VolumeKeysRow};
use crate::output::print_rows;
use crate::secrets::{Need, now_ns, open};
use crate::table::Table;
use crate::units;

const NS_PER_SECOND: i64 = 1_000_000_000;

pub(super) fn policies(cli: &Globals) -> Result<ExitCode, Failure> {
    let realm = open(cli, Need::Keys, Arc::new(|_| {}))?.keys()?.realm().map_err(director)?;
    let allowed = |permission| permission == Permission::Allowed;
    if cli.json {
        let row = |policy: &Policy| {
            Ok(PolicyRow {
                name: policy.name.to_string(),
                algorithm: policy.algorithm.map(Algorithm::name),
                encryption_period_s: seconds(policy.encryption_period),
                cryptoperiod_s: seconds(policy.cryptoperiod),
                export: allowed(policy.export),
                import: allowed(policy.import),
                agents_revoke: allowed(policy.agents_revoke),
                isolation_limit_s: seconds(policy.isolation_limit),
            })
        };
        return print_rows(realm.policies().map(row));
    }
    let mut table = Table::new(&["policy", "cipher", "encrypts for", "decrypts for", "export", "import"]);
    for policy in realm.policies() {
        let yes = |permission| if allowed(permission) { "yes" } else { "no" }.to_owned();
        table.row(vec![
            policy.name.to_string(),
            policy.algorithm.map_or("that of the pool", Algorithm::name).to_owned(),
            policy.encryption_period.to_string(),
            policy.cryptoperiod.to_string(),
            yes(policy.export),
            yes(policy.import),
        ]);
    }
    print(&table)
}

pub(super) fn add_policy(cli: &Globals, add: &PolicyAdd) -> Result<ExitCode, Failure> {
    let permission = |forbidden| if forbidden { Permission::Forbidden } else { Permission::Allowed };
    let policy = Policy {
        name: add.name.clone(),
        algorithm: add.cipher.map(|cipher| match cipher {
            KeyCipher::Gcm => Algorithm::Aes256Gcm,
            KeyCipher::Ccm => Algorithm::Aes256Ccm,
        }),
        encryption_period: period(add.encrypt_for.as_deref())?,
        cryptoperiod: period(add.decrypt_for.as_deref())?,
        export: permission(add.no_export),
        import: permission(add.no_import),
        agents_revoke: permission(!add.agents_revoke),
        isolation_limit: period(add.isolated_for.as_deref())?,
    };
    let said = format!(
        "policy {}: a key encrypts for {} and decrypts for {}, from its first issue",
        policy.name, policy.encryption_period, policy.cryptoperiod
    );
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    let mut keys = site.keys()?;
    if add.replace { keys.replace_policy(policy) } else { keys.put_policy(policy) }.map_err(director)?;
    tell(cli, &said, &KeyEvent::PolicySet { name: add.name.to_string() })?;
    if add.decrypt_for.is_some() && !cli.json {
        println!(
            "After that time a volume cannot be read unless somebody extends it (`capstan keys extend-decryption`), so \
             make the time longer than the retention of the objects."
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn groups(cli: &Globals) -> Result<ExitCode, Failure> {
    let realm = open(cli, Need::Keys, Arc::new(|_| {}))?.keys()?.realm().map_err(director)?;
    let issued =
        |group: &KeyGroup| realm.units().flat_map(|unit| &unit.keys).filter(|key| key.group == group.name).count();
    if cli.json {
        return print_rows(realm.groups().map(|group| {
            Ok(GroupRow { name: group.name.to_string(), policy: group.policy.to_string(), keys: issued(group) })
        }));
    }
    let mut table = Table::new(&["group", "policy", ">keys"]);
    for group in realm.groups() {
        table.row(vec![group.name.to_string(), group.policy.to_string(), issued(group).to_string()]);
    }
    print(&table)
}

pub(super) fn add_group(cli: &Globals, name: &Name, policy: &Name) -> Result<ExitCode, Failure> {
    let group = KeyGroup { name: name.clone(), policy: policy.clone() };
    let site = open(cli, Need::Keys, Arc::new(|_| {}))?;
    site.keys()?.put_group(group).map_err(director)?;
    let said = format!(
        "group {name}: its keys are under policy {policy}; volumes of pool {name} get them when they are labelled from now on"
    );
    tell(cli, &said, &KeyEvent::GroupSet { name: name.to_string(), policy: policy.to_string() })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn drives(cli: &Globals) -> Result<ExitCode, Failure> {
    let realm = open(cli, Need::Keys, Arc::new(|_| {}))?.keys()?.realm().map_err(director)?;
    let names = |agent: &Agent| agent.groups.iter().map(Name::to_string).collect::<Vec<_>>();
    if cli.json {
        return print_rows(realm.agents().map(|agent| {
            Ok(KeyDriveRow {
                serial: agent.name.to_string(),
                groups: names(agent),
                default_group: agent.default_group.to_string(),
            })
        }));
    }
    let mut table = Table::new(&["drive", "groups", "unasked"]);
    for agent in realm.agents() {
        table.row(vec![agent.name.to_string(), names(agent).join(", "), agent.default_group.to_string()]);
    }
    print(&table)?;
    eprintln!("A drive that is not listed may use every group, and uses `default` unasked.");
    Ok(ExitCode::SUCCESS)
}

pub(super) fn set_drive(cli: &Globals, serial: &Name, groups: &[Name]) -> Result<ExitCode, Failure> {
    let default_group = groups.first().cloned().unwrap_or_default();
    let said = format!("drive {serial}: begins volumes with keys of group {default_group}");
    let agent = Agent { name: serial.clone(), groups: groups.iter().cloned().collect(), default_group };
    open(cli, Need::Keys, Arc::new(|_| {}))?.keys()?.put_agent(agent).map_err(director)?;
    let groups = groups.iter().map(Name::to_string).collect();
    tell(cli, &said, &KeyEvent::DriveSet { serial: serial.to_string(), groups })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn volumes(cli: &Globals, only: &[String]) -> Result<ExitCode, Failure> {
    let realm = open(cli, Need::Keys, Arc::new(|_| {}))?.keys()?.realm().map_err(director)?;
    for name in only {
        let known = Volser::new(name).is_ok_and(|volser| realm.unit(&volser).is_some());
        if !known {
            return Err(Failure::Usage(format!(
                "no key was issued for volume {name}: `capstan keys volumes` lists all"
            )));
        }
    }
    let units: Vec<_> =
        realm.units().filter(|unit| only.is_empty() || only.iter().any(|name| name == unit.volser.as_str())).collect();
    let began = |issued_for| if issued_for == KeyUse::Begin { "begin" } else { "append" };
    if cli.json {
        let rows = units.iter().map(|unit| {
            let cartridge = |seen: &SeenCartridge| CartridgeRow {
                serial: seen.serial.as_ref().map(ToString::to_string),
                since_ns: seen.since_ns,
                seen_as: if seen.seen_as == SeenAs::Own { "own" } else { "another" },
            };
            let key = |key: &IssuedKey| IssuedKeyRow {
                tag: key.tag.to_string(),
                group: key.group.to_string(),
                issued_for: Some(began(key.issued_for)),
                issued_ns: key.issued_ns,
                dropped_ns: key.dropped_ns,
            };
            Ok(VolumeKeysRow {
                volume: unit.volser.to_string(),
                first_seen_ns: Some(unit.first_seen_ns),
                last_seen_ns: Some(unit.last_seen_ns),
                read_until_ns: unit.read_until_ns,
                serial: unit.cartridges.own().map(ToString::to_string),
                cartridges: unit.cartridges.iter().map(cartridge).collect(),
                keys: unit.keys.iter().map(key).collect(),
            })
        });
        return print_rows(rows);
    }
    let mut table =
        Table::new(&["volume", "key", "group", "issued for", "issued", "dropped", "read until", "cartridge"]);
    for unit in &units {
        for key in &unit.keys {
            table.row(vec![
                unit.volser.to_string(),
                key.tag.to_string(),
                key.group.to_string(),
                began(key.issued_for).to_owned(),
                units::time(key.issued_ns),
                units::time(key.dropped_ns.unwrap_or_default()),
                units::time(unit.read_until_ns.unwrap_or_default()),
                unit.cartridges.own().map(ToString::to_string).unwrap_or_default(),
            ]);
        }
    }
    print(&table)?;
    for unit in units {
        unit.cartridges.others().for_each(|other| warn_of_another(&unit.volser, other.serial, other.since_ns));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn extend(cli: &Globals, volume: &str, time: &str) -> Result<ExitCode, Failure> {
    let volser = Volser::new(volume).map_err(|error| Failure::Usage(error.to_string()))?;
    let until_ns = now_ns().saturating_add(units::parse_age(time).map_err(Failure::Usage)?);
    open(cli, Need::Keys, Arc::new(|_| {}))?.keys()?.extend_reading(&volser, until_ns).map_err(director)?;
    let said = format!("the keys of volume {volser} are given out for reading until {}", units::time(until_ns));
    tell(cli, &said, &KeyEvent::ReadingExtended { volume: volser.to_string(), until_ns })?;
    Ok(ExitCode::SUCCESS)
}

fn print(table: &Table) -> Result<ExitCode, Failure> {
    table.print(&mut std::io::stdout().lock()).map_err(Failure::output)?;
    Ok(ExitCode::SUCCESS)
}

fn seconds(period: Period) -> Option<u32> {
    match period {
        Period::Unlimited => None,
        Period::Seconds(seconds) => Some(seconds),
    }
}

/// A period as it is written: `7d`, or nothing for ever.
fn period(text: Option<&str>) -> Result<Period, Failure> {
    let Some(text) = text else { return Ok(Period::Unlimited) };
    let seconds = units::parse_age(text).map_err(Failure::Usage)? / NS_PER_SECOND;
    let seconds = u32::try_from(seconds).map_err(|_| {
        Failure::Usage(format!(
            "{text} is longer than a period can be (136 years): leave the option out for one that never ends"
        ))
    })?;
    Ok(Period::Seconds(seconds))
}
