//! What people ask of a node.

use std::path::Path;

use capstan_keys::Name;
use capstan_keys::api::{PeerId, RequestId};
use capstan_keys::cluster::{ClusterClient, Identity, Repeat, enrol as enrol_peer};
use serde::Serialize;
use serde_json::Value;

use super::arguments::{Asking, Enrol, Status, Unlock};
use super::secrets::passphrase;

pub(super) fn enrol(asked: &Enrol) -> anyhow::Result<()> {
    anyhow::ensure!(
        !exists(&asked.identity),
        "{} exists already and is left as it is: name another file",
        asked.identity.display()
    );
    let text = passphrase("one-time passphrase", asked.passphrase_file.as_deref())?;
    let peer = PeerId { kind: asked.kind, name: asked.name.clone() };
    let identity = enrol_peer(&asked.at, peer, text.parse()?)?;
    identity.save(&asked.identity)?;
    println!(
        "{} of cluster {} is enrolled; its certificate and key are in {}",
        identity.certificate().peer,
        identity.certificate().cluster,
        asked.identity.display()
    );
    Ok(())
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn client(asking: &Asking) -> anyhow::Result<ClusterClient> {
    let identity = Identity::load(&asking.identity)?;
    Ok(ClusterClient::open(&identity, std::slice::from_ref(&asking.node), "")?)
}

#[derive(Serialize)]
struct Share<'a> {
    holder: &'a Name,
    passphrase: &'a str,
}

pub(super) fn unlock(asked: &Unlock) -> anyhow::Result<()> {
    let client = client(&asked.asking)?;
    let passphrase = passphrase(&format!("passphrase of holder {}", asked.holder), asked.passphrase_file.as_deref())?;
    let share = Share { holder: &asked.holder, passphrase: &passphrase };
    let said: Value = client.post("/v1/unlock", &share, &RequestId::random()?, Repeat::SameRequest)?;
    match (said["state"].as_str(), said["needed"].as_u64(), said["given"].as_array()) {
        (Some("unlocked"), ..) => println!("the node is unlocked"),
        (_, Some(needed), Some(given)) => {
            println!("{} of {needed} shares are there; the others have a quarter of an hour", given.len());
        }
        _ => println!("{said}"),
    }
    Ok(())
}

pub(super) fn status(asked: &Status) -> anyhow::Result<()> {
    let status: Value = client(&asked.asking)?.get("/v1/status")?;
    println!("{status:#}");
    Ok(())
}
