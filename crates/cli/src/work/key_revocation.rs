//! `keys retire` and `keys compromise` where a cluster keeps the keys: a mover takes them out of use as an agent, if
//! their policy lets agents.

use std::process::ExitCode;

use capstan_director::key_cluster;
use capstan_format::{KeyTag, Volser};
use capstan_keys::Revocation;
use capstan_keys::cluster::{ClusterPlace, KeyCluster};

use crate::failure::Failure;
use crate::failure::director;
use crate::globals::Globals;
use crate::progress::Display;
use crate::prompt::confirm;
use crate::secrets::now_ns;

pub(super) fn revoke(
    cli: &Globals,
    place: ClusterPlace,
    what: &str,
    why: Revocation,
    yes: bool,
) -> Result<ExitCode, Failure> {
    let cluster = key_cluster(place, now_ns, &Display::new(cli).events());
    for tag in named(&cluster, what)? {
        confirm(&format!("Key {tag} will encrypt nothing any more, for whoever uses it."), yes)?;
        let revoked = cluster.revoke(&tag, why).map_err(director)?;
        println!("key {tag} of volume {} is {}: it encrypts nothing any more", revoked.volume, revoked.state);
    }
    if why == Revocation::Compromised {
        println!("Copy what matters to volumes with other keys (`capstan copy`), and relabel these volumes.");
    }
    Ok(ExitCode::SUCCESS)
}

/// A key by its tag, or those that a volume holds.
pub(super) fn named(cluster: &KeyCluster, what: &str) -> Result<Vec<KeyTag>, Failure> {
    if let Ok(tag) = what.parse() {
        return Ok(vec![tag]);
    }
    let volser = Volser::new(what).map_err(|error| Failure::Usage(error.to_string()))?;
    let keys = cluster.keys_of_volume(&volser).map_err(director)?;
    let held = keys.into_iter().filter(|key| key.dropped.is_none() && key.destroyed.is_none());
    let held: Vec<_> = held.map(|key| key.key).collect();
    if held.is_empty() {
        let said = format!("volume {volser} holds nothing of any key: `capstan keys volumes` lists those of this site");
        return Err(Failure::Usage(said));
    }
    Ok(held)
}
