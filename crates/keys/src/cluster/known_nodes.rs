//! The nodes that a cluster had when it was asked last, kept beside the identity for the next start.
//!
//! The settings of a machine name the nodes that there were when somebody wrote them. Where all of those are gone by
//! the time the machine starts anew, while others serve, it would find nobody. So the list is kept whenever it changes:
//! `agent.pem` has `agent.nodes` beside it.
//!
//! It is public, and believed only as far as addresses go: who answers at one proves by TLS to be a node of the
//! cluster, and then says who the nodes are. Whoever can write to the file can keep the machine from finding them
//! there, and nothing more; the addresses of the settings are asked in any case. A file that cannot be read, or that is
//! another cluster's, is as none.
//!
//! The newest epoch that a node has told of is kept there as well. A cluster that was restored begins a new one, and a
//! node of the old one that still runs gives out keys that the new one knows nothing of: this machine takes nothing
//! from it any more, over its restarts too. It is taken back by taking the file away.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::api::{ClusterId, KmaMember, KmaState};
use crate::key_file::sync_directory;

/// A node takes some hundred bytes.
const FILE_LEN_MAX: u64 = 64 << 10;
/// More than these are not kept: a cluster has a handful.
const NODES_MAX: usize = 64;

/// The file, and what stands in it.
pub(super) struct KnownNodes {
    path: PathBuf,
    cluster: ClusterId,
    kept: Mutex<What>,
}

#[derive(Default)]
struct What {
    nodes: Vec<KmaMember>,
    epoch: u32,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    cluster: String,
    #[serde(default)]
    epoch: u32,
    nodes: Vec<KmaMember>,
}

impl KnownNodes {
    /// Those that were known to this identity of this cluster.
    pub(super) fn beside(identity: &Path, cluster: ClusterId) -> Self {
        let path = identity.with_extension("nodes");
        let kept = read(&path).filter(|kept| kept.cluster == cluster.to_string());
        let kept = kept.map(|kept| What { nodes: lasting(&kept.nodes), epoch: kept.epoch }).unwrap_or_default();
        Self { path, cluster, kept: Mutex::new(kept) }
    }

    /// Those that were kept last.
    pub(super) fn nodes(&self) -> Vec<KmaMember> {
        self.kept().nodes.clone()
    }

    /// The newest epoch that any node has told of.
    pub(super) fn epoch(&self) -> u32 {
        self.kept().epoch
    }

    /// Keeps that a node has told of this epoch, if it is newer than all before.
    pub(super) fn keep_epoch(&self, epoch: u32) -> io::Result<()> {
        let mut kept = self.kept();
        if epoch <= kept.epoch {
            return Ok(());
        }
        // What counts from here on, kept or not.
        kept.epoch = epoch;
        self.write(&mut kept)
    }

    fn kept(&self) -> MutexGuard<'_, What> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process may have heard of a newer epoch.
    fn write(&self, kept: &mut What) -> io::Result<()> {
        let cluster = self.cluster.to_string();
        let there = read(&self.path).filter(|there| there.cluster == cluster);
        kept.epoch = kept.epoch.max(there.map_or(0, |there| there.epoch));
        let text = serde_json::to_vec_pretty(&Kept { cluster, epoch: kept.epoch, nodes: kept.nodes.clone() })?;
        write(&self.path, &text)
    }

    /// Keeps this list in place of the last one, if it is another.
    pub(super) fn keep(&self, nodes: &[KmaMember]) -> io::Result<()> {
        let nodes = lasting(nodes);
        let mut kept = self.kept();
        // An empty list would leave nobody to ask.
        if nodes.is_empty() || nodes == kept.nodes {
            return Ok(());
        }
        let before = std::mem::replace(&mut kept.nodes, nodes);
        let written = self.write(&mut kept);
        if written.is_err() {
            kept.nodes = before;
        }
        written
    }
}

/// What of a list is worth keeping, in one order: how the nodes fare is another matter tomorrow.
fn lasting(nodes: &[KmaMember]) -> Vec<KmaMember> {
    let mut nodes: Vec<_> =
        nodes.iter().take(NODES_MAX).map(|node| KmaMember { state: KmaState::Unknown, ..node.clone() }).collect();
    nodes.sort_by(|one, other| (&one.name, &one.address).cmp(&(&other.name, &other.address)));
    nodes
}

fn read(path: &Path) -> Option<Kept> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return None;
    }
    serde_json::from_slice(&bytes).ok()
}

/// As a whole or not at all: beside, flushed, renamed.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("nodes.new");
    let _ = std::fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside)?;
    let written = file.write_all(text).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| std::fs::rename(&beside, path)).and_then(|()| sync_directory(path));
    renamed.inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const CLUSTER: ClusterId = ClusterId([1; 16]);

    fn node(name: &str, state: KmaState) -> KmaMember {
        KmaMember { name: name.to_owned(), site: "north".to_owned(), address: format!("{name}:7443"), state }
    }

    #[test]
    fn a_list_is_kept_and_another_clusters_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let identity = folder.path().join("agent.pem");
        let known = KnownNodes::beside(&identity, CLUSTER);
        assert_eq!(known.nodes(), []);
        known.keep(&[node("b", KmaState::Serving), node("a", KmaState::Locked)]).unwrap();
        let names = |known: &KnownNodes| known.nodes().into_iter().map(|node| node.name).collect::<Vec<_>>();
        assert_eq!(names(&KnownNodes::beside(&identity, CLUSTER)), ["a", "b"]);
        assert_eq!(names(&KnownNodes::beside(&identity, ClusterId([2; 16]))), [""; 0]);

        // The same nodes in another order and state are nothing to write; an empty list is none.
        let file = folder.path().join("agent.nodes");
        std::fs::remove_file(&file).unwrap();
        known.keep(&[node("a", KmaState::Serving), node("b", KmaState::Unknown)]).unwrap();
        known.keep(&[]).unwrap();
        assert!(!file.exists());
        known.keep(&[node("c", KmaState::Serving)]).unwrap();
        assert_eq!(names(&KnownNodes::beside(&identity, CLUSTER)), ["c"]);
    }

    #[test]
    fn the_newest_epoch_is_kept_beside_the_list_whoever_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let identity = folder.path().join("agent.pem");
        let [known, other] = [(); 2].map(|()| KnownNodes::beside(&identity, CLUSTER));
        other.keep_epoch(3).unwrap();
        known.keep(&[node("a", KmaState::Serving)]).unwrap();
        known.keep_epoch(2).unwrap();
        let again = KnownNodes::beside(&identity, CLUSTER);
        assert_eq!((known.epoch(), again.epoch(), again.nodes().len()), (3, 3, 1));
        assert_eq!(KnownNodes::beside(&identity, ClusterId([2; 16])).epoch(), 0);
    }

    #[test]
    fn what_cannot_be_read_is_as_none_and_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let identity = folder.path().join("agent.pem");
        let file = folder.path().join("agent.nodes");
        for bad in [&b"\xff"[..], b"{}", b"[]", b"{\"cluster\": 5}", &[b' '; 70_000]] {
            std::fs::write(&file, bad).unwrap();
            let known = KnownNodes::beside(&identity, CLUSTER);
            assert_eq!(known.nodes(), []);
            known.keep(&[node("a", KmaState::Serving)]).unwrap();
            assert_eq!(KnownNodes::beside(&identity, CLUSTER).nodes(), [node("a", KmaState::Unknown)]);
        }
    }
}
