//! `keys list` and `keys volumes` where a cluster keeps the keys: what it lets a mover know of the keys of this site's
//! volumes.
//!
//! In the columns of a key store of this machine. What a mover is not told (what a key was issued for, until when a
//! volume is read) stays empty: `keyd units` has it, for people with a role.

use std::process::ExitCode;
use std::sync::Arc;

use capstan_director::key_cluster;
use capstan_format::{MediumSerial, Volser};
use capstan_keys::api::{CartridgeListed, CartridgeSeenAs, KeyOfVolume};
use capstan_keys::cluster::ClusterPlace;

use super::key_output::warn_of_another;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{CartridgeRow, IssuedKeyRow, KeyRow, VolumeKeysRow};
use crate::output::print_rows;
use crate::progress::Display;
use crate::secrets::{Need, now_ns, open};
use crate::table::Table;
use crate::units;

/// The keys of a volume.
type OfVolume = (Volser, Vec<KeyOfVolume>);

/// The cartridges that a volume was seen on, in order.
struct Cartridges(Vec<CartridgeListed>);

impl Cartridges {
    fn own(&self) -> Option<&MediumSerial> {
        self.0.iter().rev().find(|seen| seen.seen_as == CartridgeSeenAs::Own)?.serial.as_ref()
    }

    /// Those that came under the same barcode since it was begun.
    fn others(&self) -> impl Iterator<Item = &CartridgeListed> {
        self.0.iter().rev().take_while(|seen| seen.seen_as == CartridgeSeenAs::Another)
    }
}

pub(super) fn list(cli: &Globals, place: ClusterPlace) -> Result<ExitCode, Failure> {
    let known = ask(cli, place, &[])?;
    let keys = known.iter().flat_map(|(volser, keys)| keys.iter().map(move |key| (volser, key)));
    if cli.json {
        let row = |(volser, key): (&Volser, &KeyOfVolume)| {
            Ok(KeyRow {
                tag: key.key.to_string(),
                volume: volser.to_string(),
                group: key.group.to_string(),
                algorithm: key.algorithm.name(),
                state: key.state.to_string(),
                created_ns: ns(key.issued),
                destroyed_ns: key.destroyed.map(ns),
            })
        };
        return print_rows(keys.map(row));
    }
    let mut table = Table::new(&["tag", "volume", "group", "cipher", "state", "created", "destroyed"]);
    for (volser, key) in keys {
        table.row(vec![
            key.key.to_string(),
            volser.to_string(),
            key.group.to_string(),
            key.algorithm.name().to_owned(),
            key.state.to_string(),
            units::time(ns(key.issued)),
            units::time(key.destroyed.map(ns).unwrap_or_default()),
        ]);
    }
    table.print(&mut std::io::stdout().lock()).map_err(Failure::output)?;
    eprintln!("These are the keys of this site's volumes; `keyd keys list` has those of all.");
    Ok(ExitCode::SUCCESS)
}

pub(super) fn volumes(cli: &Globals, place: ClusterPlace, only: &[String]) -> Result<ExitCode, Failure> {
    let known = ask(cli, place.clone(), only)?;
    let cartridges = ask_cartridges(cli, place, &known);
    if cli.json {
        let rows = known.iter().zip(&cartridges).map(|((volser, keys), cartridges)| {
            let cartridge = |seen: &CartridgeListed| CartridgeRow {
                serial: seen.serial.as_ref().map(ToString::to_string),
                since_ns: ns(seen.since),
                seen_as: if seen.seen_as == CartridgeSeenAs::Own { "own" } else { "another" },
            };
            let key = |key: &KeyOfVolume| IssuedKeyRow {
                tag: key.key.to_string(),
                group: key.group.to_string(),
                issued_for: None,
                issued_ns: ns(key.issued),
                dropped_ns: key.dropped.map(ns),
            };
            Ok(VolumeKeysRow {
                volume: volser.to_string(),
                first_seen_ns: None,
                last_seen_ns: None,
                read_until_ns: None,
                serial: cartridges.own().map(ToString::to_string),
                cartridges: cartridges.0.iter().map(cartridge).collect(),
                keys: keys.iter().map(key).collect(),
            })
        });
        return print_rows(rows);
    }
    let mut table =
        Table::new(&["volume", "key", "group", "issued for", "issued", "dropped", "read until", "cartridge"]);
    for ((volser, keys), cartridges) in known.iter().zip(&cartridges) {
        for key in keys {
            table.row(vec![
                volser.to_string(),
                key.key.to_string(),
                key.group.to_string(),
                String::new(),
                units::time(ns(key.issued)),
                units::time(key.dropped.map(ns).unwrap_or_default()),
                String::new(),
                cartridges.own().map(ToString::to_string).unwrap_or_default(),
            ]);
        }
    }
    table.print(&mut std::io::stdout().lock()).map_err(Failure::output)?;
    for ((volser, _), cartridges) in known.iter().zip(&cartridges) {
        cartridges.others().for_each(|other| warn_of_another(volser, other.serial, ns(other.since)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for the keys of the volumes that are named, or else of all that the catalog knows; those without keys are left
/// out.
fn ask(cli: &Globals, place: ClusterPlace, only: &[String]) -> Result<Vec<OfVolume>, Failure> {
    let named = only.iter().map(|name| Volser::new(name).map_err(|error| Failure::Usage(error.to_string())));
    let mut volumes = named.collect::<Result<Vec<_>, _>>()?;
    if only.is_empty() {
        let site = open(cli, Need::Nothing, Arc::new(|_| {}))?;
        let known = site.catalog().volumes().map_err(|error| Failure::because(&error))?;
        volumes = known.into_iter().map(|volume| volume.volser).collect();
    }
    let cluster = key_cluster(place, now_ns, &Display::new(cli).events());
    let mut known = Vec::new();
    for volser in volumes {
        let keys = cluster.keys_of_volume(&volser).map_err(|error| Failure::Director(error.into()))?;
        if !keys.is_empty() {
            known.push((volser, keys));
        } else if !only.is_empty() {
            let said = format!("no key was issued for volume {volser}: `capstan keys volumes` lists all of this site");
            return Err(Failure::Usage(said));
        }
    }
    Ok(known)
}

/// The cartridges of those volumes. A node that is older than this program does not tell them, and the list is worth as
/// much without.
fn ask_cartridges(cli: &Globals, place: ClusterPlace, known: &[OfVolume]) -> Vec<Cartridges> {
    let cluster = key_cluster(place, now_ns, &Display::new(cli).events());
    known.iter().map(|(volser, _)| Cartridges(cluster.cartridges_of_volume(volser).unwrap_or_default())).collect()
}

fn ns(time: jiff::Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}
