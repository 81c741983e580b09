//! `keyd init` and `keyd join`: nodes come into being.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::authority::QuorumRule;
use crate::ledger::{EtcdLedger, EtcdTiming};
use crate::root::{Existing, Holder, Pin, Quorum, SealedRoot, Token};
use crate::service::{self, EtcdSettings, Founded, Founding, KmaSettings, RootChoice, StateDirectory, TokenSettings};
use anyhow::Context;
use capstan_keys::Argon2Cost;
use capstan_keys::api::{Base64, ClusterId, KmaMember, PeerId, PeerKind};
use capstan_keys::cluster::{ClusterClient, EnrolmentPassphrase, enrol};
use capstan_officer::{new_passphrase, passphrase};
use capstan_service::identity::OldestTls;
use serde::Deserialize;

use super::arguments::{Init, Join, Place, Root};

const WEEKEND_SECONDS: u32 = 3 * 24 * 3600;

pub(super) fn init(asked: &Init, cost: Argon2Cost) -> anyhow::Result<()> {
    let rule = QuorumRule::new(asked.approvals, WEEKEND_SECONDS).context("an act by quorum takes 1 to 16 approvals")?;
    let root = root(&asked.root, cost)?;
    let cluster = service::new_cluster()?;
    let token = token_settings(asked.root.token_module.as_ref(), asked.root.token_pin_file.as_ref());
    let kma = KmaSettings { token, ..settings(&asked.place, cluster) };
    let directory = StateDirectory::create(&asked.state)?;
    let founding = Founding { kma: kma.clone(), root, users: asked.users.clone(), rule, now_ns: now_ns() };
    let founded = runtime()?.block_on(async {
        let ledger = EtcdLedger::new(&cluster.to_string(), &kma.etcd.members()?, EtcdTiming::default()).await?;
        anyhow::Ok(service::found(&directory, &ledger, founding).await?)
    });
    let Founded { cluster, passphrases } = founded.inspect_err(|_| directory.discard())?;
    println!("cluster {cluster} is founded; its first node is {}, in {}", kma.name, asked.state.display());
    println!("Each user enrols once, within a week, with the passphrase of theirs. It is shown only here:");
    for (name, passphrase) in passphrases {
        println!("  {name}  {}", passphrase.expose().as_str());
    }
    println!(
        "Next: `keyd run --state {}`, `keyd enrol`, `keyd unlock`; then a backup, before anything is written to tape.",
        asked.state.display()
    );
    Ok(())
}

pub(super) fn root(asked: &Root, cost: Argon2Cost) -> anyhow::Result<RootChoice> {
    if let (Some(label), Some(module)) = (&asked.token, &asked.token_module) {
        let pin = match &asked.token_pin_file {
            Some(file) => Pin::read(file)?,
            None => Pin::new(&passphrase(&format!("PIN of token {label}"), None)?),
        };
        return Ok(RootChoice::Token(Token::open(module, label, &pin)?));
    }
    let mut holders = Vec::new();
    for name in &asked.holders {
        let file = asked.passphrase_file.iter().find(|(other, _)| other == name).map(|(_, file)| file.as_path());
        let passphrase = new_passphrase(&format!("passphrase of holder {name}"), file)?;
        holders.push(Holder { name: name.clone(), passphrase });
    }
    Ok(RootChoice::Quorum(Quorum { threshold: asked.needed, holders, cost }))
}

/// What a node that joins is told of the root key.
#[derive(Deserialize)]
struct RootTold {
    root: Base64,
    epoch: u32,
}

pub(super) fn join(asked: &Join) -> anyhow::Result<()> {
    let text = passphrase("one-time passphrase of this node", asked.passphrase_file.as_deref())?;
    let passphrase: EnrolmentPassphrase = text.parse()?;
    let directory = StateDirectory::create(&asked.state)?;
    let joined = joined(asked, &passphrase, &directory);
    let kma = joined.inspect_err(|_| directory.discard())?;
    println!("node {} of cluster {} is in {}", kma.name, kma.cluster, asked.state.display());
    println!("Next: `keyd run --state {}`, and `keyd unlock` by as many holders as it takes.", asked.state.display());
    Ok(())
}

fn joined(asked: &Join, passphrase: &EnrolmentPassphrase, directory: &StateDirectory) -> anyhow::Result<KmaSettings> {
    let own = PeerId { kind: PeerKind::Kma, name: asked.place.name.clone() };
    let identity = enrol(&asked.enrol_at, own, passphrase)?;
    let cluster = identity.certificate().cluster;
    // Kept before anything else: the passphrase is used up.
    directory.write_identity(&identity)?;
    let client = ClusterClient::open_at(&identity, std::slice::from_ref(&asked.node))?;
    let RootTold { root, epoch } = client.get("/v1/root")?;
    SealedRoot::decode(&root.0)?.write(&directory.root(), Existing::Kept)?;
    let token = token_settings(asked.token_module.as_ref(), asked.token_pin_file.as_ref());
    let mut kma = KmaSettings { epoch, token, ..settings(&asked.place, cluster) };
    stand_as_approved(&mut kma, &client.get::<Vec<KmaMember>>("/v1/kmas")?);
    directory.write_settings(&kma)?;
    Ok(kma)
}

/// Where a node stands is what the quorum has approved: a site that nobody knows would count as another place.
fn stand_as_approved(kma: &mut KmaSettings, members: &[KmaMember]) {
    let Some(own) = members.iter().find(|member| member.name == kma.name.as_str()) else { return };
    if !kma.site.is_empty() && kma.site != own.site {
        let sites: BTreeSet<&str> = members.iter().map(|member| member.site.as_str()).collect();
        let (sites, approved) = (sites.into_iter().collect::<Vec<_>>().join(", "), &own.site);
        println!(
            "note: the quorum has approved {} for site {approved:?}, and so it stands there, not at {:?}; nodes stand at: {sites} \
             (`keyd kmas move`)",
            kma.name, kma.site
        );
    }
    kma.site.clone_from(&own.site);
}

/// Where the token is, as the node finds it again at each start.
pub(super) fn token_settings(module: Option<&PathBuf>, pin_file: Option<&PathBuf>) -> Option<TokenSettings> {
    Some(TokenSettings { module: module?.clone(), pin_file: pin_file.cloned() })
}

pub(super) fn settings(place: &Place, cluster: ClusterId) -> KmaSettings {
    let port = place.address.rsplit_once(':').map_or("7443", |(_, port)| port);
    let listen = place.listen.clone().unwrap_or_else(|| format!("[::]:{port}"));
    let kma = KmaSettings::new(place.name.clone(), cluster, place.address.clone(), listen, place.etcd.clone());
    KmaSettings {
        site: place.site.clone(),
        enrol_listen: place.enrol_listen.clone(),
        kmip_listen: place.kmip_listen.clone(),
        kmip_tls_oldest: OldestTls::default(),
        metrics_listen: place.metrics_listen.clone(),
        pool_keys: place.pool,
        etcd: EtcdSettings {
            authority: place.etcd_authority.clone(),
            certificate: place.etcd_certificate.clone(),
            private_key: place.etcd_key.clone(),
            ..kma.etcd
        },
        ..kma
    }
}

pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the system gives no threads")
}

pub(super) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
