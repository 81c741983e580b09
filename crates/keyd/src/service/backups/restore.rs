//! A cluster founded anew, from a backup or from what one node holds: the ceremony after everything else is lost.
//!
//! ```text
//!  core security backup + custodians --> cluster key --+
//!  database backup, or a node's replica ---------------+--> every record opened, every key unwrapped --> sealed for epoch + 1
//!                                                      '--> an empty ledger, one node, a root key under its new holders
//! ```
//! **What becomes of the records.** Keys, data units, policies, groups, agents, users and backups stay. Keys of pools
//! are moved to `recovered/`: they may have been given out after the backup was made, so they are kept to read with and
//! never given out to write with. The old nodes are gone, their certificates revoked, their disks on record
//! ([`super::left`]); what was half done (enrolments, requests to the quorum) is over. Certificates of people, agents
//! and KMIP clients hold as before, since the authority is the same.
//!
//! **What a restore cannot know** is what happened after the backup: certificates revoked since are let in again, keys
//! destroyed since are there again, which is why whoever restores is told the moment of the backup.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use capstan_format::KeyTag;
use capstan_keys::Name;
use capstan_keys::api::{PeerId, PeerKind};
use capstan_keys::cluster::EnrolmentPassphrase;
use capstan_service::identity::{Authority, AuthorityKey};
use jiff::Timestamp;
use serde_json::json;
use thiserror::Error;

use super::left::LeftBehind;
use super::time;
use crate::authority::User;
use crate::authority_record::AuthorityRecord;
use crate::backup::{
    BackupError, ClusterRecords, Knowledge, Known, Manifest, OpenCore, read_manifest, restore as restore_records,
    write_database,
};
use crate::journal::wipe;
use crate::ledger::{Entry, Expected, Ledger, LedgerError, Outcome, Snapshot, Transaction};
use crate::path::Path;
use crate::replica::{Replica, ReplicaError};
use crate::root::{ClusterKeys, Existing};
use crate::seal::{SealError, SealedContent};
use crate::service::directory::{DirectoryError, KmaSettings, StateDirectory};
use crate::service::found::{FoundingError, RootChoice, enrolment_of, first_node};
use crate::service::registrar::{CertificateRecord, authority_path, revoked_path};

/// Records of one commit of a restore, and their bytes: well below what a ledger takes.
const BATCH_RECORDS_MAX: usize = 80;
const BATCH_BYTES_MAX: usize = 512 << 10;

/// The backup of a replica that is restored from: it holds every key, and must not outlive its being read.
const COPY: &str = "replica.backup";

/// Where the records come from.
pub enum Source {
    /// A database backup.
    Database(PathBuf),
    /// The state directory of a node whose majority is lost for good.
    Replica(PathBuf),
}

/// What a cluster is restored with.
pub struct RestoreInputs {
    /// The node that begins it anew.
    pub kma: KmaSettings,
    /// What opens the root key from now on.
    pub root: RootChoice,
    /// Where the records come from.
    pub source: Source,
    /// What is known of how far the cluster had come.
    pub knowledge: Knowledge,
    /// Users who enrol again, since they have lost their certificates.
    pub enrol: Vec<Name>,
    /// Now, in nanoseconds since 1970.
    pub now_ns: i64,
}

/// A cluster that was restored.
pub struct Restored {
    /// The epoch that has begun.
    pub epoch: u32,
    /// How far the cluster had come in what it was restored from.
    pub reached: Known,
    /// And when that was.
    pub made: Timestamp,
    /// Keys that were issued.
    pub keys: usize,
    /// Keys of pools, which may have been.
    pub recovered: usize,
    /// Certificates of the old nodes, which are let in no more.
    pub revoked: usize,
    /// The old nodes, by the names under which their disks are on record.
    pub left: Vec<Name>,
    /// What each of those who enrol again enrols with.
    pub passphrases: Vec<(Name, EnrolmentPassphrase)>,
}

/// Why nothing was restored.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// Medium or operator: the backups.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// Host or operator: the new node.
    #[error(transparent)]
    Founding(#[from] FoundingError),
    /// Operator or host: a state directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Medium or operator: the replica that is restored from.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// Peers: the ledger.
    #[error("the cluster was not restored")]
    Ledger(#[from] LedgerError),
    /// Host: sealing.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Operator: this etcd has records of the cluster.
    #[error(
        "this etcd holds {records} records of the cluster already (the first is {first}), and a restore begins in an empty one. If the \
         cluster lives, join it. If a restore was cut short, or this etcd was put back from a copy: start an empty etcd, or \
         `etcdctl del --prefix /capstan/{cluster}/`"
    )]
    NotEmpty {
        /// How many.
        records: usize,
        /// One of them.
        first: String,
        /// The cluster.
        cluster: String,
    },
    /// Operator: the replica is another node's.
    #[error("the replica is node {found}'s, whose journal goes with it: restore it as --name {found}")]
    OtherNode {
        /// Whose it is.
        found: Name,
    },
    /// Operator: nothing was ever committed to the replica.
    #[error("the replica {} holds nothing: restore from another node's, or from a database backup", path.display())]
    EmptyReplica {
        /// The replica.
        path: PathBuf,
    },
    /// Medium: the two backups are of two authorities, or there is none.
    #[error(
        "the certificate authority in the records is not the one of the core security backup: take the core security backup made last"
    )]
    OtherAuthority,
    /// Operator: nobody of that name.
    #[error("there is no user {user} in what is restored: name one that there was")]
    NoSuchUser {
        /// Who.
        user: Name,
    },
}

/// A record as it is to be.
struct Planted {
    path: Path,
    change: u64,
    plaintext: Vec<u8>,
}

/// What is to be in the new ledger.
#[derive(Default)]
struct Replanted {
    records: Vec<Planted>,
    keys: usize,
    recovered: usize,
    revoked: usize,
    left: Vec<Name>,
}

/// Restores a cluster on an empty ledger, with its first node in a new state directory.
pub async fn restore(
    directory: &StateDirectory,
    ledger: &dyn Ledger,
    core: &OpenCore,
    restoring: RestoreInputs,
) -> Result<Restored, RestoreError> {
    let RestoreInputs { mut kma, root, source, knowledge, enrol, now_ns } = restoring;
    let found = ledger.read("").await?;
    if let Some(first) = found.entries.first() {
        let (records, first, cluster) = (found.entries.len(), first.path.clone(), kma.cluster.to_string());
        return Err(RestoreError::NotEmpty { records, first, cluster });
    }
    let (manifest, snapshot, epoch) = match source {
        Source::Database(file) => read_whole(core, &file, knowledge)?,
        Source::Replica(state) => {
            let file = backed_up_replica(directory, core, &kma, &state, now_ns)?;
            let read = read_whole(core, &file, knowledge);
            // Whatever was read: a key that is destroyed later would lie here still.
            sweep_copy(directory).map_err(|source| DirectoryError::Host { path: file, source })?;
            read?
        }
    };
    kma.epoch = epoch;
    let reached = Known { epoch: manifest.epoch, revision: manifest.revision };

    let left = LeftBehind::new(&kma.name, manifest.epoch, now_ns);
    let Replanted { mut records, keys, recovered, revoked, left } = replant(&core.keys, &snapshot, left, now_ns)?;
    let authority = authority(core, &records)?;
    let (identity, puts) = first_node(&authority, &kma, now_ns)?;
    let passphrases = enrolled_again(&enrol, &mut records, now_ns)?;
    // First of all, so that two who restore at once do not both; and the node last, so that what is there is whole once
    // it is.
    let begun = json!({
        "begun": time(now_ns), "restored_from": {"epoch": reached.epoch, "revision": reached.revision},
    });
    let begun = Path::Other(format!("epoch/{}", kma.epoch)).planted(begun.to_string().into_bytes());
    records.insert(0, begun);
    records.extend(puts.into_iter().map(|(path, plaintext)| path.planted(plaintext)));

    root.seal(&core.keys, kma.epoch)?.write(&directory.root(), Existing::Kept).map_err(FoundingError::from)?;
    directory.write_identity(&identity).map_err(FoundingError::from)?;
    commit(ledger, &core.keys, kma.epoch, &records).await?;
    directory.write_settings(&kma)?;
    let made = time(manifest.made_ns);
    Ok(Restored { epoch: kma.epoch, reached, made, keys, recovered, revoked, left, passphrases })
}

impl Path {
    fn planted(self, plaintext: Vec<u8>) -> Planted {
        Planted { path: self, change: 1, plaintext }
    }
}

/// What a backup holds, all of it in memory, and the epoch that begins with it.
fn read_whole(
    core: &OpenCore,
    file: &std::path::Path,
    knowledge: Knowledge,
) -> Result<(Manifest, Snapshot, u32), BackupError> {
    let manifest = read_manifest(file)?;
    let known_epoch = match knowledge {
        Knowledge::Reached(known) => known.epoch,
        Knowledge::Nothing => 0,
    };
    let epoch = manifest.epoch.max(core.epoch).max(known_epoch) + 1;
    let snapshot = restore_records(core, file, &ClusterRecords, knowledge, epoch)?;
    Ok((manifest, snapshot, epoch))
}

/// Overwrites the backup of a replica that a restore has made here, and takes it away, whole or half written.
pub(in crate::service) fn sweep_copy(directory: &StateDirectory) -> io::Result<()> {
    for name in [COPY.to_owned(), format!("{COPY}.partial")] {
        match wipe(&directory.file(&name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Makes a backup of a node's replica, beside its journal: what is restored is checked in one way, wherever it comes
/// from.
fn backed_up_replica(
    directory: &StateDirectory,
    core: &OpenCore,
    kma: &KmaSettings,
    state: &std::path::Path,
    now_ns: i64,
) -> Result<PathBuf, RestoreError> {
    let (old, settings) = StateDirectory::open(state)?;
    if settings.name != kma.name {
        return Err(RestoreError::OtherNode { found: settings.name });
    }
    let mut entries = Vec::new();
    let cluster = core.keys.cluster().to_string();
    let replica = Replica::open(&old.replica(), &cluster, settings.epoch.into(), |entry| entries.push(entry))?;
    let revision = replica.applied().ok_or_else(|| RestoreError::EmptyReplica { path: old.replica() })?;
    let file = directory.file(COPY);
    write_database(&file, &core.keys, settings.epoch, &Snapshot { revision, entries }, &ClusterRecords, now_ns)?;
    // What it has given out cut off is in its journal alone, and reconciled when the new node starts; what others have,
    // who are lost, in its copies of theirs.
    directory.copy_journals(&old)?;
    Ok(file)
}

/// Decides, record by record, what becomes of it.
fn replant(
    keys: &ClusterKeys,
    snapshot: &Snapshot,
    mut left: LeftBehind<'_>,
    now_ns: i64,
) -> Result<Replanted, RestoreError> {
    let issued = snapshot.entries.iter().filter_map(|entry| match Path::parse(&entry.path) {
        Path::Key(tag) => Some(tag),
        _ => None,
    });
    let issued: BTreeSet<KeyTag> = issued.collect();
    let mut replanted = Replanted::default();
    for Entry { path, sealed, .. } in &snapshot.entries {
        let opened = keys.sealer().open(path, sealed)?;
        if opened.content == SealedContent::Tombstone {
            // Nothing of this epoch can be put back in the next.
            continue;
        }
        let (change, plaintext) = (opened.change, opened.plaintext.to_vec());
        let path = Path::parse(path);
        match &path {
            Path::Kma(name) => {
                left.node(name, serde_json::from_slice(&plaintext).map_err(|_| unreadable(&path))?);
                continue;
            }
            Path::Held(name) => {
                left.held(name, &plaintext);
                continue;
            }
            Path::Pool { tag, .. } if issued.contains(tag) => continue,
            Path::Pool { tag, .. } => {
                replanted.recovered += 1;
                replanted.records.push(Path::recovered(tag).planted(plaintext));
                continue;
            }
            Path::Key(_) => replanted.keys += 1,
            Path::Other(other) => match other.split('/').next().unwrap_or_default() {
                "enrolment" | "enrolling" | "joining" | "pending" | "proof" | "anchor" | "wiped" | "wiped-copies" => {
                    continue;
                }
                "certificate" => replanted.records.extend(revocation(other, &plaintext, now_ns)),
                "removed" => {
                    if let Some(path) = left.moved(other, &plaintext) {
                        replanted.records.push(path.planted(plaintext));
                        continue;
                    }
                }
                _ => {}
            },
            Path::Unit(_) | Path::Policy(_) | Path::Group(_) | Path::Agent(_) | Path::Kmip(_) => {}
        }
        replanted.records.push(Planted { path, change, plaintext });
    }
    for (name, record) in left.records() {
        let path = Path::removed(&name);
        let record = serde_json::to_vec(&record).map_err(|_| unreadable(&path))?;
        replanted.records.push(path.planted(record));
        replanted.left.push(name);
    }
    let mut seen = BTreeSet::new();
    replanted.records.retain(|planted| seen.insert(planted.path.to_string()));
    replanted.revoked = seen.iter().filter(|path| path.starts_with("revoked/")).count();
    Ok(replanted)
}

/// A record that opens and says nothing this program knows.
fn unreadable(path: &Path) -> BackupError {
    BackupError::Unproved { count: 1, first: path.to_string() }
}

/// That the certificate of an old node is let in no more.
fn revocation(path: &str, certificate: &[u8], now_ns: i64) -> Option<Planted> {
    let record: CertificateRecord = serde_json::from_slice(certificate).ok()?;
    let serial = path.strip_prefix("certificate/")?.parse().ok()?;
    (record.peer.kind == PeerKind::Kma).then(|| {
        let why = json!({"at": time(now_ns), "why": "the cluster was restored without this node"});
        Path::Other(revoked_path(&serial)).planted(why.to_string().into_bytes())
    })
}

fn authority(core: &OpenCore, records: &[Planted]) -> Result<Authority, RestoreError> {
    let found = records.iter().find(|planted| planted.path == authority_path());
    opens_authority(core, &found.ok_or(RestoreError::OtherAuthority)?.plaintext)
}

/// The authority of a record, with the key that the core security backup has of it.
pub(super) fn opens_authority(core: &OpenCore, record: &[u8]) -> Result<Authority, RestoreError> {
    let known: AuthorityRecord = serde_json::from_slice(record).map_err(|_| RestoreError::OtherAuthority)?;
    // It opens only with its own certificate.
    Authority::open(known.certificate(), &AuthorityKey::new(core.ca_key.clone()))
        .map_err(|_| RestoreError::OtherAuthority)
}

/// New enrolments for users who are there; the certificates that they have lost are theirs no more.
fn enrolled_again(
    users: &[Name],
    records: &mut Vec<Planted>,
    now_ns: i64,
) -> Result<Vec<(Name, EnrolmentPassphrase)>, RestoreError> {
    let (mut passphrases, mut revoked) = (Vec::new(), Vec::new());
    for name in users {
        let no_such_user = || RestoreError::NoSuchUser { user: name.clone() };
        let path = Path::Other(format!("user/{name}"));
        let known = records.iter_mut().find(|planted| planted.path == path).ok_or_else(no_such_user)?;
        let mut user = User::decode(&known.plaintext).map_err(|_| no_such_user())?;
        // Lost is as good as stolen.
        for serial in std::mem::take(&mut user.certificates) {
            let serial: String = serial.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let why = json!({"at": time(now_ns), "why": "the user enrolled again when the cluster was restored"});
            revoked.push(Path::Other(format!("revoked/{serial}")).planted(why.to_string().into_bytes()));
        }
        known.plaintext = user.encode();
        known.change += 1;
        let peer = PeerId { kind: PeerKind::User, name: name.clone() };
        let ((path, enrolment), passphrase) = enrolment_of(peer, now_ns)?;
        records.push(path.planted(enrolment));
        passphrases.push((name.clone(), passphrase));
    }
    records.extend(revoked);
    Ok(passphrases)
}

async fn commit(ledger: &dyn Ledger, keys: &ClusterKeys, epoch: u32, records: &[Planted]) -> Result<(), RestoreError> {
    let mut transaction = Transaction::default();
    let mut bytes = 0;
    for Planted { path, change, plaintext } in records {
        let path = path.to_string();
        let sealed = keys.sealer().seal(&path, epoch, *change, plaintext)?;
        if transaction.put.len() >= BATCH_RECORDS_MAX || bytes + sealed.len() > BATCH_BYTES_MAX {
            commit_one(ledger, std::mem::take(&mut transaction)).await?;
            bytes = 0;
        }
        bytes += sealed.len() + 2 * path.len();
        transaction.expect.push((path.clone(), Expected::Absent));
        transaction.put.push((path, sealed));
    }
    commit_one(ledger, transaction).await
}

async fn commit_one(ledger: &dyn Ledger, transaction: Transaction) -> Result<(), RestoreError> {
    match ledger.commit(transaction).await? {
        Outcome::Committed { .. } => Ok(()),
        Outcome::Conflict => Err(FoundingError::Taken.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs::{self, File};
    use std::io::Read;

    use super::*;

    /// A restore from a replica left a backup of it in the new state directory for good: a key that was destroyed later
    /// was certified as gone, and lay on this disk.
    #[test]
    fn the_copy_of_a_replica_is_overwritten_whole_or_half_written() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::create(&folder.path().join("state")).unwrap();
        let files = ["replica.backup", "replica.backup.partial"].map(|name| directory.file(name));
        let held = files.each_ref().map(|path| {
            fs::write(path, "every key").unwrap();
            File::open(path).unwrap()
        });
        sweep_copy(&directory).unwrap();
        for (path, mut held) in files.iter().zip(held) {
            let mut left = Vec::new();
            held.read_to_end(&mut left).unwrap();
            assert!(!path.exists());
            assert_eq!(left, [0; 9], "{}", path.display());
        }
        sweep_copy(&directory).unwrap();
    }
}
