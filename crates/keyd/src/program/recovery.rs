//! `keyd restore`, `keyd prove`, `keyd certify`: the cluster anew, that it could be, and that a key could not.

use std::path::PathBuf;

use crate::backup::{BackupCheck, CoreBackup, Knowledge, Known, OpenCore, UnusableRecord};
use crate::destruction::Certificate;
use crate::ledger::{EtcdLedger, EtcdTiming};
use crate::service::{self, KmaSettings, RestoreInputs, Restored, RetrievalProof, Source, StateDirectory};
use anyhow::Context;
use capstan_keys::{Argon2Cost, Name};
use capstan_officer::{Asking, passphrase};
use clap::Args;
use jiff::Timestamp;

use super::arguments::{Place, Root, of_name};
use super::clients::awaited;
use super::founding::{now_ns, root, runtime, settings, token_settings};

/// What opens backups: the core security backup, and who is there to open it.
#[derive(Debug, Args)]
struct Core {
    /// The core security backup
    #[arg(long, value_name = "FILE")]
    core: PathBuf,
    /// A custodian who is here; asked for their passphrase
    #[arg(long = "custodian", value_name = "NAME", required = true)]
    custodians: Vec<Name>,
    /// A custodian's passphrase is in a file instead
    #[arg(long, value_name = "NAME=FILE", value_parser = of_name)]
    custodian_passphrase_file: Vec<(Name, PathBuf)>,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The state directory of the new node; it must be empty or not exist
    #[arg(long)]
    state: PathBuf,
    #[command(flatten)]
    core: Core,
    /// The database backup
    #[arg(long, value_name = "FILE", required_unless_present = "replica")]
    database: Option<PathBuf>,
    /// Instead of --database: the state directory of a remaining node, if the majority is lost for good
    #[arg(long, value_name = "STATE", conflicts_with = "database")]
    replica: Option<PathBuf>,
    /// The last epoch and revision that the cluster is known to have reached: an older backup is refused
    #[arg(long, value_name = "EPOCH:REVISION", value_parser = known, conflicts_with = "go_back")]
    reached: Option<Known>,
    /// Go back to this backup although a newer state is known, because everything newer is lost and the quorum has
    /// decided so
    #[arg(long)]
    go_back: bool,
    /// A user who has lost their certificate and enrols again
    #[arg(long = "enrol", value_name = "NAME")]
    enrol: Vec<Name>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    root: Root,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The database backup
    #[arg(value_name = "FILE")]
    database: PathBuf,
    #[command(flatten)]
    core: Core,
    /// The last epoch and revision that the cluster is known to have reached: an older backup fails the check
    #[arg(long, value_name = "EPOCH:REVISION", value_parser = known)]
    reached: Option<Known>,
}

#[derive(Debug, Args)]
pub(crate) struct Prove {
    #[command(flatten)]
    asking: Asking,
    /// In JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Certify {
    #[command(flatten)]
    asking: Asking,
    /// The key, in hexadecimal
    #[arg(value_name = "TAG")]
    key: String,
}

fn known(text: &str) -> Result<Known, String> {
    let numbers =
        text.split_once(':').and_then(|(epoch, revision)| Some((epoch.parse().ok()?, revision.parse().ok()?)));
    let (epoch, revision) = numbers.ok_or("give EPOCH:REVISION, as `keyd backups list` says them")?;
    Ok(Known { epoch, revision })
}

pub(super) fn restore(asked: &Restore, cost: Argon2Cost) -> anyhow::Result<()> {
    let core = opened(&asked.core)?;
    let root = root(&asked.root, cost)?;
    let token = token_settings(asked.root.token_module.as_ref(), asked.root.token_pin_file.as_ref());
    let kma = KmaSettings { token, ..settings(&asked.place, core.keys.cluster()) };
    let source = match (&asked.database, &asked.replica) {
        (Some(file), _) => Source::Database(file.clone()),
        (None, Some(state)) => Source::Replica(state.clone()),
        (None, None) => anyhow::bail!("give --database or --replica"),
    };
    let knowledge = match (asked.reached, asked.go_back) {
        (Some(known), _) => Knowledge::Reached(known),
        (None, true) => Knowledge::Nothing,
        // The core security backup was made in an epoch, so that was reached.
        (None, false) => Knowledge::Reached(Known { epoch: core.epoch, revision: 0 }),
    };
    let restoring =
        RestoreInputs { kma: kma.clone(), root, source, knowledge, enrol: asked.enrol.clone(), now_ns: now_ns() };
    let directory = StateDirectory::create(&asked.state)?;
    let restored = runtime()?.block_on(async {
        let ledger = EtcdLedger::new(&kma.cluster.to_string(), &kma.etcd.members()?, EtcdTiming::default()).await?;
        anyhow::Ok(service::restore(&directory, &ledger, &core, restoring).await?)
    });
    say(asked, &restored.inspect_err(|_| directory.discard())?);
    Ok(())
}

/// Says what a backup would restore, and fails where a restore would.
pub(super) fn check(asked: &Check) -> anyhow::Result<()> {
    let core = opened(&asked.core)?;
    let reached = asked.reached.unwrap_or(Known { epoch: core.epoch, revision: 0 });
    let BackupCheck { manifest, proved, unproved } =
        service::check_stored(&core, &asked.database, Knowledge::Reached(reached))?;
    for UnusableRecord { path, reason } in &unproved {
        println!("{path}  {reason}");
    }
    let id: String = manifest.id.iter().map(|byte| format!("{byte:02x}")).collect();
    let made = Timestamp::from_nanosecond(i128::from(manifest.made_ns))?;
    println!(
        "backup {id}, made {made:.0} in epoch {}, holds {} records and {} keys at revision {}; {} of the keys were unwrapped and compared",
        manifest.epoch,
        manifest.records,
        manifest.keys.len(),
        manifest.revision,
        proved.len()
    );
    anyhow::ensure!(
        unproved.is_empty(),
        "a restore would refuse {}: the {} lines above say why. Make another backup while the cluster still works, or \
         check the previous one",
        asked.database.display(),
        unproved.len()
    );
    Ok(())
}

fn opened(asked: &Core) -> anyhow::Result<OpenCore> {
    let core = CoreBackup::read(&asked.core)?;
    let mut shares = Vec::new();
    for name in &asked.custodians {
        let file = asked.custodian_passphrase_file.iter().find(|(other, _)| other == name);
        let passphrase = passphrase(&format!("passphrase of custodian {name}"), file.map(|(_, file)| file.as_path()))?;
        shares.push(core.open_share(name, &passphrase)?);
    }
    core.open(&shares).context("the core security backup does not open")
}

fn say(asked: &Restore, restored: &Restored) {
    let Restored { epoch, reached, made, keys, recovered, revoked, left, passphrases } = restored;
    println!(
        "epoch {epoch} has begun, from epoch {}, revision {} of {made:.0}: {keys} keys, each unwrapped and compared",
        reached.epoch, reached.revision
    );
    println!(
        "{recovered} keys of pools may have been given out since then; they are kept for reading, and are never given \
         out for writing"
    );
    println!(
        "Certificates of people, drives and KMIP clients hold as before; those of the old nodes ({revoked}) are revoked. What was revoked or \
         destroyed since {made:.0} is not known here: do it again. See that no old node runs on."
    );
    let left: Vec<_> = left.iter().map(ToString::to_string).collect();
    println!(
        "The disks of the old nodes ({}) still hold their data: destroy them, then run `keyd kmas confirm-destroyed \
         NAME`. Until then no destruction of a key is certified. If a disk is found, it may show which keys its node \
         gave out while it was cut off: see KEYS.md, \"A node is lost\".",
        left.join(", ")
    );
    for (name, passphrase) in passphrases {
        println!("  {name} enrols again with  {}", passphrase.expose().as_str());
    }
    println!(
        "Next: `keyd run --state {}`, `keyd unlock`, then `keyd backup`: no key is given out before. Every further node joins anew, under \
         another name than an old one.",
        asked.state.display()
    );
}

pub(super) fn prove(asked: &Prove) -> anyhow::Result<()> {
    let proof: RetrievalProof = awaited(&asked.asking.client()?, "/v1/proof")?;
    if asked.json {
        println!("{}", serde_json::to_string_pretty(&proof)?);
    } else {
        for unproved in &proof.unproved {
            println!("{}  {}  {}", unproved.unit, unproved.key, unproved.why);
        }
        println!(
            "{} data units: {} keys and {} KMIP objects proved here, at another node and in the newest backup that is on record",
            proof.units, proof.proved, proof.objects
        );
        if let Some(backup) = &proof.backup {
            let made = proof.backup_made.map(|made| format!(" of {made:.0}")).unwrap_or_default();
            let place = proof.backup_place.as_deref().filter(|place| !place.is_empty());
            let place = place.map(|place| format!(", put at {place:?}")).unwrap_or_default();
            println!(
                "That is backup {backup}{made}{place}. Its file was read when it was made, but not now: run \
                 `keyd backups check FILE` to see whether it is still there and opens"
            );
        }
        if proof.recovered > 0 {
            println!(
                "also proved: {} keys of lost nodes that no volume has named yet. Volumes that nobody has read since \
                 the loss may be encrypted with them (`keyd keys recovered`)",
                proof.recovered
            );
        }
    }
    anyhow::ensure!(
        proof.unproved.is_empty(),
        "not everything can be proved: {} statements above say what and why",
        proof.unproved.len() as u64 + proof.unnamed
    );
    Ok(())
}

pub(super) fn certify(asked: &Certify) -> anyhow::Result<()> {
    let path = format!("/v1/keys/{}/destruction", asked.key);
    let certificate: Certificate = asked.asking.client()?.post(&path, &())?;
    println!("{}", serde_json::to_string_pretty(&certificate)?);
    eprintln!(
        "etcd's history is compacted; to give its pages back run `etcdctl defrag` on each member. Its write-ahead logs keep ciphertext for a while."
    );
    Ok(())
}
