//! Everything, at all three places.

use capstan_format::{KeyTag, Volser};
use capstan_keys::{DataUnit, Name};

use super::super::backups::{newest_kept, time};
use super::super::jobs::Progress;
use super::opened::{Lying, Opener, named, objects};
use super::{OwnProof, RetrievalProof, Unproved, own_proof};
use crate::node::{LOOKED_AT_ONCE, Node};
use crate::path::Path;
use crate::state::View;

/// What is named of all that is not proved.
const NAMED_MAX: usize = 1000;
/// Why a key that this node knows is not proved.
const KEPT: &str = "the ledger: its record was taken away there, or altered, and this node goes on with what it knew; see `keyd status`";

/// A key of a data unit, as it is to be proved.
enum Claim {
    /// There is no record of it.
    Missing(KeyTag),
    /// Its record, and the commit that it is of.
    There { key: Lying, commit: i64 },
    /// The ledger has it no more, or another in its place.
    Kept(KeyTag),
}

/// Proves every key of every data unit that is not destroyed, and every object of KMIP clients.
pub(super) fn prove(node: &Node, epoch: u32, progress: &Progress) -> RetrievalProof {
    let revision = node.progress().borrow().applied;
    let objects = objects(node);
    progress.expect((node.view(|view| view.ledger().unit_count()) + objects.len()) as u64);
    let mut prover = node.view(|view| Prover::new(view, node, epoch));
    let pick = |view: View<'_>, unit: &DataUnit| {
        let claims = unit.keys.iter().filter_map(|issued| match view.ledger().key(&issued.tag) {
            None => Some(Claim::Missing(issued.tag)),
            Some(_) if view.ledger().is_kept(&Path::Key(issued.tag)) => Some(Claim::Kept(issued.tag)),
            Some(record) => {
                let commit = view.ledger().mark(&Path::Key(issued.tag)).revision;
                Lying::of(record).map(|key| Claim::There { key, commit })
            }
        });
        (unit.volser.clone(), claims.collect::<Vec<_>>())
    };
    node.walk_units(pick, |slice| {
        for (volser, claims) in slice {
            prover.unit(&volser, claims);
            progress.step();
        }
    });
    for batch in objects.chunks(LOOKED_AT_ONCE) {
        node.view(|view| batch.iter().for_each(|uid| prover.object(view, uid)));
        batch.iter().for_each(|_| progress.step());
    }
    let Prover { backup, units, proved, objects, unproved, unnamed, .. } = prover;
    let backup = backup.map(|(id, _)| id);
    let (kma, at) = (node.name().clone(), time(node.now_ns()));
    RetrievalProof { kma, revision, at, units, proved, objects, backup, unproved, unnamed }
}

struct Prover<'a> {
    opener: Opener<'a>,
    others: Vec<OwnProof>,
    /// The newest that is kept: its id, and the commit that it holds.
    backup: Option<(String, i64)>,
    units: u64,
    proved: u64,
    objects: u64,
    unproved: Vec<Unproved>,
    unnamed: u64,
}

impl<'a> Prover<'a> {
    fn new(view: View<'_>, node: &'a Node, epoch: u32) -> Self {
        let backup = newest_kept(view, epoch).map(|backup| (backup.id, backup.revision));
        let (opener, others) = (Opener::new(node), elsewhere(view, node.name()));
        Self { opener, others, backup, units: 0, proved: 0, objects: 0, unproved: Vec::new(), unnamed: 0 }
    }

    fn unit(&mut self, volser: &Volser, claims: Vec<Claim>) {
        self.units += u64::from(!claims.is_empty());
        for claim in claims {
            let (tag, why) = match claim {
                Claim::Missing(tag) => (tag, vec!["here: there is no record of it".to_owned()]),
                Claim::Kept(tag) => (tag, vec![KEPT.to_owned()]),
                Claim::There { key, commit } => {
                    let here = self.opener.key(&key);
                    (key.tag, self.missing(here, &key.tag.to_string(), commit))
                }
            };
            self.proved += u64::from(why.is_empty());
            self.note(&volser.to_string(), &tag.to_string(), why);
        }
    }

    fn object(&mut self, view: View<'_>, uid: &str) {
        let Some((commit, here)) = self.opener.object(view, uid) else { return };
        let why = self.missing(here, &named(uid), commit);
        self.objects += u64::from(why.is_empty());
        self.note("kmip", uid, why);
    }

    /// Notes why something is not proved. A million reasons would tell nobody more than a thousand, and their number.
    fn note(&mut self, unit: &str, key: &str, why: Vec<String>) {
        for why in why {
            match self.unproved.len() < NAMED_MAX {
                true => self.unproved.push(Unproved { unit: unit.to_owned(), key: key.to_owned(), why }),
                false => self.unnamed += 1,
            }
        }
    }

    /// Why something of that commit is not proved at all three places.
    fn missing(&self, here: Result<(), String>, name: &str, commit: i64) -> Vec<String> {
        let here = here.err().map(|why| format!("here: {why}"));
        let backup = not_in_backup(self.backup.as_ref().map(|(_, revision)| *revision), commit);
        here.into_iter().chain(not_elsewhere(&self.others, name, commit)).chain(backup).collect()
    }
}

/// What the other nodes of the cluster say of their copies.
fn elsewhere(view: View<'_>, kma: &Name) -> Vec<OwnProof> {
    let others = view.ledger().kmas().keys().filter(|other| *other != kma);
    others.filter_map(|other| own_proof(view, other)).collect()
}

fn not_elsewhere(others: &[OwnProof], name: &str, commit: i64) -> Option<String> {
    if others.iter().any(|other| other.revision >= commit && !other.refused.iter().any(|refused| refused == name)) {
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
    use jiff::Timestamp;

    use super::*;

    fn other(revision: i64, refused: &[&str]) -> OwnProof {
        let refused = refused.iter().map(|name| (*name).to_owned()).collect();
        OwnProof { revision, keys: 0, objects: 0, refused, at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn another_node_must_have_unwrapped_this_very_key() {
        for name in ["01", "kmip/01"] {
            assert!(not_elsewhere(&[], name, 5).is_some());
            assert!(not_elsewhere(&[other(4, &[])], name, 5).is_some());
            assert!(not_elsewhere(&[other(5, &[name])], name, 5).is_some());
            assert!(not_elsewhere(&[other(5, &[name]), other(5, &[])], name, 5).is_none());
            assert!(not_elsewhere(&[other(5, &["02"])], name, 5).is_none());
        }
    }

    #[test]
    fn a_backup_from_before_the_last_change_proves_nothing() {
        assert!(not_in_backup(None, 5).is_some() && not_in_backup(Some(4), 5).is_some());
        assert!(not_in_backup(Some(5), 5).is_none());
    }
}
