//! The disks that an epoch leaves behind when the cluster is restored.
//!
//! What a node of the old epoch had on its disk, it has still: each key that was issued, as ciphertext under keys that
//! the new epoch goes on with. So each is put on record as a node that was removed (`removed/KMA`), and a key that is
//! destroyed later is not certified before somebody has said that the disk is gone (`keyd kmas confirm-destroyed`). By
//! the same record the copy of its journal that the restored node has is taken in.
//!
//! The node that begins the new epoch may have had its name before, in a state directory that is left behind as well.
//! Under that name it is a node of the cluster; so what it leaves is `removed/NAME-epochN`, by the epoch that it was
//! of.

use std::collections::BTreeMap;

use capstan_keys::Name;

use crate::path::Path;
use crate::record::{KmaRecord, RemovedKma, decode_held};

/// Longest name.
const NAME_LEN_MAX: usize = 63;

/// What is met of nodes while records are replanted.
pub(super) struct LeftBehind<'a> {
    /// The node that begins the new epoch.
    beginning: &'a Name,
    /// The epoch that is left.
    epoch: u32,
    now_ns: i64,
    nodes: BTreeMap<Name, KmaRecord>,
    held: BTreeMap<Name, i64>,
}

impl<'a> LeftBehind<'a> {
    pub(super) fn new(beginning: &'a Name, epoch: u32, now_ns: i64) -> Self {
        Self { beginning, epoch, now_ns, nodes: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// A node of the old epoch.
    pub(super) fn node(&mut self, name: &Name, record: KmaRecord) {
        self.nodes.insert(name.clone(), record);
    }

    /// How far it had said that its disk is.
    pub(super) fn held(&mut self, name: &Name, mark: &[u8]) {
        self.held.extend(decode_held(mark).map(|held| (name.clone(), held)));
    }

    /// Where a node that was removed before is on record from now on, if that is elsewhere.
    pub(super) fn moved(&self, path: &str, record: &[u8]) -> Option<Path> {
        let name: Name = path.strip_prefix("removed/")?.parse().ok()?;
        let record: RemovedKma = serde_json::from_slice(record).ok()?;
        (name == *self.beginning).then(|| Path::removed(&of_epoch(&name, record.epoch)))
    }

    /// The names under which the old nodes are on record, with their records.
    pub(super) fn records(self) -> impl Iterator<Item = (Name, RemovedKma)> {
        let Self { beginning, epoch, now_ns, nodes, held } = self;
        nodes.into_iter().map(move |(name, was)| {
            let held = held.get(&name).copied().unwrap_or(0);
            let record = RemovedKma {
                was,
                held,
                epoch,
                by: beginning.clone(),
                removed_ns: now_ns,
                destroyed_ns: None,
                met_ns: None,
            };
            (if name == *beginning { of_epoch(&name, epoch) } else { name }, record)
        })
    }
}

/// The name of what a node of an epoch has left, beside the node of that name.
fn of_epoch(name: &Name, epoch: u32) -> Name {
    let suffix = format!("-epoch{epoch}");
    let text = name.to_string();
    // A name is ASCII.
    let text = format!("{}{suffix}", &text[..text.len().min(NAME_LEN_MAX - suffix.len())]);
    text.parse().unwrap_or_else(|_| unreachable!("a name that is cut and goes on with letters and digits is one"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::record::encode_held;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn node(address: &str) -> KmaRecord {
        KmaRecord { site: "south".to_owned(), address: address.to_owned(), joined_ns: 5 }
    }

    /// A restore left no word of the old nodes' disks, and a key was certified as destroyed while they had it.
    #[test]
    fn each_old_disk_is_on_record_and_none_under_the_name_of_a_node() {
        let a = name("a");
        let mut left = LeftBehind::new(&a, 3, 90);
        left.node(&a, node("a:1"));
        left.node(&name("b"), node("b:1"));
        left.held(&name("b"), &encode_held(77));
        let before = RemovedKma {
            was: node("a:0"),
            held: 1,
            epoch: 2,
            by: name("ada"),
            removed_ns: 6,
            destroyed_ns: None,
            met_ns: None,
        };
        let before = serde_json::to_vec(&before).unwrap();
        assert_eq!(left.moved("removed/a", &before), Some(Path::removed(&name("a-epoch2"))));
        assert_eq!(left.moved("removed/b", &before), None, "it is no node of the new epoch");
        let records: Vec<_> = left.records().collect();
        let said =
            |(name, record): &(Name, RemovedKma)| (name.to_string(), record.held, record.epoch, record.removed_ns);
        let said: Vec<_> = records.iter().map(said).collect();
        assert_eq!(said, [("a-epoch3".to_owned(), 0, 3, 90), ("b".to_owned(), 77, 3, 90)]);
    }

    #[test]
    fn a_name_of_any_length_has_one_for_what_it_left() {
        let longest = name(&"x".repeat(NAME_LEN_MAX));
        assert_eq!(of_epoch(&longest, 12).to_string(), format!("{}-epoch12", "x".repeat(NAME_LEN_MAX - 8)));
    }
}
