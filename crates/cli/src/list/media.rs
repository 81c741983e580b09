//! Volumes, drives and pools.

use std::process::ExitCode;

use capstan_catalog::{MediumKind, Pool, Volume};
use capstan_director::{Whereabouts, generation_of};
use capstan_format::Algorithm;
use capstan_tape::ElementAddress;

use crate::args::{self, PoolAction};
use crate::audited::{ShellAct, audited};
use crate::failure::Failure;
use crate::failure::director;
use crate::globals::Globals;
use crate::json::{self, PoolRow, VolumeRow};
use crate::output::{print, print_rows};
use crate::secrets::site;
use crate::table::Table;
use crate::units;
use crate::wording::state_name;

fn place_name(place: Whereabouts) -> String {
    match place {
        Whereabouts::At(address) => address.to_string(),
        Whereabouts::Outside => "outside".to_owned(),
        Whereabouts::Shelf => "shelf".to_owned(),
        Whereabouts::Unknown => "unknown".to_owned(),
    }
}

pub(crate) fn volumes(cli: &Globals, args: &args::Volumes) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let mut volumes = site.catalog().volumes().map_err(director)?;
    volumes.retain(|volume| args.pool.is_none() || volume.pool == args.pool);
    let places = site.whereabouts(&volumes)?;
    let damage = site.catalog().damage().map_err(director)?;
    let damaged = |volume: &Volume| -> u64 {
        damage.iter().filter(|damage| damage.volser == volume.volser).map(|damage| damage.blocks.blocks).sum()
    };
    let verified = |volume: &Volume| site.catalog().volume_verified(&volume.volser).map_err(director);
    if cli.json {
        let rows = volumes.iter().zip(&places).map(|(volume, place)| {
            Ok(VolumeRow {
                volume: volume.volser.to_string(),
                pool: volume.pool.clone(),
                state: state_name(volume.state),
                worm: volume.medium == MediumKind::WriteOnce,
                id: volume.id.map(|id| id.to_string()),
                encryption: volume.key.map(|key| key.algorithm.name()),
                key: volume.key.map(|key| key.tag.to_string()),
                capacity_bytes: volume.capacity,
                written_bytes: volume.written,
                labelled_ns: volume.labelled_ns,
                written_ns: volume.written_ns,
                mounts: volume.mounts,
                errors: volume.errors,
                recycled: volume.recycled,
                damaged_blocks: damaged(volume),
                verified_ns: verified(volume)?.map(|verified| verified.at_ns),
                in_library: matches!(place, Whereabouts::At(address) if !matches!(address, ElementAddress::ImportExport(_))),
                place: place_name(*place),
                library: volume.library.clone(),
                generation: generation_of(volume),
            })
        });
        return print_rows(rows);
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
    let several = site.library_names().len() > 1;
    for (volume, place) in volumes.iter().zip(&places) {
        table.row(vec![
            volume.volser.to_string(),
            volume.pool.clone().unwrap_or_else(|| "scratch".to_owned()),
            match (volume.medium, damaged(volume)) {
                (MediumKind::Rewritable, 0) => state_name(volume.state).to_owned(),
                (MediumKind::WriteOnce, 0) => format!("{} (WORM)", state_name(volume.state)),
                (_, blocks) => format!("{}, {} bad", state_name(volume.state), units::counted(blocks, "block")),
            },
            volume.key.map_or("none", |key| key.algorithm.name()).to_owned(),
            units::bytes(volume.written),
            volume.capacity.map(units::bytes).unwrap_or_default(),
            units::time(volume.written_ns.unwrap_or_default()),
            volume.mounts.to_string(),
            volume.errors.to_string(),
            match verified(volume)? {
                Some(verified) => units::day(verified.at_ns),
                None if volume.checkpoint_lbn > 0 => "never".to_owned(),
                None => String::new(),
            },
            match several {
                true => format!("{} {}", volume.library, place_name(*place)),
                false => place_name(*place),
            },
        ]);
    }
    print(&table)
}

pub(crate) fn pools(cli: &Globals, args: &args::Pools) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    if let Some(PoolAction::Remove { name }) = &args.action {
        audited(&site, ShellAct::ChangePools, &[name], || Ok(site.remove_pool(name)?))?;
        match cli.json {
            true => json::print(&json::Event::PoolRemoved { pool: name.clone() })?,
            false => println!("pool {name} is removed"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(PoolAction::Add(add)) = &args.action {
        let retention = add.retention.as_deref().map(units::parse_age).transpose().map_err(Failure::Usage)?;
        let encryption = if add.plain { None } else { add.encrypt.algorithm() };
        let add_pool = || Ok(site.add_pool(&add.name, encryption, retention.map(i64::cast_unsigned))?);
        audited(&site, ShellAct::ChangePools, &[&add.name], add_pool)?;
        let volumes = site.catalog().volumes().map_err(director)?;
        let of_copies = site.catalog().pools().map_err(director)?.into_iter().map(|pool| pool.name);
        let of_copies: Vec<_> = of_copies.filter(|name| name.starts_with(&format!("{}-copy", add.name))).collect();
        if cli.json {
            json::print(&json::Event::PoolSet(PoolRow {
                pool: add.name.clone(),
                encryption: encryption.map(Algorithm::name),
                retention_ns: retention.map(i64::cast_unsigned),
                volumes: volumes.iter().filter(|volume| volume.pool.as_ref() == Some(&add.name)).count(),
            }))?;
        } else if !cli.quiet {
            let kept = match retention {
                Some(ns) => format!("for {}", units::period(ns.cast_unsigned())),
                None => "for ever".to_owned(),
            };
            let cipher = encryption.map_or("none", Algorithm::name);
            println!("pool {}: encryption {cipher}; backups into it are kept {kept} from now on", add.name);
            if !of_copies.is_empty() {
                println!("Pools of further copies are as they were: {}", of_copies.join(", "));
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let pools = site.catalog().pools().map_err(director)?;
    let volumes = site.catalog().volumes().map_err(director)?;
    let of = |pool: &Pool| volumes.iter().filter(|volume| volume.pool.as_ref() == Some(&pool.name)).count();
    if cli.json {
        let rows = pools.iter().map(|pool| {
            Ok(PoolRow {
                pool: pool.name.clone(),
                encryption: pool.encryption.map(Algorithm::name),
                retention_ns: pool.retention_ns,
                volumes: of(pool),
            })
        });
        return print_rows(rows);
    }
    let mut table = Table::new(&["pool", "encryption", "retention", ">volumes"]);
    for pool in &pools {
        let retention = pool.retention_ns.map(units::period);
        table.row(vec![
            pool.name.clone(),
            pool.encryption.map_or("none", Algorithm::name).to_owned(),
            retention.unwrap_or_else(|| "for ever".to_owned()),
            of(pool).to_string(),
        ]);
    }
    let scratch = volumes.iter().filter(|volume| volume.pool.is_none()).count();
    table.row(vec!["scratch".to_owned(), "-".to_owned(), "-".to_owned(), scratch.to_string()]);
    print(&table)
}
