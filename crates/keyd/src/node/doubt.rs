//! What a node does not believe of what the ledger says, and what it goes on with.

use capstan_service::audit::Anchor;

use super::doubts::{Doubt, DoubtKind};
use super::{MajorityContact, Memory, Node};
use crate::family::{Ending, ending_of};
use crate::path::Path;
use crate::state::LedgerState;

/// What to do about a record that somebody has taken away or put back.
const ADVICE: &str = "this node continues with the version that it knew. Find out who writes to etcd without going \
    through the nodes; if etcd was put back to an older state, restore the cluster (`keyd restore`)";

/// How far the clocks of two nodes may be apart.
const CLOCKS_APART_MAX_NS: u64 = 3600 * 1_000_000_000;

/// What is to be said of a record that the replica has kept; nothing of one that the ledger has.
pub(super) fn of_kept(path: &str, revision: i64) -> Option<Doubt> {
    let words = match revision {
        1.. => return None,
        0 => missing(path),
        _ => format!(
            "the ledger has another version of {path}, which is older or was not sealed by this cluster: {ADVICE}"
        ),
    };
    Some(DoubtKind::Record.that(words))
}

fn missing(path: &str) -> String {
    format!("the record {path} is missing from the ledger, and no node has removed it: {ADVICE}")
}

impl Node {
    /// What another node's anchor says of this one's clock, by which certificates and periods are judged here. An
    /// anchor is never of a later time than now; and one that comes while the ledger is followed without a gap is of
    /// this minute.
    pub(super) fn doubt_of_clock(&self, path: &str, plaintext: &[u8]) -> Option<Doubt> {
        let other = path.strip_prefix("anchor/").filter(|other| *other != self.name.as_str())?;
        let (at_ns, now_ns) = (Anchor::decode(plaintext).ok()?.at_ns, self.now_ns());
        let is_apart = at_ns.abs_diff(now_ns) > CLOCKS_APART_MAX_NS;
        let tells = at_ns > now_ns || self.standing() == MajorityContact::Current;
        (is_apart && tells).then(|| {
            DoubtKind::Clock.that(format!(
                "this node's clock and that of node {other} are more than an hour apart: by the one that is wrong, certificates that ended \
                 are let in, or good ones refused, and periods end at the wrong time. Set it (`timedatectl`), and restart that node"
            ))
        })
    }
}

impl Memory {
    /// A record is gone, and nothing was put in its place.
    pub(super) fn removed(&mut self, path: &str, revision: i64) {
        if self.state.mark(&Path::parse(path)).revision > revision {
            // Old news.
            return;
        }
        if self.state.mark(&Path::parse(path)).change == 0 {
            // Never known but as junk. What it counts for stays: whoever put it there may have put it over something.
            self.doubts.forget_about(path);
        }
        match ending_of(path) {
            Ending::Deletion => self.state.remove(path),
            Ending::Never | Ending::Tombstone => {
                if self.state.ledger_has(path, 0) {
                    self.doubt(DoubtKind::Record.that(missing(path)));
                }
            }
        }
    }
}

/// A record that is not believed.
pub(super) struct Distrusted {
    pub(super) path: String,
    pub(super) revision: i64,
    pub(super) why: String,
    /// It is of an epoch after this node's.
    pub(super) later_epoch: Option<u32>,
}

impl Distrusted {
    /// What was known stays, and what was never known counts for as little as it can.
    pub(super) fn note(&self, state: &mut LedgerState) {
        let known = state.mark(&Path::parse(&self.path));
        match known.change {
            0 => state.distrust(&self.path),
            _ if self.revision > known.revision => drop(state.ledger_has(&self.path, self.revision)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
