//! Volumes, drives and pools.

use std::borrow::Cow;
use std::process::ExitCode;

use capstan_format::Algorithm;
use capstan_server::cell::users::media_words::{PoolRow, PoolsAnswer, VolumesAnswer, VolumesQuery};

use crate::args::{self, Cipher, PoolAction};
use crate::audited::{ShellAct, audited};
use crate::door::door;
use crate::failure::{Failure, director};
use crate::globals::Globals;
use crate::json;
use crate::output::{print, print_rows};
use crate::secrets::{check_not_users, site};
use crate::table::Table;
use crate::units;

pub(crate) fn volumes(cli: &Globals, args: &args::Volumes) -> Result<ExitCode, Failure> {
    let asked = VolumesQuery { pool: args.pool.clone() };
    let VolumesAnswer { volumes, libraries } = door(cli)?.volumes(&asked)?;
    if cli.json {
        return print_rows(volumes.into_iter().map(Ok));
    }
    let mut table = Table::new(&[
        "volume",
        "pool",
        "state",
        "encryption",
        ">written",
        ">capacity",
        "last written",
        ">mounts",
        ">errors",
        "verified",
        "place",
    ]);
    let several = libraries > 1;
    for volume in volumes {
        table.row(vec![
            volume.volume,
            volume.pool.unwrap_or_else(|| "scratch".to_owned()),
            match (volume.worm, volume.damaged_blocks) {
                (false, 0) => volume.state.into_owned(),
                (true, 0) => format!("{} (WORM)", volume.state),
                (_, blocks) => format!("{}, {} bad", volume.state, units::counted(blocks, "block")),
            },
            volume.encryption.map_or_else(|| "none".to_owned(), Cow::into_owned),
            units::bytes(volume.written_bytes),
            volume.capacity_bytes.map(units::bytes).unwrap_or_default(),
            units::time(volume.written_ns.unwrap_or_default()),
            volume.mounts.to_string(),
            volume.errors.to_string(),
            match volume.verified_ns {
                Some(verified_ns) => units::day(verified_ns),
                None if volume.has_checkpoint => "never".to_owned(),
                None => String::new(),
            },
            match (&volume.vault, volume.in_library) {
                (Some(vault), false) if volume.place.starts_with("mail") => {
                    format!("{}, to vault {vault}", volume.place)
                }
                (Some(vault), false) => format!("vault {vault}"),
                _ => match several {
                    true => format!("{} {}", volume.library, volume.place),
                    false => volume.place,
                },
            },
        ]);
    }
    print(&table)
}

pub(crate) fn pools(cli: &Globals, args: &args::Pools) -> Result<ExitCode, Failure> {
    let Some(action) = &args.action else { return list_pools(cli) };
    check_not_users(cli)?;
    let site = site(cli)?;
    let add = match action {
        PoolAction::Remove { name } => {
            audited(&site, ShellAct::ChangePools, &[name], || Ok(site.remove_pool(name)?))?;
            match cli.json {
                true => json::print(&json::Event::PoolRemoved { pool: name.clone() })?,
                false => println!("pool {name} is removed"),
            }
            return Ok(ExitCode::SUCCESS);
        }
        PoolAction::Add(add) => add,
    };
    let there = site.catalog().pool(&add.name).map_err(director)?;
    let retention = match (add.retention.as_deref(), &there) {
        (None, Some(there)) => there.retention_ns,
        (None | Some("forever"), _) => None,
        (Some(age), _) => Some(units::parse_age(age).map_err(Failure::Usage)?.cast_unsigned()),
    };
    let encryption = match (add.encrypt, &there) {
        _ if add.plain => None,
        (None, Some(there)) => there.encryption,
        (cipher, _) => cipher.unwrap_or(Cipher::Gcm).algorithm(),
    };
    let add_pool = || Ok(site.add_pool(&add.name, encryption, retention)?);
    audited(&site, ShellAct::ChangePools, &[&add.name], add_pool)?;
    let volumes = site.catalog().volumes().map_err(director)?;
    let pools = site.catalog().pools().map_err(director)?;
    if cli.json {
        for pool in pools.iter().filter(|pool| pool.name == add.name) {
            json::print(&json::Event::PoolSet(PoolRow::new(pool, &volumes)))?;
        }
    } else if !cli.quiet {
        let kept = match retention {
            Some(ns) => format!("for {}", units::period(ns)),
            None => "for ever".to_owned(),
        };
        let cipher = encryption.map_or("none", Algorithm::name);
        println!("pool {}: encryption {cipher}; backups into it are kept {kept} from now on", add.name);
        let of_copies = pools.into_iter().map(|pool| pool.name);
        let of_copies: Vec<_> = of_copies.filter(|name| name.starts_with(&format!("{}-copy", add.name))).collect();
        if !of_copies.is_empty() {
            println!("Pools of further copies are as they were: {}", of_copies.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list_pools(cli: &Globals) -> Result<ExitCode, Failure> {
    let PoolsAnswer { pools, scratch } = door(cli)?.pools()?;
    if cli.json {
        return print_rows(pools.into_iter().map(Ok));
    }
    let mut table = Table::new(&["pool", "encryption", "retention", ">volumes"]);
    for pool in pools {
        table.row(vec![
            pool.pool,
            pool.encryption.map_or_else(|| "none".to_owned(), Cow::into_owned),
            pool.retention_ns.map_or_else(|| "for ever".to_owned(), units::period),
            pool.volumes.to_string(),
        ]);
    }
    table.row(vec!["scratch".to_owned(), "-".to_owned(), "-".to_owned(), scratch.to_string()]);
    print(&table)
}
