//! Everything, at all three places.

use capstan_format::{KeyTag, Volser};
use capstan_keys::api::BackupRecord;
use capstan_keys::{DataUnit, Name};
use jiff::Timestamp;

use super::super::jobs::JobProgress;
use super::opened::{Lying, Opener, named, objects, recovered_keys};
use super::{COUNTS_FOR, OwnProof, RetrievalProof, Unproved, own_proof};
use crate::node::{LOOKED_AT_ONCE, Node};
use crate::path::Path;
use crate::service::backup_record::newest_kept;
use crate::state::View;
use capstan_service::time::time;

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
pub(super) fn prove(node: &Node, epoch: u32, progress: &JobProgress) -> RetrievalProof {
    let revision = node.progress().borrow().applied;
    let (objects, recovered) = (objects(node), recovered_keys(node));
    let units = node.view(|view| view.ledger().unit_count());
    progress.expect((units + objects.len() + recovered.len()) as u64);
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
    for batch in recovered.chunks(LOOKED_AT_ONCE) {
        node.view(|view| batch.iter().for_each(|tag| prover.recovered(view, tag)));
        batch.iter().for_each(|_| progress.step());
    }
    for batch in objects.chunks(LOOKED_AT_ONCE) {
        node.view(|view| batch.iter().for_each(|uid| prover.object(view, uid)));
        batch.iter().for_each(|_| progress.step());
    }
    let Prover { backup, units, proved, recovered, objects, unproved, unnamed, .. } = prover;
    let (backup_made, backup_place) = backup.as_ref().map(|backup| (backup.made, backup.place.clone())).unzip();
    let backup = backup.map(|backup| backup.id);
    let (kma, at) = (node.name().clone(), time(node.now_ns()));
    RetrievalProof {
        kma,
        revision,
        at,
        units,
        proved,
        recovered,
        objects,
        backup,
        backup_made,
        backup_place,
        unproved,
        unnamed,
    }
}

struct Prover<'a> {
    opener: Opener<'a>,
    others: Others,
    /// The newest that is kept.
    backup: Option<BackupRecord>,
    units: u64,
    proved: u64,
    recovered: u64,
    objects: u64,
    unproved: Vec<Unproved>,
    unnamed: u64,
}

impl<'a> Prover<'a> {
    fn new(view: View<'_>, node: &'a Node, epoch: u32) -> Self {
        let backup = newest_kept(view, epoch);
        let (opener, others) = (Opener::new(node), Others::of(view, node));
        let (units, proved, recovered, objects) = (0, 0, 0, 0);
        Self { opener, others, backup, units, proved, recovered, objects, unproved: Vec::new(), unnamed: 0 }
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

    fn recovered(&mut self, view: View<'_>, tag: &KeyTag) {
        let Some((commit, here)) = self.opener.recovered(view, tag) else { return };
        let why = self.missing(here, &tag.to_string(), commit);
        self.recovered += u64::from(why.is_empty());
        self.note("recovered", &tag.to_string(), why);
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
        let backup = not_in_backup(self.backup.as_ref().map(|backup| backup.revision), commit);
        here.into_iter().chain(self.others.lack(name, commit)).chain(backup).collect()
    }
}

/// What the other nodes of the cluster say of their copies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Others {
    /// What counts.
    proofs: Vec<OwnProof>,
    /// Those that have said nothing for too long, each with when it did last.
    stale: Vec<(Name, Timestamp)>,
    now: Timestamp,
}

impl Others {
    fn of(view: View<'_>, node: &Node) -> Self {
        let others = view.ledger().kmas().keys().filter(|other| *other != node.name());
        let said = others.filter_map(|other| Some((other.clone(), own_proof(view, other)?)));
        Self::at(said, time(node.now_ns()))
    }

    /// What counts at a time. A clock that is ahead by that much tells no more than one that stands still.
    fn at(said: impl Iterator<Item = (Name, OwnProof)>, now: Timestamp) -> Self {
        let mut others = Self { now, ..Self::default() };
        for (kma, proof) in said {
            match now.duration_since(proof.at).unsigned_abs() > COUNTS_FOR {
                true => others.stale.push((kma, proof.at)),
                false => others.proofs.push(proof),
            }
        }
        others
    }

    /// Why none of them has proved something of that commit.
    fn lack(&self, name: &str, commit: i64) -> Option<String> {
        let proves =
            |proof: &OwnProof| proof.revision >= commit && !proof.refused.iter().any(|refused| refused == name);
        if self.proofs.iter().any(proves) {
            return None;
        }
        let why = match self.proofs.iter().map(|proof| proof.revision).max() {
            Some(at) => format!("the other nodes have proved theirs up to commit {at}, it is of {commit}"),
            None if self.stale.is_empty() => {
                "no other node has proved its copy; a cluster needs at least two".to_owned()
            }
            None => "no other node has proved its copy of late".to_owned(),
        };
        let stale = self.stale.iter().map(|(kma, at)| self.stale_words(kma, *at)).collect::<String>();
        Some(format!("elsewhere: {why}{stale}"))
    }

    fn stale_words(&self, kma: &Name, at: Timestamp) -> String {
        let age = self.now.duration_since(at);
        let minutes = age.unsigned_abs().as_secs() / 60;
        let long = match minutes {
            0..120 => format!("{minutes} minutes"),
            120..2880 => format!("{} hours", minutes / 60),
            _ => format!("{} days", minutes / 1440),
        };
        match age.is_negative() {
            false => format!(
                "; node {kma} last did {long} ago, which counts no more: see that it runs and is unlocked, or remove it if it is lost"
            ),
            true => format!(
                "; node {kma} did by a clock that is {long} ahead of this node's, which does not count: set the wrong one"
            ),
        }
    }
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
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::time::Duration;

    use super::super::EVERY;
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_900_000_000, 0);

    fn proof(revision: i64, refused: &[&str]) -> OwnProof {
        let refused = refused.iter().map(|name| (*name).to_owned()).collect();
        OwnProof { revision, keys: 0, objects: 0, refused, at: NOW }
    }

    /// Nodes `kma0`, `kma1` and so on, which have said this.
    fn others(proofs: impl IntoIterator<Item = OwnProof>) -> Others {
        let name = |at: usize| format!("kma{at}").parse().unwrap();
        Others::at(proofs.into_iter().enumerate().map(|(at, proof)| (name(at), proof)), NOW)
    }

    #[test]
    fn another_node_must_have_unwrapped_this_very_key() {
        for name in ["01", "kmip/01"] {
            assert!(others([]).lack(name, 5).is_some());
            assert!(others([proof(4, &[])]).lack(name, 5).is_some());
            assert!(others([proof(5, &[name])]).lack(name, 5).is_some());
            assert!(others([proof(5, &[name]), proof(5, &[])]).lack(name, 5).is_none());
            assert!(others([proof(5, &["02"])]).lack(name, 5).is_none());
        }
    }

    /// What a node had said once counted for ever: one that had burnt a month ago still proved each key from before.
    #[test]
    fn a_node_that_has_said_nothing_for_long_proves_nothing() {
        let said = |ago: Duration| OwnProof { at: NOW - ago, ..proof(5, &[]) };
        assert_eq!(others([said(COUNTS_FOR)]).lack("01", 5), None);
        let late = COUNTS_FOR + Duration::from_secs(1);
        let why = others([said(late)]).lack("01", 5).unwrap();
        assert!(why.contains("node kma0 last did 30 minutes ago") && why.contains("see that it runs"), "{why}");
        // Another one does in its place; where that lacks the key, both are told of.
        assert_eq!(others([said(late), said(EVERY)]).lack("01", 5), None);
        let why = others([said(late), proof(4, &[])]).lack("01", 5).unwrap();
        assert!(why.contains("up to commit 4") && why.contains("node kma0 last did"), "{why}");
        let why = others([said(Duration::from_secs(31 * 86_400))]).lack("01", 5).unwrap();
        assert!(why.contains("31 days ago"), "{why}");
        // A clock that is ahead would make what it dates count for as long as it is wrong.
        let ahead = OwnProof { at: NOW + late, ..proof(5, &[]) };
        let why = others([ahead]).lack("01", 5).unwrap();
        assert!(why.contains("30 minutes ahead"), "{why}");
    }

    #[test]
    fn a_backup_from_before_the_last_change_proves_nothing() {
        assert!(not_in_backup(None, 5).is_some() && not_in_backup(Some(4), 5).is_some());
        assert!(not_in_backup(Some(5), 5).is_none());
    }
}
