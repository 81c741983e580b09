//! A node's pool: keys that were drawn ahead, so that a key that is issued has long been stored twice.
//!
//! A key of the pool is **ready** when the commit that holds it is on the disk of another node too, and where nodes
//! stand at more than one site, on that of one at another site. A cluster of one node has no other: there a verified
//! backup must hold it. Nothing of this is written down; it is computed from how far each node says it holds the
//! ledger, and a node says so after its disk has it and its keys have opened what it holds.
//!
//! Half of a pool, the keys whose tags end in an odd digit, is for when the node is cut off from the majority. A commit
//! whose answer was lost may have given a key away; a node that is cut off then, or restarted cut off, cannot find out.
//! So it never issues a key by itself that it may have committed: those two sets have no key in common, and nothing
//! need be written before each commit to know it.

use std::collections::BTreeMap;

use capstan_format::{Algorithm, KeyTag};
use capstan_keys::{KeyError, Name, Secret, VolumeKey, WrappedKey, tag_of, unwrap, wrap};

use crate::path::Path;
use crate::record::{KmaRecord, PoolKey};
use crate::root::ClusterKeys;
use crate::state::{Half, LedgerState, View};

const PURPOSE: &str = "capstan keyd pool wrap v1";

/// How many keys a node's pool has at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyPool {
    /// Keys that may be issued in touch with the majority.
    pub ready: usize,
    /// Keys that may be issued cut off from it.
    pub reserve: usize,
    /// Keys that are not yet stored where they must be.
    pub waiting: usize,
}

impl KeyPool {
    /// Whether one of its halves is below its part of the low-water mark: the smaller one says how long the node can go
    /// on.
    pub fn is_below(&self, low: usize) -> bool {
        self.ready.min(self.reserve) * 2 < low
    }
}

/// The pool of a node. `backed_up` is the last commit that a verified backup holds, which counts for a node that is
/// alone. What it looks at is what is on its way into the pool, and what was issued cut off: not the pool.
pub fn pool_of(view: View<'_>, kma: &Name, backed_up: i64) -> KeyPool {
    let state = view.ledger();
    let safe = safe_commit(state, kma, backed_up);
    let mut pool =
        KeyPool { ready: state.pool_len(kma, Half::Ready), reserve: state.pool_len(kma, Half::Reserve), waiting: 0 };
    let half = |pool: &mut KeyPool, tag: &KeyTag| match Half::of(tag) {
        Half::Ready => pool.ready -= 1,
        Half::Reserve => pool.reserve -= 1,
    };
    for (tag, _) in state.pool_behind(kma, safe) {
        half(&mut pool, tag);
        pool.waiting += 1;
    }
    for tag in view.issued_apart() {
        let mark = state.mark(&Path::Pool { kma: kma.clone(), tag: *tag });
        match mark.revision {
            0 => {}
            revision if revision <= safe => half(&mut pool, tag),
            _ => pool.waiting -= 1,
        }
    }
    pool
}

/// The key of a half of a node's pool that is issued next, but for those that are `taken`.
pub fn next_of_pool(
    view: View<'_>,
    kma: &Name,
    backed_up: i64,
    half: Half,
    taken: impl Fn(&KeyTag) -> bool,
) -> Option<KeyTag> {
    let state = view.ledger();
    let safe = safe_commit(state, kma, backed_up);
    // A key that was issued is no key of the pool any more, even if somebody put its record back.
    state.pool_up_to(kma, half, safe).find(|tag| view.key(tag).is_none() && !taken(tag)).copied()
}

fn safe_commit(state: &LedgerState, kma: &Name, backed_up: i64) -> i64 {
    safe_commit_of(state.kmas(), |kma| state.held(kma), kma, backed_up)
}

/// The last commit that is stored where a key of this node must be before it is issued.
fn safe_commit_of(kmas: &BTreeMap<Name, KmaRecord>, held: impl Fn(&Name) -> i64, kma: &Name, backed_up: i64) -> i64 {
    let own = kmas.get(kma).map(|record| record.site.as_str());
    let others = || kmas.iter().filter(|(other, _)| *other != kma);
    if others().next().is_none() {
        return backed_up;
    }
    let elsewhere =
        others().filter(|(_, record)| Some(record.site.as_str()) != own).map(|(other, _)| held(other)).max();
    // Where there is another site, a copy there is a copy at a second node too.
    elsewhere.or_else(|| others().map(|(other, _)| held(other)).max()).unwrap_or(0)
}

/// A new key as a pool has it: its public name and its record.
pub fn pool_key_of(keys: &ClusterKeys, key: &Secret, now_ns: i64) -> Result<(KeyTag, PoolKey), KeyError> {
    let wrapped = wrap(&wrapping(keys)?, key.expose())?;
    Ok((tag_of(key.expose()), PoolKey { created_ns: now_ns, wrapped }))
}

/// A key of a pool, out of its record; none if it is not the one of this tag.
pub fn open_pool_key(
    keys: &ClusterKeys,
    tag: KeyTag,
    algorithm: Algorithm,
    wrapped: &WrappedKey,
) -> Result<Option<VolumeKey>, KeyError> {
    let key = unwrap(&wrapping(keys)?, wrapped).map(|secret| VolumeKey::new(secret, algorithm));
    Ok(key.filter(|key| key.tag() == tag))
}

fn wrapping(keys: &ClusterKeys) -> Result<Secret, KeyError> {
    keys.derive(&keys.cluster().0, PURPOSE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn safe(nodes: &[(&str, &str, i64)], of: &str, backed_up: i64) -> i64 {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let record = |site: &str| KmaRecord { site: site.to_owned(), address: String::new(), joined_ns: 0 };
        let kmas = nodes.iter().map(|(kma, site, _)| (name(kma), record(site))).collect();
        let held = |kma: &Name| nodes.iter().find(|node| node.0 == kma.as_str()).unwrap().2;
        safe_commit_of(&kmas, held, &name(of), backed_up)
    }

    #[test]
    fn a_key_is_safe_once_another_node_holds_it() {
        assert_eq!(safe(&[("a", "x", 90), ("b", "x", 50), ("c", "x", 70)], "a", 0), 70);
        // What the node itself holds never counts, nor does a backup where there are others.
        assert_eq!(safe(&[("a", "x", 90), ("b", "x", 0)], "a", 80), 0);
    }

    #[test]
    fn where_there_is_another_site_it_must_be_there() {
        assert_eq!(safe(&[("a", "x", 90), ("b", "x", 70), ("c", "y", 20)], "a", 0), 20);
        assert_eq!(safe(&[("a", "x", 90), ("b", "x", 70), ("c", "y", 20)], "c", 0), 90);
    }

    #[test]
    fn a_node_that_is_alone_needs_a_backup() {
        assert_eq!(safe(&[("a", "x", 90)], "a", 0), 0);
        assert_eq!(safe(&[("a", "x", 90)], "a", 40), 40);
    }
}
