//! Proof that keys can be had back: every key of every data unit, at three places.
//!
//! ```text
//!  here         its record, unwrapped now under its group's key and compared with its tag
//!  elsewhere    another node has proved its own copy up to a commit that has this record: `proof/KMA`
//!  backup       the newest verified backup that is kept was made at or after the record's last change
//! ```
//! A million keys are opened a slice at a time, so that agents are answered meanwhile ([`Node::walk_keys`]).
//!
//! Each node proves its own copy every ten minutes and says so in the ledger. What is not proved is listed, each with why: a proof that
//! passes over something is none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use capstan_format::{Algorithm, KeyTag};
use capstan_keys::{DataUnit, Name, WrappedKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::backups::{newest_kept, time};
use super::people::Person;
use super::{Service, entry};
use crate::authority::Act;
use crate::desk::Decided;
use crate::door::Refusal;
use crate::node::{Node, NodeError};
use crate::path::Path;
use crate::record::IssuedRecord;
use crate::root::GroupKey;
use crate::state::View;

/// How often a node proves its own copy unasked.
const EVERY: Duration = Duration::from_secs(600);
/// When it tries again what could not be said.
const SOON: Duration = Duration::from_secs(5);
/// Keys that are named in a proof; a copy of which more do not open is none, and its node has proved nothing.
const REFUSED_MAX: usize = 1000;
const PROOF: &str = "proof/";

/// What a node says of its own copy: the record `proof/KMA`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnProof {
    /// The commit up to which it has proved it.
    pub revision: i64,
    /// How many keys it has unwrapped.
    pub keys: u64,
    /// Those that did not unwrap.
    pub refused: Vec<String>,
    /// When.
    pub at: Timestamp,
}

/// What was proved of all data units, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetrievalProof {
    /// The node that was asked.
    pub kma: Name,
    /// The commit it was at.
    pub revision: i64,
    /// When.
    pub at: Timestamp,
    /// Data units with keys that are not destroyed.
    pub units: u64,
    /// Keys of theirs that were proved at all three places.
    pub proved: u64,
    /// The backup that was counted on.
    pub backup: Option<String>,
    /// What was not proved.
    pub unproved: Vec<Unproved>,
}

/// A key that was not proved somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unproved {
    /// The data unit.
    pub unit: String,
    /// The key.
    pub key: String,
    /// Where, and why not.
    pub why: String,
}

pub(super) fn routes(service: Arc<Service>) -> Router {
    Router::new().route("/v1/proof", get(prove)).with_state(service)
}

/// Proves this node's copy now and then, as long as it runs.
pub(super) async fn prove_now_and_then(service: &Service) {
    loop {
        let opened = service.opened.notified();
        let pause = match service.open_node() {
            None => EVERY,
            Some(node) => match say_own(&node).await {
                Ok(()) => EVERY,
                Err(error) => {
                    tracing::debug!(%error, "this node's copy was proved, and the others do not hear of it yet");
                    SOON
                }
            },
        };
        let _ = tokio::time::timeout(pause, opened).await;
    }
}

async fn prove(person: Person) -> Result<Json<RetrievalProof>, Refusal> {
    person.at_once(Act::ProveRetrieval).await?;
    let Person { service, node, peer, from, .. } = person;
    let (revision, now_ns, epoch) = (node.progress().borrow().applied, node.now_ns(), service.settings.epoch);
    let at_work = node.clone();
    let proof = tokio::task::spawn_blocking(move || of_all(&at_work, (revision, epoch), now_ns));
    let proof = proof.await.map_err(|_| Refusal::failed())?;
    let noted = entry(&peer, from, Act::ProveRetrieval.into()).reading();
    service.note(noted.with("proved", proof.proved).with("unproved", proof.unproved.len() as u64)).await?;
    Ok(Json(proof))
}

/// Proves this node's own copy, and says so in the ledger.
async fn say_own(node: &Arc<Node>) -> Result<(), NodeError> {
    let (revision, at) = (node.progress().borrow().applied, time(node.now_ns()));
    let at_work = node.clone();
    let opened = tokio::task::spawn_blocking(move || Opened::of(&at_work));
    let Ok(Opened { keys, refused }) = opened.await else { return Ok(()) };
    if refused.len() > REFUSED_MAX {
        tracing::error!(refused = refused.len(), "keys cannot be had back from this node, too many to say which");
        return Ok(());
    }
    for (tag, why) in &refused {
        tracing::error!(%tag, why, "a key cannot be had back from this node");
    }
    let refused = refused.keys().map(KeyTag::to_string).collect();
    let Ok(bytes) = serde_json::to_vec(&OwnProof { revision, keys, refused, at }) else { return Ok(()) };
    let put = (proof_path(node.name()), bytes);
    node.change(|_| Ok::<_, NodeError>(Decided::records(vec![put.clone()], Vec::new()))).await
}

/// What it takes to see whether a key opens.
struct Lying {
    tag: KeyTag,
    algorithm: Algorithm,
    group: Name,
    wrapped: WrappedKey,
}

impl Lying {
    /// Nothing of a key that is destroyed.
    fn of(record: &IssuedRecord) -> Option<Self> {
        let (tag, algorithm) = (record.stored.record.tag, record.stored.record.algorithm);
        Some(Self { tag, algorithm, group: record.issued.group.clone(), wrapped: record.stored.wrapped? })
    }
}

/// The keys of groups, each opened once.
struct Groups<'a> {
    node: &'a Node,
    opened: BTreeMap<Name, Option<GroupKey>>,
}

impl<'a> Groups<'a> {
    fn new(node: &'a Node) -> Self {
        Self { node, opened: BTreeMap::new() }
    }

    /// Unwraps a key, and compares it with its tag.
    fn open(&mut self, key: &Lying) -> Result<(), String> {
        let Lying { tag, algorithm, group: name, wrapped } = key;
        let group = self.opened.entry(name.clone()).or_insert_with(|| {
            let record = self.node.view(|view| view.ledger().group(name).map(|group| group.wrapped))?;
            self.node.keys().group_key(name, &record).ok()
        });
        match group {
            Some(group) => group.unwrap(*tag, *algorithm, wrapped).map(drop).map_err(|error| error.to_string()),
            None => Err(format!("the key of group {name} is not there, or does not open")),
        }
    }
}

/// Every key of a copy, opened.
struct Opened {
    keys: u64,
    refused: BTreeMap<KeyTag, String>,
}

impl Opened {
    /// A slice at a time: agents are answered meanwhile. A key that changes meanwhile is opened as it was or as it is, and that it was changed
    /// behind the commit that is proved, its own commit says.
    fn of(node: &Node) -> Self {
        let (mut groups, mut opened) = (Groups::new(node), Self { keys: 0, refused: BTreeMap::new() });
        let pick = |_: View<'_>, record: &IssuedRecord| Lying::of(record);
        node.walk_keys(pick, |slice| {
            for key in slice.into_iter().flatten() {
                match groups.open(&key) {
                    Ok(()) => opened.keys += 1,
                    Err(why) => drop(opened.refused.insert(key.tag, why)),
                }
            }
        });
        opened
    }
}

/// A key of a data unit, as it is to be proved.
enum Claim {
    /// There is no record of it.
    Missing(KeyTag),
    /// Its record, and the commit that it is of.
    There { key: Lying, commit: i64 },
}

/// Proves every key of every data unit that is not destroyed.
fn of_all(node: &Node, (revision, epoch): (i64, u32), now_ns: i64) -> RetrievalProof {
    let (others, backup) = node.view(|view| (elsewhere(view, node.name()), newest_kept(view, epoch)));
    let backed_up = backup.as_ref().map(|backup| backup.revision);
    let mut groups = Groups::new(node);
    let (mut proved, mut units, mut unproved) = (0, 0, Vec::new());
    let pick = |view: View<'_>, unit: &DataUnit| {
        let claims = unit.keys.iter().filter_map(|issued| match view.ledger().key(&issued.tag) {
            None => Some(Claim::Missing(issued.tag)),
            Some(record) => {
                let commit = view.ledger().mark(&Path::Key(issued.tag)).revision;
                Lying::of(record).map(|key| Claim::There { key, commit })
            }
        });
        (unit.volser.clone(), claims.collect::<Vec<_>>())
    };
    node.walk_units(pick, |slice| {
        for (volser, claims) in slice {
            units += u64::from(!claims.is_empty());
            for claim in claims {
                let (tag, why) = match claim {
                    Claim::Missing(tag) => (tag, vec!["here: there is no record of it".to_owned()]),
                    Claim::There { key, commit } => {
                        let here = groups.open(&key).err().map(|why| format!("here: {why}"));
                        let elsewhere = not_elsewhere(&others, &key.tag, commit);
                        let in_backup = not_in_backup(backed_up, commit);
                        (key.tag, here.into_iter().chain(elsewhere).chain(in_backup).collect())
                    }
                };
                proved += u64::from(why.is_empty());
                let (unit, key) = (volser.to_string(), tag.to_string());
                unproved.extend(why.into_iter().map(|why| Unproved { unit: unit.clone(), key: key.clone(), why }));
            }
        }
    });
    let (kma, backup) = (node.name().clone(), backup.map(|backup| backup.id));
    RetrievalProof { kma, revision, at: time(now_ns), units, proved, backup, unproved }
}

/// Where a node says that.
pub(super) fn proof_path(kma: &Name) -> Path {
    Path::Other(format!("{PROOF}{kma}"))
}

/// The commit up to which a node says that its own copy is proved, and so on its disk.
pub(super) fn proved_up_to(view: View<'_>, kma: &Name) -> i64 {
    let said = view.ledger().other(&format!("{PROOF}{kma}"));
    said.and_then(|said| serde_json::from_slice(said).ok()).map_or(0, |OwnProof { revision, .. }| revision)
}

/// What the other nodes of the cluster say of their copies.
fn elsewhere(view: View<'_>, kma: &Name) -> Vec<OwnProof> {
    let others = view.ledger().kmas().keys().filter(|other| *other != kma);
    others.filter_map(|other| serde_json::from_slice(view.ledger().other(&format!("{PROOF}{other}"))?).ok()).collect()
}

fn not_elsewhere(others: &[OwnProof], tag: &KeyTag, commit: i64) -> Option<String> {
    let tag = tag.to_string();
    if others.iter().any(|other| other.revision >= commit && !other.refused.contains(&tag)) {
        return None;
    }
    Some(match others.iter().map(|other| other.revision).max() {
        None => "elsewhere: no other node has proved its copy; a cluster needs at least two".to_owned(),
        Some(at) => format!("elsewhere: the other nodes have proved theirs up to commit {at}, it is of {commit}"),
    })
}

fn not_in_backup(backup: Option<i64>, commit: i64) -> Option<String> {
    match backup {
        None => Some("backup: there is none of this epoch that is kept; `keyd backup`".to_owned()),
        Some(at) if at < commit => {
            Some(format!("backup: the newest holds commit {at}, and the key was changed in {commit}; `keyd backup`"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(revision: i64, refused: &[KeyTag]) -> OwnProof {
        let refused = refused.iter().map(KeyTag::to_string).collect();
        OwnProof { revision, keys: 0, refused, at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn another_node_must_have_unwrapped_this_very_key() {
        let tag = KeyTag([1; 16]);
        assert!(not_elsewhere(&[], &tag, 5).is_some());
        assert!(not_elsewhere(&[other(4, &[])], &tag, 5).is_some());
        assert!(not_elsewhere(&[other(5, &[tag])], &tag, 5).is_some());
        assert!(not_elsewhere(&[other(5, &[tag]), other(5, &[])], &tag, 5).is_none());
    }

    #[test]
    fn a_backup_from_before_the_last_change_proves_nothing() {
        assert!(not_in_backup(None, 5).is_some() && not_in_backup(Some(4), 5).is_some());
        assert!(not_in_backup(Some(5), 5).is_none());
    }
}
